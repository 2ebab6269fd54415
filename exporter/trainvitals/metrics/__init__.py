"""Turns readings into the text of `/metrics`: collectors, families, exposition, and the runner."""
