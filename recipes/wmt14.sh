#!/usr/bin/env bash
# WMT14 English to German or French: train, average the last checkpoints, decode the test and score it with
# SacreBLEU.
#
#   data-prep/wmt14.sh --target de --out data/wmt14-en-de
#   recipes/wmt14.sh --data data/wmt14-en-de --out runs/wmt14-rfa
#   recipes/wmt14.sh --data data/wmt14-en-de --out runs/wmt14-softmax -- \
#       --causal-attention softmax --cross-attention softmax
#
# --data DIR        folder made by data-prep/wmt14.sh
# --out DIR         checkpoints, logs, translations and scores go here
# --arch NAME       architecture (default transformer_rfa_wmt_en_de)
# --device NAME     gpu (default), cpu or tpu
# --workers N       GPUs or CPU processes (default 1; a TPU has one)
# --precision NAME  fp32, fp16 (GPU only) or bf16 (default fp32; on a TPU bf16)
# --max-epoch N, --max-update N
#                   when to stop, whichever comes first (default 100,000 updates)
# --softmax-epochs N
#                   train the first N epochs with softmax in the decoder, convert the last checkpoint,
#                   and train the rest of --max-epoch and --max-update with RFA, whose flags after --
#                   hold for that part; the part with softmax is in OUT/softmax
# --restart-lr X, --restart-warmup N
#                   start the part with RFA with a new optimizer, a learning rate of at most X and so
#                   many updates of warm-up (default: optimizer and learning rate go on, as in one
#                   training)
# --fit-sigma       fit RFA's sigma to the softmax model on the validation data (default: sigma
#                   starts as in any training)
# --distill-updates K
#                   before the part with RFA, softmax teaches its features in so many updates, all else
#                   frozen (default: none)
# --max-tokens N    most tokens of a worker in a step (default 4096); what the memory can hold
# --update-tokens N tokens of an update (default 32,768), whatever the number of workers: steps
#                   are made smaller, or gradients summed over several; a number of workers that
#                   cannot share them evenly is refused
# --tensorboard DIR write what is logged for TensorBoard, too
# --resume          refuse to start where OUT holds no training (a mistyped --out)
# --dry-run         print the commands of fairseq that would run, ready to copy, and do nothing
# -- FLAGS          any flags of fairseq-train; they win over recipes/hyperparameters.sh
#
# The hyperparameters are in recipes/hyperparameters.sh, the same for softmax and RFA. Training
# ends early after 10 validations without a better BLEU on the validation data (on a TPU: without a
# smaller loss); an interruption starts that count anew.
#
# The average of the last 5 checkpoints (there is one every 2,000 updates) is decoded with beam 4
# and length penalty 0.6, and greedily; the scores are in OUT/test-beam-4/score.json and
# OUT/test-beam-1/score.json.
#
# A second run continues what was interrupted, with another device or number of workers if need
# be, and repeats nothing that is complete.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
source "$here/lib/common.sh"
source "$here/lib/one_run.sh"
source "$here/lib/experiment.sh"
end_together "$@"

wmt14
run_experiment "$@"
