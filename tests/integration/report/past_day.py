"""Tuesday, 10 March 2026, UTC, on one machine with four GPUs, a sample each minute.

    GPU 0   seg trains from 0:00:30 to 6:00 and finishes: starting until 0:30, training until 5:30
            with a fifth of each step waiting for data, evaluating until 6:00; then no run
    GPU 1   bert, rank 0, began the day before at 22:00; it stalls from 8:00 to 8:30, dies at
            10:00:05 by SIGTERM, starts again at 11:00, compiles until 11:30, saves from 12:00 to
            13:00 and trains on
    GPU 2   bert, rank 1, does the same, but is killed for lack of memory at 10:00; from 4:00 to
            6:00 it is throttled by heat for half of the time
    GPU 3   no run; from 12:00 to 18:00 a notebook holds half of its memory; from 18:00 on it is lost

The accelerator-hours, of 4 x 24 = 96:

    training    seg 5 less 1 of waiting                       4
                bert 2 x (10 less 0.5 of standing still)     19
                bert again 2 x (13 less 0.5 less 1)          23
                less 1 that was slowed down                  -1 = 45
    waiting     a fifth of 5                                  1
    stalled     2 x 0.5                                       1
    throttled   half of 2                                     1
    evaluation  seg 0.5, bert 2 x 1                         2.5
    starting    seg 0.5, bert 2 x 0.5                       1.5
    held        the notebook                                  6
    idle        GPU 0 18, GPU 1 and 2 one each, GPU 3 12     32
    lost        GPU 3                                         6

51 of 96 are wasted. Energy: three cards count 300 W for 24 h, which is 21.6 kWh, and the fourth
reports 100 W for 18 h, which is 1.8 kWh: 23.4 kWh. Busy: GPU 0 45 s of each minute for 6 h, which is
4.5 h, GPU 1 and 2 all of 23 h each: 50.5 h.
"""

from __future__ import annotations

from tests.integration.report.stage import Past

BEGIN = 1773100800  # 2026-03-10 00:00 UTC
HOUR = 3600
DAY = 24 * HOUR
GIB = 2**30
CARDS = {
    f"G{number}": {"kind": "gpu", "device": str(number), "uuid": f"G{number}"}
    for number in range(4)
}


def at(hours: float) -> int:
    """Return the Unix time of a number of hours after `BEGIN`."""
    return BEGIN + round(hours * HOUR)


def write_day() -> Past:
    """Write the day from ten minutes before midnight on, so that counters have an earlier value."""
    past = Past(60)
    _write_host(past)
    _write_cards(past)
    _write_seg(past)
    for rank in range(2):
        _write_bert(past, str(rank))
    _write_alerts(past)
    _write_container(past)
    return past


def _write_host(past: Past) -> None:
    begin, end = at(-1 / 6), at(24)
    past.add("training_client_incompatible_files", 0, begin, end)
    past.add("memory_total_bytes", 100 * GIB, begin, end)
    low = range(at(15), at(15.25))
    past.add("memory_available_bytes", lambda t: (10 if t in low else 60) * GIB, begin, end)
    root = {"mountpoint": "/"}
    past.add("host_filesystem_size_bytes", 1000 * GIB, begin, end, **root)
    past.add("host_filesystem_avail_bytes", 50 * GIB, begin, end, **root)
    boot = {"mountpoint": "/boot"}
    past.add("host_filesystem_size_bytes", 1 * GIB, begin, end, **boot)
    past.add("host_filesystem_avail_bytes", 0, begin, end, **boot)


