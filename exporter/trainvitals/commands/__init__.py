"""The subcommands of `trainvitals`; each module contains one or several related subcommands."""
