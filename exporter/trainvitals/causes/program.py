"""Deaths of the program's own making: what it lacks, what does not fit, and any exception."""

from __future__ import annotations

import re

from trainvitals.causes.account import read_account
from trainvitals.causes.case import Case
from trainvitals.causes.paths import find_place
from trainvitals.causes.signs import (
    Predicate,
    Sign,
    find,
    has,
    matches,
    quote,
    weigh_fatal,
)
from trainvitals.causes.tracebacks import Traceback
from trainvitals.causes.verdict import Cause, Finding

_MODULE = re.compile(r"No module named '([\w.]{1,120})'")
_LIBRARY = re.compile(r"ImportError: (lib[\w.+-]{1,80}): cannot open shared object file")
_PACKAGES = {
    "cv2": "opencv-python-headless",
    "PIL": "pillow",
    "yaml": "pyyaml",
    "sklearn": "scikit-learn",
    "skimage": "scikit-image",
    "bs4": "beautifulsoup4",
    "dotenv": "python-dotenv",
    "flash_attn": "flash-attn --no-build-isolation",
    "habana_frameworks": "habana-torch-plugin",
    "pytorch_lightning": "pytorch-lightning",
}
_LIBRARIES = {
    "libGL.so.1": "libgl1",
    "libgthread-2.0.so.0": "libglib2.0-0",
    "libsndfile.so.1": "libsndfile1",
    "libgomp.so.1": "libgomp1",
}
_SHAPES = has(
    "shapes cannot be multiplied",
    "size mismatch for ",
    "must match the size of tensor",
    "is invalid for input of size",
    "Sizes of tensors must match except in dimension",
    "stack expects each tensor to be equal size",
    "to match target batch_size",
    "Given groups=",
    "could not be broadcast together",
)
_MISSING_FILE = has(
    "[Errno 2] No such file or directory",
    "can't open file '",
    without=("libcuda",),
)
_ARGUMENTS = has(
    ": error: unrecognized arguments:",
    ": error: the following arguments are required:",
    ": error: argument ",
    "ConfigAttributeError",
    "Could not override '",
)
_ERROR_LINE = re.compile(
    r"^(?:[A-Za-z_][\w.]{0,120}\.)?[A-Z]\w{0,80}(?:Error|Exception|Interrupt)(?::|$)"
)
_ASKED_TO_END = ("KeyboardInterrupt", "SystemExit")
_ARGUMENTS_CODE = 2


def look_missing_module(case: Case) -> Finding | None:
    """Look for a module or a library that the image lacks."""
    sign = find(case, has("ModuleNotFoundError", "ImportError", without=("libcuda.so",)))
    if sign is None:
        return None
    module, library = _MODULE.search(sign.text), _LIBRARY.search(sign.text)
    image = f" `{case.evidence.image}`" if case.evidence.image else ""
    if library is not None:
        package = _LIBRARIES.get(library[1], f"$(apt-file search -l {library[1]})")
        return sign.conclude(
            "missing-module",
            f"The image{image} lacks the library {library[1]}.",
            (
                f"Add it to the Dockerfile: `RUN apt-get update && apt-get install -y {package}`.",
                "For OpenCV take the build that needs none: `pip install opencv-python-headless`.",
            ),
        )
    name = module[1] if module else ""
    top = name.partition(".")[0]
    package = _PACKAGES.get(top, top.replace("_", "-")) or "PACKAGE"
    shown = f"`{name}`" if name else "something that it imports"
    return sign.conclude(
        "missing-module",
        f"The image{image} lacks {shown}." if module else f"An import failed: {quote(sign.text)}.",
        (
            f"Add it to the image: `RUN pip install {package}` in the Dockerfile, then build it anew.",
            (
                f"Where it is your own, mount it and set `PYTHONPATH`; `docker run --rm{image.replace('`', '')}"
                " python -c 'import sys; print(sys.path)'` shows where Python looks."
            ),
            "Where a name is not in a module that is there, versions differ: `pip list`.",
        ),
    )


def look_shape_error(case: Case) -> Finding | None:
    """Look for tensors whose shapes do not fit."""
    sign = find(case, _SHAPES)
    if sign is None:
        return None
    is_checkpoint = "size mismatch for " in sign.text
    place = _say_place(case)
    return sign.conclude(
        "shape-error",
        f"Tensors do not fit: {quote(_pick(sign, _SHAPES))}{place}.",
        (
            "The checkpoint is of another configuration: compare hidden size, vocabulary and number of"
            " labels, or load with `ignore_mismatched_sizes=True`."
            if is_checkpoint
            else "Print the shapes before that line, and compare with the configuration"
            " (`hidden_size`, `vocab_size`, image size).",
            (
                "Where it is the last batch of an epoch: `DataLoader(..., drop_last=True)`; where samples"
                " differ in length, pad them in `collate_fn`."
            ),
        ),
    )


