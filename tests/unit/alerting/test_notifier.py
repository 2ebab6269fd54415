"""Tests for the notifier, which sends messages in the background without delaying its caller."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.support.waiting import wait_until
from trainvitals.alerting.message import Message
from trainvitals.alerting.notifier import Discord, Email, Notifier, Slack, Webhook, deliver
from trainvitals.alerting.ratelimit import RateLimit
from trainvitals.alerting.retry import RetryPolicy

SOURCE_ROOT = Path(__file__).parents[3] / "exporter"
QUICK = RetryPolicy(attempts=3, first_seconds=0.02, longest_seconds=0.1, timeout_seconds=0.5)


def make(key="hot"):
    """Return a message whose title is its key."""
    return Message(key, "", "warning", key)


@pytest.fixture
def start():
    """Yield a function that starts a notifier, whose list `reports` collects its reports."""
    notifiers = []

    def start(*channels, **options):
        reports = []
        options.setdefault("retries", QUICK)
        notifier = Notifier(channels, report=reports.append, **options)
        notifier.reports = reports
        notifiers.append(notifier)
        return notifier

    yield start
    for notifier in notifiers:
        notifier.close()


def run_python(code, *arguments):
    """Run a Python program and return its duration and its output."""
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
    """A message reaches every destination even if another destination fails."""
    server = serve()
    notifier = start(
        Slack("http://127.0.0.1:1/"), Discord(server.url("/discord")), Webhook(server.url("/hook"))
    )
    notifier.send(make())
    wait_until(lambda: len(server.requests) == 2)
    assert {path for path, _, _ in server.requests} == {"/discord", "/hook"}
    wait_until(lambda: notifier.reports)
    assert notifier.reports == [
        "Slack does not accept messages: 127.0.0.1 cannot be reached: [Errno 111] Connection refused"
    ]


def test_a_failure_that_passes_is_retried(serve, start):
    """A message is retried after a 500 and a 429, and a final success is not reported."""
    server = serve((500, {}, b""), (429, {"Retry-After": "0.05"}, b""), (200, {}, b""))
    notifier = start(Slack(server.url()))
    notifier.send(make())
    wait_until(lambda: len(server.requests) == 3)
    assert notifier.close(30.0)
    assert len(server.requests) == 3
    assert notifier.reports == []


def test_a_channel_that_is_down_is_paused_and_gets_its_messages_later(serve, start):
    """Messages that arrive while the circuit breaker is open are sent once the channel recovers."""
    down = (503, {}, b"")
    server = serve(*[down] * 6, (200, {}, b""))
    notifier = start(Slack(server.url()), failure_threshold=6, breaker_seconds=0.5)
    notifier.send(make("first"))
    wait_until(lambda: len(server.requests) == 6)
    notifier.send(make("second"))
    opened = time.monotonic()
    wait_until(lambda: len(server.requests) == 8)
    assert time.monotonic() - opened > 0.2
    assert "first" in server.requests[6][2].decode()
    assert "second" in server.requests[7][2].decode()
    wait_until(lambda: len(notifier.reports) == 2)
    assert notifier.reports == [
        "Slack does not accept messages: 127.0.0.1 answered 503",
        "Slack accepts messages again",
    ]


def test_a_paused_channel_is_left_alone_when_the_program_ends(serve, start):
    """Closing the notifier sends no message to a paused channel and reports the loss."""
    server = serve((503, {}, b""), (503, {}, b""))
    notifier = start(Slack(server.url()), failure_threshold=1, breaker_seconds=60.0)
    notifier.send(make("first"))
    wait_until(lambda: notifier.reports)
    notifier.send(make("second"))
    assert notifier.close(30.0)
    assert len(server.requests) == 1
    assert notifier.reports[-1] == (
        "Slack does not accept messages: Circuit breaker is OPEN (failures in a row: 1)"
    )


def test_what_is_refused_for_good_is_lost_and_counted(serve, start):
    """A permanently refused message is reported and is counted in the next message."""
    server = serve((400, {}, b"no_text"), (200, {}, b""))
    notifier = start(Slack(server.url()))
    notifier.send(make("bad"))
    wait_until(lambda: notifier.reports)
    notifier.send(make("good"))
    wait_until(lambda: len(server.requests) == 2)
    assert "(1 message before this one was lost)" in server.requests[1][2].decode()


def test_a_full_queue_makes_no_caller_wait(serve, start):
    """A thousand messages to a channel that hangs are queued or counted without a wait."""
    server = serve("hang", (200, {}, b""))
    policy = RetryPolicy(attempts=2, first_seconds=0.02, timeout_seconds=60.0)
    notifier = start(Slack(server.url()), retries=policy)
    notifier.send(make("first"))
    wait_until(lambda: server.requests)
    began = time.monotonic()
    for number in range(1000):
        notifier.send(make(f"k{number}"))
    assert time.monotonic() - began < 10.0
    server.is_over.set()
    wait_until(lambda: len(server.requests) >= 4)
    bodies = "\n".join(body.decode() for _, _, body in server.requests)
    assert "(900 messages before this one were lost)" in bodies


def test_a_storm_is_a_few_messages(serve, start):
    """The rate limit applies to the messages that are actually sent."""
    server = serve()
    notifier = start(Slack(server.url()), limit=RateLimit(burst=3, refill_seconds=60.0))
    for number in range(50):
        notifier.send(make(f"k{number}"))
        notifier.send(make("same"))
    wait_until(lambda: len(server.requests) == 3)
    assert notifier.close(30.0)
    assert len(server.requests) <= 4


def test_closing_waits_as_long_as_it_should(serve, start):
    """Closing waits no longer than its timeout for a channel that hangs."""
    server = serve("hang", (200, {}, b""))
    notifier = start(Slack(server.url()), retries=RetryPolicy(timeout_seconds=60.0))
    notifier.send(make())
    wait_until(lambda: server.requests)
    began = time.monotonic()
    assert not notifier.close(0.2)
    assert time.monotonic() - began < 20.0
    notifier.send(make("too late"))
    server.is_over.set()
    assert notifier.close(20.0)
    assert len(server.requests) == 1


def test_a_pause_ends_when_the_notifier_is_closed(serve, start):
    """Closing the notifier ends a wait for a Retry-After of one hour."""
    server = serve((429, {"Retry-After": "3600"}, b""))
    notifier = start(Slack(server.url()))
    notifier.send(make())
    wait_until(lambda: server.requests)
    assert notifier.close(30.0)


def test_a_child_that_is_forked_sends_nothing(serve, start):
    """A forked child sends no messages, because the sending threads belong to the parent."""
    server = serve()
    notifier = start(Slack(server.url()))
    child = os.fork()
    if child == 0:
        notifier.send(make("child"))
        is_done = notifier.close(30.0)
        os._exit(0 if is_done else 1)
    assert os.waitpid(child, 0)[1] == 0
    notifier.send(make("parent"))
    assert notifier.close(30.0)
    assert [b"parent" in body for _, _, body in server.requests] == [True]


EXIT = """
import sys, time
from trainvitals.alerting.message import Message
from trainvitals.alerting.notifier import Email, Notifier, Slack
channel = {channel}
notifier = Notifier([channel], flush_seconds=1.0)
notifier.send(Message("last words", "", "critical", "k"))
{end}
"""


@pytest.mark.parametrize(
    "end", ["", "sys.exit(0)", "import os; child = os.fork(); child and os.wait()"]
)
def test_the_last_words_are_sent_at_the_end_of_the_program(serve, end):
    """A program that ends right after a message sends the message exactly once."""
    server = serve()
    run_python(EXIT.format(channel="Slack(sys.argv[1])", end=end), server.url())
    assert len(server.requests) == 1


def test_a_destination_that_hangs_does_not_keep_a_program_from_ending(serve):
    """A program ends after its flush timeout even if a destination hangs."""
    server = serve("hang")
    seconds, _ = run_python(EXIT.format(channel="Slack(sys.argv[1])", end=""), server.url())
    assert seconds < 30.0
    assert len(server.requests) == 1


def test_a_name_server_that_hangs_does_not_either():
    """A program ends even if a DNS lookup hangs, which cannot be interrupted."""
    end = """
