# From binarized data to scores: train, average, decode with the usual beam and greedily, score.
# iwslt14.sh and wmt14.sh source it after common.sh and one_run.sh, call their function of
# hyperparameters.sh and then run_experiment "$@".
source "$here/hyperparameters.sh"
source "$here/lib/training.sh"
source "$here/lib/devices.sh"
source "$here/lib/conversion.sh"
source "$here/lib/softmax_first.sh"

read_options() {
    data= out= device=gpu workers=1 precision= tensorboard= resume= dry_run=
    max_tokens=4096 max_epoch= max_update= flags=()
    while [ $# -gt 0 ]; do
        case $1 in
            --help) usage; exit 0 ;;
            --data | --out | --arch | --device | --workers | --precision | --tensorboard | \
                --max-tokens | --update-tokens | --max-epoch | --max-update | \
                --softmax-epochs | --restart-lr | --restart-warmup | --distill-updates)
                need_value "$@"
                set_option "$1" "$2"
                shift 2
                ;;
            --resume | --dry-run | --fit-sigma)
                set_option "$1" yes
                shift
                ;;
            --) shift; flags=("$@"); break ;;
            *) unknown_option "$1" ;;
        esac
    done
    need_options data out arch
}

# check_options: refuses what cannot work, whatever the machine has.
check_options() {
    local option
    for option in workers max_tokens update_tokens; do
        need_whole_number "--${option//_/-}" "${!option}"
    done
    for option in max_epoch max_update; do
        [ -z "${!option}" ] || need_whole_number "--${option//_/-}" "${!option}"
    done
    [ -n "$max_epoch$max_update" ] || max_update=$default_max_update
    [[ $device =~ ^(cpu|gpu|tpu)$ ]] || fail "--device '$device' is not one of cpu, gpu, tpu"
    check_workers
    check_precision
    plan_update
    refuse_flags --save-dir --user-dir --arch --max-epoch --max-update --max-tokens --update-freq \
        --tensorboard-logdir --cpu --tpu --fp16 --bf16 --distributed-world-size \
        -- "${flags[@]}"
}

# check_data: sets source, target and reference; refuses data with which a later step would stop.
check_data() {
    local subset
    [ -d "$data/binarized" ] || fail "--data '$data' has no folder 'binarized'; make it with data-prep/"
    for subset in train valid test; do
        find_languages "$data/binarized" "$subset"
    done
    reference=$data/raw/test.$target
    need_file "$reference" "--data must hold the raw text of the test; make it with data-prep/"
    read_preparation "$data/binarized"
    [ "$dictionaries" = separate ] ||
        cmp --silent -- "$data/binarized/dict.$source.txt" "$data/binarized/dict.$target.txt" ||
        fail "'$data/binarized' has a dictionary for each language, and this recipe needs a joined one; make the data with data-prep/"
}

# check_machine: refuses to start what would fail for want of a program.
check_machine() {
    need_command python fairseq-train fairseq-generate sacrebleu sha256sum
    [ "$tokenizer" != moses ] || need_module sacremoses "run: pip install -e '.[recipes]'"
    need_module "$bpe" "run: pip install -e '.[recipes]'"
    [ -z "$tensorboard" ] || need_module tensorboard "--tensorboard needs it; run: pip install tensorboard"
    check_device
}

# validation_flags: sets `validation`: what decides which checkpoint is best and when to stop.
validation_flags() {
    local detokenizer=$tokenizer remove=()
    validation=(--patience "$patience")
    # Search takes steps by values that a TPU would have to fetch; there the loss decides.
    [ "$device" != tpu ] || return 0
    [ "$tokenizer" != none ] || detokenizer=space
    [ "$bpe" = subword_nmt ] || remove=(sentencepiece)
    validation+=(
        --eval-bleu --eval-bleu-remove-bpe "${remove[@]}"
        --eval-bleu-detok "$detokenizer"
        --eval-bleu-args "{\"beam\": $usual_beam, \"lenpen\": $usual_lenpen, \"max_len_a\": 1.2, \"max_len_b\": 10}"
        --best-checkpoint-metric bleu --maximize-best-checkpoint-metric
    )
    [ "$detokenizer" = space ] || validation+=(
        --eval-bleu-detok-args "{\"source_lang\": \"$source\", \"target_lang\": \"$target\"}"
    )
}

