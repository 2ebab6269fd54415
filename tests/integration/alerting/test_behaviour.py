"""The messages that a real Alertmanager sends or inhibits, with shortened waiting times.

All scenes run at the same time on one Alertmanager, each for a machine of its own.
"""

import itertools
import statistics
import time

import pytest

from tests.support.alertmanager_process import AlertmanagerProcess
from tests.support.webhooks import WebhookReceiver
from trainvitals.alerting.configfile import write_configuration

# Longer than the `group_wait` and the `group_interval` of the routes.
SETTLE_SECONDS = 6.0


def alert(name, instance, severity="critical", /, **labels):
    """Return the labels of an alert."""
    return {
        "alertname": name,
        "instance": instance,
        "severity": severity,
        "job": "trainvitals",
        **labels,
    }


def card(name, instance, number, severity="critical", /, **labels):
    """Return the labels of an alert of an accelerator."""
    named = {"kind": "gpu", "device": str(number), "uuid": f"GPU-{number}"}
    return alert(name, instance, severity, component="accelerator", **{**named, **labels})


def run(name, instance, severity="critical", /, **labels):
    """Return the labels of an alert of a run."""
    return alert(name, instance, severity, component="training", **{"run": "bert", **labels})


def host(name, instance, severity="critical", /, **labels):
    """Return the labels of an alert of a host."""
    return alert(name, instance, severity, component="host", **labels)


