"""Every query of every dashboard, sent as by Grafana to a Prometheus that scraped real exporters.

Grafana itself does not run, so these tests do not cover how it shows the answers.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.integration.dashboards.live.breakages import BREAKAGES, make_board
from tests.integration.dashboards.live.choosing import choose
from tests.integration.dashboards.live.clicking import (
    click,
    list_clicks,
    list_rows,
    open_address,
    read_states,
)
from tests.integration.dashboards.live.expectations import Expectations, View, read_expectations
from tests.integration.dashboards.live.gpu_box import LLAMA
from tests.integration.dashboards.live.grafana import ask_board
from tests.integration.dashboards.live.judging import OF_A_FLEET, judge
from tests.integration.dashboards.live.recording import TROUBLES
from tests.integration.dashboards.live.showing import count_series, group_by_panel
from tests.integration.dashboards.live.visits import Visits

# The dashboards to which the links of a view must lead, among others.
_LEADS = {
    "fleet-everything": {"trainvitals-run", "trainvitals-host", "trainvitals-accelerators"},
    "run-running": {"trainvitals-host", "trainvitals-accelerators"},
    "run-killed": {"trainvitals-host"},
    "accelerators-gpu-box": {"trainvitals-run", "trainvitals-accelerators"},
    "host-gpu-box": {"trainvitals-run", "trainvitals-containers"},
    "containers-gpu-box": {"trainvitals-run", "trainvitals-accelerators"},
}
_GONE = "gone:9200"  # this machine never responded, so no dashboard has its data
_EXPECTATIONS = read_expectations()
_VIEWS = pytest.mark.parametrize("view", _EXPECTATIONS.views, ids=str)
_BOARDS = pytest.mark.parametrize("uid", dict.fromkeys(view.board for view in _EXPECTATIONS.views))


def _list(faults) -> str:
    return "\n".join(dict.fromkeys(faults))


@_VIEWS
def test_no_answer_is_wrong(visits, view: View):
    """No view has faults, such as errors, duplicates, NaN, infinities or too many series."""
    assert not (faults := _list(visits.find_faults(view))), faults


@_VIEWS
def test_panels_return_what_they_are_meant_to(visits, view: View):
    """Each panel of a view returns data or is empty, as `expectations.yml` requires."""
    assert not (surprises := _list(visits.find_surprises(view))), surprises


@_VIEWS
def test_a_first_screen_is_as_full_as_it_can_be(visits, view: View):
    """The first screen of a view has no more empty panels than `expectations.yml` allows."""
    empties = [*visits.find_empties(view)]
    assert len(empties) <= view.empties, empties


@_BOARDS
def test_every_query_is_answered_somewhere(visits, uid: str):
    """Every query returns data in some view, or is listed with a reason in `expectations.yml`."""
    silent = [one for one in _EXPECTATIONS.silent if one.board == uid]
    known = {query for one in silent for query in one.queries}
    never = {query for one in silent for query in one.queries if one.always}
    found = set(visits.find_silent(uid))
    assert never <= found <= known


def test_expectations_say_what_is_so_and_no_more(boards):
    """The entries of `expectations.yml` name existing panels and queries and change a default."""
    assert not (mistakes := _list(_EXPECTATIONS.find_mistakes(boards))), mistakes


def test_the_recording_shows_trouble(recording):
    """Every alert that the machines' problems should cause fires during the recording."""
    found = recording.server.ask(
        "query", query='group by (alertname) (last_over_time(ALERTS{alertstate="firing"}[5m]))'
    )
    names = {series["metric"]["alertname"] for series in found["data"]["result"]}
    assert names >= {*TROUBLES}


def test_variables_offer_what_there_is(visits):
    """Variables offer the recorded values: the newest run first, devices and ranks by number."""
    look = visits.look_at("trainvitals-run", {"run": LLAMA})
    runs = [*visits.list_options("trainvitals-run", "run", look)]
    assert runs[0] == LLAMA
    assert sorted(runs) == [LLAMA, "unet", "vit"]
    assert visits.list_options("trainvitals-run", "rank", look) == ["0", "1"]
    hosts = ["cpu-box:9200", "gaudi-box:9200", "gpu-box:9200", "workstation:9200"]
    for board in ("fleet", "accelerators", "host", "containers"):
        uid = f"trainvitals-{board}"
        assert visits.list_options(uid, "instance", visits.look_at(uid, {})) == hosts
    gpus = visits.look_at("trainvitals-accelerators", {"instance": "gpu-box:9200"})
    assert visits.list_options("trainvitals-accelerators", "device", gpus) == list("01234567")
    containers = visits.look_at("trainvitals-containers", {"instance": "gpu-box:9200"})
    assert visits.list_options("trainvitals-containers", "container", containers) == [
        "cache",
        "lab-loader-1",
        "lab-tensorboard-1",
        "lab-train-1",
        "unet.v2",
    ]


