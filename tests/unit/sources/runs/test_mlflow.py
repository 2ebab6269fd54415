"""Tests for runs that MLflow writes to a folder."""

from __future__ import annotations

import math
from pathlib import Path

from trainvitals.sources.runs.discovery import FoundFile, describe_file
from trainvitals.sources.runs.mlflow import MlflowSource, parse_metric

META = """\
artifact_uri: file:///data/mlruns/0/6f/artifacts
end_time: null
experiment_id: '0'
run_id: 6f
run_name: wistful-owl-3
start_time: 1764000000000
status: {status}
"""


def write_run(folder: Path, *, status: int = 1) -> list[FoundFile]:
    """Write a run as MLflow does, and return its `meta.yaml`."""
    run = folder / "mlruns/0/6f"
    (run / "metrics/train").mkdir(parents=True, exist_ok=True)
    (run / "metrics/system").mkdir(exist_ok=True)
    (run / "params").mkdir(exist_ok=True)
    (run / "meta.yaml").write_text(META.format(status=status))
    (run / "metrics/train/loss").write_text("1764000001000 0.5 10\n1764000002000 0.25 20\n")
    (run / "metrics/val_loss").write_text("1764000002000 nan 20\n17640000")
    (run / "metrics/system/cpu").write_text("1764000002000 3.0 20\n")
    (run / "params/max_epochs").write_text("12")
    file = describe_file(str(run / "meta.yaml"), (run / "meta.yaml").stat())
    return [FoundFile(file.path, file.modified_time, 0, file.identity, 0, beneath="/")]


def test_a_run_has_its_name_its_totals_and_its_metrics(tmp_path: Path):
    """A run is read with its name, total epochs and metrics.

    System metrics and incomplete lines are left out.
    """
    found = write_run(tmp_path)
    source = MlflowSource(held=lambda: found)
    (run,) = source.read(math.inf)
    assert (run.run, run.source, run.step) == ("wistful-owl-3", "mlflow", 20)
    assert run.values["loss"] == 0.25
    assert run.values["total_epochs"] == 12
    assert math.isnan(run.values["validation_loss"])
    assert run.nonfinite["evaluation"] == 1
    assert (run.last_time, run.started_time) == (1764000002.0, 1764000000.0)
    assert run.is_finished is None
    assert not run.metrics
    source.close()


def test_a_run_that_finished_says_so(tmp_path: Path):
    """A run is finished if the status in `meta.yaml` is 3."""
    found = write_run(tmp_path, status=3)
    (run,) = MlflowSource(held=lambda: found).read(math.inf)
    assert run.is_finished is True


def test_links_in_a_run_are_not_followed(tmp_path: Path):
    """A metric file that is a symbolic link is ignored."""
    found = write_run(tmp_path)
    (tmp_path / "secret").write_text("1764000002000 42.0 20\n")
    (tmp_path / "mlruns/0/6f/metrics/linked").symlink_to(tmp_path / "secret")
    (run,) = MlflowSource(held=lambda: found).read(math.inf)
    assert not run.metrics


def test_a_line_of_another_form_is_no_metric():
    """A line that does not consist of three numbers is not read as a metric."""
    assert parse_metric("1764000002000 0.5 20") == (1764000002.0, 0.5, 20)
    assert parse_metric("1764000002000 0.5") is None
    assert parse_metric("a b c") is None
