"""The states and verdicts that the run dashboard shows for made-up runs.

The runs are in `verdict_cases.yml`. For each run, promtool evaluates the rules that record states
and verdicts, the queries of the panels, filled in as by Grafana, and the conditions of the alerts
that report the same.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import pytest
import yaml
from promql_parser import parse_duration

from grafana.build.limits import limit
from grafana.build.queries import fill
from grafana.build.run_verdict import (
    NOT_SEEN,
    OBSERVED,
    STATES,
    VERDICTS,
    recall_state,
    recall_trouble,
    recall_verdict,
    tell_slow,
    tell_state,
    tell_verdict,
)
from tests.integration.dashboards.live.grafana import Choice, Look, write_query
from tests.support.promtool import run_promtool
from tests.support.rulebook import Loader, read_rulebook

RUN = "bert.v1 (uid 1000)"
ALERTS = (
    *("TrainingRunLost", "TrainingRunFailed", "TrainingRunTerminated", "TrainingRunVanished"),
    *("TrainingStalled", "TrainingLossNotFinite", "TrainingStragglerRank", "DataLoaderBottleneck"),
    *("AcceleratorThermalThrottling", "AcceleratorPowerBrake"),
    *("GPULowUtilization", "HPULowUtilization"),
)
# The tested recording rules; the results of all others are given by the cases.
RECORDED = (
    *("run:rank_death:timestamp_seconds", "run:rank_state:number", "run:training_state:number"),
    *("run:accelerator_held:bool", "accelerator:verdict:number", "run:training_verdict:number"),
)
NUMBERED = tuple(name for name in RECORDED if name.endswith(":number"))
NOTHING = "nothing"
NUMBERS = {state.text: state.number for state in (*STATES, *VERDICTS)}
TEXTS = {number: text for text, number in NUMBERS.items()}

# promtool runs in the first test: for a minute on two idle cores, with version 3.
pytestmark = pytest.mark.timeout(1800)

_EVERYTHING = Choice((), is_multiple=True, all_value=".+")
_HOLDS = 100  # a number that no state has
_STEP_SECONDS = 60.0
_SHORT = re.compile(r"@(?:(?P<host>[ab])\.)?(?P<what>host|run|rank|gpu|hpu)(?P<number>\d*)")
_THRESHOLD = re.compile(r"scalar\(threshold:([\w:]+)\)")
_NUMBER = re.compile(r" ?-?\d\S*E[+-]\d+")
_COMPLAINT = re.compile(
    r'^    expr: "# (?P<case>\d+) (?P<question>\d+)\\n.*?", time: [^,]*,(?P<says>.*?)(?=^    \S|\Z)',
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Case:
    """A made-up run and its expected results; `verdict_cases.yml` describes the members."""

    name: str
    given: Mapping[str, str]
    state: str
    verdict: str
    alerts: Sequence[str] = ()
    ranks: Mapping[str, str] = field(default_factory=dict)
    band: Mapping[str, Sequence[str]] | None = None
    at: str = "60m"
    range: str = "2h"
    every: str = "1m"
    run: str = RUN
    hosts: Sequence[str] = ()
    wrong: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    """A query about a case.

    Attributes:
        about: A description of the query.
        expr: The query, with its variables filled in.
        at: The evaluation time, such as `60m`.
        expected: The expected values, by labels.
    """

    about: str
    expr: str
    at: str
    expected: Mapping[str, int]


def read_cases():
    """Return the cases of the file."""
    text = Path(__file__).with_name("verdict_cases.yml").read_text(encoding="utf-8")
    return [Case(**case) for case in yaml.load(text, Loader)["cases"]]


CASES = read_cases()
MISTAKEN = replace(CASES[0], name="mistaken", state="died", alerts=["TrainingRunLost"])


@pytest.fixture(scope="module")
def complaints(promtool, tmp_path_factory):
    """Return the differences that promtool reports, by the name of the case."""
    found = {}
    for every in {case.every for case in CASES}:
        cases = [case for case in (*CASES, MISTAKEN) if case.every == every]
        directory = tmp_path_factory.mktemp("verdict")
        (directory / "rules.yml").write_text(write_rules(), encoding="utf-8")
        found |= judge(cases, every, promtool, directory)
    return found


def judge(cases: Sequence[Case], every: str, promtool: Path, directory: Path):
    """Return the differences that promtool reports for cases with the same scrape interval."""
    questions = [list(ask(case)) for case in cases]
    path = directory / "verdict.yml"
    document = {
        "rule_files": ["rules.yml"],
        "evaluation_interval": every,
        "group_eval_order": ["thresholds", "recording"],
        "tests": list(map(write_test, range(len(cases)), cases, questions)),
    }
    path.write_text(json.dumps(document), encoding="utf-8")
    done = run_promtool(promtool, "test", "rules", path)
    rest = _COMPLAINT.sub("", done.stderr).split()
    assert rest == (["FAILED:"] if done.stderr else []), f"{done.stdout}{done.stderr}"
    found = {case.name: [] for case in cases}
    for each in _COMPLAINT.finditer(done.stderr):
        at = int(each["case"])
        question = questions[at][int(each["question"])]
        found[cases[at].name].append(f"{question.about}: {describe(each['says'])}")
    return found


def write_rules() -> str:
    """Return the rules that record states and verdicts, and their thresholds, as JSON."""
    book = read_rulebook()
    groups = {
        "thresholds": [rule.describe() for rule in book.thresholds],
        "recording": [rule.describe() for rule in book.records if rule.name in RECORDED],
    }
    return json.dumps(
        {"groups": [{"name": name, "rules": rules} for name, rules in groups.items()]}
    )


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            case,
            id=case.name,
            marks=[pytest.mark.xfail(reason=case.wrong)] if case.wrong else [],
        )
        for case in CASES
    ],
)
def test_the_board_says_what_is_so(complaints, case):
    """A case has the expected state, verdict, ranks in trouble and alerts."""
    assert complaints[case.name] == []


def test_what_is_not_so_is_noticed(complaints):
    """A case with wrong expectations fails, and the differences have the texts of the states."""
    assert complaints[MISTAKEN.name] == [
        "state at 60m: died expected, training found",
        "alerts at 60m: TrainingRunLost expected, nothing found",
        "state over time, at 60m: died expected, training found",
    ]


def test_cases_have_different_names():
    """No two cases have the same name."""
    assert len({case.name for case in CASES}) == len(CASES)


@pytest.mark.parametrize(("member", "states"), [("state", STATES), ("verdict", VERDICTS)])
def test_everything_that_the_board_can_say_is_said(member, states):
    """Some case has each state, each verdict, and no result at all."""
    said = {getattr(case, member) for case in CASES}
    assert said == {*(state.text for state in states), NOTHING}


def test_no_two_states_have_one_number():
    """No two states or verdicts have the same number."""
    states = {*STATES, *VERDICTS}
    assert len({state.number for state in states}) == len(states)


def test_the_rules_give_the_numbers_of_states_and_no_others():
    """The rules record the numbers of all states and verdicts, and no other numbers."""
    expressions = "\n".join(rule.expr for rule in read_rulebook().records if rule.name in NUMBERED)
    found = {int(number) for number in re.findall(r"(?<![\w.:\"{,])(\d+) (?:\*|\+)", expressions)}
    # The two lowest states are 1, which a true condition gives, and 0, if nothing is recorded.
    assert found - {0} == set(TEXTS) - {NOT_SEEN.number, OBSERVED.number}


def test_every_alert_is_true_of_some_run():
    """The condition of every alert holds for at least one case."""
    assert {alert for case in CASES for alert in case.alerts} == set(ALERTS)


def test_a_rank_may_hold_eight_accelerators(promtool, tmp_path):
    """All eight accelerators that a rank reports are recorded as held by the run."""
    uuids = [f"GPU-{number}" for number in range(9)]
    held = {"@rank0": ",".join(uuids[:-1]), "@rank1": uuids[-1]}
    series = [
        write_labels(f'training_rank_info{{{rank},gpu_uuid="{listed}"}}', RUN)
        for rank, listed in held.items()
    ]
    (tmp_path / "rules.yml").write_text(write_rules(), encoding="utf-8")
    expected = [{"labels": f'{{uuid="{uuid}"}}', "value": 1} for uuid in uuids]
    question = "count by (uuid) (run:accelerator_held:bool)"
    document = {
        "rule_files": ["rules.yml"],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": each, "values": "1x5"} for each in series],
                "promql_expr_test": [
                    {"expr": question, "eval_time": "5m", "exp_samples": expected}
                ],
            }
        ],
    }
    (tmp_path / "held.yml").write_text(json.dumps(document), encoding="utf-8")
    done = run_promtool(promtool, "test", "rules", tmp_path / "held.yml")
    assert done.returncode == 0, done.stderr


def ask(case: Case) -> Iterator[Question]:
    """Yield the queries of the first row's panels, at the end of the range and at earlier times."""
    in_trouble = f"max by (instance, rank) ({recall_trouble('$__range')} or {tell_slow()})"
    for about, expr, expected in (
        ("state", fill(recall_state("$__range")), expect(case.state)),
        ("verdict", fill(recall_verdict("$__range")), expect(case.verdict)),
        ("ranks in trouble", fill(in_trouble), expect_ranks(case.ranks)),
        ("alerts", ask_for_alerts(), expect_alerts(case.alerts)),
    ):
        yield Question(f"{about} at {case.at}", write(expr, case), case.at, expected)
    band = {case.at: (case.state, case.verdict)} if case.band is None else case.band
    for moment, texts in band.items():
        for about, expr, text in zip(
            ("state", "verdict"), (tell_state(), tell_verdict()), texts, strict=True
        ):
            # promtool evaluates at a single time, which is then `end()`, not the end of the range.
            written = write(fill(expr), case).replace("@ end()", f"@ {read_seconds(case.at):g}")
            yield Question(f"{about} over time, at {moment}", written, moment, expect(text))


