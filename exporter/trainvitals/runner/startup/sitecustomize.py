"""Starts the observation of this process, and runs the user's own `sitecustomize`.

The directory of this file is the first entry of PYTHONPATH below `trainvitals run`. Python imports
`sitecustomize` at every start, so this file runs in every Python process below the command, also in
those of other environments and versions: it must be valid in Python 2.7, print nothing, import
nothing large and never raise an exception of its own. No other module may be in this directory.
"""

import os
import sys


def _is_wanted():
    """Return whether this process is to be observed; older versions of Python cannot be."""
    return os.environ.get("TRAINVITALS_AUTOLOG") == "1" and sys.version_info >= (3, 10)


def _is_helper():
    """Return whether multiprocessing or PyTorch's compiler started this process, which never trains.

    A process that multiprocessing spawns may be a rank.
    """
    words = " ".join(getattr(sys, "orig_argv", [])[1:5])
    return any(
        name in words
        for name in (
            "multiprocessing.resource_tracker",
            "multiprocessing.forkserver",
            "compile_worker",
        )
    )


def _load(package, name):
    """Return a module of the package, loaded by its path."""
    from importlib.util import module_from_spec, spec_from_file_location

    path = os.path.join(package, *name.split("."))
    spec = spec_from_file_location("_trainvitals_" + name.replace(".", "_"), path + ".py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _start(here):
    """Watch the imports of this process, and its end."""
    import atexit

    package = os.path.dirname(os.path.dirname(here))
    own = {}
    if os.environ.get("TRAINVITALS_FAILURES"):
        atexit.register(_attempt, _leave_traceback, package)
        own["threading"] = lambda module: _attempt(_watch_threads, (package, module))
        own["jax"] = lambda _: _attempt(_note_jax, package)
    _load(package, "runner.imports").watch_imports(package, own)


def _watch_threads(found):
    """Leave the tracebacks of errors that end threads of this process."""
    package, threading = found
    _load(package, "training.failure").watch_threads(threading)


def _note_jax(package):
    """Note that this process uses JAX, whose steps cannot be seen."""
    _load(package, "training.failure").note_jax()


def _leave_traceback(package):
    """Leave the traceback of the error that ends this process, if there is one."""
    error = getattr(sys, "last_value", None)
    if isinstance(error, Exception) and not hasattr(sys, "ps1"):
        _load(package, "training.failure").leave_traceback(error)


def _find_next(here):
    """Return the spec of the module that Python would import without the modules run so far, or None.

    Another tool's module may leave out itself alone, and so run this module once more.
    """
    from importlib.machinery import PathFinder

    done = sys.__dict__.setdefault("_trainvitals_chained", {here})
    places = [place for place in sys.path if os.path.abspath(place or os.curdir) not in done]
    spec = PathFinder.find_spec("sitecustomize", places)
    if spec is not None and spec.origin:
        done.add(os.path.dirname(os.path.abspath(spec.origin)))
    return spec


def _chain(here):
    """Run the user's `sitecustomize`, if there is one, in the place of this module."""
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
    """Start the observation of this process, if it is wanted."""
    if _is_wanted() and not _is_helper():
        _start(here)


def _attempt(function, argument):
    """Call a function; no error leaves this function."""
    try:
        function(argument)
    except BaseException:  # a SystemExit here would end Python before the program starts
        pass


_HERE = os.path.dirname(os.path.abspath(__file__))
_attempt(_observe, _HERE)
_chain(_HERE)  # what the user's module raises is reported by Python, as without this file
