"""The ids of the units of Grafana 10.4, the oldest supported version; Grafana 13.2 has all of them.

This script wrote `units.json` in an empty folder with Node 20. If the oldest supported version of
Grafana changes, run the script with that version and review the diff:

    npm install --ignore-scripts @grafana/data@10.4.19
    node -e '
      globalThis.window = {};
      Object.defineProperty(globalThis, "navigator",
        { value: { languages: ["en"], language: "en", userAgent: "" } });
      const { getValueFormats } = require("@grafana/data");
      const ids = getValueFormats().flatMap((group) => group.submenu.map((unit) => unit.value));
      console.log(JSON.stringify([...new Set(ids)].sort(), null, 2));
    ' > units.json

The script defines the browser's `navigator` because the package formats dates in its language.
"""

from __future__ import annotations

import json
from collections.abc import Set as AbstractSet
from pathlib import Path

_UNITS = Path(__file__).with_name("units.json")

# Grafana displays the text after these prefixes as written, for example `suffix: samples/s`.
_OWN = ("suffix:", "prefix:")


def read_units() -> frozenset[str]:
    """Return the ids of the units from `units.json`."""
    return frozenset(json.loads(_UNITS.read_text(encoding="utf-8")))


def is_unit(unit: str, units: AbstractSet[str]) -> bool:
    """Return whether Grafana knows a unit or displays its text as written."""
    return unit in units or any(unit.startswith(own) and unit != own for own in _OWN)
