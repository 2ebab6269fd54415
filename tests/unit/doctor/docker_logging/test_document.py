"""Tests for reading `daemon.json` strictly and of changing its members."""

import json
from pathlib import Path

import pytest

from trainvitals.doctor.docker_logging.document import read_document
from trainvitals.errors import ConfigurationError

FILE = Path("/etc/docker/daemon.json")


def read(text):
    """Return the document that is read from this text."""
    return read_document(FILE, text.encode() if isinstance(text, str) else text)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('{\n  "debug": true,\n}', ":2:16: JSON allows no comma before a closing bracket"),
        ('{"dns": ["1.1.1.1",]}', ":1:19: JSON allows no comma before a closing bracket"),
        ('{\n  // mine\n  "debug": true}', ":2:3: JSON has no comments: remove this one"),
        ('{"debug": true} # mine', ":1:17: JSON has no comments: remove this one"),
        ('{"debug": true /* mine */}', ":1:16: JSON has no comments: remove this one"),
        ('{\n  "debug": true\n  "init": true}', ":3:3: expecting ',' delimiter"),
        ('{"debug": true', ":1:15: expecting ',' delimiter"),
        ('{"debug"', ":1:9: expecting ':' delimiter"),
        ('{"debug": True}', ":1:11: expecting value"),
        ("{'debug': true}", ":1:2: expecting property name enclosed in double quotes"),
        ('{"mtu": NaN}', ":1:9: JSON has no NaN"),
        ('{"mtu": -Infinity}', ":1:9: JSON has no -Infinity"),
        ('{"mtu": ' + "9" * 5000 + "}", ":1:9: this number is too large"),
        ('{"mtu": -1e999}', ":1:9: this number is too large"),
        ('{"debug": true} {}', ":1:17: extra data"),
        ("[]", ":1:1: not an object, which begins with { and ends with }"),
        ("\n  null", ":2:3: not an object, which begins with { and ends with }"),
        ('"debug"', ":1:1: not an object, which begins with { and ends with }"),
        ('{"group": "a\tb"}', ":1:13: invalid control character at"),
        (b'{\n "group": "\xff"}', ":2:12: not UTF-8"),
        ('{"debug": true}'.encode("utf-16"), ":1:1: not UTF-8"),
        ('{"a":' * 100_000, ":1:1: nested too deeply"),
    ],
)
def test_what_is_broken_is_told_with_its_place(text, complaint):
    """Invalid JSON is reported with its line and column, as an editor counts them."""
    with pytest.raises(ConfigurationError) as raised:
        read(text)
    assert str(raised.value) == f"{FILE}{complaint}"


@pytest.mark.parametrize("text", ["", "  ", " \n\n", "\ufeff"])
def test_nothing_is_an_empty_document(text):
    """An empty file has no options and is written with an indentation of two spaces."""
    document = read(text)
    assert document.is_empty
    assert document.options == {}
    assert document.change({"live-restore": True}) == '{\n  "live-restore": true\n}\n'


def test_a_document_keeps_its_order_and_indentation():
    """A changed member keeps its position, and a new member is added at the end."""
    text = (
        '{\n\t"runtimes" : {"nvidia": {"path":   "nvidia-container-runtime"}},\n\n'
        '\t"live-restore" : false,\n\t"mtu" : 1450\n}'
    )
    changed = read(text).change({"log-driver": "json-file", "live-restore": True})
    assert changed == (
        '{\n\t"runtimes": {\n\t\t"nvidia": {\n\t\t\t"path": "nvidia-container-runtime"\n\t\t}'
        '\n\t},\n\t"live-restore": true,\n\t"mtu": 1450,\n\t"log-driver": "json-file"\n}\n'
    )


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("{}", '{\n  "log-opts": {\n    "max-file": "5"\n  }\n}\n'),
        ('{"a":1}', '{\n  "a": 1,\n  "log-opts": {\n    "max-file": "5"\n  }\n}\n'),
        (
            '{\r\n    "a": 1\r\n}\r\n',
            '{\r\n    "a": 1,\r\n    "log-opts": {\r\n        "max-file": "5"\r\n    }\r\n}\r\n',
        ),
        (
            '{"log-opts": {"tag": "x", "max-file": 3}}',
            '{\n  "log-opts": {\n    "tag": "x",\n    "max-file": "5"\n  }\n}\n',
        ),
        ('{"log-opts": null}', '{\n  "log-opts": {\n    "max-file": "5"\n  }\n}\n'),
        (
            '{\n "x": "\\u00e9 é"\n}',
            '{\n "x": "é é",\n "log-opts": {\n  "max-file": "5"\n }\n}\n',
        ),
        (
            '{\n "x": "é \\ud800"\n}',
            '{\n "x": "\\u00e9 \\ud800",\n "log-opts": {\n  "max-file": "5"\n }\n}\n',
        ),
    ],
)
def test_new_members_are_indented_like_those_that_are_there(text, changed):
    """A written document keeps its indentation and line ends; a lone surrogate stays an escape."""
    assert read(text).change({"log-opts": {"max-file": "5"}}) == changed


def test_options_of_another_driver_are_dropped():
    """Options specific to a replaced log driver are removed; all other log options are kept."""
    document = read('{"log-opts": {"fluentd-address": "a:1", "tag": "t"}}')
    changed = document.change(
        {"log-opts": {"max-size": "1m"}}, drops=frozenset({"fluentd-address"})
    )
    assert json.loads(changed) == {"log-opts": {"tag": "t", "max-size": "1m"}}


def test_names_that_are_repeated_are_found():
    """Repeated names are found at the top level and in log-opts; the last value is used."""
    document = read('{"mtu": 1, "log-opts": {"tag": "a", "tag": "b"}, "mtu": 2}')
    assert document.repeated == ("log-opts.tag", "mtu")
    assert document.options["mtu"] == 2


def test_a_long_number_is_kept():
    """A long number that fits into Go's float64 is written unchanged."""
    text = '{\n  "mtu": ' + "9" * 300 + "\n}\n"
    assert read(text).change({}) == text
