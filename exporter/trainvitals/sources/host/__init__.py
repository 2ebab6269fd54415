"""The host: CPU, memory, disks, network, file systems, processes, and the kernel and its log."""
