"""Tests for the golden scrape, which contains every metric of the exporter.

`make golden` rewrites `tests/golden`; the difference shows users the effect of a change.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import prometheus_client.openmetrics.parser as openmetrics
import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from tests.fakes.machine import FakeMachine
from tests.golden.machine import (
    HERE,
    HOST,
    failing_machine,
    fill_in_placeholders,
    whole_machine,
    write_openmetrics,
    write_text,
)
from tests.support.exporter_process import ExporterProcess
from trainvitals.metrics.collectors import COLLECTORS
from trainvitals.metrics.exposition import Exposition

PACKAGE = Path(__file__).parents[2] / "exporter/trainvitals"
WHOLE, WHOLE_OPENMETRICS = HERE / "metrics.prom", HERE / "metrics.openmetrics"
FAILING = HERE / "failing.prom"
FAILING_COLLECTORS = ("memory", "filesystem", "kernel", "accelerator")
READINGS = ("utilization_percent", "memory_used_bytes", "memory_total_bytes")
READINGS += ("temperature_celsius", "power_watts")

# The names that users rely on, with their types and labels.
PROMISED = {
    **{f"gpu_{reading}": ("gauge", {"device", "uuid"}) for reading in READINGS},
    **{f"hpu_{reading}": ("gauge", {"device", "uuid"}) for reading in READINGS},
    "cpu_utilization_percent": ("gauge", set()),
    "memory_usage_bytes": ("gauge", set()),
    "disk_io_bytes": ("gauge", {"direction"}),
    "network_io_bytes": ("gauge", {"direction"}),
    "host_io_wait_ratio": ("gauge", set()),
    "accelerator_utilization_ratio": ("gauge", {"kind", "device", "uuid"}),
    "accelerator_busy_seconds_total": ("counter", {"kind", "device", "uuid"}),
    "accelerator_memory_used_bytes": ("gauge", {"kind", "device", "uuid"}),
    "accelerator_memory_total_bytes": ("gauge", {"kind", "device", "uuid"}),
    "accelerator_memory_limit_bytes": ("gauge", set()),
    "accelerator_temperature_limit_celsius": ("gauge", set()),
    "accelerator_temperature_celsius": ("gauge", {"kind", "device", "uuid", "sensor"}),
    "accelerator_temperature_headroom_celsius": ("gauge", {"kind", "device", "uuid"}),
    "accelerator_power_watts": ("gauge", {"kind", "device", "uuid"}),
    "accelerator_energy_joules_total": ("counter", {"kind", "device", "uuid"}),
    "accelerator_clock_hertz": ("gauge", {"kind", "device", "uuid", "clock"}),
    "accelerator_throttle_seconds_total": ("counter", {"kind", "device", "uuid", "reason"}),
    "accelerator_ecc_corrected_errors_total": ("counter", {"kind", "device", "uuid"}),
    "accelerator_ecc_uncorrected_errors_total": ("counter", {"kind", "device", "uuid"}),
    "accelerator_xid_errors_total": ("counter", {"kind", "device", "uuid", "xid"}),
    "accelerator_xid_last_timestamp_seconds": (
        "gauge",
        {"kind", "device", "uuid", "xid", "class", "action"},
    ),
    "accelerator_info": (
        "gauge",
        {"kind", "device", "uuid", "model", "driver", "bus_id", "firmware"},
    ),
    "accelerator_up": ("gauge", {"kind", "device", "uuid"}),
    "accelerator_state": ("gauge", {"kind", "device", "uuid", "state"}),
    "accelerator_devices": ("gauge", {"kind"}),
    "container_state": ("gauge", {"name", "state"}),
    "container_health": ("gauge", {"name", "status"}),
    "container_restarts_total": ("counter", {"name"}),
    "container_deaths_total": ("counter", {"name", "reason"}),
    "container_last_exit_code": ("gauge", {"name"}),
    "container_last_death_timestamp_seconds": ("gauge", {"name"}),
    "container_last_death_info": ("gauge", {"name", "reason", "signal", "confidence"}),
    "container_oom_kills_total": ("counter", {"name", "source"}),
    "container_memory_working_set_bytes": ("gauge", {"name"}),
    "container_spec_memory_limit_bytes": ("gauge", {"name"}),
    "container_cpu_usage_seconds_total": ("counter", {"name"}),
    "accelerator_devices_expected": ("gauge", {"kind"}),
    "accelerator_processes": ("gauge", {"kind", "device", "uuid"}),
    "accelerator_recovery_action": ("gauge", {"kind", "device", "uuid"}),
    "accelerator_row_remap_failed": ("gauge", {"kind", "device", "uuid"}),
    "accelerator_row_remap_pending": ("gauge", {"kind", "device", "uuid"}),
    "accelerator_links_active": ("gauge", {"kind", "device", "uuid"}),
    "accelerator_links_expected": ("gauge", {"kind", "device", "uuid"}),
    "accelerator_pcie_link_width": ("gauge", {"kind", "device", "uuid"}),
    "accelerator_pcie_link_width_max": ("gauge", {"kind", "device", "uuid"}),
    "trainvitals_collector_success": ("gauge", {"collector"}),
    "trainvitals_collector_duration_seconds": ("gauge", {"collector"}),
    **{
        name: ("gauge", {"run", "rank"})
        for name in (
            "training_samples_per_second",
            "training_tokens_per_second",
            "training_loss",
            "training_accuracy",
            "validation_loss",
            "validation_accuracy",
            "batch_processing_time",
            "model_forward_time",
            "backward_pass_time",
            "optimizer_step_time",
            "training_process_up",
            "training_stall_threshold_seconds",
            "training_last_progress_timestamp_seconds",
            "training_nonfinite_last_timestamp_seconds",
            "training_evaluations_since_improvement",
            "training_checkpoint_last_timestamp_seconds",
            "training_checkpoint_max_age_seconds",
            "training_eta_timestamp_seconds",
            "training_client_overhead_ratio",
        )
    },
    "training_samples_total": ("counter", {"run", "rank"}),
    "training_phase": ("gauge", {"run", "rank", "phase"}),
    "training_phase_seconds_total": ("counter", {"run", "rank", "phase"}),
    "training_rank_slowdown_ratio": ("gauge", {"run", "rank", "phase"}),
    "training_process_end_timestamp_seconds": ("gauge", {"run", "rank", "reason"}),
    "training_oom_last_timestamp_seconds": ("gauge", {"run", "rank", "where"}),
    "training_data_errors_total": ("counter", {"run", "rank"}),
    "training_metric": ("gauge", {"run", "rank", "name", "split"}),
    "training_restarts_total": ("counter", {"run"}),
    "training_run_info": (
        "gauge",
        {"run", "framework", "framework_version", "client_version", "clock", "source"},
    ),
    "training_rank_info": (
        "gauge",
        {"run", "rank", "local_rank", "host_pid", "gpu_uuid", "attempt"},
    ),
}


@pytest.fixture(scope="module")
def whole():
    """The families of the golden scrape, by the name of their samples."""
    return _read_families(WHOLE.read_text(encoding="utf-8"))


def test_the_golden_scrape_is_what_the_exporter_tells(request, tmp_path):
    """The page of the golden machine equals both golden files, in both formats."""
    with whole_machine(tmp_path) as machine:
        snapshot = machine.scrape()
    text = write_text(snapshot)
    page = fill_in_placeholders(Exposition().write(snapshot.blocks).decode())
    assert re.sub(r"^# Collector .*\n", "", text, flags=re.MULTILINE) == page
    _compare(request, WHOLE, text)
    _compare(request, WHOLE_OPENMETRICS, write_openmetrics(snapshot))


def test_the_golden_scrape_of_a_failing_machine_says_what_fails(request, tmp_path):
    """Failing collectors are named with the reason, and all other metrics are present."""
    with failing_machine(tmp_path) as machine:
        snapshot = machine.scrape(FAILING_COLLECTORS)
    _compare(request, FAILING, write_text(snapshot))


def test_every_metric_that_a_collector_can_tell_is_in_a_golden_scrape(whole):
    """Each metric name in the code of a collector is part of a golden scrape."""
    known = set(whole) | set(_read_families(FAILING.read_text(encoding="utf-8")))
    assert _names_in_code() - known == set()
    assert {entry.name for entry in COLLECTORS} == _collectors_in(WHOLE) - {"trainvitals"}


def test_the_code_of_the_collectors_is_understood_by_the_test_before():
    """The search finds metric names in all forms in which collectors define metrics."""
    assert _names_in_code() > {
        "accelerator_devices",  # Family
        "accelerator_power_watts",  # gauge
        "accelerator_energy_joules_total",  # counter
        "accelerator_clock_hertz",  # Metric
        "host_disk_io_now",
        "trainvitals_collector_success",
    }


@pytest.mark.parametrize("name", PROMISED)
def test_a_promised_metric_has_its_name_type_and_labels(whole, name):
    """A metric that users rely on has the expected name, type and labels."""
    type_, labels = PROMISED[name]
    assert whole[name].type == type_
    assert {frozenset(sample.labels) for sample in whole[name].samples} == {frozenset(labels)}


def test_a_container_has_at_most_25_series(whole):
    """A container with all metrics has 25 series, which is the limit."""
    samples = [sample for family in whole.values() for sample in family.samples]
    named = [
        sample.labels.get("name") for sample in samples if sample.name.startswith("container_")
    ]
    assert Counter(named) == {"llama-train-1": 25, "sweep": 12}


@pytest.mark.parametrize("golden", [WHOLE, FAILING], ids=lambda path: path.stem)
def test_promtool_has_nothing_to_say_about_the_golden_scrape(promtool, golden):
    """`promtool check metrics` reports neither errors nor warnings."""
    checked = subprocess.run(
        [promtool, "check", "metrics"],
        input=golden.read_bytes(),
        capture_output=True,
        check=False,
        timeout=30,
    )
    assert (checked.stdout + checked.stderr).decode().splitlines() == []
    assert checked.returncode == 0


def test_the_openmetrics_page_is_strictly_valid():
    """The strict parser of prometheus_client accepts the page and reads the same values."""
    page = WHOLE_OPENMETRICS.read_text(encoding="utf-8")
    families = list(openmetrics.text_string_to_metric_families(page))
    samples = {_key(sample): sample.value for family in families for sample in family.samples}
    assert samples == _read_samples(WHOLE.read_text(encoding="utf-8"))


def test_every_help_is_one_sentence_that_ends_with_the_source(whole):
    """Every help text is one sentence, followed by the source of the metric."""
    sentence = re.compile(r"[A-Z0-9](?:[^.]|\.(?=[a-z0-9]))*\. Source: [^ ].*\.")
    assert [
        m.documentation for m in whole.values() if not sentence.fullmatch(m.documentation)
    ] == []


def test_no_label_is_on_every_series(whole):
    """No label is present on every series, because such a label belongs to the scrape target."""
    labels = [set(sample.labels) for metric in whole.values() for sample in metric.samples]
    assert set.intersection(*labels) == set()


def test_every_series_of_a_device_says_which_device(whole):
    """Each series of one accelerator has the labels `kind`, `device` and `uuid`."""
    machine_wide = {
        "accelerator_devices",
        "accelerator_devices_expected",
        "accelerator_memory_limit_bytes",
        "accelerator_temperature_limit_celsius",
    }
    for name, metric in whole.items():
        if name.startswith("accelerator_") and name not in machine_wide:
            for sample in metric.samples:
                assert {"kind", "device", "uuid"} <= set(sample.labels), sample


def test_counters_and_nothing_else_end_in_total(whole):
    """The name of a metric ends in `_total` if and only if the metric is a counter."""
    for name, metric in whole.items():
        assert (metric.type == "counter") == name.endswith("_total"), name


def test_a_rank_has_at_most_80_series(whole):
    """A rank with all metrics has 80 series, which is the limit."""
    counts = Counter(
        (sample.labels["run"], sample.labels["rank"])
        for metric in whole.values()
        for sample in metric.samples
        if "rank" in sample.labels
    )
    assert max(counts.values()) == 80
    own = [sample.labels["name"] for sample in whole["training_metric"].samples]
    assert own.count("val_iou") == 2


@pytest.mark.parametrize(("links", "most"), [(0, 700), (18, 700 + 8 * 8)])
def test_eight_gpus_and_the_host_are_about_700_series(tmp_path, links, most):
    """The exporter's page for 8 GPUs with one process each has about 700 series.

    NVLink adds eight series for each GPU.
    """
    machine = FakeMachine(tmp_path, gpus=8)
    for slot in range(8):
        machine.processes(slot, [(4200 + slot, 1 << 30)])
        machine.gpu(slot).nvlink_count = links
    paths = (f"--path.procfs={HOST / 'proc'}", f"--path.sysfs={HOST / 'sys'}")
    arguments = (*paths, "--accelerators.expected=gpu=8")
    with machine, ExporterProcess(tmp_path, machine, arguments=arguments) as exporter:
        page = exporter.scrape_until(lambda page: len(page.find("accelerator_up")) == 8)
    assert page.value("trainvitals_collector_success", collector="cpu") == 1
    assert len(page.find("accelerator_process_memory_used_bytes")) == 8
    assert (page.find("accelerator_links_active") == []) == (links == 0)
    assert most - 64 < len(page.samples) <= most


def _compare(request: pytest.FixtureRequest, golden: Path, text: str) -> None:
    if request.config.getoption("--update-golden"):
        golden.write_text(text, encoding="utf-8")
    assert text.splitlines() == golden.read_text(encoding="utf-8").splitlines()


def _read_families(page: str) -> dict[str, Metric]:
    """Return families by the names on the page, because the parser removes the suffix `_total`."""
    families = text_string_to_metric_families(page)
    return {m.name + "_total" * (m.type == "counter"): m for m in families}


def _read_samples(page: str) -> dict[object, float]:
    metrics: Iterable[Metric] = _read_families(page).values()
    return {_key(sample): sample.value for metric in metrics for sample in metric.samples}


def _key(sample) -> tuple[str, frozenset[tuple[str, str]]]:
    return sample.name, frozenset(sample.labels.items())


def _names_in_code() -> set[str]:
    """Return the first argument of each call that creates a family."""
    makers = {"Family", "Metric", "gauge", "counter"}
    names = set()
    for path in [
        *(PACKAGE / "metrics/collectors").glob("*.py"),
        PACKAGE / "metrics/collector_metrics.py",
    ]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in makers:
                first = node.args[0] if node.args else None
                if isinstance(first, ast.Constant):
                    names.add(first.value)
    return names


def _collectors_in(golden: Path) -> set[str]:
    page = golden.read_text(encoding="utf-8")
    return set(re.findall(r"^# Collector (\w+):", page, flags=re.MULTILINE))
