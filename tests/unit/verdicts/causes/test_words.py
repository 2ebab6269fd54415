"""Messages of schedulers, launchers, frameworks and engines, each in a log alone."""

from __future__ import annotations

import pytest

from trainvitals.sources.containers.evidence import Evidence
from trainvitals.verdicts.causes.judge import judge

STEPS = tuple(f"epoch 1 step {number} loss 2.{number}" for number in range(40, 46))


def raised(*messages):
    """Return the log of a program that ends with a traceback."""
    frames = ("Traceback (most recent call last):", '  File "/srv/a/train.py", line 7, in <module>')
    return (*STEPS, *frames, "    main()", *messages)


def judge_log(*lines, **known):
    """Return the verdict on a process of which only this log is known."""
    return judge(Evidence(subject="process", name="train", log=lines, **known))


PRINTED = (
    # Slurm
    (
        "slurm-time-limit",
        "slurmstepd: error: *** JOB 77 ON n1 CANCELLED AT 2025-01-02T03:04:05 DUE TO TIME LIMIT ***",
    ),
    (
        "slurm-time-limit",
        "slurmstepd-n2: error: *** STEP 9_4.0 ON n2 CANCELLED AT 2025-01-02T03:04:05 DUE TO TIME LIMIT ***",
    ),
    (
        "slurm-preempted",
        "slurmstepd: error: *** STEP 77.batch ON n1 CANCELLED AT 2025-01-02T03:04:05 DUE TO PREEMPTION ***",
    ),
    ("slurm-node-fail", "srun: error: Node failure on n7"),
    (
        "slurm-node-fail",
        "slurmstepd: error: *** JOB 5 ON n1 CANCELLED AT 2025-01-02T03:04:05 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***",
    ),
    (
        "slurm-requeued",
        "slurmstepd: error: *** JOB 5 ON n1 CANCELLED AT 2025-01-02T03:04:05 DUE TO JOB REQUEUE ***",
    ),
    ("slurm-cancelled", "slurmstepd: error: *** JOB 5 ON n1 CANCELLED AT 2025-01-02T03:04:05 ***"),
    (
        "slurm-cancelled",
        "scancel: Terminating job 5",
        "slurmstepd: error: *** JOB 5 ON n1 CANCELLED AT 2025-01-02T03:04:05 DUE to SIGNAL Terminated ***",
    ),
    (
        "oom-cgroup",
        "slurmstepd: error: Detected 3 oom-kill event(s) in step 41.0 cgroup. Some of your processes may have been killed by the cgroup out-of-memory handler.",
    ),
    (
        "oom-cgroup",
        "slurmstepd: error: Detected 2 oom_kill events in StepId=41.4. Some of the step tasks have been OOM Killed.",
    ),
    (
        "oom-cgroup",
        "slurmstepd-n7: error: Step 41.0 exceeded memory limit (52917772 > 20971520), being killed",
        "srun: Exceeded job memory limit",
        "slurmstepd-n7: error: *** STEP 41.0 ON n7 CANCELLED AT 2023-12-13T08:58:22 ***",
    ),
    (
        "oom-cgroup",
        "slurmstepd: error: Job 41 exceeded memory limit (4325300 > 4194304), being killed",
    ),
    ("oom-cgroup", "srun: error: n7: task 4: Out Of Memory"),
    ("sigbus-shm", "srun: error: n7: task 289: Bus error"),
    ("segfault", "srun: error: n7: task 0: Segmentation fault (core dumped)"),
    ("start-cmd", "bash: line 3: torchrun: command not found"),
    ("start-perm", "bash: ./train.sh: Permission denied"),
    (
        "bad-arguments",
        "usage: train.py [-h] [--lr LR]",
        "train.py: error: unrecognized arguments: --bs 8",
    ),
    ("bad-arguments", "Error: No such option: --bs"),
    (
        "nccl-system",
        "n1:51:99 [5] ibvwrap.c:262 NCCL WARN Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx_1:1, curr state INIT, next state RTR",
    ),
    ("illegal-instr", "FatalError: `Illegal instruction` is detected by the operating system."),
    (
        "illegal-instr",
        "2018-01-02 10:20:30.4: F tensorflow/core/platform/cpu_feature_guard.cc:37] The TensorFlow library was compiled to use AVX instructions, but these aren't available on your machine.",
    ),
    ("sigbus-shm", "[n1:51 :0:99] Caught signal 7 (Bus error: nonexistent physical address)"),
    (
        "segfault",
        "[n1:51 :0:99] Caught signal 11 (Segmentation fault: address not mapped to object at address (nil))",
    ),
    # launchers
    ("term-outside", "[rank: 0] Received SIGTERM: 15"),
    ("host-shutdown", "AWS: spot instance interruption notice received, 2 minutes left"),
    (
        "nvml-mismatch",
        "2024-01-02 10:20:30.4: E tensorflow/stream_executor/cuda/cuda_diagnostics.cc:313] kernel version 418.87.0 does not match DSO version 430.50.0 -- cannot find working devices in this configuration",
    ),
    (
        "inodes-full",
        "Filesystem Inodes IUsed IFree IUse% Mounted on",
        "/dev/sdb1 61054976 61054976 0 100% /scratch",
        "OSError: [Errno 28] No space left on device: '/scratch/a'",
    ),
    (
        "exception",
        "Traceback (most recent call last):",
        '  File "a.py", line 3, in f',
        "ValueError: wrong colour",
        "srun: error: n7: task 0: Exited with exit code 1",
        "srun: Terminating StepId=5.0",
        "slurmstepd: error: *** STEP 5.0 ON n1 CANCELLED AT 2025-01-02T03:04:05 ***",
    ),
    (
        "oom-worker",
        "[2024-01-02 10:20:30,400] [ERROR] [launch.py:321:sigkill_handler] ['/usr/bin/python', '-u', 'a.py'] exits with return code = -9",
    ),
    (
        "segfault",
        "[2024-01-02 10:20:30,400] [ERROR] [launch.py:321:sigkill_handler] ['/usr/bin/python', '-u', 'a.py'] exits with return code = -11",
    ),
    (
        "abort",
        "[2024-01-02 10:20:30,400] [ERROR] [launch.py:321:sigkill_handler] ['/usr/bin/python', '-u', 'a.py'] exits with return code = -6",
    ),
    (
        "oom-worker",
        "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: -9) local_rank: 2 (pid: 81) of binary: /usr/bin/python",
    ),
    (
        "segfault",
        "E0102 10:20:30.400000 81 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: -11) local_rank: 2 (pid: 81) of binary: /usr/bin/python",
    ),
    (
        "term-outside",
        "W0102 10:20:30.400000 81 torch/distributed/elastic/agent/server/api.py:704] Received Signals.SIGTERM death signal, shutting down workers",
    ),
    (
        "term-outside",
        "WARNING:torch.distributed.elastic.agent.server.api:Received 15 death signal, shutting down workers",
    ),
    (
        "hangup",
        "WARNING:torch.distributed.elastic.agent.server.api:Received 1 death signal, shutting down workers",
    ),
    (
        "hangup",
        "W0102 10:20:30.400000 81 torch/distributed/elastic/agent/server/api.py:704] Received Signals.SIGHUP death signal, shutting down workers",
    ),
    (
        "kill-outside",
        "mpirun noticed that process rank 3 with PID 812 on node n7 exited on signal 9 (Killed).",
    ),
    (
        "segfault",
        "mpirun noticed that process rank 3 with PID 812 on node n7 exited on signal 11 (Segmentation fault).",
    ),
    ("kill-outside", "run.sh: line 4: 1812 Killed                  python train.py --bs 8"),
    ("kill-outside", "Killed"),
    ("segfault", "run.sh: line 4: 1812 Segmentation fault      (core dumped) python train.py"),
    ("illegal-instr", "run.sh: line 4: 1812 Illegal instruction     (core dumped) python train.py"),
    # Ray
    (
        "ray-oom",
        "(raylet) [2025-01-02 10:20:30,400 E 39 39] (raylet) node_manager.cc:3097: 3 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers crashed due to other reasons at node (ID: 41be, IP: 10.0.0.3) over the last time period.",
    ),
    # GPUs
    ("gpu-lost", "Unable to determine the device handle for GPU0000:03:00.0: Unknown Error"),
    (
        "cuda-illegal",
        ":0:rocdevice.cpp :2660: 1843 us: Device::callbackQueue aborting with error : HSA_STATUS_ERROR_EXCEPTION: An HSAIL operation resulted in a hardware exception. code: 0x1016",
    ),
    (
        "cuda-illegal",
        "Memory access fault by GPU node-2 (Agent handle: 0x6b21fd0) on address 0x7f1b4a80c000. Reason: Unknown.",
    ),
    ("gpu-busy", "CUDA Error: all CUDA-capable devices are busy or unavailable"),
    (
        "fabric-manager",
        "n7:21:90 [2] transport/nvls.cc:154 NCCL WARN Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA error 401 'the operation cannot be performed in the present state'. This is usually caused by a system or configuration error in the Fabric Manager or NVSwitches.",
    ),
    (
        "sigbus-shm",
        "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).",
    ),
    (
        "sigbus-shm",
        "n7:31:88 [0] NCCL WARN Error: failed to extend /dev/shm/nccl-Ui1fpj to 9637892 bytes",
    ),
    # engines
    (
        "start-gpu-toolkit",
        'docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].',
    ),
    (
        "start-gpu-toolkit",
        "docker: Error response from daemon: unknown or invalid runtime name: nvidia.",
    ),
    (
        "start-nvidia-init",
        "docker: Error response from daemon: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: error during container init: error running hook #0: error running hook: exit status 1, stdout: , stderr: Auto-detected mode as 'legacy' nvidia-container-cli: initialization error: load library failed: libnvidia-ml.so.1: cannot open shared object file: no such file or directory: unknown.",
    ),
    (
        "start-nvidia-init",
        "docker: Error response from daemon: OCI runtime create failed: container_linux.go:370: starting container process caused: process_linux.go:459: container init caused: Running hook #0:: error running hook: exit status 1, stdout: , stderr: nvidia-container-cli: initialization error: nvml error: driver not loaded: unknown.",
    ),
    (
        "start-nvidia-hook",
        "docker: Error response from daemon: OCI runtime create failed: container_linux.go:370: starting container process caused: process_linux.go:459: container init caused: Running hook #0:: error running hook: exit status 1, stdout: , stderr: nvidia-container-cli: container error: cgroup subsystem devices not found: unknown.",
    ),
    (
        "start-nvidia-hook",
        "docker: Error response from daemon: OCI runtime create failed: stderr: nvidia-container-cli: mount error: write error: /sys/fs/cgroup/devices/docker/fc84/devices.allow: operation not permitted: unknown.",
    ),
    (
        "start-cuda-too-new",
        "docker: Error response from daemon: OCI runtime create failed: stderr: nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.4, please update your driver to a newer version: unknown.",
    ),
    (
        "start-gpu-device",
        "docker: Error response from daemon: OCI runtime create failed: stderr: nvidia-container-cli: device error: 4: unknown device: unknown.",
    ),
    (
        "start-cmd",
        'docker: Error response from daemon: failed to create task for container: exec: "train": executable file not found in $PATH: unknown.',
    ),
    (
        "start-perm",
        'docker: Error response from daemon: OCI runtime create failed: exec: "/app/run.sh": permission denied: unknown.',
    ),
    (
        "start-mount",
        'docker: Error response from daemon: error mounting "/srv/a.yaml" to rootfs at "/app/a.yaml": not a directory: unknown: Are you trying to mount a directory onto a file (or vice-versa)?',
    ),
    (
        "port-in-use",
        "docker: Error response from daemon: driver failed programming external connectivity on endpoint a (36): Bind for 0.0.0.0:8000 failed: port is already allocated.",
    ),
    (
        "image-pull",
        "docker: Error response from daemon: pull access denied for lab/a, repository does not exist or may require 'docker login': denied: requested access to the resource is denied.",
    ),
    (
        "image-pull",
        "docker: Error response from daemon: manifest for nvidia/cuda:99 not found: manifest unknown: manifest unknown.",
    ),
    (
        "image-pull",
        "Error response from daemon: toomanyrequests: You have reached your pull rate limit.",
    ),
    (
        "disk-full",
        "docker: failed to register layer: write /usr/lib/libcudnn.so.9: no space left on device.",
    ),
    ("start-format", "exec /usr/bin/python: exec format error"),
    # Kubernetes
    (
        "pod-evicted",
        "Warning  Evicted  2m  kubelet  The node was low on resource: memory. Threshold quantity: 100Mi, available: 44Mi.",
    ),
    (
        "pod-unschedulable",
        "Warning  FailedScheduling  4m  default-scheduler  0/4 nodes are available: 4 Insufficient nvidia.com/gpu.",
    ),
    (
        "pod-mount",
        'Warning  FailedMount  3m  kubelet  MountVolume.SetUp failed for volume "data" : mount failed: exit status 32',
    ),
    ("pod-config", 'Warning  Failed  3m  kubelet  Error: configmap "train-cfg" not found'),
    (
        "pod-liveness",
        "Normal  Killing  3m  kubelet  Container train failed liveness probe, will be restarted",
    ),
    ("image-pull", "Warning  Failed  3m  kubelet  Error: ImagePullBackOff"),
    # others
    ("nan-loss", "Loss is nan, stopping training"),
    ("nan-loss", "ERROR: batch 41: Invalid loss, terminating training"),
    (
        "host-shutdown",
        "Broadcast message from root@n7: The system is going down for power-off now! The system will power off now!",
    ),
    (
        "cuda-no-kernel",
        '"hipErrorNoBinaryForGpu: Unable to find code object for all current devices!"',
    ),
    (
        "port-in-use",
        "[W socket.cpp:426] [c10d] The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).",
    ),
    (
        "cuda-assert",
        "../aten/src/ATen/native/cuda/Loss.cu:250: nll_loss_forward_reduce_cuda_kernel_2d: block: [0,0,0], thread: [3,0,0] Assertion `t >= 0 && t < n_classes` failed.",
    ),
    ("fd-limit", "OSError: [Errno 24] Too many open files: '/data/a.png'"),
    (
        "pids-limit",
        "OpenBLAS blas_thread_init: pthread_create failed for thread 41 of 128: Resource temporarily unavailable",
    ),
    (
        "library-mismatch",
        "Could not load library libcudnn_cnn_train.so.8. Error: /x/libcudnn_ops_train.so.8: undefined symbol: _ZN5cudnn3ops26JoinE, version libcudnn_ops_infer.so.8",
    ),
    (
        "missing-module",
        "Could not load library libcudnn_ops_infer.so.8. Error: libcudnn_ops_infer.so.8: cannot open shared object file: No such file or directory",
    ),
    (
        "cuda-oom",
        "2024-01-02 10:20:30.4: W tensorflow/core/framework/op_kernel.cc:1830] OP_REQUIRES failed at conv_ops.cc:684 : RESOURCE_EXHAUSTED: OOM when allocating tensor with shape[64,512,7,7] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc",
    ),
)

