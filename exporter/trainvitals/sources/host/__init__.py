"""Readers for the host's CPU, memory, disks, network, file systems, processes and kernel log."""
