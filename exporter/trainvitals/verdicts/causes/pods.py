"""Reasons for the end of a pod, from `kubectl describe pod` and the kubelet's events in a log."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from trainvitals.verdicts.causes import container_faults
from trainvitals.verdicts.causes.case import Case
from trainvitals.verdicts.causes.log_matches import quote
from trainvitals.verdicts.causes.notices import find_notice
from trainvitals.verdicts.causes.signs import Sign, matches
from trainvitals.verdicts.causes.verdict import Cause, Confidence, Finding

# A table row of `kubectl get pods` between other log lines.
_ROW = r"^[\w.-]{1,253} {1,40}(?:[\w.-]{1,253} {1,40})?[0-9]{1,3}/[0-9]{1,3} {1,40}(?:Init:)?"
_OOM = matches(
    rf"{_ROW}OOMKilled\b",
    r"^\s*Reason: +OOMKilled\b|\bOOMKilled\b.{0,40}(?:[Ee]xit|137)|Reason[=:] ?\"?OOMKilled",
)
_IMAGE = matches(
    r"\b(?:ErrImagePull|ImagePullBackOff|ErrImageNeverPull|InvalidImageName|ImageInspectError)\b"
    r"|Failed to pull image|pull access denied|manifest unknown|manifest for \S{1,200} not found"
    r"|no basic auth credentials|toomanyrequests: |repository does not exist or may require"
    r"|error getting credentials|returned error code: 40[0-9]|reading manifest \S{1,120} in|short-name resolution|no matching manifest for"
    r"|failed to import docker image|[Ff]ailed to (?:fetch|get) (?:OCI |image )?manifest|initializing source docker://|Back-off pulling image"
    r"|waiting to start: (?:trying and failing to pull image|image can't be pulled)"
    r"|failed to resolve reference|unauthorized: (?:authentication|access|incorrect)"
    r"|Error response from daemon: (?:Get|Head) \"?https?://\S{1,200}/v2/"
)
_NODE_FULL = matches(
    r"no space left on device|FreeDiskSpaceFailed|NodeHasDiskPressure", ignore_case=True
)
# A line that states why the image was not pulled; such a line is preferred to other lines.
_WHY_NOT_PULLED = matches(r"Failed to pull image .{1,300}: \S|Error response from daemon: ")
_CONFIG = matches(
    r"\bCreateContainerConfigError\b|(?:secrets?|configmaps?|serviceaccounts?) \"[^\"]{1,200}\" not found"
    r"|couldn't find key .{1,100} in (?:Secret|ConfigMap)"
)
_MOUNT = matches(
    r"\b(?:FailedMount|FailedAttachVolume|FailedMapVolume)\b|Unable to attach or mount volumes"
    r"|MountVolume\.\w{1,30} failed|AttachVolume\.\w{1,30} failed|Multi-Attach error for volume",
    without=("not registered",),  # the kubelet writes this after the pod has failed
)
_EVICTED = matches(
    rf"{_ROW}Evicted\b",
    r"^\s*Reason: +Evicted\b|\bEvicted\b.{0,80}(?:kubelet|low on resource)|The node was low on resource"
    r"|[Pp]od was evicted|ephemeral local storage usage exceeds|Usage of EmptyDir volume .{1,200} exceeds"
    r"|The node had condition: \[|TaintManagerEviction|Preempted by (?:a )?pod|Preempted to accommodate a (?:higher priority )?workload|DeletionByTaintManager",
)
_PROBE = matches(
    r"failed (?:liveness|startup) probe, will be restarted|(?:Liveness|Startup) probe failed"
)
_UNPLACED = matches(
    r"\bFailedScheduling\b|\b[0-9]{1,6}/[0-9]{1,6} nodes are available: .{0,200}(?:Insufficient|didn't|had )"
    r"|pod didn't trigger scale-up"
)
_REFUSED = matches(
    r"\bUnexpectedAdmissionError\b|Pod was rejected: |\b(?:SMTAlignment|TopologyAffinity)Error\b"
    r"|^\s*Reason: +(?:OutOf[\w./-]{1,60}|NodeAffinity|NodePorts|AppArmor|PodOSNotSupported)$"
    r"|\bOutOf(?:cpu|memory|pods|nvidia\.com/\w{1,40}|amd\.com/gpu|habana\.ai/gaudi)\b"
    r"|Predicate \w{1,60} failed|requested number of devices unavailable|Node didn't have enough resource"
)
_SHUTDOWN = matches(
    r"in response to imminent node shutdown|^\s*Reason: +(?:NodeShutdown|Shutdown|NodeLost)$"
    r"|Pod was active on the node when the node (?:was|is) shutdown|Node is shutting down"
    r"|\b(?:Preempt(?:ScheduledEvent|ion notice)|TerminateScheduled|SpotInterruption|NodeShutdown)\b"
    r"|[Nn]ode is (?:going to be|being) (?:terminated|preempted|shut down)"
)
_DEADLINE = matches(
    r"^\s*Reason: +DeadlineExceeded\b|\bDeadlineExceeded\b.{0,120}\b(?:job-controller|kubelet|active)\b|longer than (?:the )?specified deadline"
)
_SUCCEEDED = matches(r"^Status: +Succeeded$")
_PLACED = matches(r"Successfully assigned|^Node: +(?!<none>)\S")
_DESCRIBE = (
    "Read its events: `kubectl describe pod POD`, `kubectl get events --sort-by=.lastTimestamp`."
)


@dataclass(frozen=True, slots=True)
class _Report:
    """A line from the pod's description or the kubelet, its confidence, and a possible doubt."""

    line: str
    confidence: Confidence
    doubt: str = ""

    def conclude(self, reason: str, summary: str, *steps: str) -> Finding:
        speaks_for = (f"Kubernetes reports {quote(self.line)}.",)
        against = (self.doubt,) if self.doubt else ()
        return Finding(reason, summary, self.confidence, speaks_for, against, (*steps, _DESCRIBE))


