"""Further messages of schedulers, services, engines, frameworks and libraries."""

from __future__ import annotations

import pytest

from tests.unit.verdicts.causes.test_words import STEPS, judge_log, raised

# Reasons, and the last line of the log.
PRINTED = (
    ("time-limit", "=>> PBS: job killed: walltime 86418 exceeded limit 86400"),
    ("time-limit", "TERM_RUNLIMIT: job killed after reaching LSF run time limit."),
    (
        "time-limit",
        "Warning  DeadlineExceeded  1m  job-controller  Job was active longer than specified deadline",
    ),
    ("time-limit", "timeout: sending signal TERM to command 'python'"),
    ("oom-cgroup", "=>> PBS: job killed: mem 67109220kb exceeded limit 67108864kb"),
    ("oom-cgroup", "TERM_MEMLIMIT: job killed after reaching LSF memory usage limit."),
    ("oom-cgroup", "slurmstepd: error: Exceeded job memory limit at some point."),
    ("oom-cgroup", "systemd[1]: train.service: Failed with result 'oom-kill'."),
    (
        "slurm-rejected",
        "srun: error: Unable to create step for job 7: Invalid generic resource (gres) specification",
    ),
    (
        "slurm-rejected",
        "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified",
    ),
    (
        "host-shutdown",
        "The runner has received a shutdown signal. This can happen when the runner service is stopped.",
    ),
    ("host-shutdown", "TPU worker 3 was preempted"),
    ("host-shutdown", "Instance i-0ab12 was preempted by the cloud at 10:11:12"),
    ("term-outside", "*** SIGTERM received at time=1735055234 on cpu 51 ***"),
    ("term-outside", "./run.sh: line 12: 40211 Terminated              python train.py"),
    ("kill-outside", "train-1 exited with code 137"),
    ("time-limit", "=>> PBS: job killed: cput 86500 exceeded limit 86400"),
    ("time-limit", "job 33.1 exceeded hard wallclock time"),
    ("time-limit", "MOAB_INFO:  job exceeded wallclock limit"),
    ("oom-cgroup", "job 3132467 exceeded MEM usage hard limit (2528 > 1126)"),
    (
        "oom-cgroup",
        "The replica master 0 ran out-of-memory and exited with a non-zero status of 9(SIGKILL).",
    ),
    ("oom-cgroup", "Memory cgroup out of memory: Killed process 811 (python) total-vm:1kB"),
    ("slurm-rejected", "sbatch: error: QOSMaxSubmitJobPerUserLimit"),
    (
        "host-shutdown",
        "Your spot instance has been interrupted: instance terminated by the provider",
    ),
    ("host-shutdown", "Error: The job was preempted because the node was taken back"),
    ("pod-evicted", "The node was low on resource: memory. Threshold quantity: 100Mi"),
    (
        "pod-evicted",
        "Normal  Stopped  2m  batch/job-kueue-controller  Preempted to accommodate a workload (UID: 1a) due to prioritization",
    ),
    ("kill-outside", "   Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:9"),
    (
        "image-pull",
        'Error from server (BadRequest): container "fit" in pod "fit-0" is waiting to start: trying and failing to pull image',
    ),
    ("hangup", "Hangup"),
    ("pids-limit", "./run.sh: fork: retry: Resource temporarily unavailable"),
    ("disk-full", "docker: write /var/lib/docker/tmp/GetImageBlob1: no space left on device."),
    ("port-in-use", "Port 6006 is in use by another program."),
    ("port-in-use", "lightgbm.basic.LightGBMError: Binding port 12400 failed"),
    ("gpu-ecc", "NVRM: Xid (PCI:0000:03:00): 94, pid=1, name=python, Contained: SM (0x1)"),
    (
        "rendezvous-timeout",
        "bootstrap.cc:89 CCOM WARN Timeout waiting for incoming connection (waited 120 sec)",
    ),
    ("rendezvous-timeout", "ORTE was unable to reliably start one or more daemons."),
    (
        "nccl-timeout",
        "EI0002: The wait execution of the Notify register times out. Reason: no record from remote rank",
    ),
    ("nccl-timeout", "EI0006: Getting socket times out. Reason: Remote Rank did not send"),
    ("cuda-oom", "CUDA Error: out of memory"),
    ("cuda-oom", "CUDA Error: out of memory: Resource temporarily unavailable"),
    ("cuda-oom", "Cuda malloc failed"),
    (
        "cuda-oom",
        "F0301 09:12:44.7 311 blob.cpp:90] Check failed: error == cudaSuccess (2 vs. 0)  out of memory",
    ),
    ("cuda-oom", "[LightGBM] [Fatal] [CUDA] out of memory /b/cuda_row_data.cu 77"),
    ("cuda-oom", "n3:5:9 [1] include/alloc.h:99 NCCL WARN Cuda failure 2 'out of memory'"),
    ("cuda-oom", "n3:5:9 [1] include/alloc.h:99 NCCL WARN Failed to CUDA calloc 4194304 bytes"),
    ("cuda-oom", "enforce allocating <= available failed, 8589934592 > 1073741824"),
    ("cuda-oom", "hipMalloc failed: not enough memory"),
    ("nan-loss", "Batch 12: Invalid loss, terminating training"),
    ("nan-loss", "mmengine - INFO - loss become infinite or NaN!"),
    ("library-mismatch", "CUDA Setup failed despite GPU being available."),
    ("pids-limit", "sh: 0: Cannot fork"),
    (
        "torchrun-child",
        "mpirun detected that one or more processes exited with non-zero status, thus causing",
    ),
    ("kill-outside", "     34858 Killed                | gmm-acc --rand ark:- ark:2.acc"),
    (
        "torchrun-child",
        "UNAVAILABLE: Task /job:jax_worker/replica:0/task:37 heartbeat timeout. This indicates that the remote task has failed, got preempted, or crashed unexpectedly.",
    ),
    (
        "torchrun-child",
        "F client.h:75] Terminating process because the coordinator detected missing heartbeats. This most likely indicates that another task died",
    ),
    (
        "torchrun-child",
        "op_kernel.cc:1502] OP_REQUIRES failed at mpi_ops.cc:422 : Aborted: Horovod has been shut down. This was caused by an exception on one of the ranks",
    ),
    (
        "cuda-no-kernel",
        "F gpu_launch_config.h:174] Check failed: err == hipSuccess (98 vs. 0)",
    ),
    ("cuda-no-kernel", "F x.cu.cc:31] Check failed: error == cudaSuccess (209 vs. 0)"),
    ("cuda-illegal", "F x.cu.cc:31] Check failed: error == cudaSuccess (700 vs. 0)"),
    (
        "net-connect",
        "wandb.errors.errors.CommError: Run initialization has timed out after 90.0 sec.",
    ),
    (
        "ray-node-lost",
        "The actor died because its node has died. Node Id: b157c93de960",
    ),
    (
        "start-gpu-toolkit",
        'Warning FailedCreatePodSandBox 4m kubelet Failed to create pod sandbox: rpc error: code = Unknown desc = failed to get sandbox runtime: no runtime for "nvidia" is configured',
    ),
    ("kill-outside", "make: *** [Makefile:12: train] Error 137"),
    ("kill-outside", "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)"),
    ("kill-outside", "run.sh: Zeile 4:  9120 Getötet                 python train.py"),
    ("segfault", "train-1 exited with code 139"),
    ("segfault", "*** SIGSEGV (@0x0) received by PID 812 (TID 0x7f) from PID 0; stack trace: ***"),
    ("segfault", "Speicherzugriffsfehler (Speicherabzug geschrieben)"),
    (
        "segfault",
        "[n7:812  :0:812] Caught signal 11 (Segmentation fault: address not mapped to object at address 0x8)",
    ),
    ("abort", "corrupted double-linked list (not small)"),
    ("abort", "LLVM ERROR: Cannot select: intrinsic %llvm.nvvm.shfl.sync.bfly.i32"),
    (
        "sigbus-shm",
        "It is possible that dataloader's workers are out of shared memory. Please try to raise your shared memory limit.",
    ),
    ("gpu-reset", "HW Exception by GPU node-1 (Agent handle: 0x55d1) reason :GPU Hang"),
    (
        "nccl-timeout",
        "[rank3]:[E101 ProcessGroupNCCL.cpp:1375] [PG 0 Rank 3] ProcessGroupNCCL's watchdog got stuck for 600 seconds without making progress in monitoring enqueued collectives.",
    ),
    (
        "image-pull",
        "slurmstepd: error: pyxis:     [ERROR] URL https://nvcr.io/proxy_auth returned error code: 401 Unauthorized",
    ),
    (
        "image-pull",
        "FATAL:   While making image from oci registry: error fetching image: failed to get checksum: manifest unknown",
    ),
    (
        "start-other",
        'docker: Error response from daemon: Conflict. The container name "/fit" is already in use by container "0ab1".',
    ),
    (
        "pod-admission",
        "Warning  UnexpectedAdmissionError  3m  kubelet  Allocate failed due to no healthy devices present; cannot allocate unhealthy devices nvidia.com/gpu",
    ),
    (
        "ray-oom",
        "(raylet) 2 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers crashed due to other reasons at node (ID: 5d1e)",
    ),
    (
        "seccomp",
        "OpenBLAS blas_thread_init: pthread_create failed for thread 1 of 24: Operation not permitted",
    ),
    (
        "tpu-busy",
        "W0120 09:31:27.902210 2391 device_util.cc:204] open(/dev/vfio/0): Device or resource busy",
    ),
    (
        "credentials",
        "wandb: ERROR api_key not configured (no-tty). call wandb.login(key=[your_api_key])",
    ),
    (
        "slurm-preempted",
        "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2025-01-02T03:04:05 DUE TO PREEMPTION ***",
    ),
)
# Reasons, and the exception that ends the program.
RAISED = (
    (
        "cuda-oom",
        "RuntimeError: Resource exhausted: Failed to allocate request for 1.00GiB on device ordinal 2",
    ),
    (
        "cuda-oom",
        "mxnet.base.MXNetError: src/storage/pooled_storage_manager.h:9: Memory allocation failed",
    ),
    (
        "ckpt-mismatch",
        "InvalidArgumentError: Restoring from checkpoint failed, due to a mismatch of the graphs",
    ),
    (
        "ckpt-mismatch",
        "InvalidArgumentError: Assign requires shapes of both tensors to match. lhs shape= [4] rhs shape= [9]",
    ),
    (
        "ckpt-mismatch",
        "ValueError: You are trying to load a weight file containing 9 layers into a model with 8 layers.",
    ),
    (
        "ckpt-mismatch",
        "ValueError: Layer 'head' expected 2 variables, but received 1 variables during loading.",
    ),
    (
        "ckpt-mismatch",
        "ValueError: Layer count mismatch when loading weights from file. Model expected 5 layers, found 4.",
    ),
    (
        "ckpt-mismatch",
        "ValueError: The target dict keys and state dict keys do not match at path ./params/head",
    ),
    (
        "ckpt-mismatch",
        "ValueError: User-provided restore item and on-disk value metadata tree structures do not match",
    ),
    (
        "ckpt-mismatch",
        "ZeRORuntimeException: The checkpoint being loaded used a DP world size of 16 but the current is 8.",
    ),
    ("nan-loss", "ValueError: nan loss encountered"),
    ("nan-loss", "RuntimeError: NaN or Inf loss encountered at batch 5"),
    (
        "cuda-ordinal",
        "MisconfigurationException: You requested 4 GPUs, but this node only has 2 GPUs.",
    ),
    (
        "cuda-ordinal",
        "TuneError: Insufficient cluster resources to launch trial: it requested 2 GPUs, of which there are 1.",
    ),
    (
        "credentials",
        "wandb.errors.CommError: You do not have permission to access this (Error 404: Not Found)",
    ),
    (
        "gpu-nvlink",
        "RuntimeError: CUDA error: uncorrectable NVLink error detected during the execution",
    ),
    (
        "net-connect",
        'botocore.exceptions.ConnectionClosedError: Connection was closed before we received a valid response from endpoint URL: "https://s3/x".',
    ),
    ("net-connect", "TimeoutError: [Errno 110] Connection timed out"),
    (
        "missing-file",
        "OSError: Can't load tokenizer for './out'. If you were trying to load it from the Hub",
    ),
    (
        "missing-file",
        "OSError: Error no file named pytorch_model.bin, model.safetensors found in directory ./out.",
    ),
    (
        "hf-notfound",
        "OSError: Can't load tokenizer for 'acme/fit'. If you were trying to load it from the Hub",
    ),
    (
        "library-mismatch",
        "XlaRuntimeError: INTERNAL: ptxas exited with non-zero error code 65280, output: ptxas x, line 10; fatal   : Unsupported .version 8.4; current version is '8.2'",
    ),
    ("library-mismatch", "RuntimeError: Numpy is not available"),
    (
        "library-mismatch",
        "RuntimeError: jaxlib version 0.4.20 is newer than and incompatible with jax version 0.4.13.",
    ),
    ("cuda-oom", "ResourceExhaustedError: failed to allocate memory [Op:AddV2]"),
    (
        "gloo-timeout",
        "RuntimeError: [../gloo/gloo/transport/tcp/pair.cc:525] Read timeout [10.0.0.1]:29",
    ),
    ("exception", "OSError: [Errno 28] inotify watch limit reached"),
    ("exception", "BlockingIOError: [Errno 11] Resource temporarily unavailable: '/nfs/x.h5'"),
    (
        "cuda-oom",
        "ValueError: The model's max seq len (32768) is larger than the maximum number of tokens that can be stored in KV cache (21040).",
    ),
    ("cuda-oom", "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."),
    (
        "cuda-oom",
        "onnxruntime.capi.onnxruntime_pybind11_state.RuntimeException: [ONNXRuntimeError] : 6 : BFCArena::AllocateRawInternal(size_t, bool) Failed to allocate memory for requested buffer of size 4294967296",
    ),
    (
        "cpu-alloc",
        "cv2.error: OpenCV(4.8.0) error: (-4:Insufficient memory) Failed to allocate 1440000000 bytes in function 'OutOfMemoryError'",
    ),
    ("cpu-alloc", "pyarrow.lib.ArrowMemoryError: malloc of size 9437184 failed"),
    (
        "cpu-alloc",
        "OSError: [WinError 1455] The paging file is too small for this operation to complete.",
    ),
    (
        "cuda-library",
        "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
    ),
    ("cuda-library", "RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"),
    ("cuda-library", "RuntimeError: GET was unable to find an engine to execute this computation"),
    ("cuda-assert", "RuntimeError: CUDA error: device-side assert triggered"),
    ("cuda-no-kernel", "RuntimeError: FlashAttention only supports Ampere GPUs or newer."),
    (
        "cuda-no-kernel",
        "ValueError: Bfloat16 is only supported on GPUs with compute capability of at least 8.0.",
    ),
    (
        "cuda-no-driver",
        "lightning_fabric.utilities.exceptions.MisconfigurationException: No supported gpu backend found!",
    ),
    ("cuda-no-driver", "RuntimeError: Failed to infer device type"),
    ("cuda-ordinal", "ValueError: Total available GPUs 4 is less than total desired GPUs 8"),
    ("gpu-busy", "RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable"),
    (
        "nan-loss",
        "AssertionError: Rank 0: found NaN in local grad norm in backward pass. Device: 0, node: n7",
    ),
    (
        "nan-loss",
        "FloatingPointError: Predicted boxes or scores contain Inf/NaN. Training has diverged.",
    ),
    ("nan-loss", "RuntimeError: Gradient norm is nan at step 811, stopping"),
    ("nan-loss", "ValueError: cannot convert float NaN to integer"),
    (
        "nan-loss",
        "Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.",
    ),
    ("data-corrupt", "PIL.UnidentifiedImageError: cannot identify image file '/data/a.jpg'"),
    ("data-corrupt", "OSError: image file is truncated (12 bytes not processed)"),
    ("data-corrupt", "zlib.error: Error -3 while decompressing data: incorrect header check"),
    (
        "data-corrupt",
        "pyarrow.lib.ArrowInvalid: Parquet magic bytes not found in footer. Either the file is corrupted or this is not a parquet file.",
    ),
    (
        "data-corrupt",
        "tensorflow.python.framework.errors_impl.DataLossError: corrupted record at 9912 [Op:IteratorGetNext]",
    ),
    ("data-corrupt", "tarfile.ReadError: unexpected end of data"),
    ("data-corrupt", "lmdb.CorruptedError: mdb_get: MDB_CORRUPTED: Located page was wrong type"),
    ("data-corrupt", "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)"),
    (
        "data-corrupt",
        "datasets.utils.info_utils.NonMatchingSplitsSizesError: [{'expected': 1, 'recorded': 2}]",
    ),
    (
        "ckpt-corrupt",
        "safetensors_rust.SafetensorError: Error while deserializing header: InvalidHeaderDeserialization",
    ),
    ("ckpt-corrupt", "_pickle.UnpicklingError: invalid load key, '<'."),
    (
        "file-lock",
        "BlockingIOError: [Errno 11] Unable to open file (unable to lock file, errno = 11, error message = 'Resource temporarily unavailable')",
    ),
    ("file-lock", "sqlalchemy.exc.OperationalError: (sqlite3.OperationalError) database is locked"),
    (
        "disk-full",
        'safetensors_rust.SafetensorError: Error while serializing: IoError(Os { code: 28, kind: StorageFull, message: "No space left on device" })',
    ),
    ("disk-full", "OSError: [Errno 28] No space left on device: '/out/c.pt'"),
    ("disk-full", "ray.exceptions.OutOfDiskError: Local disk is full"),
    ("io-error", "OSError: [Errno 116] Stale file handle: '/nfs/a'"),
    ("io-error", "OSError: [Errno 107] Transport endpoint is not connected: '/fuse/a'"),
    ("extension-build", "RuntimeError: Error building extension 'fused_adam'"),
    (
        "extension-build",
        "OSError: CUDA_HOME environment variable is not set. Please set it to your CUDA install root.",
    ),
    (
        "extension-build",
        "RuntimeError: Failed to find C compiler. Please specify via CC environment variable.",
    ),
    ("extension-build", "RuntimeError: Ninja is required to load C++ extensions"),
    (
        "library-mismatch",
        "ImportError: cannot import name 'EncoderDecoderCache' from 'transformers' (/x/transformers/__init__.py)",
    ),
    ("library-mismatch", "AttributeError: module 'numpy' has no attribute 'bool'."),
    ("library-mismatch", "RuntimeError: operator torchvision::nms does not exist"),
    (
        "missing-module",
        "ImportError: Using `low_cpu_mem_usage=True` requires Accelerate: `pip install accelerate`",
    ),
    ("hf-gated", "OSError: You are trying to access a gated repo."),
    (
        "hf-notfound",
        "OSError: acme/bert is not a local folder and is not a valid model identifier listed on 'https://huggingface.co/models'",
    ),
    (
        "hf-rate",
        "huggingface_hub.errors.HfHubHTTPError: 429 Client Error: Too Many Requests for url: https://huggingface.co/api/models/a",
    ),
    (
        "net-connect",
        "huggingface_hub.errors.LocalEntryNotFoundError: An error happened while trying to locate the file on the Hub and we cannot find the requested files in the local cache.",
    ),
    (
        "net-connect",
        "requests.exceptions.ReadTimeout: HTTPSConnectionPool(host='huggingface.co', port=443): Read timed out. (read timeout=10)",
    ),
    ("credentials", "botocore.exceptions.NoCredentialsError: Unable to locate credentials"),
    (
        "credentials",
        "botocore.exceptions.ClientError: An error occurred (AccessDenied) when calling the GetObject operation: Access Denied",
    ),
    (
        "credentials",
        "google.auth.exceptions.DefaultCredentialsError: Your default credentials were not found.",
    ),
    ("bad-arguments", "hydra.errors.MissingConfigException: Cannot find primary config 'train'."),
    ("bad-arguments", "omegaconf.errors.ConfigAttributeError: Key 'lr' is not in struct"),
    (
        "shape-error",
        'ValueError: Input 0 of layer "dense" is incompatible with the layer: expected axis -1 of input shape to have value 784',
    ),
    (
        "shape-error",
        "RuntimeError: The expanded size of the tensor (512) must match the existing size (768) at non-singleton dimension 2.",
    ),
    (
        "rendezvous-timeout",
        "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has failed.",
    ),
    (
        "ray-node-lost",
        "ray.exceptions.NodeDiedError: Task failed due to the node (where this task was running) was dead or unavailable.",
    ),
    (
        "ray-worker-died",
        "ray.exceptions.WorkerCrashedError: The worker died unexpectedly while executing this task.",
    ),
    (
        "hpu-oom",
        "RuntimeError: [Rank:0] FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::65536000 (62.5)MB",
    ),
    ("gpu-lost", "pynvml.NVMLError_GpuIsLost: GPU is lost"),
    (
        "nvml-mismatch",
        "pynvml.NVMLError_LibRmVersionMismatch: RM has detected an NVML/RM version mismatch.",
    ),
)


