"""Deaths because the Hugging Face Hub did not give what was asked for."""

from __future__ import annotations

import re

from trainvitals.causes.account import read_account
from trainvitals.causes.case import Case
from trainvitals.causes.signs import Sign, find, has
from trainvitals.causes.verdict import Cause, Finding

_REPOSITORY = re.compile(
    r"Access to (?:model|dataset|space) ([\w./-]{1,120}) is restricted"
    r"|(?:models/|datasets/)?([\w.-]{1,96}/[\w.-]{1,96})/(?:resolve|tree|revision|blob)/"
    r"|/api/(?:models|datasets)/([\w.-]{1,96}(?:/[\w.-]{1,96})?)"
    r"|^(?:OSError: )?([\w.-]{1,96}(?:/[\w.-]{1,96})?) is not a local folder and is not a valid"
)
_TOKEN_NAMES = frozenset({"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HUGGINGFACE_HUB_TOKEN"})
_GATED = has("GatedRepoError", "Cannot access gated repo", "You are trying to access a gated repo")
_BAD_TOKEN = has("Invalid credentials in Authorization header", "401 Client Error: Unauthorized")
_NOT_FOUND = has(
    "RepositoryNotFoundError",
    "Repository Not Found for url",
    "is not a local folder and is not a valid model identifier",
)
_RATE = has("429 Too Many Requests", "HTTP Error 429", "429 Client Error")
_LOGIN = (
    "Pass a token as `HF_TOKEN` (`docker run --env-file hf.env`), not in the image or the command."
)


def look_hf_gated(case: Case) -> Finding | None:
    """Look for a gated repository that the Hub does not show to this user."""
    sign = find(case, _GATED)
    if sign is None:
        return _look_bad_token(case)
    text = _read_context(case, sign)
    name = _find_repository(text)
    page = f"https://huggingface.co/{name}" if name else "the model's page"
    named = f"`{name}`" if name else "A repository"
    accept = f"Accept its terms on {page} with the account that the token is of."
    if "403" in text or "not in the authorized list" in text:
        return sign.conclude(
            "hf-gated",
            f"{named} is gated, and the token's account has not accepted its terms.",
            (
                accept,
                (
                    "A fine-grained token also needs the right to read gated repositories:"
                    " https://huggingface.co/settings/tokens."
                ),
                "See whose token it is: `hf auth whoami`.",
            ),
        )
    return sign.conclude(
        "hf-gated",
        f"{named} is gated, and the Hub {'refused the token' if _has_token(case) else 'saw no token'}.",
        (_LOGIN, accept, "See whether it works: `hf auth whoami` in the container."),
        speaks_for=_tell_token(case),
    )


def _look_bad_token(case: Case) -> Finding | None:
    sign = find(case, _BAD_TOKEN)
    if sign is None or "huggingface" not in _read_context(case, sign) + sign.text:
        return None
    return sign.conclude(
        "hf-gated",
        "The Hugging Face Hub refused the token: it is wrong, or no longer valid.",
        (
            (
                "Make a new one at https://huggingface.co/settings/tokens, and try it: `HF_TOKEN=...`"
                " `hf auth whoami`."
            ),
            _LOGIN,
            "An old token may lie in `~/.cache/huggingface/token`: `hf auth logout` removes it.",
        ),
        speaks_for=_tell_token(case),
    )


def look_hf_notfound(case: Case) -> Finding | None:
    """Look for a repository that is not there, or is private and the token does not open it."""
    sign = find(case, _NOT_FOUND)
    if sign is None:
        return None
    text = _read_context(case, sign)
    name = _find_repository(text)
    named = f"`{name}`" if name else "The repository"
    check = f"Check the name: https://huggingface.co/{name or 'ORG/NAME'}; a folder must be there:"
    check += f" `ls {name or 'FOLDER'}`."
    is_hidden = "401 Client Error" in text or "If this is a private repository" in text
    return sign.conclude(
        "hf-notfound",
        f"The Hub shows no {named}: the name is wrong, or it is private and the token is missing."
        if is_hidden and name
        else f"{named} is not on the Hub under this name.",
        (check, _LOGIN, "See whose token it is: `hf auth whoami`."),
        speaks_for=(
            *_tell_token(case),
            *(("Without a right to it the Hub says `Not Found` of what is there.",) * is_hidden),
        ),
    )


