"""The training client, which a training process imports to report its run to the exporter."""
