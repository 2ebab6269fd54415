"""`trainvitals plot`: reading of resource logs, and the drawn image."""

import gzip
import os
import struct
import subprocess
import sys
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainvitals.cli import main
from trainvitals.errors import ConfigurationError
from trainvitals.views.plot import plot
from trainvitals.views.plot.picture import PANELS, PATTERNS, draw, gather_lines
from trainvitals.views.plot.timeline import choose_axis, read_part, sort_parts

ROOT = Path(__file__).parents[3]
HEADER = "step,timestamp,gpu_0_util,gpu_0_memory_pct,cpu_percent,memory_percent,io_read_rate_mbps"
TWO_ROWS = "0,2025-10-07T10:00:00,85.3,50.0,45.2,48.5,75.2\n10,2025-10-07T10:00:05,87.1,51.2,46.3,49.1,73.8"

ADVICE = (
    "such as gpu_0_util or cpu_percent; give files of ResourceMonitorCallback or trainvitals record"
)


@pytest.fixture
def write(tmp_path):
    """Return a function that writes a CSV file and returns its path."""

    def write(name, *lines):
        path = tmp_path / name
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path

    return write


def size_of(path):
    """Return the width and height in the header of a PNG file."""
    head = path.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", head[16:24])


def read_lines(*paths):
    """Return the axis label, the positions and the lines of each panel of a plot."""
    parts = sort_parts([read_part(path, PATTERNS) for path in paths])
    axis = choose_axis(parts)
    lines = {
        panel.title: {line.name: list(line.y) for line in gather_lines(panel, parts, axis)}
        for panel in PANELS
    }
    lines = {
        panel.title: lines[panel.title]
        for panel in PANELS
        if lines[panel.title] or panel.is_always_there
    }
    return axis.label, [list(positions) for positions in axis.positions], lines


def show_gaps(values):
    """Return the values with None for NaN, so that they can be compared."""
    return [None if value != value else value for value in values]  # noqa: PLR0124 - NaN


def test_the_timeline_is_drawn(write, tmp_path, capsys, monkeypatch):
    """Without options, the command writes `resource_timeline.png` with 1200 by 800 pixels."""
    path = write("epoch_0.csv", HEADER, TWO_ROWS)
    monkeypatch.chdir(tmp_path)
    assert main(["plot", str(path)]) == 0
    assert capsys.readouterr() == ("wrote resource_timeline.png\n", "")
    assert size_of(tmp_path / "resource_timeline.png") == (1200, 800)


EVERYTHING = (
    "timestamp,gpu_0_util,gpu_0_memory_pct,cpu_percent,io_read_rate_mbps,gpu_0_temp_c,gpu_0_power_w"
    ",disk_/_used_pct,oom_kills"
)


@pytest.mark.parametrize(
    ("words", "size"), [([], (1200, 800)), (["--size", "900x1600"], (900, 1600))]
)
def test_the_size_does_not_depend_on_what_was_recorded(write, tmp_path, words, size):
    """The image has the same size for eight panels as for four, unless `--size` is given."""
    rows = (f"2025-10-07T10:00:0{second},80,50,40,10,65,400,75,0" for second in range(5))
    path = write("run.csv", EVERYTHING, *rows)
    output = tmp_path / "run.png"
    assert main(["plot", str(path), "--output", str(output), *words]) == 0
    assert size_of(output) == size
    assert len(draw([read_part(path, PATTERNS)]).get_axes()) == 8


@pytest.mark.parametrize("text", ["1200", "12x8", "1200x", "axb", "99999x100", "1200x800px"])
def test_a_size_that_is_none_is_named(write, capsys, text):
    """An invalid size causes a one-line error and exit code 2."""
    path = write("epoch_0.csv", HEADER, TWO_ROWS)
    assert main(["plot", str(path), "--size", text]) == 2
    assert capsys.readouterr().err == (
        f"trainvitals: --size={text}: write WIDTHxHEIGHT in pixels, each from 100 to 9999\n"
    )


def test_no_panel_lies_upon_another(write):
    """No panel overlaps another, including labels and legends."""
    rows = (f"2025-10-07T10:00:0{second},80,50,40,10,65,400,75,0" for second in range(5))
    figure = draw([read_part(write("run.csv", EVERYTHING, *rows), PATTERNS)])
    figure.draw_without_rendering()
    boxes = [axes.get_tightbbox() for axes in figure.get_axes()]
    assert all(box.height > 0 and box.width > 0 for box in boxes)
    assert not [(a, b) for a, b in combinations(boxes, 2) if a.overlaps(b.padded(-1))]