DEAD = [
    alert("ExporterDown", "dead", component="meta"),
    *(card("GPUHighTemperature", "dead", number) for number in range(8)),
    *(card("AcceleratorThermalThrottling", "dead", number, "warning") for number in range(8)),
    *(run("TrainingRunVanished", "dead", run=f"run-{number}") for number in range(3)),
    *(run("SlowBatchProcessing", "dead", "warning", run=f"run-{number}") for number in range(3)),
    host("HostDiskFull", "dead", mountpoint="/data"),
    alert("ContainerDied", "dead", "warning", component="container", name="trainer"),
    alert("ExporterDataStale", "dead", "warning", component="meta", collector="disk"),
]
# For each scene: the firing alerts, and the names in each message, critical messages first.
SCENES = {
    "dead": (DEAD, [["ExporterDown"]]),
    "all-lost": (
        [card("AcceleratorLost", "all-lost", number) for number in range(64)],
        [["AcceleratorLost"] * 64],
    ),
    "prometheus-down": (
        [
            alert("ExporterDown", "prometheus-down", component="meta", job="prometheus"),
            card("GPUHighTemperature", "prometheus-down", 0),
            alert("ExporterDataStale", "prometheus-down", "warning", collector="disk"),
        ],
        [["ExporterDown", "GPUHighTemperature"], ["ExporterDataStale"]],
    ),
    "hot": (
        [
            card("GPUHighTemperature", "hot", 0),
            card("AcceleratorTemperatureNearLimit", "hot", 0, "warning"),
            card("AcceleratorThermalThrottling", "hot", 0, "warning"),
            card("GPULowUtilization", "hot", 0, "warning"),
            card("AcceleratorTemperatureNearLimit", "hot", 1, "warning"),
            card("AcceleratorTemperatureNearLimit", "hot", 0, "warning", kind="hpu", uuid="HPU-0"),
        ],
        [["GPUHighTemperature"], ["AcceleratorTemperatureNearLimit"] * 2],
    ),
    # The alert of a lost card has no label `device`; alerts of another card are still sent.
    "lost": (
        [
            alert("AcceleratorLost", "lost", component="accelerator", kind="gpu", uuid="GPU-0"),
            card("GPUHighTemperature", "lost", 0),
            card("GPULowUtilization", "lost", 0, "warning"),
            card("GPUHighTemperature", "lost", 1),
        ],
        [["AcceleratorLost", "GPUHighTemperature"]],
    ),
    "xid": (
        [
            card("AcceleratorXidCritical", "xid", 0, xid="79"),
            card("AcceleratorXidWarning", "xid", 0, "warning", xid="63"),
            card("HighMemoryUsage", "xid", 1, "warning"),
        ],
        [["AcceleratorXidCritical"], ["HighMemoryUsage"]],
    ),
    "missing": (
        [
            alert("AcceleratorMissing", "missing", component="accelerator", kind="gpu"),
            run("TrainingStalled", "missing"),
            card("GPUHighTemperature", "missing", 1),
        ],
        [["AcceleratorMissing", "GPUHighTemperature"], ["TrainingStalled"]],
    ),
    "stalled": (
        [
            run("TrainingStalled", "stalled"),
            run("SlowBatchProcessing", "stalled", "warning"),
            run("TrainingThroughputDrop", "stalled", "warning"),
            run("TrainingStragglerRank", "stalled", "warning", rank="3"),
            run("DataLoaderBottleneck", "stalled", "warning"),
            run("CheckpointStale", "stalled", "warning"),
            card("GPULowUtilization", "stalled", 0, "warning"),
            run("SlowBatchProcessing", "stalled", "warning", run="other"),
        ],
        [["TrainingStalled"], ["SlowBatchProcessing"]],
    ),
    "died": (
        [
            run("TrainingRunLost", "died", rank="3"),
            run("TrainingStalled", "died"),
            run("TrainingStalled", "died", run="other"),
            run("CheckpointStale", "died", "warning"),
        ],
        [["TrainingRunLost"], ["TrainingStalled"]],
    ),
    "terminated": (
        [
            run("TrainingRunTerminated", "terminated", "warning"),
            run("CheckpointStale", "terminated", "warning", run="other"),
            run("SlowBatchProcessing", "terminated", "warning"),
            card("GPULowUtilization", "terminated", 0, "warning"),
        ],
        [["CheckpointStale"], ["TrainingRunTerminated"]],
    ),
    # If one rank is terminated and the others hang, the critical alert is sent, too.
    "half-terminated": (
        [
            run("TrainingRunTerminated", "half-terminated", "warning"),
            run("TrainingStalled", "half-terminated"),
        ],
        [["TrainingStalled"], ["TrainingRunTerminated"]],
    ),
    "died-and-terminated": (
        [
            run("TrainingRunLost", "died-and-terminated", rank="3"),
            run("TrainingRunTerminated", "died-and-terminated", "warning"),
            run("TrainingRunFailed", "died-and-terminated", "warning", run="other"),
            run("TrainingRunTerminated", "died-and-terminated", "warning", run="other"),
            run("TrainingRunTerminated", "died-and-terminated", "warning", run="third"),
        ],
        [["TrainingRunLost"], ["TrainingRunFailed"], ["TrainingRunTerminated"]],
    ),
    "nan": (
        [
            run("TrainingLossNotFinite", "nan"),
            run("TrainingLossDiverging", "nan", "warning"),
            run("TrainingLossDiverging", "nan", "warning", run="other"),
        ],
        [["TrainingLossNotFinite"], ["TrainingLossDiverging"]],
    ),
    "full": (
        [
            host("HostDiskFull", "full", mountpoint="/data"),
            host("HostDiskWillFill", "full", mountpoint="/data"),
            host("HostDiskWillFill", "full", mountpoint="/home"),
            host("HostDiskSpaceLow", "full", "warning", mountpoint="/data"),
            host("HostDiskSpaceLow", "full", "warning", mountpoint="/"),
        ],
        [["HostDiskFull", "HostDiskWillFill"], ["HostDiskSpaceLow"]],
    ),
    "memory": (
        [
            host("HostMemoryPressure", "memory"),
            host("HostHighMemoryUsage", "memory", "warning"),
        ],
        [["HostMemoryPressure"]],
    ),
    "oom": (
        [
            alert("ContainerOOMKilled", "oom", component="container", name="a"),
            alert("ContainerDied", "oom", "warning", component="container", name="a"),
            alert("ContainerDied", "oom", "warning", component="container", name="b"),
            alert("ContainerMemoryNearLimit", "oom", "warning", component="container", name="a"),
        ],
        [["ContainerOOMKilled"], ["ContainerDied"]],
    ),
    "restarts": (
        [
            alert("ContainerRestartLoop", "restarts", "warning", component="container", name="a"),
            alert("ContainerDied", "restarts", "warning", component="container", name="a"),
            alert("ContainerDied", "restarts", "warning", component="container", name="b"),
        ],
        [["ContainerDied", "ContainerRestartLoop"]],
    ),
    "same-name": (
        [host("HostDiskFull", "same-name", cluster=cluster) for cluster in ("a", "b")],
        [["HostDiskFull"], ["HostDiskFull"]],
    ),
    "stale": (
        [
            alert("ExporterDataStale", "stale", "warning", component="meta", collector="disk"),
            alert(
                "ExporterCollectorFailed", "stale", "warning", component="meta", collector="disk"
            ),
            alert("ExporterCollectorFailed", "stale", "warning", component="meta", collector="cpu"),
        ],
        [["ExporterCollectorFailed", "ExporterDataStale"]],
    ),
    "quiet": (
        [
            host("HostRebooted", "quiet", "info"),
            host("NobodyKnowsThis", "quiet", "none"),
        ],
        [],
    ),
    "two-runs": (
        [run("TrainingStalled", "two-runs", run=name) for name in ("bert", "vit")],
        [["TrainingStalled"], ["TrainingStalled"]],
    ),
    # Of several alerts about an OOM kill, only the most specific ones are sent.
    "killed-for-memory": (
        [
            run("TrainingRunLost", "killed-for-memory", reason="oom"),
            run("TrainingOutOfMemory", "killed-for-memory", where="host"),
            run("TrainingOutOfMemory", "killed-for-memory", where="device"),
            host("HostOOMKill", "killed-for-memory"),
        ],
        [["TrainingOutOfMemory", "TrainingRunLost"]],
    ),
    "killed-by-somebody": (
        [
            run("TrainingRunLost", "killed-by-somebody", reason="signal"),
            run("TrainingOutOfMemory", "killed-by-somebody", where="device"),
            host("HostOOMKill", "killed-by-somebody"),
        ],
        [["HostOOMKill"], ["TrainingOutOfMemory", "TrainingRunLost"]],
    ),
    "out-of-memory": (
        [
            run("TrainingOutOfMemory", "out-of-memory", where="host"),
            run("TrainingRunFailed", "out-of-memory", "warning"),
            run("TrainingRunFailed", "out-of-memory", "warning", run="other"),
            host("HostOOMKill", "out-of-memory"),
        ],
        [["TrainingOutOfMemory"], ["TrainingRunFailed"]],
    ),
    "container-out-of-memory": (
        [
            alert("ContainerOOMKilled", "container-out-of-memory", component="container", name="a"),
            host("HostOOMKill", "container-out-of-memory"),
        ],
        [["ContainerOOMKilled"]],
    ),
    # The alert of an Xid inhibits others of the same card; another card's errors are still sent.
    "xid-and-errors": (
        [
            card("AcceleratorXidCritical", "xid-and-errors", 0, xid="95"),
            card("AcceleratorRecoveryActionNeeded", "xid-and-errors", 0),
            card("AcceleratorUncorrectedEcc", "xid-and-errors", 0),
            card("AcceleratorUncorrectedEcc", "xid-and-errors", 1),
            card("AcceleratorRowRemapFailed", "xid-and-errors", 2),
            card("AcceleratorRowRemapPending", "xid-and-errors", 2, "warning"),
            card("AcceleratorRowRemapPending", "xid-and-errors", 3, "warning"),
        ],
        [
            [
                "AcceleratorRowRemapFailed",
                "AcceleratorUncorrectedEcc",
                "AcceleratorXidCritical",
            ],
            ["AcceleratorRowRemapPending"],
        ],
    ),
    "rebooted": (
        [run("TrainingRunVanished", "rebooted", run=f"run-{number}") for number in range(13)],
        [["TrainingRunVanished"] * 13],
    ),
    "eight-hot-cards": (
        [card("GPUHighTemperature", "eight-hot-cards", number) for number in range(8)],
        [["GPUHighTemperature"] * 8],
    ),
    "flapping": ([card("GPUHighTemperature", "flapping", 0)], [["GPUHighTemperature"]]),
}
# All machines of a job in one cluster are down at once.
JOB_DOWN = [
    {"alertname": "ExporterJobDown", "severity": "critical", "job": "trainvitals", "cluster": "c"},
    *(alert("ExporterDown", f"gone-{number}", cluster="c") for number in range(5)),
    alert("TargetVanished", "gone-5", "warning", cluster="c"),
    alert("ExporterDown", "other-cluster", cluster="d"),
    alert("ExporterDown", "other-job", cluster="c", job="node"),
    alert("ExporterDown", "other-team", cluster="c", team="audio"),
]
# All alerts that inhibit others, on one machine; the inhibited ones fire for other machines.
LOUD = [
    {**labels, "cluster": "x"}
    for labels in (
        alert("ExporterDown", "loud", component="meta"),
        alert("ExporterDataStale", "loud", "warning", collector="disk"),
        card("AcceleratorLost", "loud", 0),
        alert("AcceleratorMissing", "loud", component="accelerator", kind="gpu"),
        card("GPUHighTemperature", "loud", 0),
        run("TrainingRunLost", "loud"),
        run("TrainingLossNotFinite", "loud"),
        host("HostMemoryPressure", "loud"),
        host("HostDiskFull", "loud", mountpoint="/data"),
        host("HostDiskWillFill", "loud", mountpoint="/data"),
        alert("ContainerOOMKilled", "loud", component="container", name="a"),
        alert("ContainerRestartLoop", "loud", "warning", component="container", name="a"),
    )
]


