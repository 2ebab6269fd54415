"""`python -m grafana.build` writes the dashboards; `--check` only lists files that differ."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from grafana.build import accelerators, containers, fleet, host, run
from grafana.build.layout import Board, write_board

BOARDS: Final[Sequence[Callable[[], Board]]] = (
    fleet.build,
    run.build,
    accelerators.build,
    host.build,
    containers.build,
)
DIRECTORY: Final = Path(__file__).resolve().parents[1] / "dashboards"


def list_files() -> dict[Path, str]:
    """Return the content of each file in `grafana/dashboards`, by path."""
    boards = [build() for build in BOARDS]
    return {DIRECTORY / f"{board.uid}.json": write_board(board, boards) for board in boards}


def main(arguments: Sequence[str]) -> int:
    """Write the files that differ; with `--check`, return 1 if a file differs."""
    files = list_files()
    stale = [path for path in DIRECTORY.glob("*.json") if path not in files]
    differing = [
        path
        for path, text in files.items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    if arguments == ["--check"]:
        for path in [*stale, *differing]:
            print(f"{path.name} is not what grafana/build writes: make dashboards", file=sys.stderr)
        return 1 if stale or differing else 0
    DIRECTORY.mkdir(exist_ok=True)
    for path in stale:
        path.unlink()
    for path in differing:
        path.write_text(files[path], encoding="utf-8")
        print(f"wrote {path.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
