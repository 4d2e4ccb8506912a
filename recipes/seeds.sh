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
source "$here/lib/arms.sh"

arms=(
    "softmax                 0  --causal-attention softmax --cross-attention softmax"
    "gaussian                0"
    "gaussian_softmax_first  10"
    "hedgehog                0  --rfa-feature-map hedgehog"
    "hedgehog_softmax_first  10 --rfa-feature-map hedgehog --distill-updates 400"
)

data='' out='' seeds='1 2 3' max_epoch=20 jobs=1 beam=5 list='' table_only='' flags=()
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
            read_arms "$2"
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

# plan_rows: sets rows to the queue: all arms with the first seed, then all with the next, so that a part of it can be
# compared as well.
plan_rows() {
    local arm seed name words
    rows=()
    for seed in $seeds; do
        need_whole_number --seeds "$seed"
        for arm in "${arms[@]}"; do
            read -r name words <<<"$arm"
            rows+=("$name-seed-$seed $name $seed $words")
        done
    done
}

# train_and_score FOLDER ARM SEED SOFTMAX_EPOCHS WORDS…
train_and_score() {
    local folder=$1 seed=$3 epochs=$4 subset
    shift 4
    train_arm "$folder" "$seed" "$epochs" --max-epoch "$max_epoch" -- "$@" || return 1
    for subset in "${subsets[@]}"; do
        score_arm "$folder" "$subset" "$subset" || return 1
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
check_arms "$max_epoch"
plan_rows
need_command python fairseq-train fairseq-generate sacrebleu sha256sum flock
find_subsets

make_folder "$out"
out=$(absolute_path "$out")
lock_folder
same_settings "$out/settings" "max-epoch=$max_epoch
beam=$beam
flags=${flags[*]@Q}
subsets=${subsets[*]}
data=$(data_checksum)"
for subset in "${subsets[@]}"; do
    write_file "$out/reference.$subset" cat -- "$data/raw/$subset.$target"
done
write_file "$out/queue" printf '%s\n' "${rows[@]}"
start_queue "${#rows[@]}"
run_rows train_and_score "${rows[@]}"
write_report
fail_if_failed "${rows[@]}"
