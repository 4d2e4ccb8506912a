#!/usr/bin/env bash
# Fetch WMT14 English to German or French and prepare it for fairseq.
#
#   data-prep/wmt14.sh --target de --out data/wmt14-en-de
#   data-prep/wmt14.sh --target fr --out data/wmt14-en-fr --from DIR
#
# --target de|fr  the source is English
# --out DIR       where everything is written; see data-prep/prepare.sh for what it holds
# --from DIR      take the archives from this folder in place of downloading them:
#                 training-parallel-europarl-v7.tgz, training-parallel-commoncrawl.tgz,
#                 training-parallel-nc-v9.tgz, dev.tgz, test-full.tgz and, for French,
#                 training-parallel-un.tgz and training-giga-fren.tar
# --subword NAME  sentencepiece (default): shared pieces of the raw text; or bpe: joint BPE of
#                 Moses tokens
# --vocabulary-size N, --merges N
#                 how many pieces or merges (default 32000)
# --checksums FILE
#                 the archives must have the checksums of this list, as sha256sum writes it or
#                 in BSD form
# --allow-broken-text
#                 go on where more than 5 % of the training pairs are not UTF-8 or hold null
#                 characters, or more than half of them are dropped
# --jobs N        processes (default: all cores); the result does not depend on them
# --url URL       download all archives from this address (default: the site of the workshop)
#
# Disk with the archives, and time on two cores, both estimated from small parts of such text:
#   de: about 10 GB and 1 hour, with bpe 1.5 hours; 1.6 GB of archives, 4.5 million pairs
#   fr: about 70 GB and 5 hours, with bpe 9 hours; 6.3 GB of archives, 40.8 million pairs
# The disk is checked before the start. 16 GB of memory should be enough; fewer --jobs need less.
#
# The last lines compare how many pairs were read of each corpus, and those of validation and test,
# with the original release; a warning names what differs.
#
# Training pairs have 1 to 250 words and marks on each side and at most 1.5 times as many on one
# side as on the other: our choice, the paper does not say. Lines that are not UTF-8 are dropped
# with their translation. Validation is newstest2013, the test is newstest2014 with all of its
# 3,003 lines; the dictionary is joined.
#
# Other choices of ours: the text stays as it came, so that raw text to be translated and the
# references need no further step. Punctuation is not normalised (“ ” ’ stay), and characters that do
# not print stay, but for separators of lines and null characters, which become spaces. Entities such
# as &amp; are decoded in the test. With --subword bpe words are those of fairseq's --tokenizer moses,
# which leaves the last full stop at an abbreviation, and words with a dash are split.
#
# When the text was taken, the checksums of the archives are kept in OUT/archives.sha256, and a
# later run with other archives is refused. A second run repeats nothing that is complete.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
source "$here/../recipes/lib/common.sh"
source "$here/../recipes/lib/one_run.sh"
source "$here/lib/archives.sh"
end_together "$@"

target='' out='' from='' subword=sentencepiece vocabulary_size=32000 merges=32000 checksums='' url=''
allow_broken_text=''
jobs=$(getconf _NPROCESSORS_ONLN)
while [ $# -gt 0 ]; do
    case $1 in
        --help) usage; exit 0 ;;
        --target | --out | --from | --subword | --vocabulary-size | --merges | --checksums | --jobs | --url)
            need_value "$@"
            set_option "$1" "$2"
            shift 2
            ;;
        --allow-broken-text) set_option "$1" "$1"; shift ;;
        *) unknown_option "$1" ;;
    esac
done
need_options target out
[[ $target =~ ^(de|fr)$ ]] || fail "--target '$target' is not one of de, fr"
[[ $subword =~ ^(bpe|sentencepiece)$ ]] || fail "--subword '$subword' is not one of bpe, sentencepiece"
need_whole_number --vocabulary-size "$vocabulary_size"
need_whole_number --merges "$merges"
need_whole_number --jobs "$jobs"
need_archive_options
need_command python sacremoses subword-nmt fairseq-preprocess gzip tar sha256sum flock
[ "$subword" = bpe ] || need_module sentencepiece "run: pip install -e '.[recipes]'"
out=$(absolute_path "$out")

