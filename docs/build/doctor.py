"""Writes `docs/doctor.md`, the documentation of `trainvitals doctor`, from its checks."""
# ruff: noqa: INP001 - a script

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from trainvitals.doctor import CHECKS, Check

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/doctor.md"

HEAD = """\
# Before a run

<!-- Written by `make docs` from docs/build/doctor.py and exporter/trainvitals/doctor; change it there instead. -->

`trainvitals doctor` checks whether a machine meets the requirements of a training run.
For each problem, the command shows why the problem matters and, if possible, a command that fixes the problem.
`trainvitals doctor` takes less than 5 s, even without a network or with a hanging driver, and requires neither a running exporter nor root.

```console
$ trainvitals doctor
$ trainvitals doctor --python .venv/bin/python --requirements requirements.txt
$ trainvitals doctor --checkpoints /data/runs --checkpoint-size 14GB --port 29500 --reach gpu-07:29500
$ trainvitals doctor --quick                      # accelerators, containers, disks, network: 1 s
$ trainvitals doctor --json | jq -r '.checks[] | select(.status == "problem") | .mend'
```

```
✗ problem pytorch-driver     driver 470.57.02, PyTorch 2.6.0+cu124 with CUDA 12.4: the driver is too
                             old, it needs 525.60.13
                             why: CUDA says "The NVIDIA driver on your system is too old", and PyTorch
                                  sees no GPU
                             $ sudo apt-get install -y nvidia-driver-580-server && sudo reboot
! warning persistence-mode   off for GPU 0,1
                             why: the driver initialises the GPU again for each program: seconds at
                                  each start, and settings such as power limits are forgotten
                             $ sudo nvidia-smi -pm 1
✓ ok      accelerator-states  2 respond: NVIDIA H100 80GB HBM3
                              gpu0: memory 0.5 / 79.6 GiB, temperature 34 / 89 °C, links 18 of 18 up
                              gpu1: memory 0.5 / 79.6 GiB, temperature 35 / 89 °C, links 18 of 18 up
✓ ok      shared-memory      /dev/shm has 31.2 GiB, 31.2 GiB of it free
- n/a      not applicable here (--all shows why): gaudi-driver, gaudi-pytorch
```

| flag | default | does |
| --- | --- | --- |
| `--quick` | off | checks only accelerators, containers, disks and network, in less than a second |
| `--checks` | all | runs only the checks with these names or subjects, separated by commas; without a value, lists all checks |
| `--all` | off | shows why each check that is `n/a` does not apply |
| `--json` | off | writes JSON |
| `--python` | see [below](#how-the-checks-work) | the Python interpreter used for training |
| `--requirements` | none | a requirements file that the packages of the Python interpreter must satisfy; repeatable |
| `--checkpoints` | the current directory | the directory in which the run saves checkpoints; the directory need not exist |
| `--checkpoint-size` | none | the size of a checkpoint, such as `14GB`; there must be free space for two checkpoints |
| `--port` | none | a port that the run needs; repeatable. The port `$MASTER_PORT` and the ports of the stack are always checked |
| `--reach` | none | an address HOST:PORT that must accept connections; repeatable |
| `--need` | none | an environment variable that must be set, such as `HF_TOKEN`; repeatable |
| `--containers.engine` | `DOCKER_HOST`, otherwise the first socket that is found | the address of the container engine: `unix:///PATH`, `tcp://HOST:PORT`, or `none` |

The exit code is 0 if no check reports a problem, even if there are warnings; 1 if a check reports a problem; and 2 if the command cannot run.

- `problem`: a run fails, or may fail at any time.
- `warning`: a run works, but is slower than possible or may fail later.
- `ok`: the check found neither a problem nor a reason for a warning.
- `n/a` (in JSON `not applicable`): the check does not apply, for example because the machine has no such hardware; `--all` shows the reason.

The JSON document contains `status` (the worst status of all checks), `seconds` (the duration of all checks), `problems` and `warnings` (how many checks have this status), and `checks` (the results, the worst first).
Each result contains `name`, `subject`, `status`, `what` (the observed state), `why` (why the check matters), `mend` (a shell command, or an empty text), `advice` (a remedy in addition to the command or instead of it), `details` (one line for each item that was examined) and `seconds`.


| variable | meaning |
| --- | --- |
| `VIRTUAL_ENV`, `CONDA_PREFIX` | the environment of the Python interpreter used for training, if `--python` is not set |
| `TRAINVITALS_RUN_DIR` | the run directory, which is searched for the run that was last seen |
| `CUDA_VISIBLE_DEVICES` | the GPUs that the run uses; these GPUs must exist and be free |
| `CUDA_HOME`, `PATH`, `LD_LIBRARY_PATH` | the location of the CUDA toolkit, and of a cuDNN other than PyTorch's own |
| `MASTER_ADDR`, `MASTER_PORT` | a host name that must be resolvable, and a port that must be free |
| `HF_TOKEN`, `HUGGING_FACE_HUB_TOKEN`, `HF_TOKEN_PATH`, `HF_HOME`, `XDG_CACHE_HOME` | the token for Hugging Face, or the location of its file |
| `WANDB_API_KEY`, `NETRC` | the key for Weights & Biases, or the location of its file |
| `GH_TOKEN`, `GITHUB_TOKEN` | the token for GitHub |
| `HF_ENDPOINT`, `WANDB_BASE_URL`, `GITHUB_API_URL` | other addresses of these services |
| `HF_HUB_OFFLINE`, `WANDB_DISABLED`, `WANDB_MODE` | the run is offline, so no server is contacted |
| `DOCKER_HOST` | the container engine, if `--containers.engine` is not set |
| `TRAINVITALS_THRESHOLDS_FILE` | the file with the alert thresholds, which is used instead of the thresholds of the stack |
| `KUBERNETES_SERVICE_HOST` | if this variable is set, the command assumes that it runs in a container, as if `/.dockerenv` or `/run/.containerenv` exists |
| `NO_COLOR`, `TERM` | no colours are used if `NO_COLOR` is not empty or `TERM` is `dumb` |


## How the checks work

- The checks change nothing, with one exception: a temporary file of 4 KiB without a name is written in the directory of checkpoints, because only an actual write detects an exhausted quota.
- Accelerators are read by the exporter's own readers, which run in child processes. If a driver hangs or crashes, only the child process is affected, and it can be killed.
- The check `python` names the Python interpreter that is examined, and the reason why this interpreter was chosen.
  If `--python` is not set, the interpreter of the activated environment is examined, unless `trainvitals` itself is installed in this environment.
  Otherwise, the interpreter of the run that was last seen is examined, if this run is alive, belongs to you and is not in a container.
  Otherwise, the interpreter that runs `trainvitals doctor` is examined.
  Run files do not contain the path of the interpreter.
  If the interpreter of the run that was last seen is not known, for example because the run has ended, only versions are compared: a warning is shown if the run used another version of its framework than the version that is installed for the examined interpreter.
- Neither PyTorch nor any other installed package is imported. The interpreter is run only to obtain its version and its paths, and all other information is read from files.
  Versions are read from `torch/version.py` and the metadata of the packages.
  The GPU architectures that PyTorch supports are read from `libtorch_python.so`, which is also the source of `torch.cuda.get_arch_list()`.
- A driver may be older than the CUDA version of a program if the driver supports the same major version. CUDA 11 requires at least driver 450.80.02, CUDA 12 requires 525.60.13, and CUDA 13 requires 580.65.06. If a program was built with a CUDA toolkit whose minor version is newer than the driver's, the program runs only if it contains kernels for the GPU.
- All checks run in parallel. A check that exceeds the deadline is reported as not checked and does not delay the other checks.
- A token is sent only to its issuer, or to the address in the issuer's variable, such as `HF_ENDPOINT`. Tokens are not printed, and redirects are not followed. If a request fails temporarily, it is sent up to three times.
- If a port of the stack is used by the stack itself, the check reports `ok`.
- Control characters are removed from the output, and text that is likely to be a secret is masked.


## Verdicts of alerts

The following checks evaluate the conditions of alerts, with the same thresholds.
If the condition of a critical alert is true, the check reports a problem; if the condition of an alert with the severity warning is true, the check reports a warning.
All other results of checks concern a run that is about to start, and do not correspond to an alert.

{alerts}


## Checks

Checks that are marked with * are also run with `--quick`.
"""


