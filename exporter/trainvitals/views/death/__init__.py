"""A diagnosis as text, Markdown and JSON."""
