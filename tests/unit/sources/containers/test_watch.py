"""Tests for the watch over containers, event by event, with an engine that answers from a table."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainvitals.sources.containers.comparison import Comparison
from trainvitals.sources.containers.container_state import ContainerState
from trainvitals.sources.containers.death_handler import DeathHandler
from trainvitals.sources.containers.deaths import EvidenceBuilder
from trainvitals.sources.containers.engine import EngineClient, EngineError
from trainvitals.sources.containers.events import ContainerEvent
from trainvitals.sources.containers.evidence import Evidence
from trainvitals.sources.containers.following import Following
from trainvitals.sources.containers.inspector import Inspector
from trainvitals.sources.containers.journal import Journal
from trainvitals.sources.containers.registry import ContainerRegistry
from trainvitals.sources.containers.schedule import Schedule, TaskQueue
from trainvitals.sources.containers.watch import Watch
from trainvitals.sources.files import Roots
from trainvitals.sources.host.kernel_log import KernelLog
from trainvitals.verdicts.causes.judge import judge

A, B, C = "a1" * 32, "b2" * 32, "c3" * 32
T = 1_800_000_000.0


def write_time(seconds: float | None) -> str:
    """Return a time in the engine's format, to the microsecond."""
    if seconds is None:
        return "0001-01-01T00:00:00Z"
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds % 1 * 1e6):06d}Z"


def describe(
    container: str,
    name: str,
    status: str,
    *,
    started: float | None = None,
    finished: float | None = None,
    exit_code: int = 0,
    restarts: int = 0,
    error: str = "",
    pid: int = 4242,
) -> dict[str, object]:
    """Return an engine's description of a container."""
    return {
        "Id": container,
        "Name": f"/{name}",
        "RestartCount": restarts,
        "State": {
            "Status": status,
            "ExitCode": exit_code,
            "Error": error,
            "Pid": pid if status == "running" else 0,
            "StartedAt": write_time(started),
            "FinishedAt": write_time(finished),
        },
        "HostConfig": {"Memory": 64 << 20},
    }


def as_status(state: object) -> object:
    """Return the status that the container list has for a state."""
    return state.get("Status") if isinstance(state, dict) else state


class Table(EngineClient):
    """An engine client that answers from a table and can run callbacks during an answer."""

    def __init__(self) -> None:
        super().__init__("unix:///nobody")
        self.described: dict[str, Mapping[str, object]] = {}
        self.listed: list[tuple[str, str, str]] | None = None
        self.meanwhile: list[Callable[[], object]] = []
        self.logs_until: list[float | None] = []

    def version(self) -> Mapping[str, object]:
        """Return the version as Docker does."""
        return {"Version": "26.1.5"}

    def list_containers(self) -> tuple[Mapping[str, object], ...]:
        """Return the list of the described containers, and run the callbacks."""
        found = tuple(
            {"Id": id_, "Names": [document.get("Name")], "State": as_status(document.get("State"))}
            for id_, document in self.described.items()
        )
        self._let_it_happen()
        return found

    def inspect(self, container: str) -> Mapping[str, object]:
        """Return the description from before the callbacks, which run during the request."""
        found = self.described.get(container)
        self._let_it_happen()
        if found is None:
            raise EngineError("inspect", "there is none", "look", status=404)
        return found

    def logs(
        self,
        container: str,  # noqa: ARG002 - the signature of the base class
        *,
        tail: int = 0,  # noqa: ARG002
        since: float | None = None,  # noqa: ARG002
        until: float | None = None,
    ) -> tuple[str, ...]:
        """Return no lines, and record the requested end time."""
        self.logs_until.append(until)
        return ()

    def _let_it_happen(self) -> None:
        happening, self.meanwhile = self.meanwhile, []
        for task in happening:
            task()


