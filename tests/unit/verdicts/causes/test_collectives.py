"""Collective operations that timed out because a rank was missing."""

from __future__ import annotations

from tests.support.deaths import tell
from tests.unit.verdicts.causes.evidences import death
from trainvitals.sources.containers.evidence import Settings
from trainvitals.verdicts.causes.collective_waits import Wait, list_waits
from trainvitals.verdicts.causes.judge import judge

LINE = (
    "[rank{0}]:[E1120 09:15:02.123456789 ProcessGroupNCCL.cpp:632] [Rank {0}] Watchdog caught collective"
    " operation timeout: WorkNCCL(SeqNum={1}, OpType=ALLREDUCE, NumelIn=8, NumelOut=8,"
    " Timeout(ms)=600000) ran for 600012 milliseconds before timing out."
)


def test_the_watchdogs_lines_are_read():
    """Rank, operation and timeout are read from the watchdog's lines, once for each rank."""
    lines = (LINE.format(1, 1234), LINE.format(0, 1234), LINE.format(1, 1234))
    assert list_waits(lines) == (
        Wait(0, 1234, "ALLREDUCE", 600.0),
        Wait(1, 1234, "ALLREDUCE", 600.0),
    )


def test_a_line_without_a_rank_is_a_wait_too():
    """A watchdog line without a rank, as of older versions, is read as a wait."""
    line = "Watchdog caught collective operation timeout: WorkNCCL(OpType=ALLREDUCE)"
    assert list_waits((line,)) == (Wait(None, None, "", None),)


def test_the_rank_that_is_missing_is_named():
    """Of the ranks that the command starts, the one without a timeout is named."""
    evidence = death(
        1,
        log=tuple(LINE.format(rank, 7) for rank in (0, 1, 3)),
        settings=Settings(command=("torchrun", "--nproc_per_node=4", "train.py")),
    )
    text = tell(judge(evidence).finding)
    assert "Ranks 0, 1 and 3 timed out after 10m in the collective operation ALLREDUCE 7" in text
    assert "Examine rank 2" in text


def test_where_all_waited_none_is_named():
    """If every rank times out, the ranks are out of step and the one behind is named."""
    evidence = death(1, log=(LINE.format(0, 9), LINE.format(1, 8)))
    text = tell(judge(evidence).finding)
    assert "The ranks are out of step" in text
    assert "rank 1 is the furthest behind" in text
    assert "Examine the rank without this line, or the one furthest behind" in text
