"""fairseq-generate in context: against sentences translated one by one, whose prefix is forced token by token."""

import math

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.sequence_generator import SequenceGenerator

from document_data import SIZES, add_documents, task_with
from fairseq_rfa.documents.windows import SEPARATOR
from tiny_data import PLUGIN, command, generate_here, results, train_here

IN_CONTEXT = ("--task", "document_translation")
LONGEST = 8
"""Tokens of a translation."""
SENTENCES = ("--task", "translation", "--lenpen", "0", "--max-len-b", str(LONGEST))
SOFTMAX = ("--causal-attention", "softmax", "--cross-attention", "softmax")
TRAINED = {
    "rfa": ((), "transformer_rfa_tiny"),
    "gate": (("--rfa-local-window", "2"), "transformer_rfa_tiny_gate"),
    "sentence gate": (("--rfa-sentence-gate", "--rfa-sentence-gate-bias", "-1"), "transformer_rfa_tiny"),
    "softmax": (SOFTMAX, "transformer_rfa_tiny"),
    "fairseq": ((), "transformer"),
}


@pytest.fixture(scope="module")
def documents(data, tmp_path_factory):
    return add_documents(data, tmp_path_factory.mktemp("documents") / "data")


@pytest.fixture(scope="module", params=list(TRAINED))
def trained(request, documents, tmp_path_factory):
    flags, architecture = TRAINED[request.param]
    flags = (*IN_CONTEXT, "--context-sentences", "2", "--max-update", "3", *flags)
    return varied(train_here(documents, tmp_path_factory.mktemp("trained"), *flags, architecture=architecture))


def varied(path):
    """The checkpoint with large random weights, to whose scores the context matters."""
    checkpoint = torch.load(path, weights_only=True)
    for name, weight in sorted(checkpoint["model"].items()):
        if ".layers." in name and weight.dim() > 1 and "sigma" not in name:
            weight.add_(torch.randn_like(weight))
    torch.save(checkpoint, path)
    return path


def translate_one_by_one(documents, checkpoint, beam, own=True, split="test"):
    """Translations and the logarithms to base 2 of their probabilities, by fairseq's own search."""
    (model,), _ = checkpoint_utils.load_model_ensemble([str(checkpoint)])
    task = task_with(documents)
    task.load_dataset(split)
    options = dict(beam_size=beam, len_penalty=0.0, tokens_to_suppress=(SEPARATOR,))
    model.eval()
    separators = [d.index(SEPARATOR) for d in (task.src_dict, task.tgt_dict)]
    found, scores, first = [], [], 0
    for size in SIZES[split]:
        for number in range(first, first + size):
            earlier = range(max(first, number - 2), number)
            source, prefix = [], []
            for other in earlier:
                source += [*task.dataset(split)[other]["source"][:-1].tolist(), separators[0]]
                reference = task.dataset(split)[other]["target"][:-1].tolist()
                prefix += [*(found[other] if own else reference), separators[1]]
            source = torch.tensor([source + task.dataset(split)[number]["source"].tolist()])
            batch = {"net_input": {"src_tokens": source, "src_lengths": torch.tensor([source.size(1)])}}
            forced = torch.tensor([prefix]) if prefix else None
            generator = SequenceGenerator(
                [model], task.tgt_dict, min_len=1 + len(prefix), max_len_b=LONGEST + len(prefix), **options
            )
            best = generator.generate([model], batch, prefix_tokens=forced)[0][0]
            found.append(best["tokens"][len(prefix) : -1].tolist())
            scores.append(best["positional_scores"][len(prefix) :].sum().item() / math.log(2))
        first += size
    return [task.tgt_dict.string(torch.tensor(tokens, dtype=torch.long)) for tokens in found], scores


def generate(documents, checkpoint, *flags):
    return generate_here(documents, checkpoint, *IN_CONTEXT, "--lenpen", "0", "--max-len-b", str(LONGEST), *flags)


@pytest.mark.parametrize("flags", [(), ("--context-prefix", "reference")])
@pytest.mark.parametrize("beam", [1, 3])
def test_documents_side_by_side_are_sentences_one_by_one(documents, trained, beam, flags):
    output = generate(documents, trained, "--beam", str(beam), "--max-tokens", "60", *flags)
    expected, scores = translate_one_by_one(documents, trained, beam, own=not flags)
    found = results(output)
    assert [(number, fields[-1]) for number, fields in found] == list(enumerate(expected))
    # Sums of up to nine log-probabilities in float32.
    assert [float(fields[0]) for _, fields in found] == pytest.approx(scores, abs=1e-3)
    assert len({round(score, 2) for score in scores}) > 5


