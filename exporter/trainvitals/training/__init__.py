"""The training client: what a training loop tells, at a microsecond a step."""
