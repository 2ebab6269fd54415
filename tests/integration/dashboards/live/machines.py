"""The recorded machines, except for `GpuBox`, which has a module of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from types import MappingProxyType

from tests.integration.dashboards.live.gpu_box import GIB, GpuBox
from tests.integration.dashboards.live.machine import Machine, Moment


class GaudiBox(Machine):
    """A machine with eight busy Gaudi cards, one of them hot, on which an OOM kill occurs."""

    name = "gaudi-box:9200"
    hpus = 8

    def prepare(self, stack: ExitStack) -> None:  # noqa: ARG002 - nothing needs an end
        """Load the cards."""
        assert self.fake is not None
        for at in range(8):
            card = self.fake.hpu(at)
            card.constant_load(80 + at)
            card.memory_used_bytes = (90 + at) * GIB
            card.temperature = 86 if at == 3 else 55 + at
            card.power_milliwatts = (600 + at) * 1000

    def plan(self) -> Sequence[Moment]:
        """Return the event of an OOM kill for want of the machine's own memory."""
        return ((10, self._kill_something),)

    def _kill_something(self) -> None:
        self.host.count_oom_kill()
        self.host.log(
            "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,"
            "task_memcg=/user.slice,task=python,pid=5210,uid=1000"
        )


class Workstation(Machine):
    """A machine with an idle consumer GPU, whose kernel files the exporter cannot parse."""

    name = "workstation:9200"
    gpus = 1
    model = "NVIDIA GeForce RTX 4090"

    def plan(self) -> Sequence[Moment]:
        """Return the event after which some files of the kernel cannot be parsed."""
        return ((15, self.host.garble),)


class CpuBox(Machine):
    """A machine without accelerators, runs and containers, whose exporter looks for containers."""

    name = "cpu-box:9200"

    def list_arguments(self) -> Sequence[str]:
        """Return the flag that keeps the exporter from asking an engine of this machine."""
        return ("--containers.engine=none",)


MACHINES: Mapping[str, type[Machine]] = MappingProxyType(
    {each.name: each for each in (GpuBox, GaudiBox, Workstation, CpuBox)}
)
