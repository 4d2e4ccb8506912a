#!/usr/bin/env bash
# From nothing to a score in a few minutes on a CPU: install, write a small German-English corpus
# of numbers, dates, times and prices, train transformer_rfa_tiny, translate, score.
#
#   recipes/quickstart.sh
#
# --out DIR       where everything is written (default runs/quickstart in the repository)
# --threads N     CPU threads (default: all cores, at most 4)
#
# A second run reuses what is there.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
source "$here/lib/common.sh"
source "$here/lib/one_run.sh"
source "$here/lib/environment.sh"
end_together "$@"

out=$root/runs/quickstart threads=$(getconf _NPROCESSORS_ONLN)
[ "$threads" -le 4 ] || threads=4
while [ $# -gt 0 ]; do
    case $1 in
        --help) usage; exit 0 ;;
        --out | --threads)
            need_value "$@"
            set_option "$1" "$2"
            shift 2
            ;;
        *) unknown_option "$1" ;;
    esac
done
need_options out
need_whole_number --threads "$threads"
updates=1100 merges=600

out=$(absolute_path "$out")
activate_environment
export OMP_NUM_THREADS=$threads
SECONDS=0
data=$out/data
run=$out/run

say "== corpus"
make_folder "$data"
"${data_prep_helper[@]}" number_phrases --out "$data/raw"
bash "$root/data-prep/prepare.sh" --raw "$data/raw" --source de --target en --out "$data" \
    --merges "$merges"

say "== training, $updates updates with $threads threads"
bash "$here/train.sh" --data "$data/binarized" --out "$run" --arch transformer_rfa_tiny \
    --max-update "$updates" -- --cpu --dropout 0 --max-tokens 800 \
    --lr 0.003 --lr-scheduler polynomial_decay --total-num-update "$updates" --warmup-updates 200 \
    --rfa-orthogonal

say "== translation"
score=$(bash "$here/score.sh" --data "$data/binarized" --checkpoint "$run/checkpoint_best.pt" \
    --reference "$data/raw/test.en" --out "$run/test" -- --cpu)
for line in 1 2 3 4 5; do
    say "source       $(sed -n "${line}p" "$data/raw/test.de")"
    say "translation  $(sed -n "${line}p" "$run/test/hypotheses.txt")"
    say "reference    $(sed -n "${line}p" "$data/raw/test.en")"
    say ""
done
say "== score"
say "$score"
say "Expect about 98. This took $SECONDS seconds."
