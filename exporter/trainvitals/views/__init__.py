"""The views of the data: machine state, live page, terminal screen, diagnoses and plots."""
