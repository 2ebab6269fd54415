"""Tests for choosing the format and the compression from a request's headers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.http.negotiation import accepts_gzip, prefers_openmetrics

PROMETHEUS_2 = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,"
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
PROMETHEUS_3_TEXT_ONLY = "text/plain;version=0.0.4;q=0.6,*/*;q=0.5"
PROMETHEUS_3_PROTOBUF = (
    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;"
    f"q=0.7,{PROMETHEUS_3}"
)
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"


@pytest.mark.parametrize(
    ("accept", "openmetrics"),
    [
        ("", False),
        ("*/*", False),
        ("text/plain", False),
        (BROWSER, False),
        (PROMETHEUS_2, True),
        (PROMETHEUS_3, True),
        (PROMETHEUS_3_PROTOBUF, True),
        (PROMETHEUS_3_TEXT_ONLY, False),
        ("application/openmetrics-text", True),
        ("Application/OpenMetrics-Text; Version=1.0.0; Charset=utf-8", True),
        ('application/openmetrics-text; version="1.0.0"', True),
        ("application/openmetrics-text;version=0.0.1", True),
        ("application/openmetrics-text;version=2.0.0", False),
        ("application/openmetrics-text;q=0.4,text/plain;q=0.5", False),
        ("application/openmetrics-text;q=0.5,text/plain;q=0.4", True),
        ("application/openmetrics-text;q=0.5,text/plain;q=0.5", True),
        ("application/openmetrics-text;q=0.5,text/*", False),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;q=0,*/*;q=0.1", False),
        ("application/openmetrics-text;q=2", False),
        ("application/openmetrics-text;q=nan", False),
        ("application/openmetrics-text;q=often", False),
        (",,;q=1,application/openmetrics-text", True),
    ],
)
def test_openmetrics_goes_to_who_prefers_it(accept, openmetrics):
    """OpenMetrics is chosen if it is named with a quality at least as high as that of text."""
    assert prefers_openmetrics(accept) is openmetrics


@pytest.mark.parametrize(
    ("accept_encoding", "gzip"),
    [
        ("", False),
        ("identity", False),
        ("gzip", True),
        ("GZIP", True),
        ("gzip, deflate, br", True),
        ("deflate, gzip;q=0.5", True),
        ("gzip;q=0", False),
        ("gzip;q=0.000", False),
        ("gzip; q=0.001", True),
        ("*", True),
        ("*;q=0", False),
        ("gzip;q=0,*", False),
        ("gzip,*;q=0", True),
        ("gzip;q=-1", False),
        ("deflate", False),
    ],
)
def test_gzip_goes_to_who_accepts_it(accept_encoding, gzip):
    """Gzip is chosen if it is named, or matched by a star, with a quality above zero."""
    assert accepts_gzip(accept_encoding) is gzip


@given(st.one_of(st.text(), st.text(alphabet='gzip*/,;q=0.1" \ttexplainmrc-')))
def test_any_header_gets_an_answer(header):
    """Any header results in a decision and raises no error."""
    assert prefers_openmetrics(header) in (True, False)
    assert accepts_gzip(header) in (True, False)
