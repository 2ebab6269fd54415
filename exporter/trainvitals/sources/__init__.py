"""The data sources, which do not use Prometheus and return frozen dataclasses in base units."""