class Queue(TaskQueue):
    """A task queue that runs its tasks on request, in order or in random order."""

    def __init__(self) -> None:
        super().__init__(Schedule(name="none"))
        self.tasks: list[Callable[[], object]] = []

    def do(self, task: Callable[[], object]) -> None:
        """Add a task to the end of the queue."""
        self.tasks.append(task)

    def do_after(self, seconds: float, task: Callable[[], object]) -> None:  # noqa: ARG002
        """Add a task to the end of the queue, as no test waits."""
        self.tasks.append(task)

    def run(self, choice: random.Random | None = None) -> None:
        """Run all tasks, including those that the tasks add."""
        while self.tasks:
            self.tasks.pop(choice.randrange(len(self.tasks)) if choice else 0)()


class Faults(logging.Handler):
    """A logging handler that collects logged errors, which indicate bugs."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Collect the message of a log record."""
        self.found.append(record.getMessage())


@contextmanager
def watch_for_faults() -> Iterator[None]:
    """Fail if an error is logged during the block."""
    faults, logger = Faults(), logging.getLogger("trainvitals")
    logger.addHandler(faults)
    try:
        yield
    finally:
        logger.removeHandler(faults)
    assert faults.found == []


class Scene:
    """The objects that watch containers, without any thread."""

    def __init__(self, directory: Path) -> None:
        self.engine = Table()
        self.queue = Queue()
        self.journal = Journal(directory / "deaths")
        self.kmsg = directory / "kmsg"
        self.registry = ContainerRegistry()
        self.kernel_log = KernelLog(self.kmsg)
        roots = Roots(directory, directory, directory)
        builder = EvidenceBuilder(self.kernel_log, self.registry, roots=roots)
        following = Following(None)
        self.handler = DeathHandler(
            self.engine,
            self.registry,
            builder,
            following,
            self.queue,
            journal=self.journal,
            judge=judge,
        )
        self.builder = builder
        inspector = Inspector(self.engine, self.registry, self.handler, following)
        self.comparison = Comparison(
            self.engine, self.registry, inspector, self.handler, self.queue, journal=self.journal
        )
        self.watch = Watch(
            self.registry, self.handler, inspector, self.comparison, following, self.queue
        )

    def tell(self, *actions: str, container: str = A, name: str = "train", **more: object) -> None:
        """Send events that are written as `action@seconds`, with the seconds after T."""
        for text in actions:
            action, _, seconds = text.partition("@")
            at = T + float(seconds)
            self.watch.take_event(ContainerEvent(at, action, container, name, **more))  # type: ignore[arg-type]

    def compare(self) -> None:
        """Report a connection, and run all tasks."""
        self.watch.note_connect(None)
        self.queue.run()

    def count(self, name: str = "train") -> int:
        """Return the number of deaths of the container with a name."""
        return sum(self.registry.containers[name].deaths.values())

    def __getitem__(self, name: str) -> ContainerState:
        """Return the state of the container with a name."""
        return self.registry.containers[name]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """Return a scene without containers and events."""
    (tmp_path / "kmsg").touch()
    return Scene(tmp_path)


def test_an_answer_of_before_the_end_does_not_bring_it_back(scene):
    """A `die` event is newer than an inspection from before the end, so the container has ended."""
    scene.engine.described[A] = describe(A, "train", "running", started=T)
    scene.tell("create@0", "start@0")

    def end() -> None:
        scene.tell("die@1", exit_code=3)
        scene.engine.described[A] = describe(A, "train", "exited", started=T, finished=T + 1)

    scene.engine.meanwhile = [end]
    scene.queue.run()
    assert (scene["train"].status, scene["train"].pid) == ("exited", None)
    assert scene.count() == 1


def test_an_answer_of_before_the_next_start_does_not_end_it(scene):
    """A `start` event is newer than an inspection from before it, so the container is running."""
    scene.tell("create@0", "start@0")
    scene.queue.run()
    scene.tell("update@0.5")
    scene.engine.described[A] = describe(A, "train", "exited", started=T, finished=T + 1)

    def start_again() -> None:
        scene.tell("die@1", "start@1.2")
        scene.engine.described[A] = describe(A, "train", "running", started=T + 1.2, pid=7)

    scene.engine.meanwhile = [start_again]
    scene.queue.tasks.pop(0)()
    assert (scene["train"].status, scene["train"].pid) == ("running", 7)


