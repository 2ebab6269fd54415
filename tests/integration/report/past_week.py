"""The week from Monday, 2 March 2026, UTC, on one machine with two GPUs, a sample each 5 minutes.

    before  from Monday, 23 February, on, both GPUs are idle at 100 W
    GPU 0   a trains from Monday 0:00 to Wednesday 0:00 at 400 W, and finishes; then idle at 100 W
    GPU 1   b trains on Tuesday from 12:00 to 18:00, half busy, then fails with exit code 1 and is
            not started again; always at 100 W

Accelerators: 2 x 168 = 336 h; training 48 + 6 = 54 h, idle 282 h, which is 84 %. Busy: 48 + 3 = 51 h,
15 %. Energy: GPU 0 48 h x 400 W + 120 h x 100 W = 31.2 kWh, GPU 1 16.8 kWh: 48 kWh.
The week before: 336 h, all idle, 33.6 kWh.
"""

from __future__ import annotations

from tests.integration.report.stage import Past

BEGIN = 1772409600  # Monday, 2026-03-02 00:00 UTC
HOUR = 3600
CARDS = tuple({"kind": "gpu", "device": str(n), "uuid": f"G{n}"} for n in range(2))


def at(hours: float) -> int:
    """Return the Unix time of a number of hours after `BEGIN`."""
    return BEGIN + round(hours * HOUR)


def write_week() -> Past:
    """Write the week and the week before it."""
    past = Past(300)
    begin, end = at(-168), at(168)
    past.add("training_client_incompatible_files", 0, begin, end)
    past.add("memory_total_bytes", 2**36, begin, end)
    for card in CARDS:
        past.add("accelerator_up", 1, begin, end, **card)
    energy = "accelerator_energy_joules_total"
    past.add(
        energy, lambda t: 1e6 + 100 * (t - begin) + 300 * _pass(t, 0, 48), begin, end, **CARDS[0]
    )
    past.add(energy, lambda t: 1e6 + 100 * (t - begin), begin, end, **CARDS[1])
    busy = "accelerator_busy_seconds_total"
    past.add(busy, lambda t: _pass(t, 0, 48), begin, end, **CARDS[0])
    past.add(busy, lambda t: 0.5 * _pass(t, 36, 42), begin, end, **CARDS[1])
    _write_run(past, "a", "G0", 0, 48, "finished", 0)
    _write_run(past, "b", "G1", 36, 42, "exception", 1)
    past.add(
        "validation_accuracy",
        lambda t: 0.61 if t == at(40) else 0.5,
        at(37),
        at(42),
        run="b",
        rank="0",
    )
    failed = {"alertname": "TrainingRunFailed", "severity": "warning", "component": "training"}
    past.add("ALERTS", 1, at(42) + 300, at(42.25), alertstate="firing", run="b", **failed)
    return past


def _pass(moment: int, begin: float, end: float) -> float:
    return min(max(moment - at(begin), 0), at(end) - at(begin))


def _write_run(
    past: Past, run: str, uuid: str, begin: float, end: float, reason: str, code: int
) -> None:
    since, until = at(begin) + 300, at(end)
    rank = {"run": run, "rank": "0"}
    past.add("training_run_info", 1, since, until + 900, run=run, source="client")
    past.add("training_rank_info", 1, since, until + 900, gpu_uuid=uuid, **rank)
    past.add("training_world_size", 1, since, until + 900, run=run)
    past.add("training_process_up", lambda t: float(t <= until), since, until + 900, **rank)
    past.add("training_process_start_time_seconds", at(begin), since, until + 900, **rank)
    past.add("training_phase", 1, since, until, phase="train", **rank)
    past.add("training_stalled", 0, since, until, **rank)
    ended = {**rank, "reason": reason}
    past.add("training_process_end_timestamp_seconds", until, until + 300, until + 900, **ended)
    past.add("training_process_exit_code", code, until + 300, until + 900, **rank)
