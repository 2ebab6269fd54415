"""Writes the table of log formats in `docs/training.md` from the definitions of the formats."""
# ruff: noqa: INP001 - a script

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from trainvitals.sources.runs.formats import FORMATS

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/training.md"
BEGIN, END = (
    "<!-- Written by `make docs` from docs/build/formats.py. -->\n",
    "<!-- end of formats -->\n",
)
_COUNTS = {"epoch_step", "epoch_steps", "total_epochs", "total_steps"}
_NAMES = {
    "step_seconds": "step time",
    "samples_per_second": "samples/s",
    "tokens_per_second": "tokens/s",
}


def render() -> str:
    """Return the table of programs and conventions with the values read from their logs."""
    rows = [
        f"| {entry.name} | {', '.join(_describe(entry.reads))} |"
        for entry in sorted(FORMATS, key=lambda entry: entry.name.lower())
    ]
    return "\n".join(["| logs of | values |", "| --- | --- |", *rows]) + "\n"


def _describe(words: Iterable[str]) -> Iterator[str]:
    for word in words:
        if word not in _COUNTS:
            yield _NAMES.get(word, word.replace("_", " "))


def rewrite(page: str) -> str:
    """Return the page with a new table between its markers."""
    head, rest = page.split(BEGIN)
    return f"{head}{BEGIN}\n{render()}\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    PAGE.write_text(rewrite(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
