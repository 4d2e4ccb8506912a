"""What the softmax attentions of a trained model see on real sentences: their queries, keys, and who meets whom."""

from contextlib import ExitStack

import torch

from ..attention.base import RandomFeatureAttention
from ..model.parameters import PLACES, attentions_of


def softmax_attentions(model, places):
    """The softmax attentions of each layer, by place; a place that has none is missing.

    Args:
        model: a Transformer of fairseq or of this package.
        places: some of `PLACES`.
    """
    found = {}
    for place in places:
        attentions = attentions_of(model, place)
        if attentions and not any(
            attention is None or isinstance(attention, RandomFeatureAttention) for attention in attentions
        ):
            found[place] = attentions
    return found


@torch.no_grad()
def watch(model, attentions, batches, see):
    """Run a model teacher-forced over some batches.

    Args:
        model: a Transformer of fairseq or of this package; it is left in the mode in which it was.
        attentions: as `softmax_attentions` returns them.
        batches: samples of fairseq with "net_input", on the model's device.
        see: called for each batch with the place, the number of the layer, q (B, H, N, d) and k (B, H, M, d) as they
            leave their projections, in float32, what is hidden (B, 1, N, M), and which queries are no padding
            (B, 1, N).
    """
    padding = {}

    def hook(place, layer):
        def look(module, _, inputs):
            # fairseq reads the weights of its projections past their modules, so hooks there would see nothing.
            q, k = module.q_proj(inputs["query"]), module.k_proj(inputs["key"])
            q, k = (x.float().unflatten(-1, (module.num_heads, -1)).permute(1, 2, 0, 3) for x in (q, k))
            see(place, layer, q, k, _hidden(q, k, inputs), ~padding[PLACES[place].side].unsqueeze(1))

        return look

    was_training = model.training
    model.eval()
    with ExitStack() as stack:
        stack.callback(model.train, was_training)
        for place, modules in attentions.items():
            for layer, module in enumerate(modules):
                stack.enter_context(module.register_forward_pre_hook(hook(place, layer), with_kwargs=True))
        for batch in batches:
            padding = padding_of(model, batch)
            model(**batch["net_input"])


def padding_of(model, batch):
    """By side of the model, which positions of a sample of fairseq are padding, (B, positions)."""
    inputs = batch["net_input"]
    if not hasattr(model, "encoder"):
        return {"decoder": inputs["src_tokens"].eq(model.decoder.padding_idx)}
    return {
        "encoder": inputs["src_tokens"].eq(model.encoder.padding_idx),
        "decoder": inputs["prev_output_tokens"].eq(model.decoder.padding_idx),
    }


def _hidden(q, k, inputs):
    """Which keys a query does not see, (B, 1, N, M), from the masks that fairseq passes to an attention."""
    hidden = torch.zeros(q.size(0), 1, q.size(2), k.size(2), dtype=torch.bool, device=q.device)
    padding, future = inputs.get("key_padding_mask"), inputs.get("attn_mask")
    if padding is not None:
        hidden |= padding.bool()[:, None, None, :]
    if future is not None:
        hidden |= future if future.dtype == torch.bool else future.isneginf()
    return hidden