def _write_cards(past: Past) -> None:
    begin = at(-1 / 6)
    for uuid, card in CARDS.items():
        end = at(18) if uuid == "G3" else at(24)
        past.add("accelerator_up", lambda t, end=end: float(t <= end), begin, at(24), **card)
        past.add("accelerator_memory_total_bytes", 80 * GIB, begin, end, **card)
        past.add("accelerator_power_watts", 100 if uuid == "G3" else 300, begin, end, **card)
        hot = uuid == "G2"
        past.add(
            "accelerator_temperature_celsius",
            lambda t, hot=hot: 85 if hot and at(4) < t <= at(6) else 60,
            begin,
            end,
            sensor="core",
            **card,
        )
        if uuid != "G3":
            past.add(
                "accelerator_energy_joules_total",
                lambda t: 1e9 + 300 * (t - BEGIN),
                begin,
                end,
                **card,
            )
    past.add("accelerator_utilization_ratio", 0, begin, at(18), **CARDS["G3"])
    past.add("accelerator_memory_used_bytes", _hold_notebook, begin, at(18), **CARDS["G3"])
    past.add(
        "accelerator_memory_used_bytes",
        lambda t: 8 * GIB * (t <= at(6)),
        begin,
        at(24),
        **CARDS["G0"],
    )
    past.add("accelerator_busy_seconds_total", _count_seg_busy, begin, at(24), **CARDS["G0"])
    for uuid in ("G1", "G2"):
        card = CARDS[uuid]
        past.add(
            "accelerator_memory_used_bytes", lambda t: 60 * GIB * _lives(t), begin, at(24), **card
        )
        past.add("accelerator_busy_seconds_total", _count_bert_busy, begin, at(24), **card)
    slowed = {"reason": "hw_thermal", **CARDS["G2"]}
    past.add("accelerator_throttle_seconds_total", _count_slowed, begin, at(24), **slowed)


def _hold_notebook(moment: int) -> float:
    return 40 * GIB * (at(12) < moment <= at(18))


def _lives(moment: int) -> bool:
    return moment <= at(10) or moment > at(11)


def _pass(moment: int, begin: float, end: float) -> float:
    """Return how many seconds of the period from `begin` to `end` (in hours) have passed."""
    return min(max(moment - at(begin), 0), at(end) - at(begin))


def _count_seg_busy(moment: int) -> float:
    return 0.75 * _pass(moment, 0, 6)


def _count_bert_busy(moment: int) -> float:
    """Return bert's busy seconds; the counter restarts at 0 with the exporter at 14:00."""
    if moment > at(14):
        return _pass(moment, 14, 24)
    return 5000 + _pass(moment, -1, 10) + _pass(moment, 11, 24)


def _count_slowed(moment: int) -> float:
    return 0.5 * _pass(moment, 4, 6)


def _write_seg(past: Past) -> None:
    rank = {"run": "seg", "rank": "0"}
    begin, end = at(1 / 60), at(6)
    info = {"framework": "torch", "source": "client", "run": "seg"}
    past.add("training_run_info", 1, begin, end + 900, **info)
    past.add("training_world_size", 1, begin, end + 900, run="seg")
    past.add("training_rank_info", 1, begin, end + 900, gpu_uuid="G0", **rank)
    past.add("training_process_up", lambda t: float(t <= end), begin, end + 900, **rank)
    past.add("training_process_start_time_seconds", BEGIN + 30, begin, end + 900, **rank)
    ended = {**rank, "reason": "finished"}
    past.add("training_process_end_timestamp_seconds", end, end + 60, end + 900, **ended)
    past.add("training_process_exit_code", 0, end + 60, end + 900, **rank)
    past.add("training_stalled", 0, begin, end, **rank)
    for phase, since, until in (("init", 0, 0.5), ("train", 0.5, 5.5), ("validation", 5.5, 6)):
        past.add(
            "training_phase",
            lambda t, since=since, until=until: float(at(since) < t <= at(until)),
            begin,
            end,
            phase=phase,
            **rank,
        )
    for phase, share in (("data_wait", 0.2), ("forward", 0.4), ("backward", 0.4)):
        past.add(
            "training_phase_seconds_total",
            lambda t, share=share: share * _pass(t, 0.5, 5.5),
            begin,
            end,
            phase=phase,
            **rank,
        )
    for phase, since, until in (("init", 1 / 120, 0.5), ("validation", 5.5, 6)):
        past.add(
            "training_phase_seconds_total",
            lambda t, since=since, until=until: _pass(t, since, until),
            begin,
            end,
            phase=phase,
            **rank,
        )
    metric = {**rank, "split": "validation"}
    past.add(
        "training_metric",
        lambda t: 0.78 if t == at(4) else 0.7,
        at(1),
        end,
        name="val_iou",
        **metric,
    )
    past.add("training_metric", 0.86, at(1), end, name="val_dice", **metric)
    past.add("training_metric", float("nan"), at(1), end, name="val_auc", **metric)
    past.add("validation_loss", lambda t: 0.25 if t == at(5) else 0.4, at(1), end, **rank)


