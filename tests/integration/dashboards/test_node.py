"""`make test-grafana`, in which Grafana's own packages check the dashboards.

All dashboards are checked as they are. The host dashboard is also checked once with faults in many
panels, as a check takes some seconds.
"""

import json
import re
import shutil
import subprocess

import pytest

from tests.support.rulebook import ROOT
from tests.unit.dashboards.boards import DASHBOARDS

CHECK = ROOT / "tests/integration/dashboards/node/check.mjs"
NODE = shutil.which("node")

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        NODE is None or not (ROOT / ".cache/grafana/.installed").is_file(),
        reason="needs Grafana's packages: make test-grafana installs them where Node is",
    ),
]

DEFAULTS = ("fieldConfig", "defaults")
# The override for all fields is before this one.
FIRST = ("fieldConfig", "overrides", 1)

# For each fault: the panel, the path in the panel, the written value, and the expected message.
BROKEN = {
    "a unit": (
        "CPU > Busy, by mode",
        (*DEFAULTS, "unit"),
        "seconds",
        ": Grafana has no unit seconds",
    ),
    "a unit of one column": (
        "File systems > File systems",
        (*FIRST, "properties", 0),
        {"id": "unit", "value": "parsec"},
        ": Grafana has no unit parsec",
    ),
    "a colour mode": (
        "Now > Use of each resource",
        (*DEFAULTS, "color", "mode"),
        "rainbow",
        ": Grafana has no colour mode rainbow",
    ),
    "a reducer": (
        "Now > CPU",
        ("options", "reduceOptions", "calcs"),
        ["lastNotNul"],
        ": Grafana has no reducer lastNotNul",
    ),
    "a column of the legend": (
        "Now > Waits for each resource",
        ("options", "legend", "sortBy"),
        "Median",
        ": its legend is sorted by Median, which is no column of it",
    ),
    "a matcher": (
        "Memory > What memory holds",
        (*FIRST, "matcher", "id"),
        "byRegex",
        ": Grafana has no field matcher byRegex",
    ),
    "the pattern of a matcher": (
        "Now > Firing alerts",
        (*FIRST, "matcher"),
        {"id": "byRegexp", "options": "/(/"},
        ": field matcher byRegexp does not take /(/: Invalid regular expression",
    ),
    "a transformation": (
        "File systems > File systems",
        ("transformations", 0, "id"),
        "merged",
        ": @grafana/data has no transformation merged",
    ),
    "an option of a transformation": (
        "Exporter > Why readings are not whole",
        ("transformations", 1, "options", "renameByNames"),
        {},
        ", transformation organize: renameByNames: ",
    ),
    "a property of a field": (
        "Exporter > Why readings are not whole",
        (*FIRST, "properties", 0),
        {"id": "custom.breadth", "value": 100},
        """: fieldConfig.overrides.1.properties.0.id: Type '"custom.breadth"' is not assignable""",
    ),
    "a property's value": (
        "File systems > File systems",
        ("fieldConfig", "overrides", 2, "properties", 0),
        {"id": "custom.width", "value": "100"},
        ": fieldConfig.overrides.2.properties.0: Type 'string' is not assignable",
    ),
    "a value of an option": (
        "Disks > Read and written",
        ("options", "legend", "displayMode"),
        "grid",
        """: options.legend.displayMode: Type '"grid"' is not assignable""",
    ),
    "an option of lines": (
        "Disks > Busy",
        (*DEFAULTS, "custom", "lineBreadth"),
        2,
        ": fieldConfig.defaults.custom.lineBreadth: ",
    ),
    "a number as text": (
        "Network > Traffic",
        (*DEFAULTS, "custom", "lineWidth"),
        "2",
        ": fieldConfig.defaults.custom.lineWidth: Type 'string' is not assignable to type 'number'",
    ),
    "an option that another kind has": (
        "Now > Memory",
        ("options", "showHeader"),
        True,
        ": options.showHeader: ",
    ),
    "a threshold": (
        "Now > Stalled",
        (*DEFAULTS, "thresholds", "steps", 0, "value"),
        "none",
        ": fieldConfig.defaults.thresholds.steps.0.value: Type 'string' is not assignable",
    ),
    "the kind of a panel": (
        "Exporter > Series",
        ("type",),
        "graph",
        ": Grafana has no types for panels of type graph",
    ),
    "a key of a panel": (
        "Exporter > Collectors",
        ("opaque",),
        True,
        ": opaque: ",
    ),
    "an option that the least version does not have": (
        "Network > Packets damaged and dropped",
        ("options", "tooltip", "hideZeros"),
        False,
        ": options.tooltip",
    ),
    "the text of an empty panel in a legend": (
        "CPU > Load and tasks of each core",
        ("fieldConfig", "overrides"),
        [],
        ': 0: null is written as "The host does not answer"',
    ),
    "a label as a number": (
        "Exporter > Why readings are not whole",
        (*DEFAULTS, "unit"),
        "short",
        ': Collector: "0013" is written as "13"',
    ),
    "a name in exponents as a number": (
        "Exporter > Why readings are not whole",
        (*DEFAULTS, "unit"),
        "short",
        ': Collector: "1e3" is written as "1 K"',
    ),
    "the colour of what is missing": (
        "Now > Fullest disk",
        (*DEFAULTS, "mappings"),
        [{"type": "special", "options": {"match": "null", "result": {"color": "green"}}}],
        ": 0: null is green",
    ),
    "a mapping that another covers": (
        "Now > Up for",
        (*DEFAULTS, "mappings"),
        [
            {"type": "range", "options": {"from": 0, "to": 9, "result": {"text": "long"}}},
            {"type": "value", "options": {"1": {"text": "short", "color": "red"}}},
        ],
        ': value: 1 is written as "long", not "short"',
    ),
    "the digits of a number": (
        "Disks > Time of a request",
        (*DEFAULTS, "unit"),
        "sci",
        ": 0 read: 0.3333333333333333 takes 20 letters: 3.333333333333333e-1",
    ),
    "an axis that ends too high": (
        "Exporter > Cost of the exporter",
        (*DEFAULTS, "custom", "axisSoftMax"),
        1,
        ": 0.05 suffix:cores is drawn on an axis that ends at 1",
    ),
    "a parenthesis": (
        "Memory > Swap",
        ("targets", 0, "expr"),
        'sum(rate(up{job=~"$job"}[$__rate_interval])',
        """, query A: no PromQL at "sum(rate(up{job=~"a"}[1m])⟨here⟩\"""",
    ),
    "a variable that nobody fills": (
        "Clock > Clock kept right",
        ("targets", 0, "expr"),
        "up[$window]",
        """, query A: no PromQL at "up[⟨here⟩$window]\"""",
    ),
    "an empty query": (
        "CPU > Clock of the cores",
        ("targets", 0, "expr"),
        " ",
        ", query A: asks nothing",
    ),
}


