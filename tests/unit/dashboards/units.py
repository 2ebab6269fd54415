"""The ids of Grafana's units, as Grafana 10.4 has them, the least version; 13.2 has them all.

`units.json` was written once by this script, in an empty folder and with Node 20; do the same with
the next least version of Grafana and read the diff:

    npm install --ignore-scripts @grafana/data@10.4.19
    node -e '
      globalThis.window = {};
      Object.defineProperty(globalThis, "navigator",
        { value: { languages: ["en"], language: "en", userAgent: "" } });
      const { getValueFormats } = require("@grafana/data");
      const ids = getValueFormats().flatMap((group) => group.submenu.map((unit) => unit.value));
      console.log(JSON.stringify([...new Set(ids)].sort(), null, 2));
    ' > units.json

`navigator` is a browser's: dates are written in its language.
"""

from __future__ import annotations

import json
from collections.abc import Set as AbstractSet
from pathlib import Path

_UNITS = Path(__file__).with_name("units.json")

# Grafana takes `suffix: samples/s` as it is written.
_OWN = ("suffix:", "prefix:")


def read_units() -> frozenset[str]:
    """Read the ids."""
    return frozenset(json.loads(_UNITS.read_text(encoding="utf-8")))


def is_unit(unit: str, units: AbstractSet[str]) -> bool:
    """Return whether Grafana knows a unit, or takes it as written."""
    return unit in units or any(unit.startswith(own) and unit != own for own in _OWN)
