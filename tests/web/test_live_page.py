"""The live page as HTML: what it says of a machine, and what hostile names make of it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.web.pages import read_html
from trainvitals.overview.picture import (
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
from trainvitals.web.live.drawing import bar, sparkline
from trainvitals.web.live.headline import find_matters
from trainvitals.web.live.page import write_fragment, write_page

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
HOSTILE = "<script>alert(1)</script>\"' onerror=x \u202e&lt;\x1b[31m\ud800"


def draw(picture):
    """Give the fragment as a reader of HTML finds it."""
    return read_html(write_fragment(picture))


def say(picture):
    """Give all that it says, with plain spaces."""
    return " ".join(draw(picture).text.replace("\u202f", " ").split())


def test_a_machine_of_which_nothing_is_known():
    """It has a name, a time, and says that nothing trains."""
    words = say(EMPTY)
    assert words.startswith("ada")
    assert "nothing needs attention" in words
    assert "no training run is known here" in words
    assert not draw(EMPTY).find("section", id="accelerators")
    assert not draw(EMPTY).find("section", id="containers")
    assert not draw(EMPTY).find("section", id="alerts")


def test_what_is_not_known_is_a_dash_and_never_nothing():
    """No number is made of an unknown one."""
    bare = replace(EMPTY, accelerators=(Accelerator("gpu", 0, "GPU-0", "H100"),))
    row = draw(bare).find("li", css="row")[1]
    assert [each.text for each in row.find("span", css="none")] == ["\N{EN DASH}"] * 5


def test_an_accelerator_with_its_limits_and_its_holder():
    """Each number with its unit; who holds its memory, by run, user and container."""
    words = say(replace(EMPTY, accelerators=(GPU,)))
    for part in ("GPU 3", "97 %", "66.0 / 80.0 GiB", "64 °C", "640 / 700 W"):
        assert part in words
    assert "llama ada · in trainer-1 · PID 4000 · 66.0 GiB" in words
    assert f"1 {TIMES} NVIDIA H100" in words


@pytest.mark.parametrize(
    ("changed", "words", "tone"),
    [
        ({"state": "lost", "last_seen": NOON - 90}, "GPU 3: lost", "bad"),
        ({"state": "no_driver"}, "GPU 3: no driver", "bad"),
        ({"temperature_celsius": 80.0}, "GPU 3: 80 °C, close to its limit", "warning"),
        ({"temperature_celsius": 86.0}, "GPU 3: 86 °C, close to its limit", "bad"),
        ({"throttled": ("hw_thermal", "hw_slowdown")}, "GPU 3: slowed by heat (hardware)", "warning"),
        ({"throttled": ("sw_power_cap",)}, None, None),
        ({"xids": ((79, 2),)}, f"GPU 3: Xid 79 {TIMES} 2", "bad"),
        ({"memory_limit_bytes": 60 << 30}, "GPU 3: memory above the limit set for it", "warning"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_an_accelerator_is_in_the_headline(changed, words, tone):
    """In words, and with a link to its row; what is usual is not."""
    picture = replace(EMPTY, accelerators=(replace(GPU, **changed),))
    matters = find_matters(picture)
    told = [(matter.words.replace("\u202f", " "), matter.tone) for matter in matters]
    assert told == ([] if words is None else [(words, tone)])
    ids = {each.attributes.get("id") for each in draw(picture).find()}
    assert {matter.target for matter in matters} <= ids


def test_accelerators_that_are_missing():
    """All are lost, or the driver shows none: the section is there and says so."""
    gone = replace(EMPTY, accelerators_expected=(("gpu", 8),))
    assert "0 of 8 expected GPUs answer" in say(gone)
    lost = replace(gone, accelerators=tuple(replace(GPU, device=n, uuid=str(n), state="lost",
        utilization_trace=()) for n in range(8)))  # fmt: skip
    assert say(lost).count("lost") == 16  # in the headline and in its row
    assert "9 things need attention" in say(lost)


def test_a_run_with_everything():
    """Its state and what it loses time to, how far it is, and who is behind."""
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
        laggards=(Laggard("3", 3.313, "data_wait"),),
        devices=("gpu0", "gpu1", "gpu2", "gpu6", "gpu7"),
    )
    words = say(replace(EMPTY, runs=(run,)))
    for part in (
        "training ▲input-bound",
        "52 %",
        "step 30,990 of 60,000 · epoch 2 · 23 h 13 min left",
        "samples/s8.05",
        "tokens/s32,981",
        "4 here, 16 in all",
        "2.287",
        "iou validation0.7500",
        f"rank 3 is behind: waiting for data takes 3.3{TIMES} as long as on the fastest",
        "2 h 04 min",
        "gpu0\N{EN DASH}2, gpu6, gpu7",
    ):
        assert part in words, part


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (Run("a", state="stalled", tone="warning", phase="train", stalled_seconds=300.0),
         "no progress for 5 min in phase train"),
        (Run("a", state="died", tone="bad", ending="rank 1: killed by SIGSEGV (11)", ended=NOON - 65),
         "rank 1: killed by SIGSEGV (11), 1 min ago"),
        (Run("a", loss=math.nan, bound="loss is NaN"), "a: loss is NaN"),
        (Run("a", source="tensorboard"), "told byTensorBoard"),
    ],
)  # fmt: skip
def test_a_run_in_trouble_says_what_it_is(run, words):
    """In a sentence of its own."""
    assert words in say(replace(EMPTY, runs=(run,)))


def test_a_run_that_stands_still_promises_no_end():
    """How long it would take is of no use then."""
    run = Run("a", state="stalled", tone="warning", eta_seconds=60.0, stalled_seconds=1.0)
    assert "left" not in say(replace(EMPTY, runs=(run,)))


def test_sixteen_runs_are_all_shown():
    """As many as the exporter knows."""
    runs = tuple(Run(f"run-{number}") for number in range(16))
    assert len(draw(replace(EMPTY, runs=runs)).find("article")) == 16


def test_many_containers_are_bounded():
    """What is left out is counted."""
    containers = tuple(Container(f"c-{number:03}", status="running") for number in range(512))
    page = draw(replace(EMPTY, containers=containers))
    assert len(page.find("ol", css="containers")[0].find("li", css="row")) == 1 + 48
    assert "and 464 more containers" in page.text


def test_a_container_s_last_death():
    """Its verdict, its signal, its sentence; of late, it is in the headline."""
    death = Death(NOON - 180, 137, "oom-cgroup", "SIGKILL", "high", "The kernel killed it.")
    container = Container("worker", status="running", last_death=death, oom_kills=3)
    words = say(replace(EMPTY, containers=(container,)))
    assert "worker died: oom-cgroup" in words
    assert "3 min ago · high confidence · SIGKILL · 3 OOM kills" in words
    assert "The kernel killed it." in words
    old = replace(container, last_death=replace(death, time=NOON - 1000))
    assert find_matters(replace(EMPTY, containers=(old,))) == []


def test_a_file_system_that_does_not_answer():
    """It says why, and is in the headline."""
    host = Host(filesystems=(Filesystem("/backup", "nfs4", trouble="the server does not answer"),))
    words = say(replace(EMPTY, host=host))
    assert "/backup: the server does not answer" in words
    assert "/backup nfs4 ✖the server does not answer" in words


def test_a_collector_that_hangs_is_named():
    """In the headline, and with its reason among the others, which is unfolded then."""
    collectors = (Collector("cpu", success=True, duration_seconds=0.001),
                  Collector("accelerator", success=False, reason="did not answer in time"))  # fmt: skip
    page = draw(replace(EMPTY, collectors=collectors))
    assert "collector accelerator: did not answer in time" in page.text
    assert "open" in page.find("details")[0].attributes
    well = draw(replace(EMPTY, collectors=collectors[:1]))
    assert "open" not in well.find("details")[0].attributes


def test_alerts():
    """What fires, since when and about what; that none fires; that it is not known."""
    alert = Alert("GPUHighTemperature", "critical", "gpu3", "It is hot", NOON - 600)
    words = say(replace(EMPTY, alerts=(alert,)))
    assert "critical" in words
    assert "GPUHighTemperature" in words
    assert "gpu3" in words
    assert "for 10 min" in words
    assert "none fires" in say(replace(EMPTY, alerts=()))
    assert "it does not answer" in say(replace(EMPTY, alerts_trouble="it does not answer"))


def make_hostile(words):
    """Give a picture in which every text is this one."""
    return Picture(
        time=NOON,
        hostname=words,
        version=words,
        accelerators=(replace(GPU, model=words, uuid=words, state=words, driver=words),
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
    )  # fmt: skip


def list_tags(element):
    """Give every element's name and the names of its attributes."""
    return [(each.tag, *sorted(each.attributes)) for each in element.find()]


