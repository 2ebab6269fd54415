"""Why something died: evidence in, a verdict out. Nothing here reads the machine."""
