"""The past that the boards are measured on has the series that the rules would have recorded."""

import json
import os
from pathlib import Path

import pytest

from bench import fleet_history
from bench.boards_bench import wait_until_ready
from bench.client import HOST
from bench.fleet_history import BLOCK_SECONDS, HOSTS_PER_RUN, STEP_SECONDS, Fleet
from bench.subjects import find_port, run_subject
from docs.build.pictures.prometheus import Prometheus, write_request
from tests.rulebook import is_threshold, read_rulebook

FLEET = Fleet(HOSTS_PER_RUN + 1, BLOCK_SECONDS, 1_790_000_000 // BLOCK_SECONDS * BLOCK_SECONDS)


@pytest.fixture(scope="module")
def server(prometheus, promtool, tmp_path_factory):
    """Start a Prometheus that holds two hours of a few machines, with all that can be made."""
    directory = tmp_path_factory.mktemp("history")
    data, config, port = directory / "data", directory / "prometheus.yml", find_port()
    data.mkdir()
    config.write_text("{}")
    # The machines have GPUs; the golden scrape has an HPU besides, for which no board asks by name.
    names = {one.name for one in fleet_history.list_samples() if not one.name.startswith("hpu_")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{Path(promtool).parent}:{os.environ['PATH']}")
        fleet_history.write_blocks(FLEET, names, data, report=print)
    command = [
        *(prometheus, f"--config.file={config}", f"--storage.tsdb.path={data}"),
        *(f"--web.listen-address={HOST}:{port}", "--storage.tsdb.retention.time=20y"),
    ]
    with run_subject("prometheus", command, port):
        server = Prometheus(f"http://{HOST}:{port}")
        wait_until_ready(server, FLEET)
        yield server
        server.close()


def ask(server, expr):
    """Give the labels of what an expression gives at the end, without names."""
    asked = write_request("query", [("query", expr), ("time", FLEET.end - STEP_SECONDS)])
    found = server.ask(asked)["result"]
    return sorted(
        json.dumps({name: value for name, value in one["metric"].items() if name != "__name__"})
        for one in found
    )


RECORDS = [rule for rule in read_rulebook().records if not is_threshold(rule.name)]


@pytest.mark.parametrize("rule", RECORDS, ids=lambda rule: rule.name)
def test_what_is_made_is_what_the_rules_would_record(server, rule):
    """As many series, with the same labels."""
    assert ask(server, rule.name) == ask(server, rule.expr) != []


@pytest.mark.parametrize("name", ["run:rank_state:number", "run:training_verdict:number"])
def test_states_are_those_that_the_rules_would_give(server, name):
    """The dead are dead, and the others live."""
    (rule,) = (rule for rule in RECORDS if rule.name == name)
    assert ask(server, f"{name} != on (job, instance, run, rank) ({rule.expr})") == []
    assert len(ask(server, f"{name} == 33")) == 2
