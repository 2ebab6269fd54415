"""What single panels answer about made-up machines and runs that the recorded ones are not like.

promtool asks the panel's own queries, filled in as Grafana does it, an hour after the first scrape.
"""

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from tests.dashboards.boards import read_boards
from tests.dashboards.live.grafana import Choice, Look, write_query

END = 3600
HOST, PROMETHEUS = 'job="trainvitals",instance="n1"', 'job="prometheus",instance="n1"'
RUN = f'{HOST},run="bert"'
RANK = f'{RUN},rank="0"'
_EVERY = Choice((), is_multiple=True, all_value=".+")
_CHOICES = {
    **dict.fromkeys(("job", "rank", "kind", "device", "container", "metric"), _EVERY),
    "instance": Choice(("n1",), is_multiple=True),
    "run": Choice(("bert",)),
}
PANELS = {
    f"{panel.place.board} > {panel.place.row} > {panel.title}": panel
    for board in read_boards()
    for panel in board.panels
}

# A machine whose Prometheus has the same `instance`, as relabelling may give it.
SHARED = {
    f"trainvitals_build_info{{{HOST}}}": "1x60",
    **{
        f"{name}{{{labels}}}": f"{value}+{step}x60"
        for name, step in (
            ("scrape_duration_seconds", 0),
            ("scrape_samples_post_metric_relabeling", 0),
            ("process_cpu_seconds_total", 60),
            ("process_resident_memory_bytes", 0),
            ("process_open_fds", 0),
            ("process_threads", 0),
        )
        for labels, value in ((HOST, 1), (PROMETHEUS, 9))
    },
}
MOUNT = f'{HOST},mountpoint="/data"'
INFO = f'host_filesystem_info{{{MOUNT},device="nas:/data",fstype="nfs4"}}'
LIVES = {
    f"training_last_progress_timestamp_seconds{{{RANK}}}": "0+60x60",
    f"training_process_up{{{RANK}}}": "1x60",
    f"training_global_step{{{RANK}}}": "0+100x60",
    f"training_progress_ratio{{{RANK}}}": "0.5x60",
    f"training_samples_total{{{RANK}}}": "0+600x60",
    f"training_loss{{{RANK}}}": "2x60",
    f"training_eta_timestamp_seconds{{{RANK}}}": "7200x60",
}
# It ended at 50 minutes, and its last values stay on the page.
ENDED = {
    **LIVES,
    f"training_last_progress_timestamp_seconds{{{RANK}}}": "0+60x50 3000x9",
    f"training_process_up{{{RANK}}}": "1x49 0x10",
    f"training_samples_total{{{RANK}}}": "0+600x49 29400x10",
}
# Its machine has been silent since 40 minutes: nobody knows whether it lives.
SILENT = {series: f"{values.split('x')[0]}x40" for series, values in LIVES.items()}


@dataclass(frozen=True, slots=True)
class Case:
    """A panel and what it answers: values by labels, of all of its queries, at a minute."""

    panel: str
    given: Mapping[str, str]
    says: Mapping[str, float]
    at: int = END


def _exporter(title: str, says: Mapping[str, float]) -> Case:
    return Case(f"Vitals / Host > Exporter > {title}", SHARED, says)


def _now(title: str, given: Mapping[str, str], says: Mapping[str, float], at: int = END) -> Case:
    return Case(f"Vitals / Training run > Now > {title}", given, says, at)


CASES = {
    "scrape": _exporter("Time of a scrape", {f"scrape_duration_seconds{{{HOST}}}": 1}),
    "samples": _exporter("Series", {f"scrape_samples_post_metric_relabeling{{{HOST}}}": 1}),
    "cpu": _exporter("CPU of the exporter", {f"{{{HOST}}}": 1}),
    "memory": _exporter("Memory of the exporter", {f"process_resident_memory_bytes{{{HOST}}}": 1}),
    "files": _exporter(
        "Files and threads of the exporter",
        {
            f'process_open_fds{{{HOST},what="files open"}}': 1,
            f'process_threads{{{HOST},what="threads"}}': 1,
        },
    ),
    "a mount that hangs": Case(
        "Vitals / Host > File systems over time > State",
        {f"host_filesystem_responding{{{MOUNT}}}": "0x60"},
        {f"{{{MOUNT}}}": 4},
    ),
    "a mount that answers": Case(
        "Vitals / Host > File systems over time > State",
        {
            f"host_filesystem_responding{{{MOUNT}}}": "1x60",
            f"host_filesystem_readonly{{{MOUNT}}}": "0x60",
        },
        {f"{{{MOUNT}}}": 1},
    ),
    "a mount that hangs, in the table": Case(
        "Vitals / Host > Now > File systems",
        {f"host_filesystem_responding{{{MOUNT}}}": "0x60", INFO: "1x60"},
        {'{mountpoint="/data",device="nas:/data",fstype="nfs4"}': 4},
    ),
    "step of a run that lives": _now("Step", LIVES, {'{when="now"}': 6000}),
    "loss of a run that lives": _now("Loss", LIVES, {'{when="now"}': 2}),
    "pace of a run that lives": _now("Throughput", LIVES, {'{when="now"}': 10}),
    "end of a run that lives": _now("Expected end", LIVES, {"{}": 7.2e6}),
    "loss of a run that ended": _now("Loss", ENDED, {'{when="last known"}': 2}),
    "share of a run that ended": _now("Progress", ENDED, {'{when="last known"}': 0.5}),
    "pace of a run that ended": _now("Throughput", ENDED, {}),
    "pace before it ended": _now("Throughput", ENDED, {'{when="last known"}': 10}, at=2940),
    "end of a run that ended": _now("Expected end", ENDED, {}),
    "loss before its machine fell silent": _now(
        "Loss", SILENT, {'{when="last known"}': 2}, at=2400
    ),
}


@pytest.fixture(scope="module")
def answers(promtool, tmp_path_factory):
    """Give what promtool complains of, by the name of the case."""
    path = tmp_path_factory.mktemp("answers") / "answers.yml"
    path.write_text(json.dumps({"tests": [write_test(*each) for each in CASES.items()]}))
    done = subprocess.run(
        (promtool, "test", "rules", path), capture_output=True, check=False, text=True, timeout=60
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize("name", CASES)
def test_a_panel_says_what_is_so(answers, name):
    """No more series, no fewer, and their values."""
    assert "SUCCESS" in answers or "FAILED" in answers
    complaints = [part for part in answers.split("expr: ") if part.startswith(f'"# {name}\\n')]
    assert not complaints, complaints


def write_test(name: str, case: Case) -> Mapping[str, object]:
    """Write a case as promtool takes it; a comment in each query says whose it is."""
    look = Look(end=END, seconds=END, choices=_CHOICES, scrape_seconds=60)
    asked = [write_query(one["expr"], look, 60, END) for one in PANELS[case.panel].targets]
    # The other columns of a table are not what is asked about.
    asked = asked[:1] if PANELS[case.panel].kind == "table" else asked
    return {
        "name": name,
        "interval": "1m",
        "input_series": [{"series": at, "values": values} for at, values in case.given.items()],
        "promql_expr_test": [
            {
                "expr": f"# {name}\n{expr}".replace("@ end()", f"@ {END}"),
                "eval_time": f"{case.at}s",
                "exp_samples": [{"labels": at, "value": value} for at, value in case.says.items()],
            }
            for expr in asked
        ],
    }