@pytest.mark.parametrize(("reason", "line"), PRINTED)
def test_a_last_line_has_its_cause(reason, line):
    """A last line of the log has the expected reason."""
    assert judge_log(*STEPS, line).reason == reason


@pytest.mark.parametrize(("reason", "message"), RAISED)
def test_an_exception_has_its_cause(reason, message):
    """An exception that ends the program has the expected reason."""
    assert judge_log(*raised(message)).reason == reason


@pytest.mark.parametrize(
    "line",
    [
        "ImportError: libcudart.so.12: cannot allocate memory in static TLS block",
        "Note: you may run out of memory on GPUs with less than 24 GB",
        "If you still get out of memory on the GPU, lower the batch size",
        "NCCL WARN Cuda host alloc failed: not enough memory on the host memory pool of GPU 0",
        "OOM when allocating on /job:localhost/device:CPU:0: failed to allocate memory",
        "DataLoader for cuda:0: shared memory allocation failed in /dev/shm",
    ],
)
def test_memory_that_is_not_a_gpus_is_not_blamed(line):
    """A message about host memory that mentions a GPU is not `cuda-oom`."""
    assert judge_log(*STEPS, line, exit_code=1).reason != "cuda-oom"


def test_a_warning_of_weights_left_out_is_not_the_cause():
    """A warning about unused weights before the training is not the cause."""
    warned = (
        "The model and the loaded state dict do not match exactly",
        "unexpected key: head.bias",
    )
    lines = raised("KeyError: 'image'")
    assert judge_log(*STEPS, *warned, *lines[len(STEPS) :], exit_code=1).reason == "exception"


