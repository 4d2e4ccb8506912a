#!/usr/bin/env bash
# Compare ways to train over several seeds: mean and spread of perplexity and BLEU, and the
# differences from the first of them, tested with SacreBLEU's paired bootstrap.
#
#   data-prep/multi30k.sh --out data/multi30k
#   recipes/seeds.sh --data data/multi30k --out runs/seeds --jobs 2
#
# --data DIR      folder made by data-prep/
# --out DIR       each run goes into a folder of its own here, and so does the report
# --seeds "N …"   default "1 2 3"
# --arms FILE     what is compared, in lines NAME SOFTMAX_EPOCHS FLAGS… (default: see --list): the
#                 first arm is the one that the others are compared with; epochs of softmax before
#                 RFA, or 0; flags of fairseq-train, and --arch, --restart-lr, --restart-warmup,
#                 --fit-sigma and --distill-updates of recipes/train.sh
# --max-epoch N   epochs of each training, those of softmax included (default 20)
# --jobs N        runs at a time (default 1); each has one thread unless OMP_NUM_THREADS is set
# --beam N        default 5
# --list          print the arms and run nothing
# --table-only    write the report of the runs that are complete and run nothing; needs --out only
# -- FLAGS        any flags of fairseq-train, for every run; those of the arms win over them
#
# Each run is trained, and its best checkpoint decodes the validation data and the tests, once. The
# queue may be stopped at any time; the same command continues it and repeats nothing that is
# complete, and goes on with more seeds or arms. A run that fails does not stop the others and is
# tried again by the next start. The report is seeds.json and seeds.md; it needs no complete queue.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
source "$here/lib/common.sh"
source "$here/lib/one_run.sh"
source "$here/lib/queue.sh"

arms=(
    "softmax                 0  --causal-attention softmax --cross-attention softmax"
    "gaussian                0"
    "gaussian_softmax_first  10"
    "hedgehog                0  --rfa-feature-map hedgehog"
    "hedgehog_softmax_first  10 --rfa-feature-map hedgehog --distill-updates 400"
)

data='' out='' seeds='1 2 3' file='' max_epoch=20 jobs=1 beam=5 list='' table_only='' flags=()
while [ $# -gt 0 ]; do
    case $1 in
        --help) usage; exit 0 ;;
        --data | --out | --seeds | --max-epoch | --jobs | --beam)
            need_value "$@"
            set_option "$1" "$2"
            shift 2
            ;;
        --arms)
            need_value "$@"
            file=$2
            need_file "$file" "--arms must be a file with lines NAME SOFTMAX_EPOCHS FLAGS…"
            mapfile -t arms < <(grep -v -e '^[[:space:]]*#' -e '^[[:space:]]*$' -- "$file")
            shift 2
            ;;
        --list | --table-only) set_option "$1" yes; shift ;;
        --) shift; flags=("$@"); break ;;
        *) unknown_option "$1" ;;
    esac
done

write_report() {
    "${recipes_helper[@]}" seeds.report "$out"
    cat -- "$out/seeds.md"
}

# check_arms: refuses lines that are no arms, and sets rows to the queue: all arms with the first seed,
# then all with the next, so that a part of it can be compared as well.
check_arms() {
    local arm seed name epochs words names=' '
    for seed in $seeds; do
        need_whole_number --seeds "$seed"
    done
    [ ${#arms[@]} -gt 0 ] || fail "--arms '$file' holds no arm; write lines NAME SOFTMAX_EPOCHS FLAGS…"
    for arm in "${arms[@]}"; do
        read -r name epochs words <<<"$arm"
        [[ $name =~ ^[A-Za-z0-9_.-]+$ ]] || fail "arm '$name': a name has letters, digits and _ . - only"
        [[ $names != *" $name "* ]] || fail "arm '$name' occurs twice; give each a name of its own"
        names+="$name "
        [[ $epochs =~ ^[0-9]+$ ]] && [ "$epochs" -lt "$max_epoch" ] ||
            fail "arm '$name': '$epochs' epochs of softmax; use a number from 0 to less than --max-epoch $max_epoch"
        read -ra words <<<"$words"
        refuse_flags --save-dir --user-dir --max-epoch --max-update --seed --softmax-epochs -- "${words[@]}"
        [[ ! ${words[*]} =~ (^|\ )(--arch|--restart-lr|--restart-warmup|--distill-updates)$ ]] ||
            fail "arm '$name': option ${BASH_REMATCH[2]} needs a value"
    done
    rows=()
    for seed in $seeds; do
        for arm in "${arms[@]}"; do
            read -r name words <<<"$arm"
            rows+=("$name-seed-$seed $name $seed $words")
        done
    done
}

# train_and_score FOLDER ARM SEED SOFTMAX_EPOCHS WORDS…
train_and_score() {
    local folder=$1 seed=$3 options=(--max-epoch "$max_epoch") own=() subset decoding=()
    [ "$4" -eq 0 ] || options+=(--softmax-epochs "$4")
    shift 4
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
    [[ " ${flags[*]} " != *" --cpu "* ]] || decoding=(--cpu)
    bash "$here/train.sh" --data "$data/binarized" --out "$folder" "${options[@]}" \
        -- "${flags[@]}" --seed "$seed" "${own[@]}" || return 1
    for subset in "${subsets[@]}"; do
        bash "$here/score.sh" --data "$data/binarized" --checkpoint "$folder/checkpoint_best.pt" \
            --reference "$data/raw/$subset.$target" --subset "$subset" --beam "$beam" --out "$folder/$subset" \
            -- "${decoding[@]}" || return 1
    done
    write_file "$folder/complete" "${recipes_helper[@]}" seeds.runs "$folder" "${subsets[@]}"
}

if [ -n "$list" ]; then
    printf '%s\n' "${arms[@]}"
    exit 0
fi
need_options out
if [ -n "$table_only" ]; then
    write_report
    exit 0
fi
need_options data seeds
for option in max_epoch jobs beam; do
    need_whole_number "--${option//_/-}" "${!option}"
done
refuse_flags --save-dir --user-dir --arch --max-epoch --max-update --seed -- "${flags[@]}"
check_arms
need_command python fairseq-train fairseq-generate sacrebleu sha256sum flock
[ -d "$data/binarized" ] || fail "--data '$data' has no folder 'binarized'; make it with data-prep/"
find_languages "$data/binarized" valid
read_preparation "$data/binarized"
subsets=(valid)
for file in "$data"/raw/test*."$target"; do
    [ ! -f "$file" ] || subsets+=("$(basename -- "$file" ".$target")")
done
for subset in "${subsets[@]}"; do
    find_languages "$data/binarized" "$subset"
    need_file "$data/raw/$subset.$target" "--data must hold the raw text; make it with data-prep/"
done

make_folder "$out"
out=$(absolute_path "$out")
lock_folder
prepared=("$data/binarized"/{"$pieces",dict.*.txt,train.*.bin,valid.*.bin,test*.bin})
same_settings "$out/settings" "max-epoch=$max_epoch
beam=$beam
flags=${flags[*]@Q}
subsets=${subsets[*]}
data=$(cat -- "${prepared[@]}" | sha256sum | cut -d ' ' -f 1)"
for subset in "${subsets[@]}"; do
    write_file "$out/reference.$subset" cat -- "$data/raw/$subset.$target"
done
write_file "$out/queue" printf '%s\n' "${rows[@]}"
start_queue "${#rows[@]}"
run_rows train_and_score "${rows[@]}"
write_report
fail_if_failed "${rows[@]}"