def test_hostile_names_stay_text():
    """The page has the elements and attributes that it has with a harmless name, and no other."""
    page = write_page(make_hostile(HOSTILE), write_fragment(make_hostile(HOSTILE)))
    harmless = write_page(make_hostile("x"), write_fragment(make_hostile("x")))
    assert list_tags(read_html(page)) == list_tags(read_html(harmless))
    text = page.decode()
    assert "\u202e" not in text
    assert "\x1b" not in text
    assert "alert(1)" in read_html(page).text


@settings(max_examples=50)
@given(words=st.text(max_size=40).filter(bool))
def test_no_text_becomes_markup(words):
    """Whatever a name is, the page is HTML with the elements it always has."""
    shown = {"".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in words)}
    fragment = write_fragment(make_hostile(words))
    assert list_tags(read_html(fragment)) == list_tags(draw(make_hostile("x")))
    assert read_html(fragment).find("h1")[0].text in shown


def test_a_name_without_an_end_is_cut():
    """A run may be called by three thousand characters."""
    page = draw(replace(EMPTY, runs=(Run("x" * 3000),)))
    assert len(page.find("h3")[0].text) == 160


def test_there_is_no_style_or_script_within_the_page():
    """The policy that the page is sent with would not let it work."""
    page = read_html(write_page(replace(EMPTY, accelerators=(GPU,)), write_fragment(EMPTY)))
    assert not page.find("style")
    assert [each.attributes.get("src") for each in page.find("script")] == ["live.js?1.2.3"]
    assert page.find("script")[0].text == ""
    for each in page.find():
        assert not any(name == "style" or name.startswith("on") for name in each.attributes)


def test_a_sparkline_has_a_stroke_for_each_stretch():
    """A gap is a gap; the limit is a line; words tell the range."""
    drawn = read_html(
        sparkline((0.0, 1.0, None, 1.0), "load", lambda value: f"{value:.0f}", low=0.0, high=2.0,
                  limit=1.0)
    )  # fmt: skip
    (svg,) = drawn.find("svg")
    limit, trace = drawn.find("path")
    assert trace.attributes["d"] == "M86 225L87 120M89 120h1"
    assert limit.attributes["d"] == "M0 120H90"
    assert svg.attributes["aria-label"] == "load, last 15 minutes: 0 to 1, limit 1"


def test_a_bar_stays_within_its_frame():
    """Whatever the ratio."""
    widths = [read_html(bar(ratio, "x")).find("rect", css="filled")[0].attributes["width"]
              for ratio in (None, -1.0, 0.5, 7.0)]  # fmt: skip
    assert widths == ["0.0", "0.0", "50.0", "100.0"]
