"""The machine state for the page, the terminal and the API, derived from collector readings."""