def test_no_display_and_no_global_state_are_needed(write, tmp_path):
    """The image is written without a display and without importing pyplot."""
    path = write("epoch_0.csv", HEADER, TWO_ROWS)
    code = (
        "import sys; from pathlib import Path; from trainvitals.views.plot import plot;"
        f"plot([Path({str(path)!r})], Path({str(tmp_path / 'a.png')!r}));"
        "print('matplotlib.pyplot' in sys.modules)"
    )
    environ = {name: value for name, value in os.environ.items() if name != "DISPLAY"}
    answer = subprocess.run(
        [sys.executable, "-c", code],
        env={**environ, "PYTHONPATH": str(ROOT / "exporter"), "MPLBACKEND": "TkAgg"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert (answer.stdout, answer.stderr) == ("False\n", "")
    assert size_of(tmp_path / "a.png") == (1200, 800)


def test_four_panels_have_titles_units_and_the_same_axis(write):
    """The four panels have titles, units and a common x axis, and a legend for several lines."""
    figure = draw([read_part(write("epoch_0.csv", HEADER, TWO_ROWS), PATTERNS)])
    panels = figure.get_axes()
    assert [(axes.get_title(), axes.get_ylabel(), axes.get_xlabel()) for axes in panels] == [
        ("GPU utilization", "%", "step"),
        ("Memory in use", "%", "step"),
        ("CPU", "%", "step"),
        ("I/O", "MB/s", "step"),
    ]
    assert [axes.get_legend() is not None for axes in panels] == [False, True, False, False]
    (legend,) = [legend for axes in panels if (legend := axes.get_legend())]
    assert [text.get_text() for text in legend.get_texts()] == ["GPU 0", "host"]
    assert figure.get_suptitle() == "Resource timeline from 2025-10-07 10:00"
    assert len({axes.get_xlim() for axes in panels}) == 1


def test_the_columns_are_drawn_where_they_belong(write):
    """Each column is drawn in its panel, and unknown columns are ignored."""
    path = write(
        "epoch_0.csv", HEADER + ",gpu_0_temp_c,note", TWO_ROWS.replace("\n", ",72,a\n") + ",73,b"
    )
    assert read_lines(path) == (
        "step",
        [[0, 10]],
        {
            "GPU utilization": {"GPU 0": [85.3, 87.1]},
            "Memory in use": {"GPU 0": [50.0, 51.2], "host": [48.5, 49.1]},
            "CPU": {"busy": [45.2, 46.3]},
            "I/O": {"read": [75.2, 73.8]},
            "Temperature": {"GPU 0": [72, 73]},
        },
    )


def test_several_gpus_are_several_lines_in_the_order_of_their_numbers(write):
    """GPU 10 comes after GPU 9, whatever the order of the columns."""
    names = [f"gpu_{number}_util" for number in (10, 9, 0)]
    path = write("epoch_0.csv", ",".join(["step", *names]), "0,1,2,3")
    assert read_lines(path)[2]["GPU utilization"] == {"GPU 0": [3], "GPU 9": [2], "GPU 10": [1]}


def test_files_follow_one_another_by_time(write):
    """Files are ordered by time, so that epoch 10 follows epoch 9."""
    tenth = write("epoch_10.csv", "step,timestamp,cpu_percent", "20,2025-10-07T11:00:00,30")
    ninth = write("epoch_9.csv", "step,timestamp,cpu_percent", "10,2025-10-07T10:00:00,20")
    label, positions, lines = read_lines(tenth, ninth)
    assert (label, positions) == ("step", [[10], [20]])
    assert lines["CPU"] == {"busy": [20, 30]}


@pytest.mark.parametrize(
    ("last", "label", "positions"),
    [
        ("10:00:40", "seconds since the start", [[0, 10], [30, 40]]),
        ("10:10:00", "minutes since the start", [[0, 10 / 60], [0.5, 10]]),
        ("16:00:00", "hours since the start", [[0, 10 / 3600], [30 / 3600, 6]]),
    ],
)
def test_time_is_shown_where_steps_start_again(write, last, label, positions):
    """If steps restart in each epoch, the x axis is time and pauses are gaps."""
    header = "step,timestamp,cpu_percent"
    first = write("epoch_0.csv", header, "0,2025-10-07T10:00:00,1", "5,2025-10-07T10:00:10,2")
    second = write("epoch_1.csv", header, "0,2025-10-07T10:00:30,3", f"5,2025-10-07T{last},4")
    shown, at, lines = read_lines(first, second)
    assert shown == label
    assert at == [pytest.approx(part) for part in positions]
    assert show_gaps(lines["CPU"]["busy"]) == [1, 2, None, 3, 4, None]


def test_a_time_may_have_a_zone(write):
    """Timestamps with Z or an offset are read."""
    path = write(
        "epoch_0.csv",
        "step,timestamp,cpu_percent",
        "0,2025-10-07T10:00:00Z,1",
        "0,2025-10-07T12:00:30.500000+02:00,2",
    )
    assert read_lines(path)[:2] == ("seconds since the start", [[0, 30.5]])


def test_ranks_have_lines_of_their_own(write):
    """Files of two ranks are distinguished by name and drawn as separate lines."""
    header = "step,timestamp,gpu_0_util"
    paths = [
        write("epoch_0.csv", header, "0,2025-10-07T10:00:00,10", "9,2025-10-07T10:00:20,11"),
        write("epoch_0.rank3.csv", header, "0,2025-10-07T10:00:01,30", "9,2025-10-07T10:00:21,31"),
    ]
    label, _, lines = read_lines(*paths)
    assert label == "step"
    assert lines["GPU utilization"] == {"rank 0: GPU 0": [10, 11], "rank 3: GPU 0": [30, 31]}


def test_unknown_values_are_gaps(write):
    """Empty cells, NaN, infinity and missing columns are drawn as gaps."""
    first = write(
        "epoch_0.csv", "step,cpu_percent,gpu_0_util", "0,,1", "1,nan,2", "2,inf,3", "3,5,4"
    )
    second = write("epoch_1.csv", "step,cpu_percent", "4,6")
    lines = read_lines(first, second)[2]
    assert show_gaps(lines["CPU"]["busy"]) == [None, None, None, 5, 6]
    assert show_gaps(lines["GPU utilization"]["GPU 0"]) == [1, 2, 3, 4, None]


def test_a_value_between_two_gaps_gets_a_dot(write):
    """A value between two gaps is drawn as a dot, because a line would not show it."""
    path = write("epoch_0.csv", "step,cpu_percent", "0,1", "1,", "2,3", "3,4", "4,", "5,6")
    line = draw([read_part(path, PATTERNS)]).get_axes()[2].get_lines()[0]
    assert line.get_markevery() == [0, 5]


def test_a_row_that_was_cut_off_is_left_out(write):
    """A truncated last row and a repeated header are ignored."""
    path = write("epoch_0.csv", HEADER, TWO_ROWS, HEADER, "20,2025-10-07T10:00:10,8")
    assert read_lines(path)[2]["CPU"] == {"busy": [45.2, 46.3]}


def test_what_was_not_recorded_is_said(write):
    """A panel without data shows "not recorded"."""
    figure = draw([read_part(write("epoch_0.csv", "step,cpu_percent", "0,5", "1,6"), PATTERNS)])
    notes = [[text.get_text() for text in axes.texts] for axes in figure.get_axes()]
    assert notes == [["not recorded"], ["not recorded"], [], ["not recorded"]]


def test_many_files_and_lines_stay_readable(write):
    """With more than 16 lines there is no legend, and with more than 30 files no file marks."""
    names = [f"gpu_{number}_util" for number in range(17)]
    row = ",".join(["50"] * 17)
    parts = [
        read_part(write(f"epoch_{step}.csv", ",".join(["step", *names]), f"{step},{row}"), PATTERNS)
        for step in range(31)
    ]
    utilization = draw(parts).get_axes()[0]
    assert utilization.get_legend() is None
    assert len(utilization.get_lines()) == 17
    assert len(draw(parts[:30]).get_axes()[0].get_lines()) == 17 + 29


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "the file is empty; give the CSV files of a run"),
        (HEADER.encode(), "there are no rows yet; wait until the run has written some"),
        (HEADER.encode() + b"\n1,2", "there are no rows yet; wait until the run has written some"),
        (b"\x89PNG\r\n\x1a\n\x00\xff", "this is not a CSV file; give those of a run"),
        (b"step,cpu_percent\n0," + b"1" * 200_000, "this is not a CSV file; give those of a run"),
        (
            b"a,b\n1,2\n",
            f"the first line has no column that is plotted, {ADVICE}",
        ),
        (
            b"step,cpu_percent\n0,1\n1,high\n",
            "line 3: cpu_percent is 'high'; correct it or leave it empty",
        ),
        (
            b"step,cpu_percent\n0,1e300\n",
            "line 2: cpu_percent is '1e300'; correct it or leave it empty",
        ),
        (
            b"step,timestamp,cpu_percent\n0,yesterday,1\n",
            "line 2: timestamp is 'yesterday'; correct it or leave it empty",
        ),
    ],
)
def test_a_file_that_cannot_be_drawn_is_named(tmp_path, capsys, content, reason):
    """A file that cannot be drawn causes a one-line error, exit code 2 and no image."""
    path, output = tmp_path / "epoch_0.csv", tmp_path / "a.png"
    path.write_bytes(content)
    assert main(["plot", str(path), "--output", str(output)]) == 2
    assert capsys.readouterr() == ("", f"trainvitals: {path}: {reason}\n")
    assert not output.exists()


