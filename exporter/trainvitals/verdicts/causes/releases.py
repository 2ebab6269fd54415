"""Names that an installed package lacks because the caller was written for another release."""

from __future__ import annotations

import re
import sys

from trainvitals.verdicts.causes.case import Case
from trainvitals.verdicts.causes.log_matches import LogMatch
from trainvitals.verdicts.causes.packages import (
    ATTRIBUTE_MISSING,
    NAME_MISSING,
    PART_MISSING,
    find_package,
)
from trainvitals.verdicts.causes.parsed_log import parse_log
from trainvitals.verdicts.causes.signs import matches
from trainvitals.verdicts.causes.verdict import Finding

LACKS = matches(NAME_MISSING, ATTRIBUTE_MISSING, PART_MISSING)
_CALLER = re.compile(r"(?:site|dist)-packages/(\w{1,60})")


def conclude_release(case: Case, match: LogMatch) -> Finding | None:
    """Return a finding about a name that a package lacks; None if the match names no such name."""
    found = next(filter(None, map(LACKS.search, match.text.split("\n"))), None)
    if found is None:
        return None
    module = found["package"] or found["module"] or found["part"]
    top = module.partition(".")[0]
    what = (
        f"`{module}`" if found["part"] else f"`{found['name'] or found['attribute']}` of `{module}`"
    )
    caller = _find_caller(case, match, top)
    if top in sys.stdlib_module_names:
        summary = (
            f"This release of Python does not have {what}, which `{caller or 'the program'}` needs."
        )
        return match.conclude("library-mismatch", summary, _OTHER_PYTHON)
    package = find_package(top).split(" ")[-1] or "PACKAGE"
    return match.conclude(
        "library-mismatch",
        f"The installed release of `{top}` does not have {what}, which"
        f" {f'`{caller}`' if caller else 'the program'} was written for.",
        _advise(package, caller),
    )


def _advise(package: str, caller: str) -> tuple[str, ...]:
    first = (
        f"Install the release of `{package}` that {f'`{caller}`' if caller else 'the program'} needs, by its"
        f" requirements or its date: `pip index versions {package}`, `pip install '{package}==VERSION'`."
    )
    other = (
        f"Or take a release of `{caller}` that fits the installed one: `pip show {package}`,"
        f" `pip install --upgrade {caller}`."
    )
    pin = "Compare all of them: `pip check`; pin what works together in `requirements.txt`."
    return (first, *(other,) * bool(caller), pin)


_OTHER_PYTHON = (
    "Install a release of the package that supports this Python: `pip install --upgrade PACKAGE`.",
    "Or use an older Python: `python --version`, `conda create -n train python=3.10`.",
)


def _find_caller(case: Case, match: LogMatch, top: str) -> str:
    """Return the package of the last traceback frame before an error.

    The result is an empty string if the frame is in the user's code or in the package `top`.
    """
    tracebacks = (
        each for each in parse_log(case).tracebacks if each.start <= match.line <= each.end
    )
    found = next(tracebacks, None)
    frames = () if found is None else case.lines[found.start : match.line]
    files = [line for line in frames if ".py" in line]
    named = _CALLER.search(files[-1]) if files else None
    return named[1] if named is not None and named[1] != top else ""
