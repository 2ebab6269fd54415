"""Whether the software for Gaudi cards is there and of one version.

Driver, firmware and the packages of PyTorch come in releases; their first two numbers must be the
same, as 1.22 in the driver's `1.22.1-97ec1a4` and the plugin's `1.22.0.740`.
"""

from __future__ import annotations

from trainvitals.doctor.facts import Facts
from trainvitals.doctor.finding import Check, Finding, approve, complain, pass_over
from trainvitals.sources.files import read_small

_PLUGIN = "habana-torch-plugin"
_NO_HPU = "no Gaudi card here"


def _release(version: str) -> str:
    return ".".join(version.partition("-")[0].split(".")[:2])


def _read_driver(facts: Facts) -> str:
    module = read_small(facts.world.roots.sysfs / "module/habanalabs/version")
    if module and module.strip():
        return module.strip()
    read = facts.list_read("hpu")
    return read[0].identity.driver if read else ""


def _examine_driver(facts: Facts) -> Finding:
    if not facts.has_hpus:
        return pass_over(_NO_HPU)
    driver = _read_driver(facts)
    if not driver:
        return complain(
            "the kernel module habanalabs is not loaded",
            "sudo modprobe habanalabs_en habanalabs_cn habanalabs",
            advice="if that is refused: `sudo dmesg | grep -i habana`",
        )
    if not facts.list_read("hpu"):
        complaint = facts.accelerators().complaint or "no card answers"
        return complain(f"driver {driver}: {complaint}", "hl-smi")
    return approve(f"driver {driver}, {len(facts.list_read('hpu'))} cards")


def _examine_torch(facts: Facts) -> Finding:
    if not facts.has_hpus:
        return pass_over(_NO_HPU)
    driver, distributions = _read_driver(facts), facts.distributions()
    plugin = distributions.get(_PLUGIN)
    python = facts.interpreter().executable
    install = facts.write_install(f"'{_PLUGIN}=={_release(driver) or '1.22'}.*'")
    if plugin is None:
        return complain(f"{python} has no {_PLUGIN}", install)
    if driver and _release(plugin.version) != _release(driver):
        return complain(f"{_PLUGIN} {plugin.version}, and driver {driver}", install)
    for name, each in sorted(distributions.items()):
        if name.startswith("habana-") and _release(each.version) != _release(plugin.version):
            return complain(
                f"{each.name} {each.version}, and {_PLUGIN} {plugin.version}",
                facts.write_install(f"'{name}=={_release(plugin.version)}.*'"),
            )
    return approve(f"{_PLUGIN} {plugin.version}, driver {driver}")


_SUBJECT = "Gaudi"
CHECKS = (
    Check(
        "gaudi-driver",
        _SUBJECT,
        "cards without a loaded driver, or that do not answer it",
        'PyTorch says "Device acquire failed"',
        _examine_driver,
        silence="problem",
    ),
    Check(
        "gaudi-pytorch",
        _SUBJECT,
        "packages of Habana that are missing, or of another release than the driver",
        'PyTorch says "Device acquire failed", or fails while it compiles a graph',
        _examine_torch,
    ),
)
