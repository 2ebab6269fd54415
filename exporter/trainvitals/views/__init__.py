"""Views: the machine state, the live page, the terminal screen, diagnoses and plots."""
