"""Tracebacks in logs of one and of many processes."""

from __future__ import annotations

from tests.support.deaths import read_death
from trainvitals.verdicts.causes.case import open_case
from trainvitals.verdicts.causes.parsed_log import choose_fatal
from trainvitals.verdicts.causes.ranks import RootCause, read_root_cause, split_rank
from trainvitals.verdicts.causes.tracebacks import is_progress, read_tracebacks

PLAIN = (
    "epoch 1",
    "Traceback (most recent call last):",
    '  File "/app/train.py", line 3, in main',
    "    step()",
    '  File "/usr/local/lib/python3.11/site-packages/torch/nn/functional.py", line 9, in linear',
    "    return linear(x)",
    "RuntimeError: CUDA error: device-side assert triggered",
    "For debugging consider passing CUDA_LAUNCH_BLOCKING=1",
)


def read_lines(name):
    """Return the cleaned log of a collected death."""
    return open_case(read_death(name)).lines


def names(traceback):
    """Name the exceptions of a traceback without their modules."""
    return [error.name.rpartition(".")[2] for error in traceback.errors]


def test_a_traceback_has_a_place_and_a_message_of_many_lines():
    """The place is the last frame that is in no library; the message goes on below its line."""
    (traceback,) = read_tracebacks(PLAIN)
    assert (traceback.start, traceback.end, traceback.rank) == (1, 7, None)
    assert traceback.place == "/app/train.py:3 in main"
    assert traceback.errors[0].name == "RuntimeError"
    assert traceback.errors[0].text.split("\n")[1].startswith("For debugging")


def test_a_message_ends_where_the_training_goes_on():
    """A line of a step behind an exception is no part of its message."""
    (traceback,) = read_tracebacks((*PLAIN[:7], "step 12 loss nan"))
    assert traceback.errors[0].text == "RuntimeError: CUDA error: device-side assert triggered"


def test_a_joined_traceback_is_one():
    """What `During handling of the above exception` joins has all exceptions, the first one first."""
    lines = read_lines("disk-full--torch-save")
    (traceback,) = read_tracebacks(lines)
    assert [error.text for error in traceback.errors] == [
        "RuntimeError: basic_ios::clear: iostream error",
        "RuntimeError: [enforce fail at inline_container.cc:672] . unexpected pos 704 vs 598",
    ]


def test_an_exception_without_a_traceback_is_joined_too():
    """Python prints only the line of an exception without frames."""
    (traceback,) = read_tracebacks(read_lines("hf-rate"))
    assert names(traceback) == ["HTTPStatusError", "HfHubHTTPError", "LocalEntryNotFoundError"]


def test_a_workers_traceback_is_joined_to_the_loaders():
    """`Original Traceback` of a data loader's worker is part of the one that ended the program."""
    (traceback,) = read_tracebacks(read_lines("fd-limit--worker"))
    assert names(traceback) == ["OSError", "OSError"]
    assert (
        traceback.errors[1].text == "OSError: [Errno 24] Too many open files: '/data/shard-17.npy'"
    )


def test_interleaved_lines_of_ranks_are_separated():
    """Each rank's traceback is read from its own lines."""
    lines = (
        "[rank1]: Traceback (most recent call last):",
        "[rank0]: Traceback (most recent call last):",
        '[rank1]:   File "/app/a.py", line 1, in f',
        '[rank0]:   File "/app/b.py", line 2, in g',
        "[rank0]: RuntimeError: Connection closed by peer [10.0.0.2]:9613",
        "[rank1]: ValueError: bad sample",
    )
    first, second = read_tracebacks(lines)
    assert (first.rank, first.place, names(first)) == (1, "/app/a.py:1 in f", ["ValueError"])
    assert (second.rank, second.place) == (0, "/app/b.py:2 in g")
    assert second.is_consequence
    assert choose_fatal((first, second), None) is first


def test_the_root_cause_decides_between_ranks():
    """Of two ranks with errors of their own, it is the one that torchrun saw fail first."""
    lines = tuple(
        line
        for rank, error in ((0, "KeyError: 'a'"), (1, "ValueError: b"))
        for line in (
            f"[rank{rank}]: Traceback (most recent call last):",
            f'[rank{rank}]:   File "/app/a.py", line 1, in f',
            f"[rank{rank}]: {error}",
        )
    )
    tracebacks = read_tracebacks(lines)
    fatal = choose_fatal(tracebacks, RootCause(line=9, rank=1, exit_code=1))
    assert fatal is not None
    assert names(fatal) == ["ValueError"]
    fatal = choose_fatal(tracebacks, None)
    assert fatal is not None
    assert names(fatal) == ["KeyError"]


def test_a_killed_rank_leaves_no_traceback():
    """Errors of other ranks are not the cause of a rank that ended by a signal."""
    lines = (
        "[rank0]: Traceback (most recent call last):",
        '[rank0]:   File "/app/a.py", line 1, in f',
        "[rank0]: RuntimeError: Connection closed by peer [10.0.0.2]:9613",
    )
    tracebacks = read_tracebacks(lines)
    assert choose_fatal(tracebacks, RootCause(line=9, rank=1, exit_code=-9)) is None


def test_the_table_of_torchrun_is_read():
    """Rank, exit code, process and host come from `Root Cause (first observed failure)`."""
    lines = read_lines("nccl-timeout")
    root = read_root_cause(lines)
    assert root is not None
    assert (root.rank, root.exit_code, root.pid) == (1, -6, 1731)
    assert root.host == "3f0d2c9a1b77"
    assert read_root_cause(("nothing",)) is None


