"""What the modules compute, pair by pair: one weight for each query and key, from the formulas alone.

Nothing here calls the package. In float64 no exponential needs a stabiliser, so there is none, and gradients
can be taken through everything.
"""

import math

import torch

from helpers import shares

# Kernels and estimates take points y = σ∘x: (…, N, d) and (…, M, d) → (…, N, M).


def _differences(q, k):
    return q.unsqueeze(-2) - k.unsqueeze(-3)


def _half_square(x):
    return (x * x).sum(-1) / 2


def gaussian_kernel(q, k):
    return torch.exp(-_half_square(_differences(q, k)))


def exponential_kernel(q, k):
    return torch.exp((q.unsqueeze(-2) * k.unsqueeze(-3)).sum(-1))


def arccos_kernel(q, k):
    """With the angle of two vectors from the lengths of the sum and of the difference of their directions."""
    of_q, of_k = (x.pow(2).sum(-1).sqrt() for x in (q, k))
    one, two = (q / of_q.unsqueeze(-1)).unsqueeze(-2), (k / of_k.unsqueeze(-1)).unsqueeze(-3)
    angle = 2 * torch.atan2((one - two).norm(dim=-1), (one + two).norm(dim=-1))
    lengths = of_q.unsqueeze(-1) * of_k.unsqueeze(-2)
    return lengths * (angle.sin() + (math.pi - angle) * angle.cos()) / (2 * math.pi)


KERNELS = {
    "gaussian": gaussian_kernel,
    "cosine": gaussian_kernel,
    "arccos": arccos_kernel,
    "positive": exponential_kernel,
    "oprf": exponential_kernel,
}


def _positive_part(x):
    return torch.where(x > 0, x, torch.zeros_like(x))


def estimate(name, q, k, w, b):
    """φ(q)·φ(k) for w (H, D, d) and b (H, D), or of oprf A (H,) and ψ (H, d)."""
    if name == "elu":
        one, two = (_positive_part(x) + torch.exp(-_positive_part(-x)) for x in (q, k))
        return torch.einsum("bhtd,bhsd->bhts", one, two)
    if name == "gaussian":  # sin x sin y + cos x cos y = cos(x − y)
        return torch.einsum("bhtsd,hfd->bhtsf", _differences(q, k), w).cos().mean(-1)
    if name == "oprf":
        a, psi = b
        q, k = q * psi[:, None], k / psi[:, None]
    of_q, of_k = (torch.einsum("bhtd,hfd->bhtf", x, w) for x in (q, k))
    if name == "positive":
        logarithms = of_q.unsqueeze(-2) + of_k.unsqueeze(-3)
        logarithms = logarithms - _half_square(q)[..., None, None] - _half_square(k)[..., None, :, None]
        return logarithms.exp().mean(-1)
    if name == "oprf":
        logarithms = (1 - 4 * a).sqrt()[:, None, None, None] * (of_q.unsqueeze(-2) + of_k.unsqueeze(-3))
        logarithms = logarithms - _half_square(q)[..., None, None] - _half_square(k)[..., None, :, None]
        logarithms = logarithms + 2 * a[:, None, None, None] * w.square().sum(-1)[:, None, None]
        return (1 - 4 * a)[:, None, None] ** (q.size(-1) / 2) * logarithms.exp().mean(-1)
    if name == "hedgehog":
        one, two = (torch.cat([x.exp().square(), (-x).exp().square()], dim=-1) for x in (of_q, of_k))
        one, two = (x / x.sum(-1, keepdim=True) for x in (one, two))
        return torch.einsum("bhtf,bhsf->bhts", one, two)
    if name == "cosine":
        one, two = ((x + b[:, None]).cos() for x in (of_q, of_k))
        return 2 * (one.unsqueeze(-2) * two.unsqueeze(-3)).mean(-1)
    if name == "arccos":
        one, two = _positive_part(of_q), _positive_part(of_k)
        return (one.unsqueeze(-2) * two.unsqueeze(-3)).mean(-1)
    assert name == "learned"
    one, two = (_positive_part(x + b[:, None]) for x in (of_q, of_k))
    return (one.unsqueeze(-2) * two.unsqueeze(-3)).sum(-1)


