# The hyperparameters of the recipes, each once: softmax and RFA train with the same. Source it,
# then call the function of the data set.
#
# Of translation the paper states the sizes, which the architectures hold: 6 layers of 512, 8 heads,
# 64 directions in causal and 128 in cross attention, softmax in the encoder. It does not state the
# optimizer's settings, learning rate, warm-up, dropout, batch, number of updates, averaging and
# beam of its runs: all numbers in this file are our choice, the usual ones for these data sets.
#
# shellcheck disable=SC2034 # what the scripts read

hyperparameters=(
    --criterion label_smoothed_cross_entropy --label-smoothing 0.1
    --optimizer adam --adam-betas '(0.9,0.98)'
    --lr-scheduler inverse_sqrt --seed 1
)

# For recipes/train.sh: small data with a joined dictionary, and a model for CPUs.
multi30k() {
    arch=transformer_rfa_tiny
    hyperparameters+=(
        --share-all-embeddings --dropout 0.2
        --lr 0.004 --warmup-updates 1000
        --max-tokens 4096 --keep-last-epochs 5
    )
    default_max_epoch=20
}

# Separate dictionaries; the average is that of the last 10 epochs. A step of 512 tokens has room
# for the longest sentence, of 175 words.
iwslt14() {
    arch=transformer_rfa_iwslt_de_en
    dictionaries=separate
    hyperparameters+=(
        --share-decoder-input-output-embed --dropout 0.3 --weight-decay 0.0001 --clip-norm 0
        --lr 0.0005 --warmup-updates 4000 --warmup-init-lr 1e-7
        --keep-last-epochs 10
    )
    update_tokens=4096 least_tokens=512
    default_max_update=50000
    patience=10
    average_kind=epoch average_number=10
    usual_beam=5 usual_lenpen=1
}

# A joined dictionary. An epoch is too long a measure, so a checkpoint is validated and kept after
# every 2,000 updates; the average is that of the last 5. Sentences of more than 1,024 tokens are
# left out by fairseq.
wmt14() {
    arch=transformer_rfa_wmt_en_de
    dictionaries=joined
    hyperparameters+=(
        --share-all-embeddings --dropout 0.1 --weight-decay 0 --clip-norm 0
        --lr 0.0007 --warmup-updates 4000 --warmup-init-lr 1e-7
        --save-interval-updates 2000 --keep-interval-updates 5 --no-epoch-checkpoints
    )
    update_tokens=32768 least_tokens=1024
    default_max_update=100000
    patience=10
    average_kind=update average_number=5
    usual_beam=4 usual_lenpen=0.6
}
