"""A trained softmax attention teaches random feature attention, layer by layer.

Every attention of the student is given what the attention of the teacher in its place is given. So the layers learn
independently of each other, and the teacher reads each batch once. The student's output is to come near to the
teacher's by the mean square error, after the output projection: that is what the rest of the model reads, so what the
projection suppresses costs nothing. Only the parameters learn that softmax lacks.
"""

from contextlib import contextmanager
from itertools import islice
from typing import Iterator, NamedTuple, Sequence

import torch
from fairseq.modules import MultiheadAttention
from torch.optim.lr_scheduler import CosineAnnealingLR

from ..attention.base import RandomFeatureAttention
from ..model.parameters import PLACES, attentions_of, own_parameters
from ..programs.program import progress
from .watch import padding_of


class Distillation(NamedTuple):
    """What a student is taught with."""

    batches: Iterator[dict]
    """samples of fairseq, as many as updates or more"""
    held_out: Sequence[dict]
    """samples to measure on"""
    updates: int
    lr: float


class Pair(NamedTuple):
    """Two attentions in one place of a layer."""

    place: str
    teacher: MultiheadAttention
    student: RandomFeatureAttention


def distill(teacher, student, places, batches, updates, lr, name):
    """Train what the student has beside the teacher's parameters; everything else of its attentions is frozen.

    Args:
        teacher: a Transformer with softmax in these places; it is not changed.
        student: one with random features there and the same parameters otherwise. Both are left in evaluation.
        places: some of `PLACES`.
        batches: as many samples of fairseq as updates, or more, on the device of the models.
        updates: number of steps of Adam.
        lr: learning rate of the first one; it falls to 0 along half a cosine.
        name: of the progress.

    Raises:
        ValueError: nothing to train.
        FloatingPointError: the error is not finite.
    """
    found = pairs(teacher, student, places)
    parameters = [parameter for pair in found for parameter in own_parameters(pair.student)]
    if not parameters:
        raise ValueError(
            "there is nothing to distil: no attention has a parameter of its own to train; drop --rfa-fixed-sigma"
        )
    optimizer = torch.optim.Adam(parameters, lr=lr)
    schedule = CosineAnnealingLR(optimizer, updates)
    with _only(parameters, [pair.student for pair in found]), progress(name, updates, "updates") as advance:
        for number, batch in enumerate(islice(batches, updates), start=1):
            optimizer.zero_grad()
            error = sum(_learn(*outputs) for outputs in _outputs(found, teacher, student, batch)) / len(found)
            if not error < float("inf"):
                raise FloatingPointError(
                    f"the error of distillation is {error:g} at update {number}; use a smaller --distill-lr"
                )
            optimizer.step()
            schedule.step()
            advance(f"relative error {error:.3f}")


@contextmanager
def _only(parameters, modules):
    """Of the modules only these parameters have gradients, and afterwards those that had them before."""
    before = {parameter: parameter.requires_grad for module in modules for parameter in module.parameters()}
    try:
        for parameter in before:
            parameter.requires_grad_(False)
        for parameter in parameters:
            parameter.requires_grad_(True)
        yield
    finally:
        for parameter, had_gradient in before.items():
            parameter.requires_grad_(had_gradient)


@torch.no_grad()
def relative_errors(teacher, student, places, batches):
    """How far the student's attentions are from the teacher's, each given what the teacher's is given.

    Returns:
        by place ‖student − teacher‖² / ‖teacher‖² of each layer, over all words of the batches.
    """
    found = pairs(teacher, student, places)
    sums = torch.zeros(len(found), 2, dtype=torch.float64)
    for batch in batches:
        for row, (ours, theirs) in zip(sums, _outputs(found, teacher, student, batch)):
            row += torch.stack([(ours - theirs).double().square().sum(), theirs.double().square().sum()]).cpu()
    errors = {place: [] for place in places}
    for pair, (difference, size) in zip(found, sums.tolist()):
        errors[pair.place].append(difference / size)
    return errors


def pairs(teacher, student, places):
    """The attentions of both models, place by place and layer by layer.

    The models are brought into evaluation: without dropout, with all layers, and with the random matrices of decoding.
    """
    teacher.eval()
    student.eval()
    return [
        Pair(place, *attentions)
        for place in places
        for attentions in zip(attentions_of(teacher, place), attentions_of(student, place), strict=True)
    ]


def _learn(ours, theirs):
    """Add to the gradients of one attention; returns its relative error."""
    square = (ours - theirs).square()
    if square.requires_grad:
        square.mean().backward()
    return (square.sum() / theirs.square().sum()).item()


def _outputs(found, teacher, student, batch):
    """For each pair the outputs of student and teacher at the words of its side, (words, embed_dim) each."""
    with _watched(found) as calls, torch.no_grad():
        teacher(**batch["net_input"], features_only=True)
    is_word = {side: ~padding.transpose(0, 1) for side, padding in padding_of(teacher, batch).items()}
    for pair, (inputs, output) in zip(found, calls):
        ours, _ = pair.student(**{**inputs, "need_weights": False, "need_head_weights": False})
        words = is_word[PLACES[pair.place].side]
        yield ours[words].float(), output[words].float()


@contextmanager
def _watched(found):
    """What each teacher of the pairs was given and gave, once the model has been called."""
    calls = [None] * len(found)
    hooks = []
    try:
        for number, pair in enumerate(found):

            def keep(module, _, inputs, outputs, number=number):
                calls[number] = inputs, outputs[0]

            hooks.append(pair.teacher.register_forward_hook(keep, with_kwargs=True))
        yield calls
    finally:
        for hook in hooks:
            hook.remove()
