"""The demo (`make demo`): simulated machines, served by the real exporter to the real stack."""
