"""An exporter that is queried over HTTP, as the origin of a screen."""

from __future__ import annotations

from trainvitals.sources.exporter_client import ExporterClient
from trainvitals.views.machine.document import read_document
from trainvitals.views.machine.picture import Picture


class RemoteOrigin:
    """The pictures of an exporter.

    Args:
        client: The client.

    Attributes:
        words: The name at the head of the screen.
    """

    def __init__(self, client: ExporterClient) -> None:
        self.words = f"exporter at {client.address}"
        self._client = client

    def fetch(self) -> bytes:
        """Return the document of the overview, as `ExporterClient.fetch`."""
        return self._client.fetch()

    def look(self) -> Picture:
        """Return the exporter's current picture.

        Raises:
            TrainvitalsError: The picture cannot be fetched, or the answer is not a picture.
        """
        return read_document(self.fetch())

    def close(self) -> None:
        """Do nothing: each request has its own connection."""
