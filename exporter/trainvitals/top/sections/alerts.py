"""The alerts that fire."""

from __future__ import annotations

from rich.text import Text

from trainvitals.overview.picture import Alert, Picture
from trainvitals.top.table import Column, Table
from trainvitals.top.words import UNKNOWN, make_harmless, write_duration

_STYLES = {"critical": "bold red", "warning": "yellow"}

_WHAT: Column[Alert] = Column(
    "WHAT", lambda one, _: Text(make_harmless(one.summary)), 30, 200, worth=5
)


def list_alerts(picture: Picture, *, lists_all: bool) -> Table[Alert]:
    """Make the section.

    Args:
        picture: The picture.
        lists_all: The whole of their messages, too.
    """
    now = picture.time
    return Table(
        7,
        "alert",
        (
            Column("ALERT", _draw_name, 22, 34, 9, key=lambda one: one.name),
            Column("SEVERITY", _draw_severity, 8, 0, 8, key=lambda one: one.severity),
            Column("ABOUT", lambda one, _: Text(make_harmless(one.subject)), 10, 24, 7),
            Column("FOR", lambda one, _: _draw_age(one, now), 6, 0, 6, align="right"),
            *(() if lists_all else (_WHAT,)),
        ),
        picture.alerts or (),
        notes=(lambda one: [Text(make_harmless(one.summary))]) if lists_all else lambda _: (),
        has_trouble=lambda one: one.severity == "critical",
        empty=_say_empty(picture),
        most_wanted=3,
    )


def _say_empty(picture: Picture) -> str:
    if picture.alerts is not None:
        return "none fires"
    return make_harmless(picture.alerts_trouble) or "no Prometheus is known to ask"


def _draw_age(alert: Alert, now: float) -> Text:
    return Text(UNKNOWN if alert.since is None else write_duration(now - alert.since))


def _draw_name(alert: Alert, _: int) -> Text:
    return Text(make_harmless(alert.name), _STYLES.get(alert.severity, ""))


def _draw_severity(alert: Alert, _: int) -> Text:
    return Text(make_harmless(alert.severity), _STYLES.get(alert.severity, ""))