def heads(x, projection):
    """(positions, B, width) → (B, 4, positions, 8)"""
    projected = torch.einsum("tbe,fe->btf", x, projection.weight) + projection.bias
    return torch.stack(projected.split(8, dim=-1), dim=1)


def joined(module, out):
    """(B, 4, positions, 8) → (positions, B, 32)"""
    return module.out_proj(torch.cat(out.unbind(1), dim=-1)).transpose(0, 1)


def points(module, name, unnormalized, x, projection):
    """y = σ∘x, x of unit length where the map and the options say so."""
    x = heads(x, projection)
    if name not in ("elu", "hedgehog") and not unnormalized:
        x = x / x.norm(dim=-1, keepdim=True)
    return x * module.sigma.unsqueeze(1)


def directions(module, name):
    """w and b of the four heads in evaluation, layer 1."""
    if name == "learned":
        return module.feature_weight, module.feature_bias
    if name == "hedgehog":
        return module.hedgehog_weight, None
    if name == "elu":
        return None, None
    rows = [(4 + head) % module.pool.matrices.size(0) for head in range(4)]
    w = torch.stack([module.pool.matrices[row].double() for row in rows])
    b = None
    if name == "cosine":
        b = torch.stack([module.pool.phases[row].double() for row in rows])
    if name == "oprf":
        b = module.oprf_a, module.oprf_psi
    return w, b


def newest(padding, length, window):
    """Whether key s is one of the `window` newest keys up to t that are not padding: (B or 1, 1, N, N)"""
    kept = torch.ones(1, length, dtype=torch.long) if padding is None else (~padding).long()
    up_to = kept.cumsum(-1)
    return ((up_to.unsqueeze(-1) - up_to.unsqueeze(-2)) < window).unsqueeze(1)


def pair_weights(
    module, name, query, source, unnormalized=False, window=0, gate_logits=None, padding=None, exact=False
):
    """Weights (B, H, N, N or M) of causal attention where source is query, of cross attention elsewhere."""
    q = points(module, name, unnormalized, query, module.q_proj)
    k = points(module, name, unnormalized, source, module.k_proj)
    weights = KERNELS[name](q, k) if exact else estimate(name, q, k, *directions(module, name))
    causal = source is query
    if window:
        exact = KERNELS[name](q, k)
        weights = torch.where(newest(padding, len(query), window), exact, weights)
    if causal:
        weights = weights * shares(k, gate_logits, padding)
    elif padding is not None:
        weights = weights * (~padding)[:, None, None]
    if unnormalized and name in ("gaussian", "cosine"):
        logarithms = _half_square(k).unsqueeze(-2)  # of C(k), beside the greatest that a query sees
        seen = torch.ones(len(query), len(source), dtype=torch.bool)
        seen = (seen.tril() if causal else seen)[None, None]
        if padding is not None:
            seen = seen & ~padding[:, None, None]
        greatest = torch.where(seen, logarithms, -1e30).amax(-1, keepdim=True)
        weights = weights * torch.where(seen, logarithms - greatest, 0.0).exp()
    return weights


def attention(module, name, query, source=None, floor=0.1, gate=False, padding=None, **options):
    """The output of a module, (N, B, 32)."""
    source = query if source is None else source
    logits = None
    if gate:
        logits = torch.stack([module.gate_proj(query)[..., h].T for h in range(4)], dim=1)
    weights = pair_weights(module, name, query, source, gate_logits=logits, padding=padding, **options)
    floor = 1e-300 if name in ("positive", "oprf", "hedgehog") else floor
    total = weights.sum(-1, keepdim=True)
    out = weights @ heads(source, module.v_proj)
    return joined(module, out / torch.where(total > floor, total, floor))
