"""fairseq's Transformer encoder, which does not copy its output at every step of a beam search."""

import torch
from fairseq.models.transformer import TransformerEncoderBase

from .scripting import in_classes_of_fairseq


class TransformerRFAEncoder(TransformerEncoderBase):
    def reorder_encoder_out(self, encoder_out, new_order):
        """Row i becomes the former row new_order[i]; nothing is copied where each row keeps its sentence.

        A beam search asks for an order at every step, but its hypotheses only move within their sentence.
        """
        if "sentences" in encoder_out:
            (sentences,) = encoder_out["sentences"]
        else:
            sentences = torch.arange(
                encoder_out["encoder_out"][0].size(1), device=new_order.device
            )
        reordered = sentences[new_order]
        if not torch.equal(reordered, sentences):
            encoder_out = super().reorder_encoder_out(encoder_out, new_order)
        return {**encoder_out, "sentences": [reordered]}

    def __prepare_scriptable__(self):
        return in_classes_of_fairseq(self)
