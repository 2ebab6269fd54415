"""The table of Xid codes is complete and consistent."""

from __future__ import annotations

from trainvitals.sources.accelerators.xids import XIDS, explain_xid


def test_each_code_is_explained_once_in_order():
    """The codes are sorted and unique, and their texts are short enough for labels."""
    codes = [xid.code for xid in XIDS]
    assert codes == sorted(set(codes))
    for xid in XIDS:
        assert 0 < len(xid.meaning) < 50
        assert 0 < len(xid.action) < 50
        assert xid.severity in ("critical", "warning", "app", "info")


def test_well_known_codes_ask_for_what_operators_do():
    """Well-known codes have the severity and the action that operators expect."""
    assert (explain_xid(79).severity, explain_xid(79).action) == (
        "critical",
        "reboot of the machine",
    )
    assert explain_xid(31).severity == "app"
    assert explain_xid(94).severity == "warning"
    assert explain_xid(45).severity == "info"


def test_an_unknown_code_is_a_warning():
    """An unknown code is a warning whose action refers to the kernel log."""
    xid = explain_xid(777)
    assert (xid.code, xid.severity, xid.action) == (777, "warning", "a look at the kernel log")
