"""The page that says where is what: whatever it names is there, and what was named is on it."""

import importlib
import re
import shlex
from functools import cache
from pathlib import Path

import pytest
import yaml

from trainvitals.cli import build_parser
from trainvitals.doctor import choose_checks

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/seeds.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip().replace("\x00", "|") for cell in line.replace(r"\|", "\x00").split("|")[1:-1]]
    for line in PAGE.splitlines()
    if line.startswith("| ") and not line.startswith(("| ---", "| named"))
]
CODE, LINK = re.compile(r"`([^`]+)`"), re.compile(r"\(([^)]+)\)$")
NAMES = sorted(
    {(name, LINK.search(more)[1]) for _, here, more in ROWS for name in CODE.findall(here)}
)

# To import Lightning takes seconds; what the callback can do is in the class below it.
CALLBACK = "trainvitals.lightning.ResourceMonitorCallback"
BELOW = "trainvitals.training.resourcemonitor.ResourceMonitor"

# What the five documents name: what a person would look for on the page.
NAMED = {
    "Resource Monitoring and Troubleshooting": """
        nvidia-smi --query-gpu lsof fuser nvcc HF_TOKEN login whoami check_port find_available_port
        check_dependencies requirements.txt diagnose_cuda get_gpu_memory_usage clear_gpu_memory
        MemoryMonitor update reset max_allocated setup_logger training.log log_time train_step
        nvmlDeviceGetCount nvmlDeviceGetName nvmlDeviceGetMemoryInfo nvmlDeviceGetUtilizationRates
        memory_allocated memory_reserved max_memory_allocated cpu_percent cpu_freq cpu_count
        virtual_memory swap_memory disk_usage disk_io_counters cudnn get_device_capability
        record_shapes profile_memory with_stack key_averages export_chrome_trace trace.json
        cuda_time_total self_cuda_memory_usage retry_with_backoff max_retries base_delay max_delay
        exponential_base download_model CircuitBreaker CircuitState failure_threshold timeout
        resource_monitoring_practice.ipynb
    """,
    "System Resource Monitoring & Alerting": """
        ResourceMonitorCallback enabled log_interval gpu_monitoring cpu_monitoring io_monitoring
        alert_gpu_underutilization alert_memory_pressure alert_io_bottleneck gpu_util_threshold
        memory_threshold io_wait_threshold export_timeseries timeseries_path get_gpu_metrics
        get_cpu_memory_metrics get_io_metrics check_alerts gpu_0_util gpu_0_power_w io_wait_pct
        memory_process_mb resource_logs/epoch_N.csv configs/callbacks/resource_monitor.yaml
        ocr/callbacks/resource_monitor.py callbacks/__init__.py .gitignore GPUtil pynvml psutil
        tests/test_resource_monitor.py scripts/plot_resources.py resource_timeline.png nvtop
        performance_monitor.py polygon_cache_logger.py ocr/train.py
    """,
    "GPU Runner Monitoring & Diagnostics": """
        setup-docker-logging.sh runner-dashboard.sh monitor-runner.sh diagnose-container-death.sh
        tmux apt-get diagnosis-$(date runner-<hostname>-<timestamp>.log ~/runner-monitoring/*.log
        0 137 139 143 dmesg OOMKilled free --memory-swap=16g prune runs/*/ /var/lib/docker
        runner-monitor.service docker.service log_gpu_memory MONITORING.md stats logs ps journalctl
    """,
    "Monitoring and Observability": """
        monitor-up 3000 9090 9200 gaudi3admin hpu_utilization_percent hpu_memory_used_bytes
        hpu_memory_total_bytes hpu_temperature_celsius hpu_power_watts training_samples_per_second
        training_tokens_per_second training_samples_total training_loss training_accuracy
        validation_loss validation_accuracy batch_processing_time model_forward_time
        backward_pass_time optimizer_step_time cpu_utilization_percent memory_usage_bytes
        disk_io_bytes network_io_bytes export_hpu_metrics get_hpu_utilization start_http_server
        HPUHighTemperature HPULowUtilization TrainingStalled HighMemoryUsage SlowBatchProcessing
        StructuredFormatter hpu_id batch_idx /health /ready health_check readiness_check
        hpu_available hpu_count memory_usage disk_space model_loaded data_available hpu_initialized
        infrastructure_health.sh ping TrainingMonitor start_epoch update_batch get_throughput
        hl-smi htop iotop iostat netstat ss gaudi3-trainer HPU Infrastructure
    """,
    "Monitoring Guide": """
        tensorboard 6006 artifacts/experiments/*/logs/ artifacts/experiments/*/checkpoints/
        artifacts/experiments/*/config.yaml val_loss val_iou val_dice taskmgr vm_stat
        monitor_system matplotlib awk torch.profiler.profile nethogs glances nvtop gpustat
        monitor_crackseg.sh /var/log/crackseg_monitoring.log mail hooks.slack.com Discord
        Environment Active Completed Failed GPU System Disk Temperature Average IoU Dice Issues
        Next Efficiency Model Utilization Resolved Improvements Daily Weekly
    """,
}


