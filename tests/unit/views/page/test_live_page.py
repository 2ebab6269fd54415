"""The live page as HTML, with ordinary and with malicious names."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.views.page.pages import read_html
from trainvitals.sources.accelerators.reading import Idleness
from trainvitals.verdicts.trouble import Trouble, Unknown
from trainvitals.views.machine.picture import (
    Accelerator,
    Alert,
    Collector,
    Container,
    Death,
    Filesystem,
    Holder,
    Host,
    Laggard,
    Metric,
    Picture,
    Run,
)
from trainvitals.views.page.page import PageWriter
from trainvitals.views.page.subjects import list_findings

TIMES = "\N{MULTIPLICATION SIGN}"
NOON = 1_700_049_600.0
EMPTY = Picture(time=NOON, hostname="ada", version="1.2.3")
GPU = Accelerator(
    "gpu",
    3,
    "GPU-3",
    "NVIDIA H100",
    utilization_ratio=0.97,
    memory_used_bytes=66 << 30,
    memory_total_bytes=80 << 30,
    temperature_celsius=64.0,
    temperature_limit_celsius=87.0,
    power_watts=640.0,
    power_limit_watts=700.0,
    holders=(Holder(4000, 66 << 30, "python", "ada", "trainer-1", "llama"),),
    utilization_trace=(None, 0.9, 0.95, None, 0.5),
)
WRITER = PageWriter()
HOSTILE = "<script>alert(1)</script>\"' onerror=x \u202e&lt;\x1b[31m\ud800"


def draw(picture):
    """Return the parsed fragment of a picture."""
    return read_html(WRITER.write_fragment(picture))


def say(picture):
    """Return the text of the fragment with single spaces."""
    return " ".join(draw(picture).text.split())


def test_a_machine_of_which_nothing_is_known():
    """An empty picture shows the host's name and says that no training run is known."""
    words = say(EMPTY)
    assert words.startswith("ada")
    assert "nothing needs attention" in words
    assert "no training run is known here; start one with trainvitals run" in words
    assert not draw(EMPTY).find("section", id="accelerators")
    assert not draw(EMPTY).find("section", id="containers")
    assert not draw(EMPTY).find("section", id="alerts")


def test_what_is_not_known_is_a_dash_and_never_nothing():
    """Unknown values are shown as a dash."""
    bare = replace(EMPTY, accelerators=(Accelerator("gpu", 0, "GPU-0", "H100"),))
    row = draw(bare).find("li", css="row")[1]
    assert [each.text for each in row.find("span", css="none")] == ["-"] * 5


def test_an_accelerator_with_its_limits_and_its_holder():
    """An accelerator is shown with units and limits, and with the run, user and container on it."""
    words = say(replace(EMPTY, accelerators=(GPU,)))
    for part in ("GPU 3", "97%", "66.0 / 80.0 GiB", "64 °C", "640 / 700 W"):
        assert part in words
    assert "llama ada · in trainer-1 · PID 4000 · 66.0 GiB" in words
    assert f"1 {TIMES} NVIDIA H100" in words


def test_an_idle_accelerator_says_why():
    """An idle accelerator is shown with its reason."""
    idle = Idleness("stopped", "python (PID 4000) is stopped by a signal", 4000)
    words = say(replace(EMPTY, accelerators=(replace(GPU, idle=idle),)))
    assert "idle: python (PID 4000) is stopped by a signal" in words
    assert "idle:" not in say(replace(EMPTY, accelerators=(GPU,)))


HOT = Trouble("accelerator", "gpu3", "too hot", "critical", "86 °C", "GPUHighTemperature")
IDLE = Trouble("accelerator", "gpu3", "held but idle", "info", "by nobody", "AcceleratorHeldIdle")
FULL = Trouble("filesystem", "/data", "nearly full", "warning", "9 GiB are free")


def test_what_is_wrong_is_in_the_headline():
    """The headline counts the troubles and links each to its row."""
    picture = replace(EMPTY, accelerators=(GPU,), troubles=(HOT, FULL, IDLE))
    findings = list(list_findings(picture))
    assert [(words, tone) for words, _, tone in findings] == [
        ("gpu3 too hot: 86 °C", "bad"),
        ("/data nearly full: 9 GiB are free", "warning"),
        ("gpu3 held but idle: by nobody", "busy"),
    ]
    assert "2 things need attention" in say(picture)
    ids = {each.attributes.get("id") for each in draw(picture).find()}
    assert {target for _, target, _ in findings} <= ids


