"""The run, rank and world size of a process, read from its launcher's environment."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.training.launch import Launch, clean_name, read_launch

SOURCE_ROOT = Path(__file__).parents[3] / "exporter"
NEW_YEAR = 1767225600.0  # 2026-01-01 00:00:00 UTC


def ranks_of(**environ: str) -> tuple[int, int, int, int]:
    """Return the rank, local rank, node rank and world size that an environment defines."""
    launch = read_launch(run="r", environ=environ)
    return launch.rank, launch.local_rank, launch.node_rank, launch.world_size


def name_of(script: str = "train.py", **environ: str) -> str:
    """Return the name of the run of a single process that started at New Year."""
    return read_launch(environ=environ, script=script, started=NEW_YEAR).run


@pytest.fixture
def procfs(tmp_path: Path) -> Path:
    """Return a `/proc` of a machine that booted at New Year, with a launcher an hour later."""
    (tmp_path / "stat").write_text("cpu 1 2 3\nbtime 1767225600\nprocesses 9\n")
    ticks = os.sysconf("SC_CLK_TCK")
    for name, seconds in (("77", 3600), ("self", 3725)):
        fields = ["S", *["0"] * 18, str(seconds * ticks), *["0"] * 30]
        (tmp_path / name).mkdir()
        (tmp_path / name / "stat").write_text(f"{name} (torch) run) {' '.join(fields)}\n")
    return tmp_path


def test_a_process_alone_is_rank_zero_of_a_run_named_by_script_and_time():
    """Without a launcher, a process is rank 0 of a run named after its script and start time."""
    launch = read_launch(environ={}, script="/home/me/train_unet.py", started=NEW_YEAR)
    assert launch == Launch("train_unet-20260101T000000Z", 0, -1, -1, 0, 0)


def test_the_caller_knows_best():
    """Explicit arguments take precedence over the environment."""
    launch = read_launch(
        run="mine",
        rank=5,
        world_size=16,
        attempt=2,
        environ={"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "TRAINVITALS_RUN": "theirs"},
    )
    assert launch == Launch("mine", 5, 1, -1, 16, 2)


def test_torchrun():
    """RANK and the other torchrun variables take precedence over those of a Slurm task."""
    environ = {
        "RANK": "5",
        "LOCAL_RANK": "1",
        "GROUP_RANK": "2",
        "WORLD_SIZE": "8",
        "SLURM_PROCID": "2",
        "SLURM_LOCALID": "0",
        "SLURM_STEP_NUM_TASKS": "4",
    }
    assert ranks_of(**environ) == (5, 1, 2, 8)


def test_srun():
    """If srun started the process, the ranks come from Slurm's variables."""
    environ = {
        "SLURM_PROCID": "9",
        "SLURM_LOCALID": "1",
        "SLURM_NODEID": "4",
        "SLURM_STEP_NUM_TASKS": "16",
    }
    assert ranks_of(**environ) == (9, 1, 4, 16)


