#!/usr/bin/env bash
# Prepare raw parallel text for fairseq: check, tokenise, learn and apply subwords, binarise.
#
#   data-prep/prepare.sh --raw DIR --source de --target en --out DIR
#
# --raw DIR       folder with train.LANGUAGE, valid.LANGUAGE, test.LANGUAGE and, if there are
#                 more tests, test1.LANGUAGE, test2.LANGUAGE, …: UTF-8, one sentence a line
# --source LANGUAGE, --target LANGUAGE
# --out DIR       where everything is written
# --subword NAME  bpe (default): Moses tokens and joint BPE; or sentencepiece: shared pieces of
#                 the raw text
# --merges N      joint BPE merges (default 4000)
# --vocabulary-size N
#                 sentencepiece's pieces (default 32000)
# --perl-moses    Moses tokens as Moses' own tokenizer.perl makes them since November 2018, and not
#                 as sacremoses and with it fairseq's --tokenizer moses do: the last full stop of a
#                 line is always a token, letters of other scripts are not taken apart
# --no-dash-splits, --lowercase
#                 how Moses tokens are made: words with a dash stay whole, capitals become small
# --separate-dictionaries
#                 one dictionary for each language in place of a joined one
# --documents     sentences stand in documents: an empty line, the same in both languages, between
#                 two of them. Or the files raw/SPLIT.documents say how many sentences each
#                 document has, one number a line, and no line of the text is empty
# --jobs N        processes (default 1); the result does not depend on them
#
# It makes
#   OUT/raw/        the text as it came; score translations against OUT/raw/test.TARGET
#   OUT/tokenized/  Moses tokens, as `--tokenizer moses` of fairseq makes them (for bpe), or Moses
#                   itself where --perl-moses says so
#   OUT/bpe/        the same, or the raw text, in subwords
#   OUT/binarized/  for fairseq-train and fairseq-generate; the BPE codes are in
#                   OUT/binarized/code, or the model in OUT/binarized/sentencepiece.model, and
#                   OUT/binarized/preparation says which of these ways the text went
# A second run with the same input repeats nothing; two runs at the same time are refused. Empty
# lines that part no documents, separators of lines inside a line and unequal line counts are
# refused, too. Who ends the script ends all that it has started.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
source "$here/../recipes/lib/common.sh"
source "$here/../recipes/lib/one_run.sh"
source "$here/lib/archives.sh"
source "$here/lib/subwords.sh"
end_together "$@"

raw='' source='' target='' out='' subword=bpe merges=4000 vocabulary_size=32000 jobs=1
perl_moses='' no_dash_splits='' lowercase='' separate_dictionaries='' documents=''
while [ $# -gt 0 ]; do
    case $1 in
        --help) usage; exit 0 ;;
        --raw | --source | --target | --out | --subword | --merges | --vocabulary-size | --jobs)
            need_value "$@"
            set_option "$1" "$2"
            shift 2
            ;;
        --perl-moses | --no-dash-splits | --lowercase | --separate-dictionaries | --documents)
            set_option "$1" "$1"
            shift
            ;;
        *) unknown_option "$1" ;;
    esac
done
need_options raw source target out
[ "$source" != "$target" ] || fail "--source and --target are both '$source'; name two languages"
need_whole_number --merges "$merges"
need_whole_number --vocabulary-size "$vocabulary_size"
need_whole_number --jobs "$jobs"
word_options=()
for flag in "$perl_moses" "$no_dash_splits" "$lowercase"; do
    [ -z "$flag" ] || word_options+=("$flag")
done
[[ $subword =~ ^(bpe|sentencepiece)$ ]] || fail "--subword '$subword' is not one of bpe, sentencepiece"
[ -d "$raw" ] || fail "--raw '$raw' is not a folder; give the folder with train.$source"
need_command python sacremoses subword-nmt fairseq-preprocess sha256sum flock
subword_options
raw=$(absolute_path "$raw")
out=$(absolute_path "$out")

tests=(test)
while [ -e "$raw/test${#tests[@]}.$source" ]; do
    tests+=("test${#tests[@]}")
done
for file in "$raw"/test*."$source"; do
    name=$(basename -- "$file" ".$source")
    [[ " ${tests[*]} " == *" $name "* ]] ||
        fail "'$file' is out of order; number the tests test, test1, test2, … without a gap"
done
splits=(train valid "${tests[@]}")

for split in "${splits[@]}"; do
    for language in "$source" "$target"; do
        need_file "$raw/$split.$language" "--raw needs train, valid and test in both languages"
    done
    pair=("$raw/$split.$source" "$raw/$split.$target")
    if [ -n "$documents" ]; then
        "${data_prep_helper[@]}" document_sizes "${pair[@]}" "$raw/$split.documents" || exit 1
    else
        "${data_prep_helper[@]}" check_parallel "${pair[@]}" || exit 1
    fi
done

make_folder "$out"
lock_folder
mkdir -p -- "$out"/{raw,bpe}
cd -- "$raw"
checksums=$(for split in "${splits[@]}"; do
    sha256sum "$split.$source" "$split.$target"
    [ -z "$documents" ] || [ ! -f "$split.documents" ] || sha256sum "$split.documents"
done)
flags=$(printf '%s\n' "${word_options[@]}" ${separate_dictionaries:+"$separate_dictionaries"} \
    ${documents:+"$documents"} | sed 's/^--//')
same_settings "$out/settings" "source=$source
target=$target
$size_setting
${flags:+$flags
}$checksums"
cd -- "$out"

tokenizer=moses case=mixed
[ "$subword" = bpe ] || tokenizer=none
[ -z "$lowercase" ] || case=lowercase
preparation="tokenizer=$tokenizer
bpe=$way
case=$case"
if [ -f "binarized/$model" ]; then
    [ -f binarized/preparation ] || write_file binarized/preparation printf '%s\n' "$preparation"
    say "$out is complete"
    exit 0
fi

for split in "${splits[@]}"; do
    if [ -n "$documents" ] && [ ! -f "raw/$split.documents" ]; then
        "${data_prep_helper[@]}" document_sizes "$raw/$split.$source" "$raw/$split.$target" "$raw/$split.documents" raw || exit 1
    fi
    for language in "$source" "$target"; do
        file=$split.$language
        [ -f "raw/$file" ] || copy "$raw/$file" "raw/$file"
    done
done
languages=("$source" "$target")
split_words "${splits[@]/%/.$source}" "${splits[@]/%/.$target}"

dictionary=(--joined-dictionary)
[ -z "$separate_dictionaries" ] || dictionary=()
binarize --source-lang "$source" --target-lang "$target" "${dictionary[@]}" \
    --trainpref bpe/train --validpref bpe/valid \
    --testpref "$(printf 'bpe/%s,' "${tests[@]}" | sed 's/,$//')"
names=()
for split in "${splits[@]}"; do
    for language in "$source" "$target"; do
        names+=("bpe/$split.$language" "binarized.partial/$split.$source-$target.$language")
    done
done
"${data_prep_helper[@]}" check_binarized "${names[@]}" || exit 1
if [ -n "$documents" ]; then
    "${data_prep_helper[@]}" add_separator "binarized.partial/dict.$source.txt" "binarized.partial/dict.$target.txt" || exit 1
    for split in "${splits[@]}"; do
        copy "raw/$split.documents" "binarized.partial/$split.documents"
    done
fi
copy "bpe/$model" "binarized.partial/$model"
write_file binarized.partial/preparation printf '%s\n' "$preparation"
rm -rf binarized
mv binarized.partial binarized
say "$out/binarized is ready for fairseq-train"
