"""Deaths caused by program errors: missing files, wrong arguments or shapes, other exceptions."""

from __future__ import annotations

from collections.abc import Mapping

from trainvitals.verdicts.causes.advice import is_in_engine
from trainvitals.verdicts.causes.case import Case
from trainvitals.verdicts.causes.log_matches import (
    LogMatch,
    find_match,
    quote,
    weigh_end,
    weigh_fatal,
)
from trainvitals.verdicts.causes.network import LOCAL_MODEL
from trainvitals.verdicts.causes.parsed_log import find_before_fatal, parse_log
from trainvitals.verdicts.causes.paths import find_place
from trainvitals.verdicts.causes.remedies import quote_remedy
from trainvitals.verdicts.causes.signs import Sign, contains, matches
from trainvitals.verdicts.causes.tracebacks import Error, Traceback, find_script
from trainvitals.verdicts.causes.verdict import Cause, Finding

_SHAPES = contains(
    "shapes cannot be multiplied",
    "size mismatch for ",
    "must match the size of tensor",
    "is invalid for input of size",
    "Sizes of tensors must match except in dimension",
    "stack expects each tensor to be equal size",
    "to match target batch_size",
    "Given groups=",
    "could not be broadcast together",
    "size mismatch, m1:",
    "inconsistent tensor size",
    "Incompatible shapes: [",
    "are incompatible",
    "Dimensions must be equal",
    "must be the same as input size",
    "Expected more than 1 value per channel",
    "-dimensional input for ",
    "is incompatible with the layer",
    "must have the same first dimension",
    "must match the existing size",
    "cannot reshape array of size",
    "inhomogeneous shape",
    "should be of equal size",
    "incompatible shapes for broadcasting",
    "contracting dimensions to have the same shape",
    "should probably activate truncation and/or padding",
    "shape mismatch:",
    "input arrays must have the same shape",
    "but got channels:",
    "Expected 4D (unbatched)",
    "Incompatible shapes:",
    "shape mismatch for",
    "Input and parameter tensors are not the same",
    "ValueError: Shapes (",
    "Invalid input shape",
    "Kernel size can't be greater than actual input size",
    "that is different to the input size (",
    "view size is not compatible with input tensor's size",
    "must be equal to input_size. Expected",
    "does not match the shape of the indexed tensor",
    "does not broadcast with previously seen size",
    "ScopeParamShapeError",
    "Expected input batch_size (",
    "Sizes of tensors must match",
    "doesn't match the broadcast shape",
    "does not match the broadcast shape",
    "shapes are not broadcastable",
    "must match the number of dimensions",
    "Input batch size ",
    "size of tensor a (",
)
_MISSING_FILE = contains(
    "[Errno 2] No such file or directory",
    "can't open file '",
    "FileNotFoundError: ",
    "; No such file or directory",
    "error message = 'No such file or directory'",
    "Dataset not found or corrupted",
    without=("libcuda",),
)
# A run file contains the exception without its message.
_BARE_MISSING_FILE = matches(r"^\s*FileNotFoundError\s*$")
_ARGUMENTS = contains(
    ": error: unrecognized arguments:",
    ": error: the following arguments are required:",
    ": error: argument ",
    "ConfigAttributeError",
    "Could not override '",
    "Error: No such option",
    "Error: Missing option",
    "Error: Missing argument",
    "Error: Invalid value for",
    "are not used by the HfArgumentParser",
    "FATAL Flags parsing error",
    "ERROR: Could not consume arg",
    ": error: ambiguous option",
    ": error: one of the arguments",
    "MissingConfigException",
    "MissingMandatoryValue",
    "ConfigKeyError",
    "Error: Got unexpected extra argument",
    "Error: No such command",
    "yaml.scanner.ScannerError",
    "yaml.parser.ParserError",
    "TOMLDecodeError",
    ": error: Key ",
    ": error: Parser key",
    "error: invalid choice",
    "unrecognized arguments",
    "ConfigCompositionException",
    "The function received no value for the required argument",
    "UnrecognizedFlagError",
    "IllegalFlagValueError",
    "ConfigTypeError",
    "ConfigValueError",
    "OverrideParseException",
    "specified arguments are not used by the",
    "Error: Option '",
)
_ERROR_LINE = matches(
    r"^(?:[A-Za-z_][\w.]{0,120}\.)?[A-Z]\w{0,80}(?:Error|Exception|Interrupt)(?::|$)"
)
_MEANINGS = {
    "DistBackendError": "A collective operation failed, usually because another rank had died or"
    " hung.",
    "DistNetworkError": "The ranks lost their connection, usually because another rank had died.",
    "BrokenPipeError": "The reading process had ended, such as a data loader worker.",
    "ConnectionResetError": "The peer of a connection had ended, often another rank.",
    "OSError": "A file, disk or network operation failed; a full disk is the most frequent cause.",
}
_STEPS = {
    "DistBackendError": "Find the rank that died or hung first, also on the other machines.",
    "DistNetworkError": "Find the rank that died or hung first, also on the other machines.",
    "OSError": "Check the free space of the output directories: `df -h` and `df -i`.",
}
_ASKED_TO_END = ("KeyboardInterrupt", "SystemExit")
_ARGUMENTS_CODE = 2


