"""The Lightning callback on systems other than Linux."""

from tests.unit.test_other_systems import FIT, FRAMEWORKS, run_elsewhere


def test_the_callback_works_without_a_run_file(tmp_path):
    """Without Linux, a fit ends normally, its CSV file is written, and one warning is logged."""
    result, told = run_elsewhere(FIT, tmp_path, loaded=FRAMEWORKS)
    assert result == [8, 0]
    assert len(told) == 1
    rows = (tmp_path / "resource_logs" / "epoch_0.csv").read_text().splitlines()
    assert rows[0].startswith("step,timestamp,gpu_0_util,gpu_0_memory_pct,cpu_percent")
    assert len(rows) == 5