def test_a_batch_script_is_one_process():
    """A process that srun did not start has no world size, whatever the size of the Slurm job."""
    environ = {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0", "SLURM_NTASKS": "8"}
    assert ranks_of(**environ) == (0, 0, 0, 0)


def test_mpirun_in_a_batch_script():
    """A process of mpirun does not take the batch script's inherited SLURM_PROCID as its rank."""
    environ = {
        "OMPI_COMM_WORLD_RANK": "3",
        "OMPI_COMM_WORLD_LOCAL_RANK": "3",
        "OMPI_COMM_WORLD_SIZE": "4",
        "SLURM_PROCID": "0",
        "SLURM_NODEID": "0",
    }
    assert ranks_of(**environ) == (3, 3, -1, 4)


def test_srun_with_pmix():
    """If PMIX_RANK agrees with Slurm's rank, Slurm's variables supply the other numbers."""
    environ = {
        "PMIX_RANK": "6",
        "SLURM_PROCID": "6",
        "SLURM_LOCALID": "2",
        "SLURM_NODEID": "1",
        "SLURM_STEP_NUM_TASKS": "8",
    }
    assert ranks_of(**environ) == (6, 2, 1, 8)


def test_hydra_and_horovod():
    """The variables of Hydra and Horovod define the ranks as well."""
    assert ranks_of(PMI_RANK="2", MPI_LOCALRANKID="1", PMI_SIZE="4") == (2, 1, -1, 4)
    assert ranks_of(HOROVOD_RANK="1", HOROVOD_LOCAL_RANK="1", HOROVOD_SIZE="2") == (1, 1, -1, 2)


def test_lightning_starts_ranks_without_a_rank():
    """If Lightning sets no RANK, the rank is derived from the local rank."""
    assert ranks_of(LOCAL_RANK="2", NODE_RANK="0", WORLD_SIZE="4") == (2, 2, 0, 4)


@pytest.mark.parametrize("text", ["", "one", "-1", "1.0", "0x1", "²", "99999999999", "4294967296"])
def test_a_number_that_is_none_is_ignored(text: str):
    """An invalid number is ignored, and the next launcher's variable is used."""
    assert ranks_of(RANK=text, WORLD_SIZE=text, SLURM_PROCID="3") == (3, -1, -1, 0)


def test_restarts_of_all_launchers_add_up():
    """The attempt is the sum of torchrun's restarts and Slurm's requeues."""
    environ = {"TORCHELASTIC_RESTART_COUNT": "2", "SLURM_RESTART_COUNT": "1"}
    assert read_launch(run="r", environ=environ).attempt == 3


def test_the_most_telling_name_is_taken():
    """The run's name comes from the first of six variables that is set."""
    names = {
        "TRAINVITALS_RUN": "ours",
        "WANDB_RUN_ID": "wandb",
        "MLFLOW_RUN_ID": "mlflow",
        "SLURM_JOB_ID": "4711",
        "TORCHELASTIC_RUN_ID": "elastic",
        "POD_NAME": "pod",
    }
    seen = []
    while names:
        seen.append(name_of(**names))
        del names[next(iter(names))]
    assert seen == ["ours", "wandb", "mlflow", "4711", "elastic", "pod"]


def test_an_empty_name_is_none():
    """An empty or blank name is ignored."""
    assert name_of(TRAINVITALS_RUN=" ", WANDB_RUN_ID="abc") == "abc"
    assert read_launch(run="", environ={"WANDB_RUN_ID": "abc"}).run == "abc"


def test_a_task_of_a_slurm_array():
    """The run of an array task is named by the array's job id and the task id."""
    environ = {
        "SLURM_JOB_ID": "4720",
        "SLURM_ARRAY_JOB_ID": "4711",
        "SLURM_ARRAY_TASK_ID": "9",
    }
    assert name_of(**environ) == "4711_9"


@pytest.mark.parametrize(
    ("pod", "run"),
    [
        ("bert-master-0", "bert"),
        ("bert-worker-12", "bert"),
        ("bert-node-0-3-x7k2p", "bert"),
        ("bert-5d8f7", "bert-5d8f7"),
        ("notebook-0", "notebook-0"),
    ],
)
def test_the_pods_of_one_job_share_a_name(pod: str, run: str):
    """The suffix that an operator appends for each replica is removed from the pod's name."""
    assert name_of(HOSTNAME=pod, KUBERNETES_SERVICE_HOST="10.0.0.1") == run
    assert name_of(POD_NAME=pod) == run


def test_a_host_name_names_no_run():
    """Outside a pod, the host name is not used as the name of the run."""
    assert name_of(HOSTNAME="gpu-box") == "train-20260101T000000Z"


@pytest.mark.parametrize(
    ("script", "stem"),
    [
        ("/srv/app/train.py", "train"),
        ("/srv/app/finetune/__main__.py", "finetune"),
        ("-c", "c"),
        ("", "python"),
    ],
)
def test_the_script_names_the_run(script: str, stem: str):
    """The run's name has the script without folder and suffix, or the name of a `-m` package."""
    assert name_of(script) == f"{stem}-20260101T000000Z"


def test_ranks_of_torchrun_share_the_start_of_their_launcher(procfs: Path):
    """Without a rendezvous id, the launcher's start names the run, also after restarts."""
    runs = set()
    for rank, restarts in (("0", "0"), ("1", "0"), ("1", "2")):
        environ = {
            "RANK": rank,
            "LOCAL_RANK": rank,
            "WORLD_SIZE": "2",
            "LOCAL_WORLD_SIZE": "2",
            "GROUP_WORLD_SIZE": "1",
            "TORCHELASTIC_RUN_ID": "none",
            "TORCHELASTIC_RESTART_COUNT": restarts,
            "MASTER_ADDR": "localhost",
            "MASTER_PORT": f"2950{restarts}",
        }
        runs.add(read_launch(environ=environ, script="train.py", procfs=procfs, parent=77).run)
    assert runs == {"train-20260101T010000Z"}


def test_ranks_on_several_machines_share_the_address_of_the_first():
    """Ranks on several machines, which share no parent, name the run after the master's address."""
    environ = {
        "RANK": "9",
        "LOCAL_RANK": "1",
        "WORLD_SIZE": "16",
        "LOCAL_WORLD_SIZE": "8",
        "MASTER_ADDR": "gpu-01",
        "MASTER_PORT": "29500",
    }
    assert read_launch(environ=environ, script="train.py").run == "train-gpu-01-29500"


def test_the_first_rank_of_lightning_is_the_launcher(procfs: Path):
    """Lightning's first rank uses its own start time, and the other ranks use their parent's."""
    environ = {"LOCAL_RANK": "0", "NODE_RANK": "0", "WORLD_SIZE": "2", "MASTER_PORT": "40123"}
    launch = read_launch(environ=environ, script="fit.py", procfs=procfs, parent=77)
    assert launch.run == "fit-20260101T010205Z"
    environ["LOCAL_RANK"] = "1"
    launch = read_launch(environ=environ, script="fit.py", procfs=procfs, parent=77)
    assert launch.run == "fit-20260101T010000Z"


def test_the_first_of_forked_ranks_is_no_launcher(procfs: Path):
    """All ranks that Lightning forks in a notebook use the start time of their parent."""
    child = {"multiprocessing.process": SimpleNamespace(parent_process=lambda: "another process")}
    names = {
        read_launch(
            environ={"LOCAL_RANK": rank},
            world_size=2,
            script="train.py",
            procfs=procfs,
            parent=77,
            modules=child,
        ).run
        for rank in ("0", "1")
    }
    assert names == {"train-20260101T010000Z"}


def test_without_proc_each_rank_takes_its_own_time(tmp_path: Path):
    """Without `/proc`, a rank names the run after its own start time."""
    launch = read_launch(
        environ={"RANK": "1", "WORLD_SIZE": "2"},
        script="train.py",
        started=NEW_YEAR,
        procfs=tmp_path,
        parent=77,
    )
    assert launch.run == "train-20260101T000000Z"


@pytest.mark.skipif(sys.platform != "linux", reason="the launcher's start is read from /proc")
def test_real_ranks_agree_on_their_run():
    """Real processes of one launcher name the same run, after the launcher's start time."""
    code = (
        f"import sys, time; sys.path.insert(0, {str(SOURCE_ROOT)!r}); sys.argv = ['train.py']\n"
        "from trainvitals.training.launch import read_launch; print(read_launch().run)"
    )
    environ = {"RANK": "1", "WORLD_SIZE": "2", "PATH": os.environ["PATH"]}
    runs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**environ, "RANK": rank},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for rank in ("0", "1")
    }
    assert len(runs) == 1
    assert re.fullmatch(r"train-\d{8}T\d{6}Z\n", runs.pop())