@pytest.mark.parametrize(
    ("name", "reason"),
    [("absent.csv", "No such file or directory"), (".", "it is no regular file")],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path, capsys, name, reason):
    """The error of an unreadable file gives the reason."""
    path = tmp_path / name
    assert main(["plot", str(path)]) == 2
    error = capsys.readouterr().err
    assert error == f"trainvitals: cannot read {path}: {reason}; give the CSV files of a run\n"


def test_steps_that_start_again_need_a_time(write):
    """Files whose steps restart are refused if they have no timestamps."""
    paths = [write(f"epoch_{epoch}.csv", "step,cpu_percent", "0,1", "1,2") for epoch in (0, 1)]
    with pytest.raises(ConfigurationError, match=r"^steps start again and timestamps are miss"):
        read_lines(*paths)


def test_a_file_without_any_value_is_refused(write, tmp_path):
    """A file without any value is refused, because the image would be empty."""
    path = write("epoch_0.csv", "step,cpu_percent", "0,", "1,")
    with pytest.raises(
        ConfigurationError, match=r"^all cells of the columns that are plotted are empty; "
    ):
        plot([path], tmp_path / "a.png")


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("a.svg", r"^--output=.*/a\.svg: write a name that ends in \.png$"),
        ("no/a.png", r"^cannot write .*/no/a\.png: No such file .*; choose another --output$"),
    ],
)
def test_a_picture_that_cannot_be_written_is_named(write, tmp_path, output, reason):
    """The error names the image that cannot be written and the remedy."""
    path = write("epoch_0.csv", HEADER, TWO_ROWS)
    with pytest.raises(ConfigurationError, match=reason):
        plot([path], tmp_path / output)


