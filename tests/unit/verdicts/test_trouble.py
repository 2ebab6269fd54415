"""Troubles that explain others are the same as the inhibiting alerts in Alertmanager."""

from __future__ import annotations

import itertools

import pytest

from tests.unit.verdicts.alerts import JUDGED, inhibit
from trainvitals.sources.prometheus import ActiveAlert
from trainvitals.verdicts.trouble import OUT_OF_HOST_MEMORY, Trouble, drop_explained

# The devices that runs hold are compared by the rules, not by Alertmanager.
HELD = {"one": frozenset[str](), "other": frozenset[str]()}
PAIRS = sorted(itertools.permutations(JUDGED, 2))


def find_explained(*, name: str, same: bool, labels: tuple[dict[str, str], dict[str, str]]):
    """Return the pairs of which the first alert inhibits the second, by Python and Alertmanager."""
    here, there = set(), set()
    for source, target in PAIRS:
        subjects = ("one", "one" if same else "other")
        troubles = [
            Trouble("host", subject, words, "warning", "", alert)
            for alert, subject, words in zip((source, target), subjects, (name, name), strict=True)
        ]
        if troubles[1] not in drop_explained(troubles, HELD):
            here.add((source, target))
        alerts = [
            ActiveAlert({**own, "alertname": alert}, {}, "firing", "")
            for alert, own in zip((source, target), labels, strict=True)
        ]
        if alerts[1] not in inhibit(alerts):
            there.add((source, target))
    return here, there


@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize(
    ("name", "reason", "where"), [("died", "signal", "device"), (OUT_OF_HOST_MEMORY, "oom", "host")]
)
def test_the_same_alerts_are_silenced_as_by_alertmanager(name, reason, where, same):
    """Python and Alertmanager inhibit the same alerts, for every pair about one or two subjects."""
    about = ("uuid", "device", "run", "mountpoint", "name", "collector")
    one = dict.fromkeys(about, "one")
    other = one if same else dict.fromkeys(about, "other")
    cause = {"reason": reason, "where": where}
    here, there = find_explained(
        name=name, same=same, labels=({**one, **cause}, {**other, **cause})
    )
    assert here == there
    assert there


@pytest.mark.parametrize(
    ("held", "is_explained"),
    [({}, True), ({"bert": frozenset({"gpu0"})}, True), ({"bert": frozenset({"gpu1"})}, False)],
)
def test_a_lost_card_explains_the_stall_of_a_run_that_may_hold_it(held, is_explained):
    """A lost card explains a stalled run unless the run is known to hold only other cards."""
    lost = Trouble("accelerator", "gpu0", "lost", "critical", "", "AcceleratorLost")
    stalled = Trouble("run", "bert", "is stalled", "critical", "", "TrainingStalled")
    expected = (lost,) if is_explained else (lost, stalled)
    assert drop_explained((lost, stalled), held) == expected


def test_a_lost_card_explains_no_process_that_is_stopped():
    """A lost card does not explain a process that a signal or debugger stopped."""
    lost = Trouble("accelerator", "gpu0", "lost", "critical", "", "AcceleratorLost")
    stopped = Trouble("run", "bert", "is stopped", "critical", "", "TrainingStalled")
    assert drop_explained((lost, stopped), {"bert": frozenset({"gpu0"})}) == (lost, stopped)
