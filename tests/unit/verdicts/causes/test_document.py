"""Conversion of evidence to JSON and back."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings

from tests.unit.verdicts.causes.evidences import ANY_EVIDENCE
from trainvitals.sources.containers.evidence import Evidence, HealthProbe, OomKill, Sample, State
from trainvitals.sources.containers.evidence_document import EvidenceError, from_json, to_json


@settings(max_examples=50)
@given(ANY_EVIDENCE)
def test_evidence_comes_back_from_json_as_it_was(evidence):
    """Evidence that is written as JSON text and read again is equal to the original."""
    assert from_json(json.loads(json.dumps(to_json(evidence)))) == evidence


def test_a_document_has_its_format_and_omits_unknown_values():
    """The members of a document are the attributes of the evidence that are not None."""
    evidence = Evidence("process", "train.py", signal=9, log=("epoch 1",), oom_kills=())
    document = to_json(evidence)
    assert document["format"] == 1
    assert (document["subject"], document["signal"]) == ("process", 9)
    assert (document["log"], document["oom_kills"]) == (["epoch 1"], [])
    assert "events" not in document


def test_what_can_be_none_is_not_the_same_as_empty():
    """A missing kernel log is read as None, and one without OOM kills as an empty tuple."""
    assert from_json(to_json(Evidence("run", "a"))).oom_kills is None
    assert from_json(to_json(Evidence("run", "a", oom_kills=()))).oom_kills == ()


def test_none_comes_back_where_an_attribute_has_no_default():
    """None is restored for attributes without a default, such as `oom_memcg`."""
    kill = OomKill(1.0, "CONSTRAINT_NONE", None, "/docker/a", "python", 7)
    state = State("running", 0, probes=(HealthProbe(None, 1, ""),))
    evidence = Evidence("container", "a", oom_kills=(kill,), state=state)
    assert from_json(to_json(evidence)) == evidence


def test_unknown_members_are_passed_over():
    """Unknown members are ignored, so that a newer document can be read."""
    document = {
        "subject": "run",
        "name": "a",
        "colour": "red",
        "sample": {"time": 1, "cgroup_version": 2, "x": {}},
    }
    assert from_json(document) == Evidence("run", "a", sample=Sample(1.0, 2))


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"name": "a"}, "evidence.subject: is missing, and Evidence cannot be without"),
        ({"subject": "dog", "name": "a"}, "evidence.subject: must be one of container"),
        ({"subject": "run", "name": 5}, "evidence.name: must be a str, not 5"),
        ({"subject": "run", "name": "a", "log": "x"}, "evidence.log: must be a list, not str"),
        ({"subject": "run", "name": "a", "log": [1]}, r"evidence.log\[0\]: must be a str, not 1"),
        ({"subject": "run", "name": "a", "started": True}, "started: must be a float, not True"),
        ({"subject": "run", "name": "a", "started": 10**400}, "started: must be a float"),
        ({"subject": "run", "name": "a", "started": float("nan")}, "must be a float, not nan"),
        ({"subject": "run", "name": "a", "state": []}, "evidence.state: must be an object"),
        ({"subject": "run", "name": "a", "events": [{}]}, r"events\[0\].time: is missing"),
        (
            {"subject": "run", "name": "a", "host": {"time": 1, "biggest": [["x"]]}},
            r"biggest\[0\]: must be a list of 2",
        ),
        ({"format": 2, "subject": "run", "name": "a"}, "evidence: format 2 is not 1; read it"),
    ],
)
def test_a_wrong_document_is_refused_with_the_member_that_is_wrong(document, message):
    """The error of an invalid document names the member and its expected type."""
    with pytest.raises(EvidenceError, match=message):
        from_json(document)
