"""Type checkers on a program that uses the public API."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
API = "tests/integration/typing/api.py"
CHECKERS = {
    "mypy": ("mypy", "--config-file=tests/integration/typing/mypy.ini", API),
    # The base interpreter lacks the frameworks, whose analysis would take a minute.
    "pyright": ("pyright", "--pythonpath", sys._base_executable),
}


@pytest.mark.parametrize("checker", CHECKERS)
def test_the_public_api_has_types(checker, tmp_path):
    """A type checker accepts correct uses of the API in strict mode and refuses wrong ones."""
    answer = subprocess.run(
        [sys.executable, "-m", *CHECKERS[checker]],
        cwd=ROOT,
        env={
            **os.environ,
            "MYPY_CACHE_DIR": str(tmp_path),
            "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1",  # pyright would look up its newest version
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    told = answer.stdout + answer.stderr
    assert answer.returncode in (0, 1), f"{checker} cannot run here:\n{told}"
    assert answer.returncode == 0, told
