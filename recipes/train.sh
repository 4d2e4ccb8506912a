#!/usr/bin/env bash
# Train a translation model with fairseq-train; the recipes call it, and so can you.
#
#   recipes/train.sh --data DIR --out DIR --arch transformer_rfa_tiny --max-epoch 20 -- --dropout 0.1
#
# --data DIR      binarized data made by data-prep/
# --out DIR       checkpoints, dictionaries, BPE codes (or the sentencepiece model) and train.log
#                 go here
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
# -- FLAGS        any flags of fairseq-train; they win over recipes/hyperparameters.sh
#
# A second run continues an interrupted training, and does nothing after a finished one. With
# a greater --max-epoch or --max-update it trains on; other changes are refused.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
source "$here/lib/common.sh"
source "$here/lib/one_run.sh"
source "$here/hyperparameters.sh"
source "$here/lib/training.sh"
source "$here/lib/conversion.sh"
source "$here/lib/softmax_first.sh"
end_together "$@"

data='' out='' max_epoch='' max_update='' flags=()
multi30k
while [ $# -gt 0 ]; do
    case $1 in
        --help) usage; exit 0 ;;
        --data | --out | --arch | --max-epoch | --max-update | --softmax-epochs | --restart-lr | \
            --restart-warmup | --distill-updates)
            need_value "$@"
            set_option "$1" "$2"
            shift 2
            ;;
        --fit-sigma) fit_sigma=yes; shift ;;
        --) shift; flags=("$@"); break ;;
        *) unknown_option "$1" ;;
    esac
done
need_options data out arch
[ -z "$max_epoch" ] || need_whole_number --max-epoch "$max_epoch"
[ -z "$max_update" ] || need_whole_number --max-update "$max_update"
[ -n "$max_epoch$max_update" ] || max_epoch=$default_max_epoch
refuse_flags --save-dir --user-dir --arch --max-epoch --max-update -- "${flags[@]}"
need_command fairseq-train python sha256sum
find_languages "$data"
read_preparation "$data"
check_softmax_first "$data"

out=$(absolute_path "$out")
common_arguments "$data" "$out" "$arch"
stop_arguments
train_in_parts "$data" "$out" "arch=$arch
flags=${flags[*]@Q}
data=$(training_data "$data")" \
    fairseq-train "${arguments[@]}" "${hyperparameters[@]}"
