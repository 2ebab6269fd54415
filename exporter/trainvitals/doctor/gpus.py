"""Checks the settings, memory errors, PCIe links and temperatures of NVIDIA GPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from trainvitals.doctor.facts import Facts
from trainvitals.doctor.finding import Check, Finding, fail, ok, report, skip, warn
from trainvitals.sources.accelerators.reading import AcceleratorReading
from trainvitals.sources.accelerators.settings import GpuSettings
from trainvitals.units import format_power, format_temperature
from trainvitals.verdicts.accelerators import name_device

_NONE = "no NVIDIA GPU can be read"
_WARM_CELSIUS, _HOT_CELSIUS = 60, 75
_LIMIT_TOLERANCE = 0.99
_LOW_LIMIT_RATIO = 0.6
_BUSY_RATIO = 0.05
_PROHIBITED, _EXCLUSIVE = 2, 3
_LINKS = ("AcceleratorLinkDegraded",)
_HEAT = (
    "GPUHighTemperature",
    "HPUHighTemperature",
    "AcceleratorTemperatureOverLimit",
    "AcceleratorTemperatureNearLimit",
)
_REPAIRS = (
    "AcceleratorRowRemapFailed",
    "AcceleratorRowRemapPending",
    "AcceleratorRecoveryActionNeeded",
)


def _list_indices(gpus: Iterable[GpuSettings]) -> str:
    return ",".join(str(gpu.index) for gpu in gpus)


def _judge_settings(
    facts: Facts, is_known: Callable[[GpuSettings], bool]
) -> tuple[tuple[GpuSettings, ...], Finding | None]:
    gpus = tuple(gpu for gpu in facts.settings().gpus if is_known(gpu))
    return gpus, None if gpus else skip("no GPU reports it" if facts.settings().gpus else _NONE)


def _check_persistence(facts: Facts) -> Finding:
    gpus, nothing = _judge_settings(facts, lambda gpu: gpu.has_persistence is not None)
    if nothing:
        return nothing
    off = [gpu for gpu in gpus if not gpu.has_persistence]
    if not off:
        return ok(f"on for {len(gpus)} of {len(gpus)}")
    return warn(
        f"off for GPU {_list_indices(off)}",
        "sudo nvidia-smi -pm 1",
        advice="to keep it after a reboot: `sudo systemctl enable --now nvidia-persistenced`",
    )


def _check_ecc(facts: Facts) -> Finding:
    gpus, nothing = _judge_settings(facts, lambda gpu: gpu.has_ecc is not None)
    counts = {
        each.identity.index: _count_uncorrected(each) for each in facts.list_accelerators("gpu")
    }
    broken = {index: count for index, count in counts.items() if count}
    if broken:
        counts_text = ", ".join(f"GPU {index} {count}" for index, count in broken.items())
        index = next(iter(broken))
        # The age of the errors is unknown; the alert AcceleratorUncorrectedEcc reports errors in
        # the last hour.
        return warn(
            f"uncorrected memory errors: {counts_text}",
            f"sudo nvidia-smi --gpu-reset -i {index}",
            advice="replace the GPU if they recur",
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
    return ok(f"on for {len(gpus)} of {len(gpus)}, no uncorrected error")


def _count_uncorrected(reading: AcceleratorReading) -> int:
    numbers = reading.measurements
    return (numbers.ecc_uncorrected_errors_total or 0) if numbers is not None else 0


def _check_repairs(facts: Facts) -> Finding:
    read = [each for each in facts.accelerators().devices if each.measurements is not None]
    if not read:
        return skip("no accelerator can be read")
    troubles = facts.find_troubles(_REPAIRS)
    if not troubles:
        return ok(f"none pending on {len(read)} of {len(read)}")
    worst = next(each for each in read if name_device(each.identity) == troubles[0].subject)
    return report(
        "; ".join(each.words for each in troubles),
        troubles,
        f"sudo nvidia-smi --gpu-reset -i {worst.identity.index}"
        if worst.identity.kind == "gpu"
        else "hl-smi -q",
        "take the card out of service: it must be replaced"
        if troubles[0].alert == "AcceleratorRowRemapFailed"
        else "end the programs that use it first; if the reset is refused: `sudo reboot`",
    )


def _check_width(facts: Facts) -> Finding:
    count = sum(
        each.measurements is not None
        and bool(each.measurements.pcie_link_width_max or each.measurements.links_expected)
        for each in facts.accelerators().devices
    )
    if not count:
        return skip("no accelerator reports it")
    troubles = facts.find_troubles(_LINKS)
    return report(
        "; ".join(each.words for each in troubles) or f"all on {count} of {count}",
        troubles,
        "sudo lspci -vv -d 10de: | grep -E 'VGA|3D|LnkCap:|LnkSta:'",
        "look again while something runs on it, as some cards use fewer lanes while they are idle; "
        "then reseat the card and its riser, or move it to a slot with all lanes",
    )


def _check_power(facts: Facts) -> Finding:
    gpus, nothing = _judge_settings(facts, lambda gpu: gpu.power_default_watts is not None)
    if nothing:
        return nothing
    limits = {each.identity.uuid: each.measurements for each in facts.list_accelerators("gpu")}
    low: list[tuple[GpuSettings, float, float]] = []
    for gpu in gpus:
        numbers, default = limits.get(gpu.uuid), gpu.power_default_watts or 0.0
        limit = numbers.power_limit_watts if numbers is not None else None
        if limit is not None and limit < default * _LIMIT_TOLERANCE:
            low.append((gpu, limit, default))
    if not low:
        return ok(
            f"the default of {format_power(gpus[0].power_default_watts)} on {len(gpus)} of {len(gpus)}"
        )
    what = ", ".join(
        f"GPU {gpu.index} {format_power(limit)} of {format_power(most)}" for gpu, limit, most in low
    )
    complain = fail if any(limit < most * _LOW_LIMIT_RATIO for _, limit, most in low) else warn
    gpu, _, most = low[0]
    return complain(
        what, f"sudo nvidia-smi -i {_list_indices(each for each, _, _ in low)} -pl {most:.0f}"
    )


def _check_temperature(facts: Facts) -> Finding:
    hot = facts.find_troubles(_HEAT)
    if hot:
        found = ", ".join(dict.fromkeys(f"{each.subject}: {each.summary}" for each in hot))
        advice = "check the fans, the filters and the temperature of the room"
        return report(found, hot, advice=advice)
    idle = [
        (each.identity, numbers.temperature_core_celsius)
        for each in [*facts.list_accelerators("gpu"), *facts.list_accelerators("hpu")]
        if (numbers := each.measurements) is not None
        and numbers.temperature_core_celsius is not None
        and (numbers.utilization_ratio or 0.0) <= _BUSY_RATIO
    ]
    if not idle:
        return skip(
            "no accelerator is idle" if facts.accelerators().devices else "no accelerator here"
        )
    hottest = max(celsius for _, celsius in idle)
    warm = [(who, celsius) for who, celsius in idle if celsius >= _WARM_CELSIUS]
    if not warm:
        return ok(f"at most {format_temperature(hottest)} on {len(idle)} idle ones")
    what = ", ".join(f"{name_device(who)} {format_temperature(celsius)}" for who, celsius in warm)
    complain = fail if hottest >= _HOT_CELSIUS else warn
    return complain(
        f"{what}, although idle",
        "nvidia-smi --query-gpu=index,temperature.gpu,fan.speed,clocks_throttle_reasons.active --format=csv -l 5"
        if warm[0][0].kind == "gpu"
        else "hl-smi -l 5",
        advice="if it does not cool down, check the fans, the filters and the temperature of the room",
    )


def _check_mode(facts: Facts) -> Finding:
    gpus, nothing = _judge_settings(facts, lambda gpu: gpu.compute_mode is not None)
    if nothing:
        return nothing
    closed = [gpu for gpu in gpus if gpu.compute_mode == _PROHIBITED]
    single = [gpu for gpu in gpus if gpu.compute_mode == _EXCLUSIVE]
    if closed:
        indices = _list_indices(closed)
        return fail(
            f"GPU {indices}: no program may use it (compute mode prohibited)",
            f"sudo nvidia-smi -i {indices} -c 0",
        )
    if single:
        indices = _list_indices(single)
        return warn(
            f"GPU {indices}: only one process may use it (compute mode exclusive)",
            f"sudo nvidia-smi -i {indices} -c 0",
        )
    return ok(f"default on {len(gpus)} of {len(gpus)}")


_SUBJECT = "accelerators"
CHECKS = (
    Check(
        "memory-repairs",
        _SUBJECT,
        "memory that cannot be repaired, a recovery that the driver requests; a warning for a row "
        "remap or retired page that needs a reset",
        "the next uncorrected error ends the run, whereas a reset now costs nothing",
        _check_repairs,
        alerts=_REPAIRS,
    ),
    Check(
        "ecc",
        _SUBJECT,
        "a warning for uncorrected errors since the driver was loaded, and for ECC that is off, or "
        "will be after a reset",
        "a flipped bit becomes a NaN, or a model that is subtly wrong",
        _check_ecc,
    ),
    Check(
        "pcie-width",
        _SUBJECT,
        "a warning for links that are down, and for fewer PCIe lanes than the card and the slot have, "
        "on an idle card, too (their speed, which is lower at idle, is not checked)",
        "batches reach the GPU at half the speed or less",
        _check_width,
        alerts=_LINKS,
    ),
    Check(
        "persistence-mode",
        _SUBJECT,
        "persistence mode that is off",
        "the driver initialises the GPU again for each program: seconds at each start, and settings such "
        "as power limits are forgotten",
        _check_persistence,
    ),
    Check(
        "power-limit",
        _SUBJECT,
        "a power limit below the card's default; a problem below 60 % of it",
        "every step is slower than the card allows",
        _check_power,
    ),
    Check(
        "compute-mode",
        _SUBJECT,
        "a GPU that no program, or only one at a time, may use",
        'CUDA says "all CUDA-capable devices are busy or unavailable"',
        _check_mode,
    ),
    Check(
        "idle-temperature",
        _SUBJECT,
        "a card near the temperature at which it throttles, by the thresholds of the alerts; an idle "
        "card at 60 °C or more, a problem from 75 °C on",
        "under load it throttles or shuts down",
        _check_temperature,
        alerts=_HEAT,
    ),
)
