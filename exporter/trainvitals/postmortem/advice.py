"""What the end of a run usually means, and what to do next."""

from __future__ import annotations

import math
import signal
from dataclasses import dataclass

from trainvitals.postmortem.cases import WELL, Run, Start
from trainvitals.postmortem.quantities import write_bytes, write_duration
from trainvitals.runfile import STATE, State
from trainvitals.sources.training.stalls import learn_threshold

_LITTLE_MEMORY = 0.05
_KILL = 9
_LONG_SECONDS, _LONG_STEPS = 5.0, 3.0
_FEW_NONFINITE = 0.05
_STATE = STATE["state"]
_MEANINGS_OF_SIGNALS = {
    1: "SIGHUP comes when the terminal or the SSH connection of a process closes.",
    2: "SIGINT is Ctrl-C, or a launcher that ends its ranks.",
    3: "SIGQUIT is Ctrl-\\, or a watchdog that wants a core dump.",
    4: "SIGILL: native code has instructions that this CPU does not know.",
    6: "SIGABRT: native code gave up, as NCCL's watchdog does after a timeout, or an assertion.",
    7: "SIGBUS: memory that was mapped is not there; most often /dev/shm is full.",
    8: "SIGFPE: native code divided by zero.",
    9: "SIGKILL comes from outside: the kernel's OOM killer, a scheduler at its limit, a launcher "
    "or engine that lost patience, or a person.",
    10: "SIGUSR1 is what Slurm sends ahead of a time limit; without a handler it kills.",
    11: "SIGSEGV: native code crashed, in an extension, a driver or a data library.",
    12: "SIGUSR2 is what Slurm sends ahead of a time limit; without a handler it kills.",
    15: "SIGTERM asks a process to end: a scheduler's time limit or preemption, `docker stop`, "
    "a shutdown, or a launcher after another rank died.",
    24: "SIGXCPU: the limit of CPU time (`ulimit -t`) is used up.",
    25: "SIGXFSZ: a file grew beyond `ulimit -f`.",
}
_STEPS_FOR_SIGNALS = {
    1: ("Start it in tmux, with nohup or as a systemd unit, so that it outlives the terminal.",),
    6: ("Read the last lines of its standard error; NCCL says there which collective timed out.",),
    7: ("Look at `df -h /dev/shm`; in a container give more with --shm-size or --ipc=host.",),
    11: ("Run it with `python -X faulthandler`: the next crash names the Python line.",),
}
_ASKED = ("Ask who ran it: `sacct -j JOB`, `docker inspect NAME`, `journalctl -u UNIT`.",)
_READ = "Read the traceback, at the end of what the script wrote to standard error."
_MEANINGS_OF_EXCEPTIONS = {
    "OutOfMemoryError": "The accelerator's memory did not suffice.",
    "MemoryError": "The machine, or a limit on the process, had no memory left for an allocation.",
    "KeyboardInterrupt": "Somebody pressed Ctrl-C, or a launcher sent SIGINT.",
    "SystemExit": "The script left with an exit code of its own.",
    "DistBackendError": "A collective failed: mostly because another rank died or hung before.",
    "DistNetworkError": "The ranks lost each other: mostly because another one died before.",
    "BrokenPipeError": "A process that it talked to was gone, such as a worker of the data loader.",
    "ConnectionResetError": "The other end of a connection was gone: often another rank.",
    "FileNotFoundError": "A file was not there: data, a checkpoint, or a mount that went away.",
    "PermissionError": "A file or folder may not be used by this user.",
    "OSError": "A file, disk or network failed; a full disk is the most frequent reason.",
}
_STEPS_FOR_EXCEPTIONS = {
    "OutOfMemoryError": ("Use a smaller batch or shorter sequences, or gradient checkpointing.",),
    "MemoryError": ("Use fewer workers or smaller caches, or raise the limit.",),
    "DistBackendError": ("Find the rank that died or hung first, also on the other machines.",),
    "DistNetworkError": ("Find the rank that died or hung first, also on the other machines.",),
    "OSError": ("Look at `df -h` and `df -i` of the folders that it writes to.",),
}
_MEANINGS_OF_PHASES = {
    "init": "It did not get as far as a first step: look at paths, settings and the loading of "
    "model and data.",
    "compile": "It was compiling.",
    "checkpoint": "It was writing a checkpoint: the newest file may be cut off; check it, or resume "
    "from the one before.",
}


@dataclass(frozen=True, slots=True)
class Advice:
    """What to think and to do.

    Attributes:
        meaning: What this usually means, a sentence each.
        steps: What to do next, the most useful first.
    """

    meaning: tuple[str, ...]
    steps: tuple[str, ...]


def advise(run: Run) -> Advice:
    """Explain a run by the start that tells the most."""
    start = run.telling
    if start.reason in WELL:
        return Advice(_explain_stall(start), _advise_on_stall(start))
    meaning = (*_explain_reason(start), *_explain_circumstances(start, run))
    steps = (*_advise_on_reason(start), *_advise_on_circumstances(start, run))
    return Advice(meaning, tuple(dict.fromkeys(steps)))