plan_training() {
    common_arguments "$data/binarized" "$out" "$arch"
    stop_arguments
    validation_flags
    device_command
    arguments+=(
        "${hyperparameters[@]}" "${validation[@]}"
        --max-tokens "$step_tokens" --update-freq "$update_freq" "${device_flags[@]}"
    )
    [ -z "$tensorboard" ] || arguments+=(--tensorboard-logdir "$(absolute_path "$tensorboard")")
    # What may change when a training goes on (device, workers, steps, logs) is no part of these.
    settings="arch=$arch
update-tokens=$update_tokens
precision=$precision
hyperparameters=${hyperparameters[*]@Q} ${validation[*]@Q}
flags=${flags[*]@Q}"
}

# average_command COUNT: sets `average` for the last COUNT checkpoints.
average_command() {
    average=(python -m fairseq_rfa.average_checkpoints --inputs "$out"
        "--num-$average_kind-checkpoints" "$1" --output "$out/average.pt")
}

# average_last: sets `model` to the average, made anew where the checkpoints are others than those
# it was made of; without checkpoints to average, to the best one.
average_last() {
    local file found=() number pattern='^checkpoint[0-9]+[.]pt$'
    [ "$average_kind" = epoch ] || pattern='^checkpoint_[0-9]+_[0-9]+[.]pt$'
    for file in "$out"/checkpoint*.pt; do
        [[ ! ${file##*/} =~ $pattern ]] || found+=("${file##*/}")
    done
    number=${#found[@]}
    if [ "$number" -eq 0 ]; then
        say "no checkpoint to average was kept; the scores are those of the best"
        model=$out/checkpoint_best.pt
        return
    elif [ "$number" -lt "$average_number" ]; then
        say "averaging $number checkpoints, because there are no $average_number"
    else
        number=$average_number
        say "averaging the last $number checkpoints"
    fi
    model=$out/average.pt
    [ ! -f "$model" ] || [ "$(cat -- "$out/averaged" 2>/dev/null)" != "$stop ${found[*]}" ] || return 0
    rm -f -- "$out/averaged"
    average_command "$number"
    "${average[@]}" || fail "cannot average the checkpoints in $out; see the line above"
    write_file "$out/averaged" printf '%s\n' "$stop ${found[*]}"
}

# score [FLAG]: decodes and scores with the usual beam and with beam 1; FLAG may be --dry-run.
score() {
    local beam decoding
    for beam in "$usual_beam" 1; do
        decoding=()
        [ "$device" = gpu ] || decoding+=(--cpu)
        [ "$beam" -eq 1 ] || [ "$usual_lenpen" = 1 ] || decoding+=(--lenpen "$usual_lenpen")
        bash "$here/score.sh" --data "$data/binarized" --checkpoint "$model" \
            --reference "$reference" --beam "$beam" --out "$out/test-beam-$beam" "$@" \
            -- "${decoding[@]}"
    done
}

print_commands() {
    print_training "$out" "${launch[@]}" "${arguments[@]}"
    say "# or as many as there are:"
    average_command "$average_number"
    print_command "${average[@]}"
    model=$out/average.pt
    score --dry-run
}

run_experiment() {
    read_options "$@"
    check_options
    check_data
    check_softmax_first "$data/binarized"
    out=$(absolute_path "$out")
    plan_training
    say "# at most $update_tokens tokens an update:" \
        "$workers (workers) x $update_freq (steps) x $step_tokens (tokens of a step)"
    if [ -n "$dry_run" ]; then
        print_commands
        return
    fi
    check_machine
    [ -z "$resume" ] || [ -f "$out/softmax/checkpoint_last.pt" ] ||
        need_file "$out/checkpoint_last.pt" "there is no training to resume; leave --resume away to start one"
    train_in_parts "$data/binarized" "$out" "$settings
data=$(training_data "$data/binarized")" "${launch[@]}" "${arguments[@]}"
    average_last
    score
}
