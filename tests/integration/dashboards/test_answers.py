"""The results of single panels for made-up machines and runs that the recording does not have.

promtool evaluates the panels' own queries, filled in as by Grafana, one hour after the first
scrape.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from tests.integration.dashboards.live.grafana import Choice, Look, write_query
from tests.support.promtool import run_promtool
from tests.unit.dashboards.boards import read_boards

END = 3600
_PARTS = 2**20
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

# A machine and its Prometheus with the same label `instance`, as relabelling may set it.
SHARED = {
    f"trainvitals_build_info{{{HOST}}}": "1x60",
    **{
        f"{name}{{{labels}}}": f"{value}+{step}x60"
        for name, step in (
            ("scrape_duration_seconds", 0),
            ("scrape_samples_post_metric_relabeling", 0),
            ("process_cpu_seconds_total", 60),
            ("process_resident_memory_bytes", 0),
        )
        for labels, value in ((HOST, 1), (PROMETHEUS, 9))
    },
}
MOUNT = f'{HOST},mountpoint="/data"'
INFO = f'host_filesystem_info{{{MOUNT},device="nas:/data",fstype="nfs4"}}'
STEP = f"training_global_step{{{RANK}}}"
LIVES = {
    f"training_last_progress_timestamp_seconds{{{RANK}}}": "0+60x60",
    f"training_process_up{{{RANK}}}": "1x60",
    STEP: "0+100x60",
    f"training_progress_ratio{{{RANK}}}": "0.5x60",
    f"training_samples_total{{{RANK}}}": "0+600x60",
    f"training_loss{{{RANK}}}": "2x60",
    f"training_eta_timestamp_seconds{{{RANK}}}": "7200x60",
}
# The run ended after 50 minutes, and its last values stay on the page.
ENDED = {
    **LIVES,
    f"training_last_progress_timestamp_seconds{{{RANK}}}": "0+60x50 3000x9",
    f"training_process_up{{{RANK}}}": "1x49 0x10",
    f"training_samples_total{{{RANK}}}": "0+600x49 29400x10",
}
# The run's machine was last scraped after 40 minutes, so the state of the run is unknown.
SILENT = {series: f"{values.split('x')[0]}x40" for series, values in LIVES.items()}
REMOTE = f'{PROMETHEUS},remote_name="far",url="http://far/write"'
SENT = "prometheus_remote_storage_queue_highest_sent_timestamp_seconds"
NEWEST = "prometheus_remote_storage_queue_highest_timestamp_seconds"
WRITES = {
    f"process_start_time_seconds{{{PROMETHEUS}}}": "1700000000x60",
    f"{NEWEST}{{{REMOTE}}}": "1700000000+60x60",
    f"{SENT}{{{REMOTE}}}": "0x30 1700001800+60x30",
}
# Before 3.7, the newest timestamp is a metric of the whole server.
WRITES_OF_2_42 = {
    series.replace("_queue_highest_timestamp_seconds", "_highest_timestamp_in_seconds").replace(
        f"in_seconds{{{REMOTE}", f"in_seconds{{{PROMETHEUS}"
    ): values
    for series, values in WRITES.items()
}


LOOKS_FOR_DEVICES = f'trainvitals_collector_success{{{HOST},collector="accelerator"}}'
SEES = f'trainvitals_collector_success{{{HOST},collector="container"}}'
STEP_OF_ACCESS = f"trainvitals_containers_privilege_step{{{HOST}}}"
# The step of the exporter's access to containers; None if the exporter reports no step.
ACCESS = {"without an engine": None, "by control groups alone": 0, "by an engine": 1}


@dataclass(frozen=True, slots=True)
class Case:
    """A panel with its input and the expected values by labels, of one or all of its queries.

    The selection is one machine or, if `everywhere`, all machines.
    """

    panel: str
    given: Mapping[str, str]
    says: Mapping[str, float]
    at: int = END
    letter: str = ""
    everywhere: bool = False


def _exporter(title: str, says: Mapping[str, float], letter: str = "A") -> Case:
    return Case(f"Vitals / Host > Exporter > {title}", SHARED, says, letter=letter)


def _now(title: str, given: Mapping[str, str], says: Mapping[str, float], at: int = END) -> Case:
    return Case(f"Vitals / Training run > Now > {title}", given, says, at)


GPU = f'{HOST},kind="gpu",device="3",uuid="GPU-c"'
_OF_GPU = '{kind="gpu",device="3",uuid="GPU-c"}'
_OF_A_CARD = f"{{{GPU}}}"
_FULL = f'accelerator_throttle_active{{{GPU},reason="sw_power_cap"}}'
_HOT = f'accelerator_throttle_active{{{GPU},reason="hw_thermal"}}'


def _accelerators(row: str, given: Mapping[str, str], says: Mapping[str, float]) -> Case:
    return Case(f"Vitals / Accelerators > {row}", given, says)


def _state(name: str) -> str:
    return f'accelerator_state{{{GPU},state="{name}"}}'


def _alert(severity: str) -> str:
    return f'ALERTS{{{GPU},alertname="{severity}",severity="{severity}",alertstate="firing"}}'


CASES = {
    **{
        f"a device that {what}": _accelerators(
            "Now > Condition of each device",
            dict.fromkeys(given, "1x60") | dict.fromkeys(others, "0x60"),
            {_OF_A_CARD: number},
        )
        for what, given, others, number in (
            ("answers and tells no more", (_state("ok"),), (), 1),
            ("is at full speed", (_state("ok"),), (_FULL, _HOT), 2),
            ("is at its power limit", (_state("ok"), _FULL), (_HOT,), 3),
            ("is hot at its power limit", (_state("ok"), _FULL, _HOT), (), 6),
            ("is lost, and told before what slowed it down", (_state("lost"), _HOT), (), 11),
        )
    },
    **{
        f"a device with {what}": _accelerators(
            "Now > Devices", dict.fromkeys(map(_alert, fires), "1x60"), says
        )
        for what, fires, says in (
            ("no alert", (), {}),
            ("one alert", ("info",), {f'{{alertname="info",{_OF_GPU[1:]}': 1}),
            (
                "several alerts",
                ("info", "critical", "warning"),
                {f'{{alertname="critical",{_OF_GPU[1:]}': 3},
            ),
        )
    },
    **{
        f"a machine {what}": _accelerators("Now > Devices lost", given, says)
        for what, given, says in (
            ("that does not look for any", {f"trainvitals_build_info{{{HOST}}}": "1x60"}, {}),
            ("that cannot look for any", {LOOKS_FOR_DEVICES: "0x60"}, {}),
            ("without accelerators", {LOOKS_FOR_DEVICES: "1x60"}, {'{all="0"}': 0}),
            ("with one that answers", {f"accelerator_up{{{GPU}}}": "1x60"}, {'{all="1"}': 0}),
            ("with one that is lost", {f"accelerator_up{{{GPU}}}": "0x60"}, {'{all="1"}': 1}),
            (
                "that should have eight and has six",
                {
                    f'accelerator_devices_expected{{{HOST},kind="gpu"}}': "8x60",
                    f'accelerator_devices{{{HOST},kind="gpu"}}': "6x60",
                },
                {'{all="8"}': 2},
            ),
        )
    },
    **{
        f"a device whose {what}": _accelerators(
            "Faults: alerts, Xids, recovery > What devices need",
            {
                f"accelerator_recovery_action{{{GPU}}}": f"{asked}x60",
                f"accelerator_row_remap_pending{{{GPU}}}": f"{pending}x60",
                f"accelerator_row_remap_failed{{{GPU}}}": f"{failed}x60",
            },
            says,
        )
        for what, asked, pending, failed, says in (
            ("driver asks for nothing", 0, 0, 0, {}),
            ("memory waits for a reset", 0, 1, 0, {_OF_A_CARD: 1}),
            ("driver asks for a reboot", 2, 1, 0, {_OF_A_CARD: 3}),
            ("memory cannot be repaired", 2, 1, 1, {_OF_A_CARD: 7}),
        )
    },
    **{
        f"a device with {what}": _accelerators(
            "PCIe and NVLink > Lanes and links of those there can be",
            {
                f"accelerator_{name}{{{GPU}}}": f"{value}x60"
                for name, value in zip(
                    ("pcie_link_width", "pcie_link_width_max", "links_active", "links_expected"),
                    values,
                    strict=False,
                )
            },
            {_OF_A_CARD: share},
        )
        for what, values, share in (
            ("half of its lanes", (8, 16, 18, 18), 0.5),
            ("a third of its links", (16, 16, 6, 18), 6 / 18),
            ("no NVLink", (16, 16), 1),
        )
    },
    "run files of the run's machines, and not of another": Case(
        "Vitals / Training run > The client and its files > Run files that cannot be read",
        {
            f"training_run_info{{{RUN}}}": "1x60",
            f"training_client_incompatible_files{{{HOST}}}": "1x60",
            'training_client_incompatible_files{job="trainvitals",instance="n2"}': "5x60",
        },
        {f"{{{HOST}}}": 1},
        everywhere=True,
    ),
    "scrape": _exporter("Time of a scrape", {f"{{{HOST}}}": 1}),
    "samples": _exporter("Series", {f"{{{HOST}}}": 1}),
    "cpu": _exporter("Cost of the exporter", {f"{{{HOST}}}": 1}),
    "memory": _exporter("Cost of the exporter", {f"{{{HOST}}}": 1}, "B"),
    "a mount that hangs": Case(
        "Vitals / Host > File systems > State",
        {f"host_filesystem_responding{{{MOUNT}}}": "0x60"},
        {f"{{{MOUNT}}}": 4},
    ),
    "a mount that answers": Case(
        "Vitals / Host > File systems > State",
        {
            f"host_filesystem_responding{{{MOUNT}}}": "1x60",
            f"host_filesystem_readonly{{{MOUNT}}}": "0x60",
        },
        {f"{{{MOUNT}}}": 1},
    ),
    "a mount that hangs, in the table": Case(
        "Vitals / Host > File systems > File systems",
        {f"host_filesystem_responding{{{MOUNT}}}": "0x60", INFO: "1x60"},
        {'{mountpoint="/data",device="nas:/data",fstype="nfs4"}': 4},
    ),
    **{
        f"{title} of containers, {who}": Case(
            f"Vitals / Containers & OOM > Now > {title}",
            {SEES: "1x60", **({STEP_OF_ACCESS: f"{step}x60"} if step is not None else {})},
            says if has_answer else {},
        )
        for title, says, answers in (
            ("Running", {'{all="0"}': 0}, (True, True, True)),
            ("In trouble", {"{}": 0}, (True, False, True)),
            ("Restarts, 1 h", {"{}": 0}, (True, False, True)),
            ("OOM, 24 h", {'{all="0"}': 0}, (True, False, True)),
        )
        for (who, step), has_answer in zip(ACCESS.items(), answers, strict=True)
    },
    **{
        f"what containers are read from, {who}": Case(
            "Vitals / Containers & OOM > Now > Read from",
            {SEES: "1x60", **({STEP_OF_ACCESS: f"{step}x60"} if step is not None else {})},
            {"{}": -2 if step is None else step},
        )
        for who, step in ACCESS.items()
    },
    **{
        f"OOM deaths, {what}": Case(
            "Vitals / Containers & OOM > Now > OOM, 24 h",
            {
                STEP_OF_ACCESS: "2x60",
                **{
                    f'container_deaths_total{{{HOST},name="c",reason="{reason}"}}': f"{count}x60"
                    for reason, count in deaths.items()
                },
            },
            {f'{{all="{by_host}"}}': everything},
        )
        for what, deaths, by_host, everything in (
            ("none", {"finished": 4}, 0, 0),
            ("at its own limit", {"oom-cgroup": 2, "finished": 4}, 0, 2),
            ("by the host too", {"oom-cgroup": 2, "oom-host": 3}, 3, 5),
        )
    },
    **{
        f"nearest limit, {what}": Case(
            "Vitals / Containers & OOM > Now > Nearest limit",
            {
                f"instance:memory_used:ratio{{{HOST}}}": "0.5x60",
                f'container_memory_working_set_bytes{{{HOST},name="c"}}': f"{used}x60",
                f'container_spec_memory_limit_bytes{{{HOST},name="c"}}': f"{limit}x60",
            },
            {f'{{name="{name}"}}': share},
        )
        for what, used, limit, name, share in (
            ("of a container", 75, 100, "c", 0.75),
            ("of the machine", 25, 100, "this machine", 0.5),
            ("without a limit", 75, 0, "this machine", 0.5),
        )
    },
    **{
        f"containers' states, {what}": Case(
            "Vitals / Containers & OOM > Now > State of each container",
            {SEES: "1x60", **dict.fromkeys(given, "1x60")},
            {f'{{name="{name}"}}': state},
        )
        for what, given, name, state in (
            ("none", (), "containers", -1),
            ("unknown", (f'container_info{{{HOST},name="c"}}',), "c", 0),
            ("known", (f'container_state{{{HOST},name="c",state="running"}}',), "c", 1),
        )
    },
    **{
        f"stalled, {when}": Case(
            "Vitals / Host > Now > Stalled",
            {
                **{
                    f'host_pressure_stalled_seconds_total{{{HOST},resource="{what}",level="full"}}': (
                        f"0+{seconds}x60"
                    )
                    for what, seconds in (("memory", memory), ("io", disks))
                    if seconds is not None
                },
                f"host_io_wait_ratio{{{HOST}}}": "0.25x60",
            },
            {f'{{resource="{names}"}}': share},
        )
        for when, memory, disks, names, share in (
            ("disks most", 3, 6, "disks", 0.1),
            ("memory most", 6, 3, "memory", 0.1),
            ("memory above its limit, though disks more", 12, 24, "memory", 0.2),
            ("by a kernel without pressure", None, None, "disks", 0.25),
        )
    },
    **{
        f"swap, {what}": Case(
            "Vitals / Host > Memory > Swap",
            {
                f"host_swap_total_bytes{{{HOST}}}": f"{size}x60",
                f"host_swap_used_bytes{{{HOST}}}": "0x60",
            },
            says,
            letter="B",
        )
        for what, size, says in (
            ("there is", 8, {f"{{{HOST}}}": 0}),
            ("there is none", 0, {}),
        )
    },
    "state of a run, and its machine": _now(
        "State", {f"run:training_state:number{{{RUN}}}": "3x60"}, {'{instance="n1"}': 3}
    ),
    "step of a run that lives": _now("Step", LIVES, {'{share="50 % done"}': 6000}),
    "step of a run that ended": _now("Step", ENDED, {'{share="50 % done"}': 6000}),
    "step of a run without a total": _now(
        "Step", {STEP: LIVES[STEP]}, {'{share="no total reported"}': 6000}
    ),
    "step of a run that is seen no more": _now("Step", SILENT, {'{share="50 % done"}': 4000}),
    "pace of a run that lives": _now("Throughput", LIVES, {"{}": 10}),
    "end of a run that lives": _now("Expected end", LIVES, {"{}": 7.2e6}),
    "pace of a run that ended": _now("Throughput", ENDED, {}),
    "pace before it ended": _now("Throughput", ENDED, {"{}": 10}, at=2940),
    "end of a run that ended": _now("Expected end", ENDED, {}),
    **{
        f"a rank that holds {what}": Case(
            "Vitals / Training run > Ranks > Ranks",
            {
                f"run:rank_state:number{{{RANK}}}": "3x60",
                f'training_rank_info{{{RANK},host_pid="7",gpu_uuid="{held}"}}': "1x60",
                f'accelerator_up{{{HOST},kind="gpu",device="4",uuid="GPU-b"}}': up,
                f'accelerator_up{{{HOST},kind="gpu",device="5",uuid="GPU-a"}}': "1x60",
            },
            {f'{{instance="n1",rank="0",host_pid="7"{device}}}': 3},
        )
        for what, held, up, device in (
            ("two cards", "GPU-b,GPU-a", "1x60", ',kind="gpu",device="4"'),
            ("a lost card", "GPU-b", "0x60", ',kind="gpu",device="4"'),
            ("no card", "", "1x60", ""),
        )
    },
    **{
        f"a host with {what}": Case(
            "Vitals / Fleet > Now > Hosts by their worst alert",
            {
                f"up{{{HOST}}}": up,
                **{
                    f'ALERTS{{{HOST},alertname="{at}",severity="{at}",alertstate="firing"}}': "1x60"
                    for at in fires
                },
            },
            {'{instance="n1"}': worst},
        )
        for what, up, fires, worst in (
            ("nothing wrong", "1x60", (), 0),
            ("a remark", "1x60", ("info",), 0),
            ("a warning", "1x60", ("info", "warning"), 1),
            ("worse than a warning", "1x60", ("warning", "critical"), 2),
            ("no answer", "0x60", ("critical",), 3),
        )
    },
    **{
        f"remote write, {version}, {when}": Case(
            "Vitals / Fleet > Pipeline: scrapes, rules, messages > Remote write is behind",
            given,
            {f"{{{REMOTE}}}": behind},
            at,
        )
        for version, given in (("3.7", WRITES), ("2.42", WRITES_OF_2_42))
        for when, at, behind in (("before the first batch", 1200, 1200), ("later", END, 60))
    },
}


@pytest.fixture(scope="module")
def answers(promtool, tmp_path_factory):
    """Return promtool's output, which has its complaints about each case."""
    path = tmp_path_factory.mktemp("answers") / "answers.yml"
    path.write_text(json.dumps({"tests": [write_test(*each) for each in CASES.items()]}))
    done = run_promtool(promtool, "test", "rules", path)
    return done.stdout + done.stderr


