"""The constants A and ψ with which `feature_maps.oprf` has the least spread for given queries and keys."""

from typing import NamedTuple

import torch
from torch import Tensor

SMALLEST_SQUARE = 1e-12
"""What is less counts as this: of entries that are 0 throughout ψ has a ratio all the same."""


class Moments(NamedTuple):
    """Means over queries, over keys, and over the pairs of a query and a key that it sees, of y = σ∘x."""

    query_square: Tensor
    """of q_i², (H, d)"""
    key_square: Tensor
    """of k_i², (H, d)"""
    product: Tensor
    """of q·k, (H,)"""


class Observed:
    """`Moments` of batches that come one after the other."""

    def __init__(self):
        self.sums = None

    def add(self, query: Tensor, key: Tensor, seen: Tensor):
        """
        Args:
            query: y = σ∘q, (B, H, N, d)
            key: y = σ∘k, (B, H, M, d)
            seen: which queries see which keys, (B, 1, N, M) bool; who sees or is seen by nobody does not count.
        """
        query, key = query.double(), key.double()
        queries, keys = (seen.any(dim).double().unsqueeze(-1) for dim in (-1, -2))
        products = query @ key.mT * seen
        sums = (
            (query.square() * queries).sum((0, 2)),
            (key.square() * keys).sum((0, 2)),
            products.sum((0, 2, 3)),
            *(x.double().sum() for x in (queries, keys, seen)),
        )
        self.sums = sums if self.sums is None else tuple(map(torch.add, self.sums, sums))

    def moments(self) -> Moments:
        """
        Raises:
            ValueError: nothing was seen.
        """
        if self.sums is None or not self.sums[-1]:
            raise ValueError("there are no queries and keys to fit A and ψ to")
        return Moments(*(total / number for total, number in zip(self.sums[:3], self.sums[3:])))


class Constants(NamedTuple):
    a: Tensor
    """(H,)"""
    psi: Tensor
    """(H, d)"""


def best_constants(moments: Moments) -> Constants:
    """ψ = (mean of k² / mean of q²)^1/4 of each entry (Likhosherstov et al. 2023), and the best A of q∘ψ and k/ψ.

    ψ is the scaling that makes the mean of ‖q∘ψ‖² + ‖k/ψ‖² least. The mean of ‖q∘ψ + k/ψ‖² is then
    2 Σ (mean of q_i² · mean of k_i²)^1/2 + 2 · mean of q·k.
    """
    query, key = (x.double().clamp_min(SMALLEST_SQUARE) for x in (moments.query_square, moments.key_square))
    mean_square = 2 * ((query * key).sqrt().sum(-1) + moments.product.double())
    a = best_a(mean_square.clamp_min(0.0), query.size(-1))
    return Constants(a.float(), (key / query).pow(0.25).float())


def best_a(mean_square: Tensor, head_dim: int) -> Tensor:
    """The A ≤ 0 with which `oprf` has the least mean logarithm of its spread (Likhosherstov et al. 2022, theorem 3.3).

    A = (1 − 1/ρ)/8 with ρ = (√((2m + d)² + 8dm) − 2m − d) / 4m, m the mean of ‖q + k‖² over queries and keys.

    Args:
        mean_square: m, at least 0, of any shape; 0 where q = −k, with which A is 0.
        head_dim: d.

    Returns:
        A in the shape of m.
    """
    m = mean_square.double()
    # (√(s² + t) − s) / 4m with s = 2m + d and t = 8dm, without its difference, which would be rounding at a small m.
    s, t = 2 * m + head_dim, 8 * head_dim * m
    rho = 2 * head_dim / ((s.square() + t).sqrt() + s)
    return ((1 - 1 / rho) / 8).clamp(max=0.0).to(mean_square.dtype)