def test_lines_are_sentences_once_each_in_the_order_of_their_documents(documents, trained):
    output = generate(documents, trained, "--batch-size", "2")
    numbers = [int(line[2:].partition("\t")[0]) for line in output.splitlines() if line.startswith("H-")]
    assert sorted(numbers) == list(range(8))
    positions = dict(enumerate(position for size in SIZES["test"] for position in range(size)))
    assert [positions[number] for number in numbers] == sorted(positions.values())
    task = task_with(documents)
    task.load_dataset("test")
    for kind, side, dictionary in (("S", "source", task.src_dict), ("T", "target", task.tgt_dict)):
        expected = [dictionary.string(task.dataset("test")[number][side]) for number in range(8)]
        assert [fields[-1] for _, fields in results(output, kind)] == expected


def test_context_changes_translations(documents, trained):
    """Or the tests here would compare nothing."""
    in_context, alone = (
        results(generate(documents, trained, "--context-sentences", number)) for number in ("2", "0")
    )
    assert in_context != alone


def test_one_sentence_is_decoded_as_by_translation(documents, trained):
    in_context = generate(documents, trained, "--context-sentences", "0", "--nbest", "2")
    names = torch.load(trained, weights_only=True)["model"]
    # The task of sentences refuses the gate, which does nothing there.
    ungated = ("--model-overrides", "{'rfa_sentence_gate': False}") * any("sentence_gate" in name for name in names)
    alone = generate_here(documents, trained, *SENTENCES, "--nbest", "2", *ungated)
    for kind in "STHDP":
        assert results(in_context, kind) == results(alone, kind)


def test_shards_translate_whole_documents(documents, trained):
    whole, parts = results(generate(documents, trained)), []
    for index in ("0", "1"):
        shards = ("--distributed-world-size", "2", "--distributed-rank", index)
        parts += results(generate(documents, trained, *shards))
    # Batches of another size round the scores in another way.
    assert [(number, fields[-1]) for number, fields in sorted(parts)] == [(n, fields[-1]) for n, fields in whole]


def test_few_positions_leave_room_for_the_sentence(documents, tmp_path):
    """Windows as long as the positions of the model are decoded, and each sentence once."""
    flags = (*IN_CONTEXT, "--context-sentences", "4", "--max-update", "5", "--decoder-learned-pos")
    flags += ("--max-source-positions", "20", "--max-target-positions", "12")
    checkpoint = train_here(documents, tmp_path, *flags)
    output = generate(documents, checkpoint, "--max-target-positions", "12", "--max-source-positions", "20")
    assert [number for number, _ in results(output)] == list(range(8))


def test_prefix_size_is_that_of_the_sentence(documents, trained):
    output = generate(documents, trained, "--prefix-size", "1", "--beam", "2")
    first_words = [[fields[-1].split()[:1] for _, fields in results(output, kind)] for kind in "TH"]
    assert first_words[0] == first_words[1]


@pytest.mark.parametrize("flag", ["--print-alignment", "--score-reference", "--match-source-len"])
def test_what_knows_no_windows_is_refused(documents, trained, flag):
    with pytest.raises(ValueError, match=f"{flag} does not go with windows"):
        generate(documents, trained, flag)


def test_validation_with_bleu_is_on_last_sentences(documents, tmp_path, caplog):
    flags = (*IN_CONTEXT, "--context-sentences", "2", "--max-update", "5", "--eval-bleu", "--eval-bleu-print-samples")
    train_here(documents, tmp_path, *flags, "--eval-bleu-args", '{"beam": 2}')
    references = [record.message for record in caplog.records if "example reference" in record.message]
    assert references and not any(SEPARATOR in line for line in references)
    assert any("bleu" in record.message and "valid" in record.message for record in caplog.records)


@pytest.mark.parametrize("number", [(), ("--context-sentences", "2")])
def test_interactive_translates_each_line_alone(documents, trained, number):
    flags = ("--user-dir", PLUGIN, *IN_CONTEXT, *number, "--path", trained, "--cpu", "--max-len-b", LONGEST)
    task = task_with(documents)
    task.load_dataset("test")
    line = task.src_dict.string(task.dataset("test")[0]["source"])
    printed = command("fairseq-interactive", documents, *flags, folder=documents, input=f"{line}\n{line}\n").stdout
    expected = results(generate(documents, trained, "--lenpen", "1"))[0][1]
    assert [fields[-1] for _, fields in results(printed)] == 2 * [expected[-1]]