def _find(case: Case, sign: Sign) -> _Report | None:
    """Return the last line that matches a sign; None without a match or if the pod succeeded."""
    pod = case.evidence.pod
    if _has(case, _SUCCEEDED):
        return None
    if pod is not None:
        line = next((line for line in reversed(pod) if sign.search(line)), None)
        if line is not None:
            return _Report(line, "high")
    match = find_notice(case, sign)
    if match is None or match.confidence == "low":
        return None
    return _Report(match.text, match.confidence)


def _ran(case: Case) -> bool:
    """Return whether the pod's container was started at least once."""
    return case.evidence.pod is not None and case.evidence.state is not None


def _runs(case: Case) -> bool:
    """Return whether the pod's container is running, which means that no event has ended it."""
    return case.evidence.pod is not None and not case.has_ended


def _has(case: Case, sign: Sign) -> bool:
    return any(sign.search(line) for line in case.evidence.pod or ())


def detect_oom(case: Case) -> Finding | None:
    """Detect a pod's container that the kernel killed at its memory limit."""
    found = _find(case, _OOM)
    if found is None:
        return None
    state = case.evidence.state
    if _runs(case) and (state is None or state.status != "running"):
        return None
    if _runs(case):
        found = replace(found, confidence="low", doubt="It was started again since and runs.")
    limit = next((each[1] for line in case.evidence.pod or () if (each := _MEMORY.match(line))), "")
    return found.conclude(
        "oom-cgroup",
        f"The kernel killed the pod's container at its memory limit{f' of {limit}' if limit else ''}.",
        "Raise `resources.limits.memory` of the container, and `requests.memory` with it.",
        "Reduce the data loader workers (`num_workers`) and `prefetch_factor`; files in /dev/shm and in"
        " an `emptyDir` with `medium: Memory` count towards the limit.",
    )


_MEMORY = re.compile(r"\s+memory: +(\w{1,20})")


def _detect_evicted(case: Case) -> Finding | None:
    found = _find(case, _EVICTED)
    if found is None or _runs(case):
        return None
    texts = " ".join(line for line in (*(case.evidence.pod or ()), found.line) if "low on" in line)
    short = next(
        (word for word in ("ephemeral-storage", "memory", "inodes", "pids") if word in texts), ""
    )
    if (volume := _EMPTY_DIR.search(found.line)) is not None:
        return _conclude_volume(found, *volume.groups())
    return found.conclude(
        "pod-evicted",
        f"The pod was evicted{f': its node was short of {short}' if short else ''}.",
        "Request what it uses, so that it is placed where there is room:"
        " `resources.requests.memory`, `resources.requests.ephemeral-storage`.",
        "Write checkpoints and caches to a volume, not into the container: `HF_HOME`, `TMPDIR`.",
    )


