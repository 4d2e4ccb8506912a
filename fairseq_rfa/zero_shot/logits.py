"""How far a model is from another on the same sentences, teacher-forced."""

import numpy as np
import torch

from ..programs.trained_model import move_to

BATCH_SIZE = 16
"""Sentences; few, so that the features of many directions find room."""


def make_batches(dataset, sentences, device):
    """fairseq's samples of sentences of similar length."""
    sentences = sorted(sentences, key=lambda index: (dataset.num_tokens(index), index))
    groups = [sentences[start : start + BATCH_SIZE] for start in range(0, len(sentences), BATCH_SIZE)]
    return [move_to(dataset.collater([dataset[index] for index in group]), device) for group in groups]


@torch.no_grad()
def hidden_states(model, batches):
    """What the decoder gives to its output projection at the words of the targets, (words, embed_dim) each."""
    states = []
    for batch in batches:
        state, _ = model(**batch["net_input"], features_only=True)
        states.append(state[_is_word(model, batch)])
    return states


@torch.no_grad()
def compare(model, trained, states, batches):
    """The numbers of a row.

    Args:
        trained: the model with softmax.
        states: its `hidden_states` on the batches.

    Returns:
        distance: root mean square difference of the logits, relative to the root mean square of softmax's; both
            without their mean over the vocabulary, which says nothing.
        divergence: mean KL(softmax ‖ model) of the distributions of the next word, in nats.
        agreement: share of positions with the same best word.
        perplexity: of the reference.
        words: number of positions, with the ends of the sentences.

    Raises:
        FloatingPointError: a number is not finite.
    """
    sums = torch.zeros(5, dtype=torch.float64)
    words = 0
    for batch, before, after in zip(batches, states, hidden_states(model, batches)):
        target = batch["target"][_is_word(model, batch)].unsqueeze(-1)
        truth, logits = trained.decoder.output_layer(before), model.decoder.output_layer(after)
        centred = truth - truth.mean(-1, keepdim=True)
        difference = logits - logits.mean(-1, keepdim=True) - centred
        log_truth, log_model = truth.log_softmax(-1), logits.log_softmax(-1)
        sums += torch.stack(
            [
                difference.double().square().sum(),
                centred.double().square().sum(),
                (log_truth.exp() * (log_truth - log_model)).sum(dtype=torch.float64),
                truth.argmax(-1).eq(logits.argmax(-1)).sum().double(),
                -log_model.gather(-1, target).sum(dtype=torch.float64),
            ]
        ).cpu()
        words += len(target)
    if not sums.isfinite().all():
        raise FloatingPointError("the model's logits are not finite; check the checkpoint for NaN")
    difference, size, divergence, same, loss = sums.tolist()
    return {
        "distance": (difference / size) ** 0.5,
        "divergence": divergence / words,
        "agreement": same / words,
        "perplexity": float(np.exp(loss / words)),
        "words": words,
    }


def _is_word(model, batch):
    return batch["target"].ne(model.decoder.padding_idx)
