"""Runs a command, so that every Python process below it reports its training by itself."""
