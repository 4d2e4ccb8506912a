# One run of transfer-study.sh. Source it after plan.sh.

# train FOLDER MODEL UPDATES EPOCHS FLAGS…: UPDATES or EPOCHS may be empty.
train() {
    local folder=$1 model=$2 max_update=$3 max_epoch=$4 arguments stop
    shift 4
    [ "$model" = rfa ] || set -- "$@" --causal-attention softmax --cross-attention softmax
    [ "$model" != rfa ] || set -- "${rfa_flags[@]}" "$@"
    common_arguments "$data/binarized" "$folder" "$arch"
    stop_arguments
    arguments+=("${hyperparameters[@]}" "${device_flags[@]}" --log-interval "$log_interval"
        --tensorboard-logdir "$(dirname -- "$folder")/tensorboard/${folder##*/}"
        "${common_flags[@]}" --seed "$seed" "$@")
    if [ -n "$dry_run" ]; then
        print_command "${launch[@]}" "${arguments[@]}"
        return
    fi
    run_training "$data/binarized" "$folder" "arguments=$*" "${launch[@]}" "${arguments[@]}"
}

# train_arm FOLDER MODEL FLAGS…: with the learning rate of the arms; only the best and the last
# checkpoint are kept.
train_arm() {
    local folder=$1 model=$2
    shift 2
    train "$folder" "$model" "$arm_updates" "" --no-epoch-checkpoints --lr "$arm_lr" \
        --warmup-updates "$arm_warmup" "$@"
}

# convert FOLDER MODEL KIND IMITATE FITTED: makes FOLDER/start.pt of the other model, and writes what
# became of its parameters into FOLDER/conversion.txt.
convert() {
    local folder=$1 model=$2 kind=$3 way=$4 fitted=$5 start=$softmax_start options=() reset=none command
    [ "$model" = rfa ] || start=$rfa_start
    [ "$kind" != reset ] || reset=projections
    [ "$model" = softmax ] || options=(--imitate "$way" "${rfa_flags[@]}")
    [ -z "$fitted" ] || options+=(--fit-data "$data/binarized")
    command=(python -m fairseq_rfa.transfer --to "$model" --reset-attention "$reset" "${options[@]}"
        "$start" "$folder/start.pt")
    if [ -n "$dry_run" ]; then
        print_command "${command[@]}"
    elif [ ! -f "$folder/start.pt" ]; then
        write_file "$folder/conversion.txt" "${command[@]}"
    fi
}

# evaluate CHECKPOINT FOLDER: BLEU in FOLDER/score.json.
evaluate() {
    local options=()
    [ -z "$dry_run" ] || options=(--dry-run)
    bash "$here/score.sh" --data "$data/binarized" --checkpoint "$1" --reference "$reference" --subset valid \
        --beam "$beam" --out "$2" "${options[@]}" -- "${on_device[@]}"
}

# validate CHECKPOINT FOLDER: the loss in FOLDER/validate.log.
validate() {
    local command=(fairseq-validate "$data/binarized" --user-dir "$plugin" --task translation
        --source-lang "$source" --target-lang "$target" --path "$1" --valid-subset valid
        --max-tokens "$step_tokens" --required-batch-size-multiple 1 --no-progress-bar "${on_device[@]}")
    if [ -n "$dry_run" ]; then
        print_command "${command[@]}"
        return
    fi
    [ -f "$2/validate.log" ] || write_file "$2/validate.log" "${command[@]}"
}

# run_row FOLDER MODEL KIND [IMITATE [fitted]]: see plan_rows.
run_row() {
    local folder=$1 model=$2 kind=$3 way=${4-} fitted=${5-} start=${2}_start more=()
    [ "$way" != softmax ] || more=(--rfa-unnormalized)
    case $kind in
        train)
            train "$folder" "$model" "$source_updates" "" || return 1
            [ -n "$dry_run" ] || write_file "$folder/complete" printf '%s\n' "$source_updates updates"
            return
            ;;
        source)
            train "$folder" "$model" "" 1 --no-epoch-checkpoints --lr 0 --warmup-updates 1 --warmup-init-lr 0 \
                --finetune-from-model "${!start}" || return 1
            ;;
        scratch) train_arm "$folder" "$model" || return 1 ;;
        continued) train_arm "$folder" "$model" --finetune-from-model "${!start}" || return 1 ;;
        kept | reset)
            convert "$folder" "$model" "$kind" "$way" "$fitted" || return 1
            if [ "$kind" != reset ]; then
                evaluate "$folder/start.pt" "$folder/start" || return 1
                validate "$folder/start.pt" "$folder/start" || return 1
            fi
            train_arm "$folder" "$model" "${more[@]}" --finetune-from-model "$folder/start.pt" || return 1
            ;;
    esac
    evaluate "$folder/checkpoint_best.pt" "$folder/valid" || return 1
    [ -n "$dry_run" ] || write_file "$folder/complete" "${recipes_helper[@]}" transfer.runs "$folder" "$model" "$kind"
}

study_zero_shot() {
    local command=(python -m fairseq_rfa.zero_shot "$data/binarized" --checkpoint "$softmax_start"
        --out "$out/zero_shot" --seeds "$seed" --beam "$beam")
    [ "$device" != gpu ] || command+=(--device cuda)
    if [ -n "$dry_run" ]; then
        print_command "${command[@]}"
    else
        "${command[@]}"
    fi
}
