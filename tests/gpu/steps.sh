# Steps of tests/gpu/checklist.sh: processes with time limits, marks, dependencies, the archive; checklist.sh sources this file.
#
# A step NAME leaves logs/NAME.log and NAME.err, and one mark: NAME.ok, NAME.failed or NAME.left, whose line says why.

names=()         # of all steps, in order
running=()       # names of started steps
declare -A pid_of began_at limit_of is_test
why_stopped=
parallel=${CHECKLIST_JOBS:-8}
clocks=          # process that logs the clocks

is_ok() { [ -e "$logs/$1.ok" ]; }
is_failed() { [ -e "$logs/$1.failed" ]; }
is_marked() { [ -e "$logs/$1.ok" ] || [ -e "$logs/$1.failed" ] || [ -e "$logs/$1.left" ]; }
stopped() { [ -n "$why_stopped" ]; }
stop_call() { why_stopped=$1; }

mark() { # NAME ok|failed|left TEXT
    echo "$3" >"$logs/$1.$2"
    echo "   $1: $2 ($3)"
}

# Steps that every selection needs.
is_basic() { [[ $1 == device || $1 == programs || $1 == gpu_opens ]]; }

is_wanted() {
    [ ${#only[@]} -gt 0 ] || return 0
    is_basic "$1" && return 0
    local pattern
    # shellcheck disable=SC2053
    for pattern in "${only[@]}"; do [[ $1 == $pattern ]] && return 0; done
    return 1
}

passed_before() {
    is_basic "$1" && return 1
    [ ${#passed[@]} -gt 0 ] && grep -qsF "| $1 | ok |" "${passed[@]}"
}

# Prints why a step cannot run, or nothing if it can. A needed step that this call does not run is no obstacle.
missing_need() {
    local need
    for need in $1; do
        case $need in
            tool:*) command -v "${need#tool:}" >/dev/null || { echo "${need#tool:} is not on PATH"; return; } ;;
            draftscope) [ -n "$draftscope" ] || { echo "no draftscope program"; return; } ;;
            cupti_check) [ -n "$cupti_check" ] || { echo "no gpu_cupti_graph_check program"; return; } ;;
            demo_model) [ -f "$model" ] || { echo "no demo model"; return; } ;;
            file:*) [ -f "${need#file:}" ] || { echo "no file ${need#file:}"; return; } ;;
            *)
                if [ -e "$logs/$need.failed" ]; then echo "$need failed"; return; fi
                if [ -e "$logs/$need.left" ]; then echo "$need was left"; return; fi
                ;;
        esac
    done
}

# Starts a step in parallel with others; waits for one if `parallel` are running. A command that begins with `on_gpu` is a test
# program: its tests are skipped without a usable GPU, so at least one must have run.
start() { # NAME LIMIT "NEED..." COMMAND...
    local name=$1 limit=${given_limit[$1]:-$2} needs=$3 missing
    shift 3
    is_wanted "$name" || return 0
    names+=("$name")
    if stopped; then mark "$name" left "$why_stopped"; return; fi
    if passed_before "$name"; then mark "$name" ok "in an earlier call"; return; fi
    while [ ${#running[@]} -ge "$parallel" ]; do wait_for_one; done
    missing=$(missing_need "$needs")
    if [ -n "$missing" ]; then mark "$name" left "$missing"; return; fi
    local rest=$((seconds - SECONDS))
    if [ $rest -lt 8 ]; then mark "$name" left "no time"; return; fi
    [ "$limit" -le $rest ] || limit=$rest
    echo "== $name"
    if [ "$1" = on_gpu ]; then
        is_test[$name]=1
        shift
    fi
    timeout -k 3 "$limit" "$@" >"$logs/$name.log" 2>"$logs/$name.err" </dev/null &
    pid_of[$name]=$!
    began_at[$name]=$SECONDS
    limit_of[$name]=$limit
    running+=("$name")
}

# Sets `ended` to the first started step that has ended. (wait -n misses processes that ended before it was called.)
find_ended() {
    ended=
    while true; do
        for ended in "${running[@]}"; do kill -0 "${pid_of[$ended]}" 2>/dev/null || return 0; done
        sleep 0.03
    done
}

wait_for_one() {
    local name one ended code rest=()
    find_ended
    name=$ended
    wait "${pid_of[$name]}"
    code=$?
    for one in "${running[@]}"; do [ "$one" = "$name" ] || rest+=("$one"); done
    running=("${rest[@]}")
    local took=$((SECONDS - began_at[$name]))
    if [ $code -eq 0 ] && [ -n "${is_test[$name]:-}" ] && ! grep -q "^\[ *OK \].*/$kind" "$logs/$name.log"; then
        mark "$name" failed "no test ran on the GPU"
        return
    fi
    case $code in
        0) mark "$name" ok "$took s" ;;
        124 | 137) mark "$name" failed "killed at its limit of ${limit_of[$name]} s" ;;
        *) mark "$name" failed "exit $code after $took s: $(grep -v '^ *$' "$logs/$name.err" | tail -1 | cut -c1-160 | tr '|' '/')" ;;
    esac
}