@pytest.mark.parametrize("name", CASES)
def test_a_panel_says_what_is_so(answers, name):
    """The queries of a panel return exactly the expected series and values."""
    assert "SUCCESS" in answers or "FAILED" in answers
    complaints = [part for part in answers.split("expr: ") if part.startswith(f'"# {name}\\n')]
    assert not complaints, complaints


def write_test(name: str, case: Case) -> Mapping[str, object]:
    """Return a case as a test of promtool, with the case's name in a comment of each query.

    Versions of Prometheus differ in the last digit of a rate, and promtool compares all digits.
    Therefore values are rounded to a fraction that has an exact binary form.
    """
    choices = _CHOICES | ({"instance": _EVERY} if case.everywhere else {})
    look = Look(end=END, seconds=END, choices=choices, scrape_seconds=60)
    targets = [one for one in PANELS[case.panel].targets if case.letter in ("", one["refId"])]
    asked = [write_query(one["expr"], look, 60, END) for one in targets]
    # Of a table, only the first column is tested.
    asked = asked[:1] if PANELS[case.panel].kind == "table" else asked
    return {
        "name": name,
        "interval": "1m",
        "input_series": [{"series": at, "values": values} for at, values in case.given.items()],
        "promql_expr_test": [
            {
                "expr": f"# {name}\nround({expr}, {1 / _PARTS})".replace("@ end()", f"@ {END}"),
                "eval_time": f"{case.at}s",
                "exp_samples": [
                    {"labels": at, "value": round(value * _PARTS) / _PARTS}
                    for at, value in case.says.items()
                ],
            }
            for expr in asked
        ],
    }
