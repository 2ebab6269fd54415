"""A lower bound for comparison: about the least Python code that serves host and GPU metrics.

    python -m bench.floor PORT

It uses raw reads of `/proc`, NVML functions that are bound once, one template for the page and one
loop for the sockets. The indispensable parts of a real exporter exist in their cheapest form: a
persistent worker and a deadline for each of the two sources. It lacks meaningful names, units,
handling of failed calls, bounds, recovery, and every limit on clients.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import selectors
import socket
import sys
import threading
import time
import zlib
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

DEADLINE_SECONDS = 2.0

Reading = tuple[object, list[object]]  # the key of the template, and a value for each name

_CPU_MODES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
_PROC_FILES = ("stat", "meminfo", "diskstats", "net/dev", "loadavg", "vmstat")
_UINT, _ULONG = ctypes.c_uint, ctypes.c_ulonglong
_GPU_CALLS = (
    ("UtilizationRates", (), _UINT * 2),
    ("MemoryInfo", (), _ULONG * 3),
    ("BAR1MemoryInfo", (), _ULONG * 3),
    ("PowerUsage", (), _UINT),
    ("EnforcedPowerLimit", (), _UINT),
    ("TotalEnergyConsumption", (), _ULONG),
    ("Temperature", (0,), _UINT),
    ("PerformanceState", (), _UINT),
    ("CurrentClocksThrottleReasons", (), _ULONG),
    ("CurrPcieLinkGeneration", (), _UINT),
    ("CurrPcieLinkWidth", (), _UINT),
    ("PcieReplayCounter", (), _UINT),
    *(("ClockInfo", (clock,), _UINT) for clock in range(4)),
    *(("MaxClockInfo", (clock,), _UINT) for clock in range(4)),
    *(("TotalEccErrors", (kind, counter), _ULONG) for kind in (0, 1) for counter in (0, 1)),
    *(("ViolationStatus", (policy,), _ULONG * 2) for policy in range(6)),
    *(("NvLinkState", (link,), _UINT) for link in range(18)),
)


class Host:
    """The host metrics, read from a few files that stay open."""

    def __init__(self) -> None:
        self._files = [os.open(f"/proc/{name}", os.O_RDONLY) for name in _PROC_FILES]
        self._ticks = os.sysconf("SC_CLK_TCK")

    def _read(self) -> list[str]:
        return [os.pread(file, 1 << 16, 0).decode() for file in self._files]

    def read(self) -> Reading:
        """Read all host metrics."""
        stat, meminfo, diskstats, net, loadavg, vmstat = self._read()
        shape: list[object] = []
        values: list[object] = []
        for line in stat.splitlines():
            if line.startswith("cpu") and line[3] != " ":
                values += [int(ticks) / self._ticks for ticks in line.split()[1:9]]
        memory = meminfo.split()
        shape.append(len(memory))
        values += [int(line.split()[1]) << 10 for line in meminfo.splitlines()]
        for line in diskstats.splitlines():
            words = line.split()
            shape.append(words[2])
            values += words[3:14]
        for line in net.splitlines()[2:]:
            device, _, numbers = line.partition(":")
            shape.append(device)
            values += numbers.split()
        values += loadavg.split()[:3]
        values += vmstat.split()[1::2]
        shape.append(len(values))
        return tuple(shape), values

    def name(self) -> list[str]:
        """Return the sample names of the values in the order of `read`."""
        stat, meminfo, diskstats, net, _, vmstat = self._read()
        cpus = [line[3 : line.index(" ")] for line in stat.splitlines() if line[:3] == "cpu"]
        disks = [line.split()[2] for line in diskstats.splitlines()]
        devices = [line.partition(":")[0].strip() for line in net.splitlines()[2:]]
        kinds = [line.partition(":")[0] for line in meminfo.splitlines()]
        return [
            *(
                f'cpu_seconds{{cpu="{cpu}",mode="{mode}"}}'
                for cpu in cpus
                if cpu
                for mode in _CPU_MODES
            ),
            *(f"memory_{kind.replace('(', '_').replace(')', '')}_bytes" for kind in kinds),
            *(f'disk_column_{column}{{device="{disk}"}}' for disk in disks for column in range(11)),
            *(
                f'network_column_{column}{{device="{name}"}}'
                for name in devices
                for column in range(16)
            ),
            *(f"load_{minutes}" for minutes in (1, 5, 15)),
            *(f"vmstat_{name}" for name in vmstat.split()[::2]),
        ]


class Gpus:
    """The GPU metrics, read by calls whose arguments and results are bound once."""

    def __init__(self) -> None:
        library = ctypes.CDLL("libnvidia-ml.so.1")
        library.nvmlInit_v2()
        count = _UINT()
        library.nvmlDeviceGetCount_v2(ctypes.byref(count))
        self._calls: list[tuple[Callable[..., int], tuple[object, ...]]] = []
        self._results: list[Any] = []
        self._names: list[str] = []
        for index in range(count.value):
            device = ctypes.c_void_p()
            library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device))
            self._bind(library, device, index)

    def _bind(self, library: ctypes.CDLL, device: ctypes.c_void_p, index: int) -> None:
        uuid = ctypes.create_string_buffer(96)
        library.nvmlDeviceGetUUID(device, uuid, 96)
        labels = f'{{gpu="{index}",uuid="{uuid.value.decode()}"}}'
        for call, arguments, kind in _GPU_CALLS:
            result = kind()
            function = getattr(library, f"nvmlDeviceGet{call}")
            self._calls.append((function, (device, *arguments, ctypes.byref(result))))
            self._results.append(result)
            name = "_".join(("gpu", call.lower(), *map(str, arguments)))
            members = len(result) if isinstance(result, ctypes.Array) else 1
            self._names += [f"{name}_{member}{labels}" for member in range(members)]

    def read(self) -> Reading:
        """Read the metrics of all GPUs."""
        values: list[object] = []
        for (function, arguments), result in zip(self._calls, self._results, strict=True):
            function(*arguments)
            if isinstance(result, ctypes.Array):
                values += result
            else:
                values.append(result.value)
        return None, values

    def name(self) -> list[str]:
        """Return the sample names of the values in the order of `read`."""
        return self._names


class Part:
    """The host or the GPUs, with the worker that reads this source and the template of its text."""

    def __init__(self, source: Host | Gpus) -> None:
        self._source = source
        self._bell: SimpleQueue[SimpleQueue[Reading]] = SimpleQueue()
        self._hangs = False
        self._shape: object = self
        self._template = ""
        threading.Thread(target=self._work, daemon=True).start()

    def begin(self) -> SimpleQueue[Reading] | None:
        """Request a reading from the worker; return None if an earlier reading has not ended."""
        if self._hangs:
            return None
        self._hangs = True
        box: SimpleQueue[Reading] = SimpleQueue()
        self._bell.put(box)
        return box

    def write(self, reading: Reading) -> str:
        """Return the text of a reading for the page."""
        shape, values = reading
        if shape != self._shape:
            self._shape, self._template = shape, self._make_template()
        return self._template % tuple(values)

    def _make_template(self) -> str:
        lines = []
        heads = set()
        for sample in self._source.name():
            name = sample.partition("{")[0]
            if name not in heads:
                heads.add(name)
                lines.append(f"# HELP {name} Lower bound.\n# TYPE {name} untyped\n")
            lines.append(sample.replace("%", "%%") + " %s\n")
        return "".join(lines)

    def _work(self) -> None:
        while True:
            box = self._bell.get()
            box.put(self._source.read())
            self._hangs = False


def write_page(parts: list[Part]) -> bytes:
    """Read all parts and return the page with those that met the deadline."""
    until = time.monotonic() + DEADLINE_SECONDS
    boxes = [(part, part.begin()) for part in parts]
    page = []
    for part, box in boxes:
        if box is not None:
            with contextlib.suppress(Exception):
                page.append(part.write(box.get(timeout=max(0.0, until - time.monotonic()))))
    return "".join(page).encode()


def answer(request: bytes, parts: list[Part]) -> bytes:
    """Return the HTTP response to a request, compressed if the client accepts gzip."""
    page = write_page(parts)
    encoding = b""
    if b"gzip" in request:
        press = zlib.compressobj(1, wbits=31)
        page = press.compress(page) + press.flush()
        encoding = b"Content-Encoding: gzip\r\n"
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n%bContent-Length: %d\r\n\r\n"
    return head % (encoding, len(page)) + page


def serve(port: int) -> None:
    """Serve requests for ever."""
    parts = [Part(Host()), Part(Gpus())]
    selector = selectors.DefaultSelector()
    listener = socket.create_server(("127.0.0.1", port), backlog=1024)
    selector.register(listener, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.fileobj is listener:
                client, _ = listener.accept()
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                selector.register(client, selectors.EVENT_READ)
                continue
            request = key.fileobj.recv(1 << 14)
            if request:
                key.fileobj.sendall(answer(request, parts))
            if not request or b"Connection: close" in request:
                selector.unregister(key.fileobj)
                key.fileobj.close()


if __name__ == "__main__":
    serve(int(sys.argv[1]))