def test_what_is_not_known_is_in_the_headline():
    """With unknown values, the headline does not say that nothing needs attention."""
    blind = replace(EMPTY, unknowns=(Unknown("alert", "no Prometheus is named"),))
    assert "nothing needs attention" in say(EMPTY)
    assert "nothing needs attention" not in say(blind)
    assert "not all is known" in say(blind)
    assert "alerts not known: no Prometheus is named" in say(blind)
    assert "1 thing needs attention" in say(replace(blind, troubles=(HOT,)))


def test_a_run_with_everything():
    """A run is shown with its state, bottleneck, progress, metrics and slow ranks."""
    run = Run(
        "llama",
        state="training",
        bound="input-bound",
        started=NOON - 7440,
        step=30_990,
        steps=60_000,
        epoch=2,
        progress_ratio=0.5165,
        eta_seconds=83_629.0,
        samples_per_second=8.052,
        tokens_per_second=32_981.0,
        step_seconds=4.1,
        loss=2.2871,
        loss_trace=(2.5, 2.4, 2.3),
        metrics=(Metric("iou", "validation", 0.75),),
        ranks_alive=4,
        ranks=4,
        world_size=16,
        restarts=2,
        devices=("gpu0", "gpu1", "gpu2", "gpu6", "gpu7"),
    )
    behind = Trouble("run", "llama", "rank 3 is behind", "warning", "it takes 3.3 times as long")
    words = say(replace(EMPTY, runs=(run,), troubles=(behind,)))
    for part in (
        "training ▲input-bound",
        "52%",
        "step 30,990 of 60,000 · epoch 2 · 23h 13m left",
        "samples/s8.05",
        "tokens/s32,981",
        "4 here, 16 in all",
        "2.287",
        "iou validation0.75",
        "rank 3 is behind: it takes 3.3 times as long",
        "2h 4m",
        "gpu0\N{EN DASH}2, gpu6, gpu7",
    ):
        assert part in words, part


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (Run("a", state="stalled", tone="warning", phase="train", stalled_seconds=300.0),
         "no progress for 5m"),
        (Run("a", state="died", tone="bad", ending="rank 1: killed by SIGSEGV (11)", ended=NOON - 65),
         "rank 1: killed by SIGSEGV (11), 1m 5s ago"),
        (Run("a", loss=math.nan, bound="loss is NaN"), "loss is NaN"),
        (Run("a", source="tensorboard"), "sourceTensorBoard"),
    ],
)  # fmt: skip
def test_a_run_in_trouble_says_what_it_is(run, words):
    """The state of a stalled, dead or diverged run is shown in words."""
    assert words in say(replace(EMPTY, runs=(run,)))


def test_sixteen_runs_are_all_shown():
    """Sixteen runs, the most that the exporter keeps, are all shown."""
    runs = tuple(Run(f"run-{number}") for number in range(16))
    assert len(draw(replace(EMPTY, runs=runs)).find("article")) == 16


def test_many_containers_are_bounded():
    """At most 48 containers are shown, and the others are counted."""
    containers = tuple(Container(f"c-{number:03}", status="running") for number in range(512))
    page = draw(replace(EMPTY, containers=containers))
    assert len(page.find("ol", css="containers")[0].find("li", css="row")) == 1 + 48
    assert "and 464 more containers" in page.text


def test_a_container_s_last_death():
    """A container is shown with the cause, signal and summary of its last death."""
    death = Death(NOON - 180, 137, "oom-cgroup", "SIGKILL", "high", "The kernel killed it.")
    container = Container("worker", status="running", last_death=death, oom_kills=3)
    words = say(replace(EMPTY, containers=(container,)))
    assert "3m ago · high confidence · SIGKILL · 3 OOM kills" in words
    assert "The kernel killed it." in words


def test_a_file_system_that_does_not_answer():
    """A file system that does not answer is shown with the reason."""
    host = Host(filesystems=(Filesystem("/backup", "nfs4", trouble="the server does not answer"),))
    silent = Trouble("filesystem", "/backup", "does not answer", "critical", "its server is gone")
    words = say(replace(EMPTY, host=host, troubles=(silent,)))
    assert "/backup nfs4 ✖the server does not answer" in words


def test_a_collector_that_hangs_is_named():
    """If a collector hangs, the list of collectors is open and shows the reason."""
    collectors = (Collector("cpu", success=True, duration_seconds=0.001),
                  Collector("accelerator", success=False, reason="did not answer in time"))  # fmt: skip
    page = draw(replace(EMPTY, collectors=collectors))
    assert "did not answer in time" in page.text
    assert "open" in page.find("details")[0].attributes
    well = draw(replace(EMPTY, collectors=collectors[:1]))
    assert "open" not in well.find("details")[0].attributes


