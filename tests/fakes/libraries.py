"""The build of the fake vendor libraries, once for each version of their sources."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

_HERE = Path(__file__).resolve().parent
_CACHE = _HERE.parents[1] / ".cache" / "fakes"
_FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-shared", "-fPIC", "-fvisibility=hidden")

# pyhlml opens libhlml by its absolute path. The dynamic loader reuses a loaded library if its
# SONAME equals the requested name, so a fake that was loaded before, from any directory, takes
# the place of the library at that path.
_LIBRARIES = {
    "nvidia": ("libnvidia-ml.so.1", "libnvidia-ml.so.1", "nvml*.c"),
    "habana": ("libhlml.so", "/usr/lib/habanalabs/libhlml.so", "hlml*.c"),
}


def _source_hash() -> str:
    digest = hashlib.sha256(repr((_FLAGS, _LIBRARIES)).encode())
    for source in sorted(_HERE.glob("*.[ch]")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()[:16]


def _build(vendor: str, target: Path) -> None:
    file_name, soname, pattern = _LIBRARIES[vendor]
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=target.parent, prefix=".building-"))
    sources = [_HERE / "engine.c", *sorted(_HERE.glob(pattern))]
    command = ["cc", *_FLAGS, f"-Wl,-soname,{soname}", "-o", str(scratch / file_name)]
    try:
        subprocess.run([*command, *map(str, sources), "-lm", "-lpthread"], check=True)
        (scratch / file_name).replace(target)
    finally:
        shutil.rmtree(scratch)


def library_path(vendor: str, cache: Path = _CACHE) -> Path:
    """Return the path of a fake library, which is built if it does not exist yet.

    Each library has a directory of its own. Several processes may build a library at once: each
    builds it under its own temporary name, and the last one replaces the others.

    Args:
        vendor: "nvidia" or "habana".
        cache: The directory in which built libraries are kept.

    Raises:
        FileNotFoundError: There is no C compiler `cc`.
        subprocess.CalledProcessError: The compiler rejected the sources.
    """
    target = cache / _source_hash() / vendor / _LIBRARIES[vendor][0]
    if not target.exists():
        _build(vendor, target)
    return target
