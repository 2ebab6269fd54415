"""Extensions and kernels that could not be compiled while the program was starting or running."""

from __future__ import annotations

from trainvitals.verdicts.causes.signs import matches
from trainvitals.verdicts.causes.text_causes import text_cause
from trainvitals.verdicts.causes.verdict import Cause

CAUSES: tuple[Cause, ...] = (
    text_cause(
        "extension-build",
        "An extension could not be compiled",
        "The log contains `Error building extension`, `CUDA_HOME environment variable is not set`, `Unsupported"
        " gpu architecture` or `Failed to find C compiler`.",
        "The compiler, its headers or the CUDA toolkit are missing, or too old or too new for the extension.",
        (
            (
                "Read the compiler's first error above it, and compare: `nvcc --version`, `gcc --version`, `python -c"
                " 'import torch; print(torch.version.cuda)'`."
            ),
            (
                "Install what is missing: `apt-get install -y build-essential ninja-build python3-dev`, and the CUDA"
                " toolkit of PyTorch's version with `CUDA_HOME` set to it; an image `…-devel-…` has both."
            ),
            "Delete a half-built copy: `rm -rf ~/.cache/torch_extensions ~/.triton/cache`.",
        ),
        summary="An extension or a kernel could not be compiled.",
        lines=matches(
            r"Error building extension|Error compiling objects for extension|Ninja is required to load C\+\+ extensions",
            r"CUDA_HOME (?:environment variable is not set|does not exist)|nvcc fatal|[Uu]nsupported gpu architecture",
            r"Failed to find C compiler|Python\.h: No such file|cuda_runtime\w{0,20}\.h: No such file|fatal error: .{1,120}: No such file",
            r"error: command .{1,120} failed with exit (?:code|status)|unsupported GNU version|\['ninja', '-v'|ninja: build stopped",
            r"collect2: error: ld returned|/usr/bin/ld: cannot find|nvrtc: error|NVRTC_ERROR|Could not find nvcc|nvcc: not found",
            r"InductorError: (?:CppCompile|Calledprocess|CalledProcess)Error|CppCompileError|ptxas fatal|PTXASError|Cannot find a working triton",
            r"Installed CUDA version .{1,40} does not match the version torch was compiled with|Unable to JIT load the",
            r"triton\.compiler\.errors\.\w{0,30}Error|PTXAS error: |Failed building wheel|No such file or directory: '\S{0,200}/nvcc'",
            r"failed to build wheel|subprocess-exited-with-error|Could not find ptxas|ptxas exited with non-zero error code(?!.{0,400}Unsupported \.version)",
        ),
    ),
)