class Walk:
    """A sequence of clicks that begins on the fleet dashboard.

    A click fails if the variables of its target do not offer the chosen values.
    """

    def __init__(self, visits: Visits, boards) -> None:
        self._visits, self._boards = visits, boards
        self.arrive("trainvitals-fleet", {})

    def arrive(self, uid: str, chosen: dict[str, str]) -> None:
        """Open a dashboard with chosen variables."""
        self.uid, self.chosen = uid, chosen
        self._answers = self._visits.visit(View(uid, f"walk{chosen}", chosen, "either"))

    def find(self, row: str, title: str):
        """Return a panel of the open dashboard."""
        (panel,) = (
            one
            for one in self._boards[self.uid].panels
            if (one.place.row, one.title) == (row, title)
        )
        return panel

    def read(self, row: str, title: str) -> list[dict[str, str]]:
        """Return the rows of a table."""
        return list_rows(self.find(row, title), self._answers)

    def read_stat(self, title: str) -> str:
        """Return a stat's text or number in the first row of panels."""
        panel = self.find("Now", title)
        (value,) = (
            series.samples[-1][1]
            for answer in self._answers
            if answer.question.panel is panel
            for series in answer.series
        )
        return read_states(panel)[""].get(value, f"{value:g}")

    def click(self, row: str, title: str, column: str, **wanted: str) -> None:
        """Click on a cell of the only table row that has the wanted values."""
        (line,) = (one for one in self.read(row, title) if wanted.items() <= one.items())
        self.arrive(*click(self.find(row, title), column, line))

    def click_stat(self, title: str) -> None:
        """Click on a stat that has a link."""
        (link,) = self.find("Now", title).json["links"]
        self.arrive(*open_address(link["url"], self.chosen))


def test_three_clicks_lead_from_the_fleet_to_the_reason(visits, boards):
    """Three clicks lead from a killed run to its machine, to the containers and the OOM death."""
    walk = Walk(visits, boards)
    assert [one["Run"] for one in walk.read("Runs", "Runs") if one.get("State") == "died"] == [
        "unet"
    ]
    walk.click("Runs", "Runs", "Run", State="died")
    assert (walk.uid, walk.chosen["run"]) == ("trainvitals-run", "unet")
    assert walk.chosen["instance"] == "gpu-box:9200"
    assert (walk.read_stat("State"), walk.read_stat("Verdict")) == ("died", "died")
    assert [one["Host"] for one in walk.read("Ranks", "Ranks in trouble") if one.get("State")] == [
        "gpu-box:9200"
    ]
    walk.click("Ranks", "Ranks in trouble", "Host", State="died")
    assert (walk.uid, walk.chosen) == ("trainvitals-host", {"instance": "gpu-box:9200"})
    assert float(walk.read_stat("OOM kills, 24 h")) > 0
    walk.click_stat("OOM kills, 24 h")
    assert (walk.uid, walk.chosen) == ("trainvitals-containers", {"instance": "gpu-box:9200"})
    deaths = walk.read("Alerts and deaths", "Last deaths")
    assert {"Container": "unet.v2", "Memory": "own limit"}.items() <= max(
        deaths, key=lambda one: "Memory" in one
    ).items()


def test_a_click_on_a_run_with_an_odd_name_opens_that_run(visits, boards):
    """A click on a run whose name has special characters opens the dashboard of this run."""
    walk = Walk(visits, boards)
    walk.click("Runs", "Runs", "Run", Run=LLAMA)
    assert (walk.uid, walk.chosen) == (
        "trainvitals-run",
        {"instance": "gpu-box:9200", "run": LLAMA},
    )
    assert walk.read_stat("State") in ("training", "validation", "checkpoint")
    walk.arrive("trainvitals-fleet", {})
    walk.click("Now", "Firing alerts", "Run", Run="unet", Alert="TrainingRunLost")
    assert (walk.uid, walk.chosen) == ("trainvitals-run", {"run": "unet"})


@_VIEWS
def test_every_link_leads_to_what_its_board_offers(visits, boards, view: View):
    """Every link in a view leads to values that the variables of the target dashboard offer."""
    answers = visits.visit(view)
    chosen = {name: value for name, value in view.wanted.items() if name in ("instance", "run")}
    clicks = {
        (uid, tuple(variables.items()))
        for panel in boards[view.board].panels
        for uid, variables in list_clicks(panel, answers, chosen)
        if variables.get("instance") != _GONE
    }
    for uid, variables in clicks:
        assert uid in boards
        visits.look_at(uid, dict(variables))  # raises an error if a value cannot be chosen
    assert {uid for uid, _ in clicks} >= _LEADS.get(str(view), set())


