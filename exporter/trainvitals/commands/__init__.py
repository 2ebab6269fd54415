"""The subcommands of `trainvitals`, with one module for each."""