def quiet(instance, cluster):
    """Return alerts that the `LOUD` alerts would inhibit, and that inhibit none of each other."""
    alerts = (
        alert("ExporterCollectorFailed", instance, "warning", collector="disk"),
        card("AcceleratorTemperatureNearLimit", instance, 0, "warning"),
        card("GPULowUtilization", instance, 0, "warning"),
        run("SlowBatchProcessing", instance, "warning"),
        run("TrainingLossDiverging", instance, "warning"),
        host("HostHighMemoryUsage", instance, "warning"),
        host("HostDiskSpaceLow", instance, "warning", mountpoint="/data"),
        alert("ContainerDied", instance, "warning", component="container", name="a"),
    )
    return [{**labels, "cluster": cluster} for labels in alerts]


def quiet_and_loud(instance, cluster):
    """Return alerts that the `LOUD` alerts would inhibit, and that inhibit others."""
    alerts = (
        run("TrainingStalled", instance),
        run("TrainingRunTerminated", instance, "warning"),
        host("HostDiskWillFill", instance, mountpoint="/data"),
    )
    return [{**labels, "cluster": cluster} for labels in alerts]


ELSEWHERE = [
    *quiet("elsewhere-1", "x"),
    *quiet("loud", "y"),
    *quiet_and_loud("elsewhere-2", "x"),
    *quiet_and_loud("loud", "z"),
]
WATCHDOG = {"alertname": "Watchdog", "severity": "none", "component": "meta"}


