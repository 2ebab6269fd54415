"""The training client: what a training loop tells, at a few microseconds a step."""
