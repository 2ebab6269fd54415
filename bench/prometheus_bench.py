"""Scrape durations as recorded by a real Prometheus in `scrape_duration_seconds` (goal 21)."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.client import HOST
from bench.figures import Figures, is_quick
from bench.subjects import (
    Subject,
    fake_machine,
    find_port,
    find_program,
    floor,
    node_exporter,
    nvitop_exporter,
    our_exporter,
    run_subject,
)
from trainvitals.sources.prometheus import Prometheus

INTERVAL_SECONDS = 2
SECONDS = 150
QUICK_SECONDS = 30


@contextmanager
def prometheus(targets: Sequence[Subject]) -> Iterator[Subject]:
    """Start a Prometheus that scrapes the given exporters."""
    port = find_port()
    jobs = [
        {"job_name": target.name, "static_configs": [{"targets": [f"{HOST}:{target.port}"]}]}
        for target in targets
    ]
    paces = {"scrape_interval": f"{INTERVAL_SECONDS}s", "scrape_timeout": f"{INTERVAL_SECONDS}s"}
    with tempfile.TemporaryDirectory(prefix="trainvitals-bench-") as directory:
        config = Path(directory) / "prometheus.yml"
        config.write_text(json.dumps({"global": paces, "scrape_configs": jobs}))
        command = [
            find_program("prometheus"),
            f"--config.file={config}",
            f"--storage.tsdb.path={directory}/data",
            f"--web.listen-address={HOST}:{port}",
        ]
        with run_subject("prometheus", command, port) as subject:
            yield subject


def query(port: int, expression: str) -> dict[str, float]:
    """Return the value of an expression for each job."""
    found = Prometheus(f"http://{HOST}:{port}").query(expression)
    return {series.labels["job"]: series.last for series in found}


def main() -> None:
    """Run the benchmark and write its results."""
    quick = is_quick("prometheus")
    seconds = QUICK_SECONDS if quick else SECONDS
    figures = Figures("prometheus", quick=quick)
    with ExitStack() as stack:
        machine = stack.enter_context(fake_machine())
        subjects = [
            stack.enter_context(it)
            for it in (
                our_exporter(machine),
                node_exporter(),
                floor(machine),
                nvitop_exporter(machine),
            )
        ]
        server = stack.enter_context(prometheus(subjects))
        time.sleep(3 * INTERVAL_SECONDS)  # excludes the first scrapes, during which processes start
        time.sleep(seconds)
        window = f"scrape_duration_seconds[{seconds}s]"
        p50 = query(server.port, f"quantile_over_time(0.5, {window})")
        p90 = query(server.port, f"quantile_over_time(0.9, {window})")
        up = query(server.port, f"min_over_time(up[{seconds}s])")
    shown = {name: f"{p50[name] * 1e3:.1f} ms (p90 {p90[name] * 1e3:.1f})" for name in p50}
    figures.reach(
        "21",
        p50["trainvitals"] / p50["node_exporter"],
        ours=shown["trainvitals"],
        peer=shown["node_exporter"],
        note=f"floor {shown['floor']}, nvitop-exporter {shown['nvitop-exporter']}; "
        f"every {INTERVAL_SECONDS} s for {seconds} s",
    )
    if min(up.values()) < 1:
        raise RuntimeError(f"a scrape failed: {up}")
    figures.write()


if __name__ == "__main__":
    main()
