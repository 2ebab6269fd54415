"""Bar graphs of events, evaluated by promtool, whose bars count each event exactly once."""

import json

import pytest

from grafana.build.queries import find_rise
from tests.support.promtool import run_promtool

KILLS, WATCHED = (
    'kills_total{job="trainvitals",instance="n1"}',
    'up{job="trainvitals",instance="n1"}',
)
STEP_SECONDS, STEPS = 60, 6

# For each case: four samples a minute, the `since` series, and the events in each of six minutes.
CASES = {
    "one kill": ("0x8 1x16", "", [0, 0, 1, 0, 0, 0]),
    "three within a minute": ("7x13 8 9 10 10x8", "", [0, 0, 0, 3, 0, 0]),
    "a counter that begins again": ("4x8 5x4 0x4 2x8", "", [0, 0, 1, 0, 2, 0]),
    "the first event brings the counter": ("_x9 1x15", WATCHED, [0, 0, 1, 0, 0, 0]),
    "a machine that was not there before": (
        "_x9 1x15",
        WATCHED.replace("up", "later"),
        [0] * STEPS,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_each_event_is_in_one_bar(promtool, tmp_path, name):
    """Each event is counted in exactly one bar, even if a counter is reset or appears."""
    values, since, bars = CASES[name]
    expr = f"sum({find_rise(KILLS, since=since)}) > 0".replace("$__interval", f"{STEP_SECONDS}s")
    asked = [
        {
            "expr": expr,
            "eval_time": f"{(at + 1) * STEP_SECONDS}s",
            "exp_samples": [{"labels": "{}", "value": count}] if count else [],
        }
        for at, count in enumerate(bars)
    ]
    given = [{"series": KILLS, "values": values}, {"series": WATCHED, "values": "1x60"}]
    test = {"interval": "15s", "input_series": given, "promql_expr_test": asked}
    path = tmp_path / "bars.yml"
    path.write_text(json.dumps({"tests": [test]}), encoding="utf-8")
    done = run_promtool(promtool, "test", "rules", path)
    assert done.returncode == 0, done.stdout + done.stderr