RAISED = (
    (
        "ray-oom",
        "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.",
    ),
    (
        "ray-oom",
        "ray.memory_monitor.RayOutOfMemoryError: More than 95% of the memory on node n7 is used (59.9 / 62.8 GB).",
    ),
    ("cuda-oom", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."),
    ("cuda-oom", "RuntimeError: CUDA error: out of memory"),
    ("cuda-oom", "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB."),
    (
        "cuda-oom",
        "RuntimeError: cuda runtime error (2) : out of memory at /pytorch/aten/src/THC/generic/THCStorage.cu:58",
    ),
    (
        "cuda-oom",
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 26845630464 bytes.",
    ),
    (
        "cuda-oom",
        "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 2,097,152 bytes (allocated so far: 8,589,934,592 bytes).",
    ),
    (
        "cuda-oom",
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    ),
    (
        "cuda-oom",
        "SystemError: (Fatal) Out of memory error on GPU 0. Cannot allocate 1.5GB memory on GPU 0.",
    ),
    (
        "tpu-oom",
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm. Used 63.80G of 30.75G hbm.",
    ),
    (
        "tpu-oom",
        "RuntimeError: RESOURCE_EXHAUSTED: Attempting to reserve 6.48G at the bottom of memory. That was not possible. There are 6.78G free.",
    ),
    (
        "tpu-busy",
        "RuntimeError: Unable to initialize backend 'tpu': ABORTED: The TPU is already in use by process with pid 20833.",
    ),
    ("cuda-illegal", "torch.AcceleratorError: HIP error: an illegal memory access was encountered"),
    ("cuda-illegal", "RuntimeError: CUDA error: unspecified launch failure"),
    (
        "cuda-illegal",
        "jaxlib.xla_extension.XlaRuntimeError: INTERNAL: CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered",
    ),
    (
        "cuda-no-kernel",
        "RuntimeError: HIP error: no kernel image is available for execution on the device",
    ),
    ("cuda-no-kernel", "RuntimeError: HIP error: invalid device function"),
    (
        "cuda-driver-old",
        "RuntimeError: CUDA error: the provided PTX was compiled with an unsupported toolchain.",
    ),
    ("cuda-no-driver", "RuntimeError: No HIP GPUs are available"),
    (
        "cuda-no-driver",
        "RuntimeError: Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False.",
    ),
    ("cuda-ordinal", "RuntimeError: CUDA error: invalid device ordinal"),
    ("gpu-busy", "RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable"),
    ("gpu-ecc", "RuntimeError: CUDA error: uncorrectable ECC error encountered"),
    (
        "fabric-manager",
        "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized",
    ),
    (
        "nccl-usage",
        "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1691, invalid usage (run with NCCL_DEBUG=WARN for details), NCCL version 2.19.3",
    ),
    ("rendezvous-timeout", "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError"),
    (
        "rendezvous-timeout",
        "torch.distributed.DistStoreError: Timed out after 1801 seconds waiting for clients. 2/4 clients joined.",
    ),
    ("rendezvous-timeout", "RuntimeError: connect() timed out. Original timeout was 60000 ms."),
    (
        "rendezvous-timeout",
        "torch.distributed.DistBackendError: [3] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got error: Socket Timeout",
    ),
    (
        "rendezvous-timeout",
        "torch.distributed.DistBackendError: [3] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got error: wait timeout after 600000ms, keys: /default_pg/0//cuda//0",
    ),
    (
        "rendezvous-timeout",
        "TimeoutError: The client socket has timed out after 900s while trying to connect to (10.0.0.3, 29500).",
    ),
    (
        "rendezvous-timeout",
        "jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Barrier_id: PjRT_Client_Connect",
    ),
    (
        "gloo-timeout",
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:84] Timed out waiting 1800000ms for recv operation to complete",
    ),
    (
        "port-in-use",
        "ConnectionError: Tried to launch distributed communication on port `29500`, but another process is utilizing it.",
    ),
    ("io-error", "OSError: [Errno 5] Input/output error"),
    ("io-error", "OSError: [Errno 107] Transport endpoint is not connected: '/mnt/gcs/train'"),
    ("io-error", "FileNotFoundError: [Errno 116] Stale file handle: '/nfs/a'"),
    ("disk-full", "OSError: [Errno 28] No space left on device: '/scratch/a.pt'"),
    ("disk-full", "OSError: [Errno 122] Disk quota exceeded"),
    (
        "disk-full",
        "RuntimeError: [enforce fail at inline_container.cc:595] . unexpected pos 576 vs 470",
    ),
    (
        "sigbus-shm",
        "RuntimeError: unable to write to file </torch_41_88_0>: No space left on device (28)",
    ),
    (
        "fd-limit",
        "RuntimeError: unable to open shared memory object </torch_41_88_0> in read-write mode: Too many open files (24)",
    ),
    (
        "ckpt-mismatch",
        "RuntimeError: Error(s) in loading state_dict for Net:",
        '\tMissing key(s) in state_dict: "module.a.weight".',
    ),
    (
        "ckpt-mismatch",
        "ValueError: loaded state dict contains a parameter group that doesn't match the size of optimizer's group",
    ),
    (
        "shape-error",
        "RuntimeError: Error(s) in loading state_dict for Net:",
        "\tsize mismatch for fc.weight: copying a param with shape torch.Size([1000, 8]) from checkpoint, the shape in current model is torch.Size([10, 8]).",
    ),
    (
        "ckpt-corrupt",
        "safetensors_rust.SafetensorError: Error while deserializing header: MetadataIncompleteBuffer",
    ),
    (
        "ckpt-corrupt",
        "RuntimeError: unexpected EOF, expected 41 more bytes. The file might be corrupted.",
    ),
    (
        "library-mismatch",
        "ImportError: /x/flash_attn_2_cuda.so: undefined symbol: _ZN3c104cuda9SetDeviceEi",
    ),
    (
        "library-mismatch",
        "ValueError: numpy.dtype size changed, may indicate binary incompatibility. Expected 96 from C header, got 88 from PyObject",
    ),
    (
        "library-mismatch",
        "ImportError: /lib/x86_64-linux-gnu/libm.so.6: version `GLIBC_2.29' not found (required by /x/a.so)",
    ),
    ("missing-module", "ImportError: No module named yacs.config"),
    (
        "missing-module",
        "ImportError: libGL.so.1: cannot open shared object file: No such file or directory",
    ),
    (
        "net-ssl",
        "requests.exceptions.SSLError: HTTPSConnectionPool(host='huggingface.co', port=443): Max retries exceeded with url: /a (Caused by SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed')))",
    ),
    (
        "net-connect",
        "requests.exceptions.ConnectTimeout: HTTPSConnectionPool(host='huggingface.co', port=443): Max retries exceeded with url: /a (Caused by ConnectTimeoutError(<x>, 'Connection to huggingface.co timed out. (connect timeout=10)'))",
    ),
    (
        "net-connect",
        "OSError: We couldn't connect to 'https://huggingface.co' to load the files, and couldn't find them in the cached files.",
    ),
    ("net-connect", "urllib.error.URLError: <urlopen error [Errno 110] Connection timed out>"),
    ("net-connect", "ConnectionError: Couldn't reach https://raw.githubusercontent.com/a/b.py"),
    (
        "net-dns",
        "urllib.error.URLError: <urlopen error [Errno -3] Temporary failure in name resolution>",
    ),
    ("nan-loss", "FloatingPointError: Loss became infinite or NaN at iteration=52!"),
    (
        "nan-loss",
        "tensorflow.python.training.basic_session_run_hooks.NanLossDuringTrainingError: NaN loss during training.",
    ),
    ("nan-loss", "RuntimeError: Function 'MulBackward0' returned nan values in its 0th output."),
    (
        "nan-loss",
        "ValueError: Expected parameter loc (Tensor of shape (64, 6)) of distribution Normal(loc: torch.Size([64, 6])) to satisfy the constraint Real(), but found invalid values:",
    ),
    (
        "nan-loss",
        "Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.",
    ),
    (
        "nan-loss",
        "AssertionError: found NaN in local forward loss calculation. Device: 3, node: n7",
    ),
    (
        "cpu-alloc",
        "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 41.2 GiB for an array with shape (41, 8) and data type float64",
    ),
    ("cpu-alloc", "MemoryError"),
    ("pids-limit", "BlockingIOError: [Errno 11] Resource temporarily unavailable"),
    ("hpu-acquire", "RuntimeError: synStatus=26 [Generic failure] Device acquire failed."),
    (
        "hpu-compile",
        "RuntimeError: Graph compile failed. synStatus=synStatus 26 [Generic failure].",
    ),
    (
        "kill-outside",
        "subprocess.CalledProcessError: Command '['/usr/bin/python', 'a.py']' died with <Signals.SIGKILL: 9>.",
    ),
    (
        "segfault",
        "subprocess.CalledProcessError: Command '['/usr/bin/python', 'a.py']' died with <Signals.SIGSEGV: 11>.",
    ),
    (
        "oom-worker",
        "RuntimeError: DataLoader worker (pid 41) is killed by signal: Killed. Details are lost due to multiprocessing. Rerunning with num_workers=0 may give better error trace.",
    ),
    (
        "oom-worker",
        "torch.multiprocessing.spawn.ProcessExitedException: process 0 terminated with signal SIGKILL",
    ),
    (
        "oom-worker",
        "joblib.externals.loky.process_executor.TerminatedWorkerError: A worker process managed by the executor was unexpectedly terminated. The exit codes of the workers are {SIGKILL(-9)}",
    ),
    ("sigbus-shm", "RuntimeError: DataLoader worker (pid 41) is killed by signal: Bus error."),
)


