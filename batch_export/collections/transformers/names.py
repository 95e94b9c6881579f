"""The names of transformers' models, read from the package's mapping file without importing it.

Nothing arrives; names leave, `type.Class` each, with tags. A class that several mappings list has the tags of all.
"""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from pathlib import Path

MAPPINGS = {
    "MODEL_MAPPING_NAMES": "base",
    "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES": "causal-lm",
    "MODEL_FOR_MASKED_LM_MAPPING_NAMES": "masked-lm",
    "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES": "sequence-classification",
    "MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES": "token-classification",
    "MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES": "question-answering",
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES": "seq2seq",
    "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES": "speech-seq2seq",
    "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES": "image-classification",
    "MODEL_FOR_SEMANTIC_SEGMENTATION_MAPPING_NAMES": "segmentation",
    "MODEL_FOR_UNIVERSAL_SEGMENTATION_MAPPING_NAMES": "segmentation",
    "MODEL_FOR_INSTANCE_SEGMENTATION_MAPPING_NAMES": "segmentation",
    "MODEL_FOR_OBJECT_DETECTION_MAPPING_NAMES": "detection",
    "MODEL_FOR_ZERO_SHOT_OBJECT_DETECTION_MAPPING_NAMES": "detection",
    "MODEL_FOR_DEPTH_ESTIMATION_MAPPING_NAMES": "depth",
    "MODEL_FOR_VIDEO_CLASSIFICATION_MAPPING_NAMES": "video",
    "MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING_NAMES": "audio-classification",
    "MODEL_FOR_CTC_MAPPING_NAMES": "ctc",
    "MODEL_FOR_TEXT_TO_WAVEFORM_MAPPING_NAMES": "text-to-audio",
    "MODEL_FOR_TEXT_TO_SPECTROGRAM_MAPPING_NAMES": "text-to-audio",
    "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES": "image-text-to-text",
    "MODEL_FOR_TIME_SERIES_PREDICTION_MAPPING_NAMES": "time-series",
}
"""The mappings whose classes are models of the collection, with the tag of each."""

_FILE = ("models", "auto", "modeling_auto.py")


def names(package: Path | None = None) -> dict[str, tuple[str, ...]]:
    """Returns the names of the models with their tags, sorted.

    Args:
        package: the folder of the package; the installed one if None.
    """
    found: dict[str, set[str]] = {}
    for model_type, architecture, tag in _classes(package or _installed()):
        found.setdefault(f"{model_type}.{architecture}", set()).add(tag)
    return {name: tuple(sorted(tags)) for name, tags in sorted(found.items())}


def split(name: str) -> tuple[str, str]:
    """Returns the type and the class of a name."""
    model_type, _, architecture = name.rpartition(".")
    return model_type, architecture


def _installed() -> Path:
    spec = importlib.util.find_spec("transformers")
    if spec is None or not spec.origin:
        raise ModuleNotFoundError("transformers is not installed", name="transformers")
    return Path(spec.origin).parent


def _classes(package: Path) -> Iterator[tuple[str, str, str]]:
    tree = ast.parse(package.joinpath(*_FILE).read_text(encoding="utf-8"))
    for node in tree.body:
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
            continue
        tag = MAPPINGS.get(node.targets[0].id)
        if tag is not None and isinstance(node.value, ast.Call) and node.value.args:
            for model_type, classes in ast.literal_eval(node.value.args[0]):
                for architecture in (classes,) if isinstance(classes, str) else classes:
                    yield str(model_type), str(architecture), tag
