"""Tests for the client on simulated other systems, such as macOS and Windows."""

import json
import os
import subprocess
import sys
from pathlib import Path

SOURCE_ROOT = Path(__file__).parents[2] / "exporter"
# Removes modules and functions that other systems lack.
OTHER_SYSTEM = """
import os, sys
for name in ("fcntl", "resource", "pwd", "grp", "termios"):
    sys.modules[name] = None
for name in ("posix_fallocate", "register_at_fork", "pidfd_open", "getuid", "geteuid", "uname"):
    if hasattr(os, name):
        delattr(os, name)
"""
LOOP = """
import json, trainvitals, trainvitals.logs
monitor = trainvitals.TrainingMonitor("r")
monitor.start_epoch()
for batch in monitor.batches([1, 2, 3]):
    with monitor.phase("forward"):
        pass
    monitor.update_batch(4, 5, loss=0.5)
monitor.log_validation(loss=0.25)
throughput = monitor.get_throughput()
monitor.finish()
print(json.dumps([
    monitor.samples_processed, monitor.tokens_processed, monitor.path, monitor.errors.count,
    throughput["samples_per_second"] > 0, trainvitals.log_gpu_memory() == (),
]))
"""
# The frameworks, which were built for Linux, are imported before modules are removed.
FRAMEWORKS = (
    "import psutil, torch, transformers; from lightning.pytorch import LightningModule, Trainer"
)
FIT = """
import json, logging, warnings
import trainvitals.huggingface
from trainvitals.lightning import ResourceMonitorCallback

torch.set_num_threads(1)
warnings.simplefilter("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Model(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, index):
        return self.layer(batch[0]).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


data = torch.utils.data.TensorDataset(torch.ones(32, 4))
callback = ResourceMonitorCallback(run="r", log_interval=2, write=lambda text: None)
trainer = Trainer(
    max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False,
    enable_progress_bar=False, enable_model_summary=False, callbacks=[callback],
)
trainer.fit(Model(), torch.utils.data.DataLoader(data, batch_size=4))
print(json.dumps([trainer.global_step, callback.errors.count]))
"""


def run_elsewhere(code, tmp_path, *, loaded=""):
    """Run code as on another system, and return its result and its log lines about the run."""
    answer = subprocess.run(
        [sys.executable, "-c", loaded + OTHER_SYSTEM + code],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(SOURCE_ROOT)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    told = [line for line in answer.stderr.splitlines() if "run r" in line]
    return json.loads(answer.stdout.splitlines()[-1]), told


def test_the_monitor_works_without_a_run_file(tmp_path):
    """Without a run file, throughput and counts are correct, and one warning names the reason."""
    result, told = run_elsewhere(LOOP, tmp_path)
    assert result == [12, 60, None, 0, True, True]
    assert told == [
        "the exporter cannot see run r: this system has no record locks; training goes on as it is"
    ]
