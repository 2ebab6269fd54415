"""The table of firing alerts, if more alerts fire than the table shows."""

import json

from grafana.build.parts import list_alerts
from tests.integration.dashboards.live.grafana import Choice, Look, write_query
from tests.support.promtool import run_promtool

EVERYTHING = Choice((), is_multiple=True, all_value=".+")
WARNINGS, CRITICALS = 62, 3


def write_series():
    """Yield the series of critical alerts and of warnings, each younger than the one before."""
    for number in range(CRITICALS + WARNINGS):
        severity = "critical" if number < CRITICALS else "warning"
        own = f'alertname="Hot",severity="{severity}",job="trainvitals",instance="n{number}"'
        yield {"series": f'ALERTS{{{own},alertstate="firing"}}', "values": "1x5"}
        yield {"series": f"ALERTS_FOR_STATE{{{own}}}", "values": f"{number}x5"}


def test_the_newest_of_each_severity_are_shown_and_the_others_are_counted(promtool, tmp_path):
    """The table has all 3 critical alerts, the newest 50 of 62 warnings, and a row for the rest."""
    (query,) = list_alerts().queries
    look = Look(end=240, seconds=3600, choices={"job": EVERYTHING, "instance": EVERYTHING})
    expr = write_query(query.expr, look, 60.0, 3600)
    shown = {
        ("critical", number): f'{{alertname="Hot",severity="1 critical",instance="n{number}"}}'
        for number in range(CRITICALS)
    }
    first = CRITICALS + WARNINGS - 50
    shown |= {
        ("warning", number): f'{{alertname="Hot",severity="2 warning",instance="n{number}"}}'
        for number in range(first, CRITICALS + WARNINGS)
    }
    expected = [{"labels": labels, "value": 240 - at} for (_, at), labels in shown.items()]
    left_out = {
        "labels": '{name="and 12 older ones",severity="2 warning"}',
        "value": 240 - CRITICALS,
    }
    document = {
        "tests": [
            {
                "interval": "1m",
                "input_series": list(write_series()),
                "promql_expr_test": [
                    {"expr": expr, "eval_time": "4m", "exp_samples": [*expected, left_out]}
                ],
            }
        ]
    }
    path = tmp_path / "alerts.yml"
    path.write_text(json.dumps(document), encoding="utf-8")
    done = run_promtool(promtool, "test", "rules", path)
    assert done.returncode == 0, done.stderr
