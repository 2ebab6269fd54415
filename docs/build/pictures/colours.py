"""Colours as Grafana's dark theme has them, and which a value gets."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

Json = Mapping[str, Any]

PAGE, PANEL, BAR, EDGE, GRID = "#111217", "#181b1f", "#22252b", "#2d3037", "#2b2e35"
TEXT, FAINT, LINK, DARK = "#ccccdc", "#8e8ea0", "#6e9fff", "#111217"

_BRIGHT: Final = 140  # of 255
# Each hue as it is, lighter, a little darker and darker.
_SHADES: Final = ("", "light-", "semi-dark-", "dark-")
_HUES: Final[Mapping[str, Sequence[str]]] = {
    "green": ("#73BF69", "#96D98D", "#56A64B", "#37872D"),
    "yellow": ("#FADE2A", "#FFEE52", "#F2CC0C", "#E0B400"),
    "red": ("#F2495C", "#FF7383", "#E02F44", "#C4162A"),
    "blue": ("#5794F2", "#8AB8FF", "#3274D9", "#1F60C4"),
    "orange": ("#FF9830", "#FFB357", "#FF780A", "#FA6400"),
    "purple": ("#B877D9", "#CA95E5", "#A352CC", "#8F3BB8"),
}
_NAMED: Final[Mapping[str, str]] = {
    "text": TEXT,
    "transparent": PANEL,
    **{
        shade + hue: colour
        for hue, colours in _HUES.items()
        for shade, colour in zip(_SHADES, colours, strict=True)
    },
}
# What series get that have no colour of their own, by their names: those of Grafana's colours that
# can be seen on its dark page.
_PALETTE: Final = (
    *("#73BF69", "#F2CC0C", "#5794F2", "#FF9830", "#F2495C", "#B877D9", "#37872D", "#E0B400"),
    *("#FA6400", "#C8F2C2", "#FFF899", "#C0D8FF", "#FFCB7D", "#FFA6B0", "#DEB6F2", "#447EBC"),
    *("#C15C17", "#B7DBAB", "#F4D598", "#70DBED", "#F9BA8F", "#F29191", "#82B5D8", "#E5A8E2"),
    *("#AEA2E0", "#629E51", "#E5AC0E", "#64B0C8", "#E0752D", "#9AC48A", "#F2C96D", "#65C5DB"),
    *("#F9934E", "#EA6460", "#5195CE", "#D683CE", "#806EB7", "#967302", "#E0F9D7", "#FCEACA"),
    *("#CFFAFF", "#F9E2D2", "#FCE2DE", "#BADFF4", "#F9D9F9", "#DEDAF7"),
)


@dataclass(frozen=True, slots=True)
class Mapped:
    """What a mapping makes of a value.

    Attributes:
        text: What is shown instead; None: the value.
        colour: Its colour; None: that of the thresholds.
    """

    text: str | None = None
    colour: str | None = None


def name_colour(name: str) -> str:
    """Give a colour by Grafana's name of it, or as it is where it is written out.

    Raises:
        ValueError: It is not known here.
    """
    if name.startswith("#"):
        return name
    if name.startswith("rgb"):
        parts = [float(part) for part in re.findall(r"[\d.]+", name)]
        return "#" + "".join(f"{round(part):02x}" for part in parts[:3])
    if name not in _NAMED:
        raise ValueError(f"the colour {name!r} is not known to docs/build/pictures/colours.py")
    return _NAMED[name]


def colour_series(name: str, config: Json) -> str:
    """Give the colour of a series: its own, or one that goes with its name.

    Raises:
        ValueError: Its colour is found in a way that is not known here.
    """
    colour = config.get("color") or {}
    mode = colour.get("mode", "palette-classic-by-name")
    if mode in {"fixed", "shades"}:
        return name_colour(colour["fixedColor"])
    if mode not in {"palette-classic", "palette-classic-by-name", "thresholds"}:
        raise ValueError(f"colours by {mode!r} are not known to docs/build/pictures/colours.py")
    return _PALETTE[_hash(name) % len(_PALETTE)]


def _hash(text: str) -> int:
    """Give the number that Grafana makes of a name: Bernstein's hash from the end."""
    found = 5381
    for letter in reversed(text):
        found = (found * 33 & 0xFFFFFFFF) ^ ord(letter)
    return found


def colour_value(value: float, config: Json) -> str:
    """Give the colour of a value: that of its mapping, or of the threshold it is above."""
    mapped = map_value(value, config)
    if mapped.colour:
        return mapped.colour
    found = "green"
    for step in (config.get("thresholds") or {}).get("steps") or ():
        if step.get("value") is None or value >= step["value"]:
            found = step["color"]
    return name_colour(found)


def map_value(value: float | str | None, config: Json) -> Mapped:
    """Give what the mappings of a field make of a value."""
    for mapping in config.get("mappings") or ():
        result = _map(value, mapping)
        if result is not None:
            colour = result.get("color")
            return Mapped(result.get("text"), name_colour(colour) if colour else None)
    return Mapped()


def _map(value: float | str | None, mapping: Json) -> Json | None:
    options = mapping["options"]
    if mapping["type"] == "value":
        found: Json | None = options.get(_write_key(value))
        return found
    if mapping["type"] == "range" and isinstance(value, (int, float)):
        low, high = options.get("from"), options.get("to")
        is_in = (low is None or value >= low) and (high is None or value <= high)
        return options["result"] if is_in else None
    if mapping["type"] == "regex" and isinstance(value, str):
        return options["result"] if re.search(options["pattern"].strip("/"), value) else None
    if mapping["type"] == "special":
        is_nan = isinstance(value, float) and math.isnan(value)
        kinds = {"null": value is None, "nan": is_nan, "null+nan": value is None or is_nan}
        kinds["empty"] = value == ""
        return options["result"] if kinds.get(options["match"]) else None
    return None


def _write_key(value: float | str | None) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def list_lines(config: Json) -> Sequence[tuple[float, str]]:
    """Give the thresholds that are drawn as lines, with their colours."""
    steps = (config.get("thresholds") or {}).get("steps") or ()
    return [
        (float(step["value"]), name_colour(step["color"]))
        for step in steps
        if step.get("value") is not None
    ]


def ink_on(colour: str) -> str:
    """Give black or white, whichever can be read on a colour."""
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    brightness = 0.299 * red + 0.587 * green + 0.114 * blue
    return DARK if brightness > _BRIGHT else "#ffffff"
