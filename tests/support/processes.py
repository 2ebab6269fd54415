"""Processes that end with the test run."""

import shutil

# Put before a command: the process gets SIGTERM when the thread that started it ends, so that a
# killed test run, which can clean up nothing, leaves no server behind.
ENDS_WITH_PARENT = ("setpriv", "--pdeathsig", "TERM") if shutil.which("setpriv") else ()
