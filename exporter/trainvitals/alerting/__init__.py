"""Notification channels, Alertmanager's configuration, and the notifier of a run."""
