"""Reading and changing a daemon.json where it stands."""

import json
from pathlib import Path

import pytest

from trainvitals.dockerlogging.document import read_document
from trainvitals.errors import ConfigurationError

FILE = Path("/etc/docker/daemon.json")


def read(text):
    """Read a document of this text."""
    return read_document(FILE, text.encode() if isinstance(text, str) else text)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('{\n  "debug": true,\n}', ":2:16: there is a comma too many before the closing bracket"),
        ('{"dns": ["1.1.1.1",]}', ":1:19: there is a comma too many before the closing bracket"),
        ('{\n  // mine\n  "debug": true}', ":2:3: JSON has no comments: take this one out"),
        ('{"debug": true} # mine', ":1:17: JSON has no comments: take this one out"),
        ('{"debug": true /* mine */}', ":1:16: JSON has no comments: take this one out"),
        ('{\n  "debug": true\n  "init": true}', ":3:3: expecting ',' delimiter"),
        ('{"debug": true', ":1:15: expecting ',' delimiter"),
        ('{"debug"', ":1:9: expecting ':' delimiter"),
        ('{"debug": True}', ":1:11: expecting value"),
        ("{'debug': true}", ":1:2: expecting property name enclosed in double quotes"),
        ('{"mtu": NaN}', ":1:9: NaN is no number in JSON"),
        ('{"mtu": -Infinity}', ":1:9: -Infinity is no number in JSON"),
        ('{"debug": true} {}', ":1:17: extra data"),
        ("[]", ":1:1: this is not an object: it must begin with { and end with }"),
        ("\n  null", ":2:3: this is not an object: it must begin with { and end with }"),
        ('"debug"', ":1:1: this is not an object: it must begin with { and end with }"),
        ('{"group": "a\tb"}', ":1:13: invalid control character at"),
        (b'{\n "group": "\xff"}', ":2:12: this is not UTF-8"),
        ('{"debug": true}'.encode("utf-16"), ":1:1: this is not UTF-8"),
        ('{"a":' * 100_000, ":1:1: brackets are nested too deep"),
    ],
)
def test_what_is_broken_is_told_with_its_place(text, complaint):
    """The line and the column are where an editor shows it."""
    with pytest.raises(ConfigurationError) as raised:
        read(text)
    assert str(raised.value) == f"{FILE}{complaint}"


@pytest.mark.parametrize("text", ["", "  ", "\r\n\n", "\ufeff"])
def test_nothing_is_an_empty_document(text):
    """It has no options and gets a layout of ours."""
    document = read(text)
    assert document.is_empty
    assert document.options == {}
    assert document.change({"live-restore": True}) == '{\n  "live-restore": true\n}\n'


def test_a_document_keeps_its_order_and_layout():
    """What is changed is changed in its place, what is new comes last, all else stays."""
    text = (
        '{\n\t"runtimes" : {"nvidia": {"path":   "nvidia-container-runtime"}},\n\n'
        '\t"live-restore" : false,\n\t"mtu" : 1.450e3\n}'
    )
    changed = read(text).change({"log-driver": "json-file", "live-restore": True})
    assert changed == (
        '{\n\t"runtimes" : {"nvidia": {"path":   "nvidia-container-runtime"}},\n\n'
        '\t"live-restore" : true,\n\t"mtu" : 1.450e3,\n\n\t"log-driver" : "json-file"\n}'
    )


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("{}", '{\n  "log-opts": {\n    "max-file": "5",\n    "compress": "true"\n  }\n}\n'),
        ("{ }\n", '{\n  "log-opts": {\n    "max-file": "5",\n    "compress": "true"\n  }\n}\n'),
        ('{"a":1}', '{"a":1,"log-opts":{"max-file":"5","compress":"true"}}'),
        ('{"a": 1}', '{"a": 1, "log-opts": {"max-file": "5", "compress": "true"}}'),
        (
            '{ "a": 1, "b": 2 }',
            '{ "a": 1, "b": 2, "log-opts": {"max-file": "5", "compress": "true"} }',
        ),
        (
            '{\r\n    "a": 1\r\n}\r\n',
            (
                '{\r\n    "a": 1,\r\n    "log-opts": {\r\n        "max-file": "5",'
                '\r\n        "compress": "true"\r\n    }\r\n}\r\n'
            ),
        ),
        (
            '{\n "log-opts": {}, "a": 1\n}',
            '{\n "log-opts": {\n  "max-file": "5",\n  "compress": "true"\n }, "a": 1\n}',
        ),
        (
            '{"log-opts": {"tag": "x", "max-file": 3}}',
            '{"log-opts": {"tag": "x", "max-file": "5", "compress": "true"}}',
        ),
        ('{"log-opts": null}', '{"log-opts": {"max-file": "5", "compress": "true"}}'),
        (
            '{"log-opts": {"max-file": 3}, "x": "\\u00e9 é \\ud800"}',
            '{"log-opts": {"max-file": "5", "compress": "true"}, "x": "\\u00e9 é \\ud800"}',
        ),
    ],
)
def test_new_members_look_like_those_that_are_there(text, changed):
    """Line ends, indentation and spaces are those of the file."""
    assert read(text).change({"log-opts": {"max-file": "5", "compress": "true"}}) == changed


def test_options_of_another_driver_are_dropped():
    """The rest of log-opts stays."""
    document = read('{"log-opts": {"fluentd-address": "a:1", "tag": "t"}}')
    changed = document.change(
        {"log-opts": {"max-size": "1m"}}, drops=frozenset({"fluentd-address"})
    )
    assert json.loads(changed) == {"log-opts": {"tag": "t", "max-size": "1m"}}


def test_names_that_are_repeated_are_found():
    """At the top and within log-opts; the last one counts."""
    document = read('{"mtu": 1, "log-opts": {"tag": "a", "tag": "b"}, "mtu": 2}')
    assert document.repeated == ("log-opts.tag", "mtu")
    assert document.options["mtu"] == 2


def test_a_number_of_any_length_is_read():
    """Python alone would refuse a number of five thousand digits."""
    text = '{"mtu": ' + "9" * 5000 + "}"
    assert read(text).change({}) == text