@pytest.mark.parametrize(("reason", "line"), [(one[0], one[1:]) for one in PRINTED])
def test_a_line_at_the_end_of_a_log_has_its_cause(reason, line):
    """The last lines of a log have the expected reason."""
    assert judge_log(*STEPS, *line).reason == reason


@pytest.mark.parametrize(("reason", "messages"), [(one[0], one[1:]) for one in RAISED])
def test_an_exception_has_its_cause(reason, messages):
    """An exception has the expected reason, with and without exit code 1."""
    assert judge_log(*raised(*messages)).reason == reason
    assert judge_log(*raised(*messages), exit_code=1).reason == reason


@pytest.mark.parametrize(
    ("messages", "says", "never"),
    [
        (
            (
                "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9 bytes.",
            ),
            "XLA_PYTHON_CLIENT_MEM_FRACTION",
            "torch.cuda",
        ),
        (
            (
                "tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating tensor with shape[9]",
            ),
            "set_memory_growth",
            "torch.cuda",
        ),
        (
            ("RuntimeError: HIP error: invalid device function",),
            "HSA_OVERRIDE_GFX_VERSION",
            "whl/cu",
        ),
        (
            (
                "ImportError: /lib/libc.so.6: version `GLIBC_2.33' not found (required by /x/libpyg.so)",
            ),
            "ldd --version",
            "apt-get",
        ),
        (
            ("ModuleNotFoundError: No module named 'utils.losses'",),
            "PYTHONPATH",
            "pip install utils",
        ),
        (("ModuleNotFoundError: No module named 'einops'",), "pip install einops", "apt-get"),
        (("ValueError: wrong colour",), "Read the whole traceback in the log", "docker logs"),
        (
            (
                "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.",
            ),
            "ray memory",
            "CUDA",
        ),
    ],
)
def test_advice_is_for_the_framework_and_the_place(messages, says, never):
    """The advice suits the framework and does not assume a container or a package."""
    finding = judge_log(*raised(*messages)).finding
    text = " ".join((finding.summary, *finding.steps))
    assert says in text
    assert never not in text


