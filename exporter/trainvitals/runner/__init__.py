"""Runs a command so that every Python process below the command reports its training."""