def test_what_comes_while_the_list_is_made_is_not_lost(scene):
    """A container that is newer than the engine's list is neither removed nor dead."""
    scene.compare()

    def make() -> None:
        scene.tell("create@0", "start@0")

    scene.engine.meanwhile = [make]
    scene.watch.note_connect(None)
    scene.queue.tasks.pop(0)()
    assert scene["train"].removed is None
    scene.queue.run()
    assert (scene["train"].status, scene.count()) == ("running", 0)


def test_events_told_again_after_the_comparison_count_nothing_twice(scene):
    """A death that was found in the list is not counted again when its event arrives."""
    scene.engine.described[A] = describe(A, "train", "running", started=T)
    scene.compare()
    scene.watch.note_gap("cut off")
    scene.engine.described[A] = describe(
        A, "train", "running", started=T + 10, finished=T + 9, restarts=1
    )
    scene.watch.note_connect(None)
    scene.queue.tasks.pop(0)()  # only the comparison; the death's verdict comes later
    scene.tell("die@9", exit_code=139)
    scene.tell("start@10.001")
    scene.queue.run()
    train = scene["train"]
    assert (scene.count(), train.restarts, train.status) == (1, 1, "running")
    assert train.last_death is not None
    assert (train.last_death.exit_code, train.last_death.time) == (139, T + 9)
    scene.tell("die@20", exit_code=1)
    scene.queue.run()
    assert scene.count() == 2


def test_events_told_again_before_the_comparison_count_nothing_twice(scene):
    """A death whose event has arrived is not counted again by the comparison with the list."""
    scene.engine.described[A] = describe(A, "train", "running", started=T)
    scene.compare()
    scene.watch.note_gap("cut off")
    scene.engine.described[A] = describe(
        A, "train", "running", started=T + 10, finished=T + 9, restarts=1
    )
    scene.watch.note_connect(None)
    scene.tell("die@9", exit_code=139)
    scene.tell("start@10.001")
    scene.queue.run()
    assert (scene.count(), scene["train"].restarts) == (1, 1)


def test_a_start_without_an_end_before_it_is_an_unseen_death(scene):
    """A second `start` event without a `die` event counts as a death with an unknown exit code."""
    scene.tell("create@0", "start@0", "start@60")
    scene.queue.run()
    train = scene["train"]
    assert train.last_death is not None
    assert (scene.count(), train.restarts, train.last_death.exit_code) == (1, 1, None)


def test_an_end_whose_start_was_not_told_counts(scene):
    """Two `die` events at different times are two deaths, and a repeated event is none."""
    scene.tell("create@0", "start@0", "die@1", "die@7")
    scene.queue.run()
    assert scene.count() == 2
    scene.tell("die@7")
    scene.queue.run()
    assert scene.count() == 2


def test_a_restart_within_the_second_keeps_code_time_and_events_of_the_first_end(scene):
    """A quick restart does not change the recorded exit code, times and events of the death."""
    scene.tell("create@0", "start@0")
    scene.tell("die@1", exit_code=137)
    scene.engine.described[A] = describe(
        A, "train", "running", started=T + 1.1, finished=T + 1, restarts=1
    )
    scene.tell("start@1.1")
    scene.tell("oom@0.9")
    scene.queue.run()
    (entry,) = scene.journal.read_entries()
    evidence = entry.evidence
    assert (evidence.exit_code, evidence.ended, evidence.started) == (137, T + 1, T)
    assert evidence.events is not None
    assert [event.action for event in evidence.events] == ["create", "start", "oom", "die"]
    assert scene.engine.logs_until == [T + 1.05]
    assert (scene["train"].status, scene["train"].restarts) == ("running", 1)


