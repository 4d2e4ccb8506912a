# One run of a script: its folder, and the processes that it starts. Source it after common.sh.

# make_folder DIR: DIR, which --out names, is a folder afterwards.
make_folder() {
    local reason
    [ ! -e "$1" ] || [ -d "$1" ] || fail "--out '$1' is not a folder; use another --out"
    reason=$(mkdir -p -- "$1" 2>&1) || fail "--out '$1' cannot be made (${reason##*: }); use another --out"
}

# lock_folder: keeps other runs away from $out. What this run starts inherits the lock: processes that
# outlive a run killed with -9 keep others away, too.
lock_folder() {
    local status=0
    [ "${locked_folder-}" != "$out" ] || return 0
    exec {lock}<"$out"
    flock --nonblock --conflict-exit-code 9 "$lock" 2>/dev/null || status=$?
    if [ "$status" -ne 0 ] && [ "$status" -ne 9 ]; then
        # Some network file systems lock files only.
        exec {lock}>>"$out/lock"
        status=0
        flock --nonblock "$lock" || status=$?
    fi
    [ "$status" -eq 0 ] ||
        fail "another run, or a process that it left, is at work in '$out'; wait for it or stop it"
    export locked_folder=$out
}

# find_processes GROUP…: sets processes to those of the process groups, but for this script.
find_processes() {
    local file line
    processes=()
    for file in /proc/[0-9]*/stat; do
        read -r line 2>/dev/null <"$file" || continue
        [[ $line =~ ^([0-9]+)\ \(.*\)\ ([A-Z])\ [0-9]+\ ([0-9]+)\  ]] || continue
        [ "${BASH_REMATCH[1]}" != $$ ] && [ "${BASH_REMATCH[2]}" != Z ] || continue
        [[ " $* " != *" ${BASH_REMATCH[3]} "* ]] || processes+=("${BASH_REMATCH[1]}")
    done
}

# stop_groups GROUP…: ends the processes of the groups; whoever ignores the request is killed.
stop_groups() {
    local signal
    for signal in TERM KILL; do
        find_processes "$@"
        [ ${#processes[@]} -gt 0 ] || return 0
        kill "-$signal" "${processes[@]}" 2>/dev/null || true
        for _ in {1..15}; do
            find_processes "$@"
            [ ${#processes[@]} -gt 0 ] || return 0
            sleep 0.2
        done
    done
}

# end_together ARGUMENT…: the first thing that a script calls, with its arguments. The rest of it then
# runs in a child, and who ends the script ends all that the child has started.
end_together() {
    local group=$$ status=0
    [ -z "${ends_together-}" ] || return 0
    export ends_together=yes
    trap 'stop_together "$group" 129' HUP
    trap 'stop_together "$group" 130' INT
    trap 'stop_together "$group" 143' TERM
    # In the group of another program the child needs one of its own.
    leads_group || set -m
    bash "$0" "$@" </dev/null &
    leads_group || group=$!
    set +m
    wait "$!" || status=$?
    exit "$status"
}

# leads_group: whether this script leads the process group that it is in.
leads_group() {
    local line
    read -r line <"/proc/$$/stat"
    [[ $line =~ \)\ [A-Z]\ [0-9]+\ $$\  ]]
}

stop_together() {
    trap '' HUP INT TERM
    stop_groups "$1"
    exit "$2"
}
