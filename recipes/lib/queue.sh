# A queue of runs, each in a folder of its own below $out, that may be stopped at any time and then
# continues. Source it after common.sh and one_run.sh; it uses out and jobs.

# reason_of FOLDER: why the run in this folder failed, in one line.
reason_of() {
    local file=$1/messages reason
    ! grep --quiet ': fairseq-train stopped' -- "$file" || file=$1/train.log
    reason=$(grep '[^[:space:]]' -- "$file" | tail -n 1) || reason="nothing was said"
    printf '%s\n' "${reason:0:300}"
}

# run_one TITLE FUNCTION NAME FIELD…: `FUNCTION FOLDER FIELD…`, with one line at the start and one
# at the end. The function writes FOLDER/complete, one line with the result.
run_one() {
    local title=$1 function=$2 folder=$out/$3
    shift 3
    say "$title …"
    mkdir -p -- "$folder"
    rm -f -- "$folder/failed"
    write_file "$folder/threads" printf '%s\n' "$OMP_NUM_THREADS"
    if ("$function" "$folder" "$@") >/dev/null 2>"$folder/messages"; then
        say "$title: $(cat -- "$folder/complete")"
    else
        write_file "$folder/failed" reason_of "$folder"
        say "$title failed: $(cat -- "$folder/failed")"
    fi
}

# stop_runs: ends the process groups of all runs.
stop_runs() {
    local groups
    mapfile -t groups <<<"$(jobs -rp)"
    stop_groups "${groups[@]}"
}

# start_queue TOTAL: before the first run_rows; TOTAL is the number of runs that are announced.
start_queue() {
    number=0 total=$1
    export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
    # Scripts that are started here end with their run, whose process group they stay in.
    export ends_together=yes
    trap stop_runs EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
}

# run_rows FUNCTION ROW…: run_one for each row «NAME FIELD…» that is not complete; waits for all.
run_rows() {
    local function=$1 row fields title
    shift
    for row; do
        read -ra fields <<<"$row"
        number=$((number + 1))
        title="run $number of $total: ${fields[0]}"
        if [ -f "$out/${fields[0]}/complete" ]; then
            say "$title was complete: $(cat -- "$out/${fields[0]}/complete")"
            continue
        fi
        while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do
            wait -n || true
        done
        # With job control each run is a process group, which can be ended as a whole.
        set -m
        run_one "$title" "$function" "${fields[@]}" </dev/null &
        set +m
    done
    wait
}

# fail_if_failed ROW…: the last step of a queue.
fail_if_failed() {
    local row failed=()
    for row; do
        [ ! -f "$out/${row%% *}/failed" ] || failed+=("${row%% *}")
    done
    [ ${#failed[@]} -eq 0 ] ||
        fail "${#failed[@]} of $# runs failed: ${failed[*]}; see train.log and messages in their folders," \
            "then start again"
}
