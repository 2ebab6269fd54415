"""Tests for the training collector, which converts run readings to metrics."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import prometheus_client.openmetrics.parser as openmetrics
import pytest

from tests.unit.sources.runs.rows import BOOT, NOON, at, write_record
from trainvitals.http.endpoints import describe_readings
from trainvitals.metrics.collector_metrics import Report
from trainvitals.metrics.collectors.training import TrainingCollector
from trainvitals.metrics.collectors.training_row import FIELDS
from trainvitals.metrics.collectors.training_table import METRICS
from trainvitals.metrics.exposition import Exposition
from trainvitals.metrics.runner import Snapshot
from trainvitals.runfile import ABSENT, STATE, Identity, Phase, Record, State
from trainvitals.sources.runs.attempts import Losses
from trainvitals.sources.runs.endings import Ending
from trainvitals.sources.runs.liveness import Liveness
from trainvitals.sources.runs.rates import Progress, Rates, measure_progress, measure_rates
from trainvitals.sources.runs.reading import FollowedFiles, RankReading, RunReading, RunsReading
from trainvitals.sources.runs.source import TrainingOptions, TrainingSource
from trainvitals.sources.runs.stalls import Stall, detect_stall
from trainvitals.sources.runs.stragglers import Slowness

IDENTITY = Identity(
    "llama",
    rank=3,
    local_rank=1,
    world_size=8,
    attempt=2,
    boot_id=BOOT,
    created_time=NOON - 1000,
    created_mono_ns=0,
    static={
        "framework": "torch",
        "framework_version": "2.13.0",
        "client_version": "0.1.0",
        "clock": "host",
        "hostname": "node7",
    },
)
WHO = 'run="llama",rank="3"'
# 100 steps: 60 up to 0.1 s, 40 up to 0.25 s.
BUCKETS = {f"step_bucket_{index}": 0.0 for index in range(11)} | {
    "step_bucket_3": 60.0,
    "step_bucket_4": 40.0,
}
TOTALS = {
    f"total_{phase}": 0.0
    for phase in [
        "init",
        "compile",
        "data_wait",
        "h2d",
        "forward",
        "backward",
        "optimizer",
        "other",
        "validation",
        "checkpoint",
        "idle",
    ]
} | {"total_init": 5.0, "total_data_wait": 1.0, "total_forward": 4.0, "total_backward": 8.0}


def write(phase: Phase = Phase.FORWARD, **words: float) -> Record:
    """Return the record of a run after 100 steps."""
    common = {
        "steps": 100.0,
        "samples": 3200.0,
        "global_step": 1100.0,
        "train_seconds": 13.5,
        "step_seconds": 0.125,
        "loss": 0.5,
        "nonfinite_losses": 0.0,
        "overhead_seconds": 0.002,
        "errors": 0.0,
    }
    return write_record(phase, identity=IDENTITY, **{**common, **BUCKETS, **TOTALS, **words})


def read(record: Record | None = None, **parts: object) -> RankReading:
    """Return the reading of a rank that is alive."""
    reading = RankReading(
        run="llama",
        rank="3",
        source="client",
        record=record or write(),
        liveness=Liveness(is_alive=True, evidence="lock", host_pid=4242, state="R"),
        start_timestamp_seconds=NOON - 1002.5,
        gpu_uuids=("GPU-7",),
        stall=Stall(None, 60.0, NOON),
    )
    return replace(reading, **parts)  # type: ignore[arg-type]


def dead(ending: Ending, **parts: object) -> RankReading:
    """Return the reading of a rank that has ended."""
    liveness = Liveness(is_alive=False, evidence="lock", host_pid=4242)
    return read(liveness=liveness, ending=ending, stall=None, **parts)


def read_all(*ranks: RankReading, **parts: object) -> RunsReading:
    """Return a reading of these ranks and of the run of the first rank."""
    run = RunReading(
        "llama",
        "client",
        static=IDENTITY.static,
        world_size=8,
        ranks_alive=1,
        exits={"finished": 0, "exception": 0, "signal": 2, "oom": 0, "unknown": 0},
        losses=Losses(2, 200.0, 25.0),
    )
    reading = RunsReading(ranks=ranks, runs=(run,))
    return replace(reading, **parts)  # type: ignore[arg-type]


@pytest.fixture
def collector(tmp_path):
    """Yield a collector whose source finds no run."""
    collector = TrainingCollector(TrainingSource(TrainingOptions(tmp_path)))
    yield collector
    collector.close()


FOLLOWED = {
    'training_followed_files{state="understood"}': 0,
    'training_followed_files{state="not_understood"}': 0,
    'training_followed_files{state="unreadable"}': 0,
    "training_file_globs_unmatched": 0,
}
NOTHING = {"training_client_incompatible_files": 0, "training_ranks_omitted": 0, **FOLLOWED}


def test_a_machine_without_runs_has_six_samples(collector, samples):
    """A machine without runs has six samples of 0 and no complaint."""
    reading = collector.read(1e9)
    assert samples(collector.express(reading)) == NOTHING
    assert collector.complaint(reading) is None
    assert collector.omitted(reading) == 0


def test_living_ranks_that_are_left_out_are_counted(collector, samples):
    """Omitted ranks that are alive have a metric, separate from all omitted ranks."""
    reading = RunsReading(incompatible_files=1, omitted=5, omitted_alive=2)
    assert samples(collector.express(reading)) == {
        **FOLLOWED,
        "training_client_incompatible_files": 1,
        "training_ranks_omitted": 2,
    }
    assert collector.omitted(reading) == 5


def test_files_that_are_not_understood_are_counted(collector, samples):
    """Followed files are counted by state, and patterns without a matching file separately."""
    followed = FollowedFiles(3, ("/a.log", "/b.log"), 1, ("--trainlog.glob *.log",))
    found = samples(collector.express(RunsReading(followed=followed)))
    assert found['training_followed_files{state="understood"}'] == 3
    assert found['training_followed_files{state="not_understood"}'] == 2
    assert found['training_followed_files{state="unreadable"}'] == 1
    assert found["training_file_globs_unmatched"] == 1


def test_a_rank_that_trains_has_these_samples(collector, samples):
    """A training rank has the values of its record, the derived values, and no others."""
    found = samples(collector.express(read_all(read())))
    info = f'{WHO},local_rank="1",host_pid="4242",gpu_uuid="GPU-7",attempt="2"'
    bounds = ("0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1.0", "2.5", "10.0", "60.0", "+Inf")
    counts = (0, 0, 0, 60, 100, 100, 100, 100, 100, 100, 100)
    about = 'framework="torch",framework_version="2.13.0",client_version="0.1.0",clock="host"'
    exits = {"finished": 0, "exception": 0, "signal": 2, "oom": 0, "unknown": 0}
    assert found == {
        **NOTHING,
        f'training_run_info{{run="llama",{about},source="client"}}': 1,
        'training_world_size{run="llama"}': 8,
        'training_ranks_seen{run="llama"}': 1,
        **{
            f'training_process_exits_total{{run="llama",reason="{reason}"}}': count
            for reason, count in exits.items()
        },
        'training_restarts_total{run="llama"}': 2,
        'training_lost_steps_total{run="llama"}': 200,
        'training_lost_seconds_total{run="llama"}': 25,
        f"training_rank_info{{{info}}}": 1,
        f"training_process_up{{{WHO}}}": 1,
        f"training_process_start_time_seconds{{{WHO}}}": NOON - 1002.5,
        f"training_process_stopped{{{WHO}}}": 0,
        f"training_samples_total{{{WHO}}}": 3200,
        f"training_steps_total{{{WHO}}}": 100,
        f"training_loss{{{WHO}}}": 0.5,
        f"batch_processing_time{{{WHO}}}": 0.125,
        f"training_stalled{{{WHO}}}": 0,
        f"training_stall_threshold_seconds{{{WHO}}}": 60,
        f"training_last_progress_timestamp_seconds{{{WHO}}}": NOON,
        f'training_phase{{{WHO},phase="init"}}': 0,
        f'training_phase{{{WHO},phase="train"}}': 1,
        f"training_phase_start_timestamp_seconds{{{WHO}}}": NOON - 500,
        f"training_global_step{{{WHO}}}": 1100,
        **{
            f'training_step_duration_seconds_bucket{{{WHO},le="{bound}"}}': count
            for bound, count in zip(bounds, counts, strict=True)
        },
        f"training_step_duration_seconds_count{{{WHO}}}": 100,
        f"training_step_duration_seconds_sum{{{WHO}}}": 13.5,
        f'training_phase_seconds_total{{{WHO},phase="init"}}': 5,
        f'training_phase_seconds_total{{{WHO},phase="data_wait"}}': 1,
        f'training_phase_seconds_total{{{WHO},phase="forward"}}': 4,
        f'training_phase_seconds_total{{{WHO},phase="backward"}}': 8,
        f'training_nonfinite_total{{{WHO},what="loss"}}': 0,
        f"training_client_overhead_ratio{{{WHO}}}": 2e-6,
        f"training_client_errors_total{{{WHO}}}": 0,
    }


def test_words_of_the_state_record_have_their_names(collector, samples):
    """The values of the state record are exported under the names of their metrics."""
    record = write(
        epoch=3,
        validation_loss=0.75,
        validation_accuracy=0.5,
        nonfinite_gradients=1,
        nonfinite_evaluations=2,
        last_nonfinite_time=NOON - 7,
        evaluations=4,
        evaluations_since_improvement=1,
        checkpoints=2,
        last_checkpoint_time=NOON - 60,
        checkpoint_max_age_seconds=3600,
        memory_allocated_bytes=1 << 30,
        memory_reserved_bytes=1 << 31,
        memory_peak_bytes=3 << 30,
        memory_ooms=1,
        memory_alloc_retries=5,
        last_oom_time=NOON - 9,
        nan_filter_active=1,
        data_errors=6,
    )
    found = samples(collector.express(read_all(read(record))))
    expected = {
        "training_epoch": 3,
        "validation_loss": 0.75,
        "validation_accuracy": 0.5,
        "training_nonfinite_last_timestamp_seconds": NOON - 7,
        "training_evaluations_total": 4,
        "training_evaluations_since_improvement": 1,
        "training_checkpoints_total": 2,
        "training_checkpoint_last_timestamp_seconds": NOON - 60,
        "training_checkpoint_max_age_seconds": 3600,
        "training_memory_allocated_bytes": 1073741824,
        "training_memory_reserved_bytes": 2147483648,
        "training_memory_peak_bytes": 3221225472,
        "training_memory_oom_total": 1,
        "training_memory_alloc_retries_total": 5,
        "training_nan_filter_active": 1,
        "training_data_errors_total": 6,
    }
    assert {name: found[f"{name}{{{WHO}}}"] for name in expected} == expected
    assert found[f'training_nonfinite_total{{{WHO},what="grad_norm"}}'] == 1
    assert found[f'training_nonfinite_total{{{WHO},what="eval"}}'] == 2
    assert found[f'training_oom_last_timestamp_seconds{{{WHO},where="device"}}'] == NOON - 9


def test_verdicts_have_their_names(collector, samples):
    """Rates, progress, stall and slowness are exported under the names of their metrics."""
    reading = read(
        rates=Rates(128.0, 65536.0, 4e14, 0.4),
        progress=Progress(0.25, 0.5, NOON + 3600),
        stall=Stall("no_progress", 90.0, NOON - 100),
        slowness=Slowness((3.0, None, 1.0, 1.0), is_straggler=True),
    )
    found = samples(collector.express(read_all(reading)))
    expected = {
        "training_samples_per_second": 128,
        "training_tokens_per_second": 65536,
        "training_model_flops_per_second": 4e14,
        "training_model_flops_utilization_ratio": 0.4,
        "training_progress_ratio": 0.25,
        "training_epoch_progress_ratio": 0.5,
        "training_eta_timestamp_seconds": NOON + 3600,
        "training_stalled": 1,
        "training_stall_threshold_seconds": 90,
        "training_last_progress_timestamp_seconds": NOON - 100,
        "training_rank_straggler": 1,
    }
    assert {name: found[f"{name}{{{WHO}}}"] for name in expected} == expected
    slowdown = {
        key: value for key, value in found.items() if key.startswith("training_rank_slowdown")
    }
    assert slowdown == {
        f'training_rank_slowdown_ratio{{{WHO},phase="data_wait"}}': 3,
        f'training_rank_slowdown_ratio{{{WHO},phase="forward"}}': 1,
        f'training_rank_slowdown_ratio{{{WHO},phase="optimizer"}}': 1,
    }


def test_a_killed_rank_has_its_end_and_no_longer_what_lives(collector, samples):
    """A killed rank keeps its loss and counters, loses its current state, and has exit code 137."""
    ending = Ending("signal", None, 9, None, NOON + 5, "the kernel says so")
    record = write(memory_allocated_bytes=5, memory_peak_bytes=9)
    found = samples(collector.express(read_all(dead(ending, record=record))))
    assert found[f"training_process_up{{{WHO}}}"] == 0
    assert found[f'training_process_end_timestamp_seconds{{{WHO},reason="signal"}}'] == NOON + 5
    assert found[f"training_process_exit_code{{{WHO}}}"] == 137
    assert found[f"training_loss{{{WHO}}}"] == 0.5
    assert found[f"training_steps_total{{{WHO}}}"] == 100
    assert found[f"training_memory_peak_bytes{{{WHO}}}"] == 9
    assert found[f"training_last_progress_timestamp_seconds{{{WHO}}}"] == NOON
    gone = (
        "training_phase{",
        "training_phase_start",
        "training_stall",
        "training_process_stopped",
        "training_memory_allocated",
    )
    assert [key for key in found if key.startswith(gone)] == []


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        (Ending("finished", 0, None, None, NOON, "its own word"), 0),
        (Ending("exception", 3, None, "ValueError", NOON, "its own word"), 3),
        (Ending("oom", None, 9, None, NOON, "the kernel"), 137),
        (Ending("unknown", None, None, None, NOON, "nobody"), None),
    ],
    ids=lambda value: getattr(value, "reason", None),
)
def test_every_reason_has_its_label(collector, samples, ending, code):
    """Each reason of an end is a label; an unknown exit code is absent."""
    found = samples(collector.express(read_all(dead(ending))))
    ends = [key for key in found if key.startswith("training_process_end")]
    assert ends == [f'training_process_end_timestamp_seconds{{{WHO},reason="{ending.reason}"}}']
    assert found.get(f"training_process_exit_code{{{WHO}}}") == code
    host = found.get(f'training_oom_last_timestamp_seconds{{{WHO},where="host"}}')
    assert host == (NOON if ending.reason == "oom" else None)


def test_a_stopped_process_is_shown(collector, samples):
    """A process in state `T` is exported as stopped and stalled."""
    liveness = Liveness(is_alive=True, evidence="lock", host_pid=4242, state="T")
    found = samples(
        collector.express(read_all(read(liveness=liveness, stall=Stall("stopped", 60.0, NOON))))
    )
    assert found[f"training_process_stopped{{{WHO}}}"] == 1
    assert found[f"training_stalled{{{WHO}}}"] == 1


def test_a_process_whose_state_nobody_shows_is_not_said_to_run(collector, samples):
    """A process whose state cannot be read has no metric for being stopped."""
    liveness = Liveness(is_alive=True, evidence="age")
    found = samples(collector.express(read_all(read(liveness=liveness))))
    assert f"training_process_stopped{{{WHO}}}" not in found
    assert any('host_pid=""' in key for key in found)


def test_a_loss_that_is_nan_is_nan(collector):
    """A loss that is NaN is exported as NaN."""
    page = Exposition().write(collector.express(read_all(read(write(loss=math.nan))))).decode()
    assert 'training_loss{rank="3",run="llama"} NaN' in page.splitlines()


def test_the_live_word_decides_which_phase_is_shown(collector, samples):
    """The phase in the live word takes precedence over the phase in the last record."""
    record = replace(write(), live=(1, Phase.CHECKPOINT))
    found = samples(collector.express(read_all(read(record))))
    phases = {key: value for key, value in found.items() if key.startswith("training_phase{")}
    assert phases == {
        f'training_phase{{{WHO},phase="init"}}': 0,
        f'training_phase{{{WHO},phase="train"}}': 0,
        f'training_phase{{{WHO},phase="checkpoint"}}': 1,
    }
    assert found[f'training_phase_seconds_total{{{WHO},phase="checkpoint"}}'] == 0


def test_the_last_phase_of_a_monitor_that_disabled_itself_is_not_shown(collector, samples):
    """A process whose monitor has disabled itself has no metric for its phase."""
    found = samples(collector.express(read_all(read(write(state=float(State.SWITCHED_OFF))))))
    assert not [key for key in found if key.startswith("training_phase{")]


def test_alerts_that_ever_were_active_are_shown(collector, samples):
    """Alerts of the training client that were ever active are exported, the others are not."""
    record = write(alerts=2.0)
    found = samples(collector.express(read_all(read(record, alerts_seen=3))))
    alerts = {key: value for key, value in found.items() if key.startswith("training_alert")}
    assert alerts == {
        f'training_alert_active{{{WHO},alert="gpu_underutilized"}}': 0,
        f'training_alert_active{{{WHO},alert="memory_pressure"}}': 1,
    }
    over = Ending("finished", 0, None, None, NOON, "its own word")
    found = samples(collector.express(read_all(dead(over, record=record, alerts_seen=3))))
    assert found[f'training_alert_active{{{WHO},alert="memory_pressure"}}'] == 0


def test_free_metrics_have_their_name_and_split(collector, samples):
    """Custom metrics are exported once for each name; unknown names and values are omitted."""
    record = replace(
        write(metric_0=0.5, metric_1=0.25, metric_2=9.0, metric_3=8.0),
        metrics=(
            ("val_iou", "validation"),
            ("val_dice", "validation"),
            ("val_iou", "validation"),
            ("", ""),
            ("unknown", ""),
        ),
    )
    found = samples(collector.express(read_all(read(record))))
    free = {key: value for key, value in found.items() if key.startswith("training_metric")}
    assert free == {
        f'training_metric{{{WHO},name="val_iou",split="validation"}}': 0.5,
        f'training_metric{{{WHO},name="val_dice",split="validation"}}': 0.25,
    }


def test_a_rank_has_at_most_80_series(collector, samples):
    """A rank has at most 80 series, of which at least eight are custom metrics."""
    words = dict.fromkeys([field for field in FIELDS if field in STATE], 1.0)
    words |= {
        f"total_{phase}": 1.0 for phase in ["compile", "h2d", "optimizer", "validation", "idle"]
    }
    words |= {f"metric_{number}": float(number) for number in range(64)}
    names = tuple((f"own{number}", "") for number in range(64))
    plain = replace(write(**{f"metric_{n}": 1.0 for n in range(64)}), metrics=names)
    reading = read_all(read(plain))
    found = [key for key in samples(collector.express(reading)) if WHO in key]
    assert len(found) == 80
    assert collector.omitted(reading) == 64 - sum("own" in key for key in found)
    full = read(
        replace(write(**words), metrics=names),
        rates=Rates(1.0, 1.0, 1.0, 1.0),
        progress=Progress(1.0, 1.0, 1.0),
        slowness=Slowness((1.0, 1.0, 1.0, 1.0), is_straggler=False),
        alerts_seen=127,
    )
    reading = read_all(full, omitted=5)
    found = [key for key in samples(collector.express(reading)) if WHO in key]
    assert len(found) == 80
    assert collector.omitted(reading) > 64 + 5
    kept = {key.partition("{")[0] for key in found}
    assert {"training_loss", "training_stalled", "training_memory_peak_bytes"} <= kept
    assert "training_baseline_step_seconds" not in kept
    own = [key for key in found if key.startswith("training_metric{")]
    assert len(own) == 8


def test_a_run_from_a_log_has_no_process(collector, samples):
    """A run from a log file has no metrics of a process, and no values that the log lacks."""
    record = write_record(None, loss=0.5, phase_start_time=ABSENT, mono_ns=ABSENT, identity=None)
    record = replace(record, identity=None)
    rank = RankReading("own", "0", "log", record, stall=Stall(None, None, NOON - 5))
    reading = RunsReading((rank,), (RunReading("own", "log"),))
    who = 'run="own",rank="0"'
    about = 'framework="",framework_version="",client_version="",clock=""'
    assert samples(collector.express(reading)) == {
        **NOTHING,
        f'training_run_info{{run="own",{about},source="log"}}': 1,
        f'training_rank_info{{{who},local_rank="",host_pid="",gpu_uuid="",attempt=""}}': 1,
        f"training_loss{{{who}}}": 0.5,
        f"training_last_progress_timestamp_seconds{{{who}}}": NOON - 5,
    }


def test_the_page_of_several_ranks_is_strict_openmetrics(collector):
    """The page of several ranks is valid OpenMetrics, even if ranks have different metrics."""
    other = replace(read(write(loss=ABSENT)), rank="4")
    log = RankReading("own", "0", "log", write_record(None, identity=None, loss=1.0))
    reading = read_all(read(), other, log)
    page = Exposition(openmetrics=True).write(collector.express(reading)).decode()
    families = {family.name: family for family in openmetrics.text_string_to_metric_families(page)}
    losses = {s.labels["rank"]: s.value for s in families["training_loss"].samples}
    assert losses == {"3": 0.5, "0": 1.0}
    counts = [
        (s.labels["rank"], s.value)
        for s in families["training_step_duration_seconds"].samples
        if s.name.endswith("_count")
    ]
    assert counts == [("3", 100), ("4", 100)]


def test_a_shape_is_the_same_as_long_as_nobody_comes_or_goes(collector):
    """The shape of the blocks changes with the set of samples, not with their values."""
    before = [block.shape for block in collector.express(read_all(read()))]
    after = [block.shape for block in collector.express(read_all(read(write(loss=7.0))))]
    assert before == after
    gone = [block.shape for block in collector.express(read_all(read(write(loss=ABSENT))))]
    assert before != gone


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1.0, 1e300])
def test_a_record_of_any_numbers_makes_a_page(collector, value):
    """Any number in a run file results in a page, as any user may write a run file."""
    record = replace(
        write_record(identity=IDENTITY),
        step=[value] * len(write().step),
        state=[value] * len(write().state),
        metrics=(("own", ""),),
    )
    reading = read(
        record,
        rates=measure_rates(record, at(1)),
        progress=measure_progress(record, is_alive=True),
        stall=detect_stall(record, at(1), is_stopped=False),
        alerts_seen=127,
    )
    assert b"training_loss" in Exposition().write(collector.express(read_all(reading)))


def test_the_readings_of_the_api_have_words_by_their_names():
    """`/api/v1/readings` has the known values of a record by name, and omits unknown values."""
    record = replace(write(metric_0=0.5), metrics=(("val_iou", "validation"),))
    report = Report(
        "training",
        success=True,
        answered=True,
        seconds=0.001,
        reason=None,
        timeouts=0,
        omitted=0,
        last_success=None,
    )
    snapshot = Snapshot((), {"training": read_all(read(record))}, (report,))
    document = json.loads(json.dumps(describe_readings(snapshot)))
    (rank,) = document["collectors"]["training"]["reading"]["ranks"]
    assert rank["record"]["loss"] == 0.5
    assert "accuracy" not in rank["record"]
    assert rank["record"]["metrics"] == [{"name": "val_iou", "split": "validation", "value": 0.5}]
    assert rank["record"]["static"]["framework"] == "torch"
    assert rank["liveness"]["host_pid"] == 4242
    assert rank["stall"]["threshold_seconds"] == 60


def test_every_field_of_the_table_is_found():
    """Each metric in the table has a unique name and one sample for each field."""
    for metric in METRICS:
        assert len(metric.fields) == len(metric.samples), metric.name
    assert len({metric.name for metric in METRICS}) == len(METRICS)
