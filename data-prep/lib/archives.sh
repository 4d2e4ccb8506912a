# Shared by the scripts of data-prep/ that start from archives. Source it after common.sh and one_run.sh.

# is_whole FILE NAME: whether FILE, which is or will be called NAME, is a whole archive of that kind.
is_whole() {
    [ -s "$1" ] || return 1
    case $2 in
        *.tar) tar --list --file "$1" >/dev/null 2>&1 ;;
        *.tgz) gzip --test -- "$1" 2>/dev/null && tar --list --gzip --file "$1" >/dev/null 2>&1 ;;
        *.zip) python -c 'import sys, zipfile; sys.exit(bool(zipfile.ZipFile(sys.argv[1]).testzip()))' "$1" 2>/dev/null ;;
        *) gzip --test -- "$1" 2>/dev/null ;;
    esac
}

kind_of() {
    case $1 in
        *.tar | *.tgz) say "tar archive" ;;
        *.zip) say "zip archive" ;;
        *) say "gzip file" ;;
    esac
}

# download URL FILE: FILE appears only when it is whole. An interrupted download is continued.
download() {
    local url=$1 file=$2 resume=() progress=--silent message status=0
    mkdir -p -- "$(dirname -- "$file")"
    [ ! -t 2 ] || progress=--progress-bar
    [ ! -f "$file.partial" ] || resume=(--continue-at -)
    message=$(curl --fail --location "$progress" --write-out '%{errormsg}' \
        "${resume[@]}" --output "$file.partial" "$url") || status=$?
    # What the server cannot continue (22, 33, 36) is fetched from the start.
    if [[ ${#resume[@]} -gt 0 && $status =~ ^(22|33|36)$ ]]; then
        rm -f -- "$file.partial"
        download "$url" "$file"
        return
    fi
    [ "$status" -eq 0 ] ||
        fail "cannot download $url (curl, status $status: $message); try again, or fetch the files by hand and use --from"
    is_whole "$file.partial" "$url" || {
        rm -f -- "$file.partial"
        fail "$url is not a whole $(kind_of "$url"); check the address, or use --from"
    }
    mv -- "$file.partial" "$file"
}

# checksum_in LIST NAME: the checksum of NAME in a list as sha256sum writes it, or in BSD form. Lists
# may have capitals, and lines that end as on Windows.
checksum_in() {
    local line file sum
    while IFS= read -r line || [ -n "$line" ]; do
        line=${line%$'\r'}
        line=${line#$'\xef\xbb\xbf'}
        if [[ $line =~ ^SHA(2-)?256\ ?\((.*)\)\ ?=\ *([0-9A-Fa-f]+)$ ]]; then
            file=${BASH_REMATCH[2]} sum=${BASH_REMATCH[3]}
        elif [[ $line =~ ^([0-9A-Fa-f]+)[[:blank:]]+\*?(.*)$ ]]; then
            file=${BASH_REMATCH[2]} sum=${BASH_REMATCH[1]}
        else
            continue
        fi
        if [ "${file##*[/\\]}" = "$2" ]; then
            printf '%s\n' "${sum,,}"
            return
        fi
    done <"$1"
}

# need_archive_options: checks --from and --checksums, and sets $archives, the folder of the archives.
need_archive_options() {
    [ -z "$from" ] || [ -d "$from" ] || fail "--from '$from' is not a folder"
    [ -n "$from" ] || need_command curl
    [ -z "$checksums" ] || need_file "$checksums" "give a list as sha256sum writes it, or leave --checksums away"
    archives=$(absolute_path "${from:-$out/download}")
    url=${url%/}
}

# same_corpus NAME: $out is new or holds the text of the same corpus.
same_corpus() {
    [ -f "$out/corpus" ] || [ ! -d "$out/raw" ] ||
        fail "'$out' holds other data; use another --out or remove the folder"
    make_folder "$out"
    lock_folder
    [ -d "$out/raw" ] || rm -f -- "$out/corpus"
    same_settings "$out/corpus" "corpus=$1"
}

# need_archives URL…: each archive is in $archives, whole, the same as that of which the text was
# taken, and as the list $checksums says. Where the text was taken already, an archive may be gone.
# Sets found_sums to the lines of a list of checksums.
need_archives() {
    local url name file list=$out/archives.sha256 sum known expected
    found_sums=()
    for url; do
        name=${url##*/} file=$archives/${url##*/} known= expected=
        if [ ! -f "$file" ]; then
            [ ! -d "$out/raw" ] || continue
            [ -z "$from" ] || fail "'$file' not found; put it there or leave --from away to download"
            say "downloading $url"
            download "$url" "$file"
        fi
        [ ! -d "$out/raw" ] || [ ! -f "$list" ] || known=$(checksum_in "$list" "$name")
        [ -n "$known" ] || is_whole "$file" "$name" ||
            fail "'$file' is not a whole $(kind_of "$name"); fetch it again and put it there"
        sum=$(sha256sum <"$file" | cut -d ' ' -f 1)
        [ -z "$known" ] || [ "$sum" = "$known" ] ||
            fail "'$file' has the sha256 $sum, not $known as at its first use ($list); put that one there or use another --out"
        if [ -n "$checksums" ]; then
            expected=$(checksum_in "$checksums" "$name")
            [ -n "$expected" ] || fail "--checksums '$checksums' has no line for $name; add it or leave --checksums away"
            [ ${#expected} -eq 64 ] ||
                fail "--checksums '$checksums' has '$expected' for $name, which is no sha256; correct it or leave --checksums away"
            [ "$sum" = "$expected" ] || {
                [ -n "$from$known" ] || rm -f -- "$file"
                fail "'$file' has the sha256 $sum, not $expected as '$checksums' says; fetch it again"
            }
        fi
        found_sums+=("$sum  $name")
    done
}

# take_text COMMAND…: what the command writes to --out DIR becomes $out/raw only if it succeeds. Only
# then are the checksums of the archives kept: one that proved unusable can be replaced.
take_text() {
    local folder=$out/raw
    rm -rf -- "$folder.partial"
    "$@" --out "$folder.partial" || {
        rm -rf -- "$folder.partial"
        exit 1
    }
    write_file "$out/archives.sha256" printf '%s\n' "${found_sums[@]}"
    mv -- "$folder.partial" "$folder"
}

# free_space DIR: KiB that are free where DIR is or will be.
free_space() {
    local folder=$1
    while [ ! -d "$folder" ]; do
        folder=$(dirname -- "$folder")
    done
    df -Pk -- "$folder" | awk 'NR == 2 { print $4 }'
}

readable() {
    numfmt --from-unit=1024 --to=iec --suffix=B "$1"
}

# need_disk DIR KIB: what is in DIR already counts.
need_disk() {
    local free used=0
    free=$(free_space "$1")
    [ ! -d "$1" ] || used=$(du -sk -- "$1" | cut -f 1)
    [ $((free + used)) -ge "$2" ] ||
        fail "'$1' needs about $(readable "$2") of disk, and $(readable "$free") are free there; make room or use another --out"
}

count_lines() {
    wc -l <"$1"
}

differences=()

# compare WHAT COUNT PUBLISHED
compare() {
    printf '%-14s %9d, published %9d\n' "$@"
    [ "$2" -eq "$3" ] || differences+=("$1")
}

# warn_of_differences: names what was found to differ since the last call.
warn_of_differences() {
    [ ${#differences[@]} -eq 0 ] ||
        say "warning: $(printf '%s, ' "${differences[@]}" | sed 's/, $//') differ from the published preparation; scores may not be comparable"
    differences=()
}
