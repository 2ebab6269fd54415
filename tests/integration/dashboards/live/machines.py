"""The machines that are recorded, but for the first, which has a module of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from types import MappingProxyType

from tests.integration.dashboards.live.gpu_box import GIB, GpuBox
from tests.integration.dashboards.live.machine import Machine, Moment


class GaudiBox(Machine):
    """Eight Gaudi cards that train, one of them hot; a process is killed for memory."""

    name = "gaudi-box:9200"
    hpus = 8

    def prepare(self, stack: ExitStack) -> None:  # noqa: ARG002 - nothing is to be ended
        """Load the cards."""
        assert self.fake is not None
        for at in range(8):
            card = self.fake.hpu(at)
            card.constant_load(80 + at)
            card.memory_used_bytes = (90 + at) * GIB
            card.temperature = 86 if at == 3 else 55 + at
            card.power_milliwatts = (600 + at) * 1000

    def plan(self) -> Sequence[Moment]:
        """Let the machine itself run out of memory."""
        return ((10, self._kill_something),)

    def _kill_something(self) -> None:
        self.host.count_oom_kill()
        self.host.log(
            "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,"
            "task_memcg=/user.slice,task=python,pid=5210,uid=1000"
        )


class Workstation(Machine):
    """One consumer's GPU that does nothing, and a kernel that the exporter does not understand."""

    name = "workstation:9200"
    gpus = 1
    model = "NVIDIA GeForce RTX 4090"

    def plan(self) -> Sequence[Moment]:
        """Let files of the kernel no longer be understood."""
        return ((15, self.host.garble),)


class CpuBox(Machine):
    """No accelerator, no run, no container, for which alone of the three it looks."""

    name = "cpu-box:9200"

    def list_arguments(self) -> Sequence[str]:
        """Look for containers, and ask no engine that happens to run here."""
        return ("--containers.engine=none",)


MACHINES: Mapping[str, type[Machine]] = MappingProxyType(
    {each.name: each for each in (GpuBox, GaudiBox, Workstation, CpuBox)}
)
