"""A script that creates its monitor at module level and uses it in worker processes, too.

Run as `python worker_training.py KIND`: `fork`, `spawn` and `forkserver` start workers as PyTorch's
DataLoader does, and `bare` calls `os.fork`. The script trains, prints the paths of its run file and
of the workers' monitors as JSON, and waits for a line on standard input.
"""

import json
import multiprocessing
import os
import subprocess
import sys

from trainvitals import TrainingMonitor

monitor = TrainingMonitor(f"loader {sys.argv[1]}")


def work(answers):
    """Use the monitors in a worker, as a training script could by mistake, and send their paths."""
    monitor.update_batch(1000, loss=9.0)
    monitor.log(stolen=1.0)
    monitor.checkpoint_saved()
    own = TrainingMonitor("worker")
    own.update_batch(1000)
    own.finish()
    monitor.fail(ValueError("of the worker"))
    monitor.finish()
    answers.put([None if path is None else str(path) for path in (monitor.path, own.path)])


def fork_by_hand():
    """Fork a child that closes its descriptors, trains, and ends by an exception."""
    pid = os.fork()
    if pid == 0:
        os.closerange(3, 64)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        monitor.update_batch(1000, loss=9.0)
        raise ValueError("of the child")
    os.waitpid(pid, 0)


def main():
    """Start the workers, train, and print the paths."""
    kind = sys.argv[1]
    monitor.start_epoch()
    answers = []
    if kind == "bare":
        fork_by_hand()
        subprocess.run(["true"], check=True)
    else:
        context = multiprocessing.get_context(kind)
        queue = context.Queue()
        workers = [context.Process(target=work, args=(queue,), daemon=True) for _ in range(2)]
        for worker in workers:
            worker.start()
        answers = [queue.get(timeout=60) for _ in workers]
        for worker in workers:
            worker.join()
    for _ in range(10):
        monitor.update_batch(7, loss=0.5)
    monitor.log_validation(0.25, own=1.0)
    print(json.dumps([str(monitor.path), answers]), flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main()
