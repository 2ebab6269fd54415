"""How NVIDIA's GPUs are set up, and in what state they are before a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from trainvitals.doctor.facts import Facts
from trainvitals.doctor.finding import Check, Finding, approve, complain, pass_over, warn
from trainvitals.sources.accelerators.reading import AcceleratorReading, Measurements
from trainvitals.sources.accelerators.settings import GpuSettings

_NONE = "no NVIDIA GPU answers"
_WARM_CELSIUS, _HOT_CELSIUS = 60, 75
_NARROW_RATIO = 0.25
_LIMIT_TOLERANCE = 0.99
_LOW_LIMIT_RATIO = 0.6
_BUSY_RATIO = 0.05
_PROHIBITED, _EXCLUSIVE = 2, 3


def _list_indices(gpus: Iterable[GpuSettings]) -> str:
    return ",".join(str(gpu.index) for gpu in gpus)


def _judge_settings(
    facts: Facts, is_known: Callable[[GpuSettings], bool]
) -> tuple[tuple[GpuSettings, ...], Finding | None]:
    gpus = tuple(gpu for gpu in facts.settings().gpus if is_known(gpu))
    return gpus, None if gpus else pass_over(
        "no GPU reports it" if facts.settings().gpus else _NONE
    )


def _examine_persistence(facts: Facts) -> Finding:
    gpus, nothing = _judge_settings(facts, lambda gpu: gpu.has_persistence is not None)
    if nothing:
        return nothing
    off = [gpu for gpu in gpus if not gpu.has_persistence]
    if not off:
        return approve(f"on for {len(gpus)} of {len(gpus)}")
    return warn(
        f"off for GPU {_list_indices(off)}",
        "sudo nvidia-smi -pm 1",
        advice="to keep it over a reboot: `sudo systemctl enable --now nvidia-persistenced`",
    )


def _examine_ecc(facts: Facts) -> Finding:
    gpus, nothing = _judge_settings(facts, lambda gpu: gpu.has_ecc is not None)
    counts = {each.identity.index: _count_uncorrected(each) for each in facts.list_read("gpu")}
    broken = {index: count for index, count in counts.items() if count}
    if broken:
        told = ", ".join(f"GPU {index} {count}" for index, count in broken.items())
        index = next(iter(broken))
        return complain(
            f"uncorrected memory errors: {told}",
            f"sudo nvidia-smi --gpu-reset -i {index}",
            advice="a GPU where they come back is to be replaced",
        )
    if nothing:
        return nothing
    off = [gpu for gpu in gpus if not gpu.has_ecc]
    if off:
        return warn(
            f"off for GPU {_list_indices(off)}",
            f"sudo nvidia-smi -e 1 -i {_list_indices(off)} && sudo reboot",
        )
    waiting = [gpu for gpu in gpus if gpu.will_have_ecc is False]
    if waiting:
        return warn(
            f"will be off for GPU {_list_indices(waiting)} after the next reset",
            f"sudo nvidia-smi -e 1 -i {_list_indices(waiting)}",
        )
    return approve(f"on for {len(gpus)} of {len(gpus)}, no uncorrected error")


def _count_uncorrected(reading: AcceleratorReading) -> int:
    numbers = reading.measurements
    return (numbers.ecc_uncorrected_errors_total or 0) if numbers is not None else 0


def _examine_repairs(facts: Facts) -> Finding:
    read = [each for each in facts.list_read("gpu") if each.measurements is not None]
    if not read:
        return pass_over(_NONE)
    for reading in read:
        told = reading.measurements and _tell_repair(reading.measurements)
        if told:
            what, is_final = told
            index = reading.identity.index
            return complain(
                f"GPU {index}: {what}",
                f"sudo nvidia-smi --gpu-reset -i {index}",
                advice="it is to be replaced: take it out of service"
                if is_final
                else "end what uses it first; where a reset is refused: `sudo reboot`",
            )
    return approve(f"none waits on {len(read)} of {len(read)}")


def _tell_repair(numbers: Measurements) -> tuple[str, bool] | None:
    if numbers.row_remap_failed:
        return "memory that can no longer be repaired", True
    if numbers.row_remap_pending:
        return "a repair of its memory (row remap) waits for a reset", False
    if numbers.pages_retired_pending:
        return "a page of its memory waits for a reset to be retired", False
    if numbers.recovery_action:
        return f"the driver asks for a recovery (action {numbers.recovery_action})", False
    return None


def _examine_width(facts: Facts) -> Finding:
    links = [
        (each.identity.index, numbers.pcie_link_width, numbers.pcie_link_width_max)
        for each in facts.list_read("gpu")
        if (numbers := each.measurements) is not None
        and numbers.pcie_link_width
        and numbers.pcie_link_width_max
    ]
    if not links:
        return pass_over("no GPU reports it" if facts.list_read("gpu") else _NONE)
    narrow = [link for link in links if (link[1] or 0) < (link[2] or 0)]
    if not narrow:
        return approve(f"x{links[0][2]} on {len(links)} of {len(links)}")
    told = ", ".join(f"GPU {index} x{width} of x{most}" for index, width, most in narrow)
    say = complain if any((w or 0) <= (m or 0) * _NARROW_RATIO for _, w, m in narrow) else warn
    return say(
        told,
        "sudo lspci -vv -d 10de: | grep -E 'VGA|3D|LnkCap:|LnkSta:'",
        advice="seat the card and its riser anew, or give it a slot with all lanes",
    )


def _examine_power(facts: Facts) -> Finding:
    gpus, nothing = _judge_settings(facts, lambda gpu: gpu.power_default_watts is not None)
    if nothing:
        return nothing
    limits = {each.identity.uuid: each.measurements for each in facts.list_read("gpu")}
    low: list[tuple[GpuSettings, float, float]] = []
    for gpu in gpus:
        numbers, default = limits.get(gpu.uuid), gpu.power_default_watts or 0.0
        limit = numbers.power_limit_watts if numbers is not None else None
        if limit is not None and limit < default * _LIMIT_TOLERANCE:
            low.append((gpu, limit, default))
    if not low:
        return approve(
            f"the default of {gpus[0].power_default_watts:.0f} W on {len(gpus)} of {len(gpus)}"
        )
    told = ", ".join(f"GPU {gpu.index} {limit:.0f} W of {most:.0f} W" for gpu, limit, most in low)
    say = complain if any(limit < most * _LOW_LIMIT_RATIO for _, limit, most in low) else warn
    gpu, _, most = low[0]
    return say(
        told, f"sudo nvidia-smi -i {_list_indices(each for each, _, _ in low)} -pl {most:.0f}"
    )


def _examine_temperature(facts: Facts) -> Finding:
    idle = [
        (each.identity, numbers.temperature_core_celsius)
        for each in [*facts.list_read("gpu"), *facts.list_read("hpu")]
        if (numbers := each.measurements) is not None
        and numbers.temperature_core_celsius is not None
        and (numbers.utilization_ratio or 0.0) <= _BUSY_RATIO
    ]
    if not idle:
        return pass_over(
            "no accelerator is idle" if facts.accelerators().devices else "no accelerator here"
        )
    hottest = max(celsius for _, celsius in idle)
    warm = [(who, celsius) for who, celsius in idle if celsius >= _WARM_CELSIUS]
    if not warm:
        return approve(f"at most {hottest:.0f} °C on {len(idle)} that are idle")
    told = ", ".join(f"{who.kind} {who.index} {celsius:.0f} °C" for who, celsius in warm)
    say = complain if hottest >= _HOT_CELSIUS else warn
    return say(
        f"{told}, and nothing runs there",
        "nvidia-smi --query-gpu=index,temperature.gpu,fan.speed,clocks_throttle_reasons.active --format=csv -l 5"
        if warm[0][0].kind == "gpu"
        else "hl-smi -l 5",
        advice="if it does not cool down, look at fans, filters and the temperature of the room",
    )


def _examine_mode(facts: Facts) -> Finding:
    gpus, nothing = _judge_settings(facts, lambda gpu: gpu.compute_mode is not None)
    if nothing:
        return nothing
    closed = [gpu for gpu in gpus if gpu.compute_mode == _PROHIBITED]
    single = [gpu for gpu in gpus if gpu.compute_mode == _EXCLUSIVE]
    if closed:
        indices = _list_indices(closed)
        return complain(
            f"GPU {indices}: closed to all programs", f"sudo nvidia-smi -i {indices} -c 0"
        )
    if single:
        indices = _list_indices(single)
        return warn(f"GPU {indices}: one process at a time", f"sudo nvidia-smi -i {indices} -c 0")
    return approve(f"open to all programs on {len(gpus)} of {len(gpus)}")


_SUBJECT = "accelerators"
CHECKS = (
    Check(
        "memory-repairs",
        _SUBJECT,
        "a row remap or a retired page that waits for a reset, memory that cannot be repaired, a "
        "recovery that the driver asks for",
        "the next uncorrected error ends the run, and a reset now costs nothing",
        _examine_repairs,
    ),
    Check(
        "ecc",
        _SUBJECT,
        "uncorrected errors since the driver was loaded; ECC that is off or will be",
        "a flipped bit becomes a NaN, or a model that is subtly wrong",
        _examine_ecc,
    ),
    Check(
        "pcie-width",
        _SUBJECT,
        "a link with fewer lanes than card and slot have (their speed sinks at rest and is not "
        "looked at)",
        "batches come to the GPU at half the speed or less",
        _examine_width,
    ),
    Check(
        "persistence-mode",
        _SUBJECT,
        "persistence mode that is off",
        "the driver wakes the GPU for each program anew: seconds at each start, and settings such "
        "as power limits are forgotten",
        _examine_persistence,
    ),
    Check(
        "power-limit",
        _SUBJECT,
        "a power limit below the card's default; a problem below 60 % of it",
        "every step is slower than it was measured to be",
        _examine_power,
    ),
    Check(
        "compute-mode",
        _SUBJECT,
        "a GPU that is closed to programs, or lets in one at a time",
        'CUDA says "all CUDA-capable devices are busy or unavailable"',
        _examine_mode,
    ),
    Check(
        "idle-temperature",
        _SUBJECT,
        "60 °C and more where nothing runs; a problem from 75 °C on",
        "under load it slows down or switches itself off",
        _examine_temperature,
    ),
)