def test_a_traceback_in_the_table_has_its_rank():
    """With `@record` torchrun prints a rank's traceback indented within its table."""
    table = [one for one in read_tracebacks(read_lines("exception--recorded")) if one.start > 50]
    assert [(one.rank, names(one)) for one in table] == [(0, ["RuntimeError"]), (1, ["ValueError"])]


def test_the_launchers_own_traceback_is_known():
    """The error `ChildFailedError` only reports that a child failed."""
    tracebacks = read_tracebacks(read_lines("exception--first-rank"))
    assert [one.is_launcher for one in tracebacks] == [False, False, True]


def test_what_did_not_end_the_program_is_aside():
    """Exceptions that were ignored, and those of threads, are not chosen."""
    lines = (
        *PLAIN[1:7],
        "Exception ignored in: <function X.__del__ at 0x7fecd6ac1ee0>",
        "Traceback (most recent call last):",
        '  File "/app/x.py", line 5, in __del__',
        "ValueError: del",
    )
    tracebacks = read_tracebacks(lines)
    assert [one.is_aside for one in tracebacks] == [False, True]
    fatal = choose_fatal(tracebacks, None)
    assert fatal is not None
    assert names(fatal) == ["RuntimeError"]


def test_threads_that_write_at_once_are_aside():
    """Their frames are those of `threading`, whatever line stands before them."""
    frame = '  File "/usr/lib/python3.8/threading.py", line 932, in _bootstrap_inner'
    first, second = "Traceback (most recent call last):", "BrokenPipeError: [Errno 32] Broken pipe"
    lines = (
        "Exception in thread Exception in thread NetStat:",
        ":",
        first,
        first,
        frame,
        frame,
        second,
    )
    (traceback,) = read_tracebacks(lines)
    assert traceback.is_aside
    assert traceback.errors[-1].name == "BrokenPipeError"


def test_a_box_of_rich_is_read():
    """The package Rich draws a box around the frames and sets the exception below it."""
    lines = (
        "╭──────────── Traceback (most recent call last) ─────────────╮",
        "│ /app/train.py:12 in main                                   │",
        "│ ❱ 12     step()                                            │",
        "╰────────────────────────────────────────────────────────────╯",
        "ValueError: bad sample",
    )
    (traceback,) = read_tracebacks(lines)
    assert names(traceback) == ["ValueError"]


CELL = (
    "---------------------------------------------------------------------------",
    "LookupError                               Traceback (most recent call last)",
    "Cell In[7], line 2",
    "      1 state = {}",
    "----> 2 restore(state)",
    "",
    "Cell In[5], line 4, in restore(state)",
    "      3     if not state:",
    "----> 4         raise LookupError(",
    "      5             'no shard')",
    "",
    "File ~/env/lib/python3.11/site-packages/torch/nn/modules/module.py:80, in Module.run(self)",
    "     79 def run(self):",
    "---> 80     self.go()",
    "",
    "LookupError: no shard",
)


def test_the_traceback_of_a_cell_is_read():
    """IPython does not indent frames; the exception is the line with the name in the first line."""
    (traceback,) = read_tracebacks(("epoch 1", *CELL, "", "epoch 2"))
    assert names(traceback) == ["LookupError"]
    assert traceback.errors[0].headline == "LookupError: no shard"
    assert traceback.place == "cell In[5]:4 in restore"


def test_an_exception_of_a_program_that_executes_notebooks_contains_that_of_the_cell():
    """The message of the one is the traceback of the other, so that they are one."""
    outer = (
        "Traceback (most recent call last):",
        '  File "/env/bin/execute", line 8, in <module>',
        "    sys.exit(main())",
        "runner.exceptions.CellExecutionError: the following cell failed:",
        "------------------",
        "restore(state)",
        "------------------",
        "",
        "",
    )
    (traceback,) = read_tracebacks((*outer, *CELL))
    assert names(traceback) == ["CellExecutionError", "LookupError"]
    assert traceback.place == "cell In[5]:4 in restore"


def test_a_cell_s_traceback_without_its_end_is_read_to_the_next_one():
    """A log may have many of them."""
    (traceback,) = read_tracebacks((*CELL[:5], *CELL))
    assert names(traceback) == ["LookupError"]


def test_a_traceback_that_is_cut_off_is_none():
    """Without the line of the exception nothing is known."""
    assert read_tracebacks(PLAIN[:6]) == ()


def test_marks_of_ranks_are_taken_off():
    """PyTorch, torchrun, Open MPI and Ray mark the lines of a rank in their own ways."""
    assert split_rank("[rank3]: x") == (3, "x")
    assert split_rank("[rank1]:[E1120 09:15:02] x") == (1, "[E1120 09:15:02] x")
    assert split_rank("[default2]:[rank6]: x") == (6, "x")
    assert split_rank("[1,5]<stderr>:x") == (5, "x")
    assert split_rank("(train pid=71, ip=10.0.0.2) x") == (None, "x")
    assert split_rank("[ranking] x") == (None, "[ranking] x")


def test_lines_of_steps_are_known():
    """A step, an epoch or a loss with a number is progress; an error is not."""
    assert is_progress("2026-11-20 INFO step 41210 loss 2.1834")
    assert is_progress("Epoch 3: 410/1000 [12:01<17:18, 1.76s/it]")
    assert not is_progress("saving the model")
    assert not is_progress("ValueError: step 3 has no loss")
