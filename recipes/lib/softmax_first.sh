# Softmax first: a training whose first epochs have softmax in the decoder and whose other epochs have RFA, in one
# budget of epochs and updates. Source it after training.sh and conversion.sh.

softmax_epochs='' restart_lr='' restart_warmup='' fit_sigma='' distill_updates=''

# check_softmax_first DATA: refuses what would fail after the epochs of softmax; sets binarized, rfa_flags and
# common_flags. Uses out, arch, flags and max_epoch.
check_softmax_first() {
    local option reason conversion
    binarized=$1
    if [ -z "$softmax_epochs" ]; then
        for option in restart_lr restart_warmup fit_sigma distill_updates; do
            [ -z "${!option}" ] || fail "--${option//_/-} says how RFA follows softmax; use it with --softmax-epochs"
        done
        return
    fi
    need_whole_number --softmax-epochs "$softmax_epochs"
    [ -z "$max_epoch" ] || [ "$softmax_epochs" -lt "$max_epoch" ] ||
        fail "--softmax-epochs $softmax_epochs leaves none of the $max_epoch epochs to RFA; use fewer, or a greater" \
            "--max-epoch"
    [[ $restart_lr =~ ^([0-9]*[.]?[0-9]+(e-?[0-9]+)?)?$ ]] || fail "--restart-lr '$restart_lr' is not a number"
    [ -z "$distill_updates" ] || need_whole_number --distill-updates "$distill_updates"
    [ -z "$restart_warmup" ] || need_whole_number --restart-warmup "$restart_warmup"
    [ -z "$restart_warmup" ] || [ -n "$restart_lr" ] ||
        fail "--restart-warmup $restart_warmup: without --restart-lr the learning rate goes on; use both"
    refuse_architecture_of_rfa "$arch"
    refuse_flags --continue-once --finetune-from-model --restore-file --no-save --no-last-checkpoints \
        --no-save-optimizer-state -- "${flags[@]}"
    split_flags
    [ "$(rfa_value --causal-attention rfa) $(rfa_value --cross-attention rfa)" != "softmax softmax" ] ||
        [ "$(rfa_value --encoder-attention softmax)" != softmax ] ||
        fail "--softmax-epochs $softmax_epochs: with --causal-attention softmax and --cross-attention softmax no RFA" \
            "follows; leave one of them out"
    conversion_options
    [ -f "$out/start.pt" ] || reason=$("${recipes_helper[@]}" check_conversion "${conversion[@]}" 2>&1) ||
        fail "${reason##*$'\n'}"
}

# conversion_options: sets conversion.
conversion_options() {
    conversion=(--to rfa "${rfa_flags[@]}")
    [ -z "$fit_sigma" ] || conversion+=(--fit-data "$binarized")
    [ -z "$distill_updates" ] || conversion+=(--distill-data "$binarized" --distill-updates "$distill_updates")
    [ -n "$restart_lr" ] || conversion+=(--keep-training)
}

# softmax_first_settings: what a folder cannot change, in lines that follow others.
softmax_first_settings() {
    [ -z "$softmax_epochs" ] || printf '\n%s=%s' softmax-epochs "$softmax_epochs" restart-lr "$restart_lr" \
        restart-warmup "$restart_warmup" fit-sigma "$fit_sigma"
    [ -z "$distill_updates" ] || printf '\n%s=%s' distill-updates "$distill_updates"
}

# plan_parts OUT COMMAND…: sets first, conversion and second, the commands of both parts and what is between them.
plan_parts() {
    local out=$1
    shift
    first=("$@" "${common_flags[@]}" --save-dir "$out/softmax" --max-epoch "$softmax_epochs" --patience=-1
        --no-epoch-checkpoints --causal-attention softmax --cross-attention softmax)
    [ -z "${tensorboard-}" ] || first+=(--tensorboard-logdir "$(absolute_path "$tensorboard")/softmax")
    conversion_options
    conversion=(python -m fairseq_rfa.transfer "${conversion[@]}" "$out/softmax/checkpoint_last.pt" "$out/start.pt")
    second=("$@" "${flags[@]}")
    if [ -z "$restart_lr" ]; then
        second+=(--continue-once "$out/start.pt")
        return
    fi
    second+=(--finetune-from-model "$out/start.pt" --lr "$restart_lr")
    [ -z "$restart_warmup" ] || second+=(--warmup-updates "$restart_warmup")
    [ -z "$max_epoch" ] || second+=(--max-epoch $((max_epoch - softmax_epochs)))
}

# print_training OUT COMMAND…: the commands of train_in_parts, to copy.
print_training() {
    local first conversion second
    if [ -z "$softmax_epochs" ]; then
        shift
        print_command "$@" "${flags[@]}"
        return
    fi
    plan_parts "$@"
    print_command "${first[@]}"
    print_command "${conversion[@]}"
    [ -z "$restart_lr" ] || [ -z "$max_update" ] || say "# with --max-update less the updates of softmax:"
    print_command "${second[@]}"
}

# train_in_parts DATA OUT SETTINGS COMMAND…: run_training with COMMAND and `flags`, softmax first where that is wanted.
train_in_parts() {
    local data=$1 out=$2 settings=$3 first conversion second updates
    shift 3
    settings+=$(softmax_first_settings)
    if [ -z "$softmax_epochs" ]; then
        run_training "$data" "$out" "$settings" "$@" "${flags[@]}"
        return
    fi
    plan_parts "$out" "$@"
    make_folder "$out"
    same_settings "$out/settings" "$settings"
    [ -f "$out/start.pt" ] || train_softmax
    if [ -n "$restart_lr$max_update" ]; then
        updates=$("${recipes_helper[@]}" training_log "$out/softmax/train.log") || fail "$updates"
        [ -z "$max_update" ] || [ "$updates" -lt "$max_update" ] ||
            fail "--softmax-epochs $softmax_epochs takes all of the $max_update updates; use fewer, or a greater" \
                "--max-update"
        [ -z "$restart_lr" ] || [ -z "$max_update" ] || second+=(--max-update $((max_update - updates)))
    fi
    [ -f "$out/start.pt" ] || write_file "$out/conversion.txt" "${conversion[@]}" ||
        fail "the softmax model could not be converted, see above"
    run_training "$data" "$out" "$settings" "${second[@]}"
}

# train_softmax: the first part, with what is set in train_in_parts.
train_softmax() {
    local stop="max-epoch=$softmax_epochs max-update=$max_update"
    run_training "$data" "$out/softmax" "$settings" "${first[@]}"
}
