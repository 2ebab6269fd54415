"""What a person should look at."""

import pytest

from trainvitals.overview.judging import find_news, is_nearly_full
from trainvitals.overview.picture import Container
from trainvitals.sources.containers.reading import Death


@pytest.mark.parametrize(
    ("reason", "age_seconds", "is_news"),
    [
        ("oom-cgroup", 10, True),
        ("exception", 900, True),
        ("exception", 901, False),
        ("finished", 10, False),
        ("stop-graceful", 10, False),
        ("kill-operator", 10, False),
    ],
)
def test_a_death_is_news_for_as_long_as_its_alert_fires(reason, age_seconds, is_news):
    """Unless somebody wanted the end."""
    death = Death(1000.0, 1, reason, "", "high", "")
    found = find_news(Container("bert", last_death=death), 1000.0 + age_seconds)
    assert found == (death if is_news else None)


def test_a_container_that_never_died_has_no_news():
    """Nor one without a limit a memory that is nearly full."""
    assert find_news(Container("bert"), 0.0) is None
    assert not is_nearly_full(Container("bert", memory_used_bytes=10, memory_limit_bytes=0))
    assert is_nearly_full(Container("bert", memory_used_bytes=96, memory_limit_bytes=100))
