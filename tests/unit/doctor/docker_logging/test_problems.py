"""Tests for finding problems in `daemon.json`, based on what dockerd 20.10 and 26.1 accept."""

import pytest

from trainvitals.doctor.docker_logging.flags import Flag
from trainvitals.doctor.docker_logging.keys import read_size
from trainvitals.doctor.docker_logging.problems import Daemon, find_problems

ALONE = Daemon()
RIGHT = {
    "log-driver": "json-file",
    "log-opts": {"max-size": "100m", "max-file": "5", "compress": "true"},
    "live-restore": True,
}


def judge(options, daemon=ALONE):
    """Return the place and the effect of each problem."""
    return [(problem.place, problem.effect) for problem in find_problems(options, daemon)]


def with_log(**log_options):
    """Return correct options with these log-opts instead."""
    return {
        **RIGHT,
        "log-opts": {name.replace("_", "-"): log_options[name] for name in log_options},
    }


@pytest.mark.parametrize(
    "options",
    [
        RIGHT,
        {**RIGHT, "log-driver": ""},
        {**RIGHT, "runtimes": {"nvidia": {"path": "x"}}, "default-runtime": "nvidia", "mtu": 1400},
        {**RIGHT, "exec-opts": ["native.cgroupdriver=systemd"], "data-root": "/data"},
        {"log-driver": "local", "live-restore": True},
        {"log-driver": "local", "log-opts": {"max-size": "1g"}, "live-restore": True},
        {"log-driver": "journald", "log-opts": {"tag": "x"}, "live-restore": True},
        with_log(max_size="1.5GB", max_file="2", compress="T", labels="a", mode="non-blocking"),
        with_log(max_size="10m", max_file="1", compress="false"),
        with_log(max_size="10m"),
    ],
)
def test_what_is_right_has_no_problem(options):
    """Options with which Docker starts, rotates logs and keeps containers have no problem."""
    assert judge(options) == []


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [("log-opts", "logs"), ("live-restore", "logs")]),
        ({**RIGHT, "live-restore": "true"}, [("live-restore", "daemon")]),
        ({**RIGHT, "live-restore": False}, [("live-restore", "logs")]),
        (with_log(max_size="10m", max_file=5), [("log-opts.max-file", "daemon")]),
        (with_log(max_size="10m", compress=True), [("log-opts.compress", "daemon")]),
        ({**RIGHT, "log-opts": ["max-size=1m"]}, [("log-opts", "daemon"), ("log-opts", "logs")]),
        (
            with_log(compress="true"),
            [("log-opts.compress", "containers"), ("log-opts", "logs")],
        ),
        (
            with_log(max_size="10m", max_file="1", compress="true"),
            [("log-opts.compress", "containers")],
        ),
        (with_log(max_size="10m", compress="true"), [("log-opts.compress", "containers")]),
        (with_log(max_size="lots"), [("log-opts.max-size", "containers")]),
        (with_log(max_size="-1"), [("log-opts.max-size", "containers")]),
        (with_log(max_size="0"), [("log-opts.max-size", "containers")]),
        (with_log(max_size="1m", max_file="0"), [("log-opts.max-file", "containers")]),
        (with_log(max_size="1m", max_file="many"), [("log-opts.max-file", "containers")]),
        (with_log(max_size="1m", compress="yes"), [("log-opts.compress", "containers")]),
        (with_log(max_file="3"), [("log-opts", "logs")]),
        (with_log(max_size="1m", max_sise="1m"), [("log-opts.max-sise", "daemon")]),
        ({**RIGHT, "log-driver": "nosuch"}, [("log-driver", "containers")]),
        ({**RIGHT, "log-driver": "none"}, [("log-driver", "logs")]),
        ({**RIGHT, "log-driver": 5}, [("log-driver", "daemon")]),
        ({**RIGHT, "live_restore": True}, [("live_restore", "daemon")]),
        ({**RIGHT, "Live-Restore": True}, [("Live-Restore", "daemon")]),
        ({**RIGHT, "dataroot": "/data"}, [("dataroot", "daemon")]),
        ({**RIGHT, "some-thing-new": 1}, [("some-thing-new", "note")]),
        ({**RIGHT, "mtu": "1400"}, [("mtu", "daemon")]),
        ({**RIGHT, "debug": 1}, [("debug", "daemon")]),
        ({**RIGHT, "hosts": "unix://"}, [("hosts", "daemon")]),
    ],
)
def test_what_is_wrong_is_found_with_what_comes_of_it(options, expected):
    """Each wrong option is found with its effect, also if `dockerd --validate` accepts it."""
    assert judge(options) == expected


def test_a_misspelt_name_is_told_with_what_is_meant():
    """The problem of a misspelt option or driver suggests the nearest valid name."""
    (problem,) = find_problems({**RIGHT, "log_driver": "local"})
    assert problem.text == "unknown option (did you mean log-driver?)"
    (problem,) = find_problems({**RIGHT, "log-driver": "json-files"})
    assert problem.text == "Docker has no driver json-files (did you mean json-file?)"


def test_an_option_must_not_be_a_flag_too():
    """An option that is also a flag is a problem, except runtimes, for which Docker allows both."""
    flags = (Flag("hosts", "-H", "docker.service"), Flag("runtimes", "--add-runtime", "x"))
    options = {**RIGHT, "hosts": ["unix://"], "runtimes": {}}
    assert judge(options, Daemon(flags)) == [("hosts", "daemon")]


def test_what_is_a_flag_is_not_missing():
    """Log rotation and live-restore that are set by flags are not reported as missing."""
    flags = (Flag("log-opts", "--log-opt", "a unit"), Flag("live-restore", "--live-restore", "it"))
    assert judge({}, Daemon(flags)) == []


def test_a_node_of_a_swarm_cannot_have_live_restore():
    """On a swarm node, live-restore is a problem if it is on, and none if it is off."""
    swarm = Daemon(is_in_swarm=True)
    assert judge(RIGHT, swarm) == [("live-restore", "daemon")]
    assert judge({**RIGHT, "live-restore": False}, swarm) == []


def test_a_driver_of_a_plugin_is_known_where_the_engine_has_it():
    """A log driver of a plugin is accepted if the engine lists the plugin."""
    options = {"log-driver": "loki", "live-restore": True}
    assert judge(options) == [("log-driver", "containers")]
    assert judge(options, Daemon(plugins=frozenset({"loki"}))) == []


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("100m", 100_000_000),
        ("1g", 1_000_000_000),
        ("10MB", 10_000_000),
        ("2.5k", 2500),
        ("4096", 4096),
        ("1 gib", 1_000_000_000),
        ("", None),
        ("m", None),
        ("-1", None),
        ("0", None),
        ("10mm", None),
        ("\u0661m", None),
    ],
)
def test_sizes_are_docker_s(text, size):
    """Sizes in the options of log drivers have decimal units, whatever the unit is called."""
    assert read_size(text) == size
