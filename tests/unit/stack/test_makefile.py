"""Tests for the Makefile."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_help_is_the_default_and_lists_every_target():
    """`make` without a target only prints every target with its description."""
    said = subprocess.run(("make", "-C", ROOT), capture_output=True, text=True, check=True).stdout
    lines = [line.split() for line in said.splitlines() if line.startswith("make ")]
    assert {line[1] for line in lines} == {
        "help",
        "monitor-up",
        "monitor-down",
        "monitor-status",
        "monitor-logs",
        "monitor-drill",
        "demo",
        "demo-down",
        "alerts",
        "test",
        "test-integration",
        "test-long",
        "coverage",
        "test-grafana",
        "mutants",
        "lint",
        "audit",
        "format",
        "bench",
        "docs",
        "dashboards",
        "pictures",
        "golden",
        "lock",
        "wheel",
        "image-digests",
        "install-service",
        "uninstall-service",
        "clean",
    }
    assert all(len(line) > 2 for line in lines)


def test_the_status_of_a_stopped_stack_is_no_error_of_make(tmp_path):
    """For a stopped stack, `make monitor-status` prints the status and no error of make."""
    said = subprocess.run(
        (
            *("make", "-C", ROOT, "monitor-status", "INSTALLED="),
            *(f"BIN={Path(sys.executable).parent}", f"STATE={tmp_path}"),
        ),
        capture_output=True,
        text=True,
        check=True,
    )
    assert "nothing is running: start the stack with" in said.stdout
    assert "***" not in said.stderr
