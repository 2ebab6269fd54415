"""A run that cannot be shown does not affect the others."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from trainvitals.metrics.collectors.training import TrainingCollector
from trainvitals.runfile import EMPTY_STATE, EMPTY_STEP, Record
from trainvitals.sources.files import Roots
from trainvitals.sources.runs.reading import RankReading, RunReading, RunsReading
from trainvitals.sources.runs.source import TrainingOptions, TrainingSource
from trainvitals.verdicts.machine import Alerts
from trainvitals.views.machine.document import write_document
from trainvitals.views.machine.observer import Observer
from trainvitals.views.machine.picture import Picture, Run
from trainvitals.views.page.page import PageWriter

NOON = 1_700_049_600.0
NOWHERE = Roots(Path("/nonexistent/proc"), Path("/nonexistent/sys"), Path("/nonexistent"))
# A value of a wrong type that no input check lets through, but a later mistake might.
NO_NUMBER = "12"
FAULTY = replace(Run("evil"), step=NO_NUMBER, loss=NO_NUMBER, loss_trace=(NO_NUMBER, 1.0))
PICTURE = Picture(NOON, "ada", "1.2.3", runs=(Run("good"), FAULTY, Run("fine")))


def read(*names: str) -> RunsReading:
    """Return a reading of runs, of which the one named `evil` has an empty record."""
    records = {name: Record(EMPTY_STEP, EMPTY_STATE) for name in names} | {"evil": Record((), ())}
    return RunsReading(
        ranks=tuple(RankReading(name, "0", "log", records[name]) for name in names),
        runs=tuple(RunReading(name, "log") for name in names),
    )


def test_the_page_shows_the_others():
    """The page shows the other runs and names the run that cannot be shown, with the error."""
    page = PageWriter().write_fragment(PICTURE).decode()
    assert "good" in page
    assert "fine" in page
    assert "evil cannot be shown (TypeError" in page


def test_the_document_has_the_others():
    """The document has the other runs, and lists the runs that cannot be written as unknown."""
    document = json.loads(
        write_document(replace(PICTURE, runs=(replace(FAULTY, tone={1}), *PICTURE.runs)))
    )
    assert [run["name"] for run in document["runs"]] == ["good", "fine"]
    assert len(document["unknowns"]) == 2


def test_a_picture_is_made_of_the_others():
    """A run with an unreadable record is left out of the picture and listed as unknown."""
    observer = Observer("1.2.3", roots=NOWHERE, name_host=lambda: "ada")
    seen = SimpleNamespace(readings={"training": read("good", "evil", "fine")}, reports=())
    picture = observer.picture(seen, NOON)
    assert {run.name for run in picture.runs} == {"good", "fine"}
    (why,) = [unknown.why for unknown in picture.unknowns if unknown.subject_kind == "run"]
    assert why.startswith("evil cannot be shown (IndexError")
    assert observer.judge(seen, NOON, Alerts(())).unknowns


def test_metrics_of_the_others_are_served():
    """The collector serves the other runs, names the failed run and counts it as omitted."""
    collector = TrainingCollector(TrainingSource(TrainingOptions(Path("/nonexistent"))))
    reading = read("good", "evil")
    blocks = collector.express(reading)
    assert any("good" in str(block.shape) for block in blocks)
    assert not any("evil" in str(block.shape) for block in blocks)
    assert collector.complaint(reading) == "run evil: IndexError: tuple index out of range"
    assert collector.omitted(reading) == 1
    collector.express(read("good"))
    assert collector.complaint(read("good")) is None
    collector.close()


def test_what_fails_without_a_run_is_no_fault_of_one():
    """An error that is not caused by a run is raised."""
    with pytest.raises(TypeError):
        write_document(replace(PICTURE, runs=(Run("good"),), hostname={1}))
