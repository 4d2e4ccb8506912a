# Where a training runs and how it shares out the tokens of an update. Source it after common.sh.

# share_update UPDATE_TOKENS WORKERS MAX_TOKENS: sets step_tokens, at most MAX_TOKENS, and
# update_freq, so that WORKERS workers with so many steps see UPDATE_TOKENS in an update. Fails
# where no whole numbers do that, or steps get smaller than the longest sentence.
share_update() {
    local share=$(($1 / $2))
    update_freq=$(((share + $3 - 1) / $3))
    [ $(($1 % $2)) -eq 0 ] && [ $((share % update_freq)) -eq 0 ] || return 1
    step_tokens=$((share / update_freq))
    [ "$2" -eq 1 ] || [ "$step_tokens" -ge "$least_tokens" ]
}

# check_workers: refuses several workers where fairseq cannot start them.
check_workers() {
    [ "$device" != tpu ] || [ "$workers" -eq 1 ] ||
        fail "--workers $workers: fairseq cannot start several workers with torch_xla; with --device tpu use 1," \
            "gradients are then summed over the steps of an update"
}

# plan_update: shares out update_tokens, or refuses the number of workers and says which will do.
plan_update() {
    local number possible=()
    share_update "$update_tokens" "$workers" "$max_tokens" && return
    for number in {1..64}; do
        ! share_update "$update_tokens" "$number" "$max_tokens" || possible+=("$number")
    done
    fail "--workers $workers cannot share the $update_tokens tokens of an update evenly, in steps of" \
        "$least_tokens to $max_tokens tokens; use one of ${possible[*]:-none (change --update-tokens or --max-tokens)}"
}

# check_device: refuses what this machine lacks.
check_device() {
    local found
    case $device in
        cpu) [ "$workers" -eq 1 ] || need_command torchrun ;;
        gpu)
            found=$(python -c 'import torch; print(torch.cuda.is_available() and torch.cuda.device_count() or 0)') ||
                fail "cannot import torch; activate the environment or run: pip install -e '.[recipes]'"
            [ "$found" -gt 0 ] ||
                fail "--device gpu: torch finds no GPU; use --device cpu, or a build of torch that can use the GPU"
            [ "$workers" -le "$found" ] ||
                fail "--workers $workers, but torch finds $found GPUs; use at most as many workers"
            ;;
        tpu) need_module torch_xla "--device tpu needs it; install it for your torch, or use --device cpu or gpu" ;;
    esac
}

# check_precision: sets the default, and refuses what does not go with the device.
check_precision() {
    local default=fp32
    [ "$device" != tpu ] || default=bf16
    precision=${precision:-$default}
    case $device-$precision in
        cpu-fp16)
            fail "--precision fp16 on a CPU: fairseq-train takes it with --fp16-no-flatten-grads only, and this" \
                "recipe not at all; use fp32 or bf16"
            ;;
        tpu-fp16) fail "--precision fp16 on a TPU: fairseq refuses it; use bf16 or fp32" ;;
        *-fp32 | *-fp16 | *-bf16) ;;
        *) fail "--precision '$precision' is not one of fp32, fp16, bf16" ;;
    esac
}

# device_command: sets `launch`, which runs fairseq-train in all workers, and `device_flags`.
device_command() {
    launch=(fairseq-train)
    device_flags=(--distributed-world-size "$workers")
    [ "$precision" = fp32 ] || device_flags+=("--$precision")
    case $device in
        cpu) device_flags+=(--cpu) ;;
        tpu) device_flags+=(--tpu --num-batch-buckets 8) ;;
    esac
    # fairseq starts workers by itself for GPUs only.
    [ "$device" != cpu ] || [ "$workers" -eq 1 ] ||
        launch=(torchrun --standalone --nproc-per-node "$workers" --no-python fairseq-train)
}