def test_a_source_files_line_is_no_port():
    """The line number in `socket.cpp:426` is not read as a port."""
    bound = "[W socket.cpp:426] [c10d] The server socket has failed to bind to [::]:29511 (errno: 98 - Address already in use)."
    alone = "[W socket.cpp:426] [c10d] bind failed: Address already in use"
    assert "port 29511." in judge_log(*STEPS, bound).finding.summary
    assert "426" not in judge_log(*STEPS, alone).finding.summary


def test_a_file_in_source_code_is_not_the_checkpoint():
    """A file name in the source code of a frame is not reported as the corrupt checkpoint."""
    finding = judge_log(
        *STEPS,
        "Traceback (most recent call last):",
        '  File "/srv/a/train.py", line 7, in <module>',
        '    torch.save(state, os.path.join(out, "optimizer.pt"))',
        "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory",
    ).finding
    assert finding.reason == "ckpt-corrupt"
    assert "optimizer.pt" not in finding.summary


def test_full_shared_memory_is_no_full_disk():
    """A full /dev/shm in an NCCL message is not reported as a full disk."""
    verdict = judge_log(
        *STEPS,
        "n7:31:88 [0] include/shm.h:28 NCCL WARN Call to posix_fallocate failed : No space left on device",
    )
    assert verdict.reason == "sigbus-shm"
    assert "disk-full" not in {each.reason for each in verdict.contributing}