def test_a_process_group_tells_where_the_environment_does_not():
    """Without launcher variables, rank and world size come from torch's process group."""
    group = SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: True,
        get_rank=lambda: 3,
        get_world_size=lambda: 4,
    )
    modules = {"torch": SimpleNamespace(distributed=group)}
    launch = read_launch(run="r", environ={}, modules=modules)
    assert (launch.rank, launch.world_size) == (3, 4)
    told = read_launch(run="r", environ={"RANK": "1", "WORLD_SIZE": "2"}, modules=modules)
    assert (told.rank, told.world_size) == (1, 2)
    group.is_initialized = lambda: False
    assert read_launch(run="r", environ={}, modules=modules).world_size == 0


def test_what_the_caller_gives_may_be_text():
    """Rank, world size and attempt may be given as text, and the run as a number."""
    launch = read_launch(run=7, rank="3", world_size="4", attempt="1", environ={})  # type: ignore[arg-type]
    assert launch == Launch("7", 3, -1, -1, 4, 1)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("  unet v2 ", "unet v2"),
        ("group/run", "group_run"),
        ("it`s", "it_s"),
        ("a\nb\x00c\x7f", "a_b_c_"),
        ("größe-π", "größe-π"),
        ("bad\udcff", "bad_"),
        ("x" * 80, "x" * 80),
        ("x" * 81, "x" * 71 + "~222c54c6"),
    ],
)
def test_names_are_made_printable(text: str, name: str):
    """Control characters, slashes and backticks are replaced, and a long name is cut."""
    assert clean_name(text) == name


@given(st.text(alphabet=st.characters(exclude_categories=())))
def test_every_name_is_fit_for_a_label_and_a_file(text: str):
    """Any text becomes a printable, short name that does not change when it is cleaned again."""
    name = clean_name(text)
    assert len(name.encode()) <= 80
    assert name.isprintable()
    assert "/" not in name
    assert clean_name(name) == name


def test_long_names_that_differ_at_the_end_stay_apart():
    """A cut name ends in a checksum of the whole name."""
    assert clean_name("run-" * 30 + "a") != clean_name("run-" * 30 + "b")
