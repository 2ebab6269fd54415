"""The data sources, which return frozen dataclasses in base units, independently of Prometheus."""
