"""Tests for `docs/seeds.md`, which shows where this project implements what five documents name."""

import ast
import importlib
import inspect
import re
import shlex
from functools import cache
from pathlib import Path

import pytest
import yaml

from trainvitals.cli import build_parser
from trainvitals.doctor import CHECKS, choose_checks
from trainvitals.verdicts.causes.judge import REASONS

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

# Importing Lightning takes seconds, so the callback's base class is inspected instead.
CALLBACK = "trainvitals.lightning.ResourceMonitorCallback"
BELOW = "trainvitals.training.resourcemonitor.ResourceMonitor"

GOLDEN = ROOT / "tests/golden/metrics.prom"
VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)

# The calls in the documents of names in Python; None if no document contains a call.
CALLS = {
    "trainvitals.get_gpu_memory_usage": "()",
    "trainvitals.log_gpu_memory": "()",
    "trainvitals.MemoryMonitor": "()",
    "trainvitals.MemoryMonitor.update": "()",
    "trainvitals.MemoryMonitor.reset": "()",
    "trainvitals.logs.setup_logger": "(name, log_file=None, level=20)",
    "trainvitals.logs.log_time": "(logger, operation)",
    "trainvitals.logs.StructuredFormatter": "()",
    "trainvitals.retry_with_backoff": (
        "(max_retries=3, base_delay=1, max_delay=60, exponential_base=2)"
    ),
    "trainvitals.CircuitBreaker": "(failure_threshold=5, timeout=60)",
    "trainvitals.CircuitState": None,
    "trainvitals.alerting.notifier.Notifier": None,
    "trainvitals.prometheus.MachineCollector": None,
    CALLBACK: (
        "(enabled=True, log_interval=10, gpu_monitoring=True, cpu_monitoring=True,"
        " io_monitoring=True, alert_gpu_underutilization=True, alert_memory_pressure=True,"
        " alert_io_bottleneck=True, gpu_util_threshold=0.5, memory_threshold=0.9,"
        " io_wait_threshold=0.3, export_timeseries=True, timeseries_path='resource_logs')"
    ),
    f"{CALLBACK}.get_gpu_metrics": "()",
    f"{CALLBACK}.get_cpu_memory_metrics": "()",
    f"{CALLBACK}.get_io_metrics": "()",
    f"{CALLBACK}.check_alerts": "(metrics)",
    f"{CALLBACK}.export_timeseries": "(metrics, step)",
    "trainvitals.TrainingMonitor": "()",
    "trainvitals.TrainingMonitor.start_epoch": "()",
    "trainvitals.TrainingMonitor.update_batch": "(batch_size, sequence_length)",
    "trainvitals.TrainingMonitor.get_throughput": "()",
    "trainvitals.TrainingMonitor.profile": None,
}

# The alerts in the rows of "Critical Alerts" and "System Alerts".
CRITICAL = (
    "TrainingLossDiverging",
    "AcceleratorMemoryOverLimit",
    "TrainingLossNotFinite",
    "ValidationNotImproving",
    "HostDiskSpaceLow",
    "HostHighMemoryUsage",
    "TrainingDataErrors",
)

# Flags that the page shows without their command.
FLAGS = {
    "--no-memory": "trainvitals profile RUN --no-memory",
    "--interval": "trainvitals top --interval 5",
}

# Names that other files test, each with the file and a text that the file contains.
ELSEWHERE = {
    ".env": ("tests/unit/stack/test_env_example.py", ".env.example"),
    "summary.txt": ("tests/integration/test_profile.py", "summary.txt"),
    "trace.json.gz": ("tests/integration/test_profile.py", "trace.json.gz"),
    "/health": ("tests/integration/test_seeds.py", "/health"),
    "/ready": ("tests/integration/test_seeds.py", "/ready"),
    "checks": ("tests/integration/test_seeds.py", '["checks"]'),
    "resource_logs/epoch_N.csv": ("tests/integration/training/test_lightning.py", "epoch_0.csv"),
    "q": ("tests/integration/views/terminal/test_live.py", 'tmux.type("q")'),
    "engine": ("tests/unit/record/test_text.py", "engine     logged:"),
    "/var/log/trainvitals/runner.log": ("deploy/systemd/runner-monitor.service", "runner.log"),
    "extra": ("tests/unit/test_logs.py", "extra="),
    "runs": ("tests/integration/record/test_recording.py", '["runs"]'),
}

