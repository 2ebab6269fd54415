"""Runs a command so that every Python process descended from the command reports its training."""
