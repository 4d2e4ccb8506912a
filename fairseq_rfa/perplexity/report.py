"""What perplexity has found: numbers and their signature."""

import math

import torch

from ..programs.signature import commit, version


def make_report(options, loss, tokens, words, texts, device):
    """All numbers, ready for JSON.

    Args:
        loss: the sum over all tokens, in nats.
        words: their number, None where nobody asked for it.
        texts: after how many of them nothing is carried.
    """
    return {
        "perplexity": math.exp(loss / tokens),
        "loss": loss / tokens,
        "tokens": tokens,
        "word_perplexity": None if words is None else math.exp(loss / words),
        "words": words,
        "texts": texts,
        "signature": signature(options, device),
    }


def signature(options, device):
    """All that the numbers depend on."""
    words = "raw" if options.raw else options.remove_bpe
    return {
        "checkpoint": options.checkpoint.name,
        "data": options.data.resolve().name,
        "subset": options.subset,
        "segment": options.segment,
        "context": options.context,
        "positions": "continued" if options.continue_positions else "restarted",
        "reset": options.reset_at,
        "words": words or "none",
        "device": device.type,
        "torch": torch.__version__,
        "fairseq": version("fairseq"),
        "fairseq_rfa": version("fairseq_rfa"),
        "commit": commit(),
    }


def lines_of(report):
    """For a terminal, the signature last."""
    yield f"perplexity {report['perplexity']:.2f} over {report['tokens']} tokens ({report['loss']:.4f} nats)"
    if report["words"] is not None:
        yield f"perplexity {report['word_perplexity']:.2f} over {report['words']} words"
    yield "|".join(f"{name}:{value}" for name, value in report["signature"].items())
