"""Small builders, and the definitions that the tests compare with.

The definitions are written apart from the package, in another way (one weight for each pair of positions), and
so that gradients can be taken through them.
"""

import pytest
import torch

from fairseq_rfa.attention import CausalRFA, CrossRFA, EncoderRFA
from fairseq_rfa.attention.decoding_state import empty_state, state_after
from fairseq_rfa.functional.encoding import Directions, Encoded
from fairseq_rfa.functional.feature_maps import gaussian
from fairseq_rfa.functional.linear_attention import State
from fairseq_rfa.functional.precision import wide
from fairseq_rfa.functional.random_matrices import MatrixPool

PADDINGS = ("none", "left", "right", "middle", "all")
FLOOR = 0.1


def random_generator(seed):
    return torch.Generator().manual_seed(seed)


def random_tensor(*shape, seed=1, dtype=torch.float64):
    return torch.randn(*shape, generator=random_generator(seed), dtype=torch.float64).to(dtype)


def unit_vectors(*shape, generator, dtype=torch.float64):
    x = torch.randn(*shape, generator=generator, dtype=dtype)
    return x / x.norm(dim=-1, keepdim=True)


def attention_inputs(
    length, source_length=None, gate=False, seed=0, batch=2, heads=2, directions=4, width=5
):
    """phi_q, phi_k, v and, with a gate, gate_logits in float64: Gaussian features of random unit vectors."""
    generator = random_generator(seed)
    source_length = length if source_length is None else source_length
    w = torch.randn(heads, directions, width, generator=generator, dtype=torch.float64)
    inputs = {
        "phi_q": gaussian(unit_vectors(batch, heads, length, width, generator=generator), w),
        "phi_k": gaussian(unit_vectors(batch, heads, source_length, width, generator=generator), w),
        "v": torch.randn(
            batch, heads, source_length, width, generator=generator, dtype=torch.float64
        ),
    }
    if gate:
        logits = torch.randn(batch, heads, length, generator=generator, dtype=torch.float64)
        inputs["gate_logits"] = 2 * logits
    return inputs


