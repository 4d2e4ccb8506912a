"""Learn the subword units that the languages of a training text share.

    PYTHONPATH=data-prep/lib python -P -m learn_subwords subword_nmt --size 10000 --out FILE train.de train.en
    PYTHONPATH=data-prep/lib python -P -m learn_subwords sentencepiece --size 32000 --out FILE train.de train.en
"""

import argparse
import contextlib
import io
import itertools

from programs import read_lines, run, writing

# Sentencepiece learns from at most so many lines of each file, taken at equal distances.
MOST_LINES = 1_000_000
# Also where there are fewer cores: the sums of the threads depend on their number.
THREADS = 16
# Rarer characters, which web text has by the thousand, become the unknown piece.
COVERED_CHARACTERS = 0.9999


def learn_codes(files, size, out):
    from subword_nmt.learn_bpe import learn_bpe

    lines = itertools.chain.from_iterable(map(read_lines, files))
    with writing(out) as stream, contextlib.redirect_stderr(io.StringIO()):
        learn_bpe(lines, stream, size)


def sample(file):
    lines = sum(1 for _ in read_lines(file))
    return itertools.islice(read_lines(file), 0, None, -(-lines // MOST_LINES) or 1)


def learn_pieces(files, size, out):
    from sentencepiece import SentencePieceTrainer

    model = io.BytesIO()
    try:
        SentencePieceTrainer.train(
            sentence_iterator=itertools.chain.from_iterable(map(sample, files)),
            model_writer=model,
            vocab_size=size,
            character_coverage=COVERED_CHARACTERS,
            num_threads=THREADS,
            minloglevel=2,
        )
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].rpartition("] ")[2]
        raise ValueError(f"sentencepiece cannot learn {size} pieces: {reason}") from None
    with writing(out, "wb") as stream:
        stream.write(model.getvalue())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], allow_abbrev=False)
    parser.add_argument("way", choices=["subword_nmt", "sentencepiece"])
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("files", nargs="+")
    options = parser.parse_args()
    learn = {"subword_nmt": learn_codes, "sentencepiece": learn_pieces}[options.way]
    learn(options.files, options.size, options.out)


if __name__ == "__main__":
    run(main)
