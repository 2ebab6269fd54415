"""Tests for the text formats, compared with prometheus_client's writers and strict parser."""

import math
import string
from collections import Counter
from functools import partial
from types import SimpleNamespace

import prometheus_client.openmetrics.exposition as openmetrics_exposition
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from trainvitals.metrics.exposition import Exposition, format_number
from trainvitals.metrics.families import Block, Family

ENDS = {"counter": "_total", "info": "_info"}
ODD = "\"\\\n%{},=# \t'é\N{SNOWMAN}\N{ROCKET}\x00\r\u2028"

numbers = st.one_of(
    st.floats(),
    st.integers(-(2**70), 2**70),
    st.sampled_from(
        [
            0.0,
            -0.0,
            0,
            5e-324,
            -5e-324,
            1e6,
            999999.9999999999,
            1e16,
            1e17,
            2**53 + 1,
            10**300,
            math.inf,
            -math.inf,
            math.nan,
            1.5e300,
            123456789.125,
            -1e7,
            True,
        ],
    ),
)
texts = st.one_of(st.text(), st.text(alphabet=ODD + "ab"))
# prometheus_client accepts a name that ends with a line feed and breaks the line.
odd_label_names = texts.filter(lambda name: not name.endswith("\n"))
helps = texts.map(str.strip)  # the parser strips help texts
stems = st.text(alphabet=string.ascii_lowercase + "_", min_size=1, max_size=8)
types = st.sampled_from(["counter", "gauge", "histogram", "info", "unknown"])
HISTOGRAM = ("_bucket", "_bucket", "_bucket", "_sum", "_count")


@st.composite
def families(draw, label_names=odd_label_names):
    """Draw families with unique names."""
    found = []
    for number in range(draw(st.integers(1, 4))):
        type_ = draw(types)
        name = f"{draw(stems)}{number}{ENDS.get(type_, '')}"
        names = draw(st.lists(label_names, unique=True, max_size=3))
        samples = []
        for values in draw(st.lists(st.tuples(*[texts] * len(names)), unique=True, max_size=4)):
            labels = tuple(zip(names, values, strict=True))
            if type_ == "histogram":
                bounds = [("le", "0.5"), ("le", "2.0"), ("le", "+Inf"), None, None]
                samples += [
                    (suffix, (*labels, bound) if bound else labels)
                    for suffix, bound in zip(HISTOGRAM, bounds, strict=True)
                ]
            else:
                samples.append(("", labels))
        found.append(Family(name, type_, draw(helps), tuple(samples)))
    return tuple(found)


def count_samples(drawn):
    """Return the number of values of a block of these families."""
    return sum(len(family.samples) for family in drawn)


@st.composite
def families_with_values(draw):
    """Draw families and two lists of values for them."""
    drawn = draw(families())
    values = st.lists(numbers, min_size=count_samples(drawn), max_size=count_samples(drawn))
    return drawn, draw(values), draw(values)


def as_registry(drawn, values):
    """Return the same families as a registry of prometheus_client."""
    left = iter(values)
    metrics = []
    for family in drawn:
        end = ENDS.get(family.type, "")
        metric = Metric(family.name.removesuffix(end), family.help, family.type)
        for suffix, labels in family.samples:
            metric.add_sample(family.name + suffix, dict(labels), next(left))
        metrics.append(metric)
    return SimpleNamespace(collect=lambda: metrics)


def block_of(drawn, values, shape="shape"):
    """Return a block of these families and values."""
    return Block(shape, lambda: drawn, values)


def gauge(*values, labels=()):
    """Return a block with one gauge of these values."""
    family = Family("probe", "gauge", "A probe.", (("", labels),) * len(values))
    return Block(("probe", len(values), labels), lambda: (family,), values)


