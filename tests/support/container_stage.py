"""Helpers that make a stand-in for a container engine report a container that died."""

from __future__ import annotations

import json
from datetime import datetime, timezone

from tests.support.engine_stand_in import EngineStandIn, write_event, write_frame

ID = "4f1e0c5ad1f0b6c07c1ad1f44b76a3b1cf3a2c85c2bb31c1a3c33f0f7a1f9e01"
OTHER = "9a3b7c11d2e04f5566778899aabbccddeeff00112233445566778899aabbccdd"


def write_iso(seconds: float) -> str:
    """Return a time in the ISO 8601 format of the engine's API."""
    return f"{datetime.fromtimestamp(seconds, timezone.utc):%Y-%m-%dT%H:%M:%S.%f}000Z"


def write_inspection(
    started: float | None,
    finished: float | None,
    *,
    id_: str = ID,
    name: str = "train",
    status: str = "exited",
    exit_code: int = 137,
    error: str = "",
    command: tuple[str, ...] = ("python3", "train.py"),
    environ: tuple[str, ...] = (),
    memory: int = 64 << 20,
    health: dict[str, object] | None = None,
) -> dict[str, object]:
    """Return the document that an engine serves at `/containers/{id}/json`."""
    never = "0001-01-01T00:00:00Z"
    state: dict[str, object] = {
        "Status": status,
        "Running": status == "running",
        "OOMKilled": False,
        "Pid": 0,
        "ExitCode": exit_code,
        "Error": error,
        "StartedAt": never if started is None else write_iso(started),
        "FinishedAt": never if finished is None else write_iso(finished),
    }
    if health is not None:
        state["Health"] = health
    return {
        "Id": id_,
        "Name": f"/{name}",
        "Created": write_iso((started or 1_795_299_000.0) - 1.0),
        "Path": command[0],
        "Args": list(command[1:]),
        "RestartCount": 0,
        "State": state,
        "Config": {"Image": "acme/train:1", "Env": list(environ), "Labels": {}},
        "HostConfig": {
            "Memory": memory,
            "ShmSize": 64 << 20,
            "LogConfig": {"Type": "json-file", "Config": {}},
            "RestartPolicy": {"Name": "no"},
        },
        "Mounts": [],
    }


def put_container(
    engine: EngineStandIn, inspection: dict[str, object], log: tuple[str, ...] = ()
) -> None:
    """Make an engine list a container, and serve its document and log under its ID and name."""
    id_, name = str(inspection["Id"]), str(inspection["Name"]).removeprefix("/")
    state = inspection["State"]
    assert isinstance(state, dict)
    listing = {
        "Id": id_,
        "Names": [f"/{name}"],
        "Image": "acme/train:1",
        "State": state["Status"],
        "Created": 1_795_299_000,
    }
    others = json.loads(engine.answers["/containers/json"].body)
    engine.put("/containers/json", [listing, *(each for each in others if each["Id"] != id_)])
    for key in (id_, name):
        engine.put(f"/containers/{key}/json", inspection)
        frames = b"".join(write_frame(f"{line}\n".encode()) for line in log)
        engine.put(f"/containers/{key}/logs", frames)


def put_events(engine: EngineStandIn, *events: tuple[float, str, dict[str, str]]) -> None:
    """Make an engine serve past events, each a time, an action and attributes.

    The attribute `id` names the container of the event, which is `ID` by default.
    """
    lines = []
    for time, action, attributes in events:
        rest = {name: value for name, value in attributes.items() if name != "id"}
        lines.append(
            write_event(
                action,
                attributes.get("id", ID),
                time_nano=round(time * 1e9),
                **{"name": "train", **rest},
            )
        )
    engine.put("/events", b"".join(lines))
