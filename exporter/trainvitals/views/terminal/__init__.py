"""`trainvitals top`: the picture of the machine, drawn in a terminal."""