def look_hf_rate(case: Case) -> Finding | None:
    """Look for the Hub's rate limit, whatever the last line says."""
    sign = find(case, _RATE)
    if sign is None:
        return None
    return sign.conclude(
        "hf-rate",
        "The Hugging Face Hub refused more requests (429): its rate limit was reached.",
        (
            "Pass a token, which raises the limit: `HF_TOKEN`.",
            (
                "Download once and read from disk: `hf download ORG/NAME`, then `HF_HUB_OFFLINE=1`, with"
                " the cache on a volume (`-v hf-cache:/root/.cache/huggingface`)."
            ),
            "Let one rank download before the others start, and wait five minutes before a retry.",
        ),
        speaks_for=("Its last line names the network, which is not at fault.",)
        if _ends_with_cache_error(case)
        else (),
    )


def _ends_with_cache_error(case: Case) -> bool:
    fatal = read_account(case).fatal
    return fatal is not None and fatal.errors[-1].name.endswith("LocalEntryNotFoundError")


def _has_token(case: Case) -> bool:
    settings = case.evidence.settings
    return settings is not None and bool(_TOKEN_NAMES & set(settings.variables))


def _tell_token(case: Case) -> tuple[str, ...]:
    settings = case.evidence.settings
    if settings is None:
        return ()
    names = sorted(_TOKEN_NAMES & set(settings.variables))
    if names:
        return (f"`{names[0]}` is set in the container.",)
    return ("`HF_TOKEN` is not set in the container.",)


def _find_repository(text: str) -> str:
    for line in text.split("\n"):
        found = _REPOSITORY.search(line)
        if found is not None:
            return next(group for group in found.groups() if group)
    return ""


def _read_context(case: Case, sign: Sign) -> str:
    """Give the whole of the traceback that the sign is in, or the lines around it."""
    fatal = read_account(case).fatal
    if fatal is not None and fatal.start <= sign.line <= fatal.end:
        return "\n".join(error.text for error in fatal.errors)
    return "\n".join(case.lines[max(0, sign.line - 4) : sign.line + 8])


CAUSES: tuple[Cause, ...] = (
    Cause(
        reason="hf-gated",
        title="A gated repository, or a token that is refused",
        signs="The log says `GatedRepoError`, `Cannot access gated repo`, or `Invalid credentials in"
        " Authorization header`.",
        meaning="401: no token, or a wrong one. 403: its account has not accepted the terms.",
        steps=(
            "Set `HF_TOKEN` in the container's environment.",
            "Accept the terms on the model's page.",
        ),
        confidence="high",
        look=look_hf_gated,
    ),
    Cause(
        reason="hf-notfound",
        title="The Hub does not know the repository",
        signs="The log says `RepositoryNotFoundError` or `is not a valid model identifier`.",
        meaning="The name is wrong, or the repository is private and the token is missing: the Hub"
        " says `Not Found` of both.",
        steps=(
            "Check the name on https://huggingface.co.",
            "Set `HF_TOKEN`, and see whose it is with `hf auth whoami`.",
        ),
        confidence="high",
        look=look_hf_notfound,
    ),
    Cause(
        reason="hf-rate",
        title="The Hub's rate limit",
        signs="The log says `429 Too Many Requests`, though its last line may name the network.",
        meaning="Many ranks or jobs asked the Hub at once, mostly without a token.",
        steps=(
            "Set `HF_TOKEN`.",
            "Download once to a volume and set `HF_HUB_OFFLINE=1`.",
        ),
        confidence="high",
        look=look_hf_rate,
    ),
)
