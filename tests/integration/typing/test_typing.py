"""What type checkers tell those who use the package."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
API = "tests/integration/typing/api.py"
CHECKERS = {
    "mypy": ("mypy", "--config-file=tests/integration/typing/mypy.ini", API),
    # The interpreter below the virtual environment lacks the frameworks, which take a minute to read.
    "pyright": ("pyright", "--pythonpath", sys._base_executable),
}


@pytest.mark.parametrize("checker", CHECKERS)
def test_the_public_api_has_types(checker, tmp_path):
    """Right uses pass in strict mode, and wrong ones are refused."""
    answer = subprocess.run(
        [sys.executable, "-m", *CHECKERS[checker]],
        cwd=ROOT,
        env={
            **os.environ,
            "MYPY_CACHE_DIR": str(tmp_path),
            "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1",  # it would ask an index for its newest version
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
