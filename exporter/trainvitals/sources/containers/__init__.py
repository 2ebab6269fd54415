"""Containers: what engine, control groups and kernel log tell of them."""
