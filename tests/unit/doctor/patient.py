"""A fake machine to examine: its file systems, drivers, Python and network services."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.fakes.machine import FakeMachine
from tests.support.engine_stand_in import EngineStandIn
from trainvitals.doctor import CHECKS, CheckRun, Finding, Machine, Options, run_checks
from trainvitals.http.listen import PortHolder, find_port_holder
from trainvitals.sources.accelerators.vendors import VENDORS
from trainvitals.sources.files import Roots

GIB = 1 << 30
NVIDIA, HABANA = "0x10de", "0x1da3"
GPU, SWITCH, HPU = "0x030200", "0x068000", "0x120000"
MEMINFO = """\
MemTotal:       {total} kB
MemFree:         1000000 kB
MemAvailable:   {available} kB
Buffers:          100000 kB
Cached:          2000000 kB
SwapTotal:      {swap} kB
SwapFree:       {swap_free} kB
Dirty:               100 kB
Shmem:            200000 kB
"""


class Patient:
    """A minimal machine without problems, which a test can change.

    `/proc`, `/sys` and `/` are directories; processes, sockets and disks are real.

    Args:
        folder: The directory of the machine's files.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.proc, self.sys, self.root = folder / "proc", folder / "sys", folder / "root"
        for each in (self.proc, self.sys, self.root, folder / "bin", folder / "home"):
            each.mkdir()
        self.environ = {
            "PATH": str(folder / "bin"),
            "HOME": str(folder / "home"),
            "TRAINVITALS_RUN_DIR": str(folder / "runs"),
        }
        self.wishes = Options(checkpoints=folder, engine="none")
        self.world: dict[str, object] = {
            "hostname": "localhost",
            "user": 1000,
            "fetch_page": lambda *_, **__: None,
            "find_holder": self._find_holder,
        }
        self.kinds: set[str] = set()
        self._listened: set[int] = set()
        self.stack = ExitStack()
        self._python: Path | None = None
        self.set_memory()
        self.write("proc/stat", "cpu  1 2 3 4\nbtime 1795299000\n")
        self.write("proc/1/mountinfo", "22 1 259:1 / / rw - ext4 /dev/nvme0n1p1 rw\n")
        self.write("proc/net/tcp", "  sl  local_address rem_address   st\n")
        self.write("proc/net/route", "Iface\tDestination\tGateway\neth0\t00000000\t0100A8C0\n")
        (self.root / "dev").mkdir()

    def write(self, path: str, text: str) -> Path:
        """Write a file below the directory of the machine and return its path."""
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def wish(self, **wishes: object) -> None:
        """Set options that a user would pass to `trainvitals doctor`."""
        self.wishes = replace(self.wishes, **wishes)  # type: ignore[arg-type]

    def look(self, *names: str, timeout_seconds: float = 20.0) -> CheckRun:
        """Run the named checks and return their results."""
        vendors = tuple(
            replace(vendor, is_installed=lambda kind=vendor.kind: kind in self.kinds)
            for vendor in VENDORS
        )
        world = Machine(
            roots=Roots(self.proc, self.sys, self.root),
            environ=self.environ,
            vendors=vendors,
            **self.world,  # type: ignore[arg-type]
        )
        checks = [check for check in CHECKS if check.name in names]
        return run_checks(self.wishes, checks, machine=world, timeout_seconds=timeout_seconds)

    def find(self, name: str) -> Finding:
        """Run one check and return its finding."""
        (result,) = self.look(name).results
        return result.finding

    # -- the host ----------------------------------------------------------------------------

    def set_memory(
        self, total_gib: float = 64, available_gib: float = 48, swap_gib: float = 8, used: float = 0
    ) -> None:
        """Set the sizes of memory and swap; `used` is the used fraction of the swap."""
        kb = [round(gib * GIB / 1024) for gib in (total_gib, available_gib, swap_gib)]
        total, available, swap = kb
        free = round(swap * (1 - used))
        self.write(
            "proc/meminfo",
            MEMINFO.format(total=total, available=available, swap=swap, swap_free=free),
        )

    def set_space(
        self,
        size_gib: float,
        free_gib: float,
        files: int = 1000000,
        left: int = 900000,
        flags: int = 0,
    ) -> None:
        """Set the size and the free space of every file system."""
        blocks, free = (round(gib * GIB / 4096) for gib in (size_gib, free_gib))
        answer = os.statvfs_result((4096, 4096, blocks, free, free, files, left, left, flags, 255))
        self.world["statvfs"] = lambda _: answer

    def set_limit(self, soft: int, hard: int) -> None:
        """Set all resource limits."""
        self.world["get_limit"] = lambda _: (soft, hard)

    def put_program(self, name: str, *lines: str, code: int = 0) -> None:
        """Add a program to the `PATH` that prints these lines."""
        said = "".join(f"echo '{line}'\n" for line in lines)
        self.write(f"bin/{name}", f"#!/bin/sh\n{said}exit {code}\n").chmod(0o755)

    # -- accelerators ------------------------------------------------------------------------

    def plug(self, vendor: str, category: str, driver: str = "", *, count: int = 1) -> None:
        """Add PCI devices that are bound to a kernel driver, or to none."""
        for _ in range(count):
            number = len(list(self.sys.glob("bus/pci/devices/*")))
            folder = self.sys / f"bus/pci/devices/0000:{number:02x}:00.0"
            self.write(str(folder / "vendor"), f"{vendor}\n")
            self.write(str(folder / "class"), f"{category}\n")
            if driver:
                place = self.sys / "bus/pci/drivers" / driver
                place.mkdir(parents=True, exist_ok=True)
                (folder / "driver").symlink_to(place)

    def load_module(self, version: str = "570.124.06") -> None:
        """Pretend that NVIDIA's kernel module is loaded."""
        self.write(
            "proc/driver/nvidia/version",
            f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build\n",
        )

    def make_files(self, *names: str, mode: int = 0o666) -> None:
        """Create files in `/dev`; the default are the files of one GPU."""
        for name in names or ("nvidiactl", "nvidia-uvm", "nvidia0"):
            self.write(f"root/dev/{name}", "").chmod(mode)

    def add_accelerators(self, **counts: object) -> FakeMachine:
        """Add fake accelerators with their vendor's library, and return the fake machine."""
        machine = FakeMachine(self.folder, **counts)  # type: ignore[arg-type]
        self.stack.callback(machine.close)
        self.environ |= machine.environment()
        self.kinds |= {kind for kind in ("gpu", "hpu") if counts.get(f"{kind}s")}
        return machine

    def add_gpus(self, count: int = 2, **options: object) -> FakeMachine:
        """Add fake NVIDIA GPUs and return the fake machine."""
        return self.add_accelerators(gpus=count, **options)

    # -- Python ------------------------------------------------------------------------------

    @property
    def packages(self) -> Path:
        """The `site-packages` directory of a virtual environment, created on first access."""
        version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        place = self.folder / f"venv/lib/{version}/site-packages"
        if self._python is None:
            place.mkdir(parents=True)
            self.write("venv/pyvenv.cfg", f"home = {Path(sys.executable).resolve().parent}\n")
            self._python = self.folder / "venv/bin/python"
            self._python.parent.mkdir()
            self._python.symlink_to(Path(sys.executable).resolve())
            self.environ["VIRTUAL_ENV"] = str(self.folder / "venv")
        return place

    def install(self, name: str, version: str, *requires: str) -> None:
        """Write the metadata of an installed package."""
        folder = self.packages / f"{name.replace('-', '_')}-{version}.dist-info"
        lines = [f"Requires-Dist: {each}" for each in requires]
        head = "\n".join(["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *lines])
        self.write(str(folder / "METADATA"), f"{head}\n\nWhat it is.\nRequires-Dist: nothing\n")

    def install_torch(
        self,
        version: str,
        cuda: str | None,
        *requires: str,
        built: str = "",
        hip: str | None = None,
    ) -> None:
        """Write the files of PyTorch that are checked; `built` lists its CUDA architectures."""
        self.install("torch", version.partition("+")[0], *requires)
        folder = self.packages / "torch"
        self.write(
            str(folder / "version.py"),
            "from typing import Optional\n\n__all__ = ['__version__', 'debug', 'cuda']\n"
            f"__version__ = '{version}'\ndebug = False\ncuda: Optional[str] = {cuda!r}\n"
            f"git_version = 'abc'\nhip: Optional[str] = {hip!r}\n",
        )
        library = folder / "lib/libtorch_python.so"
        library.parent.mkdir()
        noise = b"\x7fELF" + bytes(5000) + b"\0sm_\0no sm_here\0" + bytes(5000)
        library.write_bytes(noise + built.encode() + b"\0" + bytes(100))

    def put_python(self, answer: str, *, code: int = 0) -> None:
        """Replace the Python of the training run with a program that prints this answer."""
        self.put_program("other-python", answer, code=code)
        self.wish(python=self.folder / "bin/other-python")

    # -- network services --------------------------------------------------------------------

    def start_engine(
        self, *containers: Mapping[str, str], runtimes: tuple[str, ...] = ("runc",)
    ) -> EngineStandIn:
        """Start a container engine; each container has a name, a state and a status."""
        engine = self.stack.enter_context(EngineStandIn(self.folder / "engine.sock"))
        listed = [
            {
                "Id": f"{number:064x}",
                "Names": [f"/{each['name']}"],
                "State": each["state"],
                "Status": each["status"],
            }
            for number, each in enumerate(containers)
        ]
        engine.put("/containers/json", listed)
        engine.put(
            "/info",
            {"Runtimes": {name: {} for name in runtimes}, "DockerRootDir": "/var/lib/docker"},
        )
        self.wish(engine=engine.address)
        return engine

    def listen(self, *, user: int = 1000) -> int:
        """Listen on a free port, list the port in `/proc/net/tcp`, and return its number."""
        listener = self.stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        port: int = listener.getsockname()[1]
        self.hold(port, user=user)
        self._listened.add(port)
        return port

    def _find_holder(self, port: int) -> PortHolder | None:
        return find_port_holder(port) if port in self._listened else None

    def hold(self, *ports: int, user: int = 1000) -> None:
        """List ports as listening in `/proc/net/tcp`."""
        lines = [
            f"   0: 0100007F:{port:04X} 00000000:0000 0A 00000000:00000000 00:00000000 00000000 "
            f"{user}        0 1503 1 0 100 0 0 10 0\n"
            for port in ports
        ]
        with (self.proc / "net/tcp").open("a") as file:
            file.writelines(lines)

    @contextmanager
    def issuer(self, *answers: tuple[int, object]) -> Iterator[IssuerStandIn]:
        """Start a token service that sends these answers in order and then repeats the last."""
        with IssuerStandIn(answers) as issuer:
            yield issuer


class IssuerStandIn:
    """A token service: an HTTP server that sends prepared answers and records received tokens.

    Args:
        answers: Statuses and bodies in order; a body of text is sent unchanged.

    Attributes:
        shown: The `Authorization` header of each request.
        elsewhere: The target of redirections.
    """

    def __init__(self, answers: tuple[tuple[int, object], ...]) -> None:
        self.shown: list[str | None] = []
        self.elsewhere = ""
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                stand_in.shown.append(self.headers.get("Authorization"))
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, body = answers[min(len(stand_in.shown), len(answers)) - 1]
                data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
                self.send_response(status)
                if stand_in.elsewhere:
                    self.send_header("Location", stand_in.elsewhere)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_POST = do_GET  # noqa: N815 - as its base has it

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    @property
    def address(self) -> str:
        """The URL of the server."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> IssuerStandIn:  # noqa: PYI034 - Self is not in Python 3.10
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
