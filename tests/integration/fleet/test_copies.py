"""The generated history for dashboard benchmarks has the series that the rules would record."""

import json

import pytest

from bench.boards_bench import check_history
from fleet import copies
from fleet.copies import BLOCK_SECONDS, HOSTS_PER_RUN, STEP_SECONDS, Fleet
from tests.integration.dashboards.live.server import Server
from tests.support.rulebook import is_threshold, read_rulebook

FLEET = Fleet(HOSTS_PER_RUN + 1, BLOCK_SECONDS, 1_790_000_000 // BLOCK_SECONDS * BLOCK_SECONDS)


@pytest.fixture(scope="module")
def server(prometheus, promtool, tmp_path_factory):
    """Start a Prometheus that holds two hours of a few machines, with every possible metric."""
    directory = tmp_path_factory.mktemp("history")
    (directory / "data").mkdir()
    # The machines have GPUs. The golden scrape also has an HPU, which no dashboard queries by name.
    names = {one.name for one in copies.list_samples() if not one.name.startswith("hpu_")}
    copies.write_blocks(FLEET, names, directory / "data", promtool=promtool, report=print)
    with Server(prometheus, directory) as server:
        check_history(server, FLEET)
        yield server


def ask(server, expr):
    """Return the labels, without metric names, of an expression's result at the end."""
    answer = server.ask("query", query=expr, time=str(FLEET.end - STEP_SECONDS))
    assert answer["status"] == "success", answer
    return sorted(
        json.dumps({name: value for name, value in one["metric"].items() if name != "__name__"})
        for one in answer["data"]["result"]
    )


RECORDS = [rule for rule in read_rulebook().records if not is_threshold(rule.name)]


@pytest.mark.parametrize("rule", RECORDS, ids=lambda rule: rule.name)
def test_what_is_made_is_what_the_rules_would_record(server, rule):
    """A generated recording rule has as many series as its expression, with the same labels."""
    assert ask(server, rule.name) == ask(server, rule.expr) != []


@pytest.mark.parametrize("name", ["run:rank_state:number", "run:training_verdict:number"])
def test_states_are_those_that_the_rules_would_give(server, name):
    """The generated states equal those of the rules, and two series have the state 33."""
    (rule,) = (rule for rule in RECORDS if rule.name == name)
    assert ask(server, f"{name} != on (job, instance, run, rank) ({rule.expr})") == []
    assert len(ask(server, f"{name} == 33")) == 2
