"""Whoever hands a message over never waits, and what can be sent is sent."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from trainvitals.courier import Courier, Discord, Email, Message, Slack, Webhook, deliver
from trainvitals.courier.gate import Limits
from trainvitals.courier.retrying import Patience

SOURCE_ROOT = Path(__file__).parents[2] / "exporter"
QUICK = Patience(attempts=3, first_seconds=0.02, longest_seconds=0.1, timeout_seconds=0.5)


def make(key="hot"):
    """Make a message whose title is its key."""
    return Message(key, "", "warning", key)


def wait_until(condition, seconds=20.0):
    """Wait until something is true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def start():
    """Give a function that starts a courier; what it reports is in its list `reports`."""
    couriers = []

    def start(*destinations, **options):
        reports = []
        options.setdefault("patience", QUICK)
        courier = Courier(destinations, report=reports.append, **options)
        courier.reports = reports
        couriers.append(courier)
        return courier

    yield start
    for courier in couriers:
        courier.close()


def run_python(code, *arguments):
    """Run a program and give how long it took and what it wrote to standard error."""
    began = time.monotonic()
    answer = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, *arguments],
        env=os.environ | {"PYTHONPATH": str(SOURCE_ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    return time.monotonic() - began, answer.stderr + answer.stdout


def test_a_message_reaches_every_destination(serve, start):
    """Each has its own way, and one that fails keeps none from the others."""
    server = serve()
    courier = start(
        Slack("http://127.0.0.1:1/"), Discord(server.url("/discord")), Webhook(server.url("/hook"))
    )
    courier.send(make())
    wait_until(lambda: len(server.requests) == 2)
    assert {path for path, _, _ in server.requests} == {"/discord", "/hook"}
    wait_until(lambda: courier.reports)
    assert courier.reports == [
        "Slack does not take messages: 127.0.0.1 cannot be reached: [Errno 111] Connection refused"
    ]


def test_a_failure_that_passes_is_retried(serve, start):
    """500, then 429, then it is taken; nobody needs to hear of it."""
    server = serve((500, {}, b""), (429, {"Retry-After": "0.05"}, b""), (200, {}, b""))
    courier = start(Slack(server.url()))
    courier.send(make())
    wait_until(lambda: len(server.requests) == 3)
    assert courier.close(10.0)
    assert len(server.requests) == 3
    assert courier.reports == []


def test_a_destination_that_is_down_is_left_alone_and_told_later(serve, start):
    """The breaker opens, and what came meanwhile arrives when the destination is back."""
    down = (503, {}, b"")
    server = serve(*[down] * 6, (200, {}, b""))
    courier = start(Slack(server.url()), failure_threshold=6, breaker_seconds=0.5)
    courier.send(make("first"))
    wait_until(lambda: len(server.requests) == 6)
    courier.send(make("second"))
    opened = time.monotonic()
    wait_until(lambda: len(server.requests) == 8)
    assert time.monotonic() - opened > 0.2
    assert "first" in server.requests[6][2].decode()
    assert "second" in server.requests[7][2].decode()
    wait_until(lambda: len(courier.reports) == 2)
    assert courier.reports == [
        "Slack does not take messages: 127.0.0.1 answered 503",
        "Slack takes messages again",
    ]


def test_what_is_refused_for_good_is_lost_and_counted(serve, start):
    """It is said once in the log, and in the next message that arrives."""
    server = serve((400, {}, b"no_text"), (200, {}, b""))
    courier = start(Slack(server.url()))
    courier.send(make("bad"))
    wait_until(lambda: courier.reports)
    courier.send(make("good"))
    wait_until(lambda: len(server.requests) == 2)
    assert "(1 messages before this one were lost)" in server.requests[1][2].decode()


def test_a_queue_that_is_full_makes_nobody_wait(serve, start):
    """A thousand messages to a destination that hangs cost milliseconds, and the rest is counted."""
    server = serve("hang", (200, {}, b""))
    courier = start(Slack(server.url()), patience=Patience(attempts=2, timeout_seconds=1.0))
    courier.send(make("first"))
    wait_until(lambda: server.requests)
    began = time.monotonic()
    for number in range(1000):
        courier.send(make(f"k{number}"))
    assert time.monotonic() - began < 0.5
    wait_until(lambda: len(server.requests) >= 4)
    bodies = "\n".join(body.decode() for _, _, body in server.requests)
    assert "(900 messages before this one were lost)" in bodies


def test_a_storm_is_a_few_messages(serve, start):
    """The limits hold for what is really sent."""
    server = serve()
    courier = start(Slack(server.url()), limits=Limits(burst=3, refill_seconds=60.0))
    for number in range(50):
        courier.send(make(f"k{number}"))
        courier.send(make("same"))
    wait_until(lambda: len(server.requests) == 3)
    assert courier.close(10.0)
    assert len(server.requests) <= 4


def test_closing_waits_as_long_as_it_is_told(serve, start):
    """A destination that hangs holds nobody up; what is left goes out in the background."""
    server = serve("hang", (200, {}, b""))
    courier = start(Slack(server.url()), patience=Patience(timeout_seconds=2.0))
    courier.send(make())
    wait_until(lambda: server.requests)
    began = time.monotonic()
    assert not courier.close(0.2)
    assert time.monotonic() - began < 1.5
    courier.send(make("too late"))
    assert courier.close(10.0)
    assert len(server.requests) == 1


def test_a_pause_ends_when_the_courier_is_closed(serve, start):
    """Retry-After of an hour keeps no program from ending."""
    server = serve((429, {"Retry-After": "3600"}, b""))
    courier = start(Slack(server.url()))
    courier.send(make())
    wait_until(lambda: server.requests)
    assert courier.close(5.0)


def test_a_child_that_is_forked_sends_nothing(serve, start):
    """The threads are the parent's, and so is the end."""
    server = serve()
    courier = start(Slack(server.url()))
    child = os.fork()
    if child == 0:
        courier.send(make("child"))
        is_done = courier.close(30.0)
        os._exit(0 if is_done else 1)
    assert os.waitpid(child, 0)[1] == 0
    courier.send(make("parent"))
    assert courier.close(10.0)
    assert [b"parent" in body for _, _, body in server.requests] == [True]


EXIT = """
import sys, time
from trainvitals.courier import Courier, Message, Slack, Email
from trainvitals.courier.retrying import Patience
destination = {destination}
courier = Courier([destination], flush_seconds=1.0)
courier.send(Message("last words", "", "critical", "k"))
{end}
"""


@pytest.mark.parametrize(
    "end", ["", "sys.exit(0)", "import os; child = os.fork(); child and os.wait()"]
)
def test_the_last_words_are_sent_at_the_end_of_the_program(serve, end):
    """A program that ends right after a message sends it, once."""
    server = serve()
    run_python(EXIT.format(destination="Slack(sys.argv[1])", end=end), server.url())
    assert len(server.requests) == 1


def test_a_destination_that_hangs_does_not_keep_a_program_from_ending(serve):
    """It ends after the time that it was given."""
    server = serve("hang")
    seconds, _ = run_python(EXIT.format(destination="Slack(sys.argv[1])", end=""), server.url())
    assert seconds < 15.0
    assert len(server.requests) == 1


def test_a_name_server_that_hangs_does_not_either():
    """Nothing can end the search for an address, so nobody waits for it."""
    end = """
import socket
"""
    hanging = """
import socket, threading
socket.getaddrinfo = lambda *a, **k: threading.Event().wait(300)
"""
    code = hanging + EXIT.format(
        destination='Email("smtp.example.org:25", "a@b.c", "d@e.f")', end=end
    )
    seconds, said = run_python(code)
    assert seconds < 15.0
    assert "Traceback" not in said


def test_the_log_of_a_program_shows_no_secret(serve):
    """What a destination that fails leaves in the log."""
    server = serve((404, {}, b"no_service SECRETSECRET"))
    code = "import logging; logging.basicConfig(level=0)\n" + EXIT.format(
        destination="Slack(sys.argv[1])", end=""
    )
    _, said = run_python(code, server.url())
    assert "Slack does not take messages: 127.0.0.1 answered 404" in said
    assert server.url() not in said
    assert repr(Slack("https://hooks.slack.com/SECRET")) == "Slack(channel=None)"


def test_delivery_waits_for_the_answers(serve):
    """A command learns what became of its message at each destination."""
    good, bad = serve((500, {}, b""), (200, {}, b"")), serve((404, {}, b""))
    slow = serve("hang")
    outcomes = deliver(
        make(),
        [
            Slack(good.url()),
            Discord(bad.url()),
            Webhook(slow.url()),
            Email("127.0.0.1:1", "a@b.c", "d@e.f"),
        ],
        patience=Patience(attempts=2, first_seconds=0.02, timeout_seconds=30.0),
        timeout_seconds=1.5,
    )
    slack, discord, webhook, mail = outcomes
    assert (slack.is_delivered, slack.destination, slack.reason) == (True, "Slack", None)
    assert discord.reason.startswith("127.0.0.1 answered 404: its address is wrong")
    assert webhook.reason == "no answer within 1.5 s"
    assert mail.reason.startswith("127.0.0.1 cannot be reached")
    assert deliver(make(), []) == ()


def test_threads_are_daemons(serve, start):
    """Neither they nor the interpreter wait for each other."""
    start(Slack(serve().url()))
    mine = [each for each in threading.enumerate() if each.name == "trainvitals-courier"]
    assert mine
    assert all(each.daemon for each in mine)