def test_alerts():
    """Firing alerts, the absence of alerts and the reason why alerts are unknown are shown."""
    alert = Alert("GPUHighTemperature", "critical", "gpu3", "It is hot", NOON - 600)
    words = say(replace(EMPTY, alerts=(alert,)))
    assert "critical" in words
    assert "GPUHighTemperature" in words
    assert "gpu3" in words
    assert "for 10m" in words
    assert "none fires" in say(replace(EMPTY, alerts=()))
    assert "it does not answer" in say(replace(EMPTY, alerts_trouble="it does not answer"))


def make_hostile(words):
    """Return a picture in which every text is this one."""
    return Picture(
        time=NOON,
        hostname=words,
        version=words,
        accelerators=(replace(GPU, model=words, uuid=words, state=f"{words}!", driver=words),
                      replace(GPU, model=words, holders=(Holder(1, 2, words, words, words, words),))),
        runs=(Run(words, source=words, state=words, bound=words, phase=words, ending=words,
                  stalled_seconds=1.0, metrics=(Metric(words, words, 1.0),), devices=(words,),
                  laggards=(Laggard(words, 2.0, words),), loss=1.0, progress_ratio=0.5),),
        containers=(Container(words, image=words, status=words, health=words, devices=(words,),
                              memory_used_bytes=1, memory_limit_bytes=2,
                              last_death=Death(NOON, 1, words, words, words, words)),),
        host=Host(filesystems=(Filesystem(words, words, size_bytes=9, avail_bytes=1, trouble=words),)),
        alerts=(Alert(words, words, words, words, NOON),),
        collectors=(Collector(words, success=False, reason=words),),
        troubles=(Trouble("run", words, words, "critical", words, words),),
        unknowns=(Unknown("run", words),),
    )  # fmt: skip


def list_tags(element):
    """Return the name and the attribute names of every element."""
    return [(each.tag, *sorted(each.attributes)) for each in element.find()]


def test_hostile_names_stay_text():
    """Malicious names add no elements and no attributes to the page."""
    page = WRITER.write_page(make_hostile(HOSTILE), WRITER.write_fragment(make_hostile(HOSTILE)))
    harmless = WRITER.write_page(make_hostile("x"), WRITER.write_fragment(make_hostile("x")))
    assert list_tags(read_html(page)) == list_tags(read_html(harmless))
    text = page.decode()
    assert "\u202e" not in text
    assert "\x1b" not in text
    assert "alert(1)" in read_html(page).text


@settings(max_examples=50)
@given(words=st.text(max_size=40).filter(bool))
def test_no_text_becomes_markup(words):
    """Any name gives a page with the usual elements and a printable title."""
    fragment = WRITER.write_fragment(make_hostile(words))
    assert list_tags(read_html(fragment)) == list_tags(draw(make_hostile("x")))
    shown = read_html(fragment).find("h1")[0].text
    assert shown.isprintable()
    assert shown == words or not (words.isascii() and words.isprintable())


def test_a_name_without_an_end_is_cut():
    """A run's name of 3000 characters is cut to 160."""
    page = draw(replace(EMPTY, runs=(Run("x" * 3000),)))
    assert len(page.find("h3")[0].text) == 160


def test_there_is_no_style_or_script_within_the_page():
    """The page has no inline style or script, which its Content-Security-Policy forbids."""
    page = read_html(
        WRITER.write_page(replace(EMPTY, accelerators=(GPU,)), WRITER.write_fragment(EMPTY))
    )
    assert not page.find("style")
    assert [each.attributes.get("src") for each in page.find("script")] == ["live.js?1.2.3"]
    assert page.find("script")[0].text == ""
    for each in page.find():
        assert not any(name == "style" or name.startswith("on") for name in each.attributes)


@pytest.mark.parametrize(
    ("ratio", "width"), [(-1.0, "0.0"), (0.5, "50.0"), (7.0, "100.0"), (math.nan, "0.0")]
)
def test_a_bar_stays_within_its_frame(ratio, width):
    """The filled part of a progress bar is between 0 and 100% wide."""
    page = draw(replace(EMPTY, runs=(Run("a", progress_ratio=ratio),)))
    assert page.find("rect", css="filled")[0].attributes["width"] == width


def test_the_exporter_starts_without_the_template_engine():
    """Jinja2 is not imported before the first page is written."""
    program = "import sys, trainvitals.http.viewers; sys.exit('jinja2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