def test_without_matplotlib_the_extra_is_named(write, capsys, monkeypatch):
    """Without matplotlib, the error names the package to install and the exit code is 2."""
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert main(["plot", str(write("epoch_0.csv", HEADER, TWO_ROWS))]) == 2
    error = capsys.readouterr().err
    assert error == "trainvitals: plot needs matplotlib: pip install 'trainvitals[plot]'\n"


def test_a_file_is_needed(capsys):
    """Without a file, the usage is printed and the exit code is 2."""
    with pytest.raises(SystemExit) as left:
        main(["plot"])
    assert left.value.code == 2
    assert "FILE" in capsys.readouterr().err


@settings(max_examples=200)
@given(
    st.lists(
        st.lists(
            st.one_of(
                st.sampled_from(["step", "timestamp", "cpu_percent", "gpu_1_util", "", "nan"]),
                st.sampled_from(["2025-10-07T10:00:00", "9999-12-31T23:59:59", "0001-01-01"]),
                st.integers().map(str),
                st.text(max_size=5),
            ),
            max_size=5,
        ),
        max_size=6,
    )
)
def test_any_file_is_read_or_refused(tmp_path_factory, rows):
    """Any file is either read into columns of equal length or refused with one line."""
    path = tmp_path_factory.getbasetemp() / "any.csv"
    text = "\n".join(",".join(row) for row in rows)
    path.write_bytes(text.encode("utf-8", errors="surrogatepass"))
    try:
        part = read_part(path, PATTERNS)
        choose_axis([part])
    except ConfigurationError as error:
        message = str(error)
    else:
        message = ""
        assert len({len(values) for values in part.columns.values()}) == 1
    assert "\n" not in message


