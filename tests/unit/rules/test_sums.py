"""Tests for the example queries in docs/accelerators.md with promtool."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from tests.support.promtool import run_promtool

DOCS = Path(__file__).resolve().parents[3] / "docs/accelerators.md"
TARGET = 'job="t",instance="n1",kind="gpu"'
# Ada uses one device alone and one together with Bob.
PROCESSES = (
    ('device="0",uuid="u0",pid="7"', 'user="ada",slurm_job="12"', 10, 0.5),
    ('device="1",uuid="u1",pid="7"', 'user="ada",slurm_job="12"', 20, 0.25),
    ('device="1",uuid="u1",pid="8"', 'user="bob",slurm_job=""', 5, 0.5),
)


def find_query(start: str) -> str:
    """Return the query in docs/accelerators.md that begins with these characters."""
    queries = re.findall(r"`([^`]+)`", DOCS.read_text(encoding="utf-8"))
    (query,) = {query for query in queries if query.startswith(start)}
    return query


def test_the_sums_by_user_and_by_job_are_one_query(promtool, tmp_path):
    """The sums by user and by job count each process once on each device."""
    series = [
        {"series": f"{name}{{{TARGET},{process}{labels}}}", "values": str(value)}
        for process, more, memory, share in PROCESSES
        for name, labels, value in (
            ("accelerator_process_info", f",{more}", 1),
            ("accelerator_process_memory_used_bytes", "", memory),
            ("accelerator_process_utilization_ratio", "", share),
        )
    ]
    expected = {
        "sum by (user)": {'{user="ada"}': 30, '{user="bob"}': 5},
        "sum by (slurm_job)": {'{slurm_job="12"}': 0.75, "{}": 0.5},
    }
    tests = [
        {
            "expr": find_query(start),
            "eval_time": "0",
            "exp_samples": [{"labels": labels, "value": value} for labels, value in sums.items()],
        }
        for start, sums in expected.items()
    ]
    path = tmp_path / "sums.yml"
    path.write_text(
        yaml.safe_dump({"tests": [{"input_series": series, "promql_expr_test": tests}]}),
        encoding="utf-8",
    )
    done = run_promtool(promtool, "test", "rules", path)
    assert done.returncode == 0, done.stdout + done.stderr
