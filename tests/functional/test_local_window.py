"""The hybrid: exact attention where the window is long, plain features where it is 0, any chunks between."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from definitions import KERNELS, directions, estimate, heads, joined, points
from fairseq_rfa.attention import CausalRFA
from fairseq_rfa.functional import local_window
from fairseq_rfa.functional.definition import reference_local_window
from fairseq_rfa.functional.encoding import Encoded
from helpers import (
    largest_difference,
    make_causal,
    make_pool,
    padding_mask,
    random_tensor,
    shares,
)
from variants import WITH_KERNEL, each, every_causal_variant, options_of

LENGTH = 12
each_kernel_map = pytest.mark.parametrize("name", WITH_KERNEL)


def _kernel_attention(module, x, name, unnormalized, padding=None, gate=False):
    """Attention by the exact kernel alone: softmax over σ∘q·σ∘k for exponential kernels."""
    q, k = (points(module, name, unnormalized, x, p) for p in (module.q_proj, module.k_proj))
    if unnormalized and name in ("gaussian", "cosine"):
        name = "positive"  # with C(k) the Gaussian kernel is exp(q·k), but for a factor of the query
    if name == "positive":
        scores = q @ k.transpose(-1, -2)
        hidden = torch.ones(len(x), len(x), dtype=torch.bool).triu(1)
        hidden = hidden if padding is None else hidden | padding[:, None, None]
        weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
    else:
        weights = KERNELS[name](q, k) * shares(k, padding=padding)
        weights = weights / weights.sum(-1, keepdim=True)
    return joined(module, weights @ heads(x, module.v_proj))


@pytest.mark.parametrize("kind", ["none", "left", "middle"])
@pytest.mark.parametrize("unnormalized", [False, True])
@pytest.mark.parametrize("window", [LENGTH, 40])
@each_kernel_map
def test_window_as_long_as_the_sentence_is_exact_attention(name, window, unnormalized, kind):
    module = make_causal(
        feature_map=name, unnormalized=unnormalized, local_window=window, floor=1e-30
    )
    x, padding = random_tensor(LENGTH, 2, 32), padding_mask(kind, LENGTH)
    expected = _kernel_attention(module, x, name, unnormalized, padding).transpose(0, 1)
    for dtype, tolerance in ((torch.float64, 1e-10), (torch.float32, 1e-5)):
        actual = module.to(dtype)(x.to(dtype), key_padding_mask=padding)[0].transpose(0, 1)
        kept = slice(None) if padding is None else ~padding
        assert largest_difference(actual[kept], expected[kept]) < tolerance


def test_with_the_scale_of_softmax_it_is_softmax_attention():
    """σ starts such that σ∘q·σ∘k = q·k/√d."""
    options = dict(unnormalized=True, local_window=LENGTH)
    module = CausalRFA(32, 4, make_pool(), 0, "positive", **options).double()
    x = random_tensor(LENGTH, 2, 32)
    q, k, v = (heads(x, p) for p in (module.q_proj, module.k_proj, module.v_proj))
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert largest_difference(module(x)[0], joined(module, out)) < 1e-6  # d^-1/4 is a float32


@each(every_causal_variant(windows=(0,)))
def test_no_window_is_plain_attention_bit_for_bit(make):
    """Nothing of the window's code runs."""
    x = random_tensor(LENGTH, 2, 32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local_window, "causal", None)
        plain = make()(x)[0]
        assert torch.equal(make(local_window=0)(x)[0], plain)
        state = {}
        module = make(local_window=0)
        module(x[:1], incremental_state=state)
        assert "point" not in module._get_input_buffer(state)


@each_kernel_map
def test_window_makes_the_output_more_exact(name):
    """As more keys meet the kernel, the error against exact attention falls to nothing."""
    x, errors = random_tensor(LENGTH, 2, 32), []
    for window in (0, 6, LENGTH - 1, LENGTH):
        module = make_causal(feature_map=name, local_window=window, floor=1e-3)
        out = module(x)[0]
        errors.append((out - _kernel_attention(module, x, name, False)).pow(2).mean())
    assert errors[0] > errors[1] > errors[2] > 1e5 * errors[3]


# Windows and chunks that are shorter, longer, equal, and no multiples of each other and of 11.
@each(
    [
        f"causal {name} gate window={window}"
        for name in ("gaussian unnormalized", "positive")
        for window in (1, 4, 5, 13)
    ]
)
@pytest.mark.parametrize("kind", ["none", "middle"])
def test_chunk_sizes_change_nothing(make, kind):
    x, padding = random_tensor(11, 2, 32), padding_mask(kind, 11)
    results = [make(chunk_size=size)(x, key_padding_mask=padding)[0] for size in (11, 1, 3, 4, 5, 64)]
    for out in results[1:]:
        out, expected = (y.transpose(0, 1) for y in (out, results[0]))
        kept = slice(None) if padding is None else ~padding
        assert largest_difference(out[kept], expected[kept]) < 1e-10


