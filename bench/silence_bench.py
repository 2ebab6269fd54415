"""Five hundred connections without a complete request, with and without TLS (goal 10)."""

from __future__ import annotations

import resource
import socket
import statistics
import time

from bench.client import HOST, Client
from bench.figures import Figures, is_quick, percentile, spread
from bench.subjects import GAP_SECONDS, Subject, fake_machine, node_exporter, our_exporter
from tests.fakes.machine import FakeMachine

CONNECTIONS = 500
ROUNDS = 5
QUICK_ROUNDS = 2
SCRAPES = 14  # the largest number that ends before the first connections are closed
PATIENCE_SECONDS = 15.0
SLOW_CALL_MICROSECONDS = 3000
HALF_A_HEAD = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nX-Slow: "


class Flood:
    """One flood of idle connections.

    Args:
        subject: The exporter that receives the connections.
        client: The client whose scrapes are timed.
        rss_before: The exporter's memory before the first flood, in MiB.
    """

    def __init__(self, subject: Subject, client: Client, rss_before: float) -> None:
        threads = subject.tree.threads()
        without = [scrape(client) for _ in range(SCRAPES)]
        silent = [connect(subject) for _ in range(CONNECTIONS)]
        opened_at = time.monotonic()
        during = [scrape(client) for _ in range(SCRAPES)]
        self.mib_more = subject.tree.memory().rss - rss_before
        self.threads_more = subject.tree.threads() - threads
        self.ratio = statistics.median(during) / statistics.median(without)
        self.during = statistics.median(during)
        self.closed_after = wait_until_closed(silent, opened_at)


def scrape(client: Client) -> float:
    """Scrape once, wait, and return the duration of the scrape."""
    seconds = client.get().seconds
    time.sleep(GAP_SECONDS)
    return seconds


def connect(subject: Subject) -> socket.socket:
    """Open a connection; without TLS, send half of a request head."""
    silent = socket.create_connection((HOST, subject.port))
    if not subject.tls:
        silent.sendall(HALF_A_HEAD)
    silent.settimeout(0)
    return silent


def wait_until_closed(connections: list[socket.socket], opened_at: float) -> float:
    """Return the seconds from the opening until the exporter has closed all connections."""
    left = connections
    while left and time.monotonic() < opened_at + PATIENCE_SECONDS:
        left = [connection for connection in left if is_open(connection)]
        time.sleep(0.02)
    seconds = time.monotonic() - opened_at
    for connection in connections:
        connection.close()
    return seconds


def is_open(connection: socket.socket) -> bool:
    """Return whether the exporter has not closed the connection; received bytes are discarded."""
    try:
        while connection.recv(1 << 16):
            pass
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def warm_up(client: Client, machine: FakeMachine) -> None:
    """Scrape with a slow and a fast driver, so that all workers have been started."""
    machine.delay(SLOW_CALL_MICROSECONDS)
    for _ in range(3):
        scrape(client)
    machine.delay(0)
    for _ in range(SCRAPES):
        scrape(client)


def enter(
    figures: Figures, subject: Subject, machine: FakeMachine, goals: str, rounds: int
) -> None:
    """Flood the exporter several times and record the results for four goals."""
    client = subject.client()
    warm_up(client, machine)
    before = subject.tree.memory().rss
    floods = [Flood(subject, client, before) for _ in range(rounds)]
    p50 = percentile([flood.during for flood in floods], 0.5) * 1e3
    figures.reach(f"10{goals[0]}", spread([flood.ratio for flood in floods]), ours=f"{p50:.2f} ms")
    figures.reach(f"10{goals[1]}", max(flood.mib_more for flood in floods))
    figures.reach(f"10{goals[2]}", max(flood.closed_after for flood in floods))
    figures.reach(f"10{goals[3]}", max(flood.threads_more for flood in floods))


def main() -> None:
    """Run the benchmark and write its results."""
    quick = is_quick("silence")
    figures = Figures("silence", quick=quick)
    rounds = QUICK_ROUNDS if quick else ROUNDS
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with fake_machine() as machine:
        with our_exporter(machine) as subject:
            enter(figures, subject, machine, "abcd", rounds)
        with our_exporter(machine, tls=True) as subject:
            enter(figures, subject, machine, "efgh", rounds)
    with node_exporter() as node:
        client = node.client()
        for _ in range(SCRAPES):
            scrape(client)
        flood = Flood(node, client, node.tree.memory().rss)
        figures.tell(
            "node_exporter under 500 silent connections",
            f"p50 ratio {flood.ratio:.2f}, {flood.mib_more:+.1f} MiB, "
            f"closed after {flood.closed_after:.0f} s (waited {PATIENCE_SECONDS:.0f})",
        )
    figures.write()


if __name__ == "__main__":
    main()
