"""Reading the world into frozen dataclasses, in base units; nothing here knows Prometheus."""
