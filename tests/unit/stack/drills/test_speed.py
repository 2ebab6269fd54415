"""Tests for the division of the durations in rules and routes."""

import pytest

from trainvitals.stack.drills.speed import (
    divide_duration,
    divide_routes,
    divide_rules,
    find_longest_duration,
    read_duration,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0s", 0), ("90s", 90), ("1h30m", 5400), ("250ms", 0.25), ("1w", 604800), ("2d", 172800)],
)
def test_duration_is_read_as_prometheus_writes_it(text, seconds):
    """The units of a duration are added, and a week has seven days."""
    assert read_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "divided"),
    [("2m", "2000ms"), ("15s", "250ms"), ("0s", "0s"), ("10ms", "1ms"), ("6h", "360000ms")],
)
def test_duration_is_divided_by_sixty(text, divided):
    """A duration above zero stays above zero, because Prometheus refuses an empty range."""
    assert divide_duration(text, 60) == divided


def test_rule_keeps_everything_but_its_durations():
    """Ranges, subqueries, offsets, `for` and `keep_firing_for` are divided; names are kept."""
    document = {
        "groups": [
            {
                "name": "g",
                "rules": [
                    {
                        "alert": "A",
                        "expr": 'rate(run:x:rate10m{a="b"}[10m] offset 1h) > 30 '
                        "and max_over_time(y[6h:1m]) < 5",
                        "for": "2m",
                        "keep_firing_for": "5m",
                    }
                ],
            }
        ]
    }
    (rule,) = divide_rules(document, 60)["groups"][0]["rules"]
    assert rule == {
        "alert": "A",
        "expr": 'rate(run:x:rate10m{a="b"}[10000ms] offset 60000ms) > 30 '
        "and max_over_time(y[360000ms:1000ms]) < 5",
        "for": "2000ms",
        "keep_firing_for": "5000ms",
    }
    assert document["groups"][0]["rules"][0]["for"] == "2m"


def test_window_of_an_event_is_divided_and_other_thresholds_are_not():
    """A threshold whose name ends in `window_seconds` is divided; other thresholds are kept."""
    rules = [
        {"record": "threshold:a:window_seconds", "expr": "vector(900)"},
        {"record": "threshold:a:batch_seconds", "expr": "vector(10)"},
    ]
    divided = divide_rules({"groups": [{"name": "thresholds", "rules": rules}]}, 60)
    assert [rule["expr"] for rule in divided["groups"][0]["rules"]] == [
        "vector(15.0)",
        "vector(10)",
    ]


def test_routes_shrink_and_every_receiver_leads_here():
    """Receivers keep their names and get one webhook each, and templates are left out."""
    document = {
        "global": {"resolve_timeout": "5m"},
        "templates": ["templates/*.tmpl"],
        "route": {"receiver": "null", "routes": [{"receiver": "page", "group_wait": "10s"}]},
        "receivers": [{"name": "null"}, {"name": "page", "slack_configs": [{"channel": "#a"}]}],
        "inhibit_rules": [{"equal": ["instance"]}],
    }
    assert divide_routes(document, 60, "http://127.0.0.1:1") == {
        "global": {"resolve_timeout": "5000ms"},
        "route": {"receiver": "null", "routes": [{"receiver": "page", "group_wait": "167ms"}]},
        "receivers": [
            {
                "name": "null",
                "webhook_configs": [
                    {"url": "http://127.0.0.1:1/0", "send_resolved": True, "max_alerts": 0}
                ],
            },
            {
                "name": "page",
                "webhook_configs": [
                    {"url": "http://127.0.0.1:1/1", "send_resolved": True, "max_alerts": 0}
                ],
            },
        ],
        "inhibit_rules": [{"equal": ["instance"]}],
    }


def test_longest_duration_of_an_expression():
    """Ranges and offsets are compared; an expression without either has the duration 0."""
    assert find_longest_duration("a[10m] > b offset 2h") == 7200
    assert find_longest_duration("a > 1") == 0
