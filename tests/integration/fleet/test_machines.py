"""The simulated machines of the demo and their scripts."""

import re
from functools import cache
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from fleet.machine import Story
from fleet.machines import MACHINES, build_machines
from tests.integration.fleet.pages import BEGIN, Pages, pick

ROOT = Path(__file__).parents[3]
NAMES = [module.__name__.rpartition(".")[2] for module in MACHINES]
MINUTE = 60
# No training value is ever NaN on these machines.
NOT_SERVED = {"training_nonfinite_last_timestamp_seconds"}


@cache
def machine(name):
    """Return the pages of a machine, which are created only once."""
    return Pages({each.name: each for each in build_machines(BEGIN)}[name])


def seen(name, minutes):
    """Return a machine's series this number of minutes after its script begins."""
    return machine(name).read(BEGIN + MINUTE * minutes)


def documented():
    """Return the names of the metrics in docs/metrics.md, except those of the collectors."""
    text = (ROOT / "docs/metrics.md").read_text(encoding="utf-8")
    text, _, _ = text.partition("## The collectors themselves")
    return set(re.findall(r"^\| `([a-z0-9_]+)` \|", text, re.MULTILINE))


@pytest.mark.parametrize("name", NAMES)
def test_a_page_is_valid_and_names_what_is_documented(name):
    """prometheus_client parses a machine's page, and all its metrics are in docs/metrics.md."""
    text = machine(name).write(BEGIN)
    families = list(text_string_to_metric_families(text))
    served = set(re.findall(r"^# TYPE (\S+) (?:gauge|histogram|unknown)$", text, re.MULTILINE))
    served |= {
        f"{each}_total" for each in re.findall(r"^# TYPE (\S+) counter$", text, re.MULTILINE)
    }
    served |= {f"{each}_info" for each in re.findall(r"^# TYPE (\S+) info$", text, re.MULTILINE)}
    assert len(families) > 50
    assert served - documented() == set()


def test_the_machines_tell_everything_that_the_exporter_can():
    """Each documented metric is served by one of the machines at one of three moments."""
    served = {
        series for name in NAMES for minutes in (0, -75, 1.5) for series, _ in seen(name, minutes)
    }
    served |= {series.removesuffix("_bucket") for series in served}
    assert documented() - served == NOT_SERVED


@pytest.mark.parametrize("name", NAMES)
def test_counters_never_go_backwards(name):
    """A counter falls in three hours only if its process or container was started again."""
    before = {}
    for now in range(int(BEGIN) - 5000, int(BEGIN) + 5800, 75):
        page = list(machine(name).read_typed(now))
        started = {
            series[1]: value
            for series, value, _ in page
            if series[0] in {"training_process_start_time_seconds", "container_start_time_seconds"}
        }
        for series, value, type_ in page:
            if type_ not in {"counter", "histogram"}:
                continue
            owner = tuple(pair for pair in series[1] if pair[0] in {"run", "rank", "name"})
            start, earlier = before.get(series, (None, value))
            assert value >= earlier or start != started.get(owner), (series, now)
            before[series] = started.get(owner), value


@pytest.mark.parametrize("name", NAMES)
def test_a_machine_answers_every_client_alike(name):
    """A machine's page does not depend on which pages were read before."""
    fresh = Pages({each.name: each for each in build_machines(BEGIN)}[name])
    assert fresh.read(BEGIN + 777) == seen(name, 777 / MINUTE)


def test_a_gpu_overheats():
    """GPU 3 overheats, throttles and slows its run at minute 10, and has recovered by minute 90."""
    hot, cool = seen("atlas", 10), seen("atlas", 90)
    headroom = "accelerator_temperature_headroom_celsius"
    assert pick(hot, headroom, device="3") == [-1]
    assert pick(cool, headroom, device="3")[0] > 15
    assert pick(hot, "accelerator_throttle_active", device="3", reason="hw_thermal") == [1]
    assert pick(hot, "training_rank_straggler", run="llama-7b") == [0, 0, 0, 1]
    assert pick(cool, "training_rank_straggler", run="llama-7b") == [0, 0, 0, 0]
    steps = [
        pick(page, "batch_processing_time", run="llama-7b", rank="0")[0] for page in (hot, cool)
    ]
    assert steps[0] > 1.5 * steps[1]


def test_a_gpu_is_lost_for_good():
    """GPU 5 reports Xid 79, has only its state from then on, and its run dies with exit code 1."""
    before, after, late = seen("atlas", -71), seen("atlas", -69), seen("atlas", 600)
    assert [pick(page, "accelerator_up", device="5") for page in (before, after, late)] == [
        *([1], [0], [0])
    ]
    assert pick(late, "accelerator_state", device="5", state="lost") == [1]
    assert pick(late, "accelerator_temperature_celsius", device="5") == []
    assert pick(late, "accelerator_xid_errors_total", device="5", xid="79") == [1]
    assert pick(before, "training_process_up", run="vit-b16") == [1, 1, 1]
    assert pick(after, "training_process_up", run="vit-b16") == [0, 0, 0]
    assert pick(after, "training_process_exit_code", run="vit-b16") == [1, 1, 1]
    assert pick(seen("atlas", -54), "training_process_up", run="vit-b16") == []


