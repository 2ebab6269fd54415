"""Two hundred simultaneous scrapes (goal 11)."""

from __future__ import annotations

import selectors
import socket
import time
from contextlib import ExitStack

from bench.client import HOST
from bench.figures import Figures, is_quick, pair_ratio, spread
from bench.subjects import GAP_SECONDS, Subject, fake_machine, node_exporter, our_exporter

SCRAPES = 200
ROUNDS = 15
QUICK_ROUNDS = 4
PATIENCE_SECONDS = 20.0
ONE_CALL_A_READING = "nvmlDeviceGetPowerUsage"


def scrape_at_once(subject: Subject, count: int = SCRAPES) -> tuple[float, int]:
    """Scrape simultaneously; return the seconds until the last answer and the answers' count."""
    request = subject.client().request
    answers: dict[socket.socket, bytearray] = {}
    with selectors.DefaultSelector() as selector:
        started_at = time.perf_counter()
        for _ in range(count):
            client = socket.socket()
            client.settimeout(0)
            client.connect_ex((HOST, subject.port))
            selector.register(client, selectors.EVENT_WRITE)
            answers[client] = bytearray()
        while selector.get_map() and time.perf_counter() < started_at + PATIENCE_SECONDS:
            for key, events in selector.select(1.0):
                client = key.fileobj
                if events & selectors.EVENT_WRITE:
                    client.sendall(request)
                    selector.modify(client, selectors.EVENT_READ)
                elif part := receive(client):
                    answers[client] += part
                else:
                    selector.unregister(client)
        seconds = time.perf_counter() - started_at
    for client in answers:
        client.close()
    return seconds, sum(is_whole(bytes(answer)) for answer in answers.values())


def receive(client: socket.socket) -> bytes:
    """Receive a part of an answer, or return no bytes if the connection ended or broke."""
    try:
        return client.recv(1 << 18)
    except OSError:
        return b""


def is_whole(answer: bytes) -> bool:
    """Return whether an answer is a complete page with status 200."""
    head, _, body = answer.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        return False
    _, found, length = head.lower().partition(b"content-length:")
    return len(body) == int(length.split(None, 1)[0]) if found else body.endswith(b"0\r\n\r\n")


def main() -> None:
    """Run the benchmark and write its results."""
    quick = is_quick("burst")
    figures = Figures("burst", quick=quick)
    rounds = QUICK_ROUNDS if quick else ROUNDS
    with ExitStack() as stack:
        machine = stack.enter_context(fake_machine())
        ours = stack.enter_context(our_exporter(machine))
        node = stack.enter_context(node_exporter())
        scrape_at_once(ours, 1)
        mine: list[float] = []
        theirs: list[float] = []
        answered: dict[str, list[int]] = {"ours": [], "node": []}
        collections = []
        for _ in range(rounds):
            time.sleep(GAP_SECONDS)
            before = machine.calls(ONE_CALL_A_READING, 0)
            seconds, count = scrape_at_once(ours)
            mine.append(seconds)
            answered["ours"].append(count)
            collections.append(machine.calls(ONE_CALL_A_READING, 0) - before)
            time.sleep(GAP_SECONDS)
            seconds, count = scrape_at_once(node)
            theirs.append(seconds)
            answered["node"].append(count)
    peer = f"node_exporter {spread([s * 1e3 for s in theirs])} ms"
    figures.reach(
        "11a",
        SCRAPES - min(answered["ours"]),
        peer=f"node_exporter {SCRAPES - min(answered['node'])}",
    )
    figures.reach("11b", spread([seconds * 1e3 for seconds in mine]), peer=peer)
    figures.reach("11c", pair_ratio(mine, theirs))
    figures.reach("11d", max(collections), note=f"of {rounds} bursts: {sorted(set(collections))}")
    figures.write()


if __name__ == "__main__":
    main()
