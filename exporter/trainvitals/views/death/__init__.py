"""Formats a diagnosis as text, Markdown and JSON."""
