"""Tests for docs/doctor.md."""

import runpy
from pathlib import Path

from trainvitals.doctor import CHECKS

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs/doctor.md"


def test_the_page_is_up_to_date():
    """`docs/doctor.md` is identical to the output of `make docs`."""
    generator = runpy.run_path(str(ROOT / "docs/build/doctor.py"))
    assert (
        PAGE.read_text(encoding="utf-8").splitlines() == generator["write_page"]().splitlines()
    ), "run `make docs`"


def test_every_check_has_a_row():
    """The table in `docs/doctor.md` has one row for each check, in order."""
    page = PAGE.read_text(encoding="utf-8").partition("## Checks")[2]
    names = [line.split("`")[1] for line in page.splitlines() if line.startswith("| `")]
    assert names == [check.name for check in CHECKS]
