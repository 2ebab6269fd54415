"""A source of machine states that queries an exporter over HTTP."""

from __future__ import annotations

from trainvitals.sources.exporter_client import ExporterClient
from trainvitals.views.machine.document import read_document
from trainvitals.views.machine.picture import Picture


class RemoteOrigin:
    """A source that fetches machine states from an exporter.

    Args:
        client: The HTTP client for the exporter.

    Attributes:
        words: The name of the source in the first line of the screen.
    """

    def __init__(self, client: ExporterClient) -> None:
        self.words = f"exporter at {client.address}"
        self._client = client

    def fetch(self) -> bytes:
        """Return the document at `/api/v1/overview`, as `ExporterClient.fetch` returns it."""
        return self._client.fetch()

    def look(self) -> Picture:
        """Return the exporter's current machine state.

        Raises:
            TrainvitalsError: The document cannot be fetched, or does not contain a machine state.
        """
        return read_document(self.fetch())

    def close(self) -> None:
        """Do nothing: each request has its own connection."""
