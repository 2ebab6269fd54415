"""Starts to observe this process, and runs the user's own `sitecustomize`.

Below `trainvitals run`, the directory of this file is the first entry in PYTHONPATH. Python imports
`sitecustomize` at startup, so this file runs in every Python process below the command, in every
environment and Python version. Therefore, the file must be valid in Python 2.7, print nothing,
import no large module and never raise an exception. The directory must not contain other modules.
"""

import os
import sys


def _is_wanted():
    """Return whether to observe this process; Python before 3.10 cannot be observed."""
    return os.environ.get("TRAINVITALS_AUTOLOG") == "1" and sys.version_info >= (3, 10)


def _is_helper():
    """Return whether this process is a helper of multiprocessing or PyTorch's compiler.

    Helpers never train. A process that multiprocessing spawns is not a helper, because it may be a
    rank. The fork server of multiprocessing is not a helper, because ranks are forked from it.
    """
    words = " ".join(getattr(sys, "orig_argv", [])[1:5])
    return any(name in words for name in ("multiprocessing.resource_tracker", "compile_worker"))


def _load(package, name):
    """Load a module of the package by its path and return the module."""
    from importlib.util import module_from_spec, spec_from_file_location

    path = os.path.join(package, *name.split("."))
    spec = spec_from_file_location("_trainvitals_" + name.replace(".", "_"), path + ".py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _start(here):
    """Watch the imports in this process.

    If TRAINVITALS_FAILURES is set, uncaught exceptions and the import of JAX are also recorded.
    """
    import atexit

    package = os.path.dirname(os.path.dirname(here))
    own = {}
    if os.environ.get("TRAINVITALS_FAILURES"):
        atexit.register(_attempt, _leave_traceback, package)
        own["threading"] = lambda module: _attempt(_watch_threads, (package, module))
        own["jax"] = lambda _: _attempt(_note_jax, package)
    _load(package, "runner.imports").watch_imports(package, own)


def _watch_threads(found):
    """Write the tracebacks of uncaught exceptions that end threads of this process."""
    package, threading = found
    _load(package, "training.failure").watch_threads(threading)


def _note_jax(package):
    """Record that this process uses JAX, whose steps cannot be observed."""
    _load(package, "training.failure").note_jax()


def _leave_traceback(package):
    """Write the traceback of the uncaught exception that ends this process, if one was raised."""
    error = getattr(sys, "last_value", None)
    if isinstance(error, Exception) and not hasattr(sys, "ps1"):
        _load(package, "training.failure").leave_traceback(error)


def _find_next(here):
    """Return the spec of the next `sitecustomize` to run; None if all have been run.

    Another tool's `sitecustomize` may skip only its own directory, and so run this module again.
    """
    from importlib.machinery import PathFinder

    done = sys.__dict__.setdefault("_trainvitals_chained", {here})
    places = [place for place in sys.path if os.path.abspath(place or os.curdir) not in done]
    spec = PathFinder.find_spec("sitecustomize", places)
    if spec is not None and spec.origin:
        done.add(os.path.dirname(os.path.abspath(spec.origin)))
    return spec


def _chain(here):
    """Run the user's `sitecustomize` in place of this module, if the user has a `sitecustomize`."""
    if sys.version_info < (3, 4):
        return
    spec = _find_next(here)
    if spec is None or spec.loader is None:
        return
    from importlib.util import module_from_spec

    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def _observe(here):
    """Start to observe this process, unless observation is off or the process is a helper."""
    if _is_wanted() and not _is_helper():
        _start(here)


def _attempt(function, argument):
    """Call a function and ignore all exceptions."""
    try:
        function(argument)
    except BaseException:  # a SystemExit here would end Python before the program starts
        pass


_HERE = os.path.dirname(os.path.abspath(__file__))
_attempt(_observe, _HERE)
_chain(_HERE)  # Python reports an exception in the user's module as it would without this file
