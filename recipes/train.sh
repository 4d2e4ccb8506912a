#!/usr/bin/env bash
# Train a translation model with fairseq-train; the recipes call it, and so can you.
#
#   recipes/train.sh --data DIR --out DIR --arch transformer_rfa_tiny --max-epoch 20 -- --dropout 0.1
#
# --data DIR      binarized data made by data-prep/
# --out DIR       checkpoints, dictionaries, BPE codes and train.log go here
# --arch NAME     architecture (default transformer_rfa_tiny)
# --max-epoch N, --max-update N
#                 when to stop, whichever comes first (default 20 epochs)
# -- FLAGS        any flags of fairseq-train; they win over those below
#
# A second run continues an interrupted training, and does nothing after a finished one. With
# a greater --max-epoch or --max-update it trains on; other changes are refused.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
source "$here/common.sh"

data= out= arch=transformer_rfa_tiny max_epoch= max_update= flags=()
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
[ -n "$max_epoch$max_update" ] || max_epoch=20
refuse_flags --save-dir --user-dir --arch --max-epoch --max-update -- "${flags[@]}"
need_command fairseq-train python sha256sum
find_languages "$data"

mkdir -p -- "$out"
out=$(absolute_path "$out")
same_settings "$out/settings" "arch=$arch
flags=${flags[*]@Q}
data=$(cat -- "$data"/code "$data"/dict.*.txt "$data"/train.*.bin | sha256sum | cut -d ' ' -f 1)"
stop="max-epoch=$max_epoch max-update=$max_update"
if [ -f "$out/trained" ] && [ "$(cat -- "$out/trained")" = "$stop" ]; then
    say "$out/checkpoint_best.pt is trained already ($stop)"
    exit 0
fi
# With these beside it, a checkpoint's folder is all that from_pretrained needs.
for file in code "dict.$source.txt" "dict.$target.txt"; do
    write_file "$out/$file" cat -- "$data/$file"
done

python "$here/mend_checkpoint.py" "$out" || fail "cannot mend $out/checkpoint_last.pt; remove it to start again"
arguments=(
    "$data" --user-dir "$plugin" --task translation --arch "$arch"
    --source-lang "$source" --target-lang "$target" --tokenizer moses
    --share-all-embeddings --dropout 0.2
    --criterion label_smoothed_cross_entropy --label-smoothing 0.1
    --optimizer adam --adam-betas '(0.9,0.98)'
    --lr 0.004 --lr-scheduler inverse_sqrt --warmup-updates 1000
    --max-tokens 4096 --required-batch-size-multiple 1 --seed 1 --keep-last-epochs 5
    --no-progress-bar --log-format simple --log-interval 50
    --save-dir "$out"
)
[ -z "$max_epoch" ] || arguments+=(--max-epoch "$max_epoch")
[ -z "$max_update" ] || arguments+=(--max-update "$max_update")
fairseq-train "${arguments[@]}" "${flags[@]}" 2>&1 | tee -a -- "$out/train.log" ||
    fail "fairseq-train stopped; see $out/train.log"
need_file "$out/checkpoint_best.pt" "the training wrote no checkpoint; see $out/train.log"
write_file "$out/trained" printf '%s\n' "$stop"
