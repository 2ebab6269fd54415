"""Tests for mutation testing for alert rules, and that the alerts' tests detect most mutants."""

import dataclasses
import json
import os
from functools import partial
from pathlib import Path

import promql_parser
import pytest

from tests.support.promql import write
from tests.support.rule_breaking import Mutant, break_rule, choose_share, list_mutants, vary
from tests.support.rule_mutants import (
    GOAL_RATIO,
    conclude,
    describe,
    main,
    read_equivalent,
    run_mutants,
)
from tests.support.rulebook import Rule, read_rulebook

LONG = bool(os.environ.get("TRAINVITALS_TEST_LONG"))

RULES = {
    "thresholds": """
      # Cards slow down at 90.
      - record: threshold:hot:celsius
        expr: vector(80)
""",
    "recording": """
      - record: run:wait:max3m
        expr: max without (rank) (max_over_time(wait[3m]))
""",
    "host": """
      - alert: Hot
        expr: temp{kind="gpu"} > scalar(threshold:hot:celsius)
        for: 2m
      - alert: Slow
        expr: run:wait:max3m == 1 unless on (job) quiet
""",
}
TESTS = {
    "Hot": """
      - interval: 1m
        input_series:
          - {series: 'temp{kind="gpu"}', values: 70x4 90x9 70x9}
          - {series: 'temp{kind="cpu"}', values: 90x30}
        alert_rule_test:
          - {eval_time: 6m, alertname: Hot, exp_alerts: []}
          - {eval_time: 7m, alertname: Hot, exp_alerts: [{exp_labels: {kind: gpu}}]}
          - {eval_time: 7m, alertname: Slow, exp_alerts: [{exp_labels: {of: another}}]}
          - {eval_time: 17m, alertname: Hot, exp_alerts: []}
        promql_expr_test:
          - {eval_time: 1m, expr: 'threshold:hot:celsius', exp_samples: [{value: 7}]}
          - {eval_time: 1m, expr: 'ALERTS{alertname="Slow"}', exp_samples: [{value: 7}]}
""",
    "Slow": """
      - interval: 1m
        input_series:
          - {series: 'wait{job="a",rank="0"}', values: 0x9 1 0x9}
          - {series: 'wait{job="b",rank="0"}', values: 1x30}
          - {series: 'quiet{job="b"}', values: 1x30}
        alert_rule_test:
          - {eval_time: 9m, alertname: Slow, exp_alerts: []}
          - {eval_time: 14m, alertname: Slow, exp_alerts: []}
        promql_expr_test:
          - expr: ALERTS{alertname="Slow",alertstate="firing"}
            eval_time: 12m
            exp_samples:
              - {labels: 'ALERTS{alertname="Slow",alertstate="firing",job="a"}', value: 1}
""",
}


@pytest.fixture
def small(tmp_path):
    """Return the directories of the rules and of the tests of two alerts."""
    rules, tests = tmp_path / "rules", tmp_path / "tests"
    rules.mkdir()
    tests.mkdir()
    for name, text in RULES.items():
        head = f"groups:\n  - name: {name}\n    rules:\n"
        (rules / f"{name}.yml").write_text(head + text, encoding="utf-8")
    for name, text in TESTS.items():
        head = "rule_files: [../rules/*.yml]\nevaluation_interval: 1m\n"
        head += "group_eval_order: [thresholds, recording, host]\ntests:\n"
        (tests / f"{name}.yml").write_text(head + text, encoding="utf-8")
    return rules, tests


def make_rule(expr, **fields):
    """Return an alert rule with this expression."""
    return Rule(Path("host.yml"), "host", "Hot", alert=True, expr=expr, **fields)


@pytest.mark.long
@pytest.mark.timeout(3600 if LONG else 120)
def test_the_tests_of_the_alerts_notice_what_is_broken(promtool, workshop):
    """The alerts' tests detect at least 90% of the mutants; `make test` tries one in 80."""
    choose = tuple if LONG else partial(choose_share, one_in=80)
    outcome = run_mutants((), promtool=promtool, directory=workshop, choose=choose)
    print(describe(outcome))
    assert outcome.score >= GOAL_RATIO, describe(outcome)
    assert outcome.refuted == ()
    assert len(outcome.killed) > (900 if LONG else 10)


