"""The run, rank and attempt of this process, from the environment variables set by its launcher.

**Ranks.** Launchers can be nested: for example, `srun` starts `torchrun`, or a batch script starts
`mpirun`. The innermost launcher is authoritative, so the launchers' variables are read in the order
of `_LAUNCHERS`. Slurm is late in this order because it also sets `SLURM_PROCID=0` for a batch
script, and all processes started by `mpirun` inherit this value. Values that the inner launcher
does not set are taken from an outer launcher if both launchers report the same rank. If no launcher
reports more than one rank, the ranks are read from PyTorch's process group if it exists, because
`torch.multiprocessing.spawn` sets no environment variables.

**Run name.** The name is the first of the following that is set: the caller's name,
`TRAINVITALS_RUN`, `WANDB_RUN_ID`, `MLFLOW_RUN_ID`, the Slurm job ID (with the array task:
`4711_3`), `TORCHELASTIC_RUN_ID` unless it is "none", and the pod name without the replica (so that
all pods of a job have the same run name). Otherwise the name consists of the script name and a mark
that is shared by all ranks of this launch and by no other launch:

- for a single process, the time at which the name is first needed;
- on one machine, the start time of the launcher, which is the parent process, so that the name
  is the same after restarts by `torchrun`. Lightning starts the other ranks from the first rank,
  which then has no RANK: rank 0 uses its own start time, and the other ranks use the start time
  of their parent. If Lightning forks or spawns all ranks, including the first, all ranks have the
  same parent;
- on several machines, MASTER_ADDR and MASTER_PORT. Two consecutive launches can have the same
  values: in this case set a run name, or pass `--rdzv-id` to `torchrun`.
"""

from __future__ import annotations

import os
import re
import sys
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from types import ModuleType

from trainvitals.foreign_numbers import read_digits
from trainvitals.foreign_text import clean_label
from trainvitals.units import format_stamp

_MOST_NAME_BYTES = 80
_MOST_NUMBER = 2**31 - 1
_STARTTIME_AFTER_COMMAND = 19  # field 22 of /proc/PID/stat, counted from field 3 as 0

# The suffix that training operators append to a job's name for each pod.
_REPLICA = re.compile(r"-(?:master|worker|chief|launcher|node)(?:-\d+)+(?:-[a-z0-9]{5})?$")


@dataclass(frozen=True, slots=True)
class Launch:
    """The run name, the ranks and the attempt of a training process.

    Attributes:
        run: The run name: printable, without "/" and "`", 1 to 80 bytes of UTF-8.
        rank: The rank among all processes of the run, starting from 0; 0 if no launcher sets a
            rank.
        local_rank: The rank of the process on this machine; -1 if this rank is unknown.
        node_rank: The rank of this machine among the run's machines; -1 if this rank is unknown.
        world_size: The number of processes in the run; 0 if the number is unknown.
        attempt: The number of previous restarts of the run; 0 if no launcher counts restarts.
    """

    run: str
    rank: int
    local_rank: int
    node_rank: int
    world_size: int
    attempt: int


@dataclass(frozen=True, slots=True)
class _Launcher:
    """The variables of a launcher; of several variables, the first with a number is used."""

    rank: tuple[str, ...]
    local_rank: tuple[str, ...] = ()
    node_rank: tuple[str, ...] = ()
    world_size: tuple[str, ...] = ()


_LAUNCHERS = (
    _Launcher(("RANK",), ("LOCAL_RANK",), ("GROUP_RANK", "NODE_RANK"), ("WORLD_SIZE",)),
    _Launcher(("HOROVOD_RANK",), ("HOROVOD_LOCAL_RANK",), (), ("HOROVOD_SIZE",)),
    _Launcher(
        ("OMPI_COMM_WORLD_RANK",),
        ("OMPI_COMM_WORLD_LOCAL_RANK",),
        (),
        ("OMPI_COMM_WORLD_SIZE",),
    ),
    _Launcher(("PMI_RANK", "PMIX_RANK"), ("MPI_LOCALRANKID",), (), ("PMI_SIZE",)),
    # SLURM_NTASKS is not used, because in a batch script it describes a job step that has not
    # started yet.
    _Launcher(("SLURM_PROCID",), ("SLURM_LOCALID",), ("SLURM_NODEID",), ("SLURM_STEP_NUM_TASKS",)),
    # Lightning's own launcher; the rank is correct on the first machine.
    _Launcher(("LOCAL_RANK",), ("LOCAL_RANK",), ("NODE_RANK",), ("WORLD_SIZE",)),
)
_LOCAL_SIZES = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "LOCAL_SIZE")


