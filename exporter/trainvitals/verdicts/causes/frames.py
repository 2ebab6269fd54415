"""Reads the frames of a traceback, as Python or IPython prints them.

In a notebook, IPython prints the name of the exception and spaces before `Traceback (most recent
call last)`. IPython does not indent the frames, for example `Cell In[3], line 2, in load(path)`.
The line `NAME: MESSAGE` follows the last frame.
"""

from __future__ import annotations

import re

FRAME = re.compile(r'File "([^"\n]{1,400})", line ([0-9]{1,7})(?:, in ([^\s]{1,200}))?')
_OF_IPYTHON = re.compile(r"^([A-Za-z_]\w{0,200}) {1,80}Traceback \(most recent call last\)(?!:)")
_FRAME_OF_IPYTHON = re.compile(
    r"^(?:Cell (In ?\[[0-9]{1,6}\]), line |File (\S{1,400}):)([0-9]{1,7})(?:, in ([\w.<>]{1,200}))?"
)
_LONGEST_FRAME = 700


def read_frame(text: str) -> tuple[str, str] | None:
    """Return the location of a frame and its function; None if the line is not a frame."""
    frame = FRAME.search(text[:_LONGEST_FRAME])
    if frame is not None:
        file, line, function = frame.groups()
    elif frame := _FRAME_OF_IPYTHON.match(text[:_LONGEST_FRAME]):
        file, line, function = frame[2] or f"cell {frame[1]}", frame[3], frame[4]
    else:
        return None
    return f"{file}:{line}" + (f" in {function}" if function else ""), function


def read_name_of_ipython(head: str) -> str:
    """Return the name of the exception in the first line of an IPython traceback.

    The result is an empty string if IPython did not print the traceback.
    """
    found = _OF_IPYTHON.match(head)
    return "" if found is None else found[1]


def names_exception(text: str, name: str) -> bool:
    """Return whether a line consists of an exception's name and, if there is one, its message."""
    return text.startswith(f"{name}: ") or text.rstrip() == name
