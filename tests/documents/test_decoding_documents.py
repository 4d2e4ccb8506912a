"""Documents translated side by side, against sentence after sentence by hand."""

import pytest
import torch

from document_data import SIZES, add_documents, model_of, task_with
from fairseq_rfa.documents.windows import SEPARATOR
from tiny_data import generate_here, results, train_here

CONTEXT = ["--task", "document_translation", "--context-sentences", "2"]


@pytest.fixture(scope="module")
def documents(data, tmp_path_factory):
    return add_documents(data, tmp_path_factory.mktemp("documents") / "data")


@pytest.fixture(
    scope="module", params=["", "--causal-attention softmax --cross-attention softmax"], ids=["rfa", "softmax"]
)
def trained(request, documents, tmp_path_factory):
    """Trained on windows until its translations differ."""
    flags = [*CONTEXT, "--max-update", "60", *request.param.split()]
    return train_here(documents, tmp_path_factory.mktemp("trained"), *flags)


def pairs_of(task, split):
    task.load_dataset(split)
    sentences = task.dataset(split).sentences
    return [tuple(sentences[i][side].tolist()[:-1] for side in ("source", "target")) for i in range(sum(SIZES[split]))]


def joined(parts, separator):
    return [token for part in parts for token in (separator, *part)][1:]


@torch.no_grad()
def greedy(model, source, prefix, most):
    """The best word each time, from the whole prefix, of one row; without the end symbol."""
    tokens = list(prefix)
    for _ in range(most + 1):
        logits, _ = model(torch.tensor([source + [2]]), torch.tensor([len(source) + 1]), torch.tensor([tokens]))
        scores = logits[0, -1].log_softmax(-1)
        scores[1] = scores[model.decoder.dictionary.index(SEPARATOR)] = float("-inf")
        if len(tokens) == len(prefix) + most:
            break
        best = scores.argmax().item()
        if best == 2:
            break
        tokens.append(best)
    return tokens[len(prefix) :]


def by_hand(model, task, split, num_context, reference):
    """The translation of each sentence, with those before it in its document."""
    pairs, found = pairs_of(task, split), []
    separators = [dictionary.index(SEPARATOR) for dictionary in (task.src_dict, task.tgt_dict)]
    first = 0
    for size in SIZES[split]:
        for number in range(first, first + size):
            start = max(first, number - num_context)
            source = joined([pair[0] for pair in pairs[start : number + 1]], separators[0])
            context = [pair[1] for pair in pairs[start:number]] if reference else found[start:number]
            prefix = [2, *joined(context, separators[1]), separators[1]] if context else [2]
            found.append(greedy(model, source, prefix, 12))
        first += size
    return found


@pytest.mark.parametrize("prefix", ["own", "reference"])
def test_sentences_are_those_translated_one_after_the_other(documents, trained, prefix):
    task = task_with(documents, *CONTEXT[2:])
    state = torch.load(trained, weights_only=True)["model"]
    softmax = ["--causal-attention", "softmax", "--cross-attention", "softmax"]
    flags = [] if any("sigma" in name for name in state) else softmax
    model = model_of(task, documents, *flags)
    model.load_state_dict(state)
    expected = by_hand(model, task, "test", 2, prefix == "reference")
    options = ["--beam", "1", "--max-len-a", "0", "--max-len-b", "12", "--max-sentences", "3"]
    output = generate_here(documents, trained, *CONTEXT, "--context-prefix", prefix, *options)
    found = results(output)
    assert [number for number, _ in found] == list(range(8))
    assert [fields[1] for _, fields in found] == [task.tgt_dict.string(row) for row in expected]
    pairs = pairs_of(task, "test")
    for kind, side, dictionary in (("S", 0, task.src_dict), ("T", 1, task.tgt_dict)):
        texts = [fields[0] for _, fields in results(output, kind)]
        assert texts == [dictionary.string(pair[side]) for pair in pairs]
    assert len({tuple(row) for row in expected}) > 2


@pytest.mark.parametrize("beam", ["1", "4"])
def test_a_batch_of_many_documents_is_each_alone(documents, trained, beam):
    together, alone = (
        results(generate_here(documents, trained, *CONTEXT, "--beam", beam, "--max-sentences", str(size)))
        for size in (8, 1)
    )
    assert [fields[1] for _, fields in together] == [fields[1] for _, fields in alone]
    assert [float(fields[0]) for _, fields in together] == pytest.approx([float(f[0]) for _, f in alone], abs=2e-4)


def test_without_context_translations_are_those_of_the_task_translation(documents, trained):
    first, second = (
        generate_here(documents, trained, "--task", *flags, "--beam", "3")
        for flags in (["translation"], ["document_translation", "--context-sentences", "0"])
    )
    assert results(first) == results(second) and len(results(first)) == 8


def test_what_windows_cannot_do_is_refused(documents, trained):
    for flag in ("--print-alignment", "--score-reference", "--match-source-len"):
        with pytest.raises(ValueError, match=f"{flag} does not go with windows"):
            generate_here(documents, trained, *CONTEXT, flag)
