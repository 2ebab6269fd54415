"""HTTP requests to programs on this machine that ignore a proxy named in the environment."""

from __future__ import annotations

from typing import Any

import requests


def request(method: str, url: str, *, timeout: float = 60.0, **how: Any) -> requests.Response:
    """Return the response to a request; the arguments are those of `requests.request`."""
    with requests.Session() as session:
        session.trust_env = False
        return session.request(method, url, timeout=timeout, **how)


def get(url: str, params: Any = None, *, timeout: float = 60.0, **how: Any) -> requests.Response:
    """Return the response to a GET request."""
    return request("GET", url, params=params, timeout=timeout, **how)


def fetch_json(url: str, params: Any = None) -> Any:
    """Return the decoded JSON document at a URL.

    Raises:
        requests.RequestException: The document cannot be fetched.
    """
    answer = get(url, params)
    answer.raise_for_status()
    return answer.json()
