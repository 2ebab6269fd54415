"""The command `trainvitals report`, run as on the command line."""

import json
import socket
import stat

import pytest

from tests.support.webhooks import WebhookReceiver
from trainvitals.cli import main

WHEN = ("--date", "2026-03-10", "--timezone", "UTC")


@pytest.fixture
def own_folder(tmp_path, monkeypatch):
    """Return an empty working directory, and remove receivers from the environment."""
    monkeypatch.chdir(tmp_path)
    for name in ("SLACK_WEBHOOK_URL", "DISCORD_WEBHOOK_URL", "SMTP_SMARTHOST", "WEBHOOK_URL"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_a_report_is_printed(day, capsys):
    """The report is printed to standard output, with the given price, currency and target."""
    source = (
        "--prometheus",
        day.url,
        "--price",
        "0.5",
        "--currency",
        "CHF",
        "--target",
        "iou=0.75",
    )
    assert main(["report", "daily", *WHEN, *source]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(
        "=== trainvitals Daily Monitoring Report ===\nDate: 2026-03-10, Tuesday, UTC\n"
    )
    assert "11.70 CHF at 0.5 CHF a kWh" in printed
    assert "the target 0.75 is reached" in printed


def test_a_report_is_kept_and_rendered_again(day, own_folder, capsys):
    """A report stored by --json is printed exactly as from Prometheus, and in other formats."""
    kept = own_folder / "day.json"
    assert (
        main(["report", "daily", *WHEN, "--prometheus", day.url, "--json", "--output", str(kept)])
        == 0
    )
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert json.loads(kept.read_text(encoding="utf-8"))["format"] == "trainvitals report"
    assert main(["report", "daily", *WHEN, "--prometheus", day.url]) == 0
    printed = capsys.readouterr().out
    assert main(["report", "--input", str(kept)]) == 0
    assert capsys.readouterr().out == printed
    assert main(["report", "daily", "--input", str(kept), "--format", "markdown"]) == 0
    assert capsys.readouterr().out.startswith("# trainvitals Daily Monitoring Report\n")
    page = own_folder / "day.html"
    assert main(["report", "--input", str(kept), "--format", "html", "--output", str(page)]) == 0
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert sorted(path.name for path in own_folder.iterdir()) == ["day.html", "day.json"]


def test_a_report_is_sent_to_those_who_hear_of_alerts(day, own_folder, capsys):
    """--send sends the report to the receivers in .env; a failure is reported with exit code 1."""
    with WebhookReceiver() as slack, WebhookReceiver(status=404) as webhook:
        (own_folder / ".env").write_text(
            f"SLACK_WEBHOOK_URL={slack.url('/hook')}\n", encoding="utf-8"
        )
        assert main(["report", "daily", *WHEN, "--prometheus", day.url, "--send"]) == 0
        assert capsys.readouterr().out == "sent to Slack\n"
        text = slack.messages[0].json["text"]
        assert "trainvitals Daily Monitoring Report, 2026-03-10" in text
        assert "Active Experiments: 1" in text
        with (own_folder / ".env").open("a", encoding="utf-8") as file:
            file.write(f"WEBHOOK_URL={webhook.url('/secret')}\n")
        assert main(["report", "daily", *WHEN, "--prometheus", day.url, "--send"]) == 1
        printed = capsys.readouterr()
    assert printed.out == "sent to Slack\n"
    assert printed.err.startswith("trainvitals: not sent to webhook: ")
    assert "/secret" not in printed.err


def test_a_report_that_is_sent_can_be_kept_too(day, own_folder):
    """A report with --output and --send is both written and sent."""
    with WebhookReceiver() as slack:
        (own_folder / ".env").write_text(f"SLACK_WEBHOOK_URL={slack.url()}\n", encoding="utf-8")
        where = ("--output", str(own_folder / "day.txt"), "--send")
        assert main(["report", "daily", *WHEN, "--prometheus", day.url, *where]) == 0
        assert len(slack.messages) == 1
    assert (own_folder / "day.txt").read_text(encoding="utf-8").startswith("=== trainvitals")


def test_the_prometheus_of_the_stack_is_asked_unless_another_is_named(day, own_folder, capsys):
    """Without --prometheus, the command uses the port or the URL that .env sets."""
    port = day.url.rpartition(":")[2]
    (own_folder / ".env").write_text(f"PROMETHEUS_PORT={port}\n", encoding="utf-8")
    assert main(["report", "daily", *WHEN]) == 0
    assert "node-1" in capsys.readouterr().out
    (own_folder / ".env").write_text(f"TRAINVITALS_PROMETHEUS_URL={day.url}\n", encoding="utf-8")
    assert main(["report", "daily", *WHEN]) == 0
    assert "node-1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "write `report daily`, `report weekly`, or --input FILE"),
        (("daily", "--send"), "--send: no receiver is set; set one of SLACK_WEBHOOK_URL"),
        (("daily", "--price", "-1"), "--price=-1: write a price of a kilowatt hour, as 0.31"),
        (("daily", "--price", "nan"), "--price=nan: write a price"),
        (("daily", "--target", "iou"), "--target=iou: write NAME=NUMBER, as in iou=0.75"),
        (("daily", "--target", "iou=high"), "--target=iou=high: write NAME=NUMBER"),
        (("daily", "--timeout", "0"), "--timeout=0: write a number of seconds"),
        (("daily", "--json", "--format", "html"), "--json and --format=html: use one of them"),
        (("daily", "--timezone", "Moon"), "--timezone=Moon: no such time zone"),
        (("--input", "nix.json"), "--input=nix.json: cannot be read: No such file"),
        (
            ("--input", "nix.json", "--price", "1"),
            "--input and --price: the stored report was made without",
        ),
        (("daily", "--prometheus", "nix"), "--prometheus is not the address of a Prometheus"),
    ],
)
def test_what_cannot_be_is_said_in_a_line(own_folder, capsys, arguments, words):
    """Invalid arguments are refused in one line that says what to write, with exit code 2."""
    assert main(["report", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert words in printed.err
    assert printed.err.count("\n") == 1


def test_a_prometheus_that_is_not_there_is_said(capsys):
    """The error for an unreachable Prometheus names the address, the reason and a remedy."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    assert main(["report", "daily", "--prometheus", url]) == 2
    printed = capsys.readouterr().err
    assert printed == (
        f"trainvitals: no Prometheus answers at {url}: Connection refused; start it with "
        "`trainvitals up`, or name another with --prometheus URL\n"
    )


def test_a_file_of_another_kind_is_refused(day, own_folder, capsys):
    """A stored daily report is refused as input for a weekly report."""
    assert (
        main(["report", "daily", *WHEN, "--prometheus", day.url, "--json", "--output", "d.json"])
        == 0
    )
    assert main(["report", "weekly", "--input", "d.json"]) == 2
    assert "--input=d.json: is a daily report" in capsys.readouterr().err


def test_a_place_that_cannot_be_written_is_said(day, own_folder, capsys):
    """An output file that cannot be written is refused with the reason and exit code 2."""
    assert main(["report", "daily", *WHEN, "--prometheus", day.url, "--output", "no/day.txt"]) == 2
    assert (
        "--output=no/day.txt: cannot be written: No such file or directory"
        in capsys.readouterr().err
    )
