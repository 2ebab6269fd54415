"""Tests for the machine as a collector in registries of prometheus_client."""

import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from trainvitals.metrics.exposition import Exposition
from trainvitals.metrics.families import Block, Family
from trainvitals.metrics.machine import Machine, MachineOptions
from trainvitals.metrics.runner import Runner
from trainvitals.prometheus import MachineCollector, convert_block

SOURCE_ROOT = Path(__file__).parents[2] / "exporter"
HISTOGRAM = (
    ("_bucket", (("le", "1.0"),)),
    ("_bucket", (("le", "+Inf"),)),
    ("_sum", ()),
    ("_count", ()),
)
FAMILIES = (
    Family("probe_seconds_total", "counter", "C.", (("", (("n", "1"),)), ("", (("n", "2"),)))),
    Family("probe_info", "info", "I.", (("", (("version", 'a"b'),)),)),
    Family("probe_ratio", "gauge", "G."),
    Family("probe_unknown", "unknown", "U."),
    Family("probe_latency_seconds", "histogram", "H.", HISTOGRAM),
)
VALUES = (1.5, 2, 1, 0.25, 7, 3, 5, 9.5, 5)


@pytest.fixture
def machine():
    """This machine without accelerators, containers and the metrics of the process itself."""
    machine = Machine(MachineOptions(disabled=("process", "accelerator", "container")))
    yield machine
    machine.close()


def names_of(page):
    """Return the names of all samples of a page."""
    return {
        sample.name for family in text_string_to_metric_families(page) for sample in family.samples
    }


def test_every_type_is_converted():
    """A registry writes the families of a block as the same bytes as the exporter."""
    block = Block("shape", lambda: FAMILIES, VALUES)
    registry = SimpleNamespace(collect=lambda: convert_block(block))
    assert generate_latest(registry) == Exposition().write([block])
    assert generate_openmetrics(registry) == Exposition(openmetrics=True).write([block])


def test_a_registry_has_the_names_of_the_exporter(machine):
    """A registry has the same metric names as the exporter's page."""
    registry = CollectorRegistry()
    registry.register(MachineCollector(machine))
    page = Exposition().write(machine.runner.snapshot().blocks).decode()
    names = names_of(page)
    assert names_of(generate_latest(registry).decode()) == names
    assert {"memory_usage_bytes", "host_boot_time_seconds", "trainvitals_build_info"} <= names
    assert "process_cpu_seconds_total" not in names
    openmetrics = generate_openmetrics(registry).decode()
    assert len(list(parse_openmetrics(openmetrics))) == page.count("# TYPE ")


def test_registering_reads_nothing():
    """Registering a collector does not read it, so a hanging source delays no program start."""
    asked = []

    def read(_):
        asked.append(1)

    probe = SimpleNamespace(
        name="probe",
        read=read,
        express=lambda _: (),
        complaint=lambda _: None,
        omitted=lambda _: 0,
        close=lambda: None,
    )
    runner = Runner([probe])
    registry = CollectorRegistry()
    registry.register(MachineCollector(SimpleNamespace(runner=runner)))
    Counter("own", "The program's own.", registry=registry)
    assert asked == []
    assert "own_total" in names_of(generate_latest(registry).decode())
    assert asked == [1]
    runner.close()


def test_a_collection_ends_at_its_deadline():
    """A collector that exceeds the deadline is reported as failed."""
    heal = threading.Event()
    probe = SimpleNamespace(name="hung", read=lambda _: heal.wait(), close=lambda: None)
    runner = Runner([probe])
    registry = CollectorRegistry()
    registry.register(MachineCollector(SimpleNamespace(runner=runner), deadline_seconds=0.1))
    page = generate_latest(registry).decode()
    assert 'trainvitals_collector_success{collector="hung"} 0.0\n' in page
    heal.set()
    runner.close()


def test_a_closed_collector_says_so_instead_of_hanging(machine):
    """Collecting from a closed collector raises an error at once."""
    collector = MachineCollector(machine)
    collector.close()
    with pytest.raises(RuntimeError, match="was closed, or created before a fork"):
        list(collector.collect())


def test_it_lives_beside_the_collectors_of_prometheus_client():
    """In the default registry, no metric is defined twice."""
    code = """
from prometheus_client import REGISTRY, generate_latest
from trainvitals.prometheus import MachineCollector
collector = MachineCollector()
REGISTRY.register(collector)
print(generate_latest().decode())
collector.close()
"""
    answer = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(SOURCE_ROOT)},
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    types = [line.split()[2] for line in answer.stdout.splitlines() if line.startswith("# TYPE")]
    assert len(types) == len(set(types))
    assert {"process_cpu_seconds_total", "python_info", "memory_usage_bytes"} <= set(types)
    assert "Traceback" not in answer.stderr
