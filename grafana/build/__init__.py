"""Writes the boards in `grafana/dashboards`: one file for each board, and what they share.

`fleet`, `run`, `accelerators`, `host` and `containers` each have one function `build` that returns a
board. `panels` has a function for each kind of panel; `queries` fills in what every query selects
by; `layout` makes Grafana's JSON of it all; `palette` has the house's colours, units and states;
`limits` reads the numbers that alerts compare with.
"""
