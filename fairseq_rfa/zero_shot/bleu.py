"""SacreBLEU of detokenised translations against the raw text; DATA/preparation says how words were split."""

import hashlib
import re
from argparse import Namespace
from typing import List, NamedTuple

from fairseq.data import encoders
from fairseq.dataclass.configs import GenerationConfig
from sacrebleu.metrics import BLEU

WAYS = {
    "tokenizer": ("moses", "none"),
    "bpe": ("subword_nmt", "sentencepiece"),
    "case": ("mixed", "lowercase"),
}
"""What DATA/preparation can say; the first of each where it says nothing."""
BPE_MARK = re.compile(r"@@( |$)")


class Scorer(NamedTuple):
    bleu: BLEU
    bpe: object
    tokenizer: object
    """None where the text was not tokenised"""
    references: List[str]
    """raw lines by the number of the sentence"""

    @property
    def signature(self):
        """Complete once something was scored."""
        return f"BLEU|{self.bleu.get_signature().format()}"

    def digest(self):
        """Of the references and of how the text is split."""
        ways = [type(part).__name__ for part in (self.bpe, self.tokenizer)] + [self.bleu.lowercase]
        return hashlib.sha256(repr([ways, self.references]).encode()).hexdigest()

    def score(self, model, task, batches, beam):
        """BLEU of the sentences of the batches, found with fairseq's own beam search.

        Raises:
            ValueError: marks of subwords are left over.
        """
        generator = task.build_generator([model], GenerationConfig(beam=beam))
        translations = {}
        for batch in batches:
            for number, found in zip(batch["id"].tolist(), task.inference_step(generator, [model], batch)):
                translations[number] = self._text(task.target_dictionary, generator, found[0]["tokens"])
        numbers = sorted(translations)
        hypotheses = [translations[number] for number in numbers]
        return self.bleu.corpus_score(hypotheses, [[self.references[number] for number in numbers]]).score

    def _text(self, dictionary, generator, tokens):
        text = dictionary.string(
            tokens.int().cpu(), extra_symbols_to_ignore=generator.symbols_to_strip_from_output
        )
        text = self.bpe.decode(text)
        if BPE_MARK.search(text):
            raise ValueError(f"BPE marks are left over: '{text}'; correct the file 'preparation' of the data")
        return text if self.tokenizer is None else self.tokenizer.decode(text)


def make_scorer(data, task, subset, reference=None):
    """A Scorer for a subset of prepared data.

    Args:
        reference: file of raw lines; DATA/../raw/SUBSET.TARGET if None.

    Raises:
        ValueError: files are missing or do not fit the data, or a package is missing.
    """
    ways = _preparation(data / "preparation")
    source, target = task.cfg.source_lang, task.cfg.target_lang
    pieces = data / ("code" if ways["bpe"] == "subword_nmt" else "sentencepiece.model")
    reference = reference or data.resolve().parent / "raw" / f"{subset}.{target}"
    for file, option in ((pieces, "DATA"), (reference, "--reference")):
        if not file.is_file():
            raise ValueError(f"file '{file}' not found; correct {option}, or leave --bleu-directions out")
    options = Namespace(
        bpe=ways["bpe"],
        bpe_codes=str(pieces),
        sentencepiece_model=str(pieces),
        tokenizer=ways["tokenizer"],
        source_lang=source,
        target_lang=target,
    )
    try:
        bpe = encoders.build_bpe(options)
        tokenizer = None if ways["tokenizer"] == "none" else encoders.build_tokenizer(options)
    except ImportError as error:
        raise ValueError(f"{error}") from error
    except SystemExit as error:  # how subword_nmt says that it cannot read its codes
        raise ValueError(f"'{pieces}' does not say how words were split; make the data again") from error
    # Lines end at line feeds alone, as in the data.
    references = reference.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    if len(references) != len(task.dataset(subset)):
        raise ValueError(
            f"'{reference}' has {len(references)} lines and '{subset}' {len(task.dataset(subset))} sentences; "
            "give the raw target text of the subset"
        )
    return Scorer(BLEU(lowercase=ways["case"] == "lowercase"), bpe, tokenizer, references)


def _preparation(file):
    ways = {name: allowed[0] for name, allowed in WAYS.items()}
    for line in file.read_text(encoding="utf-8").split("\n") if file.exists() else []:
        name, _, value = line.partition("=")
        if line and value not in WAYS.get(name, ()):
            raise ValueError(f"'{file}' says '{line}', which is not known here; make the data again")
        if line:
            ways[name] = value
    return ways