# Rows without a name of this project: the tests of the row, or the reason why there is none.
LIGHTNING, DAY = (
    "tests/integration/training/test_lightning.py",
    "tests/integration/report/test_day.py",
)
UNTRIED = {
    "memory trends": "two boards, which tests/integration/dashboards queries",
    "retry logic, circuit breakers": "a reference to rows above",
    "`[Resources] Batch 50:`, `[Resources] ⚠️ ALERTS:`": f"printed in {LIGHTNING}",
    "`resource_logs/` in `.gitignore`": "advice about the reader's own repository",
    "`callbacks.resource_monitor.enabled=true` on the command line": "Hydra's syntax, not ours",
    "`callbacks/__init__.py`": "there is nothing to do",
    "`GPUtil`, `pynvml`, `psutil` in `requirements.txt`": "the dependencies in pyproject.toml",
    "no GPU, no driver, no counters, Windows": "tests/integration/training/test_other_systems.py",
    "`performance_monitor.py`, `polygon_cache_logger.py`, `ocr/train.py`": "files of the reader",
    "multi-GPU support": "every metric of accelerators in the golden scrape, for two GPUs",
    "`sudo apt-get install -y tmux`": "a program of others",
    "`~/runner-monitoring/runner-<hostname>-<timestamp>.log`": (
        "scripts/monitor-runner.sh in tests/integration/test_seeds.py prints it"
    ),
    "`tail -f ~/runner-monitoring/*.log`": "a program of others, on the file above",
    "`MONITORING.md`": "this documentation itself",
    "`http://localhost:3000`, `http://localhost:9090`, port 9200": (
        "the whole stack in tests/integration/stack/test_native.py"
    ),
    "`http://localhost:6006`, images, graphs, histograms": "TensorBoard's own, which is not replaced",
    "`artifacts/experiments/*/config.yaml`": "not read",
    "`taskmgr`, `vm_stat`": "other systems, in tests/integration/training/test_other_systems.py",
    "epochs per hour, VRAM against batch size, convergence": "tests/integration/dashboards",
    "its Date, Environment": DAY,
    "Training Status: Active Experiments, Completed Today, Failed": DAY,
    "System Health: GPU Memory, System Memory, Disk Space, Temperature": DAY,
    "Performance Metrics: Average Training Time, Best IoU Today, Best Dice Today": DAY,
    "Issues, with resolution status; Next Actions": DAY,
    "Training Efficiency, Model Performance, System Utilization, Issues Resolved, Improvements": (
        "tests/integration/report/test_week.py"
    ),
}

# The names in the five documents that the page must contain.
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


# The steps in each of the common issues of "Monitoring and Observability".
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
    """Return the parser of all commands."""
    return build_parser()


@cache
def read(path):
    """Return the text of a file."""
    return path.read_text(encoding="utf-8")


@cache
def list_metrics():
    """Return the names of all metrics in the golden scrape."""
    return frozenset(re.findall(r"^# TYPE (\S+)", read(GOLDEN), re.MULTILINE))


@cache
def list_alerts():
    """Return the severities of all alerts in the rules, by name."""
    return {
        rule["alert"]: rule["labels"]["severity"]
        for path in (ROOT / "prometheus/rules").glob("*.yml")
        for group in yaml.load(read(path), Loader=yaml.CSafeLoader).get("groups", ())
        for rule in group["rules"]
        if "alert" in rule
    }


def try_command(parser, text):
    """Parse a command line, and look up the names of checks in it."""
    try:
        options = parser.parse_args(shlex.split(text.split(" >> ")[0])[1:])
    except SystemExit as error:
        raise AssertionError(text) from error
    if checks := getattr(options, "checks", None):
        assert choose_checks(checks.split(","))