def expect(text: str) -> Mapping[str, int]:
    """Return the expected result of a query for a state."""
    return {} if text == NOTHING else {"{}": NUMBERS[text]}


def expect_ranks(ranks: Mapping[str, str]) -> Mapping[str, int]:
    """Return the expected result of the query for the ranks in trouble."""
    named = {tuple(who.split("/")): NUMBERS[text] for who, text in ranks.items()}
    return {f'{{instance="{host}", rank="{rank}"}}': at for (host, rank), at in named.items()}


def expect_alerts(alerts: Sequence[str]) -> Mapping[str, int]:
    """Return the expected result of the query for alerts."""
    assert set(alerts) <= set(ALERTS)
    return {f'{{alert="{alert}"}}': _HOLDS for alert in alerts}


@cache
def ask_for_alerts() -> str:
    """Return a query for the alerts whose condition holds, of all runs and machines."""
    conditions = {rule.name: rule.expr for rule in read_rulebook().alerts if rule.name in ALERTS}
    assert set(conditions) == set(ALERTS)
    return "\nor ".join(
        f'label_replace({_HOLDS} * group({_fill_thresholds(expr)}), "alert", "{alert}", "", "")'
        for alert, expr in conditions.items()
    )


def _fill_thresholds(expr: str) -> str:
    return _THRESHOLD.sub(lambda found: f"{limit(found[1]):g}", expr)


