"""Containers that could not be started: the engine says why in `State.Error`, and no `die` comes."""

from __future__ import annotations

import re

from trainvitals.causes.case import Case
from trainvitals.causes.figures import write_option, write_size
from trainvitals.causes.verdict import Cause, Confidence, Finding

_NEVER_RAN = frozenset({"created", "initialized", "configured", "exited", "dead", "stopped"})
_LONGEST_QUOTE = 400
_NO_COMMAND, _NO_PERMISSION = 127, 126
_LEAST_LIMIT_BYTES = 64 * 1024**2
_LAST_LINES = 5

_GPU_TOOLKIT = re.compile(
    r'could not select device driver "[^"]*" with capabilities: \[\[.*gpu'
    r'|nvidia-container-runtime(?:-hook)?"?: (?:executable file not found|no such file)'
)
_CUDA = re.compile(r"requirement error: unsatisfied condition: (cuda\s*[<>=]+\s*[\d.]+)")
_NVIDIA = re.compile(
    r"nvidia-container-cli: (?:initialization error|detection error|ldcache error)"
    r"|Failed to initialize NVML|failed to initialize NVML"
)
_GPU_DEVICE = re.compile(
    r"nvidia-container-cli: device error|unresolvable CDI devices? ([\w./=-]+)"
)
_DEVICE = re.compile(r'error gathering device information while adding custom device "([^"]*)"')
_COMMAND = re.compile(
    r'exec:? "?([^":]*)"?: (?:executable file not found|stat [^:]*: no such file|no such file)'
)
_NOT_FOUND = re.compile(r"([\w./-]+): (?:command )?not found$|exec: ([\w./-]+): not found$")
_PERMISSION = re.compile(r'exec:? "?([^":]*)"?: permission denied')
_DENIED = re.compile(r"([\w./-]+): (?:Permission denied|cannot execute)")
_FORMAT = re.compile(r"exec format error|[Ee]xec format error|cannot execute binary file")
_MOUNT = re.compile(
    r'error mounting "([^"]*)" to rootfs at "([^"]*)"|bind source path does not exist: ([^\s:]+)'
    r"|[Aa]re you trying to mount a directory|invalid mount config"
)
_LIMIT = re.compile(
    r"cannot start a stopped process|cannot start a container that has stopped"
    r"|container init was OOM-killed"
)
_LOG_DRIVER = re.compile(r"failed to initialize logging driver: ?([^\n]*)")
_RLIMIT = re.compile(r"error setting rlimits?(?: type (\d+))?")
_NETWORK = re.compile(
    r"failed to create endpoint|failed to set up container networking|could not find bridge"
    r"|network [\w.-]+ not found|driver failed programming external connectivity"
)
_PORT = re.compile(r"port is already allocated|address already in use", re.IGNORECASE)
_KNOWN = (
    _GPU_TOOLKIT,
    _CUDA,
    _NVIDIA,
    _GPU_DEVICE,
    _DEVICE,
    _COMMAND,
    _PERMISSION,
    _FORMAT,
    _MOUNT,
    _LIMIT,
    _LOG_DRIVER,
    _RLIMIT,
    _NETWORK,
    _PORT,  # told with the programs that find a port in use
)


def read_start_error(case: Case) -> str:
    """Give the engine's reason why it could not be started; empty where it could."""
    state = case.evidence.state
    return state.error if state is not None and state.status in _NEVER_RAN else ""


def _conclude(
    case: Case,
    reason: str,
    pattern: re.Pattern[str],
    summary: str,
    *steps: str,
) -> Finding | None:
    error = read_start_error(case)
    if not error or pattern.search(error) is None:
        return None
    return _write(case, reason, summary, steps)


def _write(
    case: Case, reason: str, summary: str, steps: tuple[str, ...], confidence: Confidence = "high"
) -> Finding:
    error = read_start_error(case)
    code = case.evidence.state.exit_code if case.evidence.state is not None else None
    told = [f"The engine says `{error[:_LONGEST_QUOTE]}`."] if error else []
    if case.was_never_started:
        told.append(f"Its state is `created` with exit code {code}: it never ran.")
    return Finding(reason, summary, confidence, tuple(told), (), steps)


def _look_gpu_toolkit(case: Case) -> Finding | None:
    return _conclude(
        case,
        "start-gpu-toolkit",
        _GPU_TOOLKIT,
        "It asks for GPUs, and the engine knows no driver for them.",
        "Install the NVIDIA Container Toolkit (package `nvidia-container-toolkit`).",
        "`sudo nvidia-ctk runtime configure --runtime=docker`, then `sudo systemctl restart docker`.",
        "See that it works: `docker run --rm --gpus all ubuntu nvidia-smi`.",
        "Docker from a snap does not see the toolkit: `snap list docker`.",
    )


