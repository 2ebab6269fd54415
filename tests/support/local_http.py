"""HTTP to programs on this machine, by `requests`, past the proxy that an environment may name."""

from __future__ import annotations

from typing import Any

import requests


def request(method: str, url: str, *, timeout: float = 60.0, **how: Any) -> requests.Response:
    """Return the answer to one request; the arguments are those of `requests.request`."""
    with requests.Session() as session:
        session.trust_env = False
        return session.request(method, url, timeout=timeout, **how)


def get(url: str, params: Any = None, *, timeout: float = 60.0, **how: Any) -> requests.Response:
    """Return the answer to a GET."""
    return request("GET", url, params=params, timeout=timeout, **how)


def fetch_json(url: str, params: Any = None) -> Any:
    """Return a page of JSON.

    Raises:
        requests.RequestException: It cannot be had.
    """
    answer = get(url, params)
    answer.raise_for_status()
    return answer.json()