@given(families_with_values())
@example(((Family("a", "gauge", "%s %d %% {} {0}", (("", (("%s", "%(x)s {}"),)),)),), [1.0], [2]))
def test_the_bytes_are_those_of_prometheus_client(drawn_and_values):
    """Both formats are identical to prometheus_client's output, for new and cached shapes."""
    drawn, *lists = drawn_and_values
    text, openmetrics = Exposition(), Exposition(openmetrics=True)
    for values in lists:
        block, registry = block_of(drawn, values), as_registry(drawn, values)
        assert text.write([block]) == generate_latest(registry)
        assert openmetrics.write([block]) == openmetrics_exposition.generate_latest(registry)


@given(numbers)
def test_a_number_is_written_as_prometheus_client_does(value):
    """A number is written as by prometheus_client, also the second time."""
    drawn = (Family("probe", "gauge", "A probe."),)
    exposition = Exposition()
    expected = generate_latest(as_registry(drawn, [value]))
    assert [exposition.write([block_of(drawn, [value])]) for _ in range(2)] == [expected] * 2


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0.0"),
        (-0.0, "-0.0"),
        (1, "1.0"),
        (0.1, "0.1"),
        (999999.5, "999999.5"),
        (1e6, "1e+06"),
        (1234567.5, "1.2345675e+06"),
        (85520809984, "8.5520809984e+10"),
        (-1e7, "-10000000.0"),
        (1e16, "1e+16"),
        (5e-324, "5e-324"),
        (2**64, "1.8446744073709552e+19"),
        (math.inf, "+Inf"),
        (-math.inf, "-Inf"),
        (math.nan, "NaN"),
        (True, "1.0"),
    ],
)
def test_numbers_have_these_texts(value, text):
    """Integers, fractions, exponents and special numbers have the expected text."""
    assert format_number(value) == text
    assert Exposition().write([gauge(value)]).decode().endswith(f"\nprobe {text}\n")


def test_zero_and_minus_zero_are_told_apart():
    """0.0 and -0.0 are equal, but neither gets the cached text of the other."""
    exposition = Exposition()
    page = exposition.write([gauge(0.0, -0.0, 1.0), gauge(0.0), gauge(-0.0)]).decode()
    numbers = [line.split()[1] for line in page.splitlines() if line[0] != "#"]
    assert numbers == ["0.0", "-0.0", "1.0", "0.0", "-0.0"]


VALID_VALUES = {
    "counter": st.floats(0, 1e300),
    "gauge": numbers,
    "unknown": numbers,
    "info": st.just(1.0),
}
label_names = st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]*", fullmatch=True).filter(lambda n: n != "le")


@given(st.data())
def test_the_strict_parser_reads_what_was_written(data):
    """The strict parser returns every help text, label and value of an OpenMetrics page."""
    drawn = data.draw(families(label_names))
    values = []
    for family in drawn:
        if family.type == "histogram":
            for _ in range(0, len(family.samples), len(HISTOGRAM)):
                low, middle, high = sorted(data.draw(st.tuples(*[st.integers(0, 2**40)] * 3)))
                values += [low, middle, high, data.draw(st.floats(0, 1e300)), high]
        else:
            values += [data.draw(VALID_VALUES[family.type]) for _ in family.samples]
    page = Exposition(openmetrics=True).write([block_of(drawn, values)]).decode()
    parsed = list(text_string_to_metric_families(page))
    read = [sample for metric in parsed for sample in metric.samples]
    sent = [(f.name + suffix, dict(labels)) for f in drawn for suffix, labels in f.samples]
    assert [(metric.type, metric.documentation) for metric in parsed] == [
        (family.type, family.help) for family in drawn
    ]
    assert [(sample.name, sample.labels) for sample in read] == sent
    for sample, value in zip(read, values, strict=True):
        assert repr(sample.value) == repr(float(value))


@pytest.mark.parametrize("values", [[], [1.0], [1.0, 2.0, 3.0]])
@pytest.mark.parametrize("kept", [False, True])
def test_a_wrong_number_of_values_is_refused(values, kept):
    """A block with too many or too few values raises an error."""
    drawn = (Family("two", "gauge", "Two.", (("", (("n", "1"),)), ("", (("n", "2"),)))),)
    exposition = Exposition()
    if kept:
        exposition.write([block_of(drawn, [1.0, 2.0])])
    with pytest.raises(ValueError, match=f"two .* 2 samples but {len(values)} values"):
        exposition.write([block_of(drawn, values)])