def test_what_is_listed_as_equivalent_is_a_mutant_and_has_a_reason():
    """Each entry in the list of equivalent mutants is an existing mutant and has a reason."""
    book = read_rulebook()
    names = {m.name for m in list_mutants(book, [rule.name for rule in book.alerts])}
    listed = read_equivalent()
    assert set(listed) - names == set()
    assert all(len(reason.split()) > 4 for reason in listed.values())


@pytest.mark.parametrize(
    ("expr", "broken"),
    [
        ("a > 1", ["a < 1"]),
        ("a <= 1", ["a >= 1"]),
        ("a != 1", ["a == 1"]),
        ("a and on (x, y) b", ["a unless on (x, y) b", "a", "a and on (y) b", "a and on (x) b"]),
        ("a unless b", ["a and b", "a"]),
        ("(a or b) * 2", ["(b) * 2", "(a) * 2"]),
        ("a / ignoring (x) group_left (y) b", ["a / ignoring () group_left (y) b"]),
        (
            'a{x="1", y!~"2|3"}',
            ['a{y!~"2|3"}', 'a{x!="1", y!~"2|3"}', 'a{x="1"}', 'a{x="1", y=~"2|3"}'],
        ),
        ("rate(a[5m] offset 1h)", ["rate(a[10m] offset 1h)", "rate(a[2m30s] offset 1h)", "rate(a[5m])"]),
        ("avg_over_time(a[1m])", ["max_over_time(a[1m])", "avg_over_time(a[2m])", "avg_over_time(a[30s])"]),
        ("sum without (x) (a)", ["max without (x) (a)"]),
        ("min(-a)", ["max (-a)"]),
        (
            "last_over_time((a > 1)[1h:1m])",
            ["last_over_time((a > 1)[2h:1m])", "last_over_time((a > 1)[30m:1m])", "last_over_time((a < 1)[1h:1m])"],
        ),
        ("time() - a", []),
        ('label_replace(a, "b", "\\"", "c", "")', []),
    ],
)  # fmt: skip
def test_an_expression_is_broken_in_every_place(expr, broken):
    """Each possible change of an expression results in one mutant."""
    assert [text for _, text in vary(promql_parser.parse(expr))] == broken


@pytest.mark.parametrize(
    "expr",
    [
        'a{b="c"}',
        "a offset -5m",
        "-a / 1000000000",
        "abs(a) == Inf",
        "a * on () group_right () b",
        'count_values ("v", a)',
        "topk by (x) (3, a)",
        "a == bool 1",
        "max_over_time((a > 1)[5m:] offset 2m)",
        'rate(x{a=" offset ",b="\\\\.\\n"}[5m])',
        "vector(0.05)",
    ],
)
def test_what_is_not_broken_is_written_as_it_was(expr):
    """Writing an expression and parsing it again results in the same expression."""
    tree = promql_parser.parse(expr)
    assert str(promql_parser.parse(write(tree))) == str(tree)


def test_an_instant_of_its_own_is_refused():
    """An expression with the modifier `@` is refused, as the rules do not use it."""
    with pytest.raises(ValueError, match="@ is not understood"):
        write(promql_parser.parse("a @ 5"))


def test_durations_are_dropped_doubled_and_halved():
    """Mutants drop, double and halve `for` and `keep_firing_for` if the rule has them."""
    broken = list(break_rule(make_rule("a", for_="1m", keep_firing_for="1h30m")))
    assert [(what, rule.for_, rule.keep_firing_for) for what, rule in broken] == [
        ("for dropped", "", "1h30m"),
        ("for doubled", "2m", "1h30m"),
        ("for halved", "30s", "1h30m"),
        ("keep_firing_for dropped", "1m", ""),
        ("keep_firing_for doubled", "1m", "3h"),
        ("keep_firing_for halved", "1m", "45m"),
    ]


def test_what_cannot_be_parsed_is_no_mutant():
    """A change that makes an expression invalid, such as an empty selector, is no mutant."""
    assert [rule.expr for _, rule in break_rule(make_rule('absent({a="b"})'))] == []


def test_mutants_that_sound_alike_have_names_of_their_own():
    """If two mutants have the same description, the second gets a number."""
    names = [what for what, _ in break_rule(make_rule("a > 1 or a > 1"))]
    assert names[-2:] == ["< for > in `a > 1`", "< for > in `a > 1` (2)"]


