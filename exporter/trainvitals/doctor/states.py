"""Whether every accelerator that is plugged in answers."""

from __future__ import annotations

from trainvitals.doctor.facts import Facts
from trainvitals.doctor.finding import Check, Finding, approve, complain, pass_over, warn
from trainvitals.sources.accelerators.reading import AcceleratorReading

_LOOK = "sudo dmesg | grep -iE 'nvrm|xid|habanalabs' | tail"


def _examine_states(facts: Facts) -> Finding:
    reading = facts.accelerators()
    plugged = [device for device in facts.pci() if device.is_gpu or device.is_hpu]
    if not reading.devices:
        return _explain_silence(reading.complaint, len(plugged))
    ill = [each for each in reading.devices if each.state != "ok"]
    if ill:
        return _tell_ill(ill, len(reading.devices))
    names = sorted({each.identity.model for each in reading.devices})
    what = f"{len(reading.devices)} answer: {', '.join(names)}"
    if len(plugged) > len(reading.devices) and not facts.is_in_container:
        return complain(
            f"{what}; {len(plugged)} are plugged in",
            _LOOK,
            advice="it says why the others are missing",
        )
    return warn(f"{what}; {reading.complaint}") if reading.complaint else approve(what)


def _explain_silence(complaint: str | None, plugged: int) -> Finding:
    if complaint:
        return complain(f"none answers: {complaint}", _LOOK, advice="see the checks of its driver")
    if plugged:
        return complain(f"none of {plugged} answers", _LOOK, advice="see the checks of its driver")
    return pass_over("no accelerator here")


def _tell_ill(ill: list[AcceleratorReading], count: int) -> Finding:
    told = ", ".join(f"{each.identity.kind} {each.identity.index} {each.state}" for each in ill)
    first = ill[0].identity
    return complain(
        f"{count - len(ill)} of {count} answer: {told}",
        f"sudo nvidia-smi --gpu-reset -i {first.index}" if first.kind == "gpu" else _LOOK,
        advice="where a reset is refused or does not help: `sudo reboot`",
    )


CHECKS = (
    Check(
        "accelerator-states",
        "accelerators",
        "one that is plugged in and does not answer, is lost, hangs or waits for a reset",
        "a run that is given it stops at its start, or hangs in its first collective",
        _examine_states,
        is_quick=True,
        silence="problem",
    ),
)
