"""The configuration of Prometheus."""

import subprocess
from pathlib import Path

import pytest
import yaml

from trainvitals.errors import StackError
from trainvitals.stack import configuration
from trainvitals.stack.configuration import choose_prometheus_config, find_prometheus_config


def check(promtool, config):
    """Run promtool over a configuration and give its output."""
    result = subprocess.run(
        (promtool, "check", "config", config), capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_shipped_configuration_is_valid(promtool):
    """Promtool accepts the shipped prometheus.yml."""
    assert "SUCCESS" in check(promtool, find_prometheus_config())


def test_shipped_configuration_fits_the_default_port(tmp_path):
    """At the default port the shipped file itself is used and nothing is written."""
    shipped = find_prometheus_config()
    assert choose_prometheus_config(shipped, 9200, tmp_path / "copy.yml") == shipped
    assert list(tmp_path.iterdir()) == []


def test_copy_scrapes_the_other_port(promtool, tmp_path):
    """At another port a copy differs in the target, and finds the rules where they are."""
    rules = tmp_path / "shipped/rules"
    rules.mkdir(parents=True)
    (rules / "a.yml").write_text("groups: [{name: a, rules: [{record: 'a:b', expr: vector(1)}]}]\n")
    shipped = rules.parent / "prometheus.yml"
    shipped.write_text(find_prometheus_config().read_text())
    copy = choose_prometheus_config(shipped, 9300, tmp_path / "copy.yml")
    (job,) = yaml.safe_load(copy.read_text())["scrape_configs"]
    assert job == {"job_name": "trainvitals", "static_configs": [{"targets": ["127.0.0.1:9300"]}]}
    assert "1 rule files found" in check(promtool, copy)


@pytest.mark.parametrize("text", ["", "{", "scrape_configs: [{job_name: other}]", "[]"])
def test_configuration_without_the_job_is_refused(text, tmp_path):
    """A shipped file that was changed beyond recognition is named."""
    shipped = tmp_path / "prometheus.yml"
    shipped.write_text(text)
    with pytest.raises(StackError, match=r"prometheus\.yml has no job trainvitals"):
        choose_prometheus_config(shipped, 9300, tmp_path / "copy.yml")


def test_configuration_is_found_in_the_package_first(tmp_path):
    """An installed package has its own copy; without one and without a checkout, an error says so."""
    package = tmp_path / "site-packages/trainvitals/stack"
    with pytest.raises(StackError, match=r"no prometheus\.yml in .*install trainvitals again"):
        find_prometheus_config(package)
    (package / "prometheus").mkdir(parents=True)
    (package / "prometheus/prometheus.yml").touch()
    assert find_prometheus_config(package) == package / "prometheus/prometheus.yml"
    root = Path(configuration.__file__).parents[3]
    assert find_prometheus_config() == root / "prometheus/prometheus.yml"