def _look_cuda(case: Case) -> Finding | None:
    match = _CUDA.search(read_start_error(case))
    wanted = f" ({match[1].replace(' ', '')})" if match else ""
    return _conclude(
        case,
        "start-cuda-too-new",
        _CUDA,
        f"The image needs a newer NVIDIA driver than the host has{wanted}.",
        "See what the host has: `nvidia-smi` shows its driver and the CUDA version it can do.",
        "Install a newer driver, or use an image with an older CUDA.",
        "`NVIDIA_DISABLE_REQUIRE=1` only skips the check; it helps with CUDA's forward"
        " compatibility alone.",
    )


def _look_nvidia(case: Case) -> Finding | None:
    return _conclude(
        case,
        "start-nvidia-init",
        _NVIDIA,
        "NVIDIA's driver does not answer on the host: not loaded, or upgraded without a reboot.",
        "Run `nvidia-smi` on the host: it must work there first.",
        "Load the driver (`sudo modprobe nvidia`); after an upgrade reboot.",
        "Look why it does not load: `sudo dmesg | grep -i nvrm`, `dkms status`.",
    )


def _look_gpu_device(case: Case) -> Finding | None:
    return _conclude(
        case,
        "start-gpu-device",
        _GPU_DEVICE,
        "It asks for a GPU that the host does not have.",
        "List those that are there: `nvidia-smi -L`; a missing one fell off the bus or is in MIG mode.",
        "Correct `--gpus device=…`, `NVIDIA_VISIBLE_DEVICES` or `device_ids` in the Compose file.",
        "With CDI write the list anew: `sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`.",
    )


def _look_device(case: Case) -> Finding | None:
    match = _DEVICE.search(read_start_error(case))
    device = match[1] if match else ""
    return _conclude(
        case,
        "start-device",
        _DEVICE,
        f"The host has no device `{device}`, which it asks for.",
        f"Look on the host: `ls -l {device}`; the driver may not be loaded (`lsmod`).",
        "Correct `--device`, or `devices` in the Compose file.",
    )


def _look_command(case: Case) -> Finding | None:
    error = read_start_error(case)
    if _GPU_TOOLKIT.search(error):
        return None
    if error and (match := _COMMAND.search(error)):
        return _write(case, "start-cmd", f"There is no `{match[1]}` in it.", _advise_command(case))
    if error or case.exit_code != _NO_COMMAND:
        return None
    said = _find_last(case, _NOT_FOUND)
    if said is None:
        return None
    finding = _write(
        case, "start-cmd", f"Its shell did not find `{said[1] or said[2]}`.", _advise_command(case)
    )
    return _add(finding, f"Exit code 127, and the log says `{said[0]}`.")


def _advise_command(case: Case) -> tuple[str, ...]:
    command = " ".join(case.evidence.settings.command) if case.evidence.settings else ""
    had = f"; it was `{command[:_LONGEST_QUOTE]}`" if command else ""
    image = case.evidence.image or "IMAGE"
    return (
        f"Correct `ENTRYPOINT`, `CMD` or the command behind the image's name{had}.",
        (
            f"Look what is there: `{case.program} run --rm -it --entrypoint sh {image}`, then"
            " `command -v NAME` and `echo $PATH`."
        ),
    )


def _find_last(case: Case, pattern: re.Pattern[str]) -> re.Match[str] | None:
    found = (pattern.search(line) for line in reversed(case.lines[-_LAST_LINES:]))
    return next((match for match in found if match), None)


def _add(finding: Finding, *told: str) -> Finding:
    return Finding(
        finding.reason,
        finding.summary,
        finding.confidence,
        (*finding.speaks_for, *told),
        finding.speaks_against,
        finding.steps,
    )


def _look_permission(case: Case) -> Finding | None:
    error = read_start_error(case)
    if error and (match := _PERMISSION.search(error)):
        return _write(
            case, "start-perm", f"`{match[1]}` may not be executed.", _advise_permission(match[1])
        )
    if error or case.exit_code != _NO_PERMISSION:
        return None
    said = _find_last(case, _DENIED)
    if said is None:
        return None
    finding = _write(
        case, "start-perm", f"`{said[1]}` may not be executed.", _advise_permission(said[1])
    )
    return _add(finding, f"Exit code 126, and the log says `{said[0]}`.")


def _advise_permission(path: str) -> tuple[str, ...]:
    return (
        f"Make it executable: `chmod +x {path}` before the image is built (`COPY --chmod=755`).",
        "Look at its first line: the interpreter named there must exist (`head -1`).",
        "A mount with `noexec` forbids it too: `findmnt -T PATH`.",
    )


