"""Notification channels, Alertmanager's configuration, and the notifier for a training run."""
