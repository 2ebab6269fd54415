"""Tracebacks in the logs of one process and of several processes."""

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
    """Return the names of a traceback's exceptions without their modules."""
    return [error.name.rpartition(".")[2] for error in traceback.errors]


def test_a_traceback_has_a_place_and_a_message_of_many_lines():
    """The place is the last frame outside libraries, and the message includes the next lines."""
    (traceback,) = read_tracebacks(PLAIN)
    assert (traceback.start, traceback.end, traceback.rank) == (1, 7, None)
    assert traceback.place == "/app/train.py:3 in main"
    assert traceback.errors[0].name == "RuntimeError"
    assert traceback.errors[0].text.split("\n")[1].startswith("For debugging")


def test_a_message_ends_where_the_training_goes_on():
    """A line of training progress after an exception is not part of its message."""
    (traceback,) = read_tracebacks((*PLAIN[:7], "step 12 loss nan"))
    assert traceback.errors[0].text == "RuntimeError: CUDA error: device-side assert triggered"


def test_a_joined_traceback_is_one():
    """Tracebacks joined by `During handling of the above exception` are read as one."""
    lines = read_lines("disk-full--torch-save")
    (traceback,) = read_tracebacks(lines)
    assert [error.text for error in traceback.errors] == [
        "RuntimeError: basic_ios::clear: iostream error",
        "RuntimeError: [enforce fail at inline_container.cc:672] . unexpected pos 704 vs 598",
    ]


def test_an_exception_without_a_traceback_is_joined_too():
    """An exception that Python prints without frames is joined to the traceback."""
    (traceback,) = read_tracebacks(read_lines("hf-rate"))
    assert names(traceback) == ["HTTPStatusError", "HfHubHTTPError", "LocalEntryNotFoundError"]


def test_a_workers_traceback_is_joined_to_the_loaders():
    """The `Original Traceback` of a data loader's worker is part of the loader's traceback."""
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
    """If two ranks raised errors, the rank that torchrun names as first is chosen."""
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
    """If the first failed rank ended by a signal, no traceback of another rank is chosen."""
    lines = (
        "[rank0]: Traceback (most recent call last):",
        '[rank0]:   File "/app/a.py", line 1, in f',
        "[rank0]: RuntimeError: Connection closed by peer [10.0.0.2]:9613",
    )
    tracebacks = read_tracebacks(lines)
    assert choose_fatal(tracebacks, RootCause(line=9, rank=1, exit_code=-9)) is None


def test_the_table_of_torchrun_is_read():
    """Rank, exit code, process and host are read from torchrun's root cause table."""
    lines = read_lines("nccl-timeout")
    root = read_root_cause(lines)
    assert root is not None
    assert (root.rank, root.exit_code, root.pid) == (1, -6, 1731)
    assert root.host == "3f0d2c9a1b77"
    assert read_root_cause(("nothing",)) is None


def test_a_traceback_in_the_table_has_its_rank():
    """A traceback that torchrun prints in its table, because of `@record`, has its rank."""
    table = [one for one in read_tracebacks(read_lines("exception--recorded")) if one.start > 50]
    assert [(one.rank, names(one)) for one in table] == [(0, ["RuntimeError"]), (1, ["ValueError"])]


def test_the_launchers_own_traceback_is_known():
    """A `ChildFailedError` is recognised as the launcher's own traceback."""
    tracebacks = read_tracebacks(read_lines("exception--first-rank"))
    assert [one.is_launcher for one in tracebacks] == [False, False, True]


def test_what_did_not_end_the_program_is_aside():
    """An ignored exception is not chosen as the one that ended the program."""
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
    """A thread's traceback is recognised by its frames, even if two threads' lines are mixed."""
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
    """A traceback that the package Rich draws in a box is read."""
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
    """A traceback in IPython's format is read with its exception and its cell."""
    (traceback,) = read_tracebacks(("epoch 1", *CELL, "", "epoch 2"))
    assert names(traceback) == ["LookupError"]
    assert traceback.errors[0].headline == "LookupError: no shard"
    assert traceback.place == "cell In[5]:4 in restore"


def test_an_exception_of_a_program_that_executes_notebooks_contains_that_of_the_cell():
    """A notebook runner's exception and the cell's traceback in its message are one traceback."""
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
    """A truncated IPython traceback ends where the next one begins."""
    (traceback,) = read_tracebacks((*CELL[:5], *CELL))
    assert names(traceback) == ["LookupError"]


def test_a_traceback_that_is_cut_off_is_none():
    """A traceback without the line of its exception is ignored."""
    assert read_tracebacks(PLAIN[:6]) == ()


def test_marks_of_ranks_are_taken_off():
    """Rank prefixes of PyTorch, torchrun, Open MPI and Ray are split from the line."""
    assert split_rank("[rank3]: x") == (3, "x")
    assert split_rank("[rank1]:[E1120 09:15:02] x") == (1, "[E1120 09:15:02] x")
    assert split_rank("[default2]:[rank6]: x") == (6, "x")
    assert split_rank("[1,5]<stderr>:x") == (5, "x")
    assert split_rank("(train pid=71, ip=10.0.0.2) x") == (None, "x")
    assert split_rank("[ranking] x") == (None, "[ranking] x")


def test_lines_of_steps_are_known():
    """A step, an epoch or a loss with a number is progress, and an error is not."""
    assert is_progress("2026-11-20 INFO step 41210 loss 2.1834")
    assert is_progress("Epoch 3: 410/1000 [12:01<17:18, 1.76s/it]")
    assert not is_progress("saving the model")
    assert not is_progress("ValueError: step 3 has no loss")
