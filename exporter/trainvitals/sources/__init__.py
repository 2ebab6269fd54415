"""Sources: reading the world into frozen dataclasses, in base units, independent of Prometheus."""
