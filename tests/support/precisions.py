"""Decoding precisions that can be tested here."""

import pytest
import torch

from fairseq_rfa.attention.decoding_precision import PRECISIONS


def here(name, monkeypatch):
    """The name of a decoding precision, bfloat16 also on processors that only imitate it; skips what is missing."""
    if name == "bfloat16":
        if not getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", bool)():
            pytest.skip("oneDNN has no bfloat16 here")
        monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: True, raising=False)
    lack = PRECISIONS[name].lack()
    if lack:
        pytest.skip(lack)
    return name
