"""Runs that write TensorBoard event files."""

from __future__ import annotations

import math
import os
import shutil
import time
from pathlib import Path

import pytest

from tests.unit.sources.runs import records
from trainvitals.sources.runs.eventfiles import EventFileSource
from trainvitals.sources.runs.scalars import FoundRun

FIRST = "events.out.tfevents.1700000000.host.1.0"
SECOND = "events.out.tfevents.1700000100.host.2.0"


class RescanningSource(EventFileSource):
    """An event file source that searches for files on every read, not every two seconds."""

    def read(self, deadline: float) -> tuple[FoundRun, ...]:
        """Read after a new search for files."""
        self._budget._next_search = -math.inf
        return super().read(deadline)


def make_source(*logdirs: Path, **rest: object) -> EventFileSource:
    """Return a source that searches for files on every read."""
    return RescanningSource(logdirs, **rest)


def read_all(source: EventFileSource) -> dict[str, FoundRun]:
    """Read without a deadline and return the runs by name."""
    return {run.run: run for run in source.read(math.inf)}


def count_descriptors() -> int:
    """Return the number of open file descriptors of this process."""
    return len(list(Path("/proc/self/fd").iterdir()))


def write_losses(path: Path, first: int, *losses: float) -> None:
    """Append a training loss for each step, one second apart."""
    steps = enumerate(losses, first)
    records.write(path, *((1000.0 + step, step, "train/loss", loss) for step, loss in steps))


def test_what_torch_writes_is_read(tmp_path: Path):
    """Scalars of torch's SummaryWriter are read in both styles; other summaries are ignored."""
    import torch  # noqa: PLC0415 - takes seconds
    from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 - takes seconds

    torch.set_num_threads(1)
    with SummaryWriter(str(tmp_path / "runs/one")) as writer:
        writer.add_text("note", "hello", 0)
        for step in range(1, 4):
            writer.add_scalar("Loss/train", 1 / step, step)
            writer.add_scalar("Loss/val", 2 / step, step, new_style=True)
            writer.add_histogram("weights", torch.arange(10.0), step)
        writer.add_scalar("IoU/val", 0.5, 3, double_precision=True, new_style=True)
        writer.add_scalar("lr", math.inf, 3)
    run = read_all(make_source(tmp_path / "runs"))["one"]
    assert run.source == "tensorboard"
    assert (run.step, run.steps_seen) == (3, 2)
    assert run.values["loss"] == pytest.approx(1 / 3)
    assert run.values["validation_loss"] == pytest.approx(2 / 3)
    assert run.values["learning_rate"] == math.inf
    assert run.metrics == {("IoU/val", "validation"): 0.5}
    assert (run.evaluations, run.evaluations_since_improvement) == (3, 0)
    assert abs(run.last_time - time.time()) < 60
    assert run.started_time is not None
    assert run.started_time <= run.last_time
    assert run.is_finished is None


@pytest.mark.filterwarnings("ignore")  # Lightning's warnings do not concern this test
def test_what_lightning_writes_is_read(tmp_path: Path):
    """Event files of Lightning's TensorBoardLogger are read, and their folders name the run."""
    from lightning.pytorch.loggers import TensorBoardLogger  # noqa: PLC0415 - takes seconds

    logger = TensorBoardLogger(str(tmp_path), name="net")
    for step in (49, 99):
        logger.log_metrics({"train_loss_step": 0.5, "lr-Adam": 0.01, "epoch": 0}, step)
    logger.log_metrics({"train_loss_epoch": 0.75, "val_loss": 0.25, "val_acc": 0.5, "epoch": 0}, 99)
    logger.finalize("success")
    run = read_all(make_source(tmp_path))["net/version_0"]
    assert (run.step, run.epoch, run.steps_seen) == (99, 0.0, 50)
    assert run.values["loss"] == 0.5
    assert run.values["learning_rate"] == pytest.approx(0.01)
    assert run.values["validation_loss"] == 0.25
    assert run.values["validation_accuracy"] == 0.5
    assert run.metrics == {("train_loss_epoch", "train"): 0.75}