def test_training_that_is_terminated_may_print_some_more():
    """Steps printed after the message that training is terminated do not change the cause."""
    end = ("Batch 12: Invalid loss, terminating training", "13/90 [=>......] - loss: nan")
    assert judge_log(*STEPS, *end, "exporting nothing").reason == "nan-loss"


def test_ranks_that_had_trained_had_met():
    """A socket timeout is a rendezvous timeout before training, and an NCCL timeout during it."""
    late = "RuntimeError: HcclAllGather, error code is 9"
    verdict = judge_log(*raised(late, "EI0006: Getting socket times out."), exit_code=1)
    assert (verdict.reason, verdict.confidence) == ("nccl-timeout", "medium")
    assert "HCCL_EXEC_TIMEOUT" in " ".join(verdict.finding.steps)
    early = judge_log(*raised(late)[len(STEPS) :], exit_code=1)
    assert (early.reason, early.confidence) == ("rendezvous-timeout", "medium")


def test_a_traceback_that_a_logger_wrote_is_read():
    """A traceback with a logger's prefix on each line is the cause, not its parent's traceback."""
    prefix = "(EngineCore_DP0 pid=17374) ERROR 09-28 15:47:{:02d} [core.py:718] "
    lines = (
        "Traceback (most recent call last):",
        '  File "/opt/v/core.py", line 709, in run',
        "    engine = Core()",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    )
    parent = (
        "Traceback (most recent call last):",
        '  File "/opt/v/main.py", line 9, in <module>',
        "RuntimeError: Engine core initialization failed. See root cause above.",
    )
    log = [prefix.format(20 + number) + line for number, line in enumerate(lines)]
    verdict = judge_log(*log, *parent)
    assert (verdict.reason, verdict.confidence) == ("cuda-oom", "high")


