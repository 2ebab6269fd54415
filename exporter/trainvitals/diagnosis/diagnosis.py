"""What is told: the evidence, what was made of it, and what stands around it."""

from __future__ import annotations

from dataclasses import dataclass

from trainvitals.causes.evidence import Evidence, Gap, Host
from trainvitals.causes.judge import judge
from trainvitals.causes.verdict import Verdict

# What ended as it should, or as it was asked to.
WELL = frozenset({"finished", "running", "stop-graceful"})

_STEPS = (
    ("control groups and /proc alone", ""),
    ("the engine as well", "what it knows of containers: states, settings, events, logs"),
    ("the kernel log as well", "whom the kernel killed for memory, and GPUs that failed"),
)


@dataclass(frozen=True, slots=True)
class Reach:
    """On which step of the ladder of privileges one stands.

    Attributes:
        step: 0 control groups alone, 1 the engine as well, 2 the kernel log as well.
    """

    step: int

    @property
    def words(self) -> str:
        """What can be read on this step, and what the next would give."""
        told = f"step {self.step} of {len(_STEPS) - 1}: {_STEPS[self.step][0]}"
        return f"{told}; {self.next_step}" if self.next_step else told

    @property
    def next_step(self) -> str:
        """What the next step would give; empty on the last."""
        if self.step == len(_STEPS) - 1:
            return ""
        return f"step {self.step + 1} would give {_STEPS[self.step + 1][1]}"


@dataclass(frozen=True, slots=True)
class Death:
    """A death in a list.

    Attributes:
        name: What died.
        id: The container's ID; empty for none.
        time: When; None where nobody knows.
        exit_code: Its exit code; None where nobody knows.
        verdict: Why.
    """

    name: str
    id: str
    time: float | None
    exit_code: int | None
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One death, or the present trouble of what runs.

    Attributes:
        evidence: All that is known of it.
        verdict: What was made of that.
        asked: When that was.
        origin: Where the evidence comes from, in a few words.
        runs_since: Since when it runs again; None where it does not.
        present: The machine now; None where it is not this one.
        reach: What may be read here; None where nothing was read but a folder.
        others: What died beside it, the last first.
    """

    evidence: Evidence
    verdict: Verdict
    asked: float
    origin: str = ""
    runs_since: float | None = None
    present: Host | None = None
    reach: Reach | None = None
    others: tuple[Death, ...] = ()

    @property
    def is_running(self) -> bool:
        """Whether it is about something that runs."""
        return is_running(self.evidence)

    @property
    def is_well(self) -> bool:
        """Whether it ended as it should, or runs without a trouble that can be seen."""
        return is_well(self.verdict)

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """What could not be read, each once."""
        return tuple({gap.what: gap for gap in self.evidence.gaps}.values())


def diagnose(evidence: Evidence, *, asked: float, origin: str = "") -> Diagnosis:
    """Judge evidence of which nothing else is known."""
    return Diagnosis(evidence, judge(evidence), asked, origin)


def is_running(evidence: Evidence) -> bool:
    """Tell whether evidence is about something that runs."""
    if evidence.ended is not None or evidence.exit_code is not None or evidence.signal is not None:
        return False
    if evidence.state is not None:
        return evidence.state.status in {"running", "paused", "restarting"}
    return evidence.subject != "container" or evidence.sample is not None


def is_well(verdict: Verdict) -> bool:
    """Tell whether it ended as it should, or runs without a trouble that can be seen."""
    return verdict.reason in WELL
