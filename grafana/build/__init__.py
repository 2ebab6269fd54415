"""Generation of the dashboards in `grafana/dashboards`.

The modules `fleet`, `run`, `accelerators`, `host` and `containers` each contain a function `build`
that returns a dashboard. `panels` contains a function for each type of panel; `queries` expands the
short names of matchers in queries; `layout` converts dashboards to Grafana's JSON; `palette`
defines colours, units and states; `limits` reads the thresholds of alerts.
"""