@pytest.fixture(scope="module")
def messages(alertmanager, version, quick_routes, tmp_path_factory):
    """Run all scenes, and return the messages that were sent until no more followed."""
    directory = tmp_path_factory.mktemp("behaviour")
    with WebhookReceiver() as receiver:
        config = write_configuration(
            {
                "WEBHOOK_URL": receiver.url("/all"),
                "DEADMAN_URL": receiver.url("/deadman"),
                "TEAM_VISION_WEBHOOK_URL": receiver.url("/vision"),
            },
            directory / "config",
            shipped=quick_routes,
            version=version,
        ).path
        with AlertmanagerProcess(alertmanager, config, directory) as process:
            alerts = [each for scene, _ in SCENES.values() for each in scene]
            team = [
                host("HostDiskFull", "with-team", severity, team="vision")
                for severity in ("critical", "warning", "info")
            ]
            process.fire(WATCHDOG, *JOB_DOWN, *LOUD, *ELSEWHERE, *team, *alerts)
            flapping = card("GPUHighTemperature", "flapping", 0)
            receiver.wait_for(lambda each: "flapping" in str(each.json), seconds=60)
            started = time.monotonic()
            process.fire(flapping, ended=True, started_seconds_ago=60)
            process.fire(flapping)
            time.sleep(SETTLE_SECONDS)
            sent = [each for each in receiver.messages if each.at < started + SETTLE_SECONDS]
    return sent


