"""Verdicts on Kubernetes pods, from the output of `kubectl describe pod`."""

import pytest

from trainvitals.sources.containers.evidence_document import from_json, to_json
from trainvitals.sources.containers.pod import is_pod, parse_pod, parse_quantity
from trainvitals.verdicts.causes.judge import judge

HEAD = """\
Name:         fit-0
Namespace:    ml
Node:         node-3/10.1.0.3
Status:       {status}
{more}Containers:
  side:
    Image:          acme/side:1
    State:          Running
      Started:      Fri, 15 Sep 2023 09:56:14 +0200
  fit:
    Image:          acme/fit:2
{state}    Restart Count:  {restarts}
    Limits:
      memory:  8Gi
Events:
  Type     Reason     Age                From               Message
  ----     ------     ----               ----               -------
{events}"""
KILLED = """\
    State:          Waiting
      Reason:       CrashLoopBackOff
    Last State:     Terminated
      Reason:       {reason}
      Exit Code:    {code}
      Started:      Fri, 15 Sep 2023 09:56:14 +0200
      Finished:     Fri, 15 Sep 2023 09:56:47 +0200
"""
WAITING = "    State:          Waiting\n      Reason:       {}\n"
RUNNING = "    State:          Running\n      Started:      Fri, 15 Sep 2023 09:56:14 +0200\n"
PROBE = "  Normal   Killing    3m (x8 over 21m)   kubelet   Container fit failed liveness probe, will be restarted\n"
MOUNT = "  Warning  FailedMount  3m  kubelet  Unable to attach or mount volumes: timed out\n"
REFUSED = """\
  Warning  UnexpectedAdmissionError  29m  kubelet  Allocate failed due to no healthy devices present
  Warning  FailedMount  28m (x6 over 29m)  kubelet  MountVolume.SetUp failed: object "ml"/"ca" not registered
"""
SECRET = '  Warning  Failed  4m (x6 over 5m)  kubelet, n4  Error: secrets "token-2" not found\n'


def write_pod(state, events="", *, status="Running", more="", restarts=0):
    """Return the output of `kubectl describe pod` for a pod in this state."""
    return HEAD.format(state=state, events=events, status=status, more=more, restarts=restarts)


OOM = KILLED.format(reason="OOMKilled", code=137)
DONE = "    State:          Terminated\n      Reason:       Completed\n      Exit Code:    0\n"
ERROR = KILLED.format(reason="Error", code=137)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (write_pod(OOM, restarts=6), "oom-cgroup"),
        (write_pod(OOM, PROBE), "oom-cgroup"),
        (write_pod(ERROR, PROBE), "pod-liveness"),
        (write_pod(ERROR, status="Failed", more="Reason:       Evicted\n"), "pod-evicted"),
        (write_pod(WAITING.format("ImagePullBackOff"), status="Pending"), "image-pull"),
        (write_pod(WAITING.format("CreateContainerConfigError"), SECRET), "pod-config"),
        (write_pod(WAITING.format("ContainerCreating"), MOUNT, status="Pending"), "pod-mount"),
        (write_pod(RUNNING, MOUNT), "running"),
        (write_pod(RUNNING, PROBE), "running"),
        (write_pod(DONE), "finished"),
    ],
)
def test_the_pod_names_the_cause(text, reason):
    """State, reason and events determine the cause, and past events do not affect a running pod."""
    assert judge(parse_pod(text)).reason == reason


def test_a_pod_that_no_node_takes_waits():
    """A pod that no node accepts is unschedulable, unless a later event shows its scheduling."""
    event = "  Warning  FailedScheduling  4m  default-scheduler  0/1 nodes are available\n"
    after = "  Normal   Scheduled         1m  default-scheduler  Successfully assigned ml/fit-0\n"
    text = write_pod("", event, status="Pending").replace(RUNNING, "", 1)
    text = text.replace("node-3/10.1.0.3", "<none>")
    assert judge(parse_pod(text)).reason == "pod-unschedulable"
    assert judge(parse_pod(text + after)).reason == "unknown"


def test_a_volume_of_a_refused_pod_is_forgotten_and_not_missing():
    """A failed mount after the kubelet refused the pod is not the cause."""
    text = write_pod("", REFUSED, status="Failed").replace(RUNNING, "", 1)
    assert judge(parse_pod(text)).reason == "pod-admission"


def test_the_failed_container_is_the_one_that_is_examined():
    """End, memory limit and restarts in the evidence are those of the failed container."""
    evidence = parse_pod(write_pod(OOM, restarts=6))
    assert (evidence.name, evidence.image, evidence.exit_code) == ("fit-0", "acme/fit:2", 137)
    assert (evidence.ended, evidence.restarts) == (1_694_764_607.0, 6)
    assert evidence.settings.memory_limit_bytes == 8 << 30
    assert from_json(to_json(evidence)) == evidence


