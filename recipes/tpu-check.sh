#!/usr/bin/env bash
# Check the way of a model through a TPU: train a tiny one with torch_xla, resume it, count what is
# compiled, and translate with its checkpoint by ordinary torch on the CPU.
#
#   recipes/tpu-check.sh
#
# --device NAME      cpu or tpu: where torch_xla computes (default: what PJRT_DEVICE says, else cpu,
#                    which takes the same way as a TPU and needs none)
# --environment DIR  virtual environment with torch_xla (default .venv-tpu in the repository); made
#                    where it is missing, with downloads of several GB
# --out DIR          where everything is written (default runs/tpu-check in the repository)
# -- FLAGS           further flags of fairseq-train, for example -- --bf16 --no-rfa-fixed-matrices
#
# Batches come in 2 buckets and not in 8 as in the recipes, because each shape takes time to compile;
# 2 show whether going from one shape to the other compiles anything anew.
#
# The last line says what was found. A second run trains anew and keeps environment and data.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
source "$here/lib/common.sh"
source "$here/lib/one_run.sh"
source "$here/lib/environment.sh"
end_together "$@"

# torch_xla works with the torch of its own version only.
xla_version=2.9.0

device=${PJRT_DEVICE:-cpu} environment=$root/.venv-tpu out=$root/runs/tpu-check flags=()
while [ $# -gt 0 ]; do
    case $1 in
        --help) usage; exit 0 ;;
        --device | --environment | --out)
            need_value "$@"
            set_option "$1" "$2"
            shift 2
            ;;
        --) shift; flags=("$@"); break ;;
        *) unknown_option "$1" ;;
    esac
done
need_options device environment out
device=${device,,}
case $device in
    cpu | tpu) ;;
    *) fail "--device '$device' is not cpu or tpu" ;;
esac
refuse_flags --user-dir --arch --save-dir --max-epoch --tpu --cpu --fp16 -- "${flags[@]}"

# make_environment DIR: the project with torch_xla; everything else as in constraints.txt.
make_environment() {
    local folder=$1 stamp
    stamp=$(cat -- "$root/setup.py" "$root/constraints.txt" "$0" | sha256sum)
    if [[ $("$folder/bin/pip" --version 2>/dev/null) != *" $folder/"* ]]; then
        make_venv "$folder"
    fi
    [ "$(cat -- "$folder/installed" 2>/dev/null)" != "$stamp" ] || return 0
    rm -f -- "$folder/installed"
    say "installing torch_xla $xla_version and fairseq_rfa in $folder (several GB, the first time)"
    write_file "$folder/constraints.txt" xla_constraints
    PATH="$folder/bin:$PATH" install_with_pip "$folder" test torch_xla
    write_file "$folder/installed" printf '%s\n' "$stamp"
}

xla_constraints() {
    grep -vE '^(torch|torchaudio)==' -- "$root/constraints.txt"
    printf '%s\n' {torch,torchaudio,torch_xla}=="$xla_version"
}

# on_xla MODULE ARGUMENT…: a Python helper with torch_xla.
on_xla() {
    (unset PYTHONHOME && PATH="$environment/bin:$PATH" PJRT_DEVICE=${device^^} "${recipes_helper[@]}" "$@")
}

environment=$(absolute_path "$environment")
out=$(absolute_path "$out")
make_environment "$environment"
activate_environment
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
make_folder "$out"

say "== corpus"
"${data_prep_helper[@]}" number_phrases --out "$out/raw" --train 400 --valid 24 --test 20
bash "$root/data-prep/prepare.sh" --raw "$out/raw" --source de --target en --out "$out/data" --merges 100

# train EPOCHS: trains up to that epoch and appends the counts of compilations to compilations.json.
train() {
    on_xla tpu.count_compilations "$out/compilations.json" \
        "$out/data/binarized" --user-dir "$plugin" --arch transformer_rfa_tiny --tpu --num-batch-buckets 2 \
        --encoder-layers 1 --decoder-layers 2 --encoder-embed-dim 32 --decoder-embed-dim 32 \
        --encoder-ffn-embed-dim 32 --decoder-ffn-embed-dim 32 --share-all-embeddings \
        --criterion label_smoothed_cross_entropy --label-smoothing 0.1 --dropout 0.1 \
        --optimizer adam --lr 0.01 --lr-scheduler inverse_sqrt --warmup-updates 20 \
        --max-tokens 1024 --required-batch-size-multiple 8 --seed 1 --num-workers 0 \
        --no-progress-bar --log-format simple --log-interval 1 --no-epoch-checkpoints \
        --max-epoch "$1" --save-dir "$out/run" "${flags[@]}" >>"$out/train.log" 2>&1 ||
        fail "the training with torch_xla stopped; see $out/train.log"
}

rm -rf -- "$out/run" "$out/train.log" "$out/compilations.json"
say "== training on torch_xla's device '$device' (a minute or more, most of it for compilations)"
train 3
say "== resuming"
train 6

say "== translation with $(python -c 'import torch; print("torch", torch.__version__)') on the CPU"
fairseq-generate "$out/data/binarized" --user-dir "$plugin" --path "$out/run/checkpoint_last.pt" \
    --cpu --beam 2 --max-len-b 20 --required-batch-size-multiple 1 --num-workers 0 >"$out/generate.txt" 2>"$out/generate.log" ||
    fail "fairseq-generate could not use the checkpoint; see $out/generate.log"
"${recipes_helper[@]}" tpu.verdict "$out" || fail "the way through the TPU does not work as it should, see above"
