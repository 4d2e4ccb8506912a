"""CTranslate2 as the baseline of benchmark decode: softmax with the weights of the model, converted as trained ones."""

import importlib
import os
import tempfile

import torch

from ..model.parameters import RFA_PARAMETERS
from ..programs.plain_options import plain, with_attributes
from .models import build_model, model_options, most_positions, random_tokens, source_batch

CTRANSLATE2 = "ctranslate2"
LANGUAGES = ("source", "target")


def compute_type(options, device):
    """In which CTranslate2 computes.

    Raises:
        ValueError: it is missing, or it would take another type by itself here.
    """
    ctranslate2 = _imported(CTRANSLATE2)
    name = options.precision if options.decoding_precision == "float32" else options.decoding_precision
    known = ctranslate2.get_supported_compute_types(device.type)
    if name not in known:
        raise ValueError(
            f"--baseline {CTRANSLATE2} does not compute in {name} on this {device.type}; "
            f"use a precision among {', '.join(sorted(known))}"
        )
    return name


def _imported(module):
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ValueError(
            f"--baseline {CTRANSLATE2}: {error}; run: pip install 'fairseq-rfa[ctranslate2]', or use another --baseline"
        ) from None


class ConvertedModel:
    """What CTranslate2 makes of a checkpoint of fairseq's transformer."""

    def __init__(self, options, task, device, positions):
        """Raises ValueError where `compute_type` does, or where its converter refuses the options."""
        self.options, self.task, self.positions = options, task, positions
        kind = compute_type(options, device)
        converters = _imported(f"{CTRANSLATE2}.converters")
        with tempfile.TemporaryDirectory() as folder:
            path, converted = os.path.join(folder, "softmax.pt"), os.path.join(folder, "converted")
            torch.save(self._checkpoint(), path)
            for language in LANGUAGES:
                task.source_dictionary.save(os.path.join(folder, f"dict.{language}.txt"))
            try:
                converters.FairseqConverter(path, folder, *LANGUAGES).convert(converted)
            except ValueError as error:
                raise ValueError(f"--baseline {CTRANSLATE2}: {' '.join(str(error).split())}") from None
            self.translator = _imported(CTRANSLATE2).Translator(
                converted, device=device.type, compute_type=kind, inter_threads=1, intra_threads=torch.get_num_threads()
            )

    def _checkpoint(self):
        options = model_options(self.options, "baseline", self.positions)
        options._name = options.arch
        return {"args": with_attributes(plain(options), {"_name": "translation"}), "model": self._state()}

    def _state(self):
        """The parameters of the model that softmax has."""
        model = build_model(self.options, "rfa", self.positions, self.task, "cpu")
        return {name: value for name, value in model.state_dict().items() if not name.endswith(RFA_PARAMETERS)}

    def decoder(self, length, sources):
        """A function that decodes `length` words of each of these sentences (rows, tokens), as lists of words."""
        words = self._words(sources)

        def run():
            results = self.translator.translate_batch(
                words,
                beam_size=self.options.beam,
                min_decoding_length=length,
                max_decoding_length=length,
                max_input_length=0,
            )
            return [result.hypotheses[0] for result in results]

        return run

    @torch.no_grad()
    def disagreement(self, rows, length):
        """The greatest difference from the scores of fairseq with these weights, relative to the greatest score."""
        sources = source_batch(self.task, rows, length, self.options.seed, "cpu")
        target = random_tokens(self.task, rows, length, self.options.seed + 1, "cpu")
        model = build_model(self.options, "baseline", self.positions, self.task, "cpu").eval()
        model.load_state_dict(self._state())
        logits = model(**sources, prev_output_tokens=target.roll(1, dims=1))[0]
        expected = logits.log_softmax(-1).gather(-1, target.unsqueeze(-1)).squeeze(-1)
        scored = self.translator.score_batch(
            self._words(sources["src_tokens"]), self._words(target), max_input_length=0
        )
        found = torch.tensor([result.log_probs for result in scored])
        return ((found - expected).abs().max() / expected.abs().max()).item()

    def _words(self, tokens):
        """Without the end of the sentence, which CTranslate2 adds."""
        dictionary = self.task.source_dictionary
        return [[dictionary[token] for token in row[:-1]] for row in tokens.tolist()]


def converted(options, task, device, *lengths):
    """A `ConvertedModel` for sentences of the lengths of the options and of these."""
    return ConvertedModel(options, task, device, most_positions(options, *lengths))
