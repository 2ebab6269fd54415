"""For each check of `trainvitals doctor`: machines that pass it, and machines that do not."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.unit.doctor.patient import GPU, HABANA, HPU, NVIDIA, SWITCH, IssuerStandIn, Patient
from trainvitals.http.listen import Address
from trainvitals.sources.host.kernel import ClockState

CU124 = "sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 sm_90"
PINNED = 'nvidia-cudnn-cu12 (==9.1.0.70) ; platform_system == "Linux"'
KEY = "0123456789abcdef0123456789abcdef01234567"
TOKEN = "hf_abcdefghijklmnopqrstuvwxyzABCDEFGH"
NOW = 1_795_299_000.0 + 86_400 * 3650


@dataclass(frozen=True)
class Case:
    """A machine and the finding of a check on this machine.

    Attributes:
        check: The name of the check.
        status: The status of the finding.
        arrange: A function that changes the machine before the check.
        says: Parts of the text of the finding.
        command: A part of the suggested command.
    """

    check: str
    status: str
    arrange: Callable[[Patient], object]
    says: tuple[str, ...] = ()
    command: str = ""


def nothing(_: Patient) -> None:
    """Leave the machine unchanged."""


def run_directory(mode: int, *, is_ours: bool = True) -> Callable[[Patient], None]:
    """Create the run directory, owned by the user of the run or by another user."""

    def arrange(patient: Patient) -> None:
        runs = Path(patient.environ["TRAINVITALS_RUN_DIR"])
        runs.mkdir()
        runs.chmod(mode)
        patient.world["user"] = os.geteuid()
        if not is_ours:
            patient.world["user"] = os.geteuid() + 1
            if os.geteuid() == 0:
                os.chown(runs, 54321, -1)

    return arrange


def both(*acts: Callable[[Patient], object]) -> Callable[[Patient], None]:
    """Apply several changes in order."""

    def act(patient: Patient) -> None:
        for each in acts:
            each(patient)

    return act


def gpus(
    change: Callable[[object], object] | None = None, **options: object
) -> Callable[[Patient], None]:
    """Add two GPUs and apply a change to their fake machine."""

    def arrange(patient: Patient) -> None:
        machine = patient.add_gpus(**options)
        if change is not None:
            change(machine)

    return arrange


def setting(slot: int, **values: object) -> Callable[[object], None]:
    """Change attributes of a fake GPU."""

    def change(machine: object) -> None:
        for name, value in values.items():
            assert hasattr(machine.gpu(slot), name)  # type: ignore[attr-defined]
            setattr(machine.gpu(slot), name, value)  # type: ignore[attr-defined]

    return change


def torch(
    version: str, cuda: str | None, *requires: str, built: str = CU124, **more: str
) -> Callable[[Patient], None]:
    """Write the files of an installed PyTorch."""
    return lambda patient: patient.install_torch(version, cuda, *requires, built=built, **more)


def nvcc(version: str) -> Callable[[Patient], None]:
    """Add the compiler of a CUDA toolkit to the `PATH`."""
    line = f"Cuda compilation tools, release {version}, V{version}.20"
    return lambda patient: patient.put_program("nvcc", line)


def environ(**variables: str) -> Callable[[Patient], None]:
    """Set environment variables."""
    return lambda patient: patient.environ.update(variables)


def python(version: str, *, bits64: bool = True, code: int = 0) -> Callable[[Patient], None]:
    """Replace the Python of the training run with a fake of the given version."""
    answer = f'(({version}), {bits64}, [], "cpython")'
    return lambda patient: patient.put_python(answer, code=code)


def required(*lines: str) -> Callable[[Patient], None]:
    """Pass a requirements file to the check, for a Python with two installed packages."""

    def arrange(patient: Patient) -> None:
        patient.install("numpy", "2.1.0")
        patient.install("Typing_Extensions", "4.12.2")
        patient.wish(requirements=(patient.write("requirements.txt", "\n".join(lines)),))

    return arrange


def packages(*wheels: tuple[str, ...]) -> Callable[[Patient], None]:
    """Install packages; each has a name, a version and its requirements."""

    def arrange(patient: Patient) -> None:
        for wheel in wheels:
            patient.install(*wheel)

    return arrange


def engine(
    *containers: tuple[str, str, str], runtimes: tuple[str, ...] = ("runc",)
) -> Callable[[Patient], None]:
    """Start a container engine; each container has a name, a state and a status."""
    told = [dict(zip(("name", "state", "status"), each, strict=True)) for each in containers]
    return lambda patient: patient.start_engine(*told, runtimes=runtimes)


def silent_engine(patient: Patient) -> None:
    """Configure the address of a container engine that does not run."""
    patient.start_engine().stop()


def daemon(text: str) -> Callable[[Patient], None]:
    """Write Docker's `daemon.json`."""
    return lambda patient: patient.write("root/etc/docker/daemon.json", text)