def padding_mask(kind, length, batch=2):
    """(B, length), True at padding: the last row is padded on one side, in the middle or all over."""
    if kind == "none":
        return None
    mask = torch.zeros(batch, length, dtype=torch.bool)
    few = -(-length // 4)
    first = {"left": 0, "right": length - few, "middle": length // 3, "all": 0}[kind]
    mask[-1, first : length if kind == "all" else first + few] = True
    return mask


def shares(phi_k, gate_logits=None, padding=None):
    """How much of the key s stands in the sums of position t: (B, H, N, N)"""
    batch, heads, length = phi_k.shape[:3]
    if gate_logits is None:
        result = torch.ones(batch, heads, length, length, dtype=phi_k.dtype).tril()
    else:
        gates = torch.sigmoid(gate_logits)
        if padding is not None:
            gates = torch.where(padding[:, None], torch.ones_like(gates), gates)
        columns = []
        for s in range(length):
            later = torch.cat([1 - gates[..., s, None], gates[..., s + 1 :]], dim=-1).cumprod(-1)
            columns.append(torch.nn.functional.pad(later, (s, 0)))
        result = torch.stack(columns, dim=-1)
    if padding is not None:
        result = result * (~padding)[:, None, None]
    return result


def without_padding(x, padding):
    return x if padding is None else torch.where(padding[:, None, :, None], torch.zeros_like(x), x)


def weighted_mean(weights, v, floor):
    return (weights @ v) / weights.sum(-1, keepdim=True).clamp(min=floor)


def defined_causal(phi_q, phi_k, v, gate_logits=None, padding=None, floor=FLOOR):
    phi_k, v = without_padding(phi_k, padding), without_padding(v, padding)
    weights = torch.einsum("bhtf,bhsf->bhts", phi_q, phi_k)
    return weighted_mean(weights * shares(phi_k, gate_logits, padding), v, floor)


def defined_state(phi_k, v, gate_logits=None, padding=None):
    phi_k, v = without_padding(phi_k, padding), without_padding(v, padding)
    share = shares(phi_k, gate_logits, padding)[:, :, -1]
    return State(
        torch.einsum("bhs,bhsf,bhsd->bhfd", share, phi_k, v),
        torch.einsum("bhs,bhsf->bhf", share, phi_k),
    )


def defined_cross(phi_q, phi_k, v, padding=None, floor=FLOOR):
    phi_k, v = without_padding(phi_k, padding), without_padding(v, padding)
    return weighted_mean(torch.einsum("bhtf,bhsf->bhts", phi_q, phi_k), v, floor)


def position(inputs, t):
    """The inputs of position t alone."""
    return {name: x[:, :, t : t + 1] for name, x in inputs.items()}


def piece(inputs, start, end):
    return {name: x[:, :, start:end] for name, x in inputs.items()}


@torch.no_grad()
def decode(phi_q, phi_k, v, gate_logits=None, log_factor=None, totals=None, floor=FLOOR):
    """Position by position through the state of a search: out in float32 or wider, and the state.

    Args:
        totals: what earlier positions left; nothing if None.
    """
    phi_q, phi_k, v = wide(phi_q), wide(phi_k), wide(v)
    has_gate, outputs = gate_logits is not None, []
    if totals is None:
        state = empty_state(Encoded(phi_k, log_factor), v, Directions(), floor, has_gate)
    else:
        state = state_after(totals, Directions(), floor, has_gate)
    for t in range(v.size(2)):
        now = slice(t, t + 1)
        key = Encoded(phi_k[:, :, now], None if log_factor is None else log_factor[:, :, now])
        logits = gate_logits[:, :, now] if has_gate else None
        outputs.append(state.advance(Encoded(phi_q[:, :, now]), key, v[:, :, now], logits))
    return torch.cat(outputs, dim=2), state


def leaves(inputs):
    """Copies of the inputs that collect gradients."""
    return {name: x.detach().clone().requires_grad_() for name, x in inputs.items()}


def gradients(function, inputs, **options):
    """The gradients of a random combination of the outputs, in the order of inputs."""
    inputs = leaves(inputs)
    out = function(**inputs, **options)
    mixture = torch.randn(out.shape, generator=random_generator(99), dtype=torch.float64)
    (out * mixture).sum().backward()
    return [x.grad for x in inputs.values()]


def largest_difference(actual, expected):
    """The largest error, as a part of the largest expected entry where that is more than 1."""
    assert actual.shape == expected.shape
    if not expected.numel():
        return 0.0
    scale = expected.abs().max().clamp(min=1.0)
    return ((actual.double() - expected.double()).abs().max() / scale.double()).item()


def make_pool(num_directions=16, head_dim=8, num_matrices=8, seed=1, **options):
    return MatrixPool(num_matrices, num_directions, head_dim, seed, **options)


def _pool_for(feature_map):
    return None if feature_map == "elu" else make_pool(with_phases=feature_map == "cosine")


def _with_random_parameters(module, seed):
    with torch.no_grad():
        generator = random_generator(seed)
        for name, parameter in module.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            values = {"sigma": 1 + 0.2 * noise, "oprf_a": -noise.abs() / 4, "oprf_psi": (0.3 * noise).exp()}
            parameter.copy_(values.get(name, 0.3 * noise))
    return module.double().eval()


def make_causal(gate=False, seed=5, pool=None, feature_map="gaussian", **options):
    """A float64 CausalRFA of 4 heads of 8 in evaluation mode, with random parameters."""
    pool, layer_index = pool or _pool_for(feature_map), options.pop("layer_index", 1)
    module = CausalRFA(32, 4, pool, layer_index, gate=gate, feature_map=feature_map, **options)
    return _with_random_parameters(module, seed)


def make_cross(seed=6, pool=None, feature_map="gaussian", **options):
    """A float64 CrossRFA of 4 heads of 8 over encoder states of width 24."""
    options = {"kdim": 24, "vdim": 24, "feature_map": feature_map, **options}
    module = CrossRFA(32, 4, pool or _pool_for(feature_map), layer_index=1, **options)
    return _with_random_parameters(module, seed)


def make_encoder(seed=7, pool=None, feature_map="gaussian", **options):
    """A float64 EncoderRFA of 4 heads of 8."""
    pool = pool or _pool_for(feature_map)
    return _with_random_parameters(EncoderRFA(32, 4, pool, layer_index=1, feature_map=feature_map, **options), seed)


def trained_parameters(module):
    """Parameters by name, without those that are constants."""
    return {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}


def make_gated(**options):
    return make_causal(gate=True, **options)


each_module = pytest.mark.parametrize(
    "make", [make_causal, make_gated, make_cross], ids=["causal", "gated", "cross"]
)


def call(module, length=9, rows=3, source_length=7, dtype=torch.float64, **options):
    """The output of a module for random inputs."""
    query = random_tensor(length, rows, 32, dtype=dtype)
    if not isinstance(module, CrossRFA):
        return module(query, query, query, **options)[0]
    key = random_tensor(source_length, rows, 24, seed=2, dtype=dtype)
    return module(query, key, key, **options)[0]


def state_of(module, incremental_state):
    """The tensors that a module keeps between calls, by name."""
    return module._get_input_buffer(incremental_state)
