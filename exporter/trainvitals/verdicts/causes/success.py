"""Patterns of log lines that report the success of a run."""

from __future__ import annotations

import re

from trainvitals.verdicts.causes.signs import matches

_DONE = r"(?:completed?|finished|done|succeeded)\b"
_WORDS = (
    (
        r"(?=[abefjorstw])(?:training|train(?:er)?|fit(?:ting)?|job|run|experiment|fine-?tuning|optimi[sz]ation|study|search"
        rf"|sweep|tuning|benchmark|attempt [0-9]{{1,9}}|worker group)\b.{{0,32}}\b(?=[cfds]){_DONE}"
    ),
    rf"(?=[cdfs]){_DONE}.{{0,20}}\b(?=[tsf])(?:training|successfully|fit(?:ting)?)\b",
    r"successfully (?:completed?|finished|trained)\b|finished, ",
    r"early[ -]stopp(?:ing|ed)|max_(?:epochs|steps)=[0-9]{1,12}`? reached|exit(?:ed)? (?:with )?(?:code|status) 0\b",
    r"exit(?:ing|ed) (?:cleanly|gracefully|normally)\b|returned 0$|train_runtime\b|exit status: {1,20}0$",
    r"Trial status: [0-9]{1,9} TERMINATED$|Study statistics\b|Best trial ?(?:[:=]|is\b)",
    r"(?=[mprs])(?:results?|report|metrics|predictions|summary) (?:(?:were |was |is |are )?(?:saved|written|dumped)|stored) (?:to|in|at|as)\b",
    r"(?=[dsw])(?:saved|wrote|written|dumped) (?:the |all |final )?(?:results?|report|predictions|summary) (?:to|in|at|as)\b",
    r"all (?:[0-9]{1,9} )?(?:instances|items|tasks|samples|tests|evaluations|examples|problems) (?:were |have been )?(?:run|evaluated|processed|completed)\b",
    r"test(?:ing)?[ _-](?:accuracy|acc|top-?1|f1|auc|miou|map|bleu|wer|perplexity|ppl|score)\b ?[@\w]{0,6} ?[:=]? ?[0-9][.%0-9]{0,20}(?:[ ,;|]{1,3}[\w@-]{1,20} ?[=:] ?[0-9][.%0-9]{0,20}){0,6}\W{0,8}$",
)
# Success messages in other languages, without words that data loaders and downloads also print.
_ABROAD = (
    (
        r"(?=[^\x00-\x7f])(?:训练(?:已)?(?:完成|结束|完毕)|訓練(?:已)?完成|全部完成"
        r"|(?:学習|訓練|トレーニング)(?:が|を)?(?:完了|終了)"
        r"|(?:훈련|학습)[이을]? ?(?:완료|종료)"
        r"|бучение (?:успешно )?(?:завершено|закончено|окончено))"
    ),
    (
        r"(?=[dlnrt])(?:(?:Training|Lauf|Lernen) (?:erfolgreich )?(?:abgeschlossen|beendet)"
        r"|ntra[iî]nement (?:est )?(?:terminé|fini|achevé)"
        r"|ntrenamiento (?:completado|finalizado|terminado|completo)"
        r"|reinamento (?:concluído|finalizado|terminado|completo)"
        r"|ddestramento (?:completato|terminato|concluso))"
    ),
    r"^(?:fertig|terminé|terminado|concluído|finito|готово|完成|完了|완료)\b.{0,40}$",
)
# An evaluation metric.
RESULT = re.compile(
    r"\"?\b(?:pass@[0-9]{1,4}|accuracy|exact_match|solved|score)\"?\s{0,4}[:=] ?[0-9]",
    re.IGNORECASE,
)
SAVED = re.compile(
    r"\b(?:sav(?:e|ed|ing)|wrote|written)\b.{0,80}\b(?:checkpoint|model|weights|state|ckpt)"
    r"|\b(?:checkpoint|model|weights)\b.{0,80}\b(?:saved|written)\b",
    re.IGNORECASE,
)
# A file that is the outcome of the work, unlike a file written about a crash.
_WROTE = re.compile(
    r"\b(?:wrote|saved|written|exported|stored)\b(?:[^/]{0,60} )?[\"'`]?[\w.~-]{0,80}/\S{1,300}$",
    re.IGNORECASE,
)
_OF_CRASH = re.compile(
    r"crash|dump|\bcore\b|emergency|partial|trace|flight|debug|\blogs?\b|\.log\b|stack|interrupt|before exit"
    r"|state of|error|fail|diagnos|snapshot|recorder|\breport",
    re.IGNORECASE,
)


def is_written(line: str) -> bool:
    """Return whether a line reports that a result file, rather than a crash file, was written."""
    return _WROTE.search(line[-400:]) is not None and _OF_CRASH.search(line) is None


FINISHED = matches(
    rf"(?<![a-z])(?=[a-z])(?:{'|'.join(_WORDS)})|(?<![a-z0-9])[0-9]{{1,9}} epochs? completed in\b"
    r"|(?:^|[:\]>] ?)(?:all )?(?:done|finished)\b.{0,40}$|(?<!=)={3,200} [0-9]{1,9} passed"
    r"|(?<![0-9.])([0-9]{1,9}) ?(?:of|/|out of) ?\1 [a-z][\w -]{0,40}(?:passed|succeeded)\b",
    *_ABROAD,
    ignore_case=True,
)
