"""Writes `docs/doctor.md`: the checks of `trainvitals doctor`, from the checks themselves."""
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

`trainvitals doctor` looks at everything that a run needs and tells what is wrong, why that matters, and the command that mends it.
It takes less than 5 s, also with the network down or a driver that hangs, and needs neither the exporter nor root.

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
                             why: the driver wakes the GPU for each program anew: seconds at each
                                  start, and settings such as power limits are forgotten
                             $ sudo nvidia-smi -pm 1
✓ ok      shared-memory      /dev/shm has 31.2 GiB, 31.2 GiB of it free
- n/a      not applicable here (--all says why): gaudi-driver, gaudi-pytorch
```

| flag | default | does |
| --- | --- | --- |
| `--quick` | off | accelerators, containers, disks and network alone, in less than a second |
| `--checks` | all | makes these checks alone, by name or subject, with commas between; without names it lists them |
| `--all` | off | says of each check that does not apply why that is |
| `--json` | off | for programs |
| `--python` | that of `$VIRTUAL_ENV` or `$CONDA_PREFIX`, or the one that runs this | the Python that trains |
| `--requirements` | none | a file that its packages must meet, as pip reads it; repeatable |
| `--checkpoints` | this folder | where checkpoints go; it need not exist |
| `--checkpoint-size` | none | how large one is, as `14GB`: there must be room for two |
| `--port` | none | a port that the run needs; repeatable. `$MASTER_PORT` and those of the stack are looked at anyway |
| `--reach` | none | a HOST:PORT to which a connection must be possible; repeatable |
| `--need` | none | a variable that must be set, such as `HF_TOKEN`; repeatable |
| `--engine` | this machine's | the container engine, as `unix:///PATH`, or `none` |

Exit code 0: no problem, though there may be warnings; 1: a problem; 2: it cannot run.

- `problem`: a run fails by it, or is in danger.
- `warning`: a run works, and worse than it could, or may fail later.
- `ok`, and `n/a` (in JSON `not applicable`): there is nothing to check; `--all` says why.

`--json` has `status` (the worst of all), `seconds`, `problems`, `warnings`, and `checks`, the worst first: each with `name`, `subject`, `status`, `what`, `why`, `mend` (a command for a shell, or empty), `advice` (what goes with it) and `seconds`.


| variable | says |
| --- | --- |
| `VIRTUAL_ENV`, `CONDA_PREFIX` | which Python trains, without `--python` |
| `CUDA_VISIBLE_DEVICES` | which GPUs the run will see: it must name those that are there, and they must be free |
| `CUDA_HOME`, `PATH`, `LD_LIBRARY_PATH` | where the CUDA toolkit is, and a cuDNN that is not PyTorch's own |
| `MASTER_ADDR`, `MASTER_PORT` | a name that must be known, a port that must be free |
| `HF_TOKEN`, `HUGGING_FACE_HUB_TOKEN`, `HF_TOKEN_PATH`, `HF_HOME`, `XDG_CACHE_HOME` | the token for Hugging Face, or where its file is |
| `WANDB_API_KEY`, `NETRC` | the key for Weights & Biases, or where its file is |
| `GH_TOKEN`, `GITHUB_TOKEN` | the token for GitHub |
| `HF_ENDPOINT`, `WANDB_BASE_URL`, `GITHUB_API_URL` | another address of who gave them out |
| `HF_HUB_OFFLINE`, `WANDB_DISABLED`, `WANDB_MODE` | that the run stays offline, so that nobody is asked |
| `DOCKER_HOST` | the container engine, without `--engine` |
| `KUBERNETES_SERVICE_HOST` | that this is a container, as `/.dockerenv` and `/run/.containerenv` do |
| `NO_COLOR`, `TERM` | no colours, with any value of the first and `dumb` in the second |


## How it looks

- Nothing is changed. Where checkpoints go, 4 KiB are written to a file without a name and are gone again: nothing else tells of quotas.
- Accelerators are read by the exporter's own readers, in processes that can hang, crash and be killed.
- PyTorch is not imported, nor is anything else of the Python that trains: that Python is asked for its version and its paths, and the rest is read from files.
  Versions come from `torch/version.py` and the packages' metadata, and the GPU architectures that PyTorch has kernels for from `libtorch_python.so`, where `torch.cuda.get_arch_list()` has them from.
- A driver that is older than a CUDA is fine as long as it is of the same major version or newer: CUDA 11 needs 450.80.02, CUDA 12 needs 525.60.13, CUDA 13 needs 580.65.06.
- All checks are made beside each other. One that is late is told as such and holds up none.
- A token is shown to its issuer alone and never printed; no redirection is followed. What passes by itself is tried three times.
- A port of the stack that the stack itself holds is fine.
- What comes from outside (names, versions, answers) is shown without control characters, and what looks like a secret is masked.


## What it looks at

Those with a * are in `--quick`.
"""


def write_page() -> str:
    """Write the whole document."""
    groups = groupby(CHECKS, attrgetter("subject"))
    parts = [_write_group(subject, checks) for subject, checks in groups]
    return "\n\n".join([HEAD.rstrip(), *parts]) + "\n"


def _write_group(subject: str, checks: Iterator[Check]) -> str:
    rows = [
        "| check | complains of | why it matters |",
        "| --- | --- | --- |",
        *map(_write_row, checks),
    ]
    return "\n".join([f"### {subject[0].upper()}{subject[1:]}", "", *rows])


def _write_row(check: Check) -> str:
    star = " *" if check.is_quick else ""
    return f"| `{check.name}`{star} | {check.finds} | {check.why} |"


def main() -> None:
    """Write the document to its place."""
    PAGE.write_text(write_page(), encoding="utf-8")


if __name__ == "__main__":
    main()