# How many times the size of the archives is needed, beside them; and how many pairs the corpora have.
growth=5 pairs=4,500,000 europarl=1920209 commoncrawl=2399123 news_commentary=201288
[ "$target" = de ] ||
    growth=10 pairs=40,800,000 europarl=2007723 commoncrawl=3244152 news_commentary=183251
# Where each archive is, its size in MB, the pairs of a corpus, and the files in it; {} stands for the
# language.
site=https://www.statmt.org
train=(
    "wmt13/training-parallel-europarl-v7.tgz 630 $europarl training/europarl-v7.$target-en.{}"
    "wmt13/training-parallel-commoncrawl.tgz 880 $commoncrawl commoncrawl.$target-en.{}"
    "wmt14/training-parallel-nc-v9.tgz 80 $news_commentary training/news-commentary-v9.$target-en.{}"
)
[ "$target" = de ] || train+=(
    "wmt13/training-parallel-un.tgz 2300 12886831 un/undoc.2000.fr-en.{}"
    "wmt10/training-giga-fren.tar 2400 22520376 giga-fren.release2.fixed.{}.gz"
)
test=test-full/newstest2014-${target}en
valid_and_test=(
    "wmt14/dev.tgz 20 dev/newstest2013.{}"
    "wmt14/test-full.tgz 4 $test-src.en.sgm $test-ref.$target.sgm"
)

# archive_of LINE: the path of the archive of a line of these tables.
archive_of() {
    local address=${1%% *}
    printf '%s\n' "$archives/${address##*/}"
}

# need_disk_for_all: archives that are still to come count with the sizes above.
need_disk_for_all() {
    local line file size total=0
    [ ! -d "$out/binarized" ] || return 0
    for line in "${train[@]}" "${valid_and_test[@]}"; do
        read -r _ size _ <<<"$line"
        file=$(archive_of "$line")
        if [ -f "$file" ]; then
            size=$((1 + $(stat --format %s -- "$file") / 1024))
        elif [ -n "$from$url" ]; then
            size=0
        else
            size=$((size * 1000))
        fi
        [ -n "$from" ] || total=$((total + size))
        total=$((total + size * growth))
    done
    need_disk "$out" "$total"
}

urls=()
for line in "${train[@]}" "${valid_and_test[@]}"; do
    address=${line%% *}
    urls+=("${url:-$site/${address%/*}}/${address##*/}")
done

same_corpus "wmt14-en-$target"
[ -d "$out/binarized" ] ||
    say "preparing WMT14 English to $target; --help says how much disk, time and memory the whole of it takes"
need_disk_for_all
need_archives "${urls[@]}"
need_disk_for_all
if [ ! -d "$out/raw" ]; then
    say "taking the text out of the archives in $archives; about $pairs pairs are expected"
    arguments=()
    for line in "${train[@]}"; do
        arguments+=(--train "$(archive_of "$line")" "${line##* }")
    done
    read -r _ _ member <<<"${valid_and_test[0]}"
    arguments+=(--valid "$(archive_of "${valid_and_test[0]}")" "$member")
    read -r _ _ source_member target_member <<<"${valid_and_test[1]}"
    arguments+=(--test "$(archive_of "${valid_and_test[1]}")" "$source_member" "$target_member")
    take_text "${data_prep_helper[@]}" wmt14_text --source en --target "$target" \
        --jobs "$jobs" ${allow_broken_text:+"$allow_broken_text"} "${arguments[@]}"
fi
bash "$here/prepare.sh" --raw "$out/raw" --source en --target "$target" --out "$out" \
    --subword "$subword" --vocabulary-size "$vocabulary_size" --merges "$merges" --jobs "$jobs"

# Folders of older versions lack this file.
if [ -f "$out/raw/train.sizes" ]; then
    for line in "${train[@]}"; do
        read -r address _ published _ <<<"$line"
        name=${address##*/training-}
        name=${name#parallel-}
        size=$(awk -v name="${address##*/}" '$1 == name { print $2 }' "$out/raw/train.sizes")
        compare "${name%.*}" "$size" "$published"
    done
    warn_of_differences
fi
compare "valid pairs" "$(count_lines "$out/raw/valid.en")" 3000
compare "test pairs" "$(count_lines "$out/raw/test.en")" 3003
warn_of_differences
