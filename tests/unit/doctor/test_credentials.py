"""Tests for the checks of tokens: retries, redirections, saved tokens, and that none is printed."""

import stat

import pytest

from tests.unit.doctor.cases import KEY, TOKEN
from tests.unit.doctor.patient import Patient

ANN = (200, {"name": "ann"})


def test_a_busy_issuer_is_asked_again(patient: Patient):
    """After a server error and a 429 response, the third answer of the token service is used."""
    with patient.issuer((503, ""), (429, ""), ANN) as issuer:
        patient.environ |= {"HF_TOKEN": TOKEN, "HF_ENDPOINT": issuer.address}
        assert patient.find("huggingface-token").status == "ok"
        assert issuer.shown == [f"Bearer {TOKEN}"] * 3


def test_an_issuer_that_stays_busy_is_given_up(patient: Patient):
    """After three server errors, the result is a warning that the token was not checked."""
    with patient.issuer((500, "")) as issuer:
        patient.environ |= {"HF_TOKEN": TOKEN, "HF_ENDPOINT": issuer.address}
        finding = patient.find("huggingface-token")
        assert (finding.status, len(issuer.shown)) == ("warning", 3)
        assert "status 500" in finding.what


@pytest.mark.parametrize("status", [401, 403])
def test_a_token_that_is_refused_is_not_shown_again(patient: Patient, status: int):
    """A token that is rejected with 401 or 403 is not sent again."""
    with patient.issuer((status, {})) as issuer:
        patient.environ |= {"HF_TOKEN": TOKEN, "HF_ENDPOINT": issuer.address}
        assert patient.find("huggingface-token").status == "problem"
        assert len(issuer.shown) == 1


def test_a_token_does_not_follow_a_redirection(patient: Patient):
    """A token is not sent to the target of a redirection."""
    with patient.issuer(ANN) as stranger, patient.issuer((302, {})) as issuer:
        issuer.elsewhere = f"{stranger.address}/api/whoami-v2"
        patient.environ |= {"HF_TOKEN": TOKEN, "HF_ENDPOINT": issuer.address}
        assert patient.find("huggingface-token").status == "warning"
        assert stranger.shown == []


def test_an_answer_of_a_proxy_is_no_answer(patient: Patient):
    """A response that is not JSON, such as a proxy's login page, is a warning."""
    with patient.issuer((200, "<html>Log in to the hotel's network</html>")) as issuer:
        patient.environ |= {"HF_TOKEN": TOKEN, "HF_ENDPOINT": issuer.address}
        finding = patient.find("huggingface-token")
        assert finding.status == "warning"
        assert "not JSON" in finding.what


def test_a_token_that_was_saved_is_found(patient: Patient):
    """Tokens that `hf auth login` and `wandb login` have saved are found and checked."""
    patient.write("home/.cache/huggingface/token", f"{TOKEN}\n")
    netrc = patient.write("home/.netrc", f"machine 127.0.0.1 login user password {KEY}\n")
    netrc.chmod(stat.S_IRUSR | stat.S_IWUSR)
    viewer = (200, {"data": {"viewer": {"username": "ann"}}})
    with patient.issuer(ANN) as hub, patient.issuer(viewer) as wandb:
        patient.environ |= {"HF_ENDPOINT": hub.address, "WANDB_BASE_URL": wandb.address}
        assert patient.find("huggingface-token").status == "ok"
        assert patient.find("wandb-key").status == "ok"
        assert set(hub.shown) == {f"Bearer {TOKEN}"}  # more than one request if the machine is busy
        # base64 of api: and the key
        assert set(wandb.shown) == {
            "Basic YXBpOjAxMjM0NTY3ODlhYmNkZWYwMTIzNDU2Nzg5YWJjZGVmMDEyMzQ1Njc="
        }


def test_a_token_with_a_line_break_is_never_sent(patient: Patient):
    """A token with a line break is a problem and is neither sent nor printed."""
    with patient.issuer(ANN) as issuer:
        patient.environ |= {"HF_TOKEN": f"{TOKEN}\nX-More: 1", "HF_ENDPOINT": issuer.address}
        finding = patient.find("huggingface-token")
        assert finding.status == "problem"
        assert issuer.shown == []
        assert TOKEN not in repr(finding)
