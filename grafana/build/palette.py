"""Colours, units and states with the same meaning on every dashboard."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

# Each of these colours has one meaning.
OK, WARNING, CRITICAL, INFORMATION, UNKNOWN = "green", "orange", "red", "blue", "#808080"

# The colours of values without problems, because only problems are highlighted: numbers and words
# have the colour of text, and bands and gauges, which need a colour, are slate.
CALM, CALM_BAND = "text", "#4F6475"

# The colours of Okabe and Ito, which colour-blind people can distinguish; black and yellow, which
# are hard to see on a dark or light page, are replaced by grey and ochre.
SERIES = (
    *("#0072B2", "#E69F00", "#009E73", "#CC79A7"),
    *("#56B4E9", "#D55E00", "#B79F00", "#999999"),
)

RATIO, BYTES, BYTES_PER_SECOND, SECONDS = "percentunit", "bytes", "Bps", "s"
CELSIUS, WATTS, JOULES, HERTZ, COUNT = "celsius", "watt", "joule", "hertz", "short"
SINCE = "dateTimeFromNow"  # for times in milliseconds since 1970
SAMPLES_PER_SECOND, TOKENS_PER_SECOND = "suffix:samples/s", "suffix:tokens/s"
CORES = "suffix:cores"
REQUESTS_PER_SECOND = "reqps"
SCIENTIFIC = "sci"
TEXT = "string"  # for labels: a name such as 0013 or 1e3 is not a number
WHOLE = "locale"  # 25,120 rather than 25.1 K
TIMES = "suffix:\N{MULTIPLICATION SIGN}"


@dataclass(frozen=True, slots=True)
class State:
    """A state with its number, text and colour."""

    number: int
    text: str
    colour: str


# States by the value of the state label. A higher number is more severe, so that the maximum of
# several numbers is the most severe; Prometheus records the numbers (`run:rank_state:number`).
PHASES: Mapping[str, State] = MappingProxyType(
    {
        "train": State(3, "training", OK),
        "validation": State(4, "validation", SERIES[4]),
        "checkpoint": State(5, "checkpoint", SERIES[3]),
        "compile": State(6, "compiling", SERIES[1]),
        "init": State(7, "starting", INFORMATION),
        "idle": State(8, "idle", UNKNOWN),
    }
)
ENDED = State(2, "ended", UNKNOWN)
STALLED = State(31, "stalled", WARNING)
DIED = State(33, "died", CRITICAL)

# Accelerator states, by the label `state` of `accelerator_state`.
DEVICE_STATES: Mapping[str, State] = MappingProxyType(
    {
        "ok": State(1, "ok", OK),
        "unsupported": State(2, "unsupported", UNKNOWN),
        "resetting": State(3, "resetting", WARNING),
        "no_driver": State(4, "no driver", WARNING),
        "hung": State(5, "hung", CRITICAL),
        "lost": State(6, "lost", CRITICAL),
    }
)

# Why a held accelerator is idle, by the label `reason` of `accelerator_idle_reason`.
IDLE_REASONS: Mapping[str, State] = MappingProxyType(
    {
        "sleeps": State(1, "sleeps", OK),
        "unseen": State(2, "cannot be seen", UNKNOWN),
        "compiles": State(3, "compiles", OK),
        "computes_on_cpu": State(4, "computes on the CPU", WARNING),
        "waits_for_data": State(5, "waits for data", WARNING),
        "waits_for_rank": State(6, "waits for another rank", WARNING),
        "stopped": State(7, "is stopped", WARNING),
        "ended": State(8, "has ended", CRITICAL),
        "blocked_in_driver": State(9, "blocked in the driver", CRITICAL),
    }
)

# Throttle reasons of an accelerator, most severe first: if several apply at once, the first is
# shown.
FULL_SPEED = State(1, "full speed", OK)
THROTTLES: Mapping[str, State] = MappingProxyType(
    {
        "hw_power_brake": State(6, "power brake", CRITICAL),
        "hw_thermal": State(5, "heat, by hardware", WARNING),
        "sw_thermal": State(4, "heat, by driver", SERIES[1]),
        "hw_slowdown": State(3, "hardware slowdown", SERIES[3]),
        "sw_power_cap": State(2, "power limit", INFORMATION),
    }
)

SEVERITIES: Mapping[str, str] = MappingProxyType(
    {"critical": CRITICAL, "warning": WARNING, "info": INFORMATION, "none": UNKNOWN}
)
