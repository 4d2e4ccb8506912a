"""A prefix read in one chunk against the same tokens read one by one, and against teacher forcing."""

import pytest
import torch
from fairseq.data.data_utils import collate_tokens

from document_data import add_documents, model_of, task_with
from fairseq_rfa.documents.generator import PrefixedEnsemble
from fairseq_rfa.documents.prefix import padded_on_the_right

TOLERANCE = 2e-4  # float32: logarithms of probabilities after a few layers
SEPARATOR = 9
VARIANTS = [
    "--causal-attention softmax --cross-attention softmax",
    "--causal-attention softmax",
    "",
    "--rfa-gate",
    "--rfa-local-window 3",
    "--rfa-gate --rfa-local-window 3",
    "--rfa-feature-map arccos --rfa-gate",
    "--rfa-feature-map positive --rfa-unnormalized",
    "--rfa-feature-map oprf --rfa-local-window 2",
    "--rfa-feature-map cosine",
    "--rfa-feature-map elu",
    "--rfa-feature-map learned",
    "--rfa-feature-map hedgehog",
    "--decoder-learned-pos",
    "--no-token-positional-embeddings --rfa-gate",
]
SOURCES = [[4, 5, 6, 9, 7, 2], [5, 9, 8, 4, 4, 6, 7, 2], [8, 7, 9, 5, 2]]
PREFIXES = [[2, 6, 7], [2, 4, 9, 5, 8, 6, 4], [2]]
"""Of unequal lengths, and one without a word."""
FORCED = [[SEPARATOR, 4, 8, 6], [SEPARATOR, 5, 5, 7], [SEPARATOR, 7, 4, 4]]


@pytest.fixture(scope="module")
def documents(data, tmp_path_factory):
    return add_documents(data, tmp_path_factory.mktemp("documents") / "data")


def teacher_forced(model, source, prefix, forced):
    """Logarithms of probabilities at the forced tokens, of one row without padding."""
    tokens, source = torch.tensor([prefix + forced]), torch.tensor([source])
    logits, _ = model(source, torch.tensor([source.size(1)]), tokens)
    return logits.log_softmax(-1)[0, len(prefix) :]


def net_input():
    sources = [torch.tensor(source) for source in SOURCES]
    return {
        "src_tokens": collate_tokens(sources, 1, left_pad=True),
        "src_lengths": torch.tensor([len(source) for source in sources]),
        "prev_output_tokens": padded_on_the_right([torch.tensor(prefix) for prefix in PREFIXES], 1),
    }


@pytest.mark.parametrize(
    "architecture, flags", [("transformer", ""), *(("transformer_rfa_tiny", flags) for flags in VARIANTS)]
)
@torch.no_grad()
def test_hypotheses_after_a_prefix_are_those_of_teacher_forcing(documents, flags, architecture):
    """Two hypotheses for each sentence, which change places, and a sentence that leaves the batch."""
    model = model_of(task_with(documents), documents, *flags.split(), architecture=architecture)
    expected = [teacher_forced(model, *row) for row in zip(SOURCES, PREFIXES, FORCED)]
    ensemble = PrefixedEnsemble([model])
    encoder_outs = ensemble.forward_encoder(net_input())
    encoder_outs = ensemble.reorder_encoder_out(encoder_outs, torch.tensor([0, 0, 1, 1, 2, 2]))
    states, sentences = [{}], [0, 0, 1, 1, 2, 2]
    for step in range(4):
        tokens = torch.tensor([FORCED[sentence][: step + 1] for sentence in sentences])
        found, _ = ensemble.forward_decoder(tokens, encoder_outs, states)
        for row, sentence in zip(found, sentences):
            assert (row - expected[sentence][step]).abs().max() < TOLERANCE
        order = [1, 0, 3, 2, 5, 4][: len(sentences)] if step != 1 else [2, 3, 4, 4]
        sentences = [sentences[row] for row in order]
        ensemble.reorder_incremental_state(states, torch.tensor(order))
        encoder_outs = ensemble.reorder_encoder_out(encoder_outs, torch.tensor(order))


@pytest.mark.parametrize("flags", VARIANTS)
@torch.no_grad()
def test_one_chunk_is_token_by_token(documents, flags):
    model = model_of(task_with(documents), documents, *flags.split())
    for number, (source, prefix, forced) in enumerate(zip(SOURCES, PREFIXES, FORCED)):
        whole = torch.tensor([prefix + forced])
        encoder_outs = model.encoder(torch.tensor([source]), torch.tensor([len(source)]))
        state = {}
        for end in range(1, whole.size(1) + 1):
            logits, _ = model.decoder(whole[:, :end], encoder_out=encoder_outs, incremental_state=state)
        ensemble = PrefixedEnsemble([model])
        encoder_outs = ensemble.forward_encoder(net_input())
        states = [{}]
        for end in range(1, len(forced) + 1):
            tokens = torch.tensor([row[:end] for row in FORCED])
            found, _ = ensemble.forward_decoder(tokens, encoder_outs, states)
        assert (found[number] - logits[0, -1].log_softmax(-1)).abs().max() < TOLERANCE


@torch.no_grad()
def test_a_prefix_is_read_in_one_call_of_each_layer(documents):
    model = model_of(task_with(documents), documents)
    lengths = []
    for layer in model.decoder.layers:
        layer.register_forward_hook(lambda module, inputs, _: lengths.append(inputs[0].size(0)))
    PrefixedEnsemble([model]).forward_encoder(net_input())
    assert lengths == [max(map(len, PREFIXES))] * len(model.decoder.layers)