def issuer(
    base: str, token: str, value: str, *answers: tuple[int, object]
) -> Callable[[Patient], None]:
    """Set a token, and start a server that answers requests about the token."""

    def arrange(patient: Patient) -> None:
        stand_in: IssuerStandIn = patient.stack.enter_context(patient.issuer(*answers))
        patient.environ |= {base: stand_in.address, token: value}

    return arrange


def port(**wishes: object) -> Callable[[Patient], None]:
    """Require a port that is already in use."""
    return lambda patient: patient.wish(ports=(patient.listen(),), **wishes)


def reach(patient: Patient) -> None:
    """Require a connection to an address that accepts connections."""
    patient.wish(reach=(Address("127.0.0.1", patient.listen()),))


def refuse(patient: Patient) -> None:
    """Require a connection to an address that no longer accepts connections."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = Address("127.0.0.1", listener.getsockname()[1])
    patient.wish(reach=(address,))


def groups(limit: int, used: int) -> Callable[[Patient], None]:
    """Set the control group's limit and number of processes."""

    def arrange(patient: Patient) -> None:
        patient.write("proc/self/cgroup", "0::/user.slice\n")
        patient.write("sys/fs/cgroup/user.slice/pids.max", f"{limit}\n")
        patient.write("sys/fs/cgroup/user.slice/pids.current", f"{used}\n")

    return arrange


def clock(
    *, synchronized: bool, time: float = NOW, offset: float = 0.001
) -> Callable[[Patient], None]:
    """Set the time, the offset and the synchronisation state of the clock."""
    return lambda patient: patient.world.update(
        clock=lambda: time, adjtimex=lambda: ClockState(offset, synchronized)
    )


def checkpoints(name: str) -> Callable[[Patient], None]:
    """Set the directory for checkpoints."""
    return lambda patient: patient.wish(checkpoints=patient.folder / name)


plugged = lambda patient: patient.plug(NVIDIA, GPU, "nvidia", count=2)  # noqa: E731
unplugged = lambda patient: patient.plug(NVIDIA, GPU, count=2)  # noqa: E731
module = lambda patient: patient.load_module()  # noqa: E731
container = lambda patient: patient.write("root/.dockerenv", "")  # noqa: E731
gaudi = lambda patient: patient.plug(HABANA, HPU, "habanalabs", count=2)  # noqa: E731
hpus = lambda patient: patient.add_accelerators(gpus=0, hpus=2)  # noqa: E731
rdma = lambda patient: patient.write("sys/class/infiniband/mlx5_0/node_type", "1")  # noqa: E731
docker = both(engine(), gpus())


def habana_module(version: str) -> Callable[[Patient], None]:
    """Load a version of the kernel driver for Gaudi cards."""
    return lambda patient: patient.write("sys/module/habanalabs/version", f"{version}\n")


