"""Tests that the sample messages in the documentation equal the output of rules and templates."""

import json
import re
import subprocess

import pytest
import yaml

from .conftest import ROOT, SHIPPED

PAGE = (ROOT / "docs/alerting.md").read_text(encoding="utf-8")
SAMPLES = re.findall(r"^```\n((?:Critical|Resolved): .+?)\n```$", PAGE, re.MULTILINE | re.DOTALL)
STARTS, ENDS = "2026-11-21T14:03:00Z", "2026-11-21T14:15:00Z"


@pytest.fixture(scope="module")
def alert():
    """Return the documented alert, with the labels and texts that its rule test expects."""
    tests = yaml.safe_load((ROOT / "tests/rules/GPUHighTemperature.yml").read_text("utf-8"))
    (test,) = [each for each in tests["tests"] if "docs/alerting.md" in each["name"]]
    ((told,),) = [each["exp_alerts"] for each in test["alert_rule_test"]]
    labels = {"alertname": "GPUHighTemperature", **told["exp_labels"]}
    return {"labels": labels, "annotations": told["exp_annotations"]}


def render(amtool, folder, alert, *, status):
    """Render the Slack message with amtool, and replace each link with its text."""
    ends = ENDS if status == "resolved" else "0001-01-01T00:00:00Z"
    data = {
        "status": status,
        "alerts": [{**alert, "status": status, "startsAt": STARTS, "endsAt": ends}],
        "commonLabels": alert["labels"],
        "commonAnnotations": alert["annotations"],
    }
    file = folder / "data.json"
    file.write_text(json.dumps(data), encoding="utf-8")
    names = ("trainvitals.slack.title", "trainvitals.slack.text")
    text = "\n".join(f'{{{{ template "{name}" . }}}}' for name in names)
    command = (amtool, "template", "render", f"--template.glob={SHIPPED}/templates/*.tmpl")
    told = subprocess.run(
        [*command, f"--template.text={text}", f"--template.data={file}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return re.sub(r"<[^|>]+\|(\w+)>", r"\1", told.stdout).rstrip("\n")


@pytest.mark.parametrize("status", ["firing", "resolved"])
def test_a_sample_is_what_is_sent(amtool, tmp_path, alert, status):
    """The documented samples of a firing and of a resolved alert equal the rendered messages."""
    assert len(SAMPLES) == 2
    assert render(amtool, tmp_path, alert, status=status) == SAMPLES[status == "resolved"]
