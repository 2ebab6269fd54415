"""Modules and libraries that are missing, do not compile or were built for other versions."""

from __future__ import annotations

import re

from trainvitals.verdicts.causes.case import Case
from trainvitals.verdicts.causes.log_matches import (
    LogMatch,
    find_match,
    quote,
)
from trainvitals.verdicts.causes.packages import find_package
from trainvitals.verdicts.causes.releases import LACKS, conclude_release
from trainvitals.verdicts.causes.signs import contains, matches
from trainvitals.verdicts.causes.text_causes import text_cause
from trainvitals.verdicts.causes.verdict import Cause, Finding

_MODULE = re.compile(r"No module named '?([\w.]{1,120})'?")
_LIBRARY = re.compile(r"(lib[\w.+-]{1,80}): cannot open shared object file")
_NEEDS = re.compile(
    r"version `((?:GLIBC|GLIBCXX|CXXABI|GOMP|NCCL)[\w.]{1,20})' not found \(required by ([^)]{1,300})\)"
)
_SYMBOL = re.compile(
    r"(?<![\w./+-])([\w./+-]{1,300}\.so[\w.]{0,20}): undefined symbol: (\w{1,300})"
)
_MISMATCH = matches(
    r"version `(?:GLIBC|GLIBCXX|CXXABI|GOMP|NCCL)[\w.]{1,20}' not found"
    r"|numpy\.(?:dtype|ufunc) size changed|module compiled against (?:ABI|API) version"
    r"|compiled using NumPy 1\.x cannot be run in|CUDNN_STATUS_\w{0,20}VERSION_MISMATCH"
    r"|detected CUDA version \([\d.]{1,8}\) mismatches|Loaded runtime CuDNN library:"
    r"|was compiled against \(\d.{0,40}but found runtime version|wrong ELF class"
    r"|compiled with (?:PyTorch|CUDA) .{1,40} but (?:is|found|your)|different CUDA major versions"
    r"|Descriptors cannot (?:not )?be created directly|VersionConflict|DistributionNotFound"
    r"|Detected incompatible Protobuf|symbol \w{1,400},? version \S{1,80} not defined|cuDNN version incompatibility|_VERSION_MISMATCH|runtime_version\.VersionError"
    r"|is required for a normal functioning of this module, but found|incompatible with the installed|_ARRAY_API not found"
    r"|numpy\.core\.multiarray failed to import|RuntimeError: Numpy is not available|is newer than and incompatible with|Unsupported \.version [0-9.]{1,8}; current version is|Failed to import \S{1,120} because of the following error"
    r"|\bABI\b.{0,60}(?:mismatch|incompatib)|compiled against (?:a different|an older|another) version|invalid ELF header"
    r"|PyTorch and torchvision (?:were|was) compiled with different CUDA|operator torchvision::nms does not exist"
    r"|CUDA S(?:etup|ETUP).{0,12} [Ff]ailed|Could not (?:find the bitsandbytes CUDA binary|load bitsandbytes native library)"
    r"|[Cc]ouldn't load custom C\+\+ ops|undefined symbol|DLL load failed|Symbol not found: "
    r"|[Mm]odel type `\w{1,60}` but Transformers does not recognize|does not recognize this architecture|KeyError: '(?:llama|qwen\w{0,12}|gemma\w{0,8}|mistral\w{0,8}|phi\w{0,8}|mixtral)'$",
    LACKS.pattern.pattern,
    without=LACKS.without,
)
_NAMED = contains(
    "ModuleNotFoundError",
    "ImportError",
    "cannot open shared object file",
    "Unable to load any of {libcudnn",
    "Could not load library libcudnn",
    "PackageNotFoundError: No package metadata",
    without=("libcuda.so", "libtpu.so", "Could not load dynamic library", "dso_loader"),
)
_LIBRARIES = {
    "libGL.so.1": "libgl1",
    "libgthread-2.0.so.0": "libglib2.0-0",
    "libglib-2.0.so.0": "libglib2.0-0",
    "libsndfile.so.1": "libsndfile1",
    "libgomp.so.1": "libgomp1",
    "libSM.so.6": "libsm6",
    "libXext.so.6": "libxext6",
    "libXrender.so.1": "libxrender1",
    "libaio.so.1": "libaio1",
    "libibverbs.so.1": "libibverbs1",
    "libnuma.so.1": "libnuma1",
}
_OF_NVIDIA = re.compile(
    r"lib(?:cudnn|cublas|cudart|cusparse|cufft|curand|cusolver|nvrtc|nccl|nvJitLink)"
)


def detect_library_mismatch(case: Case) -> Finding | None:
    """Detect a binary that was built for other versions of libraries than the installed ones."""
    match = find_match(case, _MISMATCH)
    if match is None:
        return None
    release = conclude_release(case, match)
    if release is not None:
        return release
    needs, symbol = _NEEDS.search(match.text), _SYMBOL.search(match.text)
    if needs is not None:
        return _conclude_needs(case, match, needs[1], needs[2])
    if "bitsandbytes" in match.text or "CUDA S" in match.text:
        summary = f"bitsandbytes could not load its library for CUDA: {quote(_pick(match))}."
        return match.conclude("library-mismatch", summary, _BITSANDBYTES)
    which = f"`{symbol[1].rpartition('/')[2]}`" if symbol else "A library"
    return match.conclude(
        "library-mismatch",
        f"{which} was built for other versions than those installed: {quote(_pick(match))}.",
        (
            (
                "Install the build for your versions of PyTorch, CUDA and Python, or build it there:"
                " `pip install --no-cache-dir --force-reinstall --no-build-isolation PACKAGE`."
            ),
            "Compare the versions: `python -m torch.utils.collect_env`, `pip check`.",
            "Check that no other copy is found first: `echo $LD_LIBRARY_PATH`, `ldd FILE.so`.",
        ),
    )


