"""Tests for YAML files."""

from trainvitals.yamlfile import load_yaml, parse_yaml

MERGED = """
warm: &warm {limit: 80, window: 60}
hot: &hot {limit: 90, margin: 5}
card:
  <<: [*hot, *warm]
  margin: 7
copy:
  <<: *warm
  limit: 70
"""


def test_the_first_of_several_merged_mappings_wins(tmp_path):
    """The first of several merged mappings takes precedence, also with PyYAML 6.0.4."""
    path = tmp_path / "baselines.yml"
    path.write_text(MERGED, encoding="utf-8")
    for content in (load_yaml(path, flag="--baselines.file"), parse_yaml(MERGED)):
        assert content["card"] == {"limit": 90, "window": 60, "margin": 7}
        assert content["copy"] == {"limit": 70, "window": 60}