def look_missing_file(case: Case) -> Finding | None:
    """Look for a file or a folder that is not in the container."""
    sign = find(case, _MISSING_FILE)
    if sign is None:
        return None
    place = find_place(case, sign.text, sign.line)
    path = place.path or "PATH"
    if case.is_container and place.host_path is None:
        steps = [
            f"No mount holds `{path}`: mount it, `-v /on/the/host:{path.rpartition('/')[0] or path}`."
        ]
    else:
        steps = [f"See what is there: `ls -la {place.folder if place.path else '.'}`."]
    return sign.conclude(
        "missing-file",
        f"`{path}` is not there." if place.path else "A file is not there.",
        (
            *steps,
            (
                "Compare the path in the command and the configuration with the container's mounts and"
                " `WORKDIR`: `docker inspect -f '{{json .Mounts}}'"
                f" {case.evidence.name}`."
            ),
        ),
    )


def look_bad_arguments(case: Case) -> Finding | None:
    """Look for a command line that the program does not understand."""
    sign = find(case, _ARGUMENTS)
    if sign is None or (case.exit_code not in {1, _ARGUMENTS_CODE}):
        return None
    return sign.conclude(
        "bad-arguments",
        f"It does not understand its command line: {quote(_pick(sign, _ARGUMENTS))}.",
        (
            (
                "Correct `command:` in the Compose file or what stands behind the image's name; `--help`"
                " lists what it knows."
            ),
            (
                "See what it was started with: `docker inspect -f '{{json .Config.Cmd}}'"
                f" {case.evidence.name}`."
            ),
        ),
    )


def _pick(sign: Sign, is_sign: Predicate) -> str:
    """Give the line of a message in which the sign is."""
    lines = sign.text.split("\n")
    return next((line for line in lines if is_sign(line)), lines[0])


def look_exception(case: Case) -> Finding | None:
    """Look for any exception that ended it, where nothing else knows what it means."""
    account = read_account(case)
    fatal = account.fatal
    if fatal is None or fatal.is_launcher:
        return _look_error_line(case)
    error = fatal.errors[-1]
    if error.name.endswith(_ASKED_TO_END):
        return None
    sign = find(case, lambda text: text == error.text.split("\n", 1)[0])
    sign = sign or weigh_fatal(case, error)
    first = fatal.errors[0]
    told = (f"Before that it says {quote(first.headline)}.",) if first is not error else ()
    rank = f"Rank {fatal.rank}" if fatal.rank is not None else "It"
    return sign.conclude(
        "exception",
        f"{rank} ended with {quote(error.headline)}{_say_place(case)}.",
        _advise_exception(case, fatal),
        speaks_for=told,
    )


def _look_error_line(case: Case) -> Finding | None:
    sign = find(case, matches(_ERROR_LINE))
    if sign is None or any(name in sign.text for name in (*_ASKED_TO_END, "ChildFailedError")):
        return None
    return sign.cap("medium", "There is no traceback with it.").conclude(
        "exception",
        f"It says {quote(sign.text)} at its end.",
        _advise_exception(case, None),
    )


def _say_place(case: Case) -> str:
    fatal = read_account(case).fatal
    return f", raised at {fatal.place}" if fatal is not None and fatal.place else ""


def _advise_exception(case: Case, fatal: Traceback | None) -> tuple[str, ...]:
    read = (
        f"Read the whole of it: `{case.program} logs --tail 200 {case.evidence.name}`."
        if case.is_container
        else "Read the whole traceback in the run's own log."
    )
    place = f"Look at {fatal.place}. " if fatal is not None and fatal.place else ""
    return (
        f"{place}{read}",
        (
            "Run the same again with one process and a debugger: `python -m pdb -c continue train.py`, with"
            " `num_workers=0`."
        ),
    )


CAUSES: tuple[Cause, ...] = (
    Cause(
        reason="missing-module",
        title="A module or library is missing",
        signs="The log says `ModuleNotFoundError` or `ImportError`.",
        meaning="The image was built without it, or with another version.",
        steps=("Add it to the Dockerfile (`RUN pip install ...`) and build the image anew.",),
        confidence="high",
        look=look_missing_module,
    ),
    Cause(
        reason="missing-file",
        title="A file is not there",
        signs="The log says `[Errno 2] No such file or directory` or `can't open file`.",
        meaning="A path of the host is not mounted, or the path is wrong.",
        steps=("Compare the path with the mounts: `docker inspect -f '{{json .Mounts}}' NAME`.",),
        confidence="high",
        look=look_missing_file,
    ),
    Cause(
        reason="bad-arguments",
        title="The command line is wrong",
        signs="The log says `error: unrecognized arguments` or `the following arguments are required`;"
        " the exit code is 2 or 1.",
        meaning="An option is misspelt, is missing, or came with another version.",
        steps=("Compare `docker inspect -f '{{json .Config.Cmd}}' NAME` with `--help`.",),
        confidence="high",
        look=look_bad_arguments,
    ),
    Cause(
        reason="shape-error",
        title="Tensors do not fit",
        signs="The log says `mat1 and mat2 shapes cannot be multiplied`, `size mismatch for`, `must match"
        " the size of tensor` or the like.",
        meaning="Code and configuration, or checkpoint and model, do not belong together.",
        steps=(
            "Print the shapes before that line.",
            "Use `drop_last=True` where only the last batch fails.",
        ),
        confidence="high",
        look=look_shape_error,
    ),
)

FALLBACK = Cause(
    reason="exception",
    title="An exception",
    signs="The log ends with a traceback that none of the others knows.",
    meaning="What its last line says.",
    steps=("Read the traceback: `docker logs --tail 200 NAME`.",),
    confidence="high",
    look=look_exception,
)