def _conclude_needs(case: Case, match: LogMatch, version: str, path: str) -> Finding:
    if version.startswith("GLIBC_"):
        where = "the base image" if case.is_container else "the system, or run it in a container"
        steps = (
            (
                f"Use a newer release of {where} (`ldd --version` shows its glibc): glibc belongs to the"
                " distribution and cannot be installed beside it."
            ),
            (
                "Or install an older release of the package, or build it on this system:"
                " `pip install --no-binary :all: PACKAGE`."
            ),
        )
    else:
        steps = (
            (
                "Install a newer libstdc++: `conda install -c conda-forge libstdcxx-ng`, or `apt-get install"
                " libstdc++6` from a newer release."
            ),
            (
                "Let it be found first: `export LD_LIBRARY_PATH=$CONDA_PREFIX/lib:$LD_LIBRARY_PATH`;"
                " `strings FILE | grep GLIBCXX` lists what a library has."
            ),
        )
    return match.conclude(
        "library-mismatch",
        f"`{path.rpartition('/')[2]}` needs {version}, which this system does not have.",
        steps,
    )


_BITSANDBYTES = (
    "Install a release that has a binary for this CUDA: `pip install --upgrade bitsandbytes`.",
    "Read what it searches: `python -m bitsandbytes`; name another CUDA with `BNB_CUDA_VERSION=124`.",
)


def _pick(match: LogMatch) -> str:
    return next((line for line in match.text.split("\n") if _MISMATCH.search(line)), match.text)


def detect_missing_module(case: Case) -> Finding | None:
    """Detect a module or a library that is missing from the image."""
    match = find_match(case, _NAMED)
    if match is None or LACKS(match.text):
        return None
    module, library = _MODULE.search(match.text), _LIBRARY.search(match.text)
    if library is not None or "libcudnn" in match.text:
        return _conclude_library(case, match, library[1] if library else "libcudnn")
    name = module[1] if module else ""
    return match.conclude(
        "missing-module",
        f"{_name_environment(case)} lacks the module `{name}`."
        if name
        else f"An import failed: {quote(match.text)}.",
        (
            *_advise_module(case, name),
            "If the module exists but lacks a name, check its version: `pip list`.",
        ),
    )


def _conclude_library(case: Case, match: LogMatch, library: str) -> Finding:
    summary = f"{_name_environment(case)} lacks the library {library}."
    if library.startswith("libbitsandbytes"):
        return match.conclude("missing-module", summary, _BITSANDBYTES)
    if _OF_NVIDIA.match(library):
        steps = (
            (
                "Put the folder that has it on the search path: `python -c 'import nvidia.cudnn as m;"
                " print(m.__path__)'`, then `export LD_LIBRARY_PATH=FOLDER/lib`."
            ),
            "Or use an image with CUDA's libraries, such as `nvidia/cuda:12.4.1-cudnn-runtime-ubuntu22.04`.",
        )
        return match.conclude("missing-module", summary, steps)
    package = _LIBRARIES.get(library, f"$(apt-file search -l {library})")
    install = f"apt-get update && apt-get install -y {package}"
    add = (
        f"Add it to the Dockerfile: `RUN {install}`."
        if case.is_container
        else f"Install it: `{install}`."
    )
    is_opencv = library in _LIBRARIES and library.startswith(("libGL", "libg", "libSM", "libX"))
    opencv = ("For OpenCV, use the build without it: `pip install opencv-python-headless`.",)
    return match.conclude("missing-module", summary, (add, *opencv * is_opencv))


def _name_environment(case: Case) -> str:
    if not case.is_container:
        return "The Python environment"
    return f"The image `{case.evidence.image}`" if case.evidence.image else "The image"


def _advise_module(case: Case, name: str) -> tuple[str, ...]:
    package = find_package(name)
    python = f"docker run --rm {case.evidence.image} python" if case.evidence.image else "python"
    own = (
        "Mount a module of your project and set `PYTHONPATH`;"
        f" `{python} -c 'import sys; print(sys.path)'` prints the search path."
    )
    if not package:
        of_others = (
            "If it belongs to a package, install that by the name in its documentation, which may differ"
            " from the module's: `pip install PACKAGE`."
        )
        return (own, of_others) if name else (of_others, own)
    if not case.is_container:
        return (f"Install it: `pip install {package}`.", own)
    return (f"Add it to the Dockerfile: `RUN pip install {package}`, then rebuild the image.", own)


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
    Cause(
        reason="library-mismatch",
        title="A library was built for other versions",
        signs="The log contains `undefined symbol`, ``version `GLIBC_2.33' not found``, `GLIBCXX_` or"
        " `numpy.dtype size changed`.",
        meaning="A binary was built against other versions of PyTorch, CUDA, numpy or the system's"
        " libraries than those installed.",
        steps=(
            "Install the build for your versions: `python -m torch.utils.collect_env`, `pip check`.",
            (
                "glibc comes with the base image: use a newer one, or an older release of the package"
                " (`ldd --version`)."
            ),
        ),
        confidence="high",
        detect=detect_library_mismatch,
    ),
    Cause(
        reason="missing-module",
        title="A module or library is missing",
        signs="The log contains `ModuleNotFoundError`, `ImportError` or `cannot open shared object file`.",
        meaning="The image lacks it, or has another version.",
        steps=("Add it to the Dockerfile (`RUN pip install ...`) and rebuild the image.",),
        confidence="high",
        detect=detect_missing_module,
    ),
)