CASES = (
    # accelerators
    Case("accelerator-states", "ok", gpus(), ("2 respond: NVIDIA H100 80GB HBM3",)),
    Case("accelerator-states", "ok", hpus, ("2 respond: HL-",)),
    Case("accelerator-states", "not applicable", nothing),
    Case("accelerator-states", "problem", unplugged, ("none of 2 responds",)),
    Case(
        "accelerator-states",
        "problem",
        gpus(lambda m: m.lose(1)),
        ("1 of 2 respond", "gpu1 lost"),
        "--gpu-reset -i 1",
    ),
    Case(
        "accelerator-states",
        "problem",
        both(lambda p: p.plug(NVIDIA, GPU, "nvidia", count=3), gpus()),
        ("3 are plugged in",),
    ),
    Case(
        "accelerator-states", "ok", both(lambda p: p.plug(NVIDIA, GPU, "vfio-pci", count=3), gpus())
    ),
    Case(
        "accelerator-states",
        "ok",
        both(lambda p: p.plug(NVIDIA, GPU, "nvidia", count=3), container, gpus()),
    ),
    # driver
    Case("nvidia-driver", "ok", both(plugged, module), ("570.124.06",)),
    Case("nvidia-driver", "not applicable", nothing),
    Case(
        "nvidia-driver",
        "problem",
        unplugged,
        ("no driver is loaded for 2 GPUs", os.uname().release),
        "dkms",
    ),
    Case(
        "nvidia-driver",
        "problem",
        both(
            unplugged,
            lambda p: p.write(
                f"root/lib/modules/{os.uname().release}/modules.dep", "updates/dkms/nvidia.ko: \n"
            ),
        ),
        command="sudo modprobe nvidia",
    ),
    Case(
        "nvidia-driver",
        "problem",
        lambda p: p.plug(NVIDIA, GPU, "nouveau"),
        ("nouveau",),
        "blacklist nouveau",
    ),
    Case("nvidia-library", "ok", both(module, gpus()), ("570.124.06", "CUDA up to 12.8")),
    Case("nvidia-library", "not applicable", nothing),
    Case(
        "nvidia-library",
        "problem",
        both(
            module,
            lambda p: p.write("root/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.65.06", ""),
            gpus(lambda m: m.mismatch(library_on_disk=False)),
        ),
        ("module 570.124.06, library 580.65.06", "upgraded"),
        "sudo reboot",
    ),
    Case(
        "nvidia-library",
        "problem",
        module,
        ("there is no libnvidia-ml.so.1",),
        "libnvidia-compute-570",
    ),
    Case(
        "nvidia-library",
        "problem",
        both(module, container),
        ("not in this container",),
        "--gpus all",
    ),
    Case(
        "nvidia-library",
        "problem",
        both(module, gpus(lambda m: m.unload_driver())),
        ("driver not loaded",),
    ),
    Case(
        "nvidia-files",
        "ok",
        both(module, lambda p: p.make_files(), environ(), lambda p: p.world.update(user=0)),
    ),
    Case(
        "nvidia-files",
        "problem",
        both(module, lambda p: p.make_files("nvidiactl", "nvidia0")),
        ("missing: /dev/nvidia-uvm",),
        "nvidia-modprobe",
    ),
    Case("nvidia-files", "not applicable", nothing),
    Case("fabric-manager", "not applicable", plugged),
    Case(
        "fabric-manager",
        "problem",
        both(module, lambda p: p.plug(NVIDIA, SWITCH)),
        ("does not run",),
        "nvidia-fabricmanager",
    ),
    Case(
        "fabric-manager",
        "ok",
        both(
            module,
            lambda p: p.plug(NVIDIA, SWITCH),
            lambda p: p.write("proc/900/comm", "nv-fabricmanage\n"),
        ),
    ),
    # the state of GPUs
    Case("free-accelerators", "ok", gpus(), ("2 of 2 are free",)),
    Case(
        "free-accelerators",
        "problem",
        gpus(
            lambda m: (
                m.processes(0, [(4021, 70 << 30)]),
                setattr(m.gpu(0), "memory_used_bytes", 70 << 30),
            )
        ),
        ("gpu0: 70.0 GiB of 79.6 GiB held by pid 4021",),
        "export CUDA_VISIBLE_DEVICES=1",
    ),
    Case(
        "free-accelerators",
        "ok",
        both(
            gpus(
                lambda m: (
                    m.processes(0, [(4021, 70 << 30)]),
                    setattr(m.gpu(0), "memory_used_bytes", 70 << 30),
                )
            ),
            environ(CUDA_VISIBLE_DEVICES="1"),
        ),
        ("1 of 1",),
    ),
    Case("free-accelerators", "not applicable", nothing),
    Case("memory-repairs", "ok", gpus()),
    Case(
        "memory-repairs",
        "warning",
        gpus(setting(1, remapping_pending=1)),
        ("gpu1 memory repair pending",),
        "--gpu-reset -i 1",
    ),
    Case(
        "memory-repairs",
        "problem",
        gpus(setting(0, remapping_failed=1)),
        ("gpu0 memory cannot be repaired",),
    ),
    Case("ecc", "ok", gpus(), ("on for 2 of 2",)),
    Case(
        "ecc",
        "warning",
        gpus(setting(1, ecc_enabled=0)),
        ("off for GPU 1",),
        "nvidia-smi -e 1 -i 1",
    ),
    Case("ecc", "warning", gpus(setting(0, ecc_pending=0)), ("will be off for GPU 0",)),
    Case(
        "ecc",
        "warning",
        gpus(setting(1, uncorrected_volatile_errors=3)),
        ("GPU 1 3",),
        "--gpu-reset -i 1",
    ),
    Case("ecc", "not applicable", nothing),
    Case("pcie-width", "ok", gpus(), ("all on 2 of 2",)),
    Case(
        "pcie-width", "warning", gpus(setting(1, pcie_width=8)), ("gpu1 lacks", "8 of 16"), "lspci"
    ),
    Case("persistence-mode", "ok", gpus()),
    Case(
        "persistence-mode",
        "warning",
        gpus(setting(1, persistence_mode=0)),
        ("off for GPU 1",),
        "nvidia-smi -pm 1",
    ),
    Case("power-limit", "ok", gpus(), ("700 W",)),
    Case(
        "power-limit",
        "warning",
        gpus(setting(1, power_limit_milliwatts=500_000)),
        ("GPU 1 500 W of 700 W",),
        "-i 1 -pl 700",
    ),
    Case(
        "power-limit",
        "problem",
        gpus(setting(0, power_limit_milliwatts=300_000)),
        ("GPU 0 300 W",),
    ),
    Case("compute-mode", "ok", gpus()),
    Case(
        "compute-mode",
        "warning",
        gpus(setting(0, compute_mode=3)),
        ("only one process may use it",),
    ),
    Case(
        "compute-mode",
        "problem",
        gpus(setting(1, compute_mode=2)),
        ("no program may use it",),
        "-i 1 -c 0",
    ),
    Case("idle-temperature", "ok", gpus(setting(0, temperature=34))),
    Case("idle-temperature", "warning", gpus(setting(1, temperature=66)), ("gpu1 66 °C",)),
    Case("idle-temperature", "problem", gpus(setting(1, temperature=81)), ("gpu1 81 °C",)),
    Case(
        "idle-temperature",
        "problem",
        both(
            gpus(setting(1, temperature=34)),
            lambda p: p.environ.update(ACCELERATOR_TEMPERATURE_LIMIT="33"),
        ),
        ("gpu1: 34 °C, above the limit of 33 °C",),
    ),
    Case(
        "idle-temperature",
        "not applicable",
        gpus(
            lambda m: [
                (m.constant_load(i, 95), setattr(m.gpu(i), "temperature", 81)) for i in (0, 1)
            ]
        ),
    ),
    # PyTorch and CUDA
    Case("pytorch", "ok", both(gpus(), torch("2.6.0+cu124", "12.4")), ("2.6.0+cu124",)),
    Case("pytorch", "ok", torch("2.13.0+cpu", None)),
    Case("pytorch", "not applicable", lambda p: p.packages),
    Case(
        "pytorch",
        "problem",
        both(gpus(), torch("2.13.0+cpu", None)),
        ("not compiled with CUDA",),
        "--index-url https://download.pytorch.org/whl/cu126",
    ),
    Case(
        "pytorch",
        "problem",
        both(gpus(), torch("2.6.0+rocm6.2", None, hip="6.2.41133")),
        ("ROCm 6.2.41133",),
    ),
    Case(
        "pytorch", "problem", torch("2.4.1+cu121", "12.1"), ("older than 2.6",), "--upgrade torch"
    ),
    Case("pytorch-driver", "ok", both(module, torch("2.6.0+cu124", "12.4")), ("570.124.06",)),
    Case(
        "pytorch-driver",
        "ok",
        both(lambda p: p.load_module("535.288.01"), torch("2.6.0+cu124", "12.4")),
    ),
    Case(
        "pytorch-driver",
        "problem",
        both(lambda p: p.load_module("470.57.02"), torch("2.6.0+cu124", "12.4")),
        ("too old", "525.60.13"),
        "nvidia-driver-580",
    ),
    Case(
        "pytorch-driver",
        "problem",
        both(lambda p: p.load_module("570.124.06"), torch("2.9.0+cu130", "13.0")),
        ("too old", "580.65.6"),
    ),
    Case("pytorch-driver", "problem", both(gpus(), torch("2.9.0+cu130", "13.0")), ("too old",)),
    Case("pytorch-driver", "not applicable", torch("2.6.0+cu124", "12.4")),
    Case("pytorch-kernels", "ok", both(gpus(), torch("2.6.0+cu124", "12.4")), ("9.0",)),
    Case(
        "pytorch-kernels",
        "problem",
        both(gpus(setting(1, compute_capability_major=12)), torch("2.6.0+cu124", "12.4")),
        ("GPU 1", "12.0", CU124),
        "/cu128",
    ),
    Case(
        "pytorch-kernels",
        "problem",
        both(
            gpus(setting(0, compute_capability_major=6, compute_capability_minor=1)),
            torch("2.9.0", "12.8", built="sm_70 sm_90 sm_120"),
        ),
        command="/cu126",
    ),
    Case("pytorch-kernels", "not applicable", both(gpus(), torch("2.6.0+cu124", "12.4", built=""))),
    Case(
        "cuda-libraries",
        "ok",
        both(torch("2.6.0+cu124", "12.4", PINNED), packages(("nvidia-cudnn-cu12", "9.1.0.70"))),
    ),
    Case(
        "cuda-libraries",
        "problem",
        both(torch("2.6.0+cu124", "12.4", PINNED), packages(("nvidia-cudnn-cu12", "9.5.1.17"))),
        ("9.5.1.17 is not ==9.1.0.70",),
        "'nvidia-cudnn-cu12==9.1.0.70'",
    ),
    Case(
        "cuda-libraries",
        "problem",
        torch("2.6.0+cu124", "12.4", PINNED),
        ("nvidia-cudnn-cu12 is not installed",),
    ),
    Case(
        "cuda-libraries",
        "warning",
        both(
            torch("2.6.0+cu124", "12.4", PINNED),
            packages(("nvidia-cudnn-cu12", "9.1.0.70")),
            lambda p: (
                p.write("cuda/libcudnn.so.8.9.7", "")
                and (p.folder / "cuda/libcudnn.so.8").symlink_to("libcudnn.so.8.9.7")
            ),
            lambda p: p.environ.update(LD_LIBRARY_PATH=str(p.folder / "cuda")),
        ),
        ("cuDNN 8.9.7", "9.1.0.70"),
        "unset LD_LIBRARY_PATH",
    ),
    Case(
        "cuda-toolkit",
        "ok",
        both(
            torch("2.6.0+cu124", "12.4"),
            nvcc("12.6"),
        ),
        ("12.6",),
    ),
    Case(
        "cuda-toolkit",
        "warning",
        both(
            torch("2.6.0+cu124", "12.4"),
            nvcc("11.8"),
        ),
        ("11.8", "12.4"),
        "cuda-toolkit-12-4",
    ),
    Case(
        "cuda-toolkit",
        "ok",
        both(gpus(), torch("2.8.0+cu128", "12.8"), nvcc("12.8")),
        ("CUDA toolkit 12.8, like PyTorch's",),
    ),
    Case(
        "cuda-toolkit",
        "problem",
        both(gpus(), nvcc("13.0")),
        ("CUDA toolkit 13.0 is newer than driver 570.124.06 allows, which is for CUDA 12.8",),
        "cuda-toolkit-12-8",
    ),
    Case(
        "cuda-toolkit",
        "problem",
        both(gpus(), nvcc("14.1")),
        ("CUDA toolkit 14.1 is newer than driver 570.124.06 allows",),
    ),
    Case(
        "cuda-toolkit",
        "problem",
        both(lambda p: p.load_module("450.51.05"), nvcc("11.8")),
        ("CUDA toolkit 11.8 is newer than driver 450.51.05 allows",),
        "nvidia-driver-580",
    ),
    Case(
        "cuda-toolkit",
        "warning",
        both(gpus(), torch("2.8.0+cu129", "12.9"), nvcc("12.9")),
        ("CUDA toolkit 12.9 is newer than driver 570.124.06 allows",),
        "cuda-toolkit-12-8",
    ),
    Case("cuda-toolkit", "not applicable", torch("2.6.0+cu124", "12.4")),
    Case("visible-devices", "ok", both(gpus(), environ(CUDA_VISIBLE_DEVICES="1,0"))),
    Case(
        "visible-devices",
        "problem",
        both(gpus(), environ(CUDA_VISIBLE_DEVICES="0,7")),
        ("no GPU '7'",),
        "unset CUDA_VISIBLE_DEVICES",
    ),
    Case(
        "visible-devices",
        "problem",
        both(gpus(), environ(CUDA_VISIBLE_DEVICES="")),
        ("hides every GPU",),
    ),
    Case("visible-devices", "not applicable", gpus()),
    # Gaudi
    Case(
        "gaudi-driver",
        "ok",
        both(gaudi, habana_module("1.22.1-97ec1a4"), hpus),
        ("1.22.1", "2 cards"),
    ),
    Case("gaudi-driver", "not applicable", nothing),
    Case("gaudi-driver", "problem", lambda p: p.plug(HABANA, HPU), ("not loaded",), "modprobe"),
    Case(
        "gaudi-pytorch",
        "ok",
        both(
            gaudi,
            habana_module("1.22.1-97ec1a4"),
            packages(("habana-torch-plugin", "1.22.0.740"), ("habana-pyhlml", "1.22.0.740")),
        ),
    ),
    Case(
        "gaudi-pytorch",
        "problem",
        both(
            gaudi, habana_module("1.22.1-97ec1a4"), packages(("habana-torch-plugin", "1.21.0.555"))
        ),
        ("1.21.0.555", "1.22.1"),
        "'habana-torch-plugin==1.22.*'",
    ),
    Case(
        "gaudi-pytorch",
        "problem",
        both(gaudi, habana_module("1.22.1"), lambda p: p.packages),
        ("has no habana-torch-plugin",),
    ),
    Case(
        "gaudi-pytorch",
        "problem",
        both(
            gaudi,
            habana_module("1.22.1"),
            packages(
                ("habana-torch-plugin", "1.22.0.740"), ("habana-torch-dataloader", "1.20.0.543")
            ),
        ),
        ("habana-torch-dataloader 1.20",),
    ),
    # Python
    Case("python", "ok", lambda p: p.packages),
    Case("python", "problem", python("3, 9, 18"), ("older than 3.10",)),
    Case("python", "problem", python("3, 11, 4", bits64=False), ("32-bit",)),
    Case("python", "problem", python("3, 11, 4", code=1), ("cannot run",)),
    Case("python", "problem", lambda p: p.put_python("Hello"), ("is not Python",)),
    Case("requirements", "not applicable", nothing),
    Case(
        "requirements",
        "ok",
        required(
            "numpy>=2,<3",
            "typing-extensions ; python_version >= '3.8'",
            "# nothing",
            "pywin32; sys_platform == 'win32'",
            "--index-url https://example.com",
        ),
    ),
    Case(
        "requirements",
        "problem",
        required("numpy==1.26.4", "torch>=2.6"),
        ("numpy 2.1.0 is not ==1.26.4", "torch is not installed"),
        "pip install -r",
    ),
    Case(
        "requirements",
        "problem",
        lambda p: p.wish(requirements=(p.folder / "nothing.txt",)),
        ("cannot read",),
    ),
    Case(
        "package-conflicts", "ok", packages(("a", "1", "B>=1"), ("b", "1.5", "c; extra == 'more'"))
    ),
    Case(
        "package-conflicts",
        "warning",
        packages(("a", "1", "b>=2", "c"), ("b", "1.5")),
        ("a 1: b 1.5 is not >=2", "c is not installed"),
        "'b>=2' 'c'",
    ),
    # containers
    Case(
        "container-states",
        "ok",
        engine(("train", "running", "Up 2 hours (healthy)"), ("old", "exited", "Exited (0)")),
        ("1 running, 1 stopped",),
    ),
    Case("container-states", "not applicable", nothing),
    Case(
        "container-states",
        "warning",
        engine(("db", "running", "Up 2 hours (unhealthy)")),
        ("db: up 2 hours (unhealthy)",),
        "trainvitals diagnose db",
    ),
    Case("container-states", "problem", silent_engine, ("the engine",), "service docker restart"),
    Case("container-toolkit", "ok", both(engine(runtimes=("runc", "nvidia")), gpus())),
    Case(
        "container-toolkit",
        "ok",
        both(docker, lambda p: p.write("root/etc/cdi/nvidia.yaml", "kind: nvidia.com/gpu\n")),
    ),
    Case("container-toolkit", "problem", docker, ("is not installed",), "nvidia-container-toolkit"),
    Case(
        "container-toolkit",
        "problem",
        both(docker, lambda p: p.put_program("nvidia-ctk")),
        ("is not configured for it",),
        "nvidia-ctk runtime configure",
    ),
    Case(
        "container-toolkit",
        "problem",
        both(engine(), gaudi),
        ("habana",),
        "habanalabs-container-runtime",
    ),
    Case("container-toolkit", "not applicable", engine()),
    Case("docker-logging", "ok", daemon('{"log-driver": "local", "live-restore": true}')),
    Case(
        "docker-logging",
        "warning",
        daemon("{}"),
        ("logs grow until the disk is full",),
        "docker-logging --apply",
    ),
    Case(
        "docker-logging",
        "problem",
        daemon('{"log-opts": {"max-size": 100}}'),
        ("must be a string",),
    ),
    Case("docker-logging", "problem", daemon("{,}"), ("does not start",)),
    Case("docker-logging", "not applicable", nothing),
    # the run directory
    Case("run-directory", "not applicable", nothing),
    Case("run-directory", "ok", run_directory(0o1777)),
    Case(
        "run-directory", "warning", run_directory(0o777), ("every user may remove",), "chmod 1777"
    ),
    Case(
        "run-directory", "warning", run_directory(0o1777, is_ours=False), ("belongs to user",), "mv"
    ),
    # limits
    Case("shared-memory", "ok", lambda p: p.set_space(32, 31)),
    Case("shared-memory", "warning", lambda p: p.set_space(2, 2), ("2.0 GiB",), "remount,size=16G"),
    Case(
        "shared-memory",
        "problem",
        both(container, lambda p: p.set_space(0.0625, 0.0625)),
        ("64.0 MiB",),
        "--shm-size=16g",
    ),
    Case("shared-memory", "warning", lambda p: p.set_space(32, 1), command="ls -lhS /dev/shm"),
    Case("shared-memory", "problem", nothing, ("no such file",), "mount -t tmpfs"),
    Case("open-files", "ok", lambda p: p.set_limit(65536, 1048576)),
    Case("open-files", "ok", lambda p: p.set_limit(-1, -1), ("no limit",)),
    Case("open-files", "warning", lambda p: p.set_limit(1024, 1048576), command="ulimit -n 65536"),
    Case("open-files", "problem", lambda p: p.set_limit(256, 256), command="limits.d"),
    Case("locked-memory", "not applicable", lambda p: p.set_limit(8 << 20, 8 << 20)),
    Case("locked-memory", "ok", both(rdma, lambda p: p.set_limit(-1, -1))),
    Case(
        "locked-memory",
        "problem",
        both(rdma, lambda p: p.set_limit(8 << 20, 8 << 20)),
        ("8.0 MiB",),
        "memlock unlimited",
    ),
    Case("processes", "ok", lambda p: p.set_limit(96365, 96365)),
    Case("processes", "ok", both(lambda p: p.world.update(user=0), groups(20000, 5))),
    Case("processes", "warning", lambda p: p.set_limit(2048, 2048)),
    Case("processes", "problem", lambda p: p.set_limit(512, 4096), command="ulimit -u 4096"),
    Case("processes", "problem", groups(2000, 1900), ("100 more",), "TasksMax"),
    # disks
    Case("disk-space", "ok", lambda p: p.set_space(1000, 500), ("/ 500 GiB of",)),
    Case(
        "disk-space",
        "warning",
        lambda p: p.set_space(1000, 40),
        ("/ nearly full: 40.0 GiB of 1000 GiB are free",),
    ),
    Case(
        "disk-space",
        "warning",
        lambda p: p.set_space(1000, 500, left=30_000),
        ("3% of its inodes",),
    ),
    Case("disk-space", "problem", lambda p: p.set_space(1000, 0.1), command="du -xh"),
    Case("checkpoint-space", "ok", lambda p: p.set_space(1000, 500)),
    Case("checkpoint-space", "warning", lambda p: p.set_space(1000, 15)),
    Case("checkpoint-space", "problem", lambda p: p.set_space(1000, 1), ("1.0 GiB",), "du -xh"),
    Case(
        "checkpoint-space",
        "ok",
        both(lambda p: p.set_space(1000, 15), lambda p: p.wish(checkpoint_bytes=7 << 30)),
        ("room for 2",),
    ),
    Case(
        "checkpoint-space",
        "problem",
        both(lambda p: p.set_space(1000, 500), lambda p: p.wish(checkpoint_bytes=300 << 30)),
        ("room for 1",),
    ),
    Case("checkpoint-inodes", "ok", lambda p: p.set_space(10, 9)),
    Case("checkpoint-inodes", "warning", lambda p: p.set_space(10, 9, left=30_000)),
    Case(
        "checkpoint-inodes",
        "warning",
        lambda p: p.set_space(10, 9, left=500),
        ("500 of 1,000,000",),
        "--inodes",
    ),
    Case("checkpoint-inodes", "not applicable", lambda p: p.set_space(10, 9, files=0, left=0)),
    Case("checkpoint-access", "ok", checkpoints("runs/new"), ("can be created in",)),
    Case(
        "checkpoint-access",
        "problem",
        both(lambda p: p.set_space(10, 9, flags=os.ST_RDONLY), checkpoints("runs")),
        ("read-only",),
    ),
    Case(
        "checkpoint-access",
        "problem",
        both(lambda p: p.write("runs", ""), checkpoints("runs/x")),
        ("is a file",),
    ),
    # host
    Case("memory", "ok", nothing, ("48.0 GiB of 64.0 GiB available",)),
    Case("memory", "problem", lambda p: p.set_memory(64, 6)),
    Case("memory", "ok", lambda p: p.set_memory(16, 1.9)),
    Case("memory", "problem", lambda p: p.set_memory(64, 1), ("1.0 GiB",), "ps -eo"),
    Case(
        "memory",
        "problem",
        both(container, lambda p: p.write("sys/fs/cgroup/memory.max", f"{1 << 30}\n")),
        ("1.0 GiB of this container",),
    ),
    Case("swap", "ok", nothing),
    Case("swap", "ok", lambda p: p.set_memory(swap_gib=0), ("none",)),
    Case("swap", "warning", lambda p: p.set_memory(used=0.5), ("4.0 GiB of 8.0 GiB",)),
    Case("swap", "problem", lambda p: p.set_memory(used=0.95), command="swapoff"),
    Case("clock", "ok", clock(synchronized=True), ("1ms off",)),
    Case("clock", "warning", clock(synchronized=False), ("not synchronized",), "chrony"),
    Case("clock", "warning", clock(synchronized=True, offset=-31.0), ("31s off",)),
    Case("clock", "ok", clock(synchronized=True, offset=-2.5)),
    Case(
        "clock",
        "problem",
        clock(synchronized=True, time=86_400.0),
        ("before this program was installed",),
    ),
    # network
    Case("route", "ok", nothing, ("eth0",)),
    Case(
        "route",
        "ok",
        both(
            lambda p: p.write("proc/net/route", ""),
            lambda p: p.write(
                "proc/net/ipv6_route",
                f"{'0' * 32} 00 {'0' * 32} 00 fe800000000000000000000000000001 00000400 00000001 00000000 00000003     ens3\n",
            ),
        ),
        ("ens3",),
    ),
    Case(
        "route",
        "warning",
        both(
            lambda p: p.write("proc/net/route", "Iface\tDestination\nlo\t0000007F\n"),
            lambda p: p.write(
                "proc/net/ipv6_route",
                f"{'0' * 32} 00 {'0' * 32} 00 {'0' * 32} ffffffff 00000001 00000000 00200200       lo\n",
            ),
        ),
    ),
    Case("names", "ok", nothing, ("resolved localhost",)),
    Case(
        "names",
        "problem",
        environ(MASTER_ADDR="no such host"),
        ("no such host cannot be resolved",),
        "resolv.conf",
    ),
    Case(
        "names",
        "warning",
        lambda p: p.world.update(hostname="gpu-07 "),
        ("the name of this machine",),
        "/etc/hosts",
    ),
    Case("reach", "ok", reach, ("127.0.0.1:",)),
    Case("reach", "not applicable", nothing),
    Case("reach", "problem", refuse, ("connection refused",), "nc -vz"),
    Case("ports", "ok", nothing, ("9200, 9090, 9093, 3000 free",)),
    Case("ports", "problem", port(), (f"(pid {os.getpid()})",), f"kill {os.getpid()}"),
    Case("ports", "problem", lambda p: p.environ.update(MASTER_PORT=str(p.listen()))),
    Case(
        "ports",
        "warning",
        lambda p: p.hold(9090, 9091, user=0),
        ("9090", "root", "Prometheus"),
        "PROMETHEUS_PORT=9092",
    ),
    # credentials
    Case(
        "needed-variables",
        "ok",
        both(environ(API_KEY=KEY), lambda p: p.wish(needed=("API_KEY",))),
        ("API_KEY",),
    ),
    Case(
        "needed-variables",
        "problem",
        lambda p: p.wish(needed=("HF_TOKEN",)),
        ("HF_TOKEN",),
        "read -rs HF_TOKEN",
    ),
    Case("needed-variables", "not applicable", nothing),
    Case(
        "huggingface-token",
        "ok",
        issuer("HF_ENDPOINT", "HF_TOKEN", TOKEN, (200, {"name": "ann"})),
        ("of ann",),
    ),
    Case(
        "huggingface-token",
        "problem",
        issuer("HF_ENDPOINT", "HF_TOKEN", TOKEN, (401, {})),
        ("does not accept",),
        "hf auth login",
    ),
    Case("huggingface-token", "problem", environ(HF_TOKEN=f"{TOKEN} "), ("a space",)),
    Case(
        "huggingface-token",
        "warning",
        environ(HF_TOKEN=TOKEN, HF_ENDPOINT="http://127.0.0.1:1"),
        ("was not checked", "refused"),
    ),
    Case("huggingface-token", "not applicable", environ(HF_TOKEN=TOKEN, HF_HUB_OFFLINE="1")),
    Case(
        "wandb-key",
        "ok",
        issuer(
            "WANDB_BASE_URL",
            "WANDB_API_KEY",
            KEY,
            (200, {"data": {"viewer": {"id": "x", "username": "ann"}}}),
        ),
        ("ann",),
    ),
    Case(
        "wandb-key",
        "problem",
        issuer("WANDB_BASE_URL", "WANDB_API_KEY", KEY, (200, {"data": {"viewer": None}})),
        ("does not accept",),
        "wandb login",
    ),
    Case("wandb-key", "not applicable", environ(WANDB_API_KEY=KEY, WANDB_MODE="offline")),
    Case(
        "github-token",
        "ok",
        issuer("GITHUB_API_URL", "GH_TOKEN", "ghp_" + "a1" * 18, (200, {"rate": {"limit": 5000}})),
    ),
    Case(
        "github-token",
        "problem",
        issuer("GITHUB_API_URL", "GITHUB_TOKEN", "ghp_" + "a1" * 18, (401, {})),
        ("GITHUB_TOKEN",),
    ),
)
