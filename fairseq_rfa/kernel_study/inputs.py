"""Queries, keys and values for a study of kernels: drawn on the sphere, or of a trained model on real text."""

from functools import partial

import numpy as np
import torch
import torch.nn.functional as F

from ..attention.base import RandomFeatureAttention
from ..programs.trained_model import load_trained, move_to, readable_sentences
from .errors import Points

NUM_CLUSTERS = 8
NOISE = 0.5

DESCRIPTIONS = {
    "random": "queries and keys uniform on the unit sphere",
    "clustered": f"{NUM_CLUSTERS} centres uniform on the unit sphere; a key is a centre plus noise of length "
    f"about {NOISE}, a query one of the keys plus such noise, both scaled to unit length",
    "layer": "queries and keys of a trained layer on real text; σ counts in units of the trained σ",
}


def random_points(seed, num_positions, head_dim):
    """One row, one head, σ = 1: queries and keys (1, 1, num_positions, head_dim), all independent."""
    generator = np.random.RandomState([seed, 2])
    query, key = generator.standard_normal((2, num_positions, head_dim))
    return _on_sphere(query, key)


def clustered_points(seed, num_positions, head_dim):
    """As `random_points`, with attention that falls on the cluster of the query, the more so the greater σ is.

    Noise is N(0, I) · NOISE / √d, so that with NOISE = 1/2 a query has cosines of about 0.9 with its own key,
    0.7 with the other keys of the cluster and 0 with the rest.
    """
    generator = np.random.RandomState([seed, 3])

    def noise():
        return generator.standard_normal((num_positions, head_dim)) * NOISE * head_dim**-0.5

    centres = _unit(generator.standard_normal((NUM_CLUSTERS, head_dim)))
    key = _unit(centres[generator.randint(NUM_CLUSTERS, size=num_positions)] + noise())
    query = key[generator.randint(num_positions, size=num_positions)] + noise()
    return _on_sphere(query, key)


def draw_values(seed, points):
    """v (B, H, M, d), each N(0, I)."""
    values = np.random.RandomState([seed, 4]).standard_normal(points.key.shape)
    return torch.from_numpy(values).to(points.key)


def drawn_inputs(num_positions, head_dim):
    """The kinds of input that need no model: a function from a seed to Points for each name."""
    sizes = dict(num_positions=num_positions, head_dim=head_dim)
    return {
        "random": partial(random_points, **sizes),
        "clustered": partial(clustered_points, **sizes),
    }


def trained_points(checkpoint, data, subset, num_sentences, device):
    """Queries and keys of each random feature attention of a model, on the first of a subset.

    Causal attention is taken without its mask: each query meets all keys of its sentence.

    Args:
        checkpoint: file of a transformer_rfa model.
        data: folder of fairseq-preprocess with its dictionaries.
        subset: for example "valid".
        num_sentences: at most so many; those too long for the model are passed over.

    Returns:
        Points for each "layer l place", and the number of sentences.

    Raises:
        ValueError: the checkpoint or the data cannot be read, or there is nothing to study in them.
    """
    model, _, task = load_trained(checkpoint, data, [subset])
    model, dataset = model.float(), task.dataset(subset)
    modules = _attention_modules(model)
    if not modules:
        raise ValueError(
            f"'{checkpoint}' has no random feature attention; use one of transformer_rfa"
        )
    indices = readable_sentences(dataset, model, num_sentences, f"'{data}' has no sentence in '{subset}'")
    model.to(device).eval()
    seen = _run_with_hooks(model, modules, (dataset.collater([dataset[i]]) for i in indices), device)
    return {name: _joined(module, *seen[name]) for name, module in modules.items()}, len(indices)


def _attention_modules(model):
    """The attention through features of each layer, by name."""
    return {
        f"layer {module.layer_index} {module.place}": module
        for module in model.modules()
        if isinstance(module, RandomFeatureAttention)
    }


@torch.no_grad()
def _run_with_hooks(model, modules, batches, device):
    """What q_proj and k_proj of each module give, a list of (1, H, positions, d) each, one for each sentence.

    The batches hold one sentence, so they have no padding.
    """
    seen = {name: ([], []) for name in modules}

    def keep(module, found):
        return lambda _, __, projected: found.append(module.split_heads(projected))

    hooks = [
        projection.register_forward_hook(keep(module, found))
        for name, module in modules.items()
        for projection, found in zip((module.q_proj, module.k_proj), seen[name])
    ]
    try:
        for batch in batches:
            model(**move_to(batch["net_input"], device))
    finally:
        for hook in hooks:
            hook.remove()
    return seen


def _joined(module, queries, keys):
    """The sentences of a module as one batch with padding."""
    query, query_padding = _padded(queries)
    key, key_padding = _padded(keys)
    sigma = module.sigma.detach().unsqueeze(1)
    return Points(query, key, sigma, query_padding, key_padding, module.unnormalized)


def _padded(sentences):
    """(B, H, T, d) and its padding (B, 1, T) from B tensors (1, H, t, d)."""
    lengths = torch.tensor([x.size(2) for x in sentences], device=sentences[0].device)
    length = int(lengths.max())
    x = torch.cat([F.pad(x, (0, 0, 0, length - x.size(2))) for x in sentences])
    padding = torch.arange(length, device=x.device) >= lengths[:, None]
    return x, padding.unsqueeze(1)


def _unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def _on_sphere(query, key):
    """Points of one row and one head, in float32."""
    query, key = (torch.from_numpy(_unit(x)).float()[None, None] for x in (query, key))
    return Points(query, key, torch.ones(1, 1, query.size(-1)))