def test_the_tags_of_hugging_face_are_known(tmp_path: Path):
    """The tags of Hugging Face's Trainer are recognised, and its last summary ends the run."""
    path = tmp_path / FIRST
    for step, tag, value in [
        (10, "train/loss", 1.5),
        (10, "train/grad_norm", math.nan),
        (10, "train/learning_rate", 0.5),
        (10, "train/epoch", 0.5),
        (20, "train/loss", 1.25),
        (20, "eval/loss", 1.0),
        (20, "eval/samples_per_second", 64.0),
    ]:
        records.write(path, (1000.0 + step, step, tag, value))
    source = make_source(tmp_path)
    run = read_all(source)[tmp_path.name]
    assert (run.step, run.epoch, run.is_finished) == (20, 0.5, None)
    values = dict(run.values)
    assert math.isnan(values.pop("gradient_norm"))
    assert values == {
        "loss": 1.25,
        "learning_rate": 0.5,
        "validation_loss": 1.0,
        "step_seconds": 1.0,
    }
    assert run.metrics == {("eval/samples_per_second", "validation"): 64.0}
    assert run.nonfinite == {"loss": 0, "gradient": 1, "evaluation": 0}
    records.write(path, (1021.0, 20, "train/train_loss", 1.375))
    records.write(path, (1021.0, 20, "train/train_runtime", 30.0))
    run = read_all(source)[tmp_path.name]
    assert run.values["loss"] == 1.25
    assert run.is_finished is True


def test_a_growing_file_is_followed(tmp_path: Path):
    """The next read returns appended records as soon as they are complete."""
    path = tmp_path / "run" / FIRST
    write_losses(path, 1, 0.5, 0.25)
    source = make_source(tmp_path)
    assert read_all(source)["run"].values["loss"] == 0.25
    assert read_all(source)["run"].steps_seen == 1
    whole = path.read_bytes()
    write_losses(path, 3, 0.125)
    more = path.read_bytes()
    path.write_bytes(more[:-5])
    assert read_all(source)["run"].step == 2
    assert source.complaint is None
    path.write_bytes(more)
    run = read_all(source)["run"]
    assert (run.step, run.steps_seen, run.last_time) == (3, 2, 1003.0)
    assert len(whole) < len(more)


def test_a_resumed_run_goes_on_in_its_new_file(tmp_path: Path):
    """After a resume, values not yet logged again are kept, and repeated steps count again."""
    write_losses(tmp_path / "run" / FIRST, 1, 0.5, 0.25)
    source = make_source(tmp_path)
    records.write(tmp_path / "run" / FIRST, (1002.0, 2, "val_loss", 0.75))
    assert read_all(source)["run"].step == 2
    write_losses(tmp_path / "run" / FIRST, 3, 0.5)
    write_losses(tmp_path / "run" / SECOND, 2, 0.25, 0.125)
    run = read_all(source)["run"]
    assert run.path == str(tmp_path / "run" / SECOND)
    assert (run.step, run.steps_seen) == (3, 3)
    assert run.values["loss"] == 0.125
    assert run.values["validation_loss"] == 0.75


def test_only_the_newest_file_of_a_folder_is_read(tmp_path: Path):
    """Only the newest event file of a folder, by the time in its name, is read."""
    write_losses(tmp_path / SECOND, 7, 0.25)
    write_losses(tmp_path / FIRST, 1, 0.5)
    (tmp_path / "events.out.tfevents.1800000000.host.profile-empty").touch()
    assert read_all(make_source(tmp_path))[tmp_path.name].step == 7


def test_a_file_that_shrank_is_read_anew(tmp_path: Path):
    """A replaced file that is shorter is read from the start, with counts from zero."""
    path = tmp_path / FIRST
    write_losses(path, 1, 0.5, 0.25, 0.125)
    source = make_source(tmp_path)
    assert read_all(source)[tmp_path.name].steps_seen == 2
    path.unlink()
    write_losses(path, 1, 0.75)
    run = read_all(source)[tmp_path.name]
    assert (run.step, run.steps_seen, run.values["loss"]) == (1, 0, 0.75)


def test_a_file_that_was_written_anew_past_the_offset_is_noticed(tmp_path: Path):
    """A file that was rewritten with other and longer content is read from the start."""
    path = tmp_path / FIRST
    write_losses(path, 1, 0.5, 0.25)
    source = make_source(tmp_path)
    read_all(source)
    other = tmp_path / "other"
    write_losses(other, 11, 0.5, 0.25, 0.125, 0.75)
    path.write_bytes(other.read_bytes())
    run = read_all(source)[tmp_path.name]
    assert (run.step, run.steps_seen) == (14, 3)


@pytest.mark.parametrize("data", [b"", b"\0", b"\0" * 12, b"garbage" * 100])
def test_a_file_without_records_is_no_run(tmp_path: Path, data: bytes):
    """A file without records is not reported as a run, and other runs are read."""
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / FIRST).write_bytes(data)
    write_losses(tmp_path / "good" / FIRST, 1, 0.5)
    assert set(read_all(make_source(tmp_path))) == {"good"}


def test_damage_is_a_complaint_until_it_is_gone(tmp_path: Path):
    """Records before damage are read, and a complaint names the file, the offset and a remedy."""
    path = tmp_path / FIRST
    write_losses(path, 1, 0.5)
    size = path.stat().st_size
    with path.open("ab") as file:
        file.write(bytes(64))
    source = make_source(tmp_path)
    assert read_all(source)[tmp_path.name].step == 1
    assert source.complaint == (
        f"{path} is damaged at byte {size}, so the rest is not read; "
        "restart its writer, or remove it"
    )
    os.truncate(path, size)
    write_losses(path, 2, 0.25)
    assert read_all(source)[tmp_path.name].step == 2
    assert source.complaint is None


