"""Words that make a log line look like training progress or like trouble."""

from __future__ import annotations

import re

# A measure such as `val_error` is not an error; `ray::Actor.step` names a process.
_ERROR_WORD = re.compile(r"(?<!_)error(?!s?[\"']?[ :=]{1,3}(?:0|none|null)\b)|ray::")
_SOURCE_FILE = re.compile(r"(?<![\w./-])[\w./-]{1,200}\.py\b[: ]{0,2}[0-9]{0,6}")
# An option of a quoted command line.
_OPTION = re.compile(r"(?<!\S)--[a-z][\w.-]{0,60}(?:[= ][^\s-]\S{0,200})?")
_PROGRESS = (
    "step",
    "epoch",
    "iter",
    "it/s",
    "s/it",
    "samples/s",
    "tokens/s",
    "loss",
    "finished with value",
    "schritt",
)
# The same words in other languages, with letters other than a to z.
_PROGRESS_ABROAD = (
    "步数",
    "步骤",
    "轮次",
    "迭代",
    "损失",
    "損失",
    "ステップ",
    "エポック",
    "스텝",
    "에폭",
    "손실",
    "шаг",
    "эпоха",
    "потери",
    "étape",
    "époque",
    "época",
)
# A tqdm bar with the elapsed and the remaining time, except a bar that counts bytes.
_BAR = re.compile(r"[0-9]%\|[^|]{0,200}\| *[0-9]{1,9}/[0-9]{1,9} \[[0-9:]{4,10}<")
# A line of a server's access log, with the status of a request.
_ACCESS = re.compile(
    r"\"(?:GET|POST|PUT|DELETE|PATCH|HEAD|OPTIONS) [^\"]{1,400}\" ([1-5][0-9]{2})\b"
)
# A tracker repeats the last values at the end of a run, also if the run failed.
_SUMMARIES = ("wandb: ",)
# A row of the metrics that Transformers prints at the end: `  train_runtime = 1:18:10.12`.
_METRIC = re.compile(r" {2}[a-z_]{2,60} +=  *[0-9][0-9a-z.:+-]*$")


def is_progress(line: str) -> bool:
    """Return whether a line looks like training progress: a step, an epoch, a rate or a loss."""
    lower = line[:400].lower()
    if lower.startswith(_SUMMARIES) or "op_name=" in lower:  # an operation of XLA's graph
        return False
    if lower.startswith("  ") and _METRIC.match(lower):
        return False
    if ".py" in lower:
        lower = _SOURCE_FILE.sub("", lower)
    if " --" in lower:
        lower = _OPTION.sub("", lower)
    if "%|" in lower and _BAR.search(lower):
        return True
    return (
        (
            any(word in lower for word in _PROGRESS)
            or (not lower.isascii() and any(word in lower for word in _PROGRESS_ABROAD))
        )
        and any(character in "0123456789" for character in lower)
        and _ERROR_WORD.search(lower) is None
    )


def find_status(line: str) -> int | None:
    """Return the request status in an access log line; None for any other line."""
    found = _ACCESS.search(line[:900]) if '" ' in line else None
    return None if found is None else int(found[1])


# A counted noun is not a value, as in `number of nan iterations: 0`.
NOT_COUNTED = r"(?! (?:iterations?|counts?|steps?|batches)\b)"
# A shell prints this word in the user's language.
KILLED = (
    "Killed",
    "已杀死",
    "已終止",
    "强制终止",
    "強制終了",
    "Getötet",
    "Processus arrêté",
    "Tué",
    "Убито",
    "Matado",
    "Ucciso",
)
SEGFAULT = (
    "Segmentation fault",
    "段错误",
    "区段错误",
    "セグメンテーション違反",
    "Speicherzugriffsfehler",
    "rreur de segmentation",
    "Ошибка сегментирования",
    "Violación de segmento",
    "Falla de segmentación",
)
# Each log line that the pattern of a cause matches contains one of these words in lower case.
_TROUBLE = (
    *(word.lower() for word in (*KILLED, *SEGFAULT)),
    "err",
    "exc",
    "fail",
    "fault",
    "kill",
    "abort",
    "nan",
    "infinit",
    "diverge",
    "sig",
    "termin",
    "timed out",
    "times out",
    "timeout",
    "time-out",
    "time limit",
    "cancel",
    "preempt",
    "evict",
    "cannot",
    "can't",
    "unable",
    "unavail",
    "exceed",
    "in use",
    "reclaim",
    "low on",
    "denied",
    "of memory",
    "of_memory",
    "double free",
    "memoryerror",
    "memory limit",
    "memory access",
    "memory pressure",
    "on memory",
    "shared memory",
    "allocate",
    "oom",
    "no ",
    "not ",
    "refused",
    "reset",
    "interrupt",
    "corrupt",
    "bus",
    "illegal",
    "invalid",
    "mismatch",
    "lost",
    "unreach",
    "xid",
    "warn",
    "exhaust",
    "overflow",
    "already",
    "limit",
    "full",
    "assert",
    "unexpected",
    "missing",
    "down",
    "busy",
    "stuck",
    "hung",
    "deadline",
    "forbidden",
    "violat",
    "unauthorized",
    "no space",
    "non-finite",
    "power",
    "broken",
    "closed",
    "nccl",
    "hbm",
    "stale",
    "too many",
    "size mismatch",
    "shape",
    "requeue",
    "hangup",
    "pod",
    "image",
    "daemon",
    "died",
    "dead",
    "exit",
    "code",
    "crash",
    "fatal",
    "undefined",
    "such",
    "insufficient",
    "stall",
    "unresponsive",
    "kubelet",
    "scheduler",
    "instructions",
    "traceback",
    "core dumped",
)


def may_be_trouble(line: str) -> bool:
    """Return whether a line contains a word that indicates trouble; faster than the patterns."""
    lower = line.lower()
    return any(word in lower for word in _TROUBLE)