def _write_bert(past: Past, rank: str) -> None:
    begin, died, again, end = at(-1 / 6), at(10), at(11), at(24)
    run = {"run": "bert", "rank": rank}
    uuid = {"0": "G1", "1": "G2"}[rank]
    past.add(
        "training_run_info", 1, begin, died + 900, run="bert", source="client", framework="torch"
    )
    past.add(
        "training_run_info", 1, again + 60, end, run="bert", source="client", framework="torch"
    )
    for attempt, since, until in (("0", begin, died), ("1", again + 60, end)):
        past.add("training_rank_info", 1, since, until, gpu_uuid=uuid, attempt=attempt, **run)
    past.add("training_world_size", 2, begin, end, run="bert")
    past.add("training_process_up", lambda t: float(t <= died), begin, died + 900, **run)
    past.add("training_process_up", 1, again + 60, end, **run)
    start = "training_process_start_time_seconds"
    past.add(start, at(-2) + int(rank), begin, died + 900, **run)
    past.add(start, again + int(rank), again + 60, end, **run)
    # Rank 1 is killed for lack of memory, and then the launcher ends rank 0. At first the reasons
    # are unknown.
    ended, code, reason = (died, 137, "oom") if rank == "1" else (died + 5, 143, "signal")
    metric = "training_process_end_timestamp_seconds"
    past.add(metric, ended, died + 60, died + 60, reason="unknown", **run)
    past.add(metric, ended, died + 120, died + 900, reason=reason, **run)
    past.add("training_process_exit_code", code, died + 60, died + 900, **run)
    past.add("training_stalled", lambda t: float(at(8) < t <= at(8.5)), begin, died, **run)
    past.add("training_stalled", 0, again + 60, end, **run)
    for phase, stretches in (
        ("train", ((-1, 10), (11.5, 12), (13, 24))),
        ("compile", ((11, 11.5),)),
        ("checkpoint", ((12, 13),)),
    ):
        for since, until in ((begin, died), (again + 60, end)):
            past.add(
                "training_phase",
                lambda t, all_=stretches: float(any(at(a) < t <= at(b) for a, b in all_)),
                since,
                until,
                phase=phase,
                **run,
            )
    lost = "training_lost_seconds_total"
    past.add(lost, lambda t: 1800.0 * (t > again), begin, end, run="bert")
    past.add("training_lost_steps_total", lambda t: 900.0 * (t > again), begin, end, run="bert")


def _write_alerts(past: Past) -> None:
    """Write the alerts of bert's stall and death, of the lost GPU 3 and of the low disk space."""
    dead = {"alertname": "TrainingRunLost", "severity": "critical", "component": "training"}
    _fire(past, at(10) + 60, at(10.25), at(10), run="bert", rank="1", reason="oom", **dead)
    stalled = {**dead, "alertname": "TrainingStalled", "run": "bert", "phase": "train"}
    _fire(past, at(8) + 120, at(8.5), at(8), **stalled)
    lost = {"alertname": "AcceleratorLost", "severity": "critical", "component": "accelerator"}
    _fire(past, at(18) + 60, at(24), at(18) + 60, kind="gpu", device="3", uuid="G3", **lost)
    low = {"alertname": "HostDiskSpaceLow", "severity": "warning", "component": "host"}
    _fire(past, at(-1 / 6), at(24), at(-1), mountpoint="/", **low)
    past.add("ALERTS", 1, at(0), at(24), alertname="Watchdog", alertstate="firing")
    past.add("ALERTS", 1, at(3), at(4), alertstate="pending", **low | {"alertname": "HostSwapping"})


def _fire(past: Past, begin: int, end: int, active: int, **labels: str) -> None:
    past.add("ALERTS", 1, begin, end, alertstate="firing", **labels)
    past.add("ALERTS_FOR_STATE", active, begin, end, **labels)


def _write_container(past: Past) -> None:
    begin, died, end = at(-1 / 6), at(10), at(24)
    name = {"name": "trainer"}
    past.add("container_state", lambda t: float(_lives(t)), begin, end, state="running", **name)
    died_of = {"reason": "oom-cgroup", "confidence": "high", "signal": "SIGKILL", **name}
    past.add("container_last_death_info", 1, died + 60, end, **died_of)
    past.add("container_last_death_timestamp_seconds", died, died + 60, end, **name)
    past.add("container_deaths_total", 1, died + 60, end, reason="oom-cgroup", **name)