def test_a_lost_card_opens_the_board_of_its_host(visits, boards):
    """A click on a lost device opens the dashboard of its host, which lists `AcceleratorLost`."""
    walk = Walk(visits, boards)
    walk.click("Accelerators", "Worst accelerators", "Host", State="lost")
    assert (walk.uid, walk.chosen) == ("trainvitals-host", {"instance": "gpu-box:9200"})
    assert "AcceleratorLost" in {one["Alert"] for one in walk.read("Now", "Firing alerts")}


@pytest.mark.parametrize("board", ["accelerators", "host"])
def test_a_board_grows_with_its_devices_and_stays_small(visits, board):
    """No graph has more than 20 series on machines with no, one or eight devices."""
    most = {}
    for machine in ("cpu-box", "workstation", "gpu-box", "gaudi-box"):
        (view,) = (
            view
            for view in _EXPECTATIONS.views
            if (view.board, view.name) == (f"trainvitals-{board}", machine)
        )
        drawn = [
            found for found in group_by_panel(visits.visit(view)) if found.panel.kind != "table"
        ]
        most[machine] = max(map(count_series, drawn))
    assert max(most.values()) <= 20, most
    if board == "accelerators":
        assert most["cpu-box"] == 1  # the number of lost devices
        assert most["cpu-box"] < most["workstation"] < most["gpu-box"]


@pytest.mark.parametrize(("uid", "run"), [("trainvitals-fleet", ""), ("trainvitals-run", LLAMA)])
def test_a_fleet_of_512_devices_draws_at_most_200_series(fleet, boards, uid, run):
    """Dashboards of 64 hosts have no faults, such as a graph of more than 200 series."""
    asked, look = fleet
    board = boards[uid]
    choices = choose(asked, board, "all", {"run": run} if run else {}, look)
    answers = ask_board(asked, board, replace(look, choices=choices))
    faults = [
        f"{fault.place}: {fault.kind}: {fault.says}"
        for fault in judge(answers, OF_A_FLEET)
        if not _EXPECTATIONS.is_meant(uid, fault.kind, fault.place)
    ]
    assert not faults, "\n".join(faults)
    counts = {str(found.panel.place): count_series(found) for found in group_by_panel(answers)}
    assert max(counts.values()) >= 64  # a series of each host is drawn


def test_the_fleet_has_512_devices(fleet):
    """The copied fleet has 512 devices on 64 hosts."""
    asked, look = fleet
    query = "count(accelerator_up) + 1000 * count(group by (instance) (accelerator_up))"
    answer = asked.ask("query", query=query, time=f"{look.end:.3f}")
    assert answer["data"]["result"][0]["value"][1] == "64512"


def look_at_small_board(recording, board) -> tuple[list[str], list[str]]:
    """Return the faults and the unexpected results of a dashboard that should return data."""
    view = View(board.uid, "everything", {}, "data")
    visits = Visits(recording, {board.uid: board}, Expectations((view,), (), (), ()))
    return [*visits.find_faults(view)], [*visits.find_surprises(view)]


def test_a_board_that_is_right_is_right(recording):
    """The small dashboard that other tests break has no fault."""
    assert look_at_small_board(recording, make_board()) == ([], [])


@pytest.mark.parametrize("what", BREAKAGES)
def test_a_broken_query_is_found(recording, what):
    """A broken query is reported with dashboard, panel, view, and a part of the answer."""
    kind, says, break_it = BREAKAGES[what]
    faults, _ = look_at_small_board(recording, make_board(break_it))
    found = [fault for fault in faults if f": {kind}: " in fault and says in fault]
    assert found, faults
    assert found[0].startswith("Small > ")
    assert " on everything (all, minute): " in found[0]


def test_a_query_that_finds_nothing_is_found(recording):
    """A query without a result is reported as an empty panel and as a query without an answer."""
    board = make_board()
    board.json["panels"][0]["targets"][0]["expr"] = 'host_io_weight_ratio{instance=~"$instance"}'
    faults, surprises = look_at_small_board(recording, board)
    assert faults == []
    assert surprises == ['Small > Waiting on everything: it is empty: "No host"']
    view = View(board.uid, "everything", {}, "data")
    visits = Visits(recording, {board.uid: board}, Expectations((view,), (), (), ()))
    assert [*visits.find_silent(board.uid)] == ["Waiting, query A"]


def test_a_variable_that_is_refused_is_found(recording):
    """A variable whose query Prometheus rejects causes an error that names the variable."""
    board = make_board()
    board.json["templating"]["list"][0]["query"] = "label_values(up{, instance)"
    with pytest.raises(AssertionError, match=r"Small > variable > instance: .*parse error"):
        look_at_small_board(recording, board)
