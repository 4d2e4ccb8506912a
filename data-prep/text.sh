#!/usr/bin/env bash
# Prepare text for fairseq's language models: check, split words into subwords, binarise.
#
#   data-prep/text.sh --raw DIR --language en --out DIR
#   data-prep/text.sh --raw DIR --subword none --out DIR
#
# --raw DIR       folder with train.txt, valid.txt and test.txt: UTF-8, a sentence or a paragraph a
#                 line; the lines of a file follow each other
# --out DIR       where everything is written
# --subword NAME  bpe (default): Moses tokens and BPE; sentencepiece: pieces of the raw text; or none:
#                 words are what stands between spaces, and all of them are in the dictionary
# --language LANGUAGE
#                 whose rules Moses follows; for bpe alone
# --merges N      BPE merges (default 4000)
# --vocabulary-size N
#                 sentencepiece's pieces (default 32000)
# --documents     lines stand in documents: an empty line between two of them. Or the files
#                 raw/SPLIT.documents say how many lines each document has, one number a line, and
#                 no line of the text is empty
# --jobs N        processes (default 1); the result does not depend on them
#
# It makes
#   OUT/raw/        the text as it came; with --documents without its empty lines
#   OUT/tokenized/  Moses tokens (for bpe)
#   OUT/bpe/        the text in subwords (not for none)
#   OUT/binarized/  for fairseq-train --task language_modeling and fairseq-eval-lm; what splits words is
#                   in OUT/binarized/code, or in OUT/binarized/sentencepiece.model;
#                   OUT/binarized/preparation says which of these ways the text went, and with --documents
#                   OUT/binarized/SPLIT.documents how many lines each document has
# Without --documents an empty line is a line as any other. A second run with the same input repeats
# nothing; two runs at the same time are refused. Separators of lines inside a line are refused, too.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
source "$here/../recipes/lib/common.sh"
source "$here/../recipes/lib/one_run.sh"
source "$here/lib/archives.sh"
source "$here/lib/subwords.sh"
end_together "$@"

raw='' out='' subword=bpe language='' merges=4000 vocabulary_size=32000 jobs=1 documents=''
while [ $# -gt 0 ]; do
    case $1 in
        --help) usage; exit 0 ;;
        --raw | --out | --subword | --language | --merges | --vocabulary-size | --jobs)
            need_value "$@"
            set_option "$1" "$2"
            shift 2
            ;;
        --documents) set_option "$1" "$1"; shift ;;
        *) unknown_option "$1" ;;
    esac
done
need_options raw out
[[ $subword =~ ^(bpe|sentencepiece|none)$ ]] || fail "--subword '$subword' is not one of bpe, sentencepiece, none"
need_whole_number --merges "$merges"
need_whole_number --vocabulary-size "$vocabulary_size"
need_whole_number --jobs "$jobs"
[ "$subword" != bpe ] || need_options language
[ "$subword" = bpe ] || [ -z "$language" ] ||
    fail "--language '$language' is for Moses tokens; leave it away or use --subword bpe"
[ -d "$raw" ] || fail "--raw '$raw' is not a folder; give the folder with train.txt"
need_command python sacremoses subword-nmt fairseq-preprocess sha256sum flock
raw=$(absolute_path "$raw")
out=$(absolute_path "$out")
splits=(train valid test)
model=dict.txt way=none size_setting=words word_options=()
subword_options

for split in "${splits[@]}"; do
    file=$raw/$split.txt
    need_file "$file" "--raw needs train.txt, valid.txt and test.txt"
    if [ -n "$documents" ]; then
        # A text is its own translation.
        "${data_prep_helper[@]}" document_sizes "$file" "$file" "$raw/$split.documents" || exit 1
    else
        "${data_prep_helper[@]}" check_text "$file" || exit 1
    fi
done

make_folder "$out"
lock_folder
cd -- "$raw"
checksums=$(for split in "${splits[@]}"; do
    sha256sum "$split.txt"
    [ -z "$documents" ] || [ ! -f "$split.documents" ] || sha256sum "$split.documents"
done)
same_settings "$out/settings" "$size_setting
${language:+language=$language
}${documents:+documents
}$checksums"
cd -- "$out"
if [ -f "binarized/$model" ]; then
    say "$out is complete"
    exit 0
fi

mkdir -p raw
for split in "${splits[@]}"; do
    if [ -n "$documents" ]; then
        [ -f "raw/$split.documents" ] ||
            "${data_prep_helper[@]}" document_sizes "$raw/$split.txt" "$raw/$split.txt" "$raw/$split.documents" raw || exit 1
    else
        [ -f "raw/$split.txt" ] || copy "$raw/$split.txt" "raw/$split.txt"
    fi
done
words=raw
if [ "$subword" != none ]; then
    words=bpe languages=("$language")
    mkdir -p bpe
    split_words "${splits[@]/%/.txt}"
fi

binarize --only-source --trainpref "$words/train.txt" --validpref "$words/valid.txt" --testpref "$words/test.txt"
names=()
for split in "${splits[@]}"; do
    names+=("$words/$split.txt" "binarized.partial/$split")
done
"${data_prep_helper[@]}" check_binarized "${names[@]}" || exit 1
if [ -n "$documents" ]; then
    for split in "${splits[@]}"; do
        copy "raw/$split.documents" "binarized.partial/$split.documents"
    done
fi
[ "$subword" = none ] || copy "bpe/$model" "binarized.partial/$model"
tokenizer=none
[ "$subword" != bpe ] || tokenizer=moses
write_file binarized.partial/preparation printf '%s\n' "tokenizer=$tokenizer" "bpe=$way" case=mixed
rm -rf binarized
mv binarized.partial binarized
say "$out/binarized is ready for fairseq-train --task language_modeling"
