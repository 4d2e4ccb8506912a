#!/usr/bin/env bash
# Fetch IWSLT14 German-English (TED talks) and prepare it for fairseq in the published way: the
# text is that of fairseq's own prepare-iwslt14.sh, byte for byte.
#
#   data-prep/iwslt14-de-en.sh --out data/iwslt14
#   data-prep/iwslt14-de-en.sh --out data/iwslt14 --from DIR
#
# --out DIR       where everything is written; see data-prep/prepare.sh for what it holds
# --from DIR      take de-en.tgz from this folder in place of downloading it
# --source LANGUAGE, --target LANGUAGE
#                 de to en (default) or en to de
# --checksums FILE
#                 the archive must have the checksum of this list, as sha256sum writes it or
#                 in BSD form
# --merges N      joint BPE merges (default 10000)
# --documents     talks stay whole, for translation in context: validation is dev2010 and dev2012,
#                 test is tst2010, tst2011 and tst2012, all other talks are for training. This is
#                 another split than the published one, so scores must not be compared with it
# --allow-broken-text
#                 go on where more than 5 % of the training pairs are not UTF-8 or hold null
#                 characters, or more than half of them are dropped
# --jobs N        processes (default: all cores); the result does not depend on them
# --url URL       download from this address (default: the copy that fairseq's own examples use)
#
# Lines of metadata and tags are left out, words are the tokens of Moses' tokenizer.perl since
# November 2018 (dashes not split, the last full stop of a line always split) in small letters,
# training pairs have 1 to 175 tokens on each side and at most 1.5 times as many on one side as on
# the other, every 23rd of them is for validation. The test is dev2010, dev2012, tst2010, tst2011
# and tst2012; ’ becomes ' there, and entities such as &amp; stay as they stand. The dictionaries
# are separate. OUT/raw has the same lines with capitals and without tokens. Needs about 300 MB of
# disk and a few minutes.
#
# The last lines compare counts with the published ones and say which of the published files
# (tokens and BPE of validation and test, BPE codes) were recognised by their SHA-256; a warning
# names what differs. Where a model gets raw text, fairseq's --tokenizer moses leaves the last full
# stop at an abbreviation.
#
# When the text was taken, the checksum of the archive is kept in OUT/archives.sha256, and a later
# run with another archive is refused. A second run repeats nothing that is complete.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
source "$here/../recipes/lib/common.sh"
source "$here/../recipes/lib/one_run.sh"
source "$here/lib/archives.sh"
end_together "$@"

out='' from='' source=de target=en checksums='' merges=10000 allow_broken_text='' documents=''
jobs=$(getconf _NPROCESSORS_ONLN)
url=https://dl.fbaipublicfiles.com/fairseq/data/iwslt14
while [ $# -gt 0 ]; do
    case $1 in
        --help) usage; exit 0 ;;
        --out | --from | --source | --target | --checksums | --merges | --jobs | --url)
            need_value "$@"
            set_option "$1" "$2"
            shift 2
            ;;
        --allow-broken-text | --documents) set_option "$1" "$1"; shift ;;
        *) unknown_option "$1" ;;
    esac
done
need_options out
[[ $source-$target =~ ^(de-en|en-de)$ ]] ||
    fail "--source '$source' --target '$target' are not de and en, in either order"
need_whole_number --merges "$merges"
need_whole_number --jobs "$jobs"
need_archive_options
need_command python sacremoses subword-nmt fairseq-preprocess gzip tar sha256sum flock
out=$(absolute_path "$out")

# types LANGUAGE: fairseq counts four special symbols, too.
types() {
    printf '%d\n' $((4 + $(count_lines "$out/binarized/dict.$1.txt")))
}

same_corpus "iwslt14-de-en${documents:+ documents}"
need_archives "$url/de-en.tgz"
if [ ! -d "$out/raw" ]; then
    say "taking the text out of $archives/de-en.tgz"
    take_text "${data_prep_helper[@]}" iwslt14_text --archive "$archives/de-en.tgz" --jobs "$jobs" \
        ${allow_broken_text:+"$allow_broken_text"} ${documents:+"$documents"}
fi
bash "$here/prepare.sh" --raw "$out/raw" --source "$source" --target "$target" --out "$out" \
    --merges "$merges" --perl-moses --no-dash-splits --lowercase --separate-dictionaries --jobs "$jobs" \
    ${documents:+"$documents"}

if [ -n "$documents" ]; then
    for split in train valid test; do
        say "$split: $(count_lines "$out/raw/$split.de") pairs in $(count_lines "$out/raw/$split.documents") talks"
    done
    say "talks stay whole: another split than the published one, so scores must not be compared with it"
    exit 0
fi
compare "train pairs" "$(count_lines "$out/raw/train.de")" 160239
compare "valid pairs" "$(count_lines "$out/raw/valid.de")" 7283
compare "test pairs" "$(count_lines "$out/raw/test.de")" 6750
compare "German types" "$(types de)" 8848
compare "English types" "$(types en)" 6632
warn_of_differences
"${data_prep_helper[@]}" published "$out"
