"""The picture of a machine that page, terminal and API show, made of its readings."""