def test_large_records_are_passed_over(tmp_path: Path):
    """Large records such as images are skipped, also if they arrive in two parts."""
    path = tmp_path / FIRST
    image = records.make_record(bytes(1_500_000))
    write_losses(path, 1, 0.5)
    with path.open("ab") as file:
        file.write(image[:-10])
    source = make_source(tmp_path)
    assert read_all(source)[tmp_path.name].step == 1
    with path.open("ab") as file:
        file.write(image[-10:])
    write_losses(path, 2, 0.25)
    assert read_all(source)[tmp_path.name].step == 2
    assert source.complaint is None


def test_a_record_longer_than_a_piece_is_read(tmp_path: Path):
    """A record that is longer than one read of 256 KiB is parsed."""
    values = [records.make_scalar(f"layer{n}/{'x' * 300}", 1.0) for n in range(1000)]
    values.append(records.make_scalar("train/loss", 0.5))
    data = records.make_record(records.make_event(1000.0, 5, *values))
    assert len(data) > 262_144
    (tmp_path / FIRST).write_bytes(data)
    write_losses(tmp_path / FIRST, 6, 0.25)
    run = read_all(make_source(tmp_path))[tmp_path.name]
    assert (run.step, run.values["loss"]) == (6, 0.25)
    assert len(run.metrics) == 64
    assert run.omitted == 936


def test_a_backlog_is_read_in_bounded_pieces(tmp_path: Path):
    """One read takes at most 16 MiB of a file, and later reads take the rest."""
    record = records.make_record(bytes(1_000_000))
    path = tmp_path / FIRST
    write_losses(path, 1, 0.5)
    with path.open("ab") as file:
        for _ in range(36):
            file.write(record)
    write_losses(path, 2, 0.25)
    still = time.monotonic()
    source = EventFileSource([tmp_path], monotonic=lambda: still)
    assert [source.read(math.inf)[0].step for _ in range(3)] == [1, 1, 2]


def test_the_deadline_ends_a_reading(tmp_path: Path):
    """After its deadline each read takes one piece of one run, so that all runs get a turn."""
    for number in range(3):
        write_losses(tmp_path / f"run{number}" / FIRST, 1, 0.5)
    source = EventFileSource([tmp_path])
    assert [len(source.read(-math.inf)) for _ in range(4)] == [1, 2, 3, 3]


def test_steps_of_several_kinds_are_distinguished(tmp_path: Path):
    """A tag that counts epochs does not move a run's step back, but its leading tag may."""
    path = tmp_path / FIRST
    records.write(path, (1000.0, 100, "train/loss", 0.5), (1001.0, 1, "val/loss", 0.5))
    source = make_source(tmp_path)
    assert read_all(source)[tmp_path.name].step == 100
    records.write(path, (1002.0, 200, "train/loss", 0.5), (1003.0, 2, "val/loss", 0.5))
    records.write(path, (1004.0, 150, "train/loss", 0.5), (1005.0, 160, "train/loss", 0.5))
    run = read_all(source)[tmp_path.name]
    assert (run.step, run.steps_seen, run.evaluations) == (160, 110, 2)


def test_the_halves_of_keras_are_one_run(tmp_path: Path):
    """The train and validation folders that Keras writes are one run with values of both."""
    records.write(tmp_path / "net/train" / FIRST, (1000.0, 1, "epoch_loss", 0.5))
    records.write(tmp_path / "net/train" / FIRST, (1000.0, 1, "epoch_accuracy", 0.75))
    records.write(tmp_path / "net/validation" / FIRST, (1001.0, 1, "epoch_loss", 0.25))
    runs = read_all(make_source(tmp_path))
    assert set(runs) == {"net"}
    assert runs["net"].values == {"loss": 0.5, "accuracy": 0.75, "validation_loss": 0.25}


def test_what_add_scalars_writes_beside_a_run_belongs_to_it(tmp_path: Path):
    """The folders that `add_scalars` writes beside a run's event file belong to the run."""
    records.write(tmp_path / "net" / FIRST, (1000.0, 1, "lr", 0.5))
    records.write(tmp_path / "net/loss_train" / FIRST, (1000.0, 1, "loss", 0.5))
    records.write(tmp_path / "net/loss_val" / FIRST, (1000.0, 1, "loss", 0.25))
    runs = read_all(make_source(tmp_path))
    assert runs["net"].values == {"learning_rate": 0.5, "loss": 0.5, "validation_loss": 0.25}
    assert set(runs) == {"net"}


