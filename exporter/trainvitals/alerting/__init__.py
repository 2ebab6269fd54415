"""Notification channels, Alertmanager's configuration, and the notifier in a training run."""
