"""The command `trainvitals notify`."""

import json

import pytest

from tests.support.alertmanager_process import AlertmanagerProcess
from tests.support.webhooks import WebhookReceiver
from trainvitals.cli import main
from trainvitals.stack.configuration import load_destinations


@pytest.fixture
def notify(tmp_path, monkeypatch, capsys):
    """Return a function that runs the command in an empty folder with a .env."""
    monkeypatch.chdir(tmp_path)
    state = tmp_path / "state"

    def run(*flags, dotenv="", port=1, mode=0o600):
        (tmp_path / ".env").write_text(dotenv, encoding="utf-8")
        (tmp_path / ".env").chmod(mode)
        code = main(
            ["notify", f"--state-dir={state}", f"--alertmanager-port={port}", *map(str, flags)]
        )
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def test_nowhere(notify, tmp_path):
    """Without receivers, `notify` prints which variables can be set and exits with 1."""
    code, out, err = notify()
    assert (code, err) == (1, "")
    assert out.splitlines()[-1].startswith(
        "no channel is configured, so alerts reach no one: set one of SLACK_WEBHOOK_URL, "
    )
    assert out.splitlines()[-1].endswith(" in .env")
    assert (tmp_path / "state/config/alertmanager/alertmanager.yml").exists()


def test_where_alerts_go(notify, tmp_path):
    """With a receiver, `notify` checks the file with amtool, prints the routes and exits with 0."""
    code, out, err = notify(dotenv="WEBHOOK_URL=http://127.0.0.1:9/secret\n")
    path = tmp_path / "state/config/alertmanager/alertmanager.yml"
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        f"{path} is checked by amtool; `trainvitals up` starts an Alertmanager with it",
        "critical: webhook",
        "warning: webhook",
        "dead man's switch: none; set DEADMAN_URL to be notified when alerting itself fails",
    ]
    assert "secret" in path.read_text(encoding="utf-8")


def test_secrets_that_others_can_read(notify):
    """If other users can read `.env`, `notify` warns on standard error and continues."""
    code, _, err = notify(dotenv="WEBHOOK_URL=http://127.0.0.1:9/secret\n", mode=0o644)
    assert (code, err) == (
        0,
        "trainvitals: other users can read the secrets in .env: run `chmod 600 .env`\n",
    )


def test_half_a_receiver(notify):
    """If one of a receiver's two variables is unset, `notify` prints an error and exits with 2."""
    code, out, err = notify(dotenv="TELEGRAM_BOT_TOKEN=1:hush\n")
    assert (code, out) == (2, "")
    assert err == (
        "trainvitals: TELEGRAM_BOT_TOKEN is set but TELEGRAM_CHAT_ID is not; set both in .env, "
        "or neither\n"
    )


def test_nothing_runs(notify):
    """`notify --test` without an Alertmanager fails with a message that says what to start."""
    code, _, err = notify("--test", dotenv="WEBHOOK_URL=http://127.0.0.1:9/\n")
    assert code == 2
    assert (
        "no test message was sent, as no Alertmanager responds at http://127.0.0.1:1: start" in err
    )


def test_a_dead_mans_switch_alone(notify):
    """With only a dead man's switch, `notify` names the switch and exits with 1."""
    code, out, _ = notify(dotenv="DEADMAN_URL=http://127.0.0.1:9/\n")
    assert code == 1
    assert out.splitlines()[-1] == "dead man's switch: a ping every minute"


def test_the_alertmanager_of_somebody_else(notify, alertmanager, tmp_path):
    """If Alertmanager runs with another file, `notify` says so and keeps the old destinations."""
    assert notify()[0] == 1
    written = tmp_path / "state/config/alertmanager/alertmanager.yml"
    other = tmp_path / "other.yml"
    other.write_text("route: {receiver: a}\nreceivers: [{name: a}]\n", encoding="utf-8")
    with AlertmanagerProcess(alertmanager, other, tmp_path) as process:
        _, out, _ = notify(dotenv="WEBHOOK_URL=http://127.0.0.1:9/\n", port=process.port)
    assert load_destinations(tmp_path / "state")[0].startswith("no one, ")
    assert out.splitlines()[0] == (
        f"{written} is checked by amtool; the Alertmanager at http://127.0.0.1:{process.port} "
        "uses another file; `trainvitals up` starts one with this file"
    )


def test_a_running_alertmanager(notify, alertmanager, tmp_path):
    """A running Alertmanager loads the new file, and `--test` reports whether messages arrived."""
    directory = tmp_path / "state/config/alertmanager"
    with WebhookReceiver() as receiver:
        assert notify()[0] == 1
        with AlertmanagerProcess(alertmanager, directory / "alertmanager.yml", tmp_path) as process:
            dotenv = f"WEBHOOK_URL={receiver.url('/here')}\n"
            code, out, _ = notify("--test", dotenv=dotenv, port=process.port)
            assert code == 0
            assert "the running Alertmanager uses it" in out.splitlines()[0]
            assert out.splitlines()[-2:] == [
                "critical to webhook: delivered",
                "warning to webhook: delivered",
            ]
            receiver.status = 404
            code, out, _ = notify("--test", "--json", dotenv=dotenv, port=process.port)
    told = json.loads(out)
    assert (code, told["fine"], told["is_loaded"]) == (1, False, True)
    assert [each["is_delivered"] for each in told["deliveries"]] == [False, False]
    assert told["described"][0] == "critical: webhook"
    assert told["path"] == str(directory / "alertmanager.yml")
