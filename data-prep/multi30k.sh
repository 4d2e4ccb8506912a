#!/usr/bin/env bash
# Fetch Multi30K (image captions in German, English and French) and prepare it for fairseq.
#
#   data-prep/multi30k.sh --out data/multi30k
#   data-prep/multi30k.sh --out data/multi30k-fr-en --from DIR --source fr --target en
#
# --out DIR       where everything is written; see data-prep/prepare.sh for what it holds
# --from DIR      take train, val (or valid), test_2016_flickr and test_2017_flickr from this
#                 folder (train.en.gz or train.en, …) in place of downloading them
# --source LANGUAGE, --target LANGUAGE
#                 two of de, en, fr (default en to de)
# --merges N      joint BPE merges (default 4000)
# --url URL       download from this address (default: the public repository of the data set)
#
# test_2016_flickr becomes the subset `test`, test_2017_flickr the subset `test1`. A second run
# repeats nothing that is complete. The data set is for research and teaching only.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
source "$here/../recipes/lib/common.sh"
source "$here/../recipes/lib/one_run.sh"
source "$here/lib/archives.sh"
end_together "$@"

out='' from='' source=en target=de merges=4000
url=https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw
while [ $# -gt 0 ]; do
    case $1 in
        --help) usage; exit 0 ;;
        --out | --from | --source | --target | --merges | --url)
            need_value "$@"
            set_option "$1" "$2"
            shift 2
            ;;
        *) unknown_option "$1" ;;
    esac
done
need_options out
for option in source target; do
    [[ ${!option} =~ ^(de|en|fr)$ ]] || fail "--$option '${!option}' is not one of de, en, fr"
done
[ "$source" != "$target" ] || fail "--source and --target are both '$source'; name two languages"
need_whole_number --merges "$merges"
[ -z "$from" ] || [ -d "$from" ] || fail "--from '$from' is not a folder"
need_command gzip sha256sum flock
out=$(absolute_path "$out")

# The data set's name of each split, the name here, and the number of its lines.
splits=("train train 29000" "val valid 1014" "test_2016_flickr test 1000" "test_2017_flickr test1 1000")

# take_local NAME: the text of a local file, packed or not.
take_local() {
    local name file
    local names=("$1")
    [[ $1 != val.* ]] || names+=("valid.${1#val.}")
    for name in "${names[@]}"; do
        file=$from/$name
        if [ -f "$file.gz" ]; then
            is_whole "$file.gz" "$file.gz" ||
                fail "'$file.gz' is not a whole gzip file; fetch it again"
            gzip --decompress --stdout -- "$file.gz"
            return
        elif [ -f "$file" ]; then
            cat -- "$file"
            return
        fi
    done
    fail "neither '$from/$1.gz' nor '$from/$1' found; put it there or leave --from away to download"
}

# fetch NAME LINES: downloads NAME.gz once and gives its text.
fetch() {
    local file=$out/download/$1.gz lines
    if [ ! -f "$file" ]; then
        printf 'downloading %s\n' "$url/$1.gz" >&2
        download "$url/$1.gz" "$file.new"
        lines=$(gzip --decompress --stdout -- "$file.new" | wc -l)
        [ "$lines" -eq "$2" ] || {
            rm -f -- "$file.new"
            fail "$url/$1.gz has $lines lines, not $2; check the address, or use --from"
        }
        mv -- "$file.new" "$file"
    fi
    gzip --decompress --stdout -- "$file"
}

[ -n "$from" ] || need_command curl
make_folder "$out"
lock_folder
mkdir -p -- "$out/raw"
for split in "${splits[@]}"; do
    read -r name ours lines <<<"$split"
    for language in "$source" "$target"; do
        file=$out/raw/$ours.$language
        if [ -n "$from" ]; then
            write_file "$file.new" take_local "$name.$language" || exit 1
            # Text with which prepare.sh did not begin does not bind later runs.
            if [ -f "$out/settings" ] && [ -f "$file" ] && ! cmp --quiet -- "$file" "$file.new"; then
                rm -f -- "$file.new"
                fail "'$file' is not the text of --from '$from'; use another --out or remove the folder"
            fi
            mv -- "$file.new" "$file"
        elif [ ! -f "$file" ]; then
            write_file "$file" fetch "$name.$language" "$lines" || exit 1
        fi
    done
done
bash "$here/prepare.sh" --raw "$out/raw" --source "$source" --target "$target" \
    --out "$out" --merges "$merges"
