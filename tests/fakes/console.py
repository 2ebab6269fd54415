"""A process that evaluates a test's expressions with the real bindings on a fake machine.

    with Console(machine) as console:
        console("nvml.nvmlInit()")
        console("gpu = nvml.nvmlDeviceGetHandleByIndex(0)")
        console("nvml.nvmlDeviceGetUUID(gpu)")      the UUID
        console("nvml.nvmlDeviceGetName(None)")     raises DriverError(2)

In the process, `nvml` is pynvml, `hlml` is pyhlml, and assigned names persist.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from tests.fakes.machine import FakeMachine
from tests.support.processes import ENDS_WITH_PARENT

_PROGRAM = """
import json, sys, warnings
warnings.simplefilter("ignore")
import pynvml as nvml
import pyhlml as hlml
from pyhlml.hlml_error import HLMLError
own = {"nvml": nvml, "hlml": hlml}
for line in sys.stdin:
    text = json.loads(line)
    try:
        try:
            code = compile(text, "test", "eval")
        except SyntaxError:
            code = compile(text, "test", "exec")
        answer = {"value": eval(code, own)}
    except (nvml.NVMLError, HLMLError) as error:
        answer = {"code": error.value}
    except Exception as error:
        answer = {"trouble": repr(error)}
    print(json.dumps(answer, default=lambda value: value.decode() if isinstance(value, bytes) else str(value)), flush=True)
"""


class DriverError(Exception):
    """The driver returned an error.

    Attributes:
        code: The error code.
    """

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Console:
    """A process that evaluates expressions on a fake machine, while its `with` block lasts.

    Args:
        machine: The machine whose libraries the process loads.
        variables: The variables to set; None for those of `machine.environment()`.
    """

    def __init__(self, machine: FakeMachine, variables: Mapping[str, str] | None = None) -> None:
        self._process = subprocess.Popen(
            [*ENDS_WITH_PARENT, sys.executable, "-c", _PROGRAM],
            env={**os.environ, **(machine.environment() if variables is None else variables)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Console:  # noqa: PYI034 - Self is not in Python 3.10
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def __call__(self, text: str) -> Any:
        """Run an expression or statement in the process and return its value.

        Raises:
            DriverError: The driver returned an error.
        """
        self.begin(text)
        return self.end()

    def begin(self, text: str) -> None:
        """Start an expression or statement without waiting for it; `end` returns its value."""
        print(json.dumps(text), file=self._process.stdin, flush=True)

    def end(self) -> Any:
        """Return the value of the expression or statement that `begin` started.

        Raises:
            DriverError: The driver returned an error.
        """
        answer = json.loads(self._process.stdout.readline())
        if "code" in answer:
            raise DriverError(answer["code"])
        if "trouble" in answer:
            raise AssertionError(answer["trouble"])
        return answer["value"]

    def code_of(self, text: str) -> int:
        """Return the error code that a driver call returns; 0 if the call succeeds."""
        self.begin(text)
        return self.end_code()

    def end_code(self) -> int:
        """Return the error code of the call that `begin` started; 0 if the call succeeded."""
        try:
            self.end()
        except DriverError as error:
            return error.code
        return 0
