"""A training process without the training: writes a run file and does as it is told.

Run as `python writer.py SOURCE_ROOT DIRECTORY RANK`; each line of its standard input is a command,
each line of its standard output an answer.
"""

import os
import sys
import time
from pathlib import Path

sys.path.insert(0, sys.argv[1])

from trainvitals.runfile import STATE, STEP, Identity, State
from trainvitals.training.recorder import Recorder, create_run_file, read_self


def main():
    """Write the run file and obey."""
    ticks, boot_id, namespace = read_self()
    identity = Identity(
        "run",
        rank=int(sys.argv[3]),
        pid=os.getpid(),
        start_ticks=ticks,
        boot_id=boot_id,
        pid_namespace=namespace,
        created_time=time.time(),
    )
    recorder = Recorder(create_run_file(identity, Path(sys.argv[2])))
    say_state(recorder, State.RUNNING)
    print(recorder.path, flush=True)
    for line in sys.stdin:
        name, *arguments = line.split()
        print(COMMANDS[name](recorder, *arguments), flush=True)


def step(recorder, loss):
    """Publish a step."""
    recorder.step.words[STEP["loss"]] = float(loss)
    recorder.step.publish(time.monotonic_ns(), time.time())


def metric(recorder, name, value):
    """Publish a free metric."""
    number = recorder.find_metric(name, "")
    recorder.state.words[STATE[f"metric_{number}"]] = float(value)
    say_state(recorder, State.RUNNING)


def say_state(recorder, state):
    """Publish how the run stands."""
    words = recorder.state.words
    words[STATE["state"]] = float(state)
    words[STATE["state_time"]] = time.time()
    words[STATE["names"]] = float(recorder.name_count)
    recorder.state.publish(time.monotonic_ns(), time.time())


def finish(recorder):
    """End well; the process stays."""
    say_state(recorder, State.FINISHED)
    recorder.close()


def fail(recorder, words):
    """End badly; the process stays."""
    recorder.leave_last_words(words)
    say_state(recorder, State.FAILED)
    recorder.close()


def leave(_, code):
    """End the process without a word."""
    os._exit(int(code))


def fork(_):
    """Leave a child that keeps the descriptor and the mapping."""
    pid = os.fork()
    while pid == 0:
        time.sleep(60)
    return pid


def read_copy(recorder):
    """Read the file as an innocent user would, which drops the lock."""
    return len(recorder.path.read_bytes())


def eat(_, mebibytes):
    """Take memory and use it."""
    return len(bytes([1]) * (int(mebibytes) << 20))


def spin(recorder):
    """Publish steps as fast as it goes, until killed."""
    print("spinning", flush=True)
    count = 0
    while True:
        count += 1
        recorder.step.words[STEP["steps"]] = float(count)
        recorder.step.words[STEP["samples"]] = float(count)
        recorder.step.publish(time.monotonic_ns(), time.time())


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
