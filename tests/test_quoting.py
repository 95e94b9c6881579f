"""Twin of `batch_export/config/quoting.py`."""

from __future__ import annotations

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from batch_export.config.quoting import with_quotes


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("matrix.models=[ünï]", ["ünï"]),
        ("matrix.models=[a, ünï ,b]", ["a", "ünï", "b"]),
        ("matrix.models=[timm:rés*,'tag:ü',b]", ["timm:rés*", "tag:ü", "b"]),
        ("matrix.models=[a#1,b&c]", ["a#1", "b&c"]),
        ("output.path=/data/wéird ü", "/data/wéird ü"),
        ("output.path=конф", "конф"),
        ("+a=ü\\", "ü\\"),
        ("matrix.exclude=[{model: ü*, reason: zu groß}]", [{"model": "ü*", "reason": "zu groß"}]),
        ("matrix.exclude=[{model: 'ü', reason: slow}]", [{"model": "ü", "reason": "slow"}]),
    ],
)
def test_hydra_reads_what_was_meant(word: str, value: object) -> None:
    parsed = OverridesParser.create().parse_override(with_quotes(word)).value()
    plain = str(parsed) if isinstance(value, str) else parsed
    assert plain == value


@pytest.mark.parametrize(
    "word",
    ["a=1", "--ü", "ü", "a='ü'", "a=[x'ü']", "a=${oc.env:Ü}", "a='ü", "a=glob(ü)", "matrix.models=[bert,'vit*']", "a="],
)
def test_what_hydra_reads_or_nobody_can_is_left_alone(word: str) -> None:
    assert with_quotes(word) == word
