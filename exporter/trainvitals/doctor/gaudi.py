"""Checks whether the software for Gaudi cards is installed and belongs to one release.

The first two numbers of the driver's version and the packages' versions must be equal. For example,
driver `1.22.1-97ec1a4` and plugin `1.22.0.740` both belong to release 1.22.
"""

from __future__ import annotations

from trainvitals.doctor.facts import Facts
from trainvitals.doctor.finding import Check, Finding, fail, ok, skip
from trainvitals.sources.files import read_small

_PLUGIN = "habana-torch-plugin"
_NO_HPU = "no Gaudi card"


def _release(version: str) -> str:
    return ".".join(version.partition("-")[0].split(".")[:2])


def _read_driver(facts: Facts) -> str:
    module = read_small(facts.machine.roots.sysfs / "module/habanalabs/version")
    if module and module.strip():
        return module.strip()
    read = facts.list_accelerators("hpu")
    return read[0].identity.driver if read else ""


def _check_driver(facts: Facts) -> Finding:
    if not facts.has_hpus:
        return skip(_NO_HPU)
    driver = _read_driver(facts)
    if not driver:
        return fail(
            "the kernel module habanalabs is not loaded",
            "sudo modprobe habanalabs_en habanalabs_cn habanalabs",
            advice="if that fails: `sudo dmesg | grep -i habana`",
        )
    if not facts.list_accelerators("hpu"):
        complaint = facts.accelerators().complaint or "no card responds"
        return fail(f"driver {driver}: {complaint}", "hl-smi")
    return ok(f"driver {driver}, {len(facts.list_accelerators('hpu'))} cards")


def _check_torch(facts: Facts) -> Finding:
    if not facts.has_hpus:
        return skip(_NO_HPU)
    driver, distributions = _read_driver(facts), facts.distributions()
    plugin = distributions.get(_PLUGIN)
    python = facts.interpreter().executable
    install = facts.write_install_command(f"'{_PLUGIN}=={_release(driver) or '1.22'}.*'")
    if plugin is None:
        return fail(f"{python} has no {_PLUGIN}", install)
    if driver and _release(plugin.version) != _release(driver):
        return fail(f"{_PLUGIN} {plugin.version}, but driver {driver}", install)
    for name, each in sorted(distributions.items()):
        if name.startswith("habana-") and _release(each.version) != _release(plugin.version):
            return fail(
                f"{each.name} {each.version}, but {_PLUGIN} {plugin.version}",
                facts.write_install_command(f"'{name}=={_release(plugin.version)}.*'"),
            )
    return ok(f"{_PLUGIN} {plugin.version}, driver {driver}")


_SUBJECT = "Gaudi"
CHECKS = (
    Check(
        "gaudi-driver",
        _SUBJECT,
        "cards without a loaded driver, or that do not respond",
        'PyTorch says "Device acquire failed"',
        _check_driver,
        on_timeout="problem",
    ),
    Check(
        "gaudi-pytorch",
        _SUBJECT,
        "Habana packages that are missing or of another release than the driver",
        'PyTorch says "Device acquire failed", or fails while it compiles a graph',
        _check_torch,
    ),
)
