"""Readings of containers from the container engine, the control groups and the kernel log."""
