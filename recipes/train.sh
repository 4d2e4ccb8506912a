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
end_together "$@"

data='' out='' max_epoch='' max_update='' flags=()
multi30k
while [ $# -gt 0 ]; do
    case $1 in
        --help) usage; exit 0 ;;
        --data | --out | --arch | --max-epoch | --max-update)
            need_value "$@"
            set_option "$1" "$2"
            shift 2
            ;;
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

out=$(absolute_path "$out")
common_arguments "$data" "$out" "$arch"
stop_arguments
run_training "$data" "$out" "arch=$arch
flags=${flags[*]@Q}
data=$(training_data "$data")" \
    fairseq-train "${arguments[@]}" "${hyperparameters[@]}" "${flags[@]}"
