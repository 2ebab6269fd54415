"""From readings to the text of `/metrics`: collectors, families, exposition, and the runner."""
