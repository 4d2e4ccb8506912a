# One training with fairseq-train in a folder of its own. Source it after common.sh and one_run.sh.

# common_arguments DATA OUT ARCH: sets `arguments` to what every training has in common. Call
# find_languages and read_preparation before.
common_arguments() {
    arguments=("$1" --user-dir "$plugin" --task translation --arch "$3"
        --source-lang "$source" --target-lang "$target")
    [ "$tokenizer" = none ] || arguments+=(--tokenizer "$tokenizer")
    arguments+=(--required-batch-size-multiple 1
        --no-progress-bar --log-format simple --log-interval 50 --save-dir "$2")
}

# stop_arguments: adds max_epoch and max_update to `arguments`, and names them in `stop`.
stop_arguments() {
    stop="max-epoch=$max_epoch max-update=$max_update"
    [ -z "$max_epoch" ] || arguments+=(--max-epoch "$max_epoch")
    [ -z "$max_update" ] || arguments+=(--max-update "$max_update")
}

# training_data DATA: the checksum of what a training reads.
training_data() {
    cat -- "$1/$pieces" "$1"/dict.*.txt "$1"/train.*.bin | sha256sum | cut -d ' ' -f 1
}

# keep_memory: a training on a CPU asks for the same large blocks in each update. glibc returns each to the system when it
# is free, and then all its pages have to be made anew, which can take a quarter of the time. The variables of glibc's
# malloc keep them; other systems do not read these. Who has set one of them is left alone.
keep_memory() {
    export MALLOC_MMAP_THRESHOLD_="${MALLOC_MMAP_THRESHOLD_-4294967296}" # bytes: more than any block has
    export MALLOC_TRIM_THRESHOLD_="${MALLOC_TRIM_THRESHOLD_-68719476736}"
}

# run_training DATA OUT SETTINGS COMMAND…: runs COMMAND, unless OUT was trained to `stop`
# already. A folder with other SETTINGS is refused.
run_training() {
    local data=$1 out=$2 settings=$3 file
    shift 3
    make_folder "$out"
    same_settings "$out/settings" "$settings"
    if [ -f "$out/trained" ] && [ "$(cat -- "$out/trained")" = "$stop" ]; then
        say "$out/checkpoint_best.pt is trained already ($stop)"
        return
    fi
    # With these beside it, a checkpoint's folder is all that from_pretrained needs.
    for file in "$pieces" preparation "dict.$source.txt" "dict.$target.txt"; do
        [ ! -f "$data/$file" ] || write_file "$out/$file" cat -- "$data/$file"
    done
    "${recipes_helper[@]}" mend_checkpoint "$out" ||
        fail "cannot mend $out/checkpoint_last.pt; remove it to start again"
    keep_memory
    "$@" 2>&1 | tee -a -- "$out/train.log" || fail "fairseq-train stopped; see $out/train.log"
    need_file "$out/checkpoint_best.pt" "the training wrote no checkpoint; see $out/train.log"
    write_file "$out/trained" printf '%s\n' "$stop"
}
