#!/usr/bin/env bash
# Prepare raw parallel text for fairseq: check, tokenise, learn and apply BPE, binarise.
#
#   data-prep/prepare.sh --raw DIR --source de --target en --out DIR
#
# --raw DIR       folder with train.LANGUAGE, valid.LANGUAGE, test.LANGUAGE and, if there are
#                 more tests, test1.LANGUAGE, test2.LANGUAGE, …: UTF-8, one sentence a line
# --source LANGUAGE, --target LANGUAGE
# --out DIR       where everything is written
# --merges N      joint BPE merges (default 4000)
#
# It makes
#   OUT/raw/        the text as it came; score translations against OUT/raw/test.TARGET
#   OUT/tokenized/  Moses tokens, as `--tokenizer moses` of fairseq makes them
#   OUT/bpe/        the same with BPE
#   OUT/binarized/  for fairseq-train and fairseq-generate, with a joined dictionary; the BPE
#                   codes are in OUT/binarized/code
# A second run with the same input repeats nothing. Empty lines, separators of lines inside a
# line and unequal line counts are refused.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
source "$here/../recipes/common.sh"

raw= source= target= out= merges=4000
while [ $# -gt 0 ]; do
    case $1 in
        --help) usage; exit 0 ;;
        --raw | --source | --target | --out | --merges)
            need_value "$@"
            set_option "$1" "$2"
            shift 2
            ;;
        *) unknown_option "$1" ;;
    esac
done
need_options raw source target out
[ "$source" != "$target" ] || fail "--source and --target are both '$source'; name two languages"
need_whole_number --merges "$merges"
[ -d "$raw" ] || fail "--raw '$raw' is not a folder; give the folder with train.$source"
need_command python sacremoses subword-nmt fairseq-preprocess sha256sum
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
    python "$here/check_parallel.py" "$raw/$split.$source" "$raw/$split.$target" || exit 1
done

mkdir -p -- "$out"/{raw,tokenized,bpe}
cd -- "$raw"
checksums=$(for split in "${splits[@]}"; do sha256sum "$split.$source" "$split.$target"; done)
same_settings "$out/settings" "source=$source
target=$target
merges=$merges
$checksums"
cd -- "$out"
if [ -f binarized/code ]; then
    say "$out is complete"
    exit 0
fi

for split in "${splits[@]}"; do
    for language in "$source" "$target"; do
        file=$split.$language
        [ -f "raw/$file" ] || write_file "raw/$file" cat -- "$raw/$file"
        [ -f "tokenized/$file" ] && continue
        say "tokenising $file"
        write_file "tokenized/$file" sacremoses --quiet --language "$language" \
            tokenize --aggressive-dash-splits <"raw/$file" || fail "cannot tokenise $out/raw/$file"
    done
done

if [ ! -f bpe/code ]; then
    say "learning $merges BPE merges"
    cat "tokenized/train.$source" "tokenized/train.$target" |
        write_file bpe/code subword-nmt learn-bpe --symbols "$merges" 2>learn-bpe.log ||
        fail "cannot learn BPE merges; see $out/learn-bpe.log"
fi
for split in "${splits[@]}"; do
    for language in "$source" "$target"; do
        file=$split.$language
        [ -f "bpe/$file" ] || write_file "bpe/$file" \
            subword-nmt apply-bpe --codes bpe/code <"tokenized/$file" ||
            fail "cannot apply BPE to $out/tokenized/$file"
    done
done

say "binarising"
rm -rf binarized.partial
fairseq-preprocess --source-lang "$source" --target-lang "$target" --joined-dictionary \
    --trainpref bpe/train --validpref bpe/valid \
    --testpref "$(printf 'bpe/%s,' "${tests[@]}" | sed 's/,$//')" \
    --destdir binarized.partial >preprocess.log 2>&1 ||
    fail "fairseq-preprocess failed; see $out/preprocess.log"
rm -f binarized.partial/preprocess.log
cp bpe/code binarized.partial/code
rm -rf binarized
mv binarized.partial binarized
say "$out/binarized is ready for fairseq-train"