def test_an_answer_ahead_of_its_events_counts_no_restart_twice(scene):
    """A restart that the engine's count already includes is not counted again by its event."""
    scene.tell("create@0", "start@0")
    scene.queue.run()
    scene.tell("die@1")
    scene.engine.described[A] = describe(A, "train", "running", started=T + 3, restarts=2)
    scene.tell("start@2")
    scene.queue.run()
    scene.tell("die@2.5", "start@3")
    scene.queue.run()
    assert (scene["train"].restarts, scene.count()) == (2, 2)
    scene.tell("create@0", "start@0", container=B, name="other")
    scene.engine.described[B] = describe(B, "other", "running", started=T + 2, restarts=1)
    scene.queue.run()
    scene.tell("die@1", "start@2", container=B, name="other")
    scene.queue.run()
    assert scene["other"].restarts == 1


def test_compose_makes_a_service_anew_and_the_counts_go_on(scene):
    """If Compose replaces a container, the new container takes over the name and the counts."""
    scene.tell("create@0", "start@0")
    scene.queue.run()
    scene.tell("create@10", container=B, name="a1a1_train")
    scene.tell("die@11", exit_code=143)
    scene.tell("destroy@11.1")
    scene.tell("rename@11.2", container=B, name="train")
    scene.tell("start@11.3", container=B)
    scene.queue.run()
    assert list(scene.registry.containers) == ["train"]
    assert (scene["train"].id, scene["train"].status, scene.count()) == (B, "running", 1)
    assert scene.registry.find(A) is None


def test_a_namesake_shows_that_the_one_before_is_gone(scene):
    """If a new container has the same name, the previous container is reported as dead."""
    scene.tell("create@0", "start@0")
    scene.tell("create@9", "start@9", container=B)
    scene.queue.run()
    assert (scene["train"].id, scene["train"].status, scene.count()) == (B, "running", 1)


def test_a_late_word_of_the_one_before_does_not_touch_its_namesake(scene):
    """Late events of a replaced container count its death and do not change the new container."""
    scene.tell("create@0", "start@0", container=B)
    scene.tell("die@0.1", "destroy@0.2", container=A)
    scene.queue.run()
    assert (scene["train"].id, scene["train"].status, scene.count()) == (B, "running", 1)


def test_a_removal_before_the_end_is_one_death(scene):
    """A `destroy` event before the `die` event is one death, with the exit code of the latter."""
    scene.tell("create@0", "start@0", "destroy@1")
    scene.tell("die@1.1", exit_code=5)
    scene.queue.run()
    train = scene["train"]
    assert train.last_death is not None
    assert (scene.count(), train.last_death.exit_code) == (1, 5)
    assert train.removed is not None


def test_what_was_dead_or_failed_at_the_first_look_counts_at_no_later_one(scene):
    """Deaths before the first comparison are not counted by later comparisons."""
    scene.engine.described = {
        A: describe(A, "old", "exited", started=T, finished=T + 1, exit_code=1),
        B: describe(B, "typo", "created", exit_code=127, error="no such file"),
        C: describe(C, "again", "restarting", started=T, finished=T + 1, exit_code=1),
    }
    scene.compare()
    scene.watch.note_gap("cut off")
    scene.compare()
    assert [scene.count(name) for name in ("old", "typo", "again")] == [0, 0, 0]
    scene.tell("start@2", container=C, name="again")
    scene.tell("die@3", container=C, name="again", exit_code=1)
    scene.queue.run()
    assert (scene.count("again"), scene["again"].restarts) == (1, 1)


def test_events_are_evidence_again_a_minute_after_somebody_listens(scene):
    """For a container that was found running, missing events are evidence only after a minute.

    Events that did arrive are evidence at once.
    """
    now = time.time()
    for container, name in ((A, "long"), (B, "short"), (C, "killed")):
        scene.engine.described[container] = describe(container, name, "running", started=now - 9e3)
    scene.compare()
    for container, name, after in ((A, "long", 120.0), (B, "short", 5.0), (C, "killed", 5.0)):
        more = {"container": container, "name": name}
        if name != "short":
            scene.tell(f"kill@{now + after - T}", signal=9, **more)
        scene.tell(f"die@{now + after + 0.1 - T}", exit_code=137, **more)
    scene.queue.run()
    reasons = {entry.evidence.name: entry.evidence.events for entry in scene.journal.read_entries()}
    assert reasons["short"] is None
    assert [event.action for event in reasons["long"] or ()] == ["kill", "die"]
    assert [event.action for event in reasons["killed"] or ()] == ["kill", "die"]
    for name in ("long", "killed"):
        death = scene[name].last_death
        assert death is not None
        assert death.reason == "kill-operator"


