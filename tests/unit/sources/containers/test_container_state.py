"""The containers to export are chosen if there are more containers than the limit."""

from trainvitals.sources.containers.container_state import ContainerState, choose_shown


def test_what_runs_goes_first_then_what_changed_last():
    """Running containers are chosen first, and then the containers that changed last."""
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
    """If the limit is not reached, all containers are chosen and sorted by name."""
    known = [ContainerState(name, name) for name in "ba"]
    told, omitted = choose_shown(known, 128)
    assert ([each.name for each in told], omitted) == (["a", "b"], 0)
