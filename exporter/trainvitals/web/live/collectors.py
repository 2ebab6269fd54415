"""How the exporter's own collectors fare, on the live page."""

from __future__ import annotations

from trainvitals.overview.picture import Collector, Picture
from trainvitals.web.live import quantities as write
from trainvitals.web.live.markup import chip, section, text


def write_collectors(picture: Picture) -> str:
    """Write the section; it is folded up while all of them are well."""
    if not picture.collectors:
        return ""
    failed = [each for each in picture.collectors if not each.success]
    items = "".join(_write_collector(each, picture.time) for each in picture.collectors)
    note = f"{len(failed)} of {len(picture.collectors)} not whole" if failed else "all well"
    fold = (
        f"<details{' open' if failed else ''}><summary>{len(picture.collectors)} collectors, "
        f'{note}</summary><ul class="collectors">{items}</ul></details>'
    )
    return section("collectors", "Exporter", "", (fold,))


def _write_collector(each: Collector, now: float) -> str:
    took = write.duration(each.duration_seconds)
    if each.success:
        return f"<li>{chip(each.name, 'good')} <small>{took}</small></li>"
    since = ""
    if each.last_success is not None:
        since = f"<small>; last whole {write.ago(each.last_success, now)}</small>"
    return (
        f'<li class="failed">{chip(each.name, "bad")} <span>{text(each.reason or "failed")}'
        f"{since}</span></li>"
    )
