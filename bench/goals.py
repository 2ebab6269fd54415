"""The performance goals of the exporter; a lower figure is always better."""

from __future__ import annotations

from typing import NamedTuple


class Goal(NamedTuple):
    """A figure and its limits.

    Attributes:
        figure: A description of the compared figure.
        goal: The limit that should be met, or None.
        moonshot: The more ambitious limit, or None.
    """

    figure: str
    goal: float | None
    moonshot: float | None


GOALS = {
    "1": Goal("scrape time p50, new connection and gzip: ours / node_exporter", 0.6, 0.35),
    "2": Goal("CPU per sample, gzip: ours / node_exporter", 0.3, 0.15),
    "3": Goal("CPU per delivered sample at 15 s: ours / nvitop-exporter", 0.05, 0.02),
    "4a": Goal("CPU per sample: ours / floor", 3, 1.7),
    "4b": Goal("scrape time p50 per series: ours / floor", 3, 1.7),
    "5": Goal("rendering: ours / prometheus_client's generate_latest", 0.12, 0.03),
    "6a": Goal(
        "RSS after 1000 scrapes, a shared page counted once: ours / node_exporter", 1.1, 0.85
    ),
    "6b": Goal("the same with TLS", 1.1, 1.0),
    "7a": Goal("at rest: CPU ms/s", 0.02, 0),
    "7b": Goal("at rest: wake-ups/s", 0.1, 0),
    "7c": Goal("at rest with an idle connection: CPU ms/s", 0.02, 0),
    "7d": Goal("at rest with an idle connection: wake-ups/s", 0.1, 0),
    "8": Goal("exec to the first full answer: ours / node_exporter", 3, 2),
    "9a": Goal("a hung driver call: later scrapes / healthy p50", 1.2, 1.0),
    "9b": Goal("a hung driver call: series of everything else missing, %", 0, 0),
    "9c": Goal("a hung driver call: threads that later scrapes lose", 0, 0),
    "9d": Goal("a hung driver call: first scrape, s", 5.25, 0.5),
    "9e": Goal("a hung driver call: scrapes until all is back", 2, 2),
    "9f": Goal("a hung driver call: collector_success meanwhile", 0, 0),
    "10a": Goal("500 silent connections: scrape p50 with / without", 1.3, 1.1),
    "10b": Goal("500 silent connections: memory, MiB more", 5, 3),
    "10c": Goal("500 silent connections: closed within, s", 10, 6),
    "10d": Goal("500 silent connections: threads more", 0, 0),
    "10e": Goal("500 silent TLS handshakes: scrape p50 with / without", 1.3, 1.1),
    "10f": Goal("500 silent TLS handshakes: memory, MiB more", 5, 3),
    "10g": Goal("500 silent TLS handshakes: closed within, s", 10, 6),
    "10h": Goal("500 silent TLS handshakes: threads more", 0, 0),
    "11a": Goal("200 scrapes at once: not answered", 0, 0),
    "11b": Goal("200 scrapes at once: all answered within, ms", 150, None),
    "11c": Goal("200 scrapes at once: time, ours / node_exporter", 0.3, 0.15),
    "11d": Goal("200 scrapes at once: collections", 5, 2),
    "12": Goal("busy host: scrape time p50, ours / node_exporter", 0.6, 0.3),
    "13": Goal("another client streams, 50 us a driver call: scrape p50 with / alone", 4, 2),
    "14": Goal("1 ms a driver call: 8 GPUs / 1 GPU", 2, 1.3),
    "15a": Goal("a training step's record: ours / JSON of it and a rename, tmpfs", 0.08, 0.04),
    "15b": Goal("a training step with three marks, published each time, us", 2, 1),
    "15c": Goal("the same as it is by default, us", 2, 1),
    "15d": Goal("the same, published: ours / prometheus_client's multiprocess mode", 0.1, 0.05),
    "15e": Goal("import trainvitals, ms", 15, 1),
    "15f": Goal("from trainvitals import TrainingMonitor in an empty interpreter, ms", 15, 5),
    "15g": Goal("Lightning, 5 ms a step: with the callback / without", 1.01, 1.002),
    "15h": Goal("Lightning, 5 ms a step: with the callback disabled / without", 1.002, 1.0),
    "15i": Goal("a loop of one's own, 5 ms a step: with TrainingMonitor / without", 1.01, 1.002),
    "15k": Goal("a loop of one's own, 5 ms a step: below trainvitals run / without", 1.01, 1.002),
    "15j": Goal("reading the run files of 64 living ranks, ms", 1, 0.3),
    "17a": Goal("10 000 scrapes with devices coming and going: RSS drift, MiB", 1, 0.3),
    "17b": Goal("10 000 scrapes with devices coming and going: stale series", 0, 0),
    "18": Goal("wire bytes per sample, gzip: ours / node_exporter", 0.8, 0.6),
    "19": Goal("series by default: ours / node_exporter's + nvitop-exporter's", 0.8, 0.6),
    "20a": Goal("SIGTERM with a scrape in flight: not answered", 0, 0),
    "20b": Goal("SIGTERM with a scrape in flight: exit after the answer, s", 0.5, 0.1),
    "21": Goal("Prometheus' scrape_duration_seconds p50: ours / node_exporter", 0.8, 0.5),
    "22a": Goal("100 containers: the collector's share of a scrape, ms", 20, 5),
    "22b": Goal("100 containers, looked at every 10 s: % of a core", 1, 0.3),
    "22c": Goal("one look at 100 containers: ours / Docker's Python package", 0.05, 0.01),
    "22d": Goal("1000 births and deaths of containers: memory drift, MiB", 2, 0.5),
    "22e": Goal("1000 births and deaths of containers: series more", 0, 0),
    "23a": Goal("first load of the board Fleet, 64 x 8 accelerators, 6 h: s", 2, 1),
    "23b": Goal("first load of the board Training run: s", 2, 1),
    "23c": Goal("first load of the board Accelerators: s", 2, 1),
    "23d": Goal("first load of the board Host: s", 2, 1),
    "23e": Goal("first load of the board Containers & OOM: s", 2, 1),
    "23f": Goal("a panel's query of these, six at a time: p95, ms", 200, 100),
    "26a": Goal("the live page without viewers: % of a core", 0.002, 0),
    "26b": Goal("one viewer of the live page, 8 GPUs: % of a core", 1, 0.5),
    "26c": Goal("one viewer of the live page: collections/s", 1.1, 1),
    "26d": Goal("fifty viewers of the live page: collections/s", 1.1, 1),
}
