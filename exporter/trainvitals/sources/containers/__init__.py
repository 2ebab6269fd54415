"""Container readings from the container engine, the control groups and the kernel log."""