@pytest.mark.parametrize(
    ("expr", "broken"),
    [
        ("vector(80)", ["vector(160)", "vector(40)"]),
        ("vector(1e10)", ["vector(20000000000)", "vector(5000000000)"]),
        ("vector(-0.5)", ["vector(-1)", "vector(-0.25)"]),
        ("vector(0)", []),
    ],
)
def test_thresholds_are_doubled_and_halved(expr, broken):
    """The mutants of a threshold double and halve its value, except 0."""
    rule = dataclasses.replace(make_rule(expr), name="threshold:hot:celsius")
    assert [broken.expr for _, broken in break_rule(rule)] == broken


def test_the_tests_of_an_alert_kill_what_they_reach(small, workshop, promtool):
    """A mutant is run only with the tests of its alert, or of the alerts that use its record."""
    rules, tests = small
    outcome = run_mutants(
        (), promtool=promtool, directory=workshop, book=read_rulebook(rules), tests=tests
    )
    assert [mutant.name for mutant in outcome.survived] == [
        "run:wait:max3m: min for max in `max without (rank) (max_over_time(wait[3m]))`",
    ]
    assert len(outcome.killed) == 15
    assert all(path.is_file() for path in workshop.iterdir())


def test_the_score_counts_neither_equivalent_nor_invalid_mutants():
    """The score omits equivalent and invalid mutants, and detected equivalents are reported."""
    rule = make_rule("a > 1", for_="1m")
    mutants = [Mutant(("Hot",), what, broken, rule) for what, broken in break_rule(rule)]
    killed, survived, equivalent, refuted = mutants
    invalid = Mutant(("Hot",), "bad", rule, rule)
    verdicts = {
        killed: "got:[]",
        survived: "",
        equivalent: "",
        refuted: "got:[]",
        invalid: "could not parse expression",
    }
    outcome = conclude(verdicts, [equivalent.name, refuted.name])
    assert outcome.score == 0.5
    assert outcome.invalid == (invalid,)
    assert describe(outcome, whole=True).splitlines() == [
        "SURVIVED Hot: for dropped",
        "         for: -, keep_firing_for: -",
        "REFUTED  Hot: for halved: listed as equivalent, but noticed",
        "INVALID  Hot: bad",
        "1 of 2 mutants killed (50.0%), 1 survived, 1 equivalent",
    ]


def test_nothing_to_break_is_a_full_score():
    """Without mutants, the score is 1."""
    assert conclude({}, ()).score == 1.0


def test_tests_that_fail_without_a_mutant_are_an_error(small, workshop, promtool):
    """Tests that fail with the unchanged rules are an error, as they would kill every mutant."""
    rules, tests = small
    path = tests / "Hot.yml"
    path.write_text(path.read_text(encoding="utf-8").replace("kind: gpu", "kind: x"), "utf-8")
    with pytest.raises(ValueError, match="these tests fail with the rules as they are:\nHot: FAIL"):
        run_mutants(
            ("Hot",), promtool=promtool, directory=workshop, book=read_rulebook(rules), tests=tests
        )


def test_an_alert_without_tests_survives_everything(small, workshop, promtool):
    """The mutants of an alert without tests all survive."""
    rules, tests = small
    (tests / "Hot.yml").unlink()
    outcome = run_mutants(
        ("Hot",), promtool=promtool, directory=workshop, book=read_rulebook(rules), tests=tests
    )
    assert outcome.score == 0.0


def test_the_tenth_is_a_tenth_and_always_the_same():
    """The choice of a tenth of the mutants depends only on the name of each mutant."""
    book = read_rulebook()
    mutants = list_mutants(book, [rule.name for rule in book.alerts])
    tenth = choose_share(mutants)
    assert 0.07 < len(tenth) / len(mutants) < 0.13
    assert choose_share(reversed(mutants)) == tenth[::-1]


def test_the_command_names_survivors_and_score(promtool, tmp_path, capsys, monkeypatch):
    """The command prints the score, writes it as JSON, and exits with 2 for invalid usage."""
    monkeypatch.setenv("PATH", f"{Path(promtool).parent}:{os.environ['PATH']}")
    path = tmp_path / "result.json"
    assert main(["Watchdog", "--json", str(path)]) == 0
    assert "0 of 0 mutants killed (100.0%)" in capsys.readouterr().out
    assert json.loads(path.read_text(encoding="utf-8"))["score"] == 1.0
    assert main(["Nothing"]) == 2
    assert capsys.readouterr().err.startswith("no alert Nothing; there are ")
    monkeypatch.setenv("PATH", "")
    assert main([]) == 2
    assert capsys.readouterr().err == "no promtool in PATH: install Debian's prometheus\n"