WITH_INIT = """\
Name:         fit-0
Namespace:    ml
Node:         node-3/10.1.0.3
Status:       Pending
Init Containers:
  wait-for-data:
    Image:          acme/wait:1
    State:          Terminated
      Reason:       Completed
      Exit Code:    0
    Ready:          True
Containers:
  fit:
    Image:          acme/fit:2
{main}    Ready:          False
  istio-proxy:
    Image:          acme/proxy:1
{sidecar}    Ready:          True
"""


@pytest.mark.parametrize("sidecar", [RUNNING, DONE, ERROR, WAITING.format("PodInitializing")])
@pytest.mark.parametrize(
    ("why", "reason"),
    [
        ("ImagePullBackOff", "image-pull"),
        ("ErrImagePull", "image-pull"),
        ("CreateContainerConfigError", "pod-config"),
        ("CreateContainerError", "start-other"),
        ("RunContainerError", "start-other"),
    ],
)
def test_init_containers_that_are_done_and_sidecars_do_not_decide(why, reason, sidecar):
    """The main container's waiting reason decides, not the state of a sidecar."""
    evidence = parse_pod(WITH_INIT.format(main=WAITING.format(why), sidecar=sidecar))
    assert evidence.image == "acme/fit:2"
    assert judge(evidence).reason == reason


def test_a_pod_that_is_being_initialized_has_not_finished():
    """A pod whose init container has completed is not finished."""
    waiting = WAITING.format("PodInitializing")
    evidence = parse_pod(WITH_INIT.format(main=waiting, sidecar=waiting))
    assert judge(evidence).reason == "unknown"


def test_a_quantity_has_decimal_and_binary_units():
    """Quantities with decimal, binary and no units are parsed as Kubernetes defines them."""
    texts = ("8Gi", "1500M", "128974848", "1.5Ti", "<none>", "")
    sizes = (8 << 30, 1_500_000_000, 128_974_848, 3 << 39, None, None)
    assert tuple(map(parse_quantity, texts)) == sizes


def test_another_text_is_no_pod():
    """A pod description is recognised by its first keys, and other text raises a ValueError."""
    assert is_pod(write_pod(RUNNING))
    assert not is_pod("Name: resnet\nepoch 1 loss 2.3\n")
    with pytest.raises(ValueError, match="kubectl describe pod"):
        parse_pod("step 1 loss 2.3\n")


RUNS_AGAIN = """\
    State:          Running
      Started:      Sat, 16 Sep 2023 08:00:00 +0200
    Last State:     Terminated
      Reason:       {reason}
      Exit Code:    {code}
      Started:      Fri, 15 Sep 2023 09:56:14 +0200
      Finished:     Sat, 16 Sep 2023 07:59:58 +0200
    Ready:          {ready}
"""
STARTED = "  Normal   Started    {age}   kubelet   Started container fit\n"


@pytest.mark.parametrize(("reason", "code"), [("OOMKilled", 137), ("Error", 1), ("Completed", 0)])
def test_the_last_state_of_a_container_that_runs_and_is_ready_is_history(reason, code):
    """The last state of a ready container is not the verdict, but an OOM kill contributes."""
    text = write_pod(RUNS_AGAIN.format(reason=reason, code=code, ready="True"), restarts=1)
    verdict = judge(parse_pod(text))
    assert (verdict.reason, verdict.confidence) == ("running", "high")
    told = {each.reason: each.confidence for each in verdict.contributing}
    assert told == ({"oom-cgroup": "low"} if reason == "OOMKilled" else {})
    assert verdict.finding.speaks_for == ("It was started again 2s after its last end.",)


@pytest.mark.parametrize(
    ("ready", "events"),
    [("False", ""), ("True", STARTED.format(age="2m5s (x2 over 32m)"))],
    ids=["not ready", "restarted minutes ago"],
)
def test_the_last_state_counts_until_a_restart_is_over(ready, events):
    """The last state is the verdict until the container is ready and was not restarted lately."""
    text = write_pod(RUNS_AGAIN.format(reason="OOMKilled", code=137, ready=ready), events)
    assert judge(parse_pod(text)).reason == "oom-cgroup"
    old = STARTED.format(age="4d2h (x2 over 5d)")
    ready_now = RUNS_AGAIN.format(reason="OOMKilled", code=137, ready="True")
    assert judge(parse_pod(write_pod(ready_now, old))).reason == "running"


@pytest.mark.parametrize("events", ["", PROBE, MOUNT, SECRET])
def test_a_pod_that_succeeded_died_of_nothing(events):
    """A pod that succeeded is finished, whatever its events and first attempt show."""
    last = OOM.partition("    Last State:")[2]
    pod = write_pod(f"{DONE}    Last State:{last}", events, status="Succeeded", restarts=1)
    assert judge(parse_pod(pod)).reason == "finished"
