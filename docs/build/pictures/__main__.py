"""`python -m docs.build.pictures`: draws boards from what a Prometheus answers."""
# ruff: noqa: T201 - says what it drew

from __future__ import annotations

import argparse
import io
import json
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from PIL import Image

from docs.build.pictures.asking import Load, open_board
from docs.build.pictures.canvas import Canvas
from docs.build.pictures.page import draw_board
from docs.build.pictures.prometheus import AskingError, Prometheus
from docs.build.pictures.times import Window, read_duration

Json = Mapping[str, Any]

ROOT: Final = Path(__file__).resolve().parents[3]
BOARDS: Final = ROOT / "grafana/dashboards"
PICTURES: Final = ROOT / "docs/pictures"

_COLOURS: Final = 160  # of a picture: a dark page needs few, and the file is a third as large
_USAGE: Final = """\
Examples:
  python -m docs.build.pictures --prometheus http://127.0.0.1:9090
  python -m docs.build.pictures --range 1h --at 2026-11-22T08:00:00+00:00 host
  python -m docs.build.pictures --set run=bert-large --open Ranks --on Checkpoints run
  python -m docs.build.pictures --set accelerators.instance=gpu-07 --off Alerts

A board is named by its uid, with or without `trainvitals-`; without names all are drawn.
Exit code 0: all are drawn; 1: a query failed, the picture shows which; 2: wrong usage.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw what is asked for; tell what each board got."""
    wanted = _read_arguments(arguments)
    server = Prometheus(wanted.prometheus)
    wanted.output.mkdir(parents=True, exist_ok=True)
    failed = False
    for path in _find_boards(wanted.boards):
        board = _switch(json.loads(path.read_text(encoding="utf-8")), wanted.on, wanted.off)
        window = _find_window(board, wanted.at, wanted.range, wanted.scrape_interval)
        chosen = _find_chosen(board, wanted.set)
        try:
            load = open_board(board, server, window, chosen=chosen, opened=wanted.open)
        except AskingError as error:
            print(error, file=sys.stderr)
            return 2
        target = wanted.output / f"{board['uid'].removeprefix('trainvitals-')}.png"
        size = save(draw_board(load, wanted.open), target)
        print(f"{target}: {_describe(load)}, {size // 1000} kB")
        for answer in (one for one in load.answers if one.error):
            print(f"  {answer.query.place}: {answer.error}", file=sys.stderr)
            failed = True
    return 1 if failed else 0


def save(canvas: Canvas, path: Path) -> int:
    """Write a picture with few colours; give its size."""
    buffer = io.BytesIO()
    canvas.figure.savefig(buffer, format="png", facecolor=canvas.figure.get_facecolor())
    with Image.open(buffer) as image:
        few = image.convert("RGB").quantize(_COLOURS, dither=Image.Dither.NONE)
        few.save(path, optimize=True)
    return path.stat().st_size


def _describe(load: Load) -> str:
    empty = sum(not any(one.series for one in several) for several in load.panels.values())
    return f"{len(load.panels)} panels, {empty} of them empty, {len(load.answers)} queries"


def _switch(board: Json, on: Collection[str], off: Collection[str]) -> Json:
    """Give a board with annotations switched on and off."""
    for one in board["annotations"]["list"]:
        one["enable"] = one["name"] in on or (one["enable"] and one["name"] not in off)
    return board


def _find_chosen(board: Json, choices: Sequence[tuple[str, list[str]]]) -> dict[str, list[str]]:
    """Give what is chosen on a board: `host.run=x` on that one alone, `run=x` on all that have it."""
    known = {one["name"] for one in board["templating"]["list"]}
    chosen = {}
    for name, values in choices:
        uid, _, variable = name.rpartition(".")
        if variable in known and (not uid or board["uid"].endswith(f"-{uid}")):
            chosen[variable] = values
    return chosen


def _find_window(board: Json, at: float, span: float | None, scrape: float) -> Window:
    seconds = span or read_duration(str(board["time"]["from"]).removeprefix("now-"))
    return Window(at - seconds, at, scrape)


def _find_boards(names: Sequence[str]) -> list[Path]:
    known = {path.stem.removeprefix("trainvitals-"): path for path in sorted(BOARDS.glob("*.json"))}
    wanted = [name.removeprefix("trainvitals-") for name in names] or list(known)
    for name in wanted:
        if name not in known:
            print(f"no board {name}; there are {', '.join(known)}", file=sys.stderr)
            sys.exit(2)
    return [known[name] for name in wanted]


def _read_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m docs.build.pictures",
        description="Draw boards from real query results; the pictures are not Grafana itself.",
        epilog=_USAGE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("boards", nargs="*", metavar="BOARD", help="fleet, run, …")
    parser.add_argument("--prometheus", default="http://127.0.0.1:9090", metavar="URL")
    parser.add_argument(
        "--at", type=_read_time, default=time.time(), metavar="TIME", help="the end, now by default"
    )
    parser.add_argument(
        "--range", type=read_duration, metavar="6h", help="how long; the board's own by default"
    )
    parser.add_argument(
        "--scrape-interval",
        type=read_duration,
        default=5.0,
        metavar="5s",
        help="the data source's timeInterval",
    )
    parser.add_argument(
        "--set",
        type=_read_choice,
        action="append",
        default=[],
        metavar="[BOARD.]NAME=VALUE",
        help="choose a variable's value, on one board or on all that have it",
    )
    parser.add_argument(
        "--open", action="append", default=[], metavar="ROW", help="open a closed row"
    )
    for state in ("on", "off"):
        parser.add_argument(
            f"--{state}",
            action="append",
            default=[],
            metavar="ANNOTATION",
            help=f"switch an annotation {state}, as the page's head lets you",
        )
    parser.add_argument("--output", type=Path, default=PICTURES, metavar="DIRECTORY")
    return parser.parse_args(arguments)


def _read_time(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return datetime.fromisoformat(text).timestamp()


def _read_choice(text: str) -> tuple[str, list[str]]:
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is no NAME=VALUE")
    return name, [value]


if __name__ == "__main__":
    sys.exit(main())
