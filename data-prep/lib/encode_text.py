"""Split the lines of text files into tokens or pieces; files that are there already are kept.

    PYTHONPATH=data-prep/lib python -P -m encode_text moses --language de --from raw --to tokenized train.de …
    PYTHONPATH=data-prep/lib python -P -m encode_text subword_nmt --codes FILE --from tokenized --to bpe train.de …
    PYTHONPATH=data-prep/lib python -P -m encode_text sentencepiece --model FILE --from raw --to bpe train.de …
"""

import argparse
import functools
import os

from moses import split_words, to_lower
from programs import map_chunks, read_lines, run, with_news, writing

MOST_CACHED_WORDS = 1_000_000


def moses_tokens(lines, language, perl, dash_splits, lowercase):
    tokenized = [split_words(line, language, perl, dash_splits) for line in lines]
    return list(map(to_lower, tokenized)) if lowercase else tokenized


@functools.cache
def read_codes(file):
    from subword_nmt.apply_bpe import BPE

    with open(file, encoding="utf-8") as stream:
        return BPE(stream)


def subword_nmt_pieces(lines, codes):
    bpe = read_codes(codes)
    if len(bpe.cache) > MOST_CACHED_WORDS:
        bpe.cache.clear()
    return list(map(bpe.process_line, lines))


@functools.cache
def read_model(file):
    from sentencepiece import SentencePieceProcessor

    return SentencePieceProcessor(model_file=file)


def sentencepiece_pieces(lines, model):
    return [" ".join(pieces) for pieces in read_model(model).encode(lines, out_type=str)]


def function_of(options):
    if options.way == "moses":
        return functools.partial(
            moses_tokens,
            language=options.language,
            perl=options.perl_moses,
            dash_splits=not options.no_dash_splits,
            lowercase=options.lowercase,
        )
    if options.way == "subword_nmt":
        return functools.partial(subword_nmt_pieces, codes=options.codes)
    return functools.partial(sentencepiece_pieces, model=options.model)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], allow_abbrev=False)
    ways = parser.add_subparsers(dest="way", required=True)
    for way in ("moses", "subword_nmt", "sentencepiece"):
        part = ways.add_parser(way, allow_abbrev=False)
        part.add_argument("--from", dest="source", required=True)
        part.add_argument("--to", dest="target", required=True)
        part.add_argument("--jobs", type=int, default=1)
        part.add_argument("files", nargs="+")
        if way == "moses":
            part.add_argument("--language", required=True)
            part.add_argument("--perl-moses", action="store_true")
            part.add_argument("--no-dash-splits", action="store_true")
            part.add_argument("--lowercase", action="store_true")
        elif way == "subword_nmt":
            part.add_argument("--codes", required=True)
        else:
            part.add_argument("--model", required=True)
    options = parser.parse_args()
    function = function_of(options)
    for file in options.files:
        target = f"{options.target}/{file}"
        if os.path.exists(target):
            continue
        print(f"{'tokenising' if options.way == 'moses' else 'splitting'} {file}", flush=True)
        lines = with_news(read_lines(f"{options.source}/{file}"), file)
        with writing(target) as stream:
            for part in map_chunks(function, lines, options.jobs):
                stream.writelines(line + "\n" for line in part)


if __name__ == "__main__":
    run(main)
