"""Containers, from the engine, control groups and the kernel log."""