def test_a_run_trains_stalls_dies_and_starts_again():
    """bert-large stalls at minute 0, is dead at minute 6 and trains again at minute 12."""
    course = [seen("orion", minutes) for minutes in (-8, 0, 6, 12)]
    up = [pick(page, "training_process_up", run="bert-large", rank="0") for page in course]
    assert up == [[1], [1], [0], [1]]
    stalled = [pick(page, "training_stalled", run="bert-large", rank="0") for page in course]
    assert stalled == [[0], [1], [], [0]]
    assert pick(course[2], "training_process_exit_code", run="bert-large", rank="0") == [137]
    for name in ("training_restarts_total", "training_lost_steps_total"):
        (dead,), (back,) = (pick(page, name, run="bert-large") for page in course[2:])
        assert back > dead
    steps = [pick(page, "training_global_step", run="bert-large", rank="0")[0] for page in course]
    assert steps[0] < steps[1] == steps[2] > steps[3]


def test_a_container_is_killed_for_memory_again_and_again():
    """sweep-worker-1 fills its memory and is killed together with its run every 165 s."""
    pages = [machine("orion").read(BEGIN + second) for second in (0, 70, 90, 120, 165)]
    filled = [
        pick(page, "container_memory_working_set_bytes", name="sweep-worker-1") for page in pages
    ]
    assert filled[0] == filled[4]
    assert 0.9 * 8 * 2**30 < filled[1][0] < 8 * 2**30
    assert filled[2] == []
    deaths = [
        pick(page, "container_deaths_total", name="sweep-worker-1", reason="oom-cgroup")[0]
        for page in pages
    ]
    assert [each - deaths[0] for each in deaths] == [0, 0, 1, 1, 1]
    kills = [pick(page, "host_oom_kills_total")[0] for page in pages]
    assert kills == deaths
    assert pick(pages[2], "training_oom_last_timestamp_seconds", where="host") == [BEGIN + 75]
    assert pick(pages[3], "container_state", name="sweep-worker-1", state="running") == [1]


def test_gaudi_cards_wait_for_data():
    """Four Gaudi cards are used for less than 20 %, as their run waits for data; four are idle."""
    page = seen("hera", 0)
    used = pick(page, "hpu_utilization_percent")
    assert all(10 <= each < 20 for each in used[:4])
    assert used[4:] == [0, 0, 0, 0]
    assert pick(page, "training_alert_active", alert="io_bottleneck") == [1, 1, 1, 1]


def test_a_run_finishes_again_and_again():
    """unet-seg has 12 evaluations without improvement, and at minute 10 it has finished."""
    page, ended = seen("lyra", 0), seen("lyra", 10)
    assert pick(page, "training_evaluations_since_improvement") == [12]
    assert 0 < pick(page, "training_metric", name="val_iou")[0] < 0.81
    assert pick(ended, "training_process_exits_total", reason="finished")[0] > 0
    assert pick(ended, "training_process_end_timestamp_seconds", reason="finished") == [BEGIN + 435]


def test_a_machine_is_quiet():
    """Vega has no accelerator and no container, and its page has no series of them."""
    names = {series for series, _ in seen("vega", 0)}
    assert not [name for name in names if name.startswith(("container_", "hpu_", "gpu_"))]
    assert pick(seen("vega", 0), "accelerator_devices") == [0, 0]


@pytest.mark.parametrize("name", NAMES)
def test_the_story_is_the_same_whenever_it_begins(name):
    """A script that begins a day later has the same stages; only its random noise differs."""
    later = Pages({each.name: each for each in build_machines(BEGIN + 86_400)}[name])
    staged = ("training_process_up", "training_phase", "accelerator_up", "container_state")
    ours, theirs = machine(name).read(BEGIN), later.read(BEGIN + 86_400)
    assert [value for (found, _), value in ours.items() if found in staged] == [
        value for (found, _), value in theirs.items() if found in staged
    ]


def test_stages_last_whole_cells():
    """Every stage lasts a multiple of 15 s, because totals are exact only at such edges."""
    stages = [("train", 90), ("dead", 30)]
    script = Story(BEGIN).script(*stages, into=45)
    assert script.at(BEGIN).start == BEGIN - 45
    assert script.start >= Story(BEGIN).start
    sources = "".join(path.read_text() for path in (ROOT / "fleet/machines").glob("*.py"))
    named = r'\("(?:init|compile|train|validation|checkpoint|hung|running)", ([0-9.]+)\)'
    seconds = re.findall(named + r'|\(DEAD, ([0-9.]+)\)|Stage\("\w+", ([0-9.]+)\)', sources)
    assert len(seconds) > 20
    assert all(float("".join(each)) % 15 == 0 for each in seconds)
