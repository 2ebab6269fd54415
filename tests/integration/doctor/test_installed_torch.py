"""The installed PyTorch, read from its files."""

import sys
from importlib import metadata
from pathlib import Path

from packaging.version import Version

from trainvitals.doctor.torchwheel import find_torch


def test_this_pythons_own_torch_is_read_as_its_metadata_has_it():
    """`find_torch` returns the version of the installed PyTorch, and whether it has CUDA."""
    version = metadata.version("torch")
    found = find_torch(tuple(Path(path) for path in sys.path if path))
    # PyPI's metadata has no local label; the file of the CUDA build has one (2.13.0+cu130).
    assert Version(found.version).public == Version(version).public
    assert (found.cuda is None) == found.version.endswith("+cpu")