def test_an_abort_has_the_reason_that_the_log_names():
    """An abort by a C++ exception has the reason of the NCCL error in the log."""
    log = (
        "[rank0]:[E1] Process group watchdog thread terminated with exception: NCCL error: remote process exited",
        "terminate called after throwing an instance of 'c10::DistBackendError'",
        "Aborted (core dumped)",
    )
    assert judge_log(*STEPS, *log, exit_code=134).reason == "nccl-system"


def test_after_an_assertion_every_call_of_cuda_fails():
    """A CUDA error about memory after a device-side assertion is `cuda-assert`."""
    lost = (
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"
    )
    kernel = "Indexing.cu:1290: indexSelect: block: [654,0,0], thread: [32,0,0] Assertion `srcIndex < srcSelectDimSize` failed."
    assert judge_log(kernel, *raised(lost)).reason == "cuda-assert"
    alone = judge_log(*raised(lost))
    assert (alone.reason, alone.confidence) == ("cuda-oom", "medium")


def test_a_retry_that_a_library_announced_is_no_success():
    """A traceback after a library's last retry is the cause."""
    retrying = "WARNING - urllib3.connectionpool - Retrying (Retry(total=0)) after connection broken by 'SSLError()': /a"
    error = (
        "ssl.SSLCertVerificationError: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed"
    )
    report = "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: 1) local_rank: 0 (pid: 71)"
    assert judge_log(retrying, *raised(error)[len(STEPS) :], report).reason == "net-ssl"