def judge(directory):
    """Check the dashboards in a directory; return the exit code, the messages and the summary."""
    command = (NODE, CHECK, directory)
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    return said.returncode, said.stderr.splitlines(), said.stdout.strip()


def write_into(part, path, value):
    """Write a value into a document."""
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value


@pytest.fixture(scope="module")
def board():
    """Return the JSON text of the host dashboard, which has no faults."""
    return (DASHBOARDS / "trainvitals-host.json").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def broken(board, tmp_path_factory):
    """Return the result of a check of the host dashboard with all faults."""
    json_ = json.loads(board)
    panels = {place: find(json_, place) for place, *_ in BROKEN.values()}
    for place, path, value, _ in BROKEN.values():
        write_into(panels[place], path, value)
    write_into(json_, ("templating", "list", 1, "refresh"), "always")
    write_into(json_, ("annotations", "list", 1, "expr"), "ALERTS{")
    write_into(json_, ("templating", "list", 1, "query", "refId"), "")
    directory = tmp_path_factory.mktemp("broken")
    (directory / "host.json").write_text(json.dumps(json_), encoding="utf-8")
    return judge(directory)


def find(board, place):
    """Return the panel with this row and title."""
    row = ""
    for entry in board["panels"]:
        row = entry["title"] if entry["type"] == "row" else row
        for panel in entry.get("panels", ()) if entry["type"] == "row" else (entry,):
            if f"{row} > {panel['title']}" == place:
                return panel
    raise LookupError(place)


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_is_reported(broken, name):
    """Each fault is reported with dashboard, row, panel and a description."""
    place, _, _, says = BROKEN[name]
    _, lines, _ = broken
    assert [line for line in lines if line.startswith(f"Vitals / Host > {place}{says}")], lines


def test_what_is_broken_of_the_board_itself_is_reported(broken):
    """Faults in the variables and annotations of a dashboard are reported with their place."""
    code, lines, summary = broken
    assert code == 1
    where = "Vitals / Host: templating.list.1.refresh: "
    assert any(line.startswith(where) for line in lines), lines
    where = 'Vitals / Host > annotation > Alerts: no PromQL at "ALERTS{⟨here⟩"'
    assert where in lines
    assert "Vitals / Host > variable > job: its query has no refId" in lines
    assert f"{len(lines)} faults by Grafana 10.4.19 and 13.2.2" in summary


def test_a_fault_in_one_version_alone_is_told_apart(broken):
    """An option that only the newest Grafana has is reported as a fault in the oldest one alone."""
    _, lines, _ = broken
    where = "Vitals / Host > Network > Packets damaged and dropped: options.tooltip"
    (line,) = (line for line in lines if line.startswith(where))
    assert line.endswith(" [Grafana 10.4.19 alone]")


def test_no_board_has_a_fault():
    """A check of all five dashboards reports no fault and counts all panels."""
    code, lines, summary = judge(DASHBOARDS)
    assert (code, lines) == (0, [])
    texts = [path.read_text(encoding="utf-8") for path in DASHBOARDS.glob("*.json")]
    panels = sum(len(re.findall(r'"targets": \[$', text, re.MULTILINE)) for text in texts)
    assert summary.startswith(f"5 boards, {panels} panels, ")
    assert panels > 100


def test_no_board_is_not_in_order(tmp_path):
    """A check of a directory without dashboards fails."""
    assert judge(tmp_path)[0] == 1