def find_script(text):
    """Return the command that a script executes; an empty text for a script in Python."""
    name, *words = text.split()
    found = re.search(r'^exec (.+) "\$@"$', read(ROOT / name), re.MULTILINE)
    return " ".join([found[1], *words]) if found else ""


def find_attribute(name):
    """Import a name, which may be an attribute of a class in a module."""
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
    """The callback inherits its methods from `ResourceMonitor`, where the tests look them up."""
    text = read(ROOT / "exporter/trainvitals/lightning.py")
    assert "\nclass ResourceMonitorCallback(ResourceMonitor, " in text


def test_the_page_has_rows():
    """Each row contains what is named, where it is, and a link."""
    assert len(ROWS) > 200
    assert all(len(row) == 3 and all(row) for row in ROWS)


def list_names(kind):
    """Return the names of a kind on the page."""
    return sorted({name for name, _ in NAMES if sort_name(name) == kind})


@cache
def sort_name(name):
    """Return the kind of a name; an empty text if the kind is unknown."""
    kinds = {
        "command": "trainvitals " in name or name.startswith("scripts/"),
        "make": name.startswith("make "),
        "python": name.startswith("trainvitals."),
        "metric": name in list_metrics(),
        "alert": name in list_alerts(),
        "check": name in {check.name for check in CHECKS},
        "cause": name in REASONS,
        "parameter": name in inspect.signature(find_attribute(BELOW)).parameters,
        "variable": re.fullmatch("[A-Z]{3,}(?:_[A-Z]+)+", name) is not None,
        "flag": name in FLAGS,
        "elsewhere": name in ELSEWHERE,
        "file": (ROOT / name).is_file(),
    }
    return next((kind for kind, is_one in kinds.items() if is_one), "")


def test_every_row_is_tried():
    """Every row has a name of a known kind, or is listed with the reason why it has none."""
    unknown = [name for name, _ in NAMES if not sort_name(name)]
    assert unknown == []
    unnamed = {named for named, here, _ in ROWS if not CODE.findall(here)}
    assert unnamed == UNTRIED.keys()
    for reason in UNTRIED.values():
        for path in re.findall(r"\btests/\S+", reason):
            assert (ROOT / path).exists()


@pytest.mark.parametrize("name", list_names("command"))
def test_a_command_is_understood(name, parser):
    """Every command line on the page can be parsed with its flags."""
    line = find_script(name) if name.startswith("scripts/") else name[name.index("trainvitals ") :]
    if line:
        try_command(parser, line)
    else:
        assert name.endswith(".py")


@pytest.mark.parametrize("name", list_names("make"))
def test_a_target_is_in_the_makefile(name):
    """Every `make` target on the page exists in the Makefile."""
    assert f"\n{name.split()[1]}:" in read(ROOT / "Makefile")


@pytest.mark.parametrize("name", list_names("metric"))
def test_a_metric_has_a_sample(name):
    """Every metric on the page has a sample in the golden scrape."""
    assert re.search(rf"^{name}(?:_bucket)?[ {{]", read(GOLDEN), re.MULTILINE)


@pytest.mark.parametrize("name", list_names("alert"))
def test_an_alert_can_be_tried(name):
    """Every alert on the page has tests for promtool and a runbook."""
    assert (ROOT / f"tests/rules/{name}.yml").is_file()
    assert (ROOT / f"docs/runbooks/{name}.md").is_file()


@pytest.mark.parametrize("name", CRITICAL)
def test_an_alert_is_as_severe_as_the_document_says(name):
    """Every alert in "Critical Alerts" is critical in the rules and on the page."""
    assert "critical" in list_alerts()[name]
    (row,) = [here for _, here, _ in ROWS if f"`{name}`, critical" in here]
    assert row


@pytest.mark.parametrize("name", list_names("check"))
def test_a_check_can_be_chosen(name):
    """Every check on the page can be chosen by its name."""
    assert [check.name for check in choose_checks([name])] == [name]


