"""The subcommands of `trainvitals`, one module each."""
