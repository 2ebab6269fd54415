"""Words by which a line reports the success of a run."""

from __future__ import annotations

from trainvitals.verdicts.causes.signs import matches

FINISHED = matches(
    r"(?:training|train(?:er)?|fit(?:ting)?|job|run|experiment|fine-?tuning|optimi[sz]ation|study|search"
    r"|sweep|tuning|benchmark|attempt [0-9]+|worker group)\b.{0,40}\b(?:completed?|finished|done|succeeded)\b"
    r"|\b(?:completed?|finished|done|succeeded)\b.{0,20}\b(?:training|successfully|fit(?:ting)?)\b"
    r"|\bsuccessfully (?:completed?|finished|trained)\b|\bfinished, |(?:^|[:\]>] ?)(?:all )?(?:done|finished)\b.{0,40}$"
    r"|early[ -]stopp(?:ing|ed)|max_(?:epochs|steps)=[0-9]+`? reached|exit(?:ed)? (?:with )?(?:code|status) 0\b"
    r"|\bexit(?:ing|ed) (?:cleanly|gracefully|normally)\b|\breturned 0$|\btrain_runtime\b|(?<!=)={3,} [0-9]+ passed|Trial status: [0-9]+ TERMINATED$",
    ignore_case=True,
)
