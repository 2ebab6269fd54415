"""Tests that the dimension of a query's result is derived from metric names and arithmetic."""

import promql_parser
import pytest

from tests.unit.dashboards.dimensions import find_dimension, write_dimension


@pytest.mark.parametrize(
    ("expr", "dimension"),
    [
        ("accelerator_power_watts", "joule/s"),
        ("accelerator:temperature_headroom:celsius", "celsius"),
        ("host_network_speed_bytes", "byte/s"),
        ("rate(host_cpu_seconds_total[1m])", "a number"),
        ("rate(accelerator_energy_joules_total[1m])", "joule/s"),
        ("increase(accelerator_energy_joules_total[1d])", "joule"),
        ("time() - training_process_end_timestamp_seconds", "s"),
        ("host_time_seconds - host_boot_time_seconds", "s"),
        ("training_eta_timestamp_seconds", "moment"),
        ("1000 * max(training_process_start_time_seconds)", "date"),
        ("1 - memory_available_bytes / (memory_total_bytes > 0)", "a number"),
        ("a_seconds_sum / (a_seconds_count > 0)", "s"),
        ("histogram_quantile(0.9, sum by (le) (rate(a_seconds_bucket[5m])))", "s"),
        ("cpu_utilization_percent", "percent"),
        ("cpu_utilization_percent / 100", "a number"),
        ("memory_bytes * on (job) group_left (model) accelerator_info", "byte"),
        ("memory_bytes and on (job) up == 1", "byte"),
        ("3 * max by (run) (training_phase == 1)", "a number"),
        ("count(memory_bytes)", "a number"),
        ("memory_bytes > bool 3", "a number"),
        ("instance:disk_avail:bytes / abs(deriv(instance:disk_avail:bytes[2h]))", "s"),
    ],
)
def test_a_dimension_is_found(expr, dimension):
    """The derived dimension is the one that the unit of a panel must measure."""
    found = find_dimension(promql_parser.parse(expr))
    assert found is not None
    assert write_dimension(found) == dimension


@pytest.mark.parametrize(
    "expr",
    ["training_loss", "rate(training_samples_total[1m])", "0 * memory_bytes + training_loss"],
)
def test_what_no_name_tells_stays_open(expr):
    """If no metric name determines the dimension, the dimension is unknown."""
    assert find_dimension(promql_parser.parse(expr)) is None
