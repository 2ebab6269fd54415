"""The machine lyra, a workstation whose small GPU is full and whose run finishes repeatedly."""

from __future__ import annotations

from fleet.cards import Card
from fleet.course import around, constant
from fleet.hosts import GIB, TIB, Life, Volume
from fleet.jobs import DEAD, FINISHED, Job
from fleet.machine import Machine, Story, assemble, name_cards, root, shared_memory, use_by
from fleet.models import RTX_2080
from fleet.runs import Run

_EVALUATIONS = 24


def build(story: Story) -> Machine:
    """Build the machine lyra."""
    names = name_cards("lyra", 1)
    unet = _train_unet(story, names)
    return assemble(
        "lyra",
        "unet-seg fills a small GPU beyond what it may, stops getting better and finishes, every "
        "45 minutes; the server of /backup does not answer",
        story,
        _LIFE,
        cards=[Card(0, names[0], RTX_2080, use_by(unet, 0), story.start)],
        runs=(unet,),
        memory_limit_bytes=int(7.5e9),
        temperature_limit_celsius=90.0,
    )


def _train_unet(story: Story, devices: tuple[str, ...]) -> Run:
    job = Job(
        "unet-seg",
        ("lightning", "2.6.6"),
        devices,
        pid=3_300,
        step_seconds=0.115,
        samples=4,
        total_steps=12_600,
        epoch_steps=525,
        loss=(1.1, 0.14),
        metrics={"val_iou": (0.12, 0.81), "val_dice": (0.2, 0.89)},
        memory_bytes=int(7.62 * GIB),
        reserved_bytes=int(7.66 * GIB),
        stale_after=6,
    )
    epoch = (("train", 60.0), ("validation", 15.0))
    script = story.script(
        ("init", 30), *epoch * _EVALUATIONS, ("checkpoint", 15), (DEAD, 885), into=1410
    )
    return Run(job, script, story.start, outcome=FINISHED)


_BACKUP = Volume(
    "/backup", "attic:/backup", "nfs4", 8 * TIB, constant(0.0), trouble="does not answer"
)
_LIFE = Life(
    cores=8,
    memory_bytes=32 * GIB,
    busy=around(0.34, 0.2, 41),
    used_bytes=around(13 * GIB, 0.05, 42),
    volumes=(root(0.48), shared_memory(16 * GIB, 0.03), _BACKUP),
    cached_bytes=constant(11 * GIB),
    read_bytes=around(4.2e7, 0.4, 43),
)
