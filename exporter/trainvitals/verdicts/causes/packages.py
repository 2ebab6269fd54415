"""The names of Python packages, by the module that each package provides."""

from __future__ import annotations

_PACKAGES = {
    "apex": "--no-build-isolation git+https://github.com/NVIDIA/apex",  # PyPI's `apex` is unrelated
    "cv2": "opencv-python-headless",
    "PIL": "pillow",
    "yaml": "pyyaml",
    "sklearn": "scikit-learn",
    "skimage": "scikit-image",
    "bs4": "beautifulsoup4",
    "dotenv": "python-dotenv",
    "flash_attn": "flash-attn --no-build-isolation",
    "habana_frameworks": "habana-torch-plugin",
    "nemo": "nemo_toolkit[all]",
    "optax": "optax",
    "orbax": "orbax-checkpoint",
    "paddle": "paddlepaddle-gpu",
    "pytorch_lightning": "pytorch-lightning",
    "torch_geometric": "torch-geometric",
    "sentence_transformers": "sentence-transformers",
    "hydra": "hydra-core",
    "pkg_resources": "setuptools",
    "google.protobuf": "protobuf",
    "mpi4py": "mpi4py",
    "Crypto": "pycryptodome",
    "git": "gitpython",
    "pycocotools": "pycocotools",
    "tensorflow_datasets": "tensorflow-datasets",
    "tensorboardX": "tensorboardX",
    "segmentation_models_pytorch": "segmentation-models-pytorch",
}
# Packages with the same name as their module. Any other name may belong to a module of the user's
# project; advice to install an unrelated package of the same name would be wrong.
_SAME_NAME = frozenset(
    [
        "accelerate",
        "albumentations",
        "av",
        "boto3",
        "bitsandbytes",
        "cupy",
        "datasets",
        "decord",
        "deepspeed",
        "detectron2",
        "diffusers",
        "easydict",
        "einops",
        "evaluate",
        "faiss",
        "fairseq",
        "fire",
        "flax",
        "ftfy",
        "gensim",
        "gradio",
        "gym",
        "gymnasium",
        "h5py",
        "horovod",
        "huggingface_hub",
        "imageio",
        "ipdb",
        "jax",
        "jaxlib",
        "joblib",
        "jsonlines",
        "kaggle",
        "keras",
        "kornia",
        "librosa",
        "lightning",
        "lmdb",
        "loguru",
        "lpips",
        "matplotlib",
        "megatron",
        "mlflow",
        "mmcv",
        "mmdet",
        "mmengine",
        "mmseg",
        "monai",
        "msgpack",
        "mxnet",
        "neptune",
        "networkx",
        "nibabel",
        "nltk",
        "numba",
        "numpy",
        "omegaconf",
        "onnx",
        "onnxruntime",
        "open3d",
        "opencv",
        "openai",
        "optuna",
        "pandas",
        "peft",
        "prettytable",
        "psutil",
        "pyarrow",
        "pydantic",
        "pydicom",
        "pynvml",
        "pytest",
        "ray",
        "regex",
        "requests",
        "rouge_score",
        "sacrebleu",
        "safetensors",
        "scipy",
        "seaborn",
        "sentencepiece",
        "seqeval",
        "setuptools",
        "simplejson",
        "six",
        "soundfile",
        "spacy",
        "sympy",
        "tabulate",
        "tensorboard",
        "tensorflow",
        "tensordict",
        "termcolor",
        "tiktoken",
        "timm",
        "tokenizers",
        "toml",
        "torch",
        "torchaudio",
        "torchmetrics",
        "torchtext",
        "torchvision",
        "tqdm",
        "transformers",
        "triton",
        "trl",
        "ujson",
        "visdom",
        "vllm",
        "wandb",
        "webdataset",
        "xformers",
        "xgboost",
        "yacs",
        "zarr",
    ]
)


def find_package(module: str) -> str:
    """Return the `pip install` argument for a module; an empty string if the module is unknown."""
    top = module.partition(".")[0]
    return _PACKAGES.get(top) or (top.replace("_", "-") if top in _SAME_NAME else "")


# Packages to which other packages add modules.
_SHARED = frozenset(
    {"google", "google.protobuf", "habana_frameworks", "megatron", "git", "lightning"}
)
_WHOLE = "|".join(sorted({*_PACKAGES, *_SAME_NAME} - _SHARED))
# Only known packages and Python's own modules are listed, because a name that is missing from a
# module of the user is no mismatch.
ATTRIBUTE_MISSING = (
    rf"AttributeError: (?:partially initialized )?module '(?P<module>(?:{_WHOLE}|collections|inspect|time|asyncio|ast|math"
    r"|pkgutil|fractions|typing|distutils|ssl|string|importlib)(?:\.[\w.]{1,120})?)' has no attribute '?(?P<attribute>\w{0,120})"
)
# The modules of the user's project are outside of Python's directories.
NAME_MISSING = (
    rf"cannot import name '?(?P<name>\w{{1,120}})'? from '?(?!partially)(?P<package>(?:{_WHOLE})(?!\w)[\w.]{{0,120}}"
    r"|[\w.]{1,120}(?![\w.])(?!'? \((?!\S{0,300}(?:-packages|python[0-9.]{0,5}|\.egg)/)/\S{1,400}\)))"
)
# Python 3 reports the first part of the dotted name that it cannot find. If that is not the first
# part of the name, the package itself is installed.
PART_MISSING = (
    rf"No module named '(?P<part>(?:{_WHOLE})\.[\w.]{{1,120}})(?!.{{0,160}}is not a package)"
)
