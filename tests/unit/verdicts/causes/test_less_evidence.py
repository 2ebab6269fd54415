"""Verdicts on collected deaths of which some files of evidence are missing."""

import zlib
from itertools import combinations

import pytest

from tests.support.deaths import list_deaths, read_files
from trainvitals.sources.containers.evidence_folder import read_folder
from trainvitals.verdicts.causes.judge import judge

FILES = ("inspect.json", "events.jsonl", "kernel.txt", "log.txt", "host.json")
MOST_SUBSETS = 4
# Pairs of the full verdict and a plausible other one, with the file that is missing then.
NEIGHBOURS = {
    ("inodes-full", "disk-full"),  # df
    ("oom-worker-alive", "running"),  # the kernel log
    ("running", "oom-parent"),  # the settings: the killed one is a sibling
    ("running", "oom-worker-alive"),  # the kernel log, which names another container
    ("stop-graceful", "finished"),  # the engine's events
    ("memory-hardware", "sigbus-shm"),  # the kernel log
    ("finished", "cuda-oom"),  # the exit code
}


def list_subsets(name):
    """Return some subsets of a death's files, the same in each test run."""
    files = [file for file in FILES if file in read_files(name)]
    subsets = [kept for size in range(1, len(files)) for kept in combinations(files, size)]
    subsets.sort(key=lambda kept: zlib.crc32(f"{name} {kept}".encode()))
    return subsets[:MOST_SUBSETS]


@pytest.mark.parametrize("name", list_deaths())
def test_less_evidence_is_not_another_story(tmp_path, name):
    """With fewer files, the verdict is the same, unknown, listed or not of high confidence."""
    files = read_files(name)

    def judge_files(kept):
        for file in files.keys() - kept:
            (tmp_path / file).unlink(missing_ok=True)
        for file in kept:
            (tmp_path / file).write_text(files[file])
        return judge(read_folder(tmp_path))

    full = judge_files([file for file in files if file != "expected.yml"]).reason
    for kept in list_subsets(name):
        verdict = judge_files(kept)
        is_same = verdict.reason in {full, "unknown"} or (full, verdict.reason) in NEIGHBOURS
        assert is_same or verdict.finding.confidence != "high", (kept, full, verdict.reason)
