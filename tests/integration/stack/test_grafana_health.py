"""The version check of a running Grafana."""

import pytest

from tests.support.package_repository import FileServer
from trainvitals.stack.grafana import HEALTH
from trainvitals.stack.programs import Program
from trainvitals.stack.readiness import announce


@pytest.fixture
def announced(tmp_path):
    """Return a function that announces a program with a given health page and returns the lines."""

    def announce_with(page, name="grafana"):
        if page is not None:
            file = tmp_path / HEALTH.lstrip("/")
            file.parent.mkdir(exist_ok=True)
            file.write_text(page)
        told = []
        with FileServer(tmp_path) as server:
            port = int(server.url.rpartition(":")[2])
            announce(Program(name, (), port, HEALTH), told.append)
        assert told.pop(0) == f"{name} is ready at {server.url}"
        return [line.replace(server.url, "URL") for line in told]

    return announce_with


def test_grafana_that_is_too_old_for_the_boards(announced):
    """A line names the version and the address of a Grafana that is too old, and the minimum."""
    (line,) = announced('{"database": "ok", "version": "9.3.2"}')
    assert line.startswith("the boards do not work in Grafana 9.3 at URL: install 10.4 or newer")


@pytest.mark.parametrize("version", ["10.4.0", "12.4.0", "13.2.2", "12.4.0+security-01"])
def test_grafana_that_is_new_enough(announced, version):
    """A Grafana of version 10.4 or newer is announced without a warning."""
    assert announced(f'{{"database": "ok", "version": "{version}"}}') == []


@pytest.mark.parametrize(
    "page", [None, "", "not JSON", "[]", "{}", '{"version": 12}', '{"version": "main"}']
)
def test_grafana_that_hides_its_version(announced, page):
    """A health page without a readable version causes no warning."""
    assert announced(page) == []


def test_another_program_is_not_asked(announced):
    """The version of a program other than Grafana is not checked."""
    assert announced('{"version": "0.25.0"}', name="alertmanager") == []
