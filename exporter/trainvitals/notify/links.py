"""Where the links in messages lead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainvitals.courier.variables import Variables

# What the rules write; their annotations know no machine.
GRAFANA_URL = "http://localhost:3000"
RUNBOOK_URL = "http://localhost:9200/runbooks"
_PLACE = "{alert}"

_HEAD = """\
{{/* Where the links in messages lead; `trainvitals notify` writes this from GRAFANA_URL and
     RUNBOOK_URL. A link that a run's name makes longer than 200 characters is left out. */}}
"""
# How a channel writes a link; URL is where it leads.
_FORMS = {
    "slack": " · <URL|{name}>",
    "markdown": " · [{name}](URL)",
    "html": ' · <a href="URL">{name}</a>',
    "plain": '{{{{ "\\n" }}}}{name}: URL',
}


@dataclass(frozen=True, slots=True)
class Links:
    """Where the links in messages lead.

    Attributes:
        grafana_url: The address of Grafana; None leaves links to dashboards out.
        runbook_url: The folder of the runbooks, or their address with `{alert}` in the place of
            the alert's name.
    """

    grafana_url: str | None = GRAFANA_URL
    runbook_url: str = RUNBOOK_URL


def read_links(variables: Mapping[str, str], default: Links | None = None) -> Links:
    """Give the links that GRAFANA_URL and RUNBOOK_URL name.

    Args:
        variables: The environment and `.env`.
        default: Where they lead without these variables; None for the usual ports.

    Raises:
        ConfigurationError: One of them is no URL.
    """
    default = default or Links()
    # The braces are ours and no part of a URL.
    written = dict(variables)
    runbook = written.get("RUNBOOK_URL", "")
    Variables({"RUNBOOK_URL": runbook.replace(_PLACE, "alert")}).take_url("RUNBOOK_URL")
    grafana = Variables(written).take_url("GRAFANA_URL")
    return Links(
        grafana_url=grafana.rstrip("/") if grafana else default.grafana_url,
        runbook_url=runbook.strip().rstrip("/") or default.runbook_url,
    )


def render_links(links: Links) -> str:
    """Write the template file that turns what the rules say into these links."""
    definitions = {"runbook.url": _replace_base(RUNBOOK_URL + "/", _place_alert(links.runbook_url))}
    names = ["runbook"]
    definitions["dashboard.url"] = ""
    if links.grafana_url is not None:
        names.append("dashboard")
        definitions["dashboard.url"] = _replace_base(
            GRAFANA_URL, _quote(links.grafana_url) + "${1}"
        )
    for channel, form in _FORMS.items():
        definitions[f"{channel}.links"] = "".join(_link(name, channel, form) for name in names)
    return _HEAD + "".join(
        f'\n{{{{ define "trainvitals.{name}" }}}}{text}{{{{ end }}}}\n'
        for name, text in definitions.items()
    )


def _place_alert(url: str) -> str:
    whole = url if _PLACE in url else f"{url}/{_PLACE}"
    return "${1}".join(map(_quote, whole.split(_PLACE)))


def _quote(text: str) -> str:
    return text.replace("$", "$$")


def _replace_base(base: str, replacement: str) -> str:
    # In a query a plus is a space, and some programs end a link there.
    return f'{{{{ . | reReplaceAll "^{base}(.*)$" "{replacement}" | reReplaceAll "\\\\+" "%20" }}}}'


def _link(name: str, channel: str, form: str) -> str:
    there = '(reReplaceAll "&" "&amp;" .)' if channel == "slack" else "."
    url = f'{{{{ template "trainvitals.{name}.url" {there} }}}}'
    shown = form.format(name=name.title() if channel == "plain" else name).replace("URL", url)
    return (
        f'{{{{ with .Annotations.{name}_url }}}}{{{{ if not (match ".{{200}}" .) }}}}'
        f"{shown}{{{{ end }}}}{{{{ end }}}}"
    )
