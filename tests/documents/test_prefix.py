"""A prefix that is read in one chunk against one that is read token by token, and against teacher forcing."""

import pytest
import torch
from fairseq.data.data_utils import collate_tokens

from document_data import add_documents, model_of, task_with
from fairseq_rfa.documents.generator import PrefixedEnsemble
from fairseq_rfa.documents.prefix import PREFIX, read_prefix
from fairseq_rfa.documents.windows import SEPARATOR
from variants import FLAGS

# Log-probabilities; another order of summation in float32 stays far below, a wrong position or mask far above.
TOLERANCE = 2e-4
SOFTMAX = "--causal-attention softmax --cross-attention softmax"
MODELS = [
    "transformer",
    "transformer --decoder-learned-pos",
    "transformer --decoder-normalize-before",
    "transformer --no-token-positional-embeddings",
    *(f"transformer_rfa_tiny {flags}" for flags in ("", "--rfa-gate", SOFTMAX, "--decoder-learned-pos", *FLAGS)),
    *(
        f"transformer_rfa_tiny --rfa-sentence-gate --rfa-sentence-gate-bias -2 {flags}"
        for flags in ("", "--rfa-local-window 3", *(flags for flags in FLAGS if "--rfa-gate" not in flags))
    ),
]
SEP = 12
"""The separator; here a search goes on after it as well, to a further one."""
PREFIXES = [[2, 5, SEP, 9], [2, 7], [2, 4, SEP, 6, 7, SEP, 9, 10, 11, 4, 4]]
NEXT = torch.tensor([[SEP, 5, 8, 6], [SEP, 11, SEP, 7], [SEP, 6, 6, 5]])


@pytest.fixture(scope="module")
def documents(data, tmp_path_factory):
    return add_documents(data, tmp_path_factory.mktemp("documents") / "data")


@pytest.fixture
def model(request, documents):
    architecture, *flags = request.param.split()
    task = task_with(documents, "--context-sentences", "2")
    assert task.tgt_dict.index(SEPARATOR) == SEP
    model = model_of(task, documents, *flags, architecture=architecture)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("weight", "bias")):
                parameter.add_(0.1 * torch.randn_like(parameter))
    model.decoder.embed_tokens.weight.data[1] = 0
    return model


def source_of(rows):
    sources = [torch.tensor([4 + (row + i) % 8 for i in range(3 + 2 * row)] + [2]) for row in range(rows)]
    tokens = collate_tokens(sources, 1)
    return {"src_tokens": tokens, "src_lengths": tokens.ne(1).sum(1)}


def taught(model, row, following):
    """Log-probabilities after each of the following tokens, of one row alone by teacher forcing."""
    source = source_of(3)["src_tokens"][row : row + 1]
    source = source[source.ne(1)][None]
    tokens = torch.tensor([PREFIXES[row] + following])
    out = model(source, torch.tensor([source.size(1)]), tokens)
    return model.get_normalized_probs(out, log_probs=True)[0, -len(following) :]


def steps(ensemble, outs, tokens, orders=()):
    """Log-probabilities of each step of a search that forces these tokens (rows, steps)."""
    states, found = [{} for _ in ensemble.models], []
    for step in range(tokens.size(1)):
        found.append(ensemble.forward_decoder(tokens[:, : step + 1], outs, states)[0])
        for at, new_order in orders:
            if at == step:
                ensemble.reorder_incremental_state(states, new_order)
                outs = ensemble.reorder_encoder_out(outs, new_order)
                tokens = tokens[new_order]
    return found


each_model = pytest.mark.parametrize("model", MODELS, indirect=True, ids=lambda text: text.replace(" ", "_"))


@each_model
@pytest.mark.parametrize("beam", [1, 3])
def test_a_chunk_is_teacher_forcing(model, beam, without_gradients):
    """Prefixes of three lengths side by side, then hypotheses that part, change places and leave."""
    ensemble = PrefixedEnsemble([model])
    ensemble.set_decoder_beam_size(beam)
    prefix = collate_tokens([torch.tensor(row) for row in PREFIXES], 1)
    outs = ensemble.forward_encoder({**source_of(3), "prev_output_tokens": prefix})
    sentence = torch.arange(3).repeat_interleave(beam)
    outs = ensemble.reorder_encoder_out(outs, sentence)
    tokens = NEXT[sentence].clone()
    tokens[:, 1] = 4 + torch.arange(3 * beam) % 8
    swapped = (torch.arange(3)[:, None] * beam + torch.arange(beam).flip(0)).flatten()
    orders = [(1, swapped), (2, torch.cat([torch.arange(beam), torch.arange(2 * beam, 3 * beam)]))]
    found = steps(ensemble, outs, tokens, orders=orders)
    following = tokens
    for step, log_probabilities in enumerate(found):
        for row in range(len(following)):
            expected = taught(model, int(sentence[row]), following[row, : step + 1].tolist())[-1]
            assert (log_probabilities[row] - expected).abs().max() < TOLERANCE
        for at, new_order in orders:
            if at == step:
                following, sentence = following[new_order], sentence[new_order]


@each_model
def test_a_chunk_is_token_by_token(model, without_gradients):
    """Each row alone, because fairseq steps through rows of one length."""
    ensemble = PrefixedEnsemble([model])
    source, prefix = source_of(3), collate_tokens([torch.tensor(row) for row in PREFIXES], 1)
    outs = ensemble.forward_encoder({**source, "prev_output_tokens": prefix})
    in_chunk = steps(ensemble, ensemble.reorder_encoder_out(outs, torch.arange(3)), NEXT)
    for row in range(3):
        one = {"src_tokens": source["src_tokens"][row : row + 1], "src_lengths": source["src_lengths"][row : row + 1]}
        tokens = torch.tensor([PREFIXES[row] + NEXT[row].tolist()])
        by_token = steps(ensemble, ensemble.forward_encoder(one), tokens)[len(PREFIXES[row]) :]
        for first, second in zip(in_chunk, by_token, strict=True):
            assert (first[row] - second[0]).abs().max() < TOLERANCE


@pytest.mark.parametrize("model", MODELS[:1] + MODELS[4:6], indirect=True)
def test_a_prefix_is_read_by_one_call_of_each_layer(model, without_gradients):
    calls = []
    for layer in model.decoder.layers:
        layer.register_forward_pre_hook(lambda module, arguments: calls.append(arguments[0].shape[:2]))
    source = source_of(3)
    encoder_out = model.encoder(**source)
    prefix = collate_tokens([torch.tensor(row) for row in PREFIXES], 1)
    state = read_prefix(model.decoder, prefix, encoder_out)
    assert calls == len(model.decoder.layers) * [(11, 3)]
    assert state[PREFIX]["length"].tolist() == [4, 2, 11]
    assert not any(layer.self_attn._forward_pre_hooks for layer in model.decoder.layers)
