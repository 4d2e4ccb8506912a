#!/usr/bin/env bash
# The size study of the paper in small: train transformer_rfa_tiny with different numbers of
# directions, feature maps and variants, and compare them on validation data.
#
#   data-prep/multi30k.sh --out data/multi30k
#   recipes/ablation.sh --data data/multi30k --out runs/ablation
#
# --data DIR      folder made by data-prep/
# --out DIR       each run goes into a folder of its own here, and so does the report
# --max-epoch N   epochs of each training (default 4)
# --jobs N        runs at a time (default 1); each has one thread unless OMP_NUM_THREADS is set
# --beam N        default 5
# --seed N        default 1
# --study NAME    only this study and the baselines; may be repeated (default: all of
#                 baselines, cross, causal, maps, variants)
# --list          print the queue (name, study, architecture, flags) and run nothing
# -- FLAGS        any flags of fairseq-train, for every run; those of the queue win over them
#
# The queue may be stopped at any time; the same command continues it and repeats nothing that is
# complete. A run that fails does not stop the others and is tried again by the next start. Test
# data are not touched. The report is ablation.json, ablation.md and ablation.png; of a queue that
# is not finished, PYTHONPATH=recipes/lib python -P -m ablation.report DIR writes it.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
source "$here/lib/common.sh"
source "$here/lib/one_run.sh"
source "$here/lib/queue.sh"

tiny=transformer_rfa_tiny
queue=(
    "softmax          baselines  $tiny              --causal-attention softmax --cross-attention softmax"
    "rfa              baselines  $tiny"
    "cross_dim_16     cross      $tiny              --rfa-cross-dim 16"
    "cross_dim_64     cross      $tiny              --rfa-cross-dim 64"
    "cross_dim_256    cross      $tiny              --rfa-cross-dim 256"
    "causal_dim_16    causal     $tiny              --rfa-causal-dim 16"
    "causal_dim_32    causal     $tiny              --rfa-causal-dim 32"
    "arccos           maps       $tiny              --rfa-feature-map arccos"
    "elu              maps       $tiny              --rfa-feature-map elu"
    "positive         maps       $tiny              --rfa-feature-map positive"
    "cosine           maps       $tiny              --rfa-feature-map cosine"
    "learned          maps       $tiny              --rfa-feature-map learned"
    "gate             variants   ${tiny}_gate"
    "orthogonal       variants   $tiny              --rfa-orthogonal"
    "window           variants   $tiny              --rfa-local-window 8"
    "unnormalized     variants   $tiny              --rfa-unnormalized"
)

data='' out='' max_epoch=4 jobs=1 beam=5 seed=1 studies=() list='' flags=()
while [ $# -gt 0 ]; do
    case $1 in
        --help) usage; exit 0 ;;
        --data | --out | --max-epoch | --jobs | --beam | --seed)
            need_value "$@"
            set_option "$1" "$2"
            shift 2
            ;;
        --study)
            need_value "$@"
            [[ $2 =~ ^(baselines|cross|causal|maps|variants)$ ]] ||
                fail "--study '$2' is not one of baselines, cross, causal, maps, variants"
            studies+=("$2")
            shift 2
            ;;
        --list) list=yes; shift ;;
        --) shift; flags=("$@"); break ;;
        *) unknown_option "$1" ;;
    esac
done

# print_queue [STUDY…]: the runs of these studies and the baselines; without one, all of them.
print_queue() {
    local row name study rest
    for row in "${queue[@]}"; do
        read -r name study rest <<<"$row"
        [[ $# -gt 0 && " baselines $* " != *" $study "* ]] || printf '%s\n' "$row"
    done
}

if [ -n "$list" ]; then
    print_queue "${studies[@]}"
    exit 0
fi
need_options data out
for option in max_epoch jobs beam seed; do
    need_whole_number "--${option//_/-}" "${!option}"
done
refuse_flags --save-dir --user-dir --arch --max-epoch --max-update --seed -- "${flags[@]}"
need_command python fairseq-train fairseq-generate sacrebleu sha256sum flock
python -c 'import matplotlib' 2>/dev/null ||
    fail "Python package 'matplotlib' not found; activate the environment or run: pip install -e '.[recipes]'"
[ -d "$data/binarized" ] || fail "--data '$data' has no folder 'binarized'; make it with data-prep/"
find_languages "$data/binarized" valid
reference=$data/raw/valid.$target
need_file "$reference" "--data must hold the raw validation text; make it with data-prep/"

make_folder "$out"
out=$(absolute_path "$out")
lock_folder
prepared=("$data"/binarized/{code,dict.*.txt,train.*.bin,valid.*.bin} "$reference")
same_settings "$out/settings" "max-epoch=$max_epoch
beam=$beam
seed=$seed
flags=${flags[*]@Q}
data=$(cat -- "${prepared[@]}" | sha256sum | cut -d ' ' -f 1)"
write_file "$out/queue" print_queue
decoding=()
[[ " ${flags[*]} " != *" --cpu "* ]] || decoding=(--cpu)

# train_and_score FOLDER STUDY ARCHITECTURE FLAGS…
train_and_score() {
    local folder=$1 architecture=$3
    shift 3
    bash "$here/train.sh" --data "$data/binarized" --out "$folder" --arch "$architecture" \
            --max-epoch "$max_epoch" -- "${flags[@]}" --seed "$seed" "$@" &&
        bash "$here/score.sh" --data "$data/binarized" --checkpoint "$folder/checkpoint_best.pt" \
            --reference "$reference" --subset valid --beam "$beam" --out "$folder/valid" \
            -- "${decoding[@]}" &&
        write_file "$folder/complete" "${recipes_helper[@]}" ablation.runs "$folder"
}

mapfile -t rows < <(print_queue "${studies[@]}")
start_queue "${#rows[@]}"
run_rows train_and_score "${rows[@]}"

"${recipes_helper[@]}" ablation.report "$out"
fail_if_failed "${rows[@]}"
