"""Whose series are served where there are more containers than places."""

from trainvitals.sources.containers.container_state import ContainerState, choose_shown


def test_what_runs_goes_first_then_what_changed_last():
    """Of five there is room for three: the one that runs, and the two that ended last."""
    known = [
        ContainerState(name, name, status=status, changed=changed, removed=removed)
        for name, status, changed, removed in (
            ("old", "exited", 10.0, None),
            ("new", "exited", 30.0, None),
            ("removed", "exited", 40.0, 40.0),
            ("runs", "running", 1.0, None),
            ("older", "exited", 5.0, None),
        )
    ]
    told, omitted = choose_shown(known, 3)
    assert [each.name for each in told] == ["new", "removed", "runs"]
    assert omitted == 2


def test_all_are_told_where_there_is_room():
    """By name, and nothing is left out."""
    known = [ContainerState(name, name) for name in "ba"]
    told, omitted = choose_shown(known, 128)
    assert ([each.name for each in told], omitted) == (["a", "b"], 0)