def test_folders_of_a_run_are_bounded_and_few_stay_open(tmp_path: Path):
    """A run's own folder and its latest 63 others are read, and four files stay open."""
    write_losses(tmp_path / "run" / FIRST, 1, 0.5)
    os.utime(tmp_path / "run" / FIRST, (1, 1))
    for number in range(70):
        records.write(
            tmp_path / f"run/m{number}_val" / FIRST, (1000.0, 1, f"m{number}", float(number))
        )
    source = make_source(tmp_path, clock=lambda: 1000.0)
    before = count_descriptors()
    for _ in range(3):
        run = read_all(source)["run"]
    assert count_descriptors() - before == 4
    assert (run.values["loss"], len(run.metrics)) == (0.5, 63)
    assert source.omitted == 7
    source.close()


def test_a_run_called_test_stays_itself(tmp_path: Path):
    """A run in a folder called `test` keeps this name if it has no folder of another split."""
    write_losses(tmp_path / "test" / FIRST, 1, 0.5)
    write_losses(tmp_path / "other" / FIRST, 1, 0.5)
    assert set(read_all(make_source(tmp_path))) == {"test", "other"}


def test_runs_are_named_by_their_folders(tmp_path: Path):
    """A run is named by its path below the log directory, or more of it if two names are equal."""
    write_losses(tmp_path / "a/net/version_0" / FIRST, 1, 0.5)
    write_losses(tmp_path / "b/net/version_0" / FIRST, 1, 0.5)
    write_losses(tmp_path / "b" / FIRST, 1, 0.5)
    assert set(read_all(make_source(tmp_path / "a"))) == {"net/version_0"}
    both = make_source(tmp_path / "a", tmp_path / "b", tmp_path / "b/net")
    assert set(read_all(both)) == {"a/net/version_0", "b/net/version_0", "b"}


def test_a_run_keeps_its_name_when_another_appears(tmp_path: Path):
    """A run keeps its name when a run of the same name appears in another log directory."""
    write_losses(tmp_path / "a/net" / FIRST, 1, 0.5)
    source = make_source(tmp_path / "a", tmp_path / "b")
    assert set(read_all(source)) == {"net"}
    write_losses(tmp_path / "b/net" / FIRST, 1, 0.25)
    write_losses(tmp_path / "a/net2" / FIRST, 1, 0.25)
    runs = read_all(source)
    assert set(runs) == {"net", "net2", "b/net"}
    assert runs["net"].values["loss"] == 0.5


def test_the_latest_runs_are_followed(tmp_path: Path):
    """Runs over the limit are counted as omitted; runs older than a day are ignored."""
    now = time.time()
    for number in range(5):
        path = tmp_path / f"run{number}" / FIRST
        write_losses(path, 1, 0.5)
        os.utime(path, (now, now - (100_000 if number == 4 else number)))
    source = make_source(tmp_path)
    source.most_runs = 2
    assert set(read_all(source)) == {"run0", "run1"}
    assert source.omitted == 2
    shutil.rmtree(tmp_path / "run0")
    assert set(read_all(source)) == {"run1", "run2"}


def test_a_loop_of_links_is_not_entered(tmp_path: Path):
    """Symbolic links to folders are not followed, but the log directory itself may be one."""
    write_losses(tmp_path / "logs/run" / FIRST, 1, 0.5)
    (tmp_path / "logs/run/loop").symlink_to(tmp_path / "logs")
    (tmp_path / "link").symlink_to(tmp_path / "logs")
    assert set(read_all(make_source(tmp_path / "link"))) == {"run"}


def test_a_pipe_is_passed_over(tmp_path: Path):
    """A named pipe is skipped, because opening it would wait for a writer."""
    os.mkfifo(tmp_path / FIRST)
    source = make_source(tmp_path)
    assert source.read(math.inf) == ()
    assert source.complaint is None


def test_what_is_not_there_is_quiet(tmp_path: Path):
    """A log directory that does not exist yet, or no longer, is not a complaint."""
    source = make_source(tmp_path / "logs")
    assert source.read(math.inf) == ()
    assert source.complaint is None
    write_losses(tmp_path / "logs/run" / FIRST, 1, 0.5)
    assert set(read_all(source)) == {"run"}
    shutil.rmtree(tmp_path / "logs")
    assert source.read(math.inf) == ()
    assert source.complaint is None


def test_a_closed_source_may_be_read_again(tmp_path: Path):
    """Closing a source closes all its files, and it can be read again afterwards."""
    write_losses(tmp_path / FIRST, 1, 0.5)
    source = make_source(tmp_path)
    before = count_descriptors()
    read_all(source)
    source.close()
    assert count_descriptors() == before
    assert read_all(source)[tmp_path.name].step == 1
