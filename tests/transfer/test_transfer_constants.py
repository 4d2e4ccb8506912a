"""The constants of oprf are fitted to queries and keys of softmax."""

import pytest
import torch
import torch.nn.functional as F

from fairseq_rfa.functional.oprf_constants import Moments, best_constants
from fairseq_rfa.programs.checkpoint_file import read_checkpoint
from fairseq_rfa.transfer.conversion import convert
from fairseq_rfa.transfer.temperature import fit_sigma
from tiny_data import build
from transfer_data import SMALL, made, valid_batches

PLACES = {"causal": "self_attn", "cross": "encoder_attn"}


class Seen:
    """Queries and keys of one sentence at a time, so that nothing is padding, pair by pair."""

    def __init__(self):
        self.of_q, self.of_k, self.products = [], [], []

    def add(self, q, k, is_causal):
        """q (H, N, d), k (H, M, d)"""
        for i in range(q.size(1)):
            self.of_q.append(q[:, i].square())
            self.products += [(q[:, i] * k[:, j]).sum(-1) for j in range(i + 1 if is_causal else k.size(1))]
        self.of_k += [k[:, j].square() for j in range(k.size(1))]

    def moments(self):
        return Moments(*(torch.stack(x).mean(0) for x in (self.of_q, self.of_k, self.products)))


def moments_of(model, data, sigmas):
    """By place and layer; sigmas None for those of softmax, which are d^-1/4."""
    seen = {(place, layer): Seen() for place in PLACES for layer in range(len(model.decoder.layers))}
    inputs = {}
    for place, layer in seen:
        attention = getattr(model.decoder.layers[layer], PLACES[place])

        def keep(module, _, arguments, key=(place, layer)):
            inputs[key] = arguments["query"], arguments["key"]

        attention.register_forward_pre_hook(keep, with_kwargs=True)
    for batch in valid_batches(data, rows=1):
        with torch.no_grad():
            model(**batch["net_input"])
        for (place, layer), found in seen.items():
            attention = getattr(model.decoder.layers[layer], PLACES[place])
            q, k = attention.q_proj(inputs[place, layer][0]), attention.k_proj(inputs[place, layer][1])
            q, k = (x[:, 0].unflatten(-1, (attention.num_heads, -1)).transpose(0, 1).double() for x in (q, k))
            if sigmas is None:
                q, k = (x * q.size(-1) ** -0.25 for x in (q, k))
            else:
                q, k = (F.normalize(x, dim=-1) * sigmas[place][layer].double()[:, None, None] for x in (q, k))
            found.add(q, k, place == "causal")
    return {key: found.moments() for key, found in seen.items()}


@pytest.mark.parametrize("imitate", ["unit-length", "softmax"])
def test_constants_are_those_of_the_pairs_that_meet(data, tmp_path, imitate):
    path = made(data, tmp_path, architecture="transformer")
    start = read_checkpoint(path)
    converted, report = convert(
        start, "rfa", imitate=imitate, batches=valid_batches(data), rfa_feature_map="oprf", rfa_num_matrices=20
    )
    model = build(data, *SMALL, architecture="transformer").eval()
    model.load_state_dict(dict(start["model"]))
    sigmas = fit_sigma(model, valid_batches(data)) if imitate == "unit-length" else None
    for (place, layer), moments in moments_of(model, data, sigmas).items():
        expected = best_constants(moments)
        assert (expected.a < 0).all() and not torch.allclose(expected.psi, torch.ones(1), rtol=1e-3)
        for name, value in (("oprf_a", expected.a), ("oprf_psi", expected.psi)):
            found = converted["model"][f"decoder.layers.{layer}.{PLACES[place]}.{name}"]
            torch.testing.assert_close(found, value, rtol=1e-3, atol=1e-5)
    assert any("oprf_psi in cross attention of layer 1" in note for note in report.notes)


def test_without_data_constants_are_those_of_a_new_model(data, tmp_path):
    path = made(data, tmp_path, architecture="transformer")
    converted, _ = convert(read_checkpoint(path), "rfa", rfa_feature_map="oprf", rfa_num_matrices=20)
    new = build(data, *SMALL, "--rfa-feature-map", "oprf").state_dict()
    names = [name for name in new if ".oprf_" in name]
    assert len(names) == 8 and all(torch.equal(converted["model"][name], new[name]) for name in names)