import socket
"""
    hanging = """
import socket, threading
socket.getaddrinfo = lambda *a, **k: threading.Event().wait(300)
"""
    code = hanging + EXIT.format(channel='Email("smtp.example.org:25", "a@b.c", "d@e.f")', end=end)
    seconds, said = run_python(code)
    assert seconds < 30.0
    assert "Traceback" not in said


def test_the_log_of_a_program_shows_no_secret(serve):
    """The log of a failed delivery and the representation of a channel contain no secret URL."""
    server = serve((404, {}, b"no_service SECRETSECRET"))
    code = "import logging; logging.basicConfig(level=0)\n" + EXIT.format(
        channel="Slack(sys.argv[1])", end=""
    )
    _, said = run_python(code, server.url())
    assert "Slack does not accept messages: 127.0.0.1 answered 404" in said
    assert server.url() not in said
    assert repr(Slack("https://hooks.slack.com/SECRET")) == "Slack(channel=None)"


def test_delivery_waits_for_the_answers(serve):
    """The function `deliver` waits for all channels and returns the outcome of each."""
    good, bad = serve((500, {}, b""), (200, {}, b"")), serve((404, {}, b""))
    slack, discord, mail = deliver(
        make(),
        [Slack(good.url()), Discord(bad.url()), Email("127.0.0.1:1", "a@b.c", "d@e.f")],
        retries=RetryPolicy(attempts=2, first_seconds=0.02, timeout_seconds=30.0),
    )
    assert (slack.is_delivered, slack.channel, slack.reason) == (True, "Slack", None)
    assert discord.reason.startswith("127.0.0.1 answered 404: the URL is wrong")
    assert mail.reason.startswith("127.0.0.1 cannot be reached")
    assert deliver(make(), []) == ()


def test_delivery_gives_up_on_a_channel_that_hangs(serve):
    """If a channel hangs, the outcome names the timeout and the error of the previous attempt."""
    hangs, fails_first = serve("hang"), serve((503, {}, b""), "hang")
    policy = RetryPolicy(attempts=2, first_seconds=0.0, timeout_seconds=30.0)
    (outcome,) = deliver(make(), [Webhook(hangs.url())], retries=policy, timeout_seconds=0.2)
    assert outcome.reason == "no response within 200ms"
    (outcome,) = deliver(make(), [Slack(fails_first.url())], retries=policy, timeout_seconds=3)
    assert outcome.reason == "no response within 3s; before that: 127.0.0.1 answered 503"


def test_threads_are_daemons(serve, start):
    """The notifier's threads are daemons, so the interpreter does not wait for them."""
    start(Slack(serve().url()))
    mine = [each for each in threading.enumerate() if each.name == "trainvitals-notifier"]
    assert mine
    assert all(each.daemon for each in mine)
