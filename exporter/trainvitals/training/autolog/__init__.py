"""Observes PyTorch training loops in programs that do not report their training themselves."""
