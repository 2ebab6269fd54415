"""The table of alerts on the run dashboard: of the run, its machines and its accelerators."""

import json

import pytest

from tests.integration.dashboards.live.grafana import Choice, Look, write_query
from tests.support.promtool import run_promtool
from tests.unit.dashboards.boards import read_boards

EVERYTHING = Choice((), is_multiple=True, all_value=".+")
HOST = 'job="trainvitals",instance="n1"'
RUN = f'{HOST},run="bert"'
(TABLE,) = (
    panel
    for board in read_boards()
    for panel in board.panels
    if (board.uid, panel.title) == ("trainvitals-run", "Firing alerts")
)
CARDS = {name: f'device="{at}",uuid="{name}"' for at, name in enumerate(("GPU-0", "GPU-1"))}
FIRING = {
    "own": f'alertname="TrainingOverdue",severity="warning",{RUN}',
    "other run": f'alertname="TrainingRunLost",severity="critical",{HOST},run="other"',
    **{
        name: f'alertname="GPUHighTemperature",severity="critical",{HOST},{card}'
        for name, card in CARDS.items()
    },
    "machine": f'alertname="HostOOMKill",severity="critical",{HOST}',
    "other machine": 'alertname="HostOOMKill",severity="critical",job="trainvitals",instance="n2"',
}
SHOWN = {
    "own": '{about="1 run",alertname="TrainingOverdue",severity="2 warning",instance="n1"}',
    **{
        name: '{about="2 accelerator",alertname="GPUHighTemperature",severity="1 critical",'
        f'instance="n1",device="{name[-1]}"}}'
        for name in CARDS
    },
    "machine": '{about="3 machine",alertname="HostOOMKill",severity="1 critical",instance="n1"}',
}


def write_series(held: str):
    """Yield the series of firing alerts and of a run on a machine with two accelerators."""
    yield f"training_run_info{{{RUN}}}"
    yield f'training_rank_info{{{RUN},rank="0",gpu_uuid="{held}"}}'
    if held:
        yield f'run:accelerator_held:bool{{{RUN},uuid="{held}"}}'
    for card in CARDS.values():
        yield f"accelerator_up{{{HOST},{card}}}"
    for labels in FIRING.values():
        yield f'ALERTS{{{labels},alertstate="firing"}}'
        yield f"ALERTS_FOR_STATE{{{labels}}}"


@pytest.mark.parametrize(
    ("held", "shown"),
    [("GPU-0", ("own", "GPU-0", "machine")), ("", ("own", "GPU-0", "GPU-1", "machine"))],
    ids=["known", "unknown"],
)
def test_alerts_are_those_of_the_run_and_what_it_holds(promtool, tmp_path, held, shown):
    """Alerts of all accelerators are shown only if the run does not report its own ones."""
    choices = {"job": EVERYTHING, "instance": EVERYTHING, "run": Choice(("bert",))}
    look = Look(end=240, seconds=3600, choices=choices)
    expected = [{"labels": SHOWN[name], "value": 239} for name in shown]
    query = write_query(TABLE.targets[0]["expr"], look, 60.0, 3600)
    asked = {"expr": query, "eval_time": "4m", "exp_samples": expected}
    given = [{"series": series, "values": "1x5"} for series in write_series(held)]
    test = {"interval": "1m", "input_series": given, "promql_expr_test": [asked]}
    path = tmp_path / "alerts.yml"
    path.write_text(json.dumps({"tests": [test]}), encoding="utf-8")
    done = run_promtool(promtool, "test", "rules", path)
    assert done.returncode == 0, done.stderr


def test_the_run_comes_first():
    """The table is sorted by the subject of the alerts, then by severity, then by time."""
    order = [(one["displayName"], one["desc"]) for one in TABLE.options["sortBy"]]
    assert order == [("About", False), ("Severity", False), ("For", False)]
