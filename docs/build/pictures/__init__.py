"""Draws the boards for the documents: real answers of a real Prometheus, laid out by the boards' grid.

Grafana cannot be had from a package registry, so this is not Grafana: it reads a board's JSON, asks
Prometheus what Grafana would ask (`asking`), makes of the answers what Grafana would show (`fields`,
`rows`, `units`, `colours`), and draws it with matplotlib (`page` and a module for each kind of
panel). Every picture says so at its foot. What it does not know it refuses to draw.
"""
