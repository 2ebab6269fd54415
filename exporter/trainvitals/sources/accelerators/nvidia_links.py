"""The NVLinks of one NVIDIA GPU: the number of links that are up, and the links' errors.

The field values that count errors depend on the card. A total counts the errors of all links of the
GPU. Any other field value counts the errors of one link, and is summed over the links. If a card
supports neither a total nor a value for each link, the card does not count errors of this kind.
"""

from __future__ import annotations

import ctypes
import time

from trainvitals.sources.accelerators.nvml import ALL_LINKS, LASTING, SUCCESS, U32, Library, check
from trainvitals.sources.accelerators.nvml_fields import FieldRequest
from trainvitals.sources.accelerators.row import LINK_ERRORS

TYPE_CHECKING = False
if TYPE_CHECKING:  # imports at run time would cost memory in every reader process
    from collections.abc import Iterable

    ErrorCount = tuple[str, int, int]  # kind, field, scope

_MOST_LINKS = 36
_SECONDS_BETWEEN = 5.0

# NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL, ..._CRC_DATA_..., ..._REPLAY_..., ..._RECOVERY_...
_TOTALS = {"crc_flit": 38, "crc_data": 45, "replay": 52, "recovery": 59}
# Counters of one link: the totals, if the driver interprets their scope as a link;
# NVLINK_ERROR_DL_REPLAY, ..._DL_RECOVERY and ..._DL_CRC since Hopper;
# NVLINK_COUNT_LINK_RECOVERY_EVENTS on Blackwell.
_OF_LINKS = {
    "crc_flit": (38,),
    "crc_data": (45,),
    "replay": (52, 161),
    "recovery": (59, 162, 215),
    "crc": (163,),
}


class Links:
    """Reads the NVLinks of one GPU at most every 5 s, because each link requires an NVML call.

    If a link does not respond, its previous error counts are kept, so that the sum never decreases.

    Args:
        library: The initialized NVML library.
        handle: NVML's handle for the GPU.
    """

    def __init__(self, library: Library, handle: ctypes.c_void_p) -> None:
        self._library = library
        self._handle = handle
        self._links: list[int] = []
        self._chosen: list[ErrorCount] = []
        self._states: dict[int, bool] = {}
        self._counts: dict[ErrorCount, float] = {}
        self._latest: tuple[int | None, tuple[float | None, ...]] = None, ()
        self._read_at = float("-inf")

    def bind(self) -> None:
        """Determine the card's NVLinks and the field values that the card supports.

        Raises:
            DeviceError: The GPU cannot be read.
            DriverGoneError: The driver was unloaded, restarted or replaced.
        """
        self._links = [n for n in range(_MOST_LINKS) if self._ask_state(n)[0] not in LASTING]
        self._chosen = self._choose()
        self._request = self._make_request(self._chosen)
        sources = set(map(_name_source, self._chosen))
        self._counts = {
            count: value for count, value in self._counts.items() if _name_source(count) in sources
        }
        self._read_at = float("-inf")

    def read(self) -> tuple[int | None, tuple[float | None, ...]]:
        """Return the number of NVLinks that are up, and the error count for each of `LINK_ERRORS`.

        Each of these numbers is None if it is unknown.

        Raises:
            DeviceError: The GPU cannot be read.
            DriverGoneError: The driver was unloaded, restarted or replaced.
        """
        now = time.monotonic()
        if now - self._read_at > _SECONDS_BETWEEN:
            self._read_states()
            self._read_counts()
            active = sum(self._states.values()) if self._states else None
            self._latest = active, tuple(map(self._sum_up, LINK_ERRORS))
            self._read_at = now
        return self._latest

    def _choose(self) -> list[ErrorCount]:
        chosen = self._find_supported((kind, total, ALL_LINKS) for kind, total in _TOTALS.items())
        kinds = {kind for kind, _, _ in chosen}
        for kind, fields in _OF_LINKS.items():
            if kind in kinds or (kind == "crc" and not kinds.isdisjoint(("crc_flit", "crc_data"))):
                continue
            for field in fields:
                of_links = self._find_supported((kind, field, link) for link in self._links)
                if of_links:
                    chosen += of_links
                    kinds.add(kind)
                    break
        return chosen

    def _find_supported(self, counts: Iterable[ErrorCount]) -> list[ErrorCount]:
        wanted = list(counts)
        answers = self._make_request(wanted).ask()
        return [c for c, (code, _) in zip(wanted, answers, strict=True) if code not in LASTING]

    def _make_request(self, counts: Iterable[ErrorCount]) -> FieldRequest:
        wanted = [(field, scope) for _, field, scope in counts]
        return FieldRequest(self._library, self._handle, wanted)

    def _read_states(self) -> None:
        for link in self._links:
            code, is_up = self._ask_state(link)
            if code == SUCCESS or code in LASTING:
                self._states[link] = is_up

    def _ask_state(self, link: int) -> tuple[int, bool]:
        """Return the driver's return code, and whether a link is up.

        An idle link in a sleep state is also up.
        """
        state = U32()
        code = self._library.nvmlDeviceGetNvLinkState(self._handle, U32(link), ctypes.byref(state))
        check(code)
        return code, code == SUCCESS and state.value != 0

    def _read_counts(self) -> None:
        for count, (_, value) in zip(self._chosen, self._request.ask(), strict=True):
            if value is not None:
                self._counts[count] = value

    def _sum_up(self, kind: str) -> float | None:
        """Return the GPU's number of NVLink errors of one kind.

        The result is None if the card does not count errors of this kind, or if a counted link has
        never responded.
        """
        chosen = [count for count in self._chosen if count[0] == kind]
        if not chosen or any(count not in self._counts for count in chosen):
            return None
        return sum(value for count, value in self._counts.items() if count[0] == kind)


def _name_source(count: ErrorCount) -> tuple[str, int, bool]:
    kind, field, scope = count
    return kind, field, scope == ALL_LINKS