RECORDED = (
    '{"timestamp":"2025-10-07T10:00:00.000+02:00","cpu_percent":10,"hpu_0_util":50,"runs":[]}',
    '{"timestamp":"2025-10-07T10:00:30.000+02:00","cpu_percent":20,"disk_/a b_used_pct":75.5}',
    '{"timestamp":"2025-10-07T10:00:10.000+02:00","cpu_percent":30,"oom_kills":1}',
)


def test_a_recording_in_json_lines_is_drawn(write):
    """A missing number in a JSON line is a gap, and a clock set back breaks the lines."""
    path = write("run.jsonl", *RECORDED, "")
    path.write_text(path.read_text().rstrip("\n") + '\n{"timestamp":"2025-10')
    label, positions, lines = read_lines(path)
    assert (label, positions) == ("seconds since the start", [[0, 30, 10]])
    assert show_gaps(lines["CPU"]["busy"]) == [10, 20, None, 30, None]
    assert show_gaps(lines["GPU utilization"]["HPU 0"]) == [50, None, None, None, None]
    assert show_gaps(lines["Disk space in use"]["/a b"]) == [None, 75.5, None, None, None]


def test_what_was_put_away_is_drawn_too(write, tmp_path):
    """A gzip-compressed file is read as the plain file."""
    path = tmp_path / "run.csv.1.gz"
    path.write_bytes(gzip.compress(write("run.csv", HEADER, TWO_ROWS).read_bytes()))
    assert read_lines(path) == read_lines(tmp_path / "run.csv")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (gzip.compress(b"step,cpu_percent\n1,2\n", mtime=0)[:-9], "this gzip file is incomplete"),
        (b"\x1f\x8bnothing", "this gzip file is incomplete"),
        (b"{\n", "line 1: this is not JSON"),
        (b"{}\n[]\n", "line 2: this is not a JSON object"),
    ],
)
def test_a_file_that_is_not_whole_is_one_line(tmp_path, data, words):
    """The error of an incomplete file says what is wrong with it."""
    path = tmp_path / "run"
    path.write_bytes(data)
    with pytest.raises(ConfigurationError, match=words):
        read_part(path, PATTERNS)


def test_a_disk_without_room_leaves_the_picture_that_was_there(tmp_path):
    """On a full disk, the existing image is kept and no partial file is left."""
    log = tmp_path / "run.csv"
    log.write_text("timestamp,cpu_percent\n2026-01-01T00:00:00,1\n2026-01-01T00:01:00,2\n")
    picture = tmp_path / "run.png"
    picture.write_bytes(b"the last one")
    answer = subprocess.run(
        f"ulimit -f 1; exec {sys.executable} -m trainvitals plot {log} --output {picture}",
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT / "exporter"),
            "MPLCONFIGDIR": str(tmp_path / "m"),
        },
        shell=True,
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 2
    assert f"cannot write {picture}: File too large; choose another --output" in answer.stderr
    assert picture.read_bytes() == b"the last one"
    assert not list(tmp_path.glob("*.part"))


def test_what_is_no_file_is_refused():
    """A device file is refused, because it may never end."""
    with pytest.raises(ConfigurationError, match="/dev/zero: it is no regular file"):
        read_part(Path("/dev/zero"), PATTERNS)


def test_a_huge_file_is_refused_in_one_line(tmp_path, capsys):
    """A plain or unpacked file of more than 256 MiB is refused."""
    sparse, bomb = tmp_path / "sparse.csv", tmp_path / "bomb.csv.gz"
    sparse.touch()
    os.truncate(sparse, 1 << 40)
    bomb.write_bytes(gzip.compress(bytes(1 << 20)) * 300)
    for path in (sparse, bomb):
        assert main(["plot", str(path)]) == 2
        assert "it has more than 256 MiB" in capsys.readouterr().err
