"""The conversion of readings to the text of `/metrics`, and the runner that calls collectors."""
