"""Tests that the models of grafana-foundation-sdk know every key of the dashboards."""

import copy
import sys

import pytest

from tests.unit.dashboards import roundtrip
from tests.unit.dashboards.boards import Board
from tests.unit.dashboards.boardwide import BOARDS
from tests.unit.dashboards.samples import find_panel

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="the SDK needs Python 3.11")


@pytest.mark.parametrize("uid", BOARDS)
def test_nothing_is_lost(view, uid):
    """A dashboard that the SDK reads and writes keeps all of its keys and values."""
    (board,) = [board for board in view.boards if board.uid == uid]
    lost = [path for path in roundtrip.find_losses(board) if not roundtrip.is_allowed(path)]
    assert lost == []


def test_what_is_allowed_is_lost(view):
    """Each key in the list of allowed losses is lost in at least one dashboard."""
    lost = [path for board in view.boards for path in roundtrip.find_losses(board)]
    unused = [end for end in roundtrip.ALLOWED if not any(path.endswith(end) for path in lost)]
    assert unused == []


@pytest.mark.parametrize(
    ("where", "key"),
    [
        (("options",), "tooltp"),
        (("options", "legend"), "showLegends"),
        (("fieldConfig", "defaults"), "units"),
        (("fieldConfig", "defaults", "custom"), "lineWidht"),
        (("targets", 0), "legendFormt"),
    ],
)
def test_a_misspelt_key_is_found(sample, where, key):
    """The SDK drops a misspelt key, and the path of the loss names the panel."""
    document = copy.deepcopy(sample.boards[0].json)
    part = find_panel([document], "trainvitals-fleet", "Headroom")
    for step in where:
        part = part[step]
    part[key] = "table"
    (lost,) = roundtrip.find_losses(Board(document))
    assert lost.startswith("panels/Headroom/")
    assert lost.endswith(f"/{key}")