def test_a_run_that_is_asked_to_end_may_go_on_for_a_while():
    """A few steps after Slurm's time limit notice do not make it a survived error."""
    end = (
        "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2025-01-02T03:04:05 DUE TO TIME LIMIT ***"
    )
    assert judge_log(*STEPS, end, *STEPS[:4]).reason == "slurm-time-limit"
    assert judge_log(*STEPS, end, *STEPS, *STEPS).reason == "unknown"


def test_openblas_interrupts_itself():
    """A KeyboardInterrupt that OpenBLAS causes is a limit of threads, not a user's interrupt."""
    line = "OpenBLAS blas_thread_init: pthread_create failed for thread 21 of 96: Resource temporarily unavailable"
    lines = raised("KeyboardInterrupt")
    assert judge_log(line, *lines[len(STEPS) :]).reason == "pids-limit"
    assert judge_log(*lines).reason == "interrupted"


@pytest.mark.parametrize(
    "line",
    [
        "n0:31:36 [4] transport/net_ib.cc:640 NCCL WARN Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory",
        "n0:31:36 [4] NCCL WARN Call to ibv_create_cq failed with error Cannot allocate memory errno 12",
        "n0:31:36 [4] misc/ibvwrap.cc:262 NCCL WARN Call to ibv_create_qp failed with error Cannot allocate memory",
        "n0:31:36 [4] NCCL WARN NET/OFI Unable to register memory (type = 2) for device 0. RC: -12, Error: Cannot allocate memory",
        "libfabric:7:1658::efa:mr:efa_mr_reg_impl():517<warn> Unable to register MR: Cannot allocate memory",
        "Unable to write to EQ: Missing event queue. err: Cannot allocate memory (-12) prov_errno: Cannot allocate memory (-12)",
        "[1741617] ib_md.c:309 UCX ERROR ibv_reg_mr(address=0x7f, length=65536, access=0xf) failed: Cannot allocate memory",
    ],
)
def test_memory_that_a_network_cannot_lock_is_not_the_allocators(line):
    """Memory that a network library cannot register is `nccl-system`, with advice on `memlock`."""
    verdict = judge_log(*STEPS, line)
    assert verdict.reason == "nccl-system"
    assert "memlock" in verdict.finding.steps[0]
    error = "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1, unhandled system error"
    last = f"Last error:\n{line.rpartition('NCCL WARN ')[2]}"
    assert judge_log(line, *raised(f"{error}\n{last}")).reason == "nccl-system"