def _conclude_volume(found: _Report, name: str, limit: str) -> Finding:
    """Return the finding about a pod with a volume that exceeded its size limit."""
    return found.conclude(
        "pod-evicted",
        f"The pod was evicted: its volume `{name}` grew above its size limit of {limit}.",
        f"Raise `emptyDir.sizeLimit` of the volume `{name}` above {limit}; with `medium: Memory` its files"
        " count towards the memory limit of the containers too.",
        "Write less into it: fewer data loader workers (`num_workers`) where it is /dev/shm, else caches"
        " and checkpoints on a volume of their own (`HF_HOME`, `TMPDIR`).",
    )


_EMPTY_DIR = re.compile(
    r"Usage of EmptyDir volume \W?([\w.-]{1,100})\W{1,3}exceeds the limit \W?(\w{1,20})"
)


def _detect_refused(case: Case) -> Finding | None:
    found = _find(case, _REFUSED)
    if found is None or _ran(case):
        return None
    return found.conclude(
        "pod-admission",
        "The node refused the pod, which had been assigned to it: it had less free than the scheduler"
        " believed, as after a GPU failed.",
        "Look for cards that are no longer offered: `kubectl describe node NODE | grep -A8 Allocatable`,"
        " and `nvidia-smi` and the device plugin's log there.",
        "Delete the failed pod, which is not tried again by itself: `kubectl delete pod POD`.",
    )


def detect_deadline(case: Case) -> Finding | None:
    """Detect a pod, or the pod of a job, that reached its deadline."""
    found = _find(case, _DEADLINE) if case.evidence.pod is not None else None
    if found is None or _runs(case):
        return None
    return found.conclude(
        "time-limit",
        "Kubernetes ended the pod at its deadline.",
        "Raise `activeDeadlineSeconds` of the job or the pod, or remove it.",
        "Save checkpoints regularly and resume from the last one.",
    )


def detect_shutdown(case: Case) -> Finding | None:
    """Detect a pod that ended because its node was shut down."""
    found = _find(case, _SHUTDOWN)
    if found is None or _runs(case):
        return None
    return found.conclude(
        "host-shutdown",
        "The node was shut down, rebooted or taken back by the cloud while the pod ran.",
        "Save checkpoints regularly and on SIGTERM, and let the job start again: `backoffLimit`,"
        " `restartPolicy: OnFailure`.",
        "Use nodes that are not taken back for runs that cannot resume: `nodeSelector`, `tolerations`.",
    )


def _detect_probe(case: Case) -> Finding | None:
    found = _find(case, _PROBE)
    if found is None or _runs(case) or _has(case, _OOM):
        return None
    return found.conclude(
        "pod-liveness",
        "The kubelet killed the container because its liveness probe failed.",
        "Give it time: `livenessProbe.timeoutSeconds: 10`, `failureThreshold: 6`, and a `startupProbe`"
        " while the model loads.",
        "Or remove the `livenessProbe`: a training job ends by itself when it fails.",
    )


def _detect_image(case: Case) -> Finding | None:
    found = _find(case, _IMAGE)
    if found is None or _ran(case):
        return None
    full = _find(case, _NODE_FULL)
    if full is not None:
        return full.conclude(
            "image-pull",
            "The image could not be pulled: the disk of the node is full.",
            "Free room on the node: `df -h /var/lib/containerd`, `crictl rmi --prune`, old logs and"
            " `emptyDir` volumes; or give it a bigger disk.",
            "Use a smaller image, or another node: `kubectl cordon NODE`, then delete the pod.",
        )
    return (_find(case, _WHY_NOT_PULLED) or found).conclude(
        "image-pull",
        "The image could not be pulled: wrong name or tag, no credentials, or no way to the registry.",
        "Pull it by hand: `docker pull IMAGE`; an image that was only built on one machine must be"
        " pushed: `docker push IMAGE`.",
        "Give the credentials: `docker login REGISTRY`; for a pod `imagePullSecrets`"
        " (`kubectl create secret docker-registry`).",
    )


def _detect_config(case: Case) -> Finding | None:
    found = _find(case, _CONFIG)
    if found is None or _ran(case):
        return None
    return found.conclude(
        "pod-config",
        "The pod names a secret, a config map or a key that does not exist; its container was never"
        " created.",
        "List them in the pod's namespace: `kubectl get secrets,configmaps -n NAMESPACE`.",
        "Create it, or correct the name in `env`, `envFrom` or `volumes`.",
    )


