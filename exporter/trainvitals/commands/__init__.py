"""The commands that have a room of their own: flags in, exit code out."""
