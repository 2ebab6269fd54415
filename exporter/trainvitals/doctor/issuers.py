"""Who gives out tokens, where libraries look for them, and how one asks whose a token is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Issuer:
    """Who gives out tokens of a kind.

    Attributes:
        name: Its name.
        variables: Where a token is looked for, in this order.
        base: Its address.
        base_variable: What names another address, such as a mirror of one's own.
        path: Where it says whose a token is.
        has_password: The token goes as the password of the user `api`, not as a bearer.
        body: What is asked; a GET when empty.
        find_name: Finds in the answer whose token it is; empty where the token is not accepted.
        login: The command that gets a new one.
        offline: Variables that say that the run will not use it.
    """

    name: str
    variables: tuple[str, ...]
    base: str
    base_variable: str
    path: str
    has_password: bool
    body: str
    find_name: Callable[[Mapping[str, object]], str]
    login: str
    offline: tuple[str, ...] = ()


def _find_hub_user(answer: Mapping[str, object]) -> str:
    return str(answer.get("name") or "")


def _find_viewer(answer: Mapping[str, object]) -> str:
    data = answer.get("data")
    viewer = data.get("viewer") if isinstance(data, dict) else None
    return str(viewer.get("username") or viewer.get("id") or "") if isinstance(viewer, dict) else ""


def _find_rate(answer: Mapping[str, object]) -> str:
    return "somebody" if "rate" in answer else ""


HUGGING_FACE = Issuer(
    "Hugging Face",
    ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"),
    "https://huggingface.co",
    "HF_ENDPOINT",
    "/api/whoami-v2",
    has_password=False,
    body="",
    find_name=_find_hub_user,
    login="hf auth login",
    offline=("HF_HUB_OFFLINE",),
)
WANDB = Issuer(
    "Weights & Biases",
    ("WANDB_API_KEY",),
    "https://api.wandb.ai",
    "WANDB_BASE_URL",
    "/graphql",
    has_password=True,
    body='{"query": "query { viewer { id username } }"}',
    find_name=_find_viewer,
    login="wandb login --relogin",
    offline=("WANDB_DISABLED",),
)
GITHUB = Issuer(
    "GitHub",
    ("GH_TOKEN", "GITHUB_TOKEN"),
    "https://api.github.com",
    "GITHUB_API_URL",
    "/rate_limit",
    has_password=False,
    body="",
    find_name=_find_rate,
    login="gh auth login",
)