def _detect_mount(case: Case) -> Finding | None:
    found = _find(case, _MOUNT)
    if found is None or _ran(case):
        return None
    return found.conclude(
        "pod-mount",
        "A volume of the pod could not be attached or mounted; its container was never created.",
        "Check the claim: `kubectl get pvc,pv`, `kubectl get volumeattachments`; a volume `ReadWriteOnce`"
        " can be at one node only.",
        "Check the file system's server from the node, and the kubelet's log: `journalctl -u kubelet`.",
    )


def _detect_unplaced(case: Case) -> Finding | None:
    found = _find(case, _UNPLACED)
    if found is None or _has(case, _PLACED) or _ran(case):
        return None
    return found.conclude(
        "pod-unschedulable",
        "No node can take the pod, so it never started.",
        "Compare its requests with what the nodes offer: `kubectl describe nodes | grep -A8 Allocatable`;"
        " `nvidia.com/gpu` is missing where the device plugin does not run.",
        "Check `nodeSelector`, `affinity` and the nodes' taints: `kubectl get nodes -o"
        " custom-columns=NAME:.metadata.name,TAINTS:.spec.taints`.",
    )


_LOOPS = matches(r"^ {4,8}Reason: +CrashLoopBackOff$")


def _detect_loop(case: Case) -> Finding | None:
    if (found := container_faults.LOOP.detect(case)) is not None:
        return found
    looping = _find(case, _LOOPS) if case.evidence.pod is not None else None
    if looping is None or case.evidence.state is not None:
        return None
    return looping.conclude(
        "crash-loop",
        "The pod's container ends again and again, and the kubelet waits longer before each start.",
        "Read the log of its last start: `kubectl logs POD --previous`.",
    )


# The cause `crash-loop` for a container whose last exit is unknown.
LOOP = replace(
    container_faults.LOOP,
    signs=f"{container_faults.LOOP.signs[:-1]}; or `CrashLoopBackOff` of a pod whose last end is not known.",
    detect=_detect_loop,
)

CAUSES: tuple[Cause, ...] = (
    Cause(
        "pod-unschedulable",
        "No node can take the pod",
        "An event `FailedScheduling`, and none of an assignment to a node.",
        "No node has the GPUs, memory or labels that the pod requests, or has them free.",
        ("Compare requests and nodes: `kubectl describe nodes`.",),
        "high",
        _detect_unplaced,
    ),
    Cause(
        "pod-config",
        "A secret or config map is missing",
        "`CreateContainerConfigError`, or an event `secret … not found`.",
        "The pod names a secret, a config map or a key that its namespace does not have.",
        ("List them: `kubectl get secrets,configmaps -n NAMESPACE`.",),
        "high",
        _detect_config,
    ),
    Cause(
        "pod-mount",
        "A volume of the pod could not be mounted",
        "An event `FailedMount` or `FailedAttachVolume`, and no start of the container.",
        "The volume is held by another node, does not exist, or its server does not answer.",
        ("Check the claim: `kubectl get pvc,pv`, `kubectl get volumeattachments`.",),
        "high",
        _detect_mount,
    ),
    Cause(
        "image-pull",
        "The image could not be pulled",
        "`ErrImagePull`, `ImagePullBackOff`, `pull access denied`, `manifest unknown`.",
        "The name or tag is wrong, the registry's credentials are missing, or it cannot be reached.",
        (
            "Pull it by hand: `docker pull IMAGE`.",
            "Give credentials: `imagePullSecrets`, `docker login`.",
        ),
        "high",
        _detect_image,
    ),
    Cause(
        "pod-admission",
        "The node refused the pod",
        "`UnexpectedAdmissionError`, `OutOfcpu` or `Pod was rejected` after the pod was assigned.",
        "The node has fewer healthy devices, or less CPU or memory, than the scheduler believed.",
        ("Compare `kubectl describe node NODE` with what the device plugin reports.",),
        "high",
        _detect_refused,
    ),
    Cause(
        "pod-evicted",
        "The pod was evicted",
        "`Reason: Evicted`, `The node was low on resource`.",
        "The node was short of memory, disk, inodes or processes, or a pod of higher priority came.",
        (
            "Request what it uses: `resources.requests.memory`, `resources.requests.ephemeral-storage`.",
        ),
        "high",
        _detect_evicted,
    ),
    Cause(
        "pod-liveness",
        "Killed by its liveness probe",
        "An event `failed liveness probe, will be restarted`.",
        "The process was busy, or still loading, when the probe's time was over.",
        ("Extend `livenessProbe.timeoutSeconds` and `failureThreshold`, or use a `startupProbe`.",),
        "high",
        _detect_probe,
    ),
)
