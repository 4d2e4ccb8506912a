# Studies that compare arms: each is trained with train.sh, and score.sh decodes its best checkpoint. An arm is a line
# NAME SOFTMAX_EPOCHS FLAGS…: epochs of softmax before RFA, or 0; flags of fairseq-train, and some options of train.sh.
# Source it after common.sh; it uses here, data, arms, flags and beam.

# read_arms FILE: sets arms; empty lines and lines with # are none.
read_arms() {
    need_file "$1" "--arms must be a file with lines NAME SOFTMAX_EPOCHS FLAGS…"
    mapfile -t arms < <(grep -v -e '^[[:space:]]*#' -e '^[[:space:]]*$' -- "$1")
    [ ${#arms[@]} -gt 0 ] || fail "--arms '$1' holds no arm; write lines NAME SOFTMAX_EPOCHS FLAGS…"
}

# check_arms MAX_EPOCH [FLAG…]: refuses lines that are no arms, epochs of softmax that leave none of MAX_EPOCH to RFA
# (empty for any number), and these flags.
check_arms() {
    local max_epoch=$1 arm name epochs words names=' '
    shift
    for arm in "${arms[@]}"; do
        read -r name epochs words <<<"$arm"
        [[ $name =~ ^[A-Za-z0-9_.-]+$ ]] || fail "arm '$name': a name has letters, digits and _ . - only"
        [[ $names != *" $name "* ]] || fail "arm '$name' occurs twice; give each a name of its own"
        names+="$name "
        if [[ ! $epochs =~ ^[0-9]+$ ]] || { [ -n "$max_epoch" ] && [ "$epochs" -ge "$max_epoch" ]; }; then
            fail "arm '$name': '$epochs' epochs of softmax; use a number from 0${max_epoch:+ to less than --max-epoch $max_epoch}"
        fi
        read -ra words <<<"$words"
        refuse_flags --save-dir --user-dir --max-epoch --max-update --seed --softmax-epochs "$@" -- "${words[@]}"
        [[ ! ${words[*]} =~ (^|\ )(--arch|--restart-lr|--restart-warmup|--distill-updates)$ ]] ||
            fail "arm '$name': option ${BASH_REMATCH[2]} needs a value"
    done
}

# find_subsets: sets subsets to valid and the tests of the data, documents to nothing, source, target and what
# read_preparation sets; refuses data that lack something.
find_subsets() {
    local file subset
    [ -d "$data/binarized" ] || fail "--data '$data' has no folder 'binarized'; make it with data-prep/"
    find_languages "$data/binarized" valid
    read_preparation "$data/binarized"
    subsets=(valid) documents=()
    for file in "$data"/raw/test*."$target"; do
        [ ! -f "$file" ] || subsets+=("$(basename -- "$file" ".$target")")
    done
    for subset in "${subsets[@]}"; do
        find_languages "$data/binarized" "$subset"
        need_file "$data/raw/$subset.$target" "--data must hold the raw text; make it with data-prep/"
    done
}

# data_checksum: of what the trainings and the decodings read, the files in documents included.
data_checksum() {
    cat -- "$data/binarized"/{"$pieces",dict.*.txt,train.*.bin,valid.*.bin,test*.bin} "${documents[@]}" | sha256sum |
        cut -d ' ' -f 1
}

# train_arm FOLDER SEED SOFTMAX_EPOCHS OPTION… -- WORD…: with options of train.sh and the words of an arm.
train_arm() {
    local folder=$1 seed=$2 options=() own=()
    [ "$3" -eq 0 ] || options+=(--softmax-epochs "$3")
    shift 3
    while [ "$1" != -- ]; do
        options+=("$1")
        shift
    done
    shift
    while [ $# -gt 0 ]; do
        case $1 in
            --arch | --restart-lr | --restart-warmup | --distill-updates)
                options+=("$1" "$2")
                shift
                ;;
            --fit-sigma) options+=("$1") ;;
            *) own+=("$1") ;;
        esac
        shift
    done
    bash "$here/train.sh" --data "$data/binarized" --out "$folder" "${options[@]}" \
        -- "${flags[@]}" --seed "$seed" "${own[@]}"
}

# score_arm FOLDER SUBSET NAME [FLAG…]: decodes with flags of fairseq-generate; the result is in FOLDER/NAME.
score_arm() {
    local folder=$1 subset=$2 name=$3 decoding=()
    shift 3
    [[ " ${flags[*]} " != *" --cpu "* ]] || decoding=(--cpu)
    bash "$here/score.sh" --data "$data/binarized" --checkpoint "$folder/checkpoint_best.pt" \
        --reference "$data/raw/$subset.$target" --subset "$subset" --beam "$beam" --out "$folder/$name" \
        -- "${decoding[@]}" "$@"
}
