"""The machine state that the page, the terminal and the API show, derived from readings."""
