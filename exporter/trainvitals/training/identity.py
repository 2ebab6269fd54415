"""Who this process is, for the header of its run file."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from trainvitals import __version__
from trainvitals.runfile import Identity
from trainvitals.training.launch import Launch
from trainvitals.training.recorder import read_self

_MOST_TEXT = 200


def identify(launch: Launch, *, framework: str | None, framework_version: str | None) -> Identity:
    """Say who this process is.

    Args:
        launch: What the launcher said.
        framework: What trains; PyTorch, JAX or TensorFlow are found where one is loaded.
        framework_version: Its version.
    """
    if framework is None:
        framework, framework_version = _find_framework()
    ticks, boot_id, namespace = read_self()
    static: Mapping[str, str | Sequence[str]] = {
        "framework": framework[:_MOST_TEXT],
        "framework_version": (framework_version or "")[:_MOST_TEXT],
        "client_version": __version__,
        "hostname": name_host()[:_MOST_TEXT],
        "script": Path(sys.argv[0] if sys.argv else "").name[:_MOST_TEXT],
        "clock": "host",
        "accelerator_uuids": _find_accelerators(),
    }
    return Identity(
        run=launch.run,
        rank=launch.rank,
        local_rank=launch.local_rank,
        node_rank=launch.node_rank,
        world_size=launch.world_size,
        attempt=launch.attempt,
        pid=os.getpid(),
        uid=os.getuid() if hasattr(os, "getuid") else 0,
        start_ticks=ticks,
        boot_id=boot_id,
        pid_namespace=namespace,
        created_time=time.time(),
        created_mono_ns=time.monotonic_ns(),
        static=static,
    )


def _find_framework() -> tuple[str, str]:
    for module in ("torch", "jax", "tensorflow"):
        if module in sys.modules:
            return module, str(getattr(sys.modules[module], "__version__", ""))
    return "python", sys.version.split()[0]


def _find_accelerators() -> list[str]:
    """Give the UUID of the current CUDA device where a context is there already, and never make one."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return []
    uuid = getattr(cuda.get_device_properties(cuda.current_device()), "uuid", None)
    return [f"GPU-{uuid}"] if uuid else []


def name_host() -> str:
    """Give the name of this machine."""
    return os.uname().nodename if hasattr(os, "uname") else os.environ.get("COMPUTERNAME", "")
