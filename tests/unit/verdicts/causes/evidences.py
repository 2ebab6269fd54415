"""Builders of evidence for the tests, and a Hypothesis strategy for any evidence."""

from __future__ import annotations

import dataclasses
import types
import typing

from hypothesis import strategies as st

from trainvitals.foreign_numbers import MOST_VALUE
from trainvitals.sources.containers import evidence as parts
from trainvitals.sources.containers.evidence import EngineEvent, Evidence, OomKill, Settings, State

ID = "4f" * 32
OTHER_ID = "7c" * 32
MIB = 1024**2
DIED = 1_795_300_100.0

_TEXTS = st.one_of(
    st.text(max_size=40),
    st.sampled_from(
        (
            ID,
            f"/docker/{ID}",
            "/limited",
            "CONSTRAINT_MEMCG",
            "CONSTRAINT_NONE",
            "start",
            "die",
            "kill",
            "oom",
            "stop",
            "create",
            "health_status: unhealthy",
            "created",
            "running",
            "exited",
            "unhealthy",
            "docker 26.1.5",
            "podman 4.3.1",
            "python",
            "train.py",
            "--batch-size 32",
            "batch_size=1",
            "num_workers: 8",
            "Traceback (most recent call last):",
            '  File "train.py", line 3, in <module>',
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
            "RuntimeError: DataLoader worker (pid 9) is killed by signal: Killed.",
            "terminate called after throwing an instance of 'std::runtime_error'",
            "Segmentation fault",
            "Bus error",
            "KeyboardInterrupt",
            "Killed",
            "OSError: [Errno 28] No space left on device",
            'exec: "x": executable file not found in $PATH: unknown',
            "cannot start a stopped process: unknown",
        )
    ),
)
# The range that an evidence document may hold; its reader refuses larger values.
_CODES = st.one_of(
    st.integers(-(2**63), 2**63), st.sampled_from((0, 1, 9, 15, 126, 127, 134, 137, 139, 143, 255))
)
_TIMES = st.one_of(
    st.floats(min_value=-MOST_VALUE, max_value=MOST_VALUE),
    st.floats(min_value=DIED - 10, max_value=DIED + 10),
)


def _any_of(hint):
    origin, choices = typing.get_origin(hint), typing.get_args(hint)
    if origin in {types.UnionType, typing.Union}:
        return st.one_of(*(_any_of(choice) for choice in choices))
    if origin is typing.Literal:
        return st.sampled_from(choices)
    if origin is tuple:
        if choices[1] is Ellipsis:
            return st.lists(_any_of(choices[0]), max_size=4).map(tuple)
        return st.tuples(*map(_any_of, choices))
    if dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint)
        return st.builds(hint, **{name: _any_of(one) for name, one in hints.items()})
    known = {str: _TEXTS, int: _CODES, float: _TIMES, bool: st.booleans(), type(None): st.none()}
    return known[hint]


ANY_EVIDENCE = _any_of(parts.Evidence)


def event(before, action, *, exit_code=None, signal=None):
    """Return an engine event at this many seconds before the end."""
    return EngineEvent(DIED - before, action, exit_code, signal)


def oom_kill(before=0.05, *, oom="own", task="own", constraint="CONSTRAINT_MEMCG"):
    """Return an OOM kill, where `own` is the container's control group and None is the host."""
    groups = {"own": f"/docker/{ID}", "other": f"/limited/{OTHER_ID}", "parent": "/limited"}
    group = None if oom is None else groups[oom]
    return OomKill(DIED - before, constraint, group, groups[task], "python", 3181, 16000 * 1024)


def death(code, *events, oom_kills=(), is_oom_killed=False, **more):
    """Return the evidence of a container that ran 60 s and died with an exit code.

    Args:
        code: The exit code.
        events: The events of the engine between start and end.
        oom_kills: The OOM kills in the kernel log, or None if it could not be read.
        is_oom_killed: `OOMKilled` of its state.
        more: Other attributes of `Evidence`.
    """
    given = {
        "id": ID,
        "started": DIED - 60,
        "ended": DIED,
        "exit_code": code,
        "is_exit_code_witnessed": True,
        "events": (event(60, "start"), *events, event(0, "die", exit_code=code)),
        "state": State("exited", code, is_oom_killed, started=DIED - 60, finished=DIED),
        "settings": Settings(command=("python", "train.py"), memory_limit_bytes=64 * MIB),
        "oom_kills": oom_kills,
    }
    return Evidence("container", "train", **{**given, **more})
