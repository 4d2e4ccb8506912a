#!/usr/bin/env bash
# Compare softmax and random feature attention (RFA) in the translation of documents: each is trained
# on windows of sentences, and decodes each sentence after its own translations of those before it.
#
#   data-prep/prepare.sh --raw TEXT --source en --target es --out data/documents --documents
#   recipes/documents.sh --data data/documents --out runs/documents
#
# --data DIR      folder made by data-prep/ with --documents
# --out DIR       each run goes into a folder of its own here, and so does the report
# --windows "N …" sentences of a window, its last one included (default "1 2 4")
# --arms FILE     what is compared, in lines NAME SOFTMAX_EPOCHS FLAGS… as in seeds.sh (default: see
#                 --list). An arm with --rfa-sentence-gate has no window of 1: no sentence ends there,
#                 and it is the arm without the gate
# --seeds "N …"   default "1"
# --max-update N  updates of each training (default 4000). A window of 4 sentences has up to four times
#                 the tokens, so equal epochs would not be equal work
# --max-epoch N   stop after N epochs, or after --max-update where that comes first; without
#                 --max-update epochs alone count
# --jobs N        runs at a time (default 1); each has one thread unless OMP_NUM_THREADS is set.
#                 Decoding is timed with 1 only
# --beam N        default 5
# --batch-size N  sentences decoded at a time, of as many documents (default 16)
# --list          print the arms and run nothing
# --table-only    write the report of the runs that are complete and run nothing; needs --out only
# -- FLAGS        any flags of fairseq-train, for every run; those of the arms win over them
#
# Of each run the best checkpoint decodes the validation data and the tests, and the validation data
# again after the reference in place of its own translations, as an upper bound. The perplexity is that
# of the last sentences of the windows of the validation data, so that each sentence counts once.
#
# The queue may be stopped at any time; the same command continues it and repeats nothing that is
# complete, and goes on with more windows, seeds or arms. A run that fails does not stop the others and
# is tried again by the next start. The report is documents.json, documents.md, documents.png and
# documents.pdf; it needs no complete queue.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
source "$here/lib/common.sh"
source "$here/lib/one_run.sh"
source "$here/lib/queue.sh"
source "$here/lib/arms.sh"

arms=(
    "softmax            0  --causal-attention softmax --cross-attention softmax"
    "rfa                0"
    "rfa_sentence_gate  0  --rfa-sentence-gate"
    "hedgehog           0  --rfa-feature-map hedgehog"
)

data='' out='' windows='1 2 4' seeds=1 max_update='' max_epoch='' jobs=1 beam=5 batch_size=16
list='' table_only='' flags=()
while [ $# -gt 0 ]; do
    case $1 in
        --help) usage; exit 0 ;;
        --data | --out | --windows | --seeds | --max-update | --max-epoch | --jobs | --beam | --batch-size)
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
    "${recipes_helper[@]}" documents.report "$out"
    cat -- "$out/documents.md"
}

# plan_rows: sets rows to the queue: all arms with the first window and seed, then all with the next window, so that a
# part of it can be compared as well; left_out holds arms that have no window of 1.
plan_rows() {
    local arm window seed name words
    rows=() left_out=()
    for seed in $seeds; do
        need_whole_number --seeds "$seed"
        for window in $windows; do
            need_whole_number --windows "$window"
            for arm in "${arms[@]}"; do
                read -r name words <<<"$arm"
                if [ "$window" -eq 1 ] && [[ " ${flags[*]} $words " == *" --rfa-sentence-gate "* ]]; then
                    left_out+=("$name")
                    continue
                fi
                rows+=("$name-window-$window-seed-$seed $name $window $seed $words")
            done
        done
    done
    [ ${#rows[@]} -gt 0 ] || fail "--windows '$windows' with --rfa-sentence-gate leaves no run; use a window above 1"
}

# validate FOLDER FLAG…: the loss of the last sentence of each window in FOLDER/validate.log.
validate() {
    local folder=$1 on_cpu=()
    shift
    [ ! -f "$folder/validate.log" ] || return 0
    [[ " ${flags[*]} " != *" --cpu "* ]] || on_cpu=(--cpu)
    write_file "$folder/validate.log" fairseq-validate "$data/binarized" --user-dir "$plugin" \
        --source-lang "$source" --target-lang "$target" --path "$folder/checkpoint_best.pt" --valid-subset valid \
        --batch-size "$batch_size" --required-batch-size-multiple 1 --no-progress-bar "${on_cpu[@]}" \
        "$@" --context-loss last
}

# decode FOLDER SUBSET NAME FLAG…: score_arm, with the number of runs at that time in FOLDER/NAME/jobs.
decode() {
    local folder=$1/$3
    mkdir -p -- "$folder"
    [ -f "$folder/score.json" ] || write_file "$folder/jobs" printf '%s\n' "$jobs" || return 1
    score_arm "$@" --batch-size "$batch_size"
}

# run_window FOLDER ARM WINDOW SEED SOFTMAX_EPOCHS WORDS…
run_window() {
    local folder=$1 window=$3 seed=$4 epochs=$5 subset context budget=()
    shift 5
    context=(--task document_translation --context-sentences $((window - 1)))
    [ -z "$max_update" ] || budget+=(--max-update "$max_update")
    [ -z "$max_epoch" ] || budget+=(--max-epoch "$max_epoch")
    train_arm "$folder" "$seed" "$epochs" "${budget[@]}" -- "$@" "${context[@]}" || return 1
    validate "$folder" "${context[@]}" || return 1
    for subset in "${subsets[@]}"; do
        decode "$folder" "$subset" "$subset" "${context[@]}" || return 1
    done
    [ "$window" -eq 1 ] ||
        decode "$folder" valid valid-reference "${context[@]}" --context-prefix reference || return 1
    write_file "$folder/complete" "${recipes_helper[@]}" documents.runs "$folder" "$window" "${subsets[@]}"
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
need_options data windows seeds
[ -n "$max_update$max_epoch" ] || max_update=4000
for option in max_update max_epoch jobs beam batch_size; do
    [ -z "${!option}" ] || need_whole_number "--${option//_/-}" "${!option}"
done
of_the_queue=(--task --context-sentences --context-prefix)
refuse_flags --save-dir --user-dir --arch --max-epoch --max-update --seed "${of_the_queue[@]}" -- "${flags[@]}"
check_arms "$max_epoch" "${of_the_queue[@]}"
plan_rows
need_command python fairseq-train fairseq-validate fairseq-generate sacrebleu sha256sum flock
need_module matplotlib "activate the environment or run: pip install -e '.[recipes]'"
find_subsets
for subset in train "${subsets[@]}"; do
    documents+=("$data/binarized/$subset.documents")
    need_file "${documents[-1]}" "make the data with data-prep/prepare.sh --documents"
done

make_folder "$out"
out=$(absolute_path "$out")
lock_folder
same_settings "$out/settings" "max-update=$max_update
max-epoch=$max_epoch
beam=$beam
batch-size=$batch_size
flags=${flags[*]@Q}
subsets=${subsets[*]}
data=$(data_checksum)"
write_file "$out/queue" printf '%s\n' "${rows[@]}"
[ ${#left_out[@]} -eq 0 ] || say "no window of 1 for ${left_out[*]}: the gate acts between sentences alone"
start_queue "${#rows[@]}"
run_rows run_window "${rows[@]}"
write_report
fail_if_failed "${rows[@]}"