def write_page() -> str:
    """Return the whole document."""
    groups = groupby(CHECKS, attrgetter("subject"))
    parts = [_write_group(subject, checks) for subject, checks in groups]
    head = HEAD.rstrip().replace("{alerts}", _write_alerts())
    return "\n\n".join([head, *parts]) + "\n"


def _write_alerts() -> str:
    rows = [
        f"| `{check.name}` | {', '.join(map(_link, check.alerts))} |"
        for check in CHECKS
        if check.alerts
    ]
    return "\n".join(["| check | alerts |", "| --- | --- |", *rows])


def _link(alert: str) -> str:
    return f"[{alert}](runbooks/{alert}.md)"


def _write_group(subject: str, checks: Iterator[Check]) -> str:
    rows = [
        "| check | reports | why it matters |",
        "| --- | --- | --- |",
        *map(_write_row, checks),
    ]
    return "\n".join([f"### {subject[0].upper()}{subject[1:]}", "", *rows])


def _write_row(check: Check) -> str:
    star = " *" if check.is_quick else ""
    return f"| `{check.name}`{star} | {check.reports} | {check.why} |"


def main() -> None:
    """Write `docs/doctor.md`."""
    PAGE.write_text(write_page(), encoding="utf-8")


if __name__ == "__main__":
    main()