SACCT = """\
JobID           JobName  Partition  AllocCPUS      State ExitCode
------------ ---------- ---------- ---------- ---------- --------
{}              fit-gpu        gpu         16 {:>10} {:>8}
{}.batch          batch                    16 {:>10} {:>8}
{}.extern        extern                    16  COMPLETED      0:0
"""


@pytest.mark.parametrize(
    ("state", "code", "step", "reason"),
    [
        ("OUT_OF_ME+", "0:125", "OUT_OF_ME+", "oom-cgroup"),
        ("OUT_OF_MEMORY", "0:125", "OUT_OF_MEMORY", "oom-cgroup"),
        ("FAILED", "1:0", "OUT_OF_ME+", "oom-cgroup"),
        ("TIMEOUT", "0:0", "CANCELLED", "slurm-time-limit"),
        ("DEADLINE", "0:0", "CANCELLED", "slurm-time-limit"),
        ("NODE_FAIL", "1:0", "CANCELLED", "slurm-node-fail"),
        ("PREEMPTED", "0:0", "CANCELLED", "slurm-preempted"),
        ("CANCELLED by 1001", "0:0", "CANCELLED", "slurm-cancelled"),
        ("CANCELLED+", "0:0", "CANCELLED", "slurm-cancelled"),
        ("FAILED", "0:9", "FAILED", "kill-outside"),
        ("FAILED", "1:0", "FAILED", "unknown"),
        ("COMPLETED", "0:0", "COMPLETED", "finished"),
        ("RUNNING", "0:0", "RUNNING", "unknown"),
    ],
)
@pytest.mark.parametrize("job", ["812345", "77_3"])
def test_the_table_of_sacct_has_the_state_of_a_job(job, state, code, step, reason):
    """The job state is read from sacct's table, in columns or with bars, also after a log."""
    table = SACCT.format(job, state, code, job, step, code, job)
    lines = table.splitlines()
    verdict = judge_log(*lines)
    assert (verdict.reason, verdict.contributing) == (reason, ())
    bars = [line.replace(" by ", "_by_").split() for line in (lines[0], *lines[2:])]
    with_bars = ("|".join(words).replace("_by_", " by ") for words in bars)
    assert judge_log("$ sacct -P -j 7", *with_bars).reason == reason
    if reason not in {"unknown", "finished"}:
        assert judge_log(*STEPS, "$ sacct", *lines).reason == reason


def test_the_words_of_sacct_elsewhere_are_no_states():
    """A state's word outside sacct's table is not read as a job state."""
    assert judge_log("12 workers TIMEOUT 0:0", *STEPS).reason == "unknown"
    done = SACCT.format(7, "COMPLETED", "0:0", 7, "COMPLETED", "0:0", 7).splitlines()
    assert judge_log(*done, "the end", "7 fit TIMEOUT").reason != "slurm-time-limit"


def test_the_table_of_kubectl_after_a_log():
    """The status of a pod is read from a kubectl table after a log."""
    table = ("NAME    READY   STATUS   RESTARTS   AGE", "fit-0   0/1     {}   0   12m")
    for state, reason in (("OOMKilled", "oom-cgroup"), ("Evicted", "pod-evicted")):
        assert judge_log(*STEPS, table[0], table[1].format(state)).reason == reason
