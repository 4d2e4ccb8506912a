"""Hybrid causal attention: the newest keys by the exact kernel, the older ones by features, one normaliser.

Letters are those of `linear_attention`; W is the number of newest keys, the current one included. Keys are counted
without padding. With factors (`Encoded.log_factor`) the sums are divided as in `recurrence`.
"""

from typing import Callable, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .definition import DENOMINATOR_FLOOR, Observe, normalize
from .encoding import Encoded
from .precision import full_precision, wide
from .recurrence import (
    LOWEST,
    Recurrence,
    chunked,
    extended,
    log_kept_between,
    log_kept_to_end,
    recurrence,
    sums_between_chunks,
)
from .window_state import Keys, WindowState, empty_state, lengthened, state_after, take

SMALLEST_LOG = -60.0
"""exp of its negative is far from the end of float32, and so are gradients that hold it."""


@full_precision
def causal(
    query: Encoded,
    key: Encoded,
    v: Tensor,
    kernel: Callable[[Tensor, Tensor], Tensor],
    window: int,
    exponential: bool = False,
    gate_logits: Optional[Tensor] = None,
    padding: Optional[Tensor] = None,
    state: Optional[WindowState] = None,
    chunk_size: int = 64,
    floor: float = DENOMINATOR_FLOOR,
    need_state: bool = True,
    observe: Observe = None,
    sentence_gate: bool = False,
) -> Tuple[Tensor, Optional[WindowState]]:
    """out_t = Σ_s w_ts v_s / max(Σ_s w_ts, floor) of N positions that follow those of `state`.

    w_ts is the kernel of the points of query t and key s if s is one of the W newest keys up to t, and
    phi(q_t)·phi(k_s) if it is older, each times what the gates leave of s and its factor. Time and memory are linear
    in N and in W, or in N where W is greater, without a loop over positions or chunks.

    Args:
        query, key: encoded with points; padding in `key` is blank.
        kernel: takes points; the logarithm of the kernel if exponential.
        window: W, at least 1.
        exponential: weights of any size, which are divided by the greatest of each query.
        need_state: False saves the work of the state after the last position.
        observe: told of the floor, at padding as well.
        sentence_gate: gate_logits are those of a sentence gate, see `reference_causal`.

    Returns:
        out (B, H, N, d), and the state after the last position or None.
    """
    dtype, length, wanted = v.dtype, v.size(2), window
    if state is None:
        if not torch.jit.is_tracing():  # A trace is for any length.
            window = max(1, min(window, length))  # There are no more keys than these.
        state = empty_state(key, v, window)
    phi_q, point_q, v = wide(query.phi), wide(query.point), wide(v)
    gate_logits, log_factor = wide(gate_logits), wide(key.log_factor)
    phi_k, point_k, places = wide(key.phi), wide(key.point), None
    if padding is not None:
        v = v.masked_fill(padding[:, None, :, None], 0.0)
        order = padding.int().argsort(dim=1, stable=True)
        gate_logits, log_factor = (None if x is None else take(x, order) for x in (gate_logits, log_factor))
        phi_q, point_q, phi_k, point_k, v = (take(x, order) for x in (phi_q, point_q, phi_k, point_k, v))
        padding, places = padding.gather(1, order), order.argsort(dim=1)
    flow = recurrence(gate_logits, log_factor, padding, state.log_scale, sentence_gate)
    if flow is None:
        nothing = v.new_zeros(v.shape[:3])
        flow = Recurrence(nothing, nothing, None)
    log_keep, log_add = flow.log_keep, flow.log_add
    if padding is not None:
        log_add = log_add.masked_fill(padding.unsqueeze(1), LOWEST)
    keys = Keys(phi_k, point_k, v, log_add)
    keys = Keys(*(torch.cat(pair, dim=2) for pair in zip(state.keys(), keys)))
    log_keep = F.pad(log_keep, (window, 0))

    num_chunks = max(1, -(-length // chunk_size))
    numerator, denominator, greatest = _older_and_newest(
        phi_q, point_q, keys, log_keep, state, kernel, window, exponential, num_chunks
    )

    def in_place(x):
        x = x.flatten(2, 3)[:, :, :length]
        return x if places is None else take(x, places)

    if greatest is not None:
        floor = in_place(floor * (-greatest).exp())
    out = normalize(in_place(numerator), in_place(denominator), floor, observe)
    if not need_state:
        return out.to(dtype), None
    num_new = v.new_full((v.size(0),), length, dtype=torch.long)
    if padding is not None:
        num_new = (~padding).sum(1)
    after = state_after(keys, log_keep, state, num_new, window)
    if flow.log_kept_after is not None:
        after = after.times(flow.log_kept_after)
    return out.to(dtype), lengthened(after._replace(log_scale=flow.log_scale), wanted - window)


def _older_and_newest(
    phi_q: Tensor,
    point_q: Tensor,
    keys: Keys,
    log_keep: Tensor,
    state: WindowState,
    kernel: Callable[[Tensor, Tensor], Tensor],
    window: int,
    exponential: bool,
    num_chunks: int,
) -> Tuple[Tensor, Tensor, Optional[Tensor]]:
    """Numerator (B, H, chunks, C, d) and denominator (B, H, chunks, C), and the logarithm of what both are divided by.

    keys and log_keep begin W positions before the queries. The C queries of a chunk meet W + C keys in pairs; what
    is older stands in sums.
    """
    phi_q, point_q = chunked(phi_q, num_chunks), chunked(point_q, num_chunks)
    chunk_length = phi_q.size(3)
    length = window + num_chunks * chunk_length
    keys = Keys(*(extended(x, length) for x in keys))
    log_keep = extended(log_keep, length)

    def older(x):
        return x[:, :, : num_chunks * chunk_length].unflatten(2, (num_chunks, chunk_length))

    first = torch.arange(num_chunks, device=log_keep.device) * chunk_length
    positions = first.unsqueeze(-1) + torch.arange(window + chunk_length, device=log_keep.device)

    def met(x):
        # Not by unfold, which XLA lacks.
        return x.index_select(2, positions.flatten()).unflatten(2, positions.shape)

    add = keys.log_weight.exp().unsqueeze(-1)
    kv, ksum = sums_between_chunks(
        older(keys.phi * add), older(keys.v), older(log_keep), (state.kv, state.ksum)
    )
    before, within = met(log_keep).split([window, chunk_length], dim=-1)
    kept_within = within.cumsum(-1).unsqueeze(-1)
    kept = (before.sum(-1)[..., None, None] + kept_within).exp()
    numerator = (phi_q @ kv[:, :, :-1]) * kept
    denominator = (phi_q @ ksum[:, :, :-1].unsqueeze(-1) * kept).squeeze(-1)

    # What is left at each query of the keys before the chunk, and of those in it.
    log_weight = torch.cat(
        [log_kept_to_end(before).unsqueeze(-2) + kept_within, log_kept_between(within)], dim=-1
    )
    log_weight = log_weight + met(keys.log_weight).unsqueeze(-2)
    t = torch.arange(chunk_length, device=log_keep.device).unsqueeze(-1)
    newest = torch.arange(window + chunk_length, device=log_keep.device) > t
    estimate = phi_q @ met(keys.phi).transpose(-1, -2) * log_weight.exp()
    estimate = estimate.masked_fill(newest, 0.0)
    numerator = numerator + estimate @ met(keys.v)
    denominator = denominator + estimate.sum(-1)

    exact = kernel(point_q, met(keys.point))
    return add_exact(numerator, denominator, exact, log_weight, met(keys.v), exponential, hidden=~newest)


def add_exact(
    numerator: Tensor,
    denominator: Tensor,
    exact: Tensor,
    log_weight: Tensor,
    v: Tensor,
    exponential: bool,
    hidden: Optional[Tensor] = None,
) -> Tuple[Tensor, Tensor, Optional[Tensor]]:
    """Numerator (…, N, d) and denominator (…, N) of older keys, and those of keys that meet the exact kernel.

    Args:
        exact: the kernel of each query and key, (…, N, M); its logarithm if exponential.
        log_weight: the logarithm of what each key counts for, broadcast to (…, N, M).
        v: (…, M, d)
        hidden: True for what a query does not see, (…, N, M).

    Returns:
        both sums, and if exponential the logarithm of what both are divided by, (…, N).
    """
    if not exponential:
        exact = exact * log_weight.exp()
        exact = exact if hidden is None else exact.masked_fill(hidden, 0.0)
        return numerator + exact @ v, denominator + exact.sum(-1), None
    exact = exact + log_weight
    exact = exact if hidden is None else exact.masked_fill(hidden, float("-inf"))
    greatest = torch.maximum(exact.amax(-1), denominator.log()).clamp(min=SMALLEST_LOG).detach()
    exact = (exact - greatest.unsqueeze(-1)).exp()
    numerator = numerator * (-greatest).exp().unsqueeze(-1)
    denominator = denominator * (-greatest).exp()
    return numerator + exact @ v, denominator + exact.sum(-1), greatest
