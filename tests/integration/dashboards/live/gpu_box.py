"""A machine on which nearly every event occurs, with runs, containers, and GPUs with faults."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.fakes.machine import Gpu
from tests.integration.dashboards.live.containers import MIB, Container, Containers
from tests.integration.dashboards.live.machine import Machine, Moment
from tests.support.processes import ENDS_WITH_PARENT
from tests.support.trainers import SOURCE_ROOT

GIB = 1 << 30
HW_THERMAL = 0x40
SW_POWER_CAP = 0x4
# Characters that have a special meaning in a regular expression, a string of PromQL or a URL.
LLAMA = r"""it's "llama"+lora {7b|8b} \d (é) $run 50% #1&2"""
_LOOP = Path(__file__).with_name("training_loop.py")


class GpuBox(Machine):
    """Eight H100 GPUs under load, of which four have problems, three runs, and five containers.

    The run `LLAMA` trains on two ranks and is restarted once, `vit` finishes, and `unet` diverges
    and is killed by the kernel with its container. The container `lab-loader-1` fails and is
    restarted.
    """

    name = "gpu-box:9200"
    gpus = 8

    def prepare(self, stack: ExitStack) -> None:
        """Start the containers and the runs."""
        self._processes: list[subprocess.Popen[bytes]] = []
        stack.callback(self._end_processes)
        self._containers = stack.enter_context(Containers(self.directory, self.host))
        self._train = Container("lab-train-1", "a1", 900 * MIB, 4096 * MIB, 2.5, "healthy")
        self._loader = Container("lab-loader-1", "b2", 300 * MIB, 512 * MIB, 0.8)
        self._unet = Container("unet.v2", "c3", 980 * MIB, 1024 * MIB, 1.2)
        self._board = Container("lab-tensorboard-1", "d4", 200 * MIB, 0, 0.1, "unhealthy")
        self._cache = Container("cache", "e5", 960 * MIB, 1000 * MIB, 0.2)
        self._ranks = self._start_run(LLAMA, ranks=2, cgroup=self._train.cgroup)
        self._vit = self._start_run("vit", seconds=28)
        (self._victim,) = self._start_run("unet", diverges=True, cgroup=self._unet.cgroup)
        self._sit(self._loader, self._board, self._cache)
        self._train.pid, self._unet.pid = self._ranks[0].pid, self._victim.pid
        everyone = (self._train, self._loader, self._unet, self._board, self._cache)
        for container in everyone:
            self._containers.start(container, is_told=False)
        for at in range(8):
            self._load(self.fake_gpu(at), at)
        self._hold()
        self._baselines = self.directory / "baselines.yml"
        self._baselines.write_text(
            "baselines: [{run: '*', epochs_per_hour: 20, memory: 60GiB}]\n", encoding="utf-8"
        )

    def list_arguments(self) -> Sequence[str]:
        """Return the flags, with those of the containers, the limits and the baselines."""
        limits = ("--accelerators.memory-limit=72GiB", "--accelerators.temperature-limit=85")
        baselines = f"--baselines.file={self._baselines}"
        return (*super().list_arguments(), *limits, baselines, *self._containers.arguments)

    def plan(self) -> Sequence[Moment]:
        """Return the events: a restarted run and container, a killed run, and a lost GPU."""
        return (
            (6, self._kill_ranks),
            (10, self._resume_run),
            (12, lambda: self._containers.end(self._loader, 1)),
            (13, self._restart_loader),
            (12, lambda: self._report_xid(6, 94)),
            (18, self._kill_unet),
            (21, lambda: self._containers.end(self._unet, 137)),
            (24, self._lose_gpu),
        )

    def move(self) -> None:
        """Advance the counters of host and containers, and run the events that are due."""
        super().move()
        self._containers.move()

    def fake_gpu(self, slot: int) -> Gpu:
        """Return the GPU in a slot."""
        assert self.fake is not None
        return self.fake.gpu(slot)

    def _load(self, gpu: Gpu, at: int) -> None:
        gpu.square_wave(0.9, 1.0)
        gpu.memory_utilization = 40 + at
        gpu.memory_used_bytes = (60 + at) * GIB
        gpu.temperature, gpu.memory_temperature = 60 + at, 75 + at
        gpu.power_milliwatts = (500 + 10 * at) * 1000
        gpu.sm_clock = gpu.graphics_clock = 1755
        gpu.throttle_reasons = SW_POWER_CAP
        gpu.throttle("sw_power_cap", 0.2)
        gpu.grow("nvlink_transmit_kib", 4e6)
        gpu.grow("nvlink_receive_kib", 4e6)
        if at == 4:  # held and idle
            gpu.constant_load(0)
        if at == 5:  # too hot
            gpu.temperature, gpu.slowdown_margin = 91, -4
            gpu.throttle_reasons = HW_THERMAL
            gpu.throttle("hw_thermal", 0.6)
        if at == 6:  # bad memory
            gpu.corrected_volatile_errors, gpu.uncorrected_volatile_errors = 12, 1
            gpu.corrected_remapped_rows, gpu.uncorrected_remapped_rows = 3, 1
            gpu.remapping_pending = gpu.remapping_failed = 1
            gpu.recovery_action = 1
            gpu.nvlink_crc_flit_errors, gpu.pcie_replays = 4, 7

    def _hold(self) -> None:
        """Add the ranks' processes to the driver's lists of processes."""
        for at, rank in enumerate(self._ranks):
            self.fake_gpu(at).set_processes([(rank.pid, (58 + at) * GIB)])
        self.fake_gpu(2).set_processes([(self._vit[0].pid, 60 * GIB)])
        self.fake_gpu(3).set_processes([(self._victim.pid, 61 * GIB)])
        self.fake_gpu(4).set_processes([(4242, 60 * GIB), (4243, 1 * GIB)])

    def _start_run(
        self,
        run: str,
        *,
        ranks: int = 1,
        attempt: int = 0,
        step: int = 0,
        seconds: int = 0,
        diverges: bool = False,
        cgroup: str = "/user.slice",
    ) -> list[subprocess.Popen[bytes]]:
        environ: Mapping[str, str] = {
            **os.environ,
            "PYTHONPATH": str(SOURCE_ROOT),
            "TRAINVITALS_RUN_DIR": str(self.directory / "runs"),
        }
        started = []
        for rank in range(ranks):
            words = map(str, (run, rank, ranks, attempt, step, seconds, int(diverges)))
            process = subprocess.Popen(
                [*ENDS_WITH_PARENT, sys.executable, _LOOP, *words],
                env=environ,
                stdout=subprocess.PIPE,
            )
            self.host.show_process(process.pid, cgroup=cgroup)
            started.append(process)
        self._processes += started
        for process in started:
            assert process.stdout is not None
            assert process.stdout.readline() == b"trains\n"
        return started

    def _sit(self, *containers: Container) -> None:
        """Start a process that does nothing for each container."""
        for container in containers:
            process = subprocess.Popen([*ENDS_WITH_PARENT, "sleep", "600"])
            self._processes.append(process)
            self.host.show_process(process.pid, cgroup=container.cgroup)
            container.pid = process.pid

    def _kill_ranks(self) -> None:
        for rank in self._ranks:
            rank.kill()
            rank.wait()

    def _resume_run(self) -> None:
        self._ranks = self._start_run(LLAMA, ranks=2, attempt=1, step=30, cgroup=self._train.cgroup)
        self._train.pid = self._ranks[0].pid
        self._hold()

    def _restart_loader(self) -> None:
        self._loader.restarts += 1
        self._containers.start(self._loader)

    def _kill_unet(self) -> None:
        self._containers.run_out_of_memory(self._unet)
        self._victim.kill()
        self._victim.wait()
        self.fake_gpu(3).set_processes([])

    def _report_xid(self, slot: int, code: int) -> None:
        self.fake_gpu(slot).deliver_xid(code)
        bus = self.fake_gpu(slot).bus_id.lower().removeprefix("0000")
        self.host.log(f"NVRM: Xid (PCI:{bus[:-2]}): {code}, pid=4242, name=python")

    def _lose_gpu(self) -> None:
        self._report_xid(7, 79)
        self.fake_gpu(7).lose()

    def _end_processes(self) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.communicate()