def sent_about(messages, instance, path="/all"):
    """Return the messages about a machine, critical ones first."""
    found = [
        each
        for each in messages
        if each.path == path
        and any(one["labels"].get("instance") == instance for one in each.alerts)
    ]
    return sorted(found, key=lambda each: (each.json["receiver"] != "page", each.names))


@pytest.mark.parametrize("scene", SCENES)
def test_a_scene_is_sent_once(messages, scene):
    """Each message of a scene is sent once, without alerts that a more severe one inhibits."""
    _, expected = SCENES[scene]
    assert [each.names for each in sent_about(messages, scene)] == expected


def test_a_dead_machine_is_one_message(messages):
    """If a machine with 8 hot cards and 3 runs is down, only `ExporterDown` is sent."""
    (message,) = sent_about(messages, "dead")
    assert message.names == ["ExporterDown"]
    assert message.status == "firing"
    assert message.json["receiver"] == "page"
    assert len(DEAD) == 26


def test_a_flapping_temperature_is_one_message(messages):
    """A temperature alert that ends and fires again between two messages is sent once."""
    (message,) = sent_about(messages, "flapping")
    assert message.status == "firing"


def test_a_lost_card_silences_itself_alone(messages):
    """`AcceleratorLost` inhibits the alerts of the lost card, but not those of another card."""
    (message,) = sent_about(messages, "lost")
    cards = {each["labels"]["alertname"]: each["labels"]["uuid"] for each in message.alerts}
    assert cards == {"AcceleratorLost": "GPU-0", "GPUHighTemperature": "GPU-1"}


def test_a_dead_network_is_one_message(messages):
    """`ExporterJobDown` inhibits `ExporterDown` of its job, cluster and team, and no others."""
    about = [each for each in messages if each.json["commonLabels"].get("cluster") in ("c", "d")]
    assert sorted((*each.names, each.alerts[0]["labels"].get("instance")) for each in about) == [
        ("ExporterDown", "other-cluster"),
        ("ExporterDown", "other-job"),
        ("ExporterDown", "other-team"),
        ("ExporterJobDown", None),
    ]


def test_nothing_is_silenced_from_elsewhere(messages):
    """Alerts do not inhibit those of other machines, even of the same name in another cluster."""
    told = sorted(
        (one["labels"]["instance"], one["labels"]["cluster"], one["labels"]["alertname"])
        for message in messages
        for one in message.alerts
        if one["labels"].get("cluster") in ("x", "y", "z")
        and (one["labels"]["cluster"] != "x" or one["labels"]["instance"] != "loud")
    )
    assert told == sorted(
        (labels["instance"], labels["cluster"], labels["alertname"]) for labels in ELSEWHERE
    )


def test_a_team_hears_of_its_own(messages):
    """A team's alerts go only to the team's channels, and its `info` alerts to no channel."""
    assert sent_about(messages, "with-team") == []
    told = sent_about(messages, "with-team", "/vision")
    assert sorted(each.json["receiver"] for each in told) == ["chat-vision", "page-vision"]


def test_the_dead_mans_switch_beats(messages):
    """The receiver of the dead man's switch gets the Watchdog alone, and gets it repeatedly."""
    beats = [each for each in messages if each.path == "/deadman"]
    assert {tuple(each.names) for each in beats} == {("Watchdog",)}
    gaps = [later.at - each.at for each, later in itertools.pairwise(beats)]
    assert len(gaps) >= 4
    assert statistics.median(gaps) < 1.5