def read_launch(
    *,
    run: str | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    attempt: int | None = None,
    environ: Mapping[str, str] = os.environ,
    script: str | None = None,
    started: float | None = None,
    procfs: Path = Path("/proc"),
    parent: int | None = None,
    modules: Mapping[str, ModuleType] = sys.modules,
) -> Launch:
    """Return the run name, rank and attempt of this process.

    Arguments take precedence over environment variables. A variable whose value is not numeric or
    is negative is ignored.

    Args:
        run: The run name, which is made printable and cut to 80 bytes; None to derive the name from
            the environment.
        rank: The rank among all processes of the run; None to read the rank from the environment.
        world_size: The number of processes in the run; None to read the number from the
            environment.
        attempt: The number of previous restarts; None to read the number from the environment.
        environ: The environment variables.
        script: The path of the program's file; None for `sys.argv[0]`.
        started: The time in Unix seconds that identifies the launch of a single process; None for
            the current time.
        procfs: The path of the procfs from which the launcher's start time is read.
        parent: The ID of the parent process; None for the actual parent.
        modules: The loaded modules; torch is never imported.
    """
    found = _find_ranks(environ)
    if found.world_size <= 1:
        found = _ask_process_group(found, modules)
    if rank is not None:
        found = replace(found, rank=int(rank))
    if world_size is not None:
        found = replace(found, world_size=int(world_size))
    attempts = _count_attempts(environ) if attempt is None else int(attempt)
    given = map(clean_name, ("" if run is None else str(run), *_given_names(environ)))
    name = next(filter(None, given), "")
    if not name:
        beginning = time.time() if started is None else started
        launcher = os.getppid() if parent is None else parent
        starts_others = _starts_others(found, environ, modules)
        mark = _shared_mark(found, environ, procfs, "self" if starts_others else str(launcher))
        mark = mark or format_stamp(beginning)
        name = clean_name(f"{_script_stem(script)}-{mark}")
    return replace(found, run=name, attempt=attempts)


def clean_name(text: str) -> str:
    """Return a text as a valid run name: printable, at most 80 bytes of UTF-8, without "/" and "`".

    The dashboards' queries quote the name in backticks, so a backtick in the name would end it.

    A cut name ends with a checksum of the complete name, so that names that differ only at the end
    remain different. A text that contains only white space results in an empty name.
    """
    name = clean_label(text.strip(), forbidden="/`")
    data = name.encode()
    if len(data) <= _MOST_NAME_BYTES:
        return name
    checksum = f"~{zlib.crc32(data):08x}"
    return data[: _MOST_NAME_BYTES - len(checksum)].decode(errors="ignore") + checksum


def _find_ranks(environ: Mapping[str, str]) -> Launch:
    rank: int | None = None
    local_rank: int | None = None
    node_rank: int | None = None
    world_size: int | None = None
    for launcher in _LAUNCHERS:
        its_rank = _find_number(environ, launcher.rank)
        if its_rank is None or rank not in (None, its_rank):
            continue
        rank = its_rank
        local_rank = _first(local_rank, _find_number(environ, launcher.local_rank))
        node_rank = _first(node_rank, _find_number(environ, launcher.node_rank))
        world_size = _first(world_size, _find_number(environ, launcher.world_size))
    return Launch(
        run="",
        rank=rank or 0,
        local_rank=-1 if local_rank is None else local_rank,
        node_rank=-1 if node_rank is None else node_rank,
        world_size=world_size or 0,
        attempt=0,
    )


