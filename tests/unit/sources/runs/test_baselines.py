"""Tests for the file with the expected values of runs, and of the entry that applies to a run."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.waiting import wait_until
from tests.unit.sources.runs.rows import write_record
from trainvitals.errors import ConfigurationError
from trainvitals.runfile import Record
from trainvitals.sources.runs.baselines import (
    Baseline,
    add_expected,
    find_expected,
    read_baselines,
)
from trainvitals.sources.runs.reading import Expected, RankReading, RunReading
from trainvitals.sources.runs.source import TrainingOptions, TrainingSource

ROOT = Path(__file__).parents[4]
GB = 10**9


def read(directory: Path, text: str) -> tuple[Baseline, ...]:
    """Return the entries of a baselines file with this text."""
    path = directory / "baselines.yml"
    path.write_text(text, encoding="utf-8")
    return read_baselines(path)


def test_the_example_of_the_page_is_read(tmp_path: Path):
    """The example in `docs/training.md` is parsed into the values that the page describes."""
    page = (ROOT / "docs/training.md").read_text(encoding="utf-8")
    (text,) = [part for part in page.split("```yaml\n") if part.startswith("baselines:")]
    first, second = read(tmp_path, text.split("```")[0])
    assert first == Baseline("swinv2-360*", 20.0, 7 * GB)
    assert 50 / 20 == 2.5
    assert second.memory_bytes_by_batch == {16: 6_500_000_000, 32: 11 * GB}


def test_what_is_left_out_is_not_expected(tmp_path: Path):
    """A value that an entry leaves out is not expected of the run."""
    text = "baselines: [{run: a, memory: 512}, {run: b, epochs_per_hour: 0.5}]"
    first, second = read(tmp_path, text)
    assert find_expected((first,), "a", None) == Expected(None, 512)
    assert find_expected((second,), "b", None) == Expected(7200.0, None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "baselines: there is none; write at least one, or leave out --baselines.file"),
        ("baselines: []", "baselines: there is none"),
        ("base: 1", "base: this key is not known here"),
        ("baselines: {run: a}", "baselines: this is not a list"),
        ("baselines: [a]", "baselines[0]: this is no mapping"),
        ("baselines: [{memory: 7GB}]", "baselines[0].run: it is missing"),
        ("baselines: [{run: a}]", "baselines[0].run: nothing is expected of it"),
        ("baselines: [{run: a, memory: 7GB}, {run: 7, memory: 1}]", "baselines[1].run: this is"),
        ("baselines: [{run: a, memory: much}]", "baselines[0].memory: much is not a size"),
        ("baselines: [{run: a, memory: -1}]", "baselines[0].memory: -1 is not a size"),
        ("baselines: [{run: a, memory: true}]", "baselines[0].memory: True is not a size"),
        (
            "baselines: [{run: a, epochs_per_hour: 0}]",
            "epochs_per_hour: this is not a number above 0",
        ),
        ("baselines: [{run: a, epochs_per_hour: .nan}]", "epochs_per_hour: this is not a number"),
        ("baselines: [{run: a, epochs_per_hour: .inf}]", "epochs_per_hour: this is not a number"),
        ("baselines: [{run: a, epochs_per_hour: fast}]", "epochs_per_hour: this is not a number"),
        ("baselines: [{run: a, pace: 3}]", "baselines[0].pace: this key is not known here"),
        (
            "baselines: [{run: a, memory_by_batch_size: {all: 7GB}}]",
            "memory_by_batch_size: all is not a batch size; write a whole number above 0",
        ),
        (
            "baselines: [{run: a, memory_by_batch_size: {16: x}}]",
            "memory_by_batch_size: x is not a size",
        ),
    ],
)
def test_a_wrong_entry_is_refused(tmp_path: Path, text: str, message: str):
    """The error about an invalid entry names the file and the problem in one line."""
    with pytest.raises(ConfigurationError) as caught:
        read(tmp_path, text)
    said = str(caught.value)
    assert message in said
    assert said.startswith(str(tmp_path / "baselines.yml"))
    assert "\n" not in said


def test_a_missing_file_is_an_error(tmp_path: Path):
    """The error about a missing baselines file names the flag `--baselines.file`."""
    with pytest.raises(ConfigurationError, match=r"No such file .*; correct --baselines\.file"):
        read_baselines(tmp_path / "none.yml")


_KEYS = ["baselines", "run", "epochs_per_hour", "memory", "memory_by_batch_size"]


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(_KEYS) | st.integers(), inner, max_size=4)
        ),
        max_leaves=10,
    )
)
def test_any_file_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, content: object):
    """A file with any content is read, or is refused with a one-line `ConfigurationError`."""
    import yaml  # noqa: PLC0415 - as the product does

    path = tmp_path_factory.getbasetemp() / "any.yml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    said = ""
    try:
        for each in read_baselines(path):
            find_expected((each,), each.run, 16.0)
    except ConfigurationError as error:
        said = str(error)
    assert "\n" not in said


BASELINES = (
    Baseline("bert-large", memory_bytes=40 * GB),
    Baseline("bert-*", 4.5, 9 * GB, {16: 7 * GB, 32: 12 * GB}),
    Baseline("*/train", 2.0),
)


@pytest.mark.parametrize(
    ("run", "batch", "expected"),
    [
        ("bert-large", 16.0, Expected(None, 40 * GB)),
        ("bert-base", 16.0, Expected(800.0, 7 * GB)),
        ("bert-base", 31.7, Expected(800.0, 12 * GB)),  # the last batch of an epoch is shorter
        ("bert-base", 24.0, Expected(800.0, 9 * GB)),
        ("bert-base", None, Expected(800.0, 9 * GB)),
        ("unet/logs/train", None, Expected(1800.0, None)),
        ("BERT-base", None, None),
        ("gpt", 16.0, None),
    ],
)
def test_the_first_entry_that_matches_counts(
    run: str, batch: float | None, expected: Expected | None
):
    """The first entry that matches the whole name applies, with its memory for the batch size."""
    assert find_expected(BASELINES, run, batch) == expected


def rank(record: Record, number: int = 0) -> RankReading:
    """Return a rank of a run."""
    return RankReading("bert-base", str(number), "client", record)


@pytest.mark.parametrize(
    ("records", "memory"),
    [
        ([write_record(steps=100, samples=1600)], 7 * GB),
        (
            [write_record(steps=100, samples=1600), write_record(steps=100, samples=3200)],
            12 * GB,
        ),
        ([write_record(steps=0, samples=0)], 9 * GB),
        ([write_record()], 9 * GB),
    ],
)
def test_the_batch_size_is_that_of_the_largest_rank(records: list[Record], memory: int):
    """The batch size is the highest number of samples per step of any rank, if it is known."""
    ranks = [rank(record, number) for number, record in enumerate(records)]
    (run,) = add_expected(BASELINES, [RunReading("bert-base", "client")], ranks)
    assert run.expected == Expected(800.0, memory)


def test_a_run_of_a_log_has_what_is_expected_of_it(tmp_path: Path):
    """A run that is read from a log has the expected values of the entry that matches its name."""
    (tmp_path / "train.log").write_text("Epoch 1: val_loss: 0.5\n", encoding="utf-8")
    (tmp_path / "baselines.yml").write_text(
        "baselines: [{run: tra*, epochs_per_hour: 3600}]", encoding="utf-8"
    )
    options = TrainingOptions(
        tmp_path / "runs",
        globs=(str(tmp_path / "*.log"),),
        baselines=tmp_path / "baselines.yml",
    )
    source = TrainingSource(options)
    try:
        wait_until(lambda: source.read(float("inf")).runs)
        (run,) = source.read(float("inf")).runs
    finally:
        source.close()
    assert (run.run, run.expected) == ("train", Expected(1.0, None))