@pytest.mark.parametrize("name", list_names("cause"))
def test_a_cause_has_a_case(name):
    """Every cause of death on the page is a verdict on, or a factor in, a collected death."""
    deaths = (ROOT / "tests/fixtures/deaths").glob("*.txtar")
    word = re.compile(rf"^(?:reason:|-) {name}$", re.MULTILINE)
    assert any(word.search(read(path)) for path in deaths)


@pytest.mark.parametrize("name", list_names("python"))
def test_a_name_is_called_as_in_the_document(name):
    """Every Python name on the page accepts the parameters and defaults in the documents."""
    found = find_attribute(name.replace(CALLBACK, BELOW))
    if CALLS[name] is not None:
        check_call(found, CALLS[name])


def check_call(found, written):
    """Check that a callable accepts the parameters and defaults of a call in a document."""
    given = [each for each in inspect.signature(found).parameters.values() if each.name != "self"]
    wanted = ast.parse(f"def call{written}: ...").body[0].args
    count = len(wanted.args)
    assert [each.name for each in given[:count]] == [each.arg for each in wanted.args]
    assert {each.kind for each in given[:count]} <= {inspect.Parameter.POSITIONAL_OR_KEYWORD}
    defaults = [ast.literal_eval(each) for each in wanted.defaults]
    assert [each.default for each in given[count - len(defaults) : count]] == defaults
    for rest in given[count:]:
        assert rest.default is not inspect.Parameter.empty or rest.kind in VARIADIC


def test_the_states_of_a_circuit_breaker_are_those_of_the_document():
    """The states have the names and values in the documents."""
    states = {each.name: each.value for each in find_attribute("trainvitals.CircuitState")}
    assert states == {"CLOSED": "closed", "OPEN": "open", "HALF_OPEN": "half_open"}


@pytest.mark.parametrize("name", list_names("parameter"))
def test_a_parameter_is_one_of_the_callback(name):
    """Every parameter of the callback on the page is stored as an attribute."""
    monitor = find_attribute(BELOW)(enabled=False)
    assert callable(getattr(monitor, name)) or getattr(monitor, name) is not None


@pytest.mark.parametrize("name", list_names("variable"))
def test_a_variable_is_read(name):
    """Every variable on the page is in `.env.example` or is read by the code."""
    sources = (ROOT / "exporter/trainvitals").rglob("*.py")
    assert name in read(ROOT / ".env.example") or any(f'"{name}"' in read(each) for each in sources)


@pytest.mark.parametrize("name", FLAGS)
def test_a_flag_is_understood(name, parser):
    """Every flag on the page is accepted by the command of its row."""
    try_command(parser, FLAGS[name])


@pytest.mark.parametrize("name", ELSEWHERE)
def test_what_is_tried_elsewhere_is_tried_there(name):
    """The listed test file contains the text that shows that it tests the name."""
    path, word = ELSEWHERE[name]
    assert word in read(ROOT / path)


@pytest.mark.parametrize("title", NAMED)
def test_nothing_is_missing(title):
    """Every name in a document is in the first column of the document's table."""
    text = PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]
    columns = " ".join(line.split(" | ")[0] for line in text.splitlines() if line[:2] == "| ")
    assert [name for name in NAMED[title].split() if name not in columns] == []


@pytest.mark.parametrize("alert", STEPS)
def test_a_runbook_has_the_steps_of_the_document(alert):
    """The runbook contains the steps of the document under "What to do"."""
    text = read(ROOT / "docs/runbooks" / f"{alert}.md").split("## What to do")[1]
    assert [step for step in STEPS[alert] if step not in text.split("## Silence")[0]] == []


@pytest.mark.parametrize("link", sorted({LINK.search(more)[1] for *_, more in ROWS}))
def test_what_is_linked_is_there(link):
    """Every link leads to an existing page and an existing heading."""
    path, _, anchor = link.partition("#")
    headings = re.findall(r"^#+ (.+)$", read(ROOT / "docs" / path), re.MULTILINE)
    anchors = {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}
    assert not anchor or anchor in anchors
