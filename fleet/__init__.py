"""Recorded machines, played through the real exporter into the real stack: `make demo`."""