def test_memory_that_cannot_be_registered_for_another_reason_has_other_advice():
    """If memory cannot be registered for another reason, the advice does not name `memlock`."""
    line = "n4:1:2 [4] reg:617 NCCL WARN NET/OFI Unable to register memory (type = 2) for device 4. RC: -22, Error: Invalid argument"
    verdict = judge_log(*STEPS, line)
    assert verdict.reason == "nccl-system"
    assert "memlock" not in " ".join(verdict.finding.steps)


PIN_THREAD = (
    "Exception in thread Thread-4 (_pin_memory_loop):",
    "Traceback (most recent call last):",
    '  File "/usr/lib/python3/site-packages/torch/utils/data/_utils/pin_memory.py", line 54, in _pin_memory_loop',
)


@pytest.mark.parametrize(
    "error",
    [
        "RuntimeError: received 0 items of ancdata",
        "RuntimeError: unable to open shared memory object </torch_7_8_9> in read-write mode: Too many open files (24)",
        "OSError: [Errno 24] Too many open files",
    ],
)
def test_the_loss_of_a_thread_has_the_reason_of_its_exception(error):
    """The end of the pin memory thread has the reason of the thread's exception."""
    rest = raised("RuntimeError: Pin memory thread exited unexpectedly")
    lines = (*STEPS, *PIN_THREAD, error, *rest[len(STEPS) :])
    verdict = judge_log(*lines)
    assert (verdict.reason, verdict.confidence) == ("fd-limit", "high")
    assert judge_log(*STEPS, *PIN_THREAD, error, *STEPS).reason == "unknown"


