"""The program's own measurements, and the end that a test asks for.

`SHAPE_END` is `finish`, `fail` or `kill`; the latter two end the program in its last step. The
measurements are written to `SHAPE_OUT` before, one file for each process.
"""

import json
import os
import signal
import time
from contextlib import contextmanager


class Measure:
    """Steps, samples, seconds of steps, and seconds of validation and checkpoints.

    Args:
        steps: The number of steps of the program; in the last one, it ends as it is asked to.
    """

    def __init__(self, steps):
        self.steps, self.samples, self.seconds, self.loss = 0, 0, [], None
        self.outside = {"validation": 0.0, "checkpoint": 0.0}
        self._all, self._ended, self._apart = steps, None, 0.0

    def begin(self):
        """Note the start of the first step, which is known in a framework."""
        self._ended = time.monotonic()

    def step(self, samples, loss):
        """Note the end of a step."""
        now = time.monotonic()
        if self._ended is not None:
            self.seconds.append(now - self._ended - self._apart)
        self.steps, self.samples, self.loss = self.steps + 1, self.samples + samples, float(loss)
        self._ended, self._apart = now, 0.0
        if self.steps == self._all:
            self.write()
            end = os.environ.get("SHAPE_END", "finish")
            if end == "fail":
                raise ValueError("the last step fails")
            if end == "kill":
                os.kill(os.getpid(), signal.SIGKILL)

    @contextmanager
    def apart(self, phase):
        """Measure what is not part of a step."""
        began = time.monotonic()
        yield
        lasted = time.monotonic() - began
        self.outside[phase] += lasted
        self._apart += lasted
        if self.steps == self._all:
            self.write()

    def write(self):
        """Write the measurements."""
        path = os.path.join(os.environ["SHAPE_OUT"], f"{os.getpid()}.json")
        with open(path, "w") as file:
            json.dump({**{k: v for k, v in vars(self).items() if k[0] != "_"}}, file)
