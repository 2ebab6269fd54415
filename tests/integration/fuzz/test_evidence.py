"""Damaged evidence from untrusted users: folders of evidence, logs and kernel logs."""

import shutil
import time
from contextlib import closing

from tests.integration.fuzz.fuzzing import CANARY, TIMEOUT, fuzz, refusal
from tests.support import deaths
from tests.support.deaths import list_deaths, split_archive
from tests.support.mutations import Mutations
from tests.support.run_files import ROOT
from trainvitals.errors import ConfigurationError
from trainvitals.sources.containers.evidence_files import read_files
from trainvitals.sources.containers.evidence_folder import read_folder, save_folder
from trainvitals.sources.host.kernel_log import KernelTally
from trainvitals.verdicts.causes.diagnosis import diagnose_evidence
from trainvitals.views.death.document import format_document
from trainvitals.views.death.markdown import format_markdown
from trainvitals.views.death.report import format_report

pytestmark = TIMEOUT
FILES = (
    *("evidence.json", "inspect.json", "sample.json", "host.json", "events.jsonl", "log.txt"),
    *("pod.txt", "engine.log", "kernel.txt"),
)
GROUP = ("memory.max", "memory.events", "memory.current", "cpu.stat", "pids.max", "io.stat")
KERNEL_LOGS = ROOT / "tests/fixtures/kernel_log"


def read_archives():
    """Return the collected deaths without their expected verdicts, and a sample of a cgroup."""
    archives = [
        "".join(f"-- {file} --\n{text}" for file, text in deaths.read_files(name).items()).encode()
        for name in list_deaths()
    ]
    sample = "".join(f"-- cgroup/{name} --\n{4096 * n}\n" for n, name in enumerate(GROUP))
    host = '-- host.json --\n{"boot_time": 1795200000.5, "memory_total": 1, "cpus": 8}\n'
    return [*archives, (sample + host).encode()]


def test_no_folder_of_evidence_costs_more_than_a_refusal(tmp_path):
    """A damaged folder is diagnosed or refused in one line, and its symbolic links are not read."""
    outside = tmp_path / "outside"
    (outside / "cgroup").mkdir(parents=True)
    for path in (outside / "file", outside / "cgroup/memory.events", outside / "cgroup/memory.max"):
        path.write_text(f"{CANARY} 1\n")
    folder, saved = tmp_path / "death", tmp_path / "saved"

    def take(data):
        write_folder(folder, data, outside)
        try:
            evidence = read_folder(folder)
        except ConfigurationError as error:
            return refusal(error)
        shutil.rmtree(saved, ignore_errors=True)
        diagnosis = diagnose(evidence)
        shown = show(diagnosis)
        save_folder(saved, evidence, diagnosis.verdict, format_markdown(diagnosis))
        return shown + (saved / "evidence.json").read_text()

    names = [f"-- {name} --\n".encode() for name in FILES]
    fuzz("evidence", Mutations(read_archives(), [*names, b"../outside/file"]), take)


def write_folder(folder, data, outside):
    """Write the files of an archive; the missing files become links that lead out of the folder."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "cgroup").mkdir(parents=True)
    _, files = split_archive(data.decode(errors="surrogateescape"))
    groups = {name.partition("/")[2]: name for name in files if name.startswith("cgroup/")}
    if not groups:
        (folder / "cgroup").rmdir()
        (folder / "cgroup").symlink_to(outside / "cgroup")
    for name in (*FILES, *(groups[each] for each in GROUP if each in groups)):
        path = folder / name
        if name in files:
            path.write_bytes(files[name].encode(errors="surrogateescape"))
        elif len(data) % 2:
            path.symlink_to(outside / "file")


def diagnose(evidence):
    """Return the diagnosis of evidence that was read from files."""
    return diagnose_evidence(evidence, asked=time.time(), origin="a folder")


def show(diagnosis):
    """Return the diagnosis as text, Markdown and JSON."""
    texts = (
        format_report(diagnosis, width=80, lines=50),
        format_markdown(diagnosis, lines=50),
        format_document(diagnosis),
    )
    for text in texts:
        text.encode()  # must be possible, as each text is printed
    return "".join(texts)


def test_no_line_of_the_kernel_log_costs_a_scrape(tmp_path):
    """Damaged kernel logs are read without an error, both as `/dev/kmsg` and as evidence files."""
    device, file = tmp_path / "kmsg", tmp_path / "kernel.txt"
    device.write_bytes(b"")
    corpus = [path.read_bytes() for path in sorted(KERNEL_LOGS.iterdir())]
    corpus += [_stamp(data) for data in corpus]
    with closing(KernelTally(device)) as tally:
        assert tally.read().oom_kills is not None

        def take(data):
            with device.open("ab") as records:
                records.write(data + b"\n")
            device.chmod(0o600)
            file.write_bytes(data)
            shown = str(tally.read())
            if len(data) % 3 == 0:
                return shown
            try:
                evidence = read_files(None, file) if len(data) % 2 else read_files(file)
                return shown + show(diagnose(evidence))
            except ConfigurationError as error:
                return shown + refusal(error)

        fuzz("kernel log", Mutations(corpus, [b"Xid (PCI:0000:3b:00): 79", b"oom-kill:"]), take)


def _stamp(data):
    """Return the first 50 lines as records of `/dev/kmsg`."""
    lines = data.splitlines()[:50]
    return b"".join(b"6,%d,%d,-;%s\n" % (n, n * 1000, line) for n, line in enumerate(lines))
