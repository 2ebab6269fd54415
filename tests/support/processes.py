"""A command prefix for processes that must end with the test run."""

import shutil

# With this prefix a command gets SIGTERM when the thread that started it ends. A killed test run,
# which cannot clean up, therefore leaves no server behind.
ENDS_WITH_PARENT = ("setpriv", "--pdeathsig", "TERM") if shutil.which("setpriv") else ()