def test_a_start_that_the_list_had_before_it_was_told_was_heard(scene):
    """If the list shows a start before its event arrives, the death has all events as evidence."""
    now = time.time()
    scene.engine.described[A] = describe(A, "train", "running", started=now)
    scene.compare()
    scene.tell(f"create@{now - T}", f"start@{now + 0.01 - T}")
    scene.tell(f"die@{now + 1 - T}", exit_code=137)
    scene.queue.run()
    (entry,) = scene.journal.read_entries()
    assert [event.action for event in entry.evidence.events or ()] == ["create", "start", "die"]
    assert scene["train"].restarts == 0


def test_a_kill_whose_line_names_no_group_is_known_by_the_main_process(scene):
    """A kernel line without a control group is attributed by the PID of the main process."""
    scene.builder.catch_up()
    now = time.time()
    scene.engine.described[A] = describe(A, "train", "running", started=now, pid=3181)
    scene.tell(f"create@{now - T}", f"start@{now - T}")
    scene.queue.run()
    micros = int(time.monotonic() * 1e6)
    scene.kmsg.write_text(
        f"3,11,{micros},-;Memory cgroup out of memory: Killed process 3181 (python) "
        "total-vm:67804kB, anon-rss:16000kB, file-rss:1520kB, shmem-rss:0kB, UID:0\n"
    )
    scene.tell(f"oom@{now + 0.4 - T}")
    scene.tell(f"die@{now + 0.5 - T}", exit_code=137)
    scene.queue.run()
    train = scene["train"]
    assert train.oom_kills["kernel"] == 1
    (entry,) = scene.journal.read_entries()
    (kill,) = entry.evidence.oom_kills or ()
    assert (kill.task_memcg, kill.oom_memcg, kill.anon_rss_bytes) == (f"/{A}", f"/{A}", 16_384_000)
    assert train.last_death is not None
    assert train.last_death.reason == "oom-cgroup"


def test_a_death_that_cannot_be_judged_is_a_death(scene, monkeypatch, caplog):
    """A death is counted as `unknown` if collecting its evidence raises an exception."""

    def fail(*_: object, **__: object) -> Evidence:
        raise TypeError("a fault")

    monkeypatch.setattr(scene.builder, "build", fail)
    scene.tell("create@0", "start@0")
    scene.tell("die@1", exit_code=1)
    scene.queue.run()
    assert dict(scene["train"].deaths) == {"unknown": 1}
    assert "to judge a death failed: a fault" in caplog.text


def test_a_thousand_containers_are_there_after_one_list(scene):
    """After the first list, all its containers are known, before any container is inspected."""
    scene.engine.described = {
        f"{number:064x}": describe(f"{number:064x}", f"job-{number}", "running", started=T)
        for number in range(1000)
    }
    known_at_first: list[int] = []
    scene.engine.meanwhile = [
        lambda: scene.engine.meanwhile.append(
            lambda: known_at_first.append(len(scene.registry.containers))
        )
    ]
    scene.compare()
    assert known_at_first == [1000]
    assert all(known.attempt.started == T for known in scene.registry.containers.values())


