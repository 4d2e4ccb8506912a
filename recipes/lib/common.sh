# Shared by the scripts of recipes/ and data-prep/. Source it after `set -euo pipefail`.
export LC_ALL=C PYTHONUTF8=1 PYTHONUNBUFFERED=1

fail() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 1
}

say() {
    printf '%s\n' "$*"
}

# The comment at the top of a script is its help.
usage() {
    awk 'NR == 1 { next } !/^#/ { exit } { sub(/^# ?/, ""); print }' "$0"
}

unknown_option() {
    fail "unknown option '$1'; see --help"
}

# need_value OPTION [VALUE…]: refuses an option at the end of the command line.
need_value() {
    [ $# -ge 2 ] || fail "option $1 needs a value; see --help"
}

need_whole_number() {
    [[ $2 =~ ^[1-9][0-9]*$ ]] || fail "$1 '$2' is not a whole number above 0"
}

need_command() {
    local name
    for name; do
        command -v "$name" >/dev/null ||
            fail "command '$name' not found; activate the environment or run: pip install -e '.[recipes]'"
    done
}

need_file() {
    [ -f "$1" ] || fail "file '$1' not found; $2"
}

absolute_path() {
    case $1 in
        /*) printf '%s\n' "$1" ;;
        *) printf '%s\n' "$PWD/$1" ;;
    esac
}

# write_file FILE COMMAND…: the command's output becomes FILE only if it succeeds.
write_file() {
    local file=$1
    shift
    ("$@") >"$file.partial" || {
        rm -f -- "$file.partial"
        return 1
    }
    mv -- "$file.partial" "$file"
}

# same_settings FILE TEXT WORD: the first run records TEXT, later runs must agree with it.
same_settings() {
    local file=$1 text=$2
    if [ -f "$file" ]; then
        [ "$(cat -- "$file")" = "$text" ] ||
            fail "$file says that this folder was made with other settings or input ($(
                diff <(cat -- "$file") <(printf '%s\n' "$text") | sed -n 's/^[<>] //p' | tr '\n' ' ')); use another --out or remove the folder"
    else
        write_file "$file" printf '%s\n' "$text"
    fi
}

# set_option --some-name VALUE: sets some_name.
set_option() {
    local name=${1#--}
    printf -v "${name//-/_}" '%s' "$2"
}

need_options() {
    local name
    for name; do
        [ -n "${!name}" ] || fail "option --${name//_/-} is missing; see --help"
    done
}

# refuse_flags FLAG… -- GIVEN…: these flags of fairseq have an option of the script.
refuse_flags() {
    local reserved=() flag given
    while [ "$1" != -- ]; do
        reserved+=("$1")
        shift
    done
    shift
    for given; do
        for flag in "${reserved[@]}"; do
            [[ $given != "$flag" && $given != "$flag="* ]] ||
                fail "flag '$given' after -- is set by this script; see --help for its own options"
        done
    done
}

# find_languages DATA [SUBSET]: sets source and target from the names of the binarized files.
# shellcheck disable=SC2034 # what the scripts read
find_languages() {
    local files name subset=${2-train}
    [ -d "$1" ] || fail "--data '$1' is not a folder; give the folder 'binarized' made by data-prep/"
    files=("$1/$subset".*-*.*.idx)
    [ ${#files[@]} -eq 2 ] ||
        fail "--data '$1' does not hold '$subset' for one pair of languages; give the folder 'binarized' made by data-prep/"
    name=${files[0]##*/"$subset".}
    name=${name%%.*}
    source=${name%-*}
    target=${name#*-}
}

# need_module NAME REMEDY: refuses where Python lacks a module.
need_module() {
    python -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)' "$1" ||
        fail "Python package '$1' not found; $2"
}

# read_preparation DATA: sets tokenizer, bpe and letter_case to what the file DATA/preparation says
# (moses, subword_nmt and mixed where it says nothing), and pieces to the file that splits words.
# shellcheck disable=SC2034 # what the scripts read
read_preparation() {
    local file=$1/preparation line
    tokenizer=moses bpe=subword_nmt letter_case=mixed
    if [ -f "$file" ]; then
        while IFS= read -r line || [ -n "$line" ]; do
            case $line in
                tokenizer=moses | tokenizer=none) tokenizer=${line#*=} ;;
                bpe=subword_nmt | bpe=sentencepiece) bpe=${line#*=} ;;
                case=mixed | case=lowercase) letter_case=${line#*=} ;;
                *) fail "'$file' says '$line', which is not known here; make the data again with data-prep/" ;;
            esac
        done <"$file"
    fi
    pieces=code
    [ "$bpe" = subword_nmt ] || pieces=sentencepiece.model
    need_file "$1/$pieces" "--data must hold the pieces of words; give the folder 'binarized' made by data-prep/"
}

# print_command WORD…: a command to copy: quotes only where they are needed, lines of at most 100
# characters where its flags allow it.
print_command() {
    local word flag= line=
    for word; do
        [[ $word =~ ^[A-Za-z0-9_./:=,@%+-]+$ ]] || word=${word@Q}
        if [[ $word == --* ]]; then
            append_flag
            flag=$word
        else
            flag=$flag${flag:+ }$word
        fi
    done
    append_flag
    printf '%s\n' "$line"
}

append_flag() {
    if [ -n "$line" ] && [ $((${#line} + ${#flag})) -gt 96 ]; then
        printf '%s \\\n' "$line"
        line="   "
    fi
    line=$line${line:+ }$flag
}

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd -P)
# shellcheck disable=SC2034 # what the scripts read
plugin=$root/fairseq_rfa

# "${recipes_helper[@]}" MODULE ARGUMENT… runs a Python helper of recipes/lib, data_prep_helper one of
# data-prep/lib. Helpers find each other there; with -P, what lies in the current folder is not taken for one.
# shellcheck disable=SC2034 # what the scripts read
recipes_helper=(env "PYTHONPATH=$root/recipes/lib${PYTHONPATH:+:$PYTHONPATH}" python -P -m)
# shellcheck disable=SC2034 # what the scripts read
data_prep_helper=(env "PYTHONPATH=$root/data-prep/lib${PYTHONPATH:+:$PYTHONPATH}" python -P -m)
