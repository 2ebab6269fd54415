"""Renderings of the machine: the picture, the live page, the terminal, plots."""
