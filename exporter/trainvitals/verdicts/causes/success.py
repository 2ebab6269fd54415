"""Words by which a line reports the success of a run."""

from __future__ import annotations

from trainvitals.verdicts.causes.signs import matches

_DONE = r"(?:completed?|finished|done|succeeded)\b"
_WORDS = (
    (
        r"(?:training|train(?:er)?|fit(?:ting)?|job|run|experiment|fine-?tuning|optimi[sz]ation|study|search"
        rf"|sweep|tuning|benchmark|attempt [0-9]{{1,9}}|worker group)\b.{{0,32}}\b(?=[cfds]){_DONE}"
    ),
    rf"{_DONE}.{{0,20}}\b(?=[tsf])(?:training|successfully|fit(?:ting)?)\b",
    r"successfully (?:completed?|finished|trained)\b|finished, ",
    r"early[ -]stopp(?:ing|ed)|max_(?:epochs|steps)=[0-9]{1,12}`? reached|exit(?:ed)? (?:with )?(?:code|status) 0\b",
    r"exit(?:ing|ed) (?:cleanly|gracefully|normally)\b|returned 0$|train_runtime\b",
    r"Trial status: [0-9]{1,9} TERMINATED$|[0-9]{1,9} epochs? completed in\b|Study statistics\b|Best trial ?(?:[:=]|is\b)",
    r"(?:results?|report|metrics|predictions|summary) (?:(?:were |was |is |are )?(?:saved|written|dumped)|stored) (?:to|in|at|as)\b",
    r"(?:saved|wrote|written|dumped) (?:the |all |final )?(?:results?|report|predictions|summary) (?:to|in|at|as)\b",
    r"all (?:[0-9]{1,9} )?(?:instances|items|tasks|samples|tests|evaluations|examples|problems) (?:were |have been )?(?:run|evaluated|processed|completed)\b",
    r"test(?:ing)?[ _-](?:accuracy|acc|top-?1|f1|auc|miou|map|bleu|wer|perplexity|ppl|score)\b ?[@\w]{0,6} ?[:=]? ?[0-9][.%0-9]{0,20}\W{0,8}$",
)
FINISHED = matches(
    rf"(?<![a-z])(?=[a-z0-9])(?:{'|'.join(_WORDS)})"
    r"|(?:^|[:\]>] ?)(?:all )?(?:done|finished)\b.{0,40}$|(?<!=)={3,200} [0-9]{1,9} passed",
    ignore_case=True,
)
