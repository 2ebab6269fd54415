"""A picture as a JSON document: reading, writing and refused documents."""

from __future__ import annotations

import contextlib
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.views.machine.document import DocumentError, read_document, write_document
from trainvitals.views.machine.picture import (
    Accelerator,
    Container,
    Death,
    Filesystem,
    Host,
    Picture,
    Run,
)

PICTURE = Picture(
    time=1_700_049_600.0,
    hostname="ada",
    version="1.2.3",
    accelerators=(
        Accelerator("gpu", 0, "GPU-1", "H100", throttled=("hw_thermal",), xids=((79, 1),),
                    utilization_trace=(None, 0.123456789)),
    ),
    accelerators_expected=(("gpu", 8),),
    runs=(Run("llama", loss=math.nan, validation_loss=math.inf, tone="bad"),),
    containers=(Container("c", last_death=Death(1.0, 137, "oom-cgroup", "SIGKILL", "high", "It")),),
    host=Host(load=(1.0, 2.0, 3.0), filesystems=(Filesystem("/", is_readonly=True),)),
    alerts=(),
)  # fmt: skip


def change(**members):
    """Return the document with these members replaced."""
    return json.dumps({**json.loads(write_document(PICTURE)), **members})


def test_what_was_written_is_read():
    """A written document is read unchanged, including NaN, but traces have five digits."""
    read = read_document(write_document(PICTURE))
    assert math.isnan(read.runs[0].loss)
    assert read.runs[0].validation_loss == math.inf
    assert read.accelerators[0].utilization_trace == (None, 0.12346)
    assert read.accelerators[0].xids == ((79, 1),)
    assert read.host == PICTURE.host
    assert read.containers == PICTURE.containers
    assert read.alerts == ()
    assert read.accelerators_expected == (("gpu", 8),)


def test_the_document_is_json_for_everybody():
    """The document contains no NaN literal, which is not valid JSON."""
    json.loads(write_document(PICTURE), parse_constant=pytest.fail)


def test_what_is_not_known_is_left_alone():
    """Unknown members, as of a newer exporter, are ignored."""
    assert read_document(change(quantum={"bits": 7})).hostname == "ada"


def test_a_whole_number_beyond_all_bounds_is_not_known():
    """A whole number that is too large is read as unknown, and the run's other members are kept."""
    document = json.loads(write_document(PICTURE))
    document["runs"][0] |= {"step": 10**30, "steps": 10**4000, "ranks": 2}
    (run,) = read_document(json.dumps(document).encode()).runs
    assert (run.name, run.step, run.steps, run.ranks) == ("llama", None, None, 2)


def test_what_an_older_exporter_did_not_tell_has_its_default():
    """Members missing from the document have their defaults."""
    document = json.loads(write_document(PICTURE))
    del document["containers"], document["host"]
    read = read_document(json.dumps(document))
    assert (read.containers, read.host) == (None, Host())


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ("<html>", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ("7", "a number is no overview; ask an exporter's /api/v1/overview"),
        ("{}", "its format is null, and this version reads 1"),
        (change(format=2), "its format is 2, and this version reads 1"),
        ('{"format": 1}', "hostname is missing"),
        (change(hostname=7), "hostname is 7, not a text"),
        (change(hostname="x" * 5000), "hostname is longer than 4096 characters"),
        (change(time="soon"), 'time is "soon", not a number'),
        (change(time=True), "time is true, not a number"),
        (change(time=10**400), "time is huge, not a number"),
        (change(runs={}), "runs is an object, not an array"),
        (change(runs=[{"name": "x", "tone": "pink"}]), 'runs[0].tone is "pink", not one of'),
        (change(runs=[{"name": "x", "step": 1.5}]), "runs[0].step is 1.5, not a whole number"),
        (change(runs=[{}]), "runs[0].name is missing"),
        (change(runs=[None] * 5000), "runs has 5000 items; at most 4096 are read"),
        (change(accelerators_expected=[["gpu"]]), "accelerators_expected[0] has 1 items, not 2"),
        (change(host=[]), "host is an array, not an object"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(document, words):
    """The error of an invalid document names the member, on one line."""
    with pytest.raises(DocumentError) as caught:
        read_document(document)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(name=st.sampled_from(sorted(json.loads(write_document(PICTURE)))), value=json_values)
def test_nothing_else_is_raised_whatever_stands_in_it(name, value):
    """Any value of a member is read or refused with a DocumentError."""
    with contextlib.suppress(DocumentError):
        assert isinstance(read_document(change(**{name: value})), Picture)


def test_an_exporter_that_does_not_judge_is_no_machine_that_is_well():
    """A document without troubles, as of an older version, is reported as too old."""
    document = json.loads(write_document(Picture(0.0, "ada", "0.0.9")))
    del document["troubles"]
    read = read_document(json.dumps(document))
    assert [each.subject_kind for each in read.unknowns] == ["exporter"]
    assert "trainvitals 0.0.9 on that machine is too old" in read.unknowns[0].why