def name_signal(number: int) -> str:
    """Name a signal; its number where it has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _explain_stall(start: Start) -> tuple[str, ...]:
    if start.stall == "stopped":
        return ("Its process is stopped, by SIGSTOP, Ctrl-Z or a debugger.",)
    if start.stall == "no_progress":
        limit = write_duration(learn_threshold(start.record))
        return (f"It stands still: in this phase it should get on within {limit}.",)
    return ()


def _advise_on_stall(start: Start) -> tuple[str, ...]:
    pid = start.liveness.host_pid
    if start.stall is None or pid is None:
        return ()
    if start.stall == "stopped":
        return (f"Let it go on: `kill -CONT {pid}`.",)
    return (f"See where it hangs: `py-spy dump --pid {pid}`.",)


def _explain_reason(start: Start) -> tuple[str, ...]:
    ending = start.ending
    match start.reason:
        case "oom":
            return (
                "The memory limit of its control group (container, Slurm job, pod) was used up.",
            )
        case "signal" if ending is not None and ending.signal is not None:
            number = ending.signal
            meanings = [_MEANINGS_OF_SIGNALS.get(number, f"{name_signal(number)} killed it.")]
            if number == _KILL:
                meanings.append("No OOM kill was counted in its control group.")
            return tuple(meanings)
        case "exception" if ending is not None:
            return (_explain_exception(ending.exception),)
        case _:
            return _explain_silence(start)


def _explain_exception(exception: str | None) -> str:
    if exception is None:
        return "The script failed; its own output should say why."
    known = _MEANINGS_OF_EXCEPTIONS.get(_last_part(exception))
    return known or f"The script, or a library, raised {_last_part(exception)}."


def _explain_silence(start: Start) -> tuple[str, ...]:
    if start.record.state[_STATE] == State.SWITCHED_OFF:
        return (
            "The monitor had switched itself off after ten errors; what came after is unknown.",
        )
    return (
        "It ended without a word, as after SIGKILL, the OOM killer, a crash in native code or exit.",
        "No exporter was there to see which, or the kernel did not tell it.",
    )


def _explain_circumstances(start: Start, run: Run) -> tuple[str, ...]:
    found = []
    age, limit = start.progress_age_seconds, learn_threshold(start.record)
    if age is not None and limit is not None and age > limit:
        found.append(f"It had stood still for {write_duration(age)} before it died.")
        if start.phase in {"forward", "backward", "optimizer"} and (run.world_size or 0) > 1:
            found.append("In that phase a rank mostly waits for another one, in a collective.")
    if start.phase in _MEANINGS_OF_PHASES:
        found.append(_MEANINGS_OF_PHASES[start.phase])
    if start.phase == "data_wait" and _is_long(start):
        found.append("It was waiting for data: look at the storage, and at the loader's workers.")
    if _has_diverged(start):
        found.append("Losses were NaN or infinite: the training had diverged before it died.")
    left = _memory_left(start)
    if left is not None and start.reason != "oom":
        likely = ": the OOM killer is likely" if start.reason in {"signal", "unknown"} else ""
        found.append(f"The machine had only {write_bytes(left)} of memory left{likely}.")
    return tuple(found)


def _advise_on_reason(start: Start) -> tuple[str, ...]:
    ending, pid = start.ending, start.liveness.host_pid
    process = f" {pid}" if pid is not None else ""
    kernel = f"Ask the kernel: `dmesg -T | grep -i 'killed process{process}'`."
    match start.reason:
        case "oom":
            return (
                "Raise the limit: `docker run --memory`, `#SBATCH --mem`, the limits of the pod.",
                "Or use less: fewer workers, smaller caches.",
                kernel,
            )
        case "signal" if ending is not None and ending.signal is not None:
            if ending.signal == _KILL:
                return (kernel, *_ASKED)
            return _STEPS_FOR_SIGNALS.get(ending.signal, _ASKED)
        case "exception" if ending is not None and ending.exception is not None:
            return (_READ, *_STEPS_FOR_EXCEPTIONS.get(_last_part(ending.exception), ()))
        case "exception":
            return (_READ,)
        case _:
            return (
                kernel,
                *_ASKED,
                "Keep `trainvitals serve` running: it sees which signal ends a process.",
            )


def _advise_on_circumstances(start: Start, run: Run) -> tuple[str, ...]:
    steps = []
    if _has_diverged(start):
        steps.append("Resume from a checkpoint that is older than the first NaN.")
    seen = {each.rank for each in run.current}
    if run.world_size is not None and len(seen) < run.world_size:
        steps.append(
            f"{run.world_size - len(seen)} ranks left no file here: look on the other machines, too."
        )
    return tuple(steps)


def _is_long(start: Start) -> bool:
    """Tell whether it was in its last phase for longer than a few of its steps take."""
    seconds, slowest = start.phase_seconds, start.seconds("slowest_step_seconds")
    return seconds is not None and seconds >= max(_LONG_SECONDS, _LONG_STEPS * (slowest or 0.0))


def _has_diverged(start: Start) -> bool:
    """Tell whether the last loss was no number, or many were not."""
    loss = start.value("loss")
    bad, steps = start.count("nonfinite_losses") or 0, start.count("steps") or 0
    return (loss is not None and not math.isfinite(loss)) or bad > _FEW_NONFINITE * steps


def _memory_left(start: Start) -> float | None:
    """Give the bytes that the machine had left, where that was little."""
    machine = start.ending.machine if start.ending is not None else {}
    left, total = (machine.get(f"memory_{name}_bytes") for name in ("available", "total"))
    if left is None or not total or left > _LITTLE_MEMORY * total:
        return None
    return left


def _last_part(name: str) -> str:
    return name.rpartition(".")[2]