IDS = st.sampled_from([(A, "train"), (B, "train"), (B, "other"), (C, "")])
ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)
STATUSES = ("created", "running", "paused", "restarting", "exited", "dead", "stopped", "odd")
ANSWERS = st.one_of(
    st.none(),
    st.fixed_dictionaries({}, optional={"Id": ODD, "Name": ODD, "State": ODD, "HostConfig": ODD}),
    st.builds(
        lambda status, started, lasted, restarts: describe(
            A,
            "train",
            status,
            started=T + started,
            finished=T + started + lasted,
            restarts=restarts,
        ),
        st.sampled_from(STATUSES),
        st.floats(0, 100),
        st.floats(-5, 5),
        st.integers(0, 5),
    ),
)
ACTIONS = (
    "create", "start", "die", "oom", "kill", "stop", "destroy", "pause", "unpause", "rename",
    "health_status: unhealthy", "update", "restart",
)  # fmt: skip
STEPS = st.one_of(
    st.tuples(st.just("tell"), st.sampled_from(ACTIONS), IDS, st.floats(-1e12, 1e12)),
    st.tuples(st.just("tell"), st.sampled_from(ACTIONS), IDS, st.floats(0, 100)),
    st.tuples(st.just("answer"), st.sampled_from((A, B, C)), ANSWERS),
    st.tuples(st.sampled_from(("connect", "gap", "run", "tidy"))),
)


@settings(max_examples=100)
@given(steps=st.lists(STEPS, max_size=25), seed=st.integers(0, 9))
def test_whatever_is_told_and_answered_nothing_breaks_and_no_count_falls(
    tmp_path_factory, steps, seed
):
    """No order of events and answers causes an error, and no counter ever decreases."""
    scene = Scene(tmp_path_factory.mktemp("scene"))
    choice = random.Random(seed)
    before: dict[int, tuple[ContainerState, tuple[int, ...]]] = {}
    with watch_for_faults():
        for step in steps:
            _do_step(scene, choice, *step)
            for known in scene.registry.containers.values():  # a name can pass to another container
                now = (sum(known.deaths.values()), known.restarts or 0, *known.oom_kills.values())
                _, then = before.get(id(known), (known, now))
                assert all(a <= b for a, b in zip(then, now, strict=True))
                before[id(known)] = known, now
        scene.queue.run(choice)


def _do_step(scene: Scene, choice: random.Random, kind: str, *rest: Any) -> None:
    match kind, rest:
        case "tell", (action, (container, name), seconds):
            event = ContainerEvent(T + seconds, action, container, name, exit_code=1)
            scene.watch.take_event(event)
        case "answer", (container, answer):
            scene.engine.described.pop(container, None)
            if answer is not None:
                scene.engine.described[container] = answer
        case "connect", _:
            scene.watch.note_connect(None)
        case "gap", _:
            scene.watch.note_gap("cut off")
        case "run", _:
            scene.queue.run(choice)
        case _:
            scene.registry.tidy()


@settings(max_examples=50)
@given(
    codes=st.lists(st.integers(0, 255), max_size=6),
    compares=st.sets(st.integers(0, 12)),
    seed=st.integers(0, 99),
)
def test_each_told_death_counts_once_whenever_it_is_compared(
    tmp_path_factory, codes, compares, seed
):
    """Each death counts once, whenever the containers are compared with the list."""
    scene = Scene(tmp_path_factory.mktemp("scene"))
    choice = random.Random(seed)
    scene.engine.described[A] = describe(A, "train", "created")
    scene.tell("create@-1")
    for number, code in enumerate(codes):
        at = number * 10.0
        scene.engine.described[A] = describe(
            A, "train", "running", started=T + at, finished=T + at - 1 if number else None,
            restarts=number,
        )  # fmt: skip
        _do_some(scene, choice, compare=2 * number in compares)
        scene.tell(f"start@{at + 0.01}")
        _do_some(scene, choice, compare=False)
        scene.engine.described[A] = describe(
            A, "train", "exited", started=T + at, finished=T + at + 9, exit_code=code,
            restarts=number,
        )  # fmt: skip
        _do_some(scene, choice, compare=2 * number + 1 in compares)
        scene.tell(f"die@{at + 9.01}", exit_code=code)
    scene.queue.run(choice)
    assert scene.count() == len(codes)
    assert (scene["train"].restarts or 0) == max(0, len(codes) - 1)


def _do_some(scene: Scene, choice: random.Random, *, compare: bool) -> None:
    if compare:
        scene.watch.note_connect(None)
    for _ in range(choice.randrange(4)):
        if scene.queue.tasks:
            scene.queue.tasks.pop(choice.randrange(len(scene.queue.tasks)))()
