"""Where the links in messages lead."""

import pytest

from trainvitals.errors import ConfigurationError
from trainvitals.notify import Links, read_links
from trainvitals.notify.links import render_links

from .conftest import SHIPPED


def test_committed_file_has_the_usual_ports():
    """The committed links are those that are rendered where nothing is set."""
    assert (SHIPPED / "templates/links.tmpl").read_text(encoding="utf-8") == render_links(Links())


def test_variables_win_over_the_default():
    """GRAFANA_URL and RUNBOOK_URL replace what the stack knows; a slash at the end is dropped."""
    default = Links("http://localhost:3001", "http://localhost:9201/runbooks")
    assert read_links({}, default) == default
    assert read_links(
        {"GRAFANA_URL": "https://g.example.org/", "RUNBOOK_URL": "https://w.example.org/r/"},
        Links(None),
    ) == Links("https://g.example.org", "https://w.example.org/r")


def test_runbook_url_may_place_the_name():
    """`{alert}` stands for the alert's name, and a dollar is a dollar."""
    links = read_links({"RUNBOOK_URL": "https://w.example.org/$1/{alert}.md"})
    assert '"https://w.example.org/$$1/${1}.md"' in render_links(links)


def test_without_grafana_no_link_leads_there():
    """Where there is no Grafana, no message has a link to a dashboard."""
    text = render_links(Links(grafana_url=None))
    assert "|dashboard>" not in text
    assert '{{ define "trainvitals.dashboard.url" }}{{ end }}' in text


@pytest.mark.parametrize("name", ["GRAFANA_URL", "RUNBOOK_URL"])
@pytest.mark.parametrize("value", ["grafana", 'https://g.example.org/"', "https://g|x", "a {{b}}"])
def test_no_url(name, value):
    """An address that cannot be is refused by its variable's name."""
    with pytest.raises(ConfigurationError, match=f"{name} is no URL"):
        read_links({name: value})