def detect_shape_error(case: Case) -> Finding | None:
    """Detect a program that ended because the shapes of tensors do not match."""
    match = find_match(case, _SHAPES)
    if match is None:
        return None
    is_checkpoint = "size mismatch for " in match.text
    return match.conclude(
        "shape-error",
        f"Tensor shapes do not match: {quote(_pick(match, _SHAPES))}{_describe_place(case)}.",
        (
            "Compare the checkpoint's configuration with the model's (hidden size, vocabulary, number of"
            " labels), or load it with `ignore_mismatched_sizes=True`."
            if is_checkpoint
            else "Print the shapes before that line, and compare with the configuration"
            " (`hidden_size`, `vocab_size`, image size).",
            (
                "If only the last batch of an epoch fails: `DataLoader(..., drop_last=True)`; if samples"
                " differ in length, pad them in `collate_fn`."
            ),
        ),
    )


def detect_missing_file(case: Case) -> Finding | None:
    """Detect a program that ended because a file or a directory does not exist."""
    signs = (_MISSING_FILE, _BARE_MISSING_FILE, LOCAL_MODEL)
    match = next((found for sign in signs if (found := find_match(case, sign))), None)
    if match is None:
        return None
    place = find_place(case, match.text, match.line)
    path = place.path or "PATH"
    if case.is_container and place.host_path is None:
        steps = [
            (
                f"Mount it, because no mount has `{path}`:"
                f" `-v /on/the/host:{path.rpartition('/')[0] or path}`."
            )
        ]
    else:
        steps = [f"List the directory: `ls -la {place.folder if place.path else '.'}`."]
    return match.conclude(
        "missing-file",
        f"The file `{path}` does not exist." if place.path else "A file does not exist.",
        (*steps, _advise_path(case)),
    )


def _advise_path(case: Case) -> str:
    if not case.is_container:
        return "Compare the path in the command and the configuration with the working directory: `pwd`."
    return (
        "Compare the path in the command and the configuration with the container's mounts and"
        f" `WORKDIR`: `docker inspect -f '{{{{json .Mounts}}}}' {case.evidence.name}`."
    )


def detect_bad_arguments(case: Case) -> Finding | None:
    """Detect a program that ended because it rejected its command line."""
    match = find_match(case, _ARGUMENTS)
    if match is None or (case.exit_code not in {None, 1, _ARGUMENTS_CODE}):
        return None
    return match.conclude(
        "bad-arguments",
        f"The program rejected its command line: {quote(_pick(match, _ARGUMENTS))}.",
        _advise_arguments(case),
    )


def _advise_arguments(case: Case) -> tuple[str, ...]:
    if not case.is_container:
        return ("Correct the arguments; `--help` lists the options.",)
    return (
        (
            "Correct `command:` in the Compose file or the arguments after the image's name; `--help`"
            " lists the options."
        ),
        (
            "Read the command line: `docker inspect -f '{{json .Config.Cmd}}'"
            f" {case.evidence.name}`."
        ),
    )


def _pick(match: LogMatch, sign: Sign) -> str:
    """Return the first line of a match's text that matches a sign, or else its first line."""
    lines = match.text.split("\n")
    return next((line for line in lines if sign(line)), lines[0])


