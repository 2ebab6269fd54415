"""The pages of the exporter and what they are made of."""