def _look_format(case: Case) -> Finding | None:
    error = read_start_error(case)
    said = None if error else _find_last(case, _FORMAT)
    if not (_FORMAT.search(error) or (said and case.exit_code in {1, _NO_PERMISSION, 255})):
        return None
    finding = _write(
        case,
        "start-format",
        "The host cannot execute this program: another architecture, or a script without `#!`.",
        (
            (
                f"Compare `{case.program} image inspect -f '{{{{.Architecture}}}}'"
                f" {case.evidence.image or 'IMAGE'}` with `uname -m`; pull or build with `--platform`."
            ),
            "Give a script a first line such as `#!/bin/sh`.",
        ),
    )
    return finding if said is None else _add(finding, f"The log says `{said.string.strip()}`.")


def _look_mount(case: Case) -> Finding | None:
    match = _MOUNT.search(read_start_error(case))
    source = (match[1] or match[3] or "") if match else ""
    named = f" `{source}`" if source else ""
    return _conclude(
        case,
        "start-mount",
        _MOUNT,
        f"The host's{named or ' path'} cannot be mounted: it is missing, or a folder instead of a"
        " file.",
        f"Look on the host: `ls -ld {source or 'PATH'}`. Where a path was missing, the engine has made"
        " an empty folder of that name: remove it.",
        "Make the file or folder first, then start it; `--mount type=bind,…` says at once that it is"
        " missing, where `-v` makes a folder.",
    )


def _look_limit(case: Case) -> Finding | None:
    is_runc = any(kill.task.startswith("runc:[") for kill in case.list_own_kills())
    error = read_start_error(case)
    if not (_LIMIT.search(error) or (is_runc and (error or case.was_never_started))):
        return None
    limit = case.memory_limit_bytes
    named = f" of {write_size(limit)}" if limit else ""
    finding = _write(
        case,
        "start-limit-too-small",
        f"Its memory limit{named} is less than starting it takes.",
        (
            (
                f"Raise it: `--memory {write_option(_LEAST_LIMIT_BYTES)}` at least, and for Python with"
                " torch `--memory 2g`."
            ),
        ),
    )
    if not is_runc:
        return finding
    return _add(finding, "Kernel log: the OOM killer ended `runc:[2:INIT]`, which starts it.")


def _look_log_driver(case: Case) -> Finding | None:
    match = _LOG_DRIVER.search(read_start_error(case))
    why = f": {match[1].strip()}" if match and match[1].strip() else ""
    return _conclude(
        case,
        "start-logdriver",
        _LOG_DRIVER,
        f"The engine cannot set up its log{why[:_LONGEST_QUOTE]}.",
        "See what is wrong: `trainvitals docker-logging`; `--apply` writes options that work.",
        "The options of this one are in `docker inspect -f '{{json .HostConfig.LogConfig}}'"
        f" {case.evidence.name}`; after a change it must be made anew.",
    )


def _look_rlimit(case: Case) -> Finding | None:
    return _conclude(
        case,
        "start-rlimit",
        _RLIMIT,
        "The engine may not raise a limit that it asks for with `--ulimit`.",
        "Leave `--ulimit memlock=-1` (`ulimits` in the Compose file) out, or ask for less.",
        "A rootless engine, or one in a container, needs CAP_SYS_RESOURCE or a higher limit of its"
        " own: `LimitMEMLOCK=infinity` in its unit.",
    )


def _look_network(case: Case) -> Finding | None:
    if _PORT.search(read_start_error(case)):
        return None
    return _conclude(
        case,
        "start-network",
        _NETWORK,
        "The engine cannot join it to its network.",
        "See what there is: `docker network ls`; make it anew with `docker compose up -d`.",
        "A firewall that was reloaded has thrown out the engine's rules: `sudo systemctl restart"
        " docker`.",
        "A training on one machine needs none: `--network host`.",
    )


def _look_other(case: Case) -> Finding | None:
    error = read_start_error(case)
    if not error or any(pattern.search(error) for pattern in _KNOWN):
        return None
    if not case.was_never_started and case.was_end_watched:
        return None
    return _write(
        case,
        "start-other",
        "The engine could not start it.",
        (
            (
                "Read what the engine says, above, and around that time:"
                f" `journalctl -u {case.program} --since -1h`."
            ),
            f"Try it by hand: `{case.program} start -a {case.evidence.name}`.",
        ),
        "medium",
    )