def detect_exception(case: Case) -> Finding | None:
    """Detect an exception that ended the program and that no other cause explains."""
    log = parse_log(case)
    fatal = log.fatal
    if fatal is None or fatal.is_launcher:
        return _detect_error_line(case)
    error = fatal.errors[-1]
    if error.name.endswith(_ASKED_TO_END):
        return None
    match = weigh_fatal(case, error)
    match = weigh_end(case, match) or match
    before = find_before_fatal(log)
    if before is not None:
        match = match.cap("medium", f"{quote(before.errors[-1].headline)} was raised before it.")
    first = fatal.errors[0]
    sentences = [f"It was raised after {quote(first.headline)}."] if first is not error else []
    if fatal.is_of_lost_process:
        sentences.append("The process at the other end of a pipe had ended.")
    else:
        sentences += _find_text(_MEANINGS, error)
    verb = "raised" if match.confidence == "low" else "ended with"
    who = f"Rank {fatal.rank}" if fatal.rank is not None else case.subject.capitalize()
    return match.conclude(
        "exception",
        f"{who} {verb} {quote(error.headline)}{_describe_place(case)}.",
        _advise_exception(case, fatal),
        speaks_for=tuple(sentences),
    )


def _find_text(texts: Mapping[str, str], error: Error | None) -> tuple[str, ...]:
    """Return the text from a table for the last part of an exception's name.

    The result is an empty tuple if the table has no text for the exception. For an exception with
    an error number (`[Errno `), the result is always empty, because the usual explanation does not
    apply if no other cause matched the number.
    """
    name = "" if error is None or "[Errno " in error.text else error.name
    text = texts.get(name.rpartition(".")[2])
    return () if text is None else (text,)


def _detect_error_line(case: Case) -> Finding | None:
    match = find_match(case, _ERROR_LINE)
    if match is None or any(name in match.text for name in (*_ASKED_TO_END, "ChildFailedError")):
        return None
    return match.cap("medium", "The log has no traceback of this exception.").conclude(
        "exception",
        f"The log of {case.subject} ends with {quote(match.text)}.",
        _advise_exception(case, None),
    )


def _describe_place(case: Case) -> str:
    fatal = parse_log(case).fatal
    return f", raised at {fatal.place}" if fatal is not None and fatal.place else ""


def _advise_exception(case: Case, fatal: Traceback | None) -> tuple[str, ...]:
    read = (
        f"Read the whole traceback: `{case.program} logs --tail 200 {case.evidence.name}`."
        if is_in_engine(case)
        else "Read the whole traceback in the log."
    )
    place = f"Check {fatal.place}. " if fatal is not None and fatal.place else ""
    error = fatal.errors[-1] if fatal is not None else None
    script = find_script(case.lines[fatal.start : fatal.end + 1]) if fatal is not None else ""
    return (
        *quote_remedy(case, fatal),
        f"{place}{read}",
        *_find_text(_STEPS, error),
        (
            "Reproduce it with one process and a debugger: `python -m pdb -c continue"
            f" {script or 'train.py'}`, with `num_workers=0`."
        ),
    )


CAUSES: tuple[Cause, ...] = (
    Cause(
        reason="missing-file",
        title="A file does not exist",
        signs="The log contains `[Errno 2] No such file or directory` or `can't open file`.",
        meaning="A path of the host is not mounted, or the path is wrong.",
        steps=("Compare the path with the mounts: `docker inspect -f '{{json .Mounts}}' NAME`.",),
        confidence="high",
        detect=detect_missing_file,
    ),
    Cause(
        reason="bad-arguments",
        title="The command line is wrong",
        signs="The log contains `error: unrecognized arguments` or `the following arguments are"
        " required`; the exit code is 2 or 1.",
        meaning="An option is misspelt, missing, or from another version.",
        steps=("Compare `docker inspect -f '{{json .Config.Cmd}}' NAME` with `--help`.",),
        confidence="high",
        detect=detect_bad_arguments,
    ),
    Cause(
        reason="shape-error",
        title="Tensor shapes do not match",
        signs="The log contains `mat1 and mat2 shapes cannot be multiplied`, `size mismatch for`, `must"
        " match the size of tensor` or similar.",
        meaning="Code and configuration, or checkpoint and model, do not match.",
        steps=(
            "Print the shapes before that line.",
            "Use `drop_last=True` if only the last batch fails.",
        ),
        confidence="high",
        detect=detect_shape_error,
    ),
)

FALLBACK = Cause(
    reason="exception",
    title="An exception",
    signs="The log ends with a traceback that no other cause matches.",
    meaning="The last line of the traceback names the exception.",
    steps=("Read the traceback: `docker logs --tail 200 NAME`.",),
    confidence="high",
    detect=detect_exception,
)
