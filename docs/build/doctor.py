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

`trainvitals doctor` checks the requirements of a training run, and for each problem shows why it matters and the command that fixes it.
It takes less than 5 s, even without a network or with a hanging driver, and requires neither the exporter nor root.

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
| `--checks` | all | runs only these checks, by name or subject, separated by commas; without names it lists them |
| `--all` | off | shows why a check does not apply |
| `--json` | off | writes JSON |
| `--python` | see [below](#how-the-checks-work) | the Python interpreter used for training |
| `--requirements` | none | a requirements file that its packages must satisfy; repeatable |
| `--checkpoints` | the current directory | the directory of checkpoints; it need not exist |
| `--checkpoint-size` | none | the size of a checkpoint, as `14GB`: there must be space for two |
| `--port` | none | a port that the run needs; repeatable. `$MASTER_PORT` and those of the stack are always checked |
| `--reach` | none | a HOST:PORT that must be reachable; repeatable |
| `--need` | none | a variable that must be set, such as `HF_TOKEN`; repeatable |
| `--containers.engine` | `DOCKER_HOST`, else the first socket found | the container engine: `unix:///PATH`, `tcp://HOST:PORT`, or `none` |

The exit code is 0 without a problem, even if there are warnings; 1 with a problem; 2 if the command cannot run.

- `problem`: a run fails, or may fail at any time.
- `warning`: a run works, but slower than it could, or may fail later.
- `ok`, and `n/a` (in JSON `not applicable`): there is nothing to check; `--all` shows why.

`--json` has `status` (the worst of all), `seconds`, `problems`, `warnings`, and `checks`, the worst first: each with `name`, `subject`, `status`, `what`, `why`, `mend` (a command for a shell, or empty), `advice` (what goes with it), `details` (a line for each thing examined) and `seconds`.


| variable | meaning |
| --- | --- |
| `VIRTUAL_ENV`, `CONDA_PREFIX` | the Python interpreter used for training, without `--python` |
| `TRAINVITALS_RUN_DIR` | the run directory, in which the run that was last seen is looked up |
| `CUDA_VISIBLE_DEVICES` | the GPUs of the run: they must exist and be free |
| `CUDA_HOME`, `PATH`, `LD_LIBRARY_PATH` | the location of the CUDA toolkit, and of a cuDNN other than PyTorch's own |
| `MASTER_ADDR`, `MASTER_PORT` | a host name that must resolve, a port that must be free |
| `HF_TOKEN`, `HUGGING_FACE_HUB_TOKEN`, `HF_TOKEN_PATH`, `HF_HOME`, `XDG_CACHE_HOME` | the token for Hugging Face, or the location of its file |
| `WANDB_API_KEY`, `NETRC` | the key for Weights & Biases, or the location of its file |
| `GH_TOKEN`, `GITHUB_TOKEN` | the token for GitHub |
| `HF_ENDPOINT`, `WANDB_BASE_URL`, `GITHUB_API_URL` | other addresses of these services |
| `HF_HUB_OFFLINE`, `WANDB_DISABLED`, `WANDB_MODE` | the run is offline, so no server is contacted |
| `DOCKER_HOST` | the container engine, without `--containers.engine` |
| `TRAINVITALS_THRESHOLDS_FILE` | the thresholds for disks and memory, without those of the stack |
| `KUBERNETES_SERVICE_HOST` | this is a container, like `/.dockerenv` and `/run/.containerenv` |
| `NO_COLOR`, `TERM` | no colours if the first has any value or the second is `dumb` |


## How the checks work

- Nothing is changed. In the directory of checkpoints, an unnamed temporary file of 4 KiB is written, because quotas cannot be detected otherwise.
- Accelerators are read by the exporter's own readers, in processes that can hang, crash and be killed.
- The check `python` names the interpreter that is examined, and why it is taken for that of the run. Without `--python` it is that of the activated environment; if none is, or only the one in which `trainvitals` is installed, that of the run that was last seen, while that run lives, is yours and is not in a container; otherwise the one that runs this command.
  Run files contain no paths, so a run that has ended is only compared: a warning says if it had another version of its framework than the interpreter has.
- Neither PyTorch nor any other package is imported: the interpreter is run only for its version and its paths, and the rest is read from files.
  Versions come from `torch/version.py` and the packages' metadata, and the GPU architectures that PyTorch supports from `libtorch_python.so`, which is also the source of `torch.cuda.get_arch_list()`.
- A driver may be older than the CUDA version if it supports the same major version: CUDA 11 needs 450.80.02, CUDA 12 needs 525.60.13, CUDA 13 needs 580.65.06. Programs built with a CUDA toolkit of a newer minor version than the driver's run only if they contain kernels for the GPU.
- All checks run in parallel. A check that exceeds its deadline is reported and does not delay the others.
- A token is sent only to its issuer and never printed; redirects are not followed. Requests are tried up to three times after temporary errors.
- A port of the stack that is used by the stack itself is reported as ok.
- Names, versions and answers from outside are shown without control characters, and likely secrets are masked.


## Verdicts of alerts

These checks show the verdict of alerts, by the same thresholds: a critical one is a problem, a warning is a warning.
Everything else that checks report concerns a run that is about to start, and no alert has it.

{alerts}


## Checks

Checks with a * are part of `--quick`.
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