# What "Monitoring and Observability" has a person do in each of its common issues.
STEPS = {
    "HPUHighTemperature": ("cooling system", "batch size", "learning rate"),
    "HPULowUtilization": ("increase the batch size", "data loader", "graph compilations"),
    "TrainingOutOfMemory": (
        "gradient checkpointing",
        "smaller model",
        "smaller batch size",
        "mixed precision",
    ),
    "TrainingThroughputDrop": ("trainvitals profile", "data loading", "network"),
}


@pytest.fixture(scope="module")
def parser():
    """Build the parser of all commands once."""
    return build_parser()


@cache
def read(path):
    """Return the text of a file."""
    return path.read_text(encoding="utf-8")


@cache
def list_alerts():
    """Name every alert of the rules."""
    return {
        rule["alert"]
        for path in (ROOT / "prometheus/rules").glob("*.yml")
        for group in yaml.load(read(path), Loader=yaml.CSafeLoader).get("groups", ())
        for rule in group["rules"]
        if "alert" in rule
    }


def try_command(parser, text):
    """Parse a line as the command would; names of checks are looked up too."""
    try:
        options = parser.parse_args(shlex.split(text.split(" >> ")[0])[1:])
    except SystemExit as error:
        raise AssertionError(text) from error
    if checks := getattr(options, "checks", None):
        assert choose_checks(checks.split(","))


def find_script(text):
    """Return the command that a line with a script comes to; empty for one in Python."""
    name, *words = text.split()
    found = re.search(r'^exec (.+) "\$@"$', read(ROOT / name), re.MULTILINE)
    return " ".join([found[1], *words]) if found else ""


def find_attribute(name):
    """Import a name, which may be an attribute of a class of a module."""
    words = name.split(".")
    for number in range(len(words), 0, -1):
        try:
            found = importlib.import_module(".".join(words[:number]))
        except ModuleNotFoundError:
            continue
        for word in words[number:]:
            found = getattr(found, word)
        return found
    raise AssertionError(name)


def test_the_callback_can_do_what_the_class_below_it_can():
    """So that its methods can be looked up there."""
    text = read(ROOT / "exporter/trainvitals/lightning.py")
    assert "\nclass ResourceMonitorCallback(ResourceMonitor, " in text


def test_the_page_has_rows():
    """Each with what is named, where it is, and where to read on."""
    assert len(ROWS) > 200
    assert all(len(row) == 3 and all(row) for row in ROWS)


@pytest.mark.parametrize(("name", "link"), NAMES)
def test_what_is_named_is_there(name, link, parser):
    """A command with its flags, a file, a name to import, an alert, or a word of the page linked."""
    if "trainvitals " in name:
        try_command(parser, name[name.index("trainvitals ") :])
    elif name.startswith("scripts/") and (line := find_script(name)):
        try_command(parser, line)
    elif name.startswith("make "):
        assert f"\n{name.split()[1]}:" in read(ROOT / "Makefile")
    elif name.startswith("trainvitals."):
        find_attribute(name.replace(CALLBACK, BELOW))
    elif "/" in name[1:] and not name.startswith("/"):
        assert (ROOT / name).exists() or name in read(ROOT / "docs" / link.split("#")[0])
    elif name not in list_alerts():
        word = re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])")
        pages = (link.split("#")[0], "metrics.md", "diagnosis.md")
        assert any(word.search(read(ROOT / "docs" / page)) for page in pages)


@pytest.mark.parametrize("title", NAMED)
def test_nothing_is_missing(title):
    """What a document names stands in the first column of its table."""
    text = PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]
    columns = " ".join(line.split(" | ")[0] for line in text.splitlines() if line[:2] == "| ")
    assert [name for name in NAMED[title].split() if name not in columns] == []


@pytest.mark.parametrize("alert", STEPS)
def test_a_runbook_has_the_steps_of_the_document(alert):
    """Under "What to do", whatever else stands there."""
    text = read(ROOT / "docs/runbooks" / f"{alert}.md").split("## What to do")[1]
    assert [step for step in STEPS[alert] if step not in text.split("## Silence")[0]] == []


@pytest.mark.parametrize("link", sorted({LINK.search(more)[1] for *_, more in ROWS}))
def test_what_is_linked_is_there(link):
    """The page that has more, and its heading."""
    path, _, anchor = link.partition("#")
    headings = re.findall(r"^#+ (.+)$", read(ROOT / "docs" / path), re.MULTILINE)
    anchors = {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}
    assert not anchor or anchor in anchors
