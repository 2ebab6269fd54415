"""The terminal sections for firing alerts and for collectors."""

from __future__ import annotations

from rich.text import Text

from trainvitals.foreign_text import clean_text
from trainvitals.sources.alerts import Alert
from trainvitals.units import UNKNOWN, count_noun, format_age, format_duration
from trainvitals.views.machine.headline import find_alert_tone
from trainvitals.views.machine.picture import Collector, Picture
from trainvitals.views.terminal.headline import STYLES
from trainvitals.views.terminal.table import Column, Rows

_WHAT: Column[Alert] = Column("WHAT", lambda one: Text(clean_text(one.summary)), 28, 200, worth=5)


def list_alerts(picture: Picture, *, lists_all: bool) -> Rows[Alert]:
    """Return the section that lists the firing alerts.

    Args:
        picture: The machine state to draw.
        lists_all: Whether the full messages of the alerts are shown in lines below the rows.
    """
    now = picture.time
    return Rows(
        7,
        (
            Column(
                "ALERT", lambda one: _draw_severe(one.name, one), 22, 34, 9, lambda one: one.name
            ),
            Column(
                "SEVERITY",
                lambda one: _draw_severe(one.severity, one),
                8,
                0,
                8,
                lambda one: one.severity,
            ),
            Column("ABOUT", lambda one: Text(clean_text(one.subject)), 10, 24, 7),
            Column("FOR", lambda one: _draw_age(one, now), 7, 0, 6, justify="right"),
            *(() if lists_all else (_WHAT,)),
        ),
        picture.alerts or (),
        notes=(lambda one: [Text(clean_text(one.summary))]) if lists_all else lambda _: (),
        has_trouble=lambda one: one.severity == "critical",
        empty=_explain_no_alerts(picture),
        most_wanted=3,
    )


def list_collectors(picture: Picture, *, lists_all: bool) -> Rows[Collector]:
    """Return the section that lists the collectors.

    Args:
        picture: The machine state to draw.
        lists_all: Whether collectors that succeeded are listed too.
    """
    now = picture.time
    failing = [one for one in picture.collectors if not one.success]
    well = len(picture.collectors) - len(failing)
    return Rows(
        6,
        (
            Column("COLLECTOR", _draw_collector, 16, 20, 99, lambda one: one.name),
            Column("READS", _draw_success, 5, 0, 8, lambda one: "yes" if one.success else "no"),
            Column("TOOK", _draw_duration, 8, 0, 5, lambda one: one.duration_seconds, "right"),
            Column(
                "LAST READ",
                lambda one: Text(format_age(one.last_success, now)),
                11,
                worth=6,
                key=lambda one: None if one.last_success is None else -one.last_success,
            ),
            Column("WHY NOT", lambda one: Text(clean_text(one.reason)), 20, 200, worth=7),
        ),
        picture.collectors if lists_all else failing,
        has_trouble=lambda one: not one.success,
        empty=f"{count_noun(well, 'collector')}, all complete" if well else "none",
        most_wanted=0,
    )


def _explain_no_alerts(picture: Picture) -> str:
    reasons = [unknown.why for unknown in picture.unknowns if unknown.subject_kind == "alert"]
    return clean_text(f"not known: {reasons[0]}") if reasons else "none fires"


def _draw_age(alert: Alert, now: float) -> Text:
    return Text(UNKNOWN if alert.since is None else format_duration(now - alert.since))


def _draw_severe(words: str, alert: Alert) -> Text:
    return Text(clean_text(words), STYLES[find_alert_tone(alert)])


def _draw_collector(one: Collector) -> Text:
    return Text(clean_text(one.name), "" if one.success else STYLES["warning"])


def _draw_success(one: Collector) -> Text:
    return Text("yes", STYLES["good"]) if one.success else Text("no", STYLES["warning"])


def _draw_duration(one: Collector) -> Text:
    return Text(format_duration(one.duration_seconds))
