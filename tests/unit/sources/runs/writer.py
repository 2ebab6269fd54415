"""A process that does not train, but writes a run file and executes commands.

Run as `python writer.py SOURCE_ROOT DIRECTORY RANK RUN`; each line of its standard input is a
command, and each line of its standard output is the answer to a command.
"""

import fcntl
import mmap
import os
import struct
import sys
import time
import uuid
import zlib
from pathlib import Path

sys.path.insert(0, sys.argv[1])

from trainvitals.runfile import EMPTY_STATE, EMPTY_STEP, STATE, STEP, Identity, State
from trainvitals.runfile.codec import encode_header, encode_last_words, encode_name


class Row:
    """The step record or the state record of a run file."""

    def __init__(self, map_, at, slot_bytes, empty):
        self.map = map_
        self.at = at
        self.slot_bytes = slot_bytes
        self.words = list(empty)
        self.count = 0

    def publish(self):
        """Write the words into the slot that is to be written next."""
        self.count += 1
        self.words[3] = time.time()
        self.words[2] = time.monotonic_ns()
        row = struct.pack("<2Q", self.count, len(self.words)) + struct.pack(
            f"<{len(self.words) - 2}d", *self.words[2:]
        )
        row += struct.pack("<Q", zlib.crc32(row))
        base = self.at + self.count % 2 * self.slot_bytes
        self.map[base : base + len(row)] = row


class Recorder:
    """A run file that is written in the documented format."""

    def __init__(self, directory, rank, run):
        stat = Path("/proc/self/stat").read_text()
        boot_id = uuid.UUID(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        identity = Identity(
            run,
            rank=rank,
            pid=os.getpid(),
            start_ticks=int(stat.rpartition(")")[2].split()[19]),
            boot_id=boot_id.bytes,
            pid_namespace=Path("/proc/self/ns/pid").stat().st_ino,
            created_time=time.time(),
        )
        directory.mkdir(exist_ok=True)
        self.path = directory / f"run.{rank}.{os.getpid()}.{os.urandom(4).hex()}.tv"
        hidden = directory / f".{self.path.name}.tmp"
        self.descriptor = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        os.posix_fallocate(self.descriptor, 0, 16384)
        os.pwrite(self.descriptor, encode_header(identity), 0)
        fcntl.lockf(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        hidden.rename(self.path)
        self.map = mmap.mmap(self.descriptor, 16384)
        self.step = Row(self.map, 8192, 1024, EMPTY_STEP)
        self.state = Row(self.map, 10240, 3072, EMPTY_STATE)
        self.names = []

    def find_metric(self, name):
        """Return the number of a free metric, and add the metric if it is new."""
        if name not in self.names:
            at = 4096 + 64 * len(self.names)
            self.map[at : at + 64] = encode_name(name, "")
            self.names.append(name)
        return self.names.index(name)

    def close(self):
        """Release the lock."""
        os.close(self.descriptor)


def main():
    """Write the run file and execute the commands."""
    recorder = Recorder(Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
    say_state(recorder, State.RUNNING)
    print(recorder.path, flush=True)
    for line in sys.stdin:
        name, *arguments = line.split()
        print(COMMANDS[name](recorder, *arguments), flush=True)


def step(recorder, loss):
    """Publish a step with a loss."""
    recorder.step.words[STEP["loss"]] = float(loss)
    recorder.step.publish()


def metric(recorder, name, value):
    """Publish the value of a free metric."""
    number = recorder.find_metric(name)
    recorder.state.words[STATE[f"metric_{number}"]] = float(value)
    say_state(recorder, State.RUNNING)


def say_state(recorder, state):
    """Publish the state of the run."""
    words = recorder.state.words
    words[STATE["state"]] = float(state)
    words[STATE["state_time"]] = time.time()
    words[STATE["names"]] = float(len(recorder.names))
    recorder.state.publish()


def finish(recorder):
    """Record a successful end; the process continues."""
    say_state(recorder, State.FINISHED)
    recorder.close()


def fail(recorder, words):
    """Record a failure; the process continues."""
    text = encode_last_words(words)
    recorder.map[3840 : 3840 + len(text)] = text
    say_state(recorder, State.FAILED)
    recorder.close()


def leave(_, code):
    """End the process without recording an end."""
    os._exit(int(code))


def fork(_):
    """Start a child process that keeps the descriptor and the mapping, and return its PID."""
    pid = os.fork()
    while pid == 0:
        time.sleep(60)
    return pid


def read_copy(recorder):
    """Read the run file through a second descriptor, which releases the lock when it is closed."""
    return len(recorder.path.read_bytes())


def eat(_, mebibytes):
    """Allocate memory and write to it."""
    return len(bytes([1]) * (int(mebibytes) << 20))


def spin(recorder):
    """Publish steps as fast as possible until the process is killed."""
    print("spinning", flush=True)
    count = 0
    while True:
        count += 1
        recorder.step.words[STEP["steps"]] = float(count)
        recorder.step.words[STEP["samples"]] = float(count)
        recorder.step.publish()


COMMANDS = {
    "step": step,
    "metric": metric,
    "finish": finish,
    "fail": fail,
    "leave": leave,
    "fork": fork,
    "read_copy": read_copy,
    "eat": eat,
    "spin": spin,
}

if __name__ == "__main__":
    main()
