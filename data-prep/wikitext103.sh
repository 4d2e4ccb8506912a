#!/usr/bin/env bash
# Fetch WikiText-103 and prepare it for fairseq's language models.
#
#   data-prep/wikitext103.sh --out data/wikitext103
#   data-prep/wikitext103.sh --out data/wikitext103 --from DIR
#
# --out DIR       where everything is written; see data-prep/text.sh for what it holds
# --from DIR      take wikitext-103-v1.zip from this folder in place of downloading it
# --checksums FILE
#                 the archive must have the checksum of this list, as sha256sum writes it or in BSD
#                 form
# --jobs N        processes (default: all cores); the result does not depend on them
# --url URL       download the archive from this address (default: the site of one of its authors)
#
# Words are those of the release, with its <unk>, and are not split; an empty line is a line as any
# other. The last lines compare the lines, words and tokens (a word or the end of a line) with the
# published ones; a warning names what differs. Disk: 1.5 GB with the archive, of 190 MB.
#
# When the text was taken, the checksum of the archive is kept in OUT/archives.sha256, and a later run
# with another archive is refused. A second run repeats nothing that is complete.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
source "$here/../recipes/lib/common.sh"
source "$here/../recipes/lib/one_run.sh"
source "$here/lib/archives.sh"
end_together "$@"

out='' from='' checksums='' url=https://wikitext.smerity.com
jobs=$(getconf _NPROCESSORS_ONLN)
while [ $# -gt 0 ]; do
    case $1 in
        --help) usage; exit 0 ;;
        --out | --from | --checksums | --jobs | --url)
            need_value "$@"
            set_option "$1" "$2"
            shift 2
            ;;
        *) unknown_option "$1" ;;
    esac
done
need_options out
need_whole_number --jobs "$jobs"
need_archive_options
need_command python fairseq-preprocess sha256sum md5sum flock
out=$(absolute_path "$out")

name=wikitext-103-v1.zip md5=9ddaacaf6af0710eda8c456decff7832
# Of each split the lines and the tokens.
published=("train 1801350 103227021" "valid 3760 217646" "test 4358 245569")
published_words=267735
growth=8 # times the archive, beside it

same_corpus wikitext-103
need_archives "$url/$name"
if [ ! -d "$out/raw" ]; then
    need_disk "$out" $((growth * $(stat --format %s -- "$archives/$name") / 1024))
    say "taking the text out of $archives/$name"
    take_text "${data_prep_helper[@]}" wikitext103_text "$archives/$name"
fi
bash "$here/text.sh" --raw "$out/raw" --out "$out" --subword none --jobs "$jobs"

if [ -f "$archives/$name" ] && [ "$(md5sum <"$archives/$name" | cut -d ' ' -f 1)" = "$md5" ]; then
    say "$name is the published archive, by its MD5"
fi
splits=(train valid test)
counts=$("${data_prep_helper[@]}" count_tokens "$out/binarized/dict.txt" "${splits[@]/#/$out/binarized/}") || exit 1
mapfile -t counts <<<"$counts"
compare "words" "${counts[0]}" "$published_words"
for index in "${!splits[@]}"; do
    read -r split lines tokens <<<"${published[index]}"
    compare "$split lines" "$(count_lines "$out/raw/$split.txt")" "$lines"
    compare "$split tokens" "${counts[index + 1]}" "$tokens"
done
warn_of_differences
