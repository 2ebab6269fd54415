"""Tests for reading pods from the documents and the table of `kubectl get pod`."""

import json

import pytest
import yaml

from trainvitals.sources.containers.pod import is_pod, parse_pod
from trainvitals.verdicts.causes.judge import judge

HEAD = "NAME      READY   STATUS    RESTARTS   AGE\n"
ROW = "{name:<9} {ready}   {status}   {restarts}   12m\n"


def write_table(status, *, restarts="0", ready="0/1", name="fit-0"):
    """Return a table of `kubectl get pod` with one pod."""
    return HEAD + ROW.format(name=name, ready=ready, status=status, restarts=restarts)


# The statuses of pods that are not known to have ended.
ALIVE = frozenset({"Init:0/1", "Pending"}) | {
    "ImagePullBackOff",
    "Init:ErrImagePull",
    "CreateContainerConfigError",
    "RunContainerError",
    "UnexpectedAdmissionError",
    "CrashLoopBackOff",
    "Init:CrashLoopBackOff",
}


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ("OOMKilled", "oom-cgroup"),
        ("Init:OOMKilled", "oom-cgroup"),
        ("Evicted", "pod-evicted"),
        ("ImagePullBackOff", "image-pull"),
        ("Init:ErrImagePull", "image-pull"),
        ("CreateContainerConfigError", "pod-config"),
        ("RunContainerError", "start-other"),
        ("UnexpectedAdmissionError", "pod-admission"),
        ("NodeShutdown", "host-shutdown"),
        ("DeadlineExceeded", "time-limit"),
        ("CrashLoopBackOff", "crash-loop"),
        ("Init:CrashLoopBackOff", "crash-loop"),
        ("Signal:9", "kill-outside"),
        ("Completed", "finished"),
        ("Error", "unknown"),
        ("ExitCode:3", "unknown"),
        ("Pending", "unknown"),
        ("Init:0/1", "running"),
    ],
)
def test_the_table_has_the_state_of_a_pod(status, reason):
    """The table yields the reason and whether the pod has ended, even without an exit code."""
    evidence = parse_pod(write_table(status, restarts="3 (2m ago)"))
    verdict = judge(evidence)
    assert (verdict.reason, verdict.contributing) == (reason, ())
    assert evidence.name == "fit-0"
    assert evidence.has_ended == (status not in ALIVE)


def test_the_pod_in_trouble_is_chosen():
    """A failed pod is chosen first, then a pending pod, then a running or completed pod."""
    rows = (("a", "1/1", "Running"), ("b", "0/1", "Completed"), ("c", "0/1", "Pending"))
    table = HEAD + "".join(ROW.format(name=n, ready=r, status=s, restarts="0") for n, r, s in rows)
    assert parse_pod(table).name == "c"
    assert (
        parse_pod(table + ROW.format(name="d", ready="0/2", status="Error", restarts=1)).name == "d"
    )
    assert parse_pod(f"$ kubectl get pods\n{write_table('Running', ready='1/1')}").name == "fit-0"


def test_a_table_among_other_lines_is_a_log():
    """A table of pods with other lines around it, and a table of nodes, are not read as pods."""
    assert not is_pod(f"step 1 loss 2.1\n{write_table('OOMKilled')}")
    assert not is_pod(f"{write_table('OOMKilled')}step 1 loss 2.1\n")
    assert not is_pod("NAME  STATUS  ROLES  AGE\nn1  Ready  <none>  3d\n")


def write_pod(state, last=None, *, status=None, name="fit-0"):
    """Return the document of a pod with one container."""
    container = {"name": "fit", "image": "acme/fit:2", "ready": False, "restartCount": 6}
    states = {"state": state, "lastState": last or {}}
    limits = {"memory": "8Gi", "nvidia.com/gpu": "1"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "ml"},
        "spec": {
            "containers": [{"name": "fit", "resources": {"limits": limits}}],
        },
        "status": {"phase": "Running", "containerStatuses": [container | states], **(status or {})},
    }


KILLED = {
    "terminated": {
        "exitCode": 137,
        "reason": "OOMKilled",
        "startedAt": "2025-09-15T07:56:14Z",
        "finishedAt": "2025-09-15T07:56:47Z",
    }
}
LOOP = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s\nExit Code: 0"}}
PULL = {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}}
RUNNING = {"running": {"startedAt": "2025-09-15T07:56:14Z"}}
UNPLACED = [{"type": "PodScheduled", "message": "0/3 nodes are available: 3 Insufficient cpu."}]


@pytest.mark.parametrize("write", [yaml.safe_dump, json.dumps])
@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (write_pod(LOOP, KILLED), "oom-cgroup"),
        (write_pod(KILLED), "oom-cgroup"),
        (write_pod(PULL), "image-pull"),
        (write_pod(LOOP, {"terminated": {"exitCode": 143, "reason": "Error"}}), "term-outside"),
        (write_pod({}, status={"phase": "Failed", "reason": "Evicted"}), "pod-evicted"),
        (write_pod({}, status={"phase": "Pending", "conditions": UNPLACED}), "pod-unschedulable"),
    ],
)
def test_the_document_has_the_state_of_a_pod(write, document, reason):
    """The document yields the reason, the limits and the times of the container that failed."""
    evidence = parse_pod(write(document))
    assert judge(evidence).reason == reason
    assert evidence.settings is not None
    assert evidence.settings.memory_limit_bytes == 8 << 30
    if reason == "oom-cgroup":
        assert (evidence.started, evidence.ended) == (1757922974.0, 1757923007.0)


def test_of_a_list_the_pod_in_trouble_counts():
    """In a list of pods, a pod that runs well is skipped."""
    well = write_pod(RUNNING, name="well")
    well["status"]["containerStatuses"][0]["ready"] = True
    listed = {"apiVersion": "v1", "kind": "List", "items": [well, write_pod(PULL, name="ill")]}
    assert parse_pod(yaml.safe_dump(listed)).name == "ill"


@pytest.mark.parametrize(
    "text",
    [
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {}\n",
        "apiVersion: v1\nkind: Pod\nstatus: [\n",
        '{"kind": "Pod", "status": {"a": 1}, "metadata":',
        f'{{"kind": "Pod", "status": {"[" * 90_000}',
        f"kind: Pod\nstatus: {'[' * 90_000}",
        "step 1 loss 2\napiVersion: v1\nkind: Pod\nmetadata: {name: a}\nstatus: {phase: Failed}\n",
    ],
)
def test_other_documents_are_no_pods(text):
    """A manifest without a status is not read as a pod, nor is text that cannot be parsed."""
    assert not is_pod(text)