@each([f"causal {name} gate window=2" for name in WITH_KERNEL])
def test_gate_weighs_exact_and_estimated_keys_alike(make):
    """With gates of 1/2 each key weighs half as much as the next, whether it meets the kernel or not."""
    name = options_of(make)["name"]
    module, x = make(floor=1e-300), random_tensor(4, 1, 32)
    with torch.no_grad():
        module.gate_proj.weight.zero_()
        module.gate_proj.bias.zero_()
    q, k = (points(module, name, False, x, p) for p in (module.q_proj, module.k_proj))
    estimated, exact = estimate(name, q, k, *directions(module, name)), KERNELS[name](q, k)
    weights = torch.cat([estimated[:, :, -1, :2], exact[:, :, -1, 2:]], dim=-1)
    weights = weights * torch.tensor([1.0, 2.0, 4.0, 8.0], dtype=torch.float64)
    weights = (weights / weights.sum(-1, keepdim=True)).unsqueeze(2)
    expected = joined(module, weights @ heads(x, module.v_proj))
    assert largest_difference(module(x)[0][-1:], expected) < 1e-10


@pytest.mark.parametrize("gate", [False, True])
@pytest.mark.parametrize("factors", [False, True])
@pytest.mark.parametrize("kind", ["none", "left", "right", "middle", "all"])
def test_reference_and_fast_form_are_the_definition(gate, factors, kind):
    """On made-up features and points, without a module."""
    shape, window = (2, 3, 9), 4
    phi_q, phi_k = (random_tensor(*shape, 6, seed=s).abs() for s in (1, 2))
    q, k, v = (random_tensor(*shape, 5, seed=s) for s in (3, 4, 5))
    logits = 2 * random_tensor(*shape, seed=6) if gate else None
    log_factor = 5 * random_tensor(*shape, seed=7) if factors else None
    padding = padding_mask(kind, 9)
    kernel, estimate = KERNELS["gaussian"](q, k), phi_q @ phi_k.mT
    reference = reference_local_window(
        estimate, kernel, v, window, logits, log_factor, padding, floor=0.05
    )

    kept = torch.ones(2, 9, dtype=torch.bool) if padding is None else ~padding
    expected = torch.zeros(*shape, 5, dtype=torch.float64)
    share = shares(phi_k, logits, padding)
    for row in range(2):
        for t in range(9):
            seen = [s for s in range(t + 1) if kept[row, s]]
            weights = torch.zeros(3, 9, dtype=torch.float64)
            for s in seen:
                source = kernel if s in seen[-window:] else estimate
                weights[:, s] = source[row, :, t, s] * share[row, :, t, s]
                if factors:
                    greatest = log_factor[row, :, seen].amax(-1)
                    weights[:, s] *= (log_factor[row, :, s] - greatest).exp()
            total = weights.sum(-1, keepdim=True).clamp(min=0.05)
            expected[row, :, t] = (weights.unsqueeze(1) @ v[row]).squeeze(1) / total

    blank = None if padding is None else padding[:, None, :, None]
    phi_k = phi_k if blank is None else phi_k.masked_fill(blank, 0.0)
    fast, _ = local_window.causal(
        Encoded(phi_q, None, q),
        Encoded(phi_k, log_factor, k),
        v,
        KERNELS["gaussian"],
        window,
        gate_logits=logits,
        padding=padding,
        chunk_size=4,
        floor=0.05,
    )
    for actual in (reference, fast):
        actual, wanted = (x.transpose(1, 2)[kept] for x in (actual, expected))
        assert largest_difference(actual, wanted) < 1e-10


def _operations(run):
    """Multiplications and entries that are written."""
    written = 0

    class Written(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), options=None):
            nonlocal written
            result = function(*arguments, **(options or {}))
            written += sum(x.numel() for x in tree_leaves(result) if isinstance(x, torch.Tensor))
            return result

    with FlopCounterMode(display=False) as counter, Written():
        run()
    return counter.get_total_flops(), written


@pytest.mark.parametrize("decoding", [False, True])
@each([f"causal {name} gate" for name in ("gaussian", "positive")])
def test_a_window_costs_no_more_than_the_sentence(make, decoding):
    x = random_tensor(20, 2, 32)

    def run(window):
        module, state = make(local_window=window), {}
        with torch.no_grad():
            if not decoding:
                return module(x)
            for t in range(20):
                module(x[t : t + 1], incremental_state=state)
        return None

    multiplied, written = _operations(lambda: run(20))
    for window in (21, 1000):
        more_multiplied, more_written = _operations(lambda window=window: run(window))
        assert more_multiplied == multiplied
        # What is only reserved: the slots of the state, at its first step.
        reserved = (window - 20) * 2 * 4 * (2 * 16 + 2 * 8 + 8) if decoding else 0
        assert more_written <= written + reserved


@pytest.mark.parametrize("window", [0, 3])
def test_a_search_in_training_mode_draws_once(window, monkeypatch):
    module, state, draws = make_causal(local_window=window).train(), {}, []
    draw = module.pool.draw_rows
    monkeypatch.setattr(module.pool, "draw_rows", lambda heads: draws.append(draw(heads)) or draws[-1])
    with torch.no_grad():
        for t in range(4):
            module(random_tensor(1, 2, 32, seed=t), incremental_state=state)
    assert len(draws) == 1
