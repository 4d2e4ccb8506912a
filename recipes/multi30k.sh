#!/usr/bin/env bash
# Train on Multi30K, decode both tests with the best checkpoint and score with SacreBLEU.
#
#   data-prep/multi30k.sh --out data/multi30k
#   recipes/multi30k.sh --data data/multi30k --out runs/rfa
#   recipes/multi30k.sh --data data/multi30k --out runs/softmax-first --softmax-epochs 10
#   recipes/multi30k.sh --data data/multi30k --out runs/softmax -- \
#       --causal-attention softmax --cross-attention softmax
#
# --data DIR      folder made by data-prep/multi30k.sh
# --out DIR       checkpoints, logs, translations and scores go here
# --arch NAME     architecture (default transformer_rfa_tiny)
# --max-epoch N, --max-update N
#                 when to stop, whichever comes first (default 20 epochs)
# --softmax-epochs N
#                 train the first N epochs with softmax in the decoder, convert the last checkpoint,
#                 and train the rest of --max-epoch and --max-update with RFA, whose flags after --
#                 hold for that part; the part with softmax is in OUT/softmax
# --restart-lr X, --restart-warmup N
#                 start the part with RFA with a new optimizer, a learning rate of at most X and so
#                 many updates of warm-up (default: optimizer and learning rate go on, as in one
#                 training)
# --fit-sigma     fit RFA's sigma to the softmax model on the validation data (default: sigma
#                 starts as in any training)
# --distill-updates K
#                 before the part with RFA, softmax teaches its features in so many updates, all else
#                 frozen (default: none)
# --beam N        default 5
# -- FLAGS        any flags of fairseq-train; they win over those of recipes/hyperparameters.sh
#
# A second run continues what was interrupted and repeats nothing that is complete. The scores
# are in OUT/test/score.json (test_2016_flickr) and OUT/test1/score.json (test_2017_flickr).
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
source "$here/lib/common.sh"
source "$here/lib/one_run.sh"
end_together "$@"

data='' out='' beam=5 training=() flags=()
while [ $# -gt 0 ]; do
    case $1 in
        --help) usage; exit 0 ;;
        --data | --out | --beam)
            need_value "$@"
            set_option "$1" "$2"
            shift 2
            ;;
        --arch | --max-epoch | --max-update | --softmax-epochs | --restart-lr | --restart-warmup | \
            --distill-updates)
            need_value "$@"
            training+=("$1" "$2")
            shift 2
            ;;
        --fit-sigma) training+=("$1"); shift ;;
        --) shift; flags=("$@"); break ;;
        *) unknown_option "$1" ;;
    esac
done
need_options data out
need_whole_number --beam "$beam"
[ -d "$data/binarized" ] || fail "--data '$data' has no folder 'binarized'; make it with data-prep/multi30k.sh"
find_languages "$data/binarized"

bash "$here/train.sh" --data "$data/binarized" --out "$out" "${training[@]}" -- "${flags[@]}"
for subset in test test1; do
    [ -f "$data/raw/$subset.$target" ] || continue
    bash "$here/score.sh" --data "$data/binarized" --checkpoint "$out/checkpoint_best.pt" \
        --reference "$data/raw/$subset.$target" --subset "$subset" --beam "$beam" \
        --out "$out/$subset"
done
