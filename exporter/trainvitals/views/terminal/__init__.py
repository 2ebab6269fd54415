"""`trainvitals top`: the machine state, drawn in a terminal."""