CAUSES: tuple[Cause, ...] = (
    Cause(
        "start-gpu-toolkit",
        "No NVIDIA Container Toolkit",
        "never started, 128, `could not select device driver … with capabilities: [[gpu]]`",
        "The NVIDIA Container Toolkit is not installed or not known to the engine; Docker from a snap"
        " cannot use it.",
        (
            "Install `nvidia-container-toolkit`.",
            (
                "`sudo nvidia-ctk runtime configure --runtime=docker`, then"
                " `sudo systemctl restart docker`."
            ),
        ),
        "high",
        _look_gpu_toolkit,
    ),
    Cause(
        "start-cuda-too-new",
        "The image's CUDA needs a newer driver",
        "never started, `requirement error: unsatisfied condition: cuda>=…`",
        "The host's driver is older than the image wants.",
        ("Install a newer driver, or use an image with an older CUDA; `nvidia-smi` tells.",),
        "high",
        _look_cuda,
    ),
    Cause(
        "start-nvidia-init",
        "NVIDIA's driver does not answer",
        "never started, `nvidia-container-cli: initialization error`",
        "The driver is not loaded, or was upgraded and the old module is still in the kernel.",
        ("Run `nvidia-smi` on the host; `sudo modprobe nvidia`, or reboot.",),
        "high",
        _look_nvidia,
    ),
    Cause(
        "start-gpu-device",
        "No such GPU",
        "never started, `nvidia-container-cli: device error` or `unresolvable CDI devices`",
        "It asks for a GPU by an index or UUID that the host does not have (any more).",
        ("List them with `nvidia-smi -L`; correct `--gpus device=…`.",),
        "high",
        _look_gpu_device,
    ),
    Cause(
        "start-device",
        "No such device",
        "never started, `error gathering device information while adding custom device`",
        "A device file that it asks for is not there: its driver is not loaded, or the name is wrong.",
        ("Look with `ls -l /dev`, and correct `--device`.",),
        "high",
        _look_device,
    ),
    Cause(
        "start-cmd",
        "Command not found",
        "never started, 127, `executable file not found`; or 127 and `not found` at the end of the log",
        "The command, or PATH, is wrong.",
        ("Correct `ENTRYPOINT` or `CMD`; look with `docker run --rm -it --entrypoint sh IMAGE`.",),
        "high",
        _look_command,
    ),
    Cause(
        "start-perm",
        "Command not executable",
        "never started, 126, `permission denied`; or 126 and `Permission denied` at the end of the log",
        "It has no execute permission, names an interpreter that is missing, or lies on a mount with"
        " noexec.",
        ("`chmod +x`, look at its first line, `findmnt -T PATH`.",),
        "high",
        _look_permission,
    ),
    Cause(
        "start-format",
        "Wrong architecture",
        "`exec format error`",
        "The image is for another CPU architecture, or a script has no first line with `#!`.",
        ("Compare `docker image inspect -f '{{.Architecture}}' IMAGE` with `uname -m`.",),
        "high",
        _look_format,
    ),
    Cause(
        "start-mount",
        "A mount that cannot be made",
        "never started, `error mounting`, `not a directory`, `bind source path does not exist`",
        "The path is missing on the host; for `-v` the engine made an empty folder where a file was"
        " meant.",
        ("Make the file or folder first; use `--mount type=bind,…`, which says so at once.",),
        "high",
        _look_mount,
    ),
    Cause(
        "start-limit-too-small",
        "Memory limit too small to start",
        "never started, `cannot start a stopped process` or `container init was OOM-killed`; the"
        " kernel log has `task=runc:[2:INIT]`",
        "The limit is below what the runtime itself needs.",
        ("Raise it: `--memory 64m` at least.",),
        "high",
        _look_limit,
    ),
    Cause(
        "start-logdriver",
        "Log options that do not work",
        "never started, `failed to initialize logging driver`",
        "daemon.json, or the container, has log options that do not go together; the engine starts"
        " with them, and no new container does.",
        ("`trainvitals docker-logging` shows what is wrong, `--apply` puts it right.",),
        "high",
        _look_log_driver,
    ),
    Cause(
        "start-rlimit",
        "A limit that may not be raised",
        "never started, `error setting rlimit`",
        "`--ulimit memlock=-1` asks for more than the engine may give.",
        ("Leave `--ulimit` out, or give the engine CAP_SYS_RESOURCE.",),
        "high",
        _look_rlimit,
    ),
    Cause(
        "start-network",
        "No network for it",
        "never started, `failed to create endpoint`, `could not find bridge`, `network … not found`",
        "Its network is gone, or the engine's firewall rules are.",
        ("`docker network ls`, `sudo systemctl restart docker`, or `--network host`.",),
        "high",
        _look_network,
    ),
    Cause(
        "start-other",
        "The engine could not start it",
        "never started, and an error that none of the others knows",
        "The engine's own words say it.",
        ("`docker start -a NAME`, `journalctl -u docker --since -1h`.",),
        "medium",
        _look_other,
    ),
)
