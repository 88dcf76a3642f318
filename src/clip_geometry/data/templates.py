"""Prompts as data: {} is where the class name goes.

CLIP_CIFAR: the templates that CLIP's authors used for CIFAR-10 and CIFAR-100 alike, from data/prompts.md of
github.com/openai/CLIP (commit 04f4dc2), copyright (c) 2021 OpenAI, licenses/MIT-OpenAI-CLIP.txt; an ensemble averages
them as their notebook Prompt_Engineering_for_ImageNet.ipynb does (`zero_shot.ensemble`).
PAPER, PAPER_RUSSIAN: those of Tyshchuk et al. 2023 (sections 4 and 7). The English one was chosen by test accuracy.
"""

_KINDS = ("blurry ", "black and white ", "low contrast ", "high contrast ", "bad ", "good ")

CLIP_CIFAR: tuple[str, ...] = tuple(
    template
    for article in ("a", "the")
    for template in (
        f"a photo of {article} {{}}.",
        *(f"a {kind}photo of {article} {{}}." for kind in _KINDS),
        f"a photo of {article} small {{}}.",
        f"a photo of {article} big {{}}.",
    )
)
PAPER = "low-resolution photo of a {}"
PAPER_RUSSIAN = "изображение {}"

TEMPLATES: dict[str, tuple[str, ...]] = {
    "clip-cifar": CLIP_CIFAR,
    "paper": (PAPER,),
    "paper-ru": (PAPER_RUSSIAN,),
}
LANGUAGES = {"paper-ru": "ru"}  # of the templates; the others are English