QUOTED = r"Traceback (most recent call last):\n  File \"train.py\", line 3, in <module>\n    import einops\n"
MISSING = "ModuleNotFoundError: No module named 'einops'"
SAGEMAKER = "sagemaker.exceptions.UnexpectedStatusException: Error for Training job a-1: Failed. Reason: AlgorithmError: ExecuteUserScriptError:"
COMMAND = 'Command "/opt/conda/bin/python3.11 {} --epochs 3 --loss-scale=128", exit code: 1'


@pytest.mark.parametrize(
    "lines",
    [
        raised(f'{SAGEMAKER}\nExitCode 1\nErrorMessage "{MISSING}"\n{COMMAND.format("train.py")}'),
        raised(f'{SAGEMAKER}\nExitCode 1\nErrorMessage "{MISSING}"\n{COMMAND.format("-m fit")}'),
        (f'{SAGEMAKER} ExitCode 1 ErrorMessage "{QUOTED} {MISSING}" {COMMAND.format("train.py")}',),
        (f'UserError: {{"error": {{"code": "UserError", "message": "{QUOTED}{MISSING}"}}}}',),
        (f"This step is in Error state with this message: Error (exit code 1): {QUOTED}{MISSING}",),
        raised(
            "ray.exceptions.RayTaskError(ModuleNotFoundError): ray::_Inner.train() (pid=9, ip=10.0.0.4)\n"
            f'  File "/app/train.py", line 4, in fit\n{MISSING}'
        ),
    ],
)
def test_a_launcher_quotes_the_error_of_the_program(lines):
    """A launcher's report that quotes the program's error has the reason of that error."""
    assert judge_log(*lines).reason == "missing-module"