finish_started() {
    while [ ${#running[@]} -gt 0 ]; do wait_for_one; done
}

# Runs a step alone, so that measurements have the GPU to themselves.
step() {
    finish_started
    start "$@"
    finish_started
}

# Writes summary.md and the archive, at most six pieces of at most 15 MiB. Each file is replaced by a rename, and only by a
# complete one: a full disk or a kill leaves the archive of the previous stage.
pack() {
    find "$logs" -size +48M -exec sh -c 'echo "$(basename "$1"): left out, over 48 MiB" >>"$2"; rm "$1"' _ {} "$logs/left_out.txt" \;
    if ! python3 "$helper" summary "$logs" "${why_stopped:-}" "${names[@]}" >"$work/summary.md" 2>"$work/summary.err"; then
        (echo "# GPU checklist"; cd "$logs" && head -n 1 ./*.ok ./*.failed ./*.left 2>/dev/null) >"$work/summary.md"
    fi
    cp "$work/summary.md" "$results/.summary.new" && mv "$results/.summary.new" "$results/summary.md"
    local packed=$results/.packing old stale=()
    rm -rf "$packed"
    mkdir "$packed" || return
    tar -C "$work" -czf "$packed/gpu-results.tar.gz" summary.md logs
    [ $? -le 1 ] || { rm -rf "$packed"; return; }  # 1 = a log grew meanwhile
    if [ "$(stat -c %s "$packed/gpu-results.tar.gz")" -gt $((15 << 20)) ]; then
        split -b 15M -d -a 1 "$packed/gpu-results.tar.gz" "$packed/gpu-results.tar.gz." || { rm -rf "$packed"; return; }
        rm -f "$packed/gpu-results.tar.gz" "$packed"/gpu-results.tar.gz.[6-9]
    fi
    for old in "$results"/gpu-results.tar.gz*; do [ -e "$packed/${old##*/}" ] || stale+=("$old"); done
    mv -f "$packed"/* "$results/" && rm -f "${stale[@]}"
    rmdir "$packed"
}

# A step's process is a copy of this shell until it runs its command. Ended before that, it runs the EXIT trap too, in which it
# would pack and then remove what this shell is about to pack.
end_call() {
    local code=$?
    [ "$BASHPID" = $$ ] || return
    trap '' TERM INT HUP
    trap - EXIT
    local name
    [ -z "$clocks" ] || kill "$clocks" 2>/dev/null
    for name in "${running[@]}"; do kill -TERM "${pid_of[$name]}" 2>/dev/null; done
    for name in "${running[@]}"; do
        wait "${pid_of[$name]}" 2>/dev/null
        mark "$name" failed "ended with the call after $((SECONDS - began_at[$name])) s"
    done
    pack
    rm -rf "$work"
    cat "$results/summary.md"
    if [ $code -eq 0 ] && grep -q '| \(failed\|left\) |' "$results/summary.md"; then code=1; fi
    exit $code
}

end_by_signal() {
    stop_call "the call was ended by signal $1"
    exit $((128 + $1))
}