def test_each_block_is_described_once():
    """The families of a block are described only if its shape is new."""
    asked = []
    drawn = (Family("probe", "gauge", "A probe."),)

    def describe():
        asked.append(1)
        return drawn

    exposition = Exposition()
    for number in range(5):
        exposition.write([Block("shape", describe, [number])])
    assert asked == [1]


def test_kept_shapes_and_numbers_are_bounded():
    """The caches of shapes and numbers have a maximum number of entries."""
    exposition = Exposition()
    for number in range(10_000):
        exposition.write([gauge(number + 0.5, labels=(("n", str(number)),))])
    assert len(exposition._kept) <= 256
    assert len(exposition._numbers) <= 3073
    last = exposition.write([gauge(1.5, labels=(("n", "7"),))])
    assert last.decode().endswith('probe{n="7"} 1.5\n')


def test_large_shapes_are_kept_by_their_size():
    """The cache of shapes is also limited by the number of samples in the shapes."""
    exposition = Exposition()
    for number in range(1000):
        samples = tuple(("", (("n", f"{number} {each}"),)) for each in range(100))
        family = Family("probe", "gauge", "A probe.", samples)
        exposition.write([Block(number, lambda family=family: (family,), [0.5] * 100)])
    kept = sum(len(shape.pieces) for shape in exposition._kept.values())
    assert 15_000 < kept <= 20_000
    assert exposition._kept_pieces == kept


def shapes_of_samples(count: int, samples: int, described: Counter[int]) -> list[Block]:
    """Return blocks with a number of samples each, which count their descriptions."""

    def describe(number: int) -> tuple[Family, ...]:
        described[number] += 1
        labels = tuple(("", (("n", str(each)),)) for each in range(samples))
        return (Family(f"probe{number}", "gauge", "A probe.", labels),)

    return [Block(n, partial(describe, n), [0.5] * samples) for n in range(count)]


def test_what_is_needed_for_each_page_is_never_forgotten():
    """A shape that every page needs stays in the cache, and unused shapes are dropped."""
    described: Counter[int] = Counter()
    first, *others = shapes_of_samples(300, 400, described)
    exposition = Exposition()
    for other in others:
        exposition.write([first, other])
    assert set(described.values()) == {1}
    assert len(exposition._kept) <= 25


def test_a_page_above_the_bound_is_kept_whole():
    """All shapes of one page stay in the cache even if they exceed its limit."""
    described: Counter[int] = Counter()
    blocks = shapes_of_samples(300, 100, described)
    exposition = Exposition()
    for _ in range(3):
        exposition.write(blocks)
    assert set(described.values()) == {1}
    exposition.write(blocks[:1])
    assert len(exposition._kept) <= 256


def test_not_a_number_is_not_kept():
    """NaN is not cached, as each NaN would be a new key."""
    exposition = Exposition()
    for _ in range(100):
        exposition.write([gauge(float("nan"))])
    assert len(exposition._numbers) == 0


def test_a_name_that_is_no_text_does_not_cost_the_page():
    """A lone surrogate in a label is replaced, and the rest of the page is written."""
    page = Exposition().write([gauge(1.0, labels=(("mountpoint", "/mnt/\udce9"),)), gauge(2.0)])
    assert b'probe{mountpoint="/mnt/?"} 1.0\n' in page
    assert b"probe 2.0\n" in page


def test_no_blocks_make_an_empty_page():
    """Without blocks, the text page is empty and the OpenMetrics page has only its end."""
    assert Exposition().write([]) == b""
    assert Exposition(openmetrics=True).write([]) == b"# EOF\n"


def test_content_types():
    """The content type of each format contains its name and version."""
    assert Exposition().content_type == "text/plain; version=0.0.4; charset=utf-8"
    assert (
        Exposition(openmetrics=True).content_type
        == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    )