def _ask_process_group(found: Launch, modules: Mapping[str, ModuleType]) -> Launch:
    distributed = getattr(modules.get("torch"), "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return found
    size = int(distributed.get_world_size())
    return replace(found, rank=int(distributed.get_rank()), world_size=size) if size > 1 else found


def _first(known: int | None, other: int | None) -> int | None:
    return other if known is None else known


def _find_number(environ: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    for name in names:
        number = read_digits(environ.get(name, "").strip(), _MOST_NUMBER)
        if number is not None:
            return number
    return None


def _count_attempts(environ: Mapping[str, str]) -> int:
    """Return the number of restarts by `torchrun` plus the number of restarts by Slurm."""
    counters = ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT")
    return sum(_find_number(environ, (name,)) or 0 for name in counters)


def _given_names(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the run names in the environment by precedence; a missing name is an empty string."""
    return (
        environ.get("TRAINVITALS_RUN", ""),
        environ.get("WANDB_RUN_ID", ""),
        environ.get("MLFLOW_RUN_ID", ""),
        _slurm_name(environ),
        _elastic_name(environ),
        _pod_name(environ),
    )


def _slurm_name(environ: Mapping[str, str]) -> str:
    array, task = environ.get("SLURM_ARRAY_JOB_ID"), environ.get("SLURM_ARRAY_TASK_ID")
    if array and task:
        return f"{array}_{task}"
    return environ.get("SLURM_JOB_ID", "")


def _elastic_name(environ: Mapping[str, str]) -> str:
    name = environ.get("TORCHELASTIC_RUN_ID", "")
    return "" if name.lower() == "none" else name


def _pod_name(environ: Mapping[str, str]) -> str:
    name = environ.get("POD_NAME", "")
    if not name and "KUBERNETES_SERVICE_HOST" in environ:
        name = environ.get("HOSTNAME", "")
    return _REPLICA.sub("", name)


def _script_stem(script: str | None) -> str:
    """Return the program's file name without suffix, or the directory's name for `__main__.py`."""
    path = PurePath((sys.argv or [""])[0] if script is None else script)
    stem = path.parent.name if path.name == "__main__.py" else path.stem
    return stem.lstrip("-") or "python"


def _shared_mark(
    found: Launch, environ: Mapping[str, str], procfs: Path, launcher: str
) -> str | None:
    """Return the mark that all ranks share; None for a single process or an unknown mark."""
    is_elastic = "TORCHELASTIC_RUN_ID" in environ
    if not is_elastic and found.world_size <= 1 and found.rank == 0:
        return None
    local_size = _find_number(environ, _LOCAL_SIZES)
    node_count = _find_number(environ, ("GROUP_WORLD_SIZE",)) or 1
    if node_count > 1 or (local_size is not None and local_size < found.world_size):
        address, port = environ.get("MASTER_ADDR"), environ.get("MASTER_PORT")
        return f"{address}-{port}" if address and port else None
    start = _start_of(launcher, procfs)
    return None if start is None else format_stamp(start)


def _starts_others(
    found: Launch, environ: Mapping[str, str], modules: Mapping[str, ModuleType]
) -> bool:
    """Return whether this process is the first rank, which starts the other ranks."""
    processes = modules.get("multiprocessing.process")
    return (
        found.local_rank == 0
        and "RANK" not in environ
        and "LOCAL_RANK" in environ
        and (processes is None or processes.parent_process() is None)
    )


def _start_of(process: str, procfs: Path) -> float | None:
    """Return a process's start time in Unix seconds; None if `/proc` does not provide the time."""
    try:
        stat = (procfs / process / "stat").read_bytes()
        boot = re.search(rb"^btime (\d+)$", (procfs / "stat").read_bytes(), re.MULTILINE)
        ticks = int(stat.rpartition(b")")[2].split()[_STARTTIME_AFTER_COMMAND])
    except (OSError, ValueError, IndexError):
        return None
    return None if boot is None else int(boot[1]) + ticks / os.sysconf("SC_CLK_TCK")
