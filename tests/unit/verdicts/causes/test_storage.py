"""Errors of disks, files and checkpoints, and similar messages with other causes."""

from __future__ import annotations

import pytest

from tests.support.deaths import reasons_of, tell
from tests.unit.verdicts.causes.evidences import death
from trainvitals.sources.containers.evidence import Disk, Host, Settings
from trainvitals.verdicts.causes.judge import judge

GIB = 1 << 30


def traceback(error, place="/app/train.py"):
    """Return a traceback that ends with this error."""
    return (
        "Traceback (most recent call last):",
        f'  File "{place}", line 3, in main',
        "    f()",
        error,
    )


@pytest.mark.parametrize(
    ("error", "place"),
    [
        (
            (
                "RuntimeError: unable to allocate shared memory(shm) for file </torch_7_2680235855_0>:"
                " No space left on device (28)"
            ),
            "/app/train.py",
        ),
        ("OSError: [Errno 28] No space left on device: '/dev/shm/cache'", "/app/train.py"),
        ("RuntimeError: shared memory is full: No space left on device", "/app/train.py"),
        (
            "OSError: [Errno 28] No space left on device",
            "/usr/local/lib/python3.11/multiprocessing/synchronize.py",
        ),
        (
            "OSError: [Errno 28] No space left on device",
            "/usr/local/lib/python3.11/multiprocessing/shared_memory.py",
        ),
    ],
)
def test_a_full_shared_memory_is_no_full_disk(error, place):
    """`No space left on device` in shared memory is not reported as a full disk."""
    assert "disk-full" not in reasons_of(judge(death(1, log=traceback(error, place))))


@pytest.mark.parametrize(
    "error",
    [
        "OSError: [Errno 28] No space left on device: '/ckpt/torch_model_9.bin'",
        "RuntimeError: [enforce fail at inline_container.cc:672] . unexpected pos 576 vs 534",
        (
            "RuntimeError: [enforce fail at inline_container.cc:603] . PytorchStreamWriter failed writing"
            " file data/12: file write failed"
        ),
        "OSError: [Errno 122] Disk quota exceeded: '/home/me/last.pt'",
    ],
)
def test_a_full_disk_has_many_words(error):
    """A full disk is recognised in torch.save's errors and in a quota's message."""
    verdict = judge(death(1, log=traceback(error)))
    assert (verdict.reason, verdict.finding.confidence) == ("disk-full", "high")


def test_the_fullest_mount_of_the_path_is_asked():
    """The advised `df` names the host directory of the longest mount of the path."""
    evidence = death(
        1,
        log=traceback("OSError: [Errno 28] No space left on device: '/out/ckpt/last.pt'"),
        settings=Settings(mounts=(("/srv/out", "/out"), ("/mnt/fast/ckpt", "/out/ckpt"))),
        host=Host(0, disks=(Disk("/", GIB, 9 * GIB), Disk("/mnt/fast", 0, 100 * GIB))),
    )
    text = tell(judge(evidence).finding)
    assert "`df -h /mnt/fast/ckpt`" in text
    assert "/mnt/fast had 0 B of 100 GiB free" in text


def test_a_disk_with_room_makes_it_less_sure():
    """If the disk had free space, the confidence is medium and the report suggests a quota."""
    evidence = death(
        1,
        log=traceback("OSError: [Errno 28] No space left on device: '/out/last.pt'"),
        settings=Settings(mounts=(("/srv/out", "/out"),)),
        host=Host(0, disks=(Disk("/srv", 50 * GIB, 100 * GIB, 9_000_000),)),
    )
    finding = judge(evidence).finding
    assert (finding.reason, finding.confidence) == ("disk-full", "medium")
    assert any("a quota" in doubt for doubt in finding.speaks_against)


def test_pruning_everything_is_no_first_step():
    """The advice mentions `docker system prune` only as a command to avoid."""
    steps = judge(
        death(1, log=traceback("OSError: [Errno 28] No space left on device"))
    ).finding.steps
    assert "system prune" not in steps[0]
    assert all("Avoid `docker system prune" in step for step in steps if "system prune" in step)


def test_another_end_of_a_file_is_no_broken_checkpoint():
    """An `EOFError` is a corrupt checkpoint only if torch's serialization raised it."""
    assert judge(death(1, log=traceback("EOFError"))).reason == "exception"
    place = "/usr/local/lib/python3.11/site-packages/torch/serialization.py"
    assert judge(death(1, log=traceback("EOFError", place))).reason == "ckpt-corrupt"


def test_a_refused_key_is_no_refused_file():
    """`Permission denied` for an SSH key is not a file permission error."""
    log = ("git@example.org: Permission denied (publickey).", "fatal: could not read")
    assert "permission" not in reasons_of(judge(death(128, log=log)))


@pytest.mark.parametrize("head", ["IUse%", "IUti%", "IUso%", "IBen%"])
def test_df_shows_the_inodes_in_every_language(head):
    """A full inode table in the output of `df -i` is recognised in several languages."""
    log = (
        *traceback("OSError: [Errno 28] No space left on device: '/mnt/w/feats/7e.npy'"),
        "Sys. de fichiers Taille Utilisé Dispo Uti% Monté sur",
        "/dev/md127         3,5T    412G  3,1T  12% /mnt/w",
        f"Sys. de fichiers Inœuds IUtil. ILibre {head} Monté sur",
        "/dev/md127         2,2M   2,2M      0  100% /mnt/w",
    )
    assert judge(death(1, log=log)).reason == "inodes-full"
    assert judge(death(1, log=log[:-2])).reason == "disk-full"