def write(expr: str, case: Case) -> str:
    """Return a query with its variables filled in."""
    chosen = Choice(tuple(case.hosts), is_multiple=True) if case.hosts else _EVERYTHING
    seconds = read_seconds(case.range)
    look = Look(
        end=read_seconds(case.at),
        seconds=seconds,
        choices={
            "job": _EVERYTHING,
            "instance": chosen,
            "run": Choice((case.run,)),
            "rank": _EVERYTHING,
        },
        scrape_seconds=read_seconds(case.every),
    )
    return write_query(expr, look, max(_STEP_SECONDS, look.scrape_seconds), seconds)


def read_seconds(text: str) -> float:
    """Return the seconds of a duration such as `10m15s`."""
    return parse_duration(text).total_seconds()


def write_test(number: int, case: Case, questions: list[Question]) -> Mapping[str, object]:
    """Return a case as a test of promtool; the comment of a query identifies case and question."""
    return {
        "name": case.name,
        "interval": case.every,
        "input_series": [
            {"series": write_labels(series, case.run), "values": values}
            for series, values in case.given.items()
        ],
        "promql_expr_test": [
            {
                "expr": f"# {number} {at}\n{question.expr}",
                "eval_time": question.at,
                "exp_samples": [
                    {"labels": labels, "value": value}
                    for labels, value in question.expected.items()
                ],
            }
            for at, question in enumerate(questions)
        ],
    }


def write_labels(series: str, run: str) -> str:
    """Return a series with its short names replaced by labels."""

    def write(found: re.Match[str]) -> str:
        what, number = found["what"], found["number"]
        labels = {"job": "trainvitals", "instance": f"{found['host'] or 'a'}.lan"}
        if what in ("run", "rank"):
            labels["run"] = run
        if what == "rank":
            labels["rank"] = number
        if what in ("gpu", "hpu"):
            labels |= {"kind": what, "device": number, "uuid": f"{what.upper()}-{number}"}
        return ",".join(f"{name}={json.dumps(value)}" for name, value in labels.items())

    return _SHORT.sub(write, series)


def describe(says: str) -> str:
    """Return promtool's message with the texts of states in place of their numbers."""
    found = re.search(r"exp: (.*?)\n\s+got: (.*)", says, re.DOTALL)
    if found is None:
        return says.strip()
    expected, got = (_name(part.strip()) for part in found.groups())
    return f"{expected} expected, {got} found"


def _name(samples: str) -> str:
    if samples == "nil":
        return NOTHING
    named = _NUMBER.sub(lambda found: f" {TEXTS.get(round(float(found[0])), '')}", samples)
    return re.sub(r'\{(?:alert="(\w+)")?\}', r"\1", named).strip()
