# What transfer-study.sh will do: its options, its data and the rows of its queue. Source it after
# common.sh, hyperparameters.sh, training.sh, devices.sh and conversion.sh.

# choose_preset: sets the hyperparameters and what the command line has left open.
choose_preset() {
    local default_source_updates default_arm_updates default_arm_lr default_arm_warmup cores
    case $preset in
        small)
            multi30k
            hyperparameters+=(--dropout 0 --lr 0.003 --warmup-updates 200)
            dictionaries=joined update_tokens=800 least_tokens=200
            default_source_updates=1100 default_arm_updates=300 default_arm_lr=0.001 default_arm_warmup=50
            device=${device:-cpu}
            ;;
        multi30k)
            multi30k
            dictionaries=joined update_tokens=4096 least_tokens=512
            default_source_updates=2880 default_arm_updates=720 default_arm_lr=0.002 default_arm_warmup=200
            device=${device:-cpu}
            ;;
        iwslt14)
            iwslt14
            default_source_updates=$default_max_update
            default_arm_updates=5000 default_arm_lr=0.0003 default_arm_warmup=500
            device=${device:-gpu}
            ;;
        *) fail "--preset '$preset' is not one of small, multi30k, iwslt14" ;;
    esac
    source_updates=${source_updates:-$default_source_updates}
    arm_updates=${arm_updates:-$default_arm_updates}
    arm_lr=${arm_lr:-$default_arm_lr}
    arm_warmup=${arm_warmup:-$default_arm_warmup}
    # The presets set these two.
    arch=${given_arch:-$arch}
    update_tokens=${given_update_tokens:-$update_tokens}
    [ ${#imitate[@]} -gt 0 ] || imitate=(unit-length)
    if [ -z "$jobs" ]; then
        jobs=1 cores=$(getconf _NPROCESSORS_ONLN)
        [ "$device" != cpu ] || jobs=$((cores < 4 ? cores : 4))
    fi
}

check_options() {
    local option
    for option in source_updates arm_updates arm_warmup log_interval smooth beam seed jobs workers max_tokens \
        update_tokens; do
        need_whole_number "--${option//_/-}" "${!option}"
    done
    [[ $arm_lr =~ ^[0-9]*[.]?[0-9]+(e-?[0-9]+)?$ ]] || fail "--arm-lr '$arm_lr' is not a number"
    [ $((smooth % log_interval)) -eq 0 ] ||
        fail "--smooth $smooth is no multiple of --log-interval $log_interval, the updates of a row of the curves;" \
            "use a multiple"
    [ "$arm_updates" -ge "$smooth" ] ||
        fail "--arm-updates $arm_updates is less than --smooth $smooth; use more updates or a smaller window"
    refuse_architecture_of_rfa "$arch"
    [[ $device =~ ^(cpu|gpu|tpu)$ ]] || fail "--device '$device' is not one of cpu, gpu, tpu"
    check_workers
    check_precision
    plan_update
    refuse_flags --save-dir --user-dir --arch --max-epoch --max-update --max-tokens --update-freq --seed \
        --tensorboard-logdir --log-interval --finetune-from-model --causal-attention --cross-attention \
        --encoder-attention --cpu --tpu --fp16 --bf16 --distributed-world-size -- "${flags[@]}"
}

check_data() {
    local file
    [ -d "$data/binarized" ] || fail "--data '$data' has no folder 'binarized'; make it with data-prep/"
    data=$(absolute_path "$data")
    find_languages "$data/binarized"
    find_languages "$data/binarized" valid
    reference=$data/raw/valid.$target
    need_file "$reference" "--data must hold the raw validation text; make it with data-prep/"
    read_preparation "$data/binarized"
    [ "$dictionaries" = separate ] ||
        cmp --silent -- "$data/binarized/dict.$source.txt" "$data/binarized/dict.$target.txt" ||
        fail "'$data/binarized' has a dictionary for each language, and this preset needs a joined one;" \
            "make the data with data-prep/"
    for file in softmax_checkpoint rfa_checkpoint; do
        [ -n "${!file}" ] || continue
        need_file "${!file}" "--${file//_/-} must be a checkpoint that fairseq-train wrote"
        printf -v "$file" '%s' "$(absolute_path "${!file}")"
    done
}

check_machine() {
    need_command python fairseq-train fairseq-generate fairseq-validate sacrebleu sha256sum flock
    [ "$tokenizer" != moses ] || need_module sacremoses "run: pip install -e '.[recipes]'"
    need_module "$bpe" "run: pip install -e '.[recipes]'"
    need_module matplotlib "run: pip install -e '.[recipes]'"
    need_module tensorboard "run: pip install tensorboard"
    check_device
}

# checksum [FILE…]: nothing for no file.
checksum() {
    [ -z "${1-}" ] || cat -- "$@" | sha256sum | cut -d ' ' -f 1
}

# plan_rows: sets sources and arms, whose rows are
#   NAME MODEL KIND [IMITATE [fitted]]: the model that is trained or evaluated (softmax or rfa), and what is
#   done: train (from scratch, to the end), source (one epoch with learning rate 0), scratch (an arm
#   that starts from nothing), continued (an arm that starts from the same model), kept or reset (an
#   arm that starts from the other model); of the last two, RFA has what it imitates, and `fitted`
#   where sigma is fitted.
plan_rows() {
    local way name model start models=() measures=()
    arms=("softmax_scratch softmax scratch" "rfa_scratch rfa scratch" "softmax_continued softmax continued")
    for way in "${imitate[@]}"; do
        name=rfa_from_softmax
        [ "$way" = unit-length ] || name=rfa_unnormalized_from_softmax
        arms+=("$name rfa kept $way")
        [ "$way" != unit-length ] || ! can_fit || arms+=("${name}_fitted rfa kept $way fitted")
        arms+=("${name}_reset rfa reset $way")
    done
    arms+=("softmax_from_rfa softmax kept" "softmax_from_rfa_reset softmax reset")
    if [ ${#chosen[@]} -eq 0 ]; then
        models=(softmax rfa)
    else
        choose_arms
    fi
    sources=()
    for model in "${models[@]}"; do
        start=${model}_start
        if [ -z "${!start}" ]; then
            sources+=("$model $model train")
            printf -v "$start" '%s' "$out/$model/checkpoint_best.pt"
        fi
        measures+=("${model}_source $model source")
    done
    arms=("${measures[@]}" "${arms[@]}")
}

add_model() {
    [[ " ${models[*]} " == *" $1 "* ]] || models+=("$1")
}

# choose_arms: leaves the chosen ones in arms, and the models that they start from in models.
choose_arms() {
    local names=() row kept=() other
    for row in "${arms[@]}"; do
        names+=("${row%% *}")
        [[ " ${chosen[*]} " == *" ${row%% *} "* ]] || continue
        kept+=("$row")
        case $row in
            *" scratch") continue ;;
            *" rfa "* | *" continued") other=softmax ;;
            *) other=rfa ;;
        esac
        add_model "$other"
    done
    [ -z "$zero_shot" ] || add_model softmax
    for row in "${chosen[@]}"; do
        [[ " ${names[*]} " == *" $row "* ]] || fail "--arm '$row' is not one of ${names[*]}"
    done
    arms=("${kept[@]}")
}

# plan_trainings: sets launch and device_flags, and on_device for the other commands of fairseq.
plan_trainings() {
    device_command
    device_flags+=(--max-tokens "$step_tokens" --update-freq "$update_freq")
    on_device=()
    [ "$device" = gpu ] || on_device=(--cpu)
}
