"""Settings of a training that its command and its log give away, so that advice can have numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from trainvitals.causes.case import Case

_BATCH = re.compile(
    r"(?<![\w-])(--?)?((?:per[_-]device[_-])?(?:(?:train|micro|mini|global|local)[_-]?)*"
    r"batch[_ -]?size(?:[_ -]per[_ -](?:gpu|device))?)[\"']?\s*(?:[=:]\s*|\s)(\d{1,6})(?![\w.])",
    re.IGNORECASE,
)
_WORKERS = re.compile(
    r"(?<![\w-])(--?)?((?:dataloader[_-])?num[_-]workers)[\"']?\s*(?:[=:]\s*|\s)(\d{1,4})(?![\w.])",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Hint:
    """A setting with a number, as it was written.

    Attributes:
        name: Its name, such as `--batch-size` or `batch_size`.
        value: Its value.
    """

    name: str
    value: int

    @property
    def text(self) -> str:
        """How it was set: `--batch-size 32`, `batch_size=32`."""
        return self.write(self.value)

    def write(self, value: int) -> str:
        """Write the setting with another value."""
        return f"{self.name}{' ' if self.name.startswith('-') else '='}{value}"


def find_batch_size(case: Case) -> Hint | None:
    """Find the batch size in the command, else in the log, where the last one holds; None if none."""
    return _find(case, _BATCH)


def find_workers(case: Case) -> Hint | None:
    """Find the number of data loader workers in the command, else in the log; None if none."""
    return _find(case, _WORKERS)


def _find(case: Case, pattern: re.Pattern[str]) -> Hint | None:
    for text in _list_texts(case):
        for match in reversed(list(pattern.finditer(text))):
            if int(match[3]) > 0:
                return Hint((match[1] or "") + match[2], int(match[3]))
    return None


def _list_texts(case: Case) -> Iterator[str]:
    settings = case.evidence.settings
    if settings is not None:
        yield " ".join(settings.command)
    yield from reversed(case.lines)


def advise_smaller_batch(case: Case) -> str:
    """Give the step about the batch size, with a number where one is known."""
    hint = find_batch_size(case)
    if hint is None or hint.value == 1:
        return (
            "Use a smaller batch (`--batch-size`) and make up for it with gradient accumulation"
            " (`gradient_accumulation_steps`)."
        )
    half = hint.value // 2
    return (
        f"Halve the batch: it had `{hint.text}`, try `{hint.write(half)}` with"
        " `gradient_accumulation_steps=2` for the same step."
    )


def advise_fewer_workers(case: Case) -> str:
    """Give the step about the data loader's workers, with a number where one is known."""
    hint = find_workers(case)
    if hint is None or hint.value <= 1:
        return (
            "Use fewer data loader workers (`num_workers`), a smaller `prefetch_factor`, and keep"
            " no copy of the data in `Dataset.__init__`: each worker has its own."
        )
    return (
        f"Use fewer data loader workers: it had `{hint.text}`, try"
        f" `{hint.write(max(1, hint.value // 2))}`, and a smaller `prefetch_factor`."
    )
