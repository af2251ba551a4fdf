#!/usr/bin/env bash
# Runs shards of real jobs: under a Slurm of this one machine, which it sets up in a scratch folder, and under mpirun.
# usage: tests/cluster/cluster.sh [PROGRAM]    Needs root, for apt-get, munged and slurmd.
# Exit code 77: it can't run here, and the last line says why. The sh blocks of docs/CLUSTER.md run with fewer tokens.
set -euo pipefail
source=$(cd "$(dirname "$0")/../.." && pwd)
program=$(realpath "${1:-$source/build/release/draftscope}")

skip() { echo "$1"; exit 77; }
fail() { echo "FAILED: $1"; exit 1; }

[ -x "$program" ] || fail "$program is not there; build it with ./run build"
[ "$(id -u)" -eq 0 ] || skip "Slurm's daemons need root"
for tool in slurmctld slurmd munged mpirun; do
    command -v "$tool" >/dev/null && continue
    command -v apt-get >/dev/null || skip "$tool is not installed"
    apt-get install -y --no-install-recommends slurm-wlm munge openmpi-bin || skip "apt-get can't install slurm-wlm, munge and openmpi-bin"
    break
done

folder=$(mktemp -d /tmp/draftscope-cluster.XXXXXX)
daemons=()
stop() {
    for pid in "${daemons[@]}"; do kill "$pid" 2>/dev/null || true; done
    wait 2>/dev/null || true
    rm -rf "$folder"
}
trap stop EXIT

start_slurm() {
    local host
    host=$(hostname -s)
    mkdir -p "$folder/state" "$folder/spool" /run/munge
    [ -s /etc/munge/munge.key ] || dd if=/dev/urandom of=/etc/munge/munge.key bs=1 count=1024 status=none
    chown -R munge: /etc/munge /run/munge /var/lib/munge /var/log/munge
    chmod 400 /etc/munge/munge.key
    if ! munge -n >/dev/null 2>&1; then
        setpriv --reuid munge --regid munge --clear-groups munged --foreground --force >"$folder/munged.log" 2>&1 &
        daemons+=($!)
    fi
    # More CPUs than the machine has, so that tasks of the examples fit.
    cat >"$folder/slurm.conf" <<END
ClusterName=draftscope
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmctldPort=26817
SlurmdPort=26818
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
SchedulerParameters=sched_interval=1,defer
NodeName=$host NodeAddr=127.0.0.1 CPUs=16 State=UNKNOWN
PartitionName=all Nodes=$host Default=YES State=UP
END
    export SLURM_CONF=$folder/slurm.conf
    slurmctld -D -i -f "$SLURM_CONF" >"$folder/slurmctld.log" 2>&1 &
    daemons+=($!)
    slurmd -D -f "$SLURM_CONF" >"$folder/slurmd.log" 2>&1 &
    daemons+=($!)
    for _ in $(seq 60); do
        [ "$(sinfo -h -o %T 2>/dev/null)" = idle ] && return
        sleep 0.5
    done
    tail -n 5 "$folder"/*.log
    skip "Slurm does not start on this machine"
}

# The documents' commands use a checkout's paths and find the program in PATH.
work=$folder/work
mkdir "$work"
ln -s "$source/assets" "$work/assets"
export PATH="${program%/*}:$PATH"
cd "$work"
same() { python3 "$source/tests/cluster/same_figures.py" "$1" "$2" || fail "$1 and $2 differ"; }
smaller() { sed 's/--limit 80/--limit 8 --max-new 8 --precision int8/'; }
block() { awk -v n="$1" '/^```sh$/ { ++i; inside = 1; next } /^```$/ { inside = 0 } inside && i == n' "$source/docs/CLUSTER.md" | smaller; }
same_options=(--prompts assets/prompts/spec_bench_half.jsonl --balanced --precision int8 --threads 1 --quiet)
options=("${same_options[@]}" --head fr-spec:v=8192)
finished() { sqlite_count "$1" "SELECT count(*) FROM prompt WHERE finish NOT NULL"; }
sqlite_count() { python3 -c 'import sqlite3, sys
print(sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True).execute(sys.argv[2]).fetchone()[0])' "$1" "$2" 2>/dev/null || echo 0; }

start_slurm
echo "$(sinfo --version) and $(mpirun --version | head -n 1)"

echo "== docs/CLUSTER.md: the array job"
draftscope run "${options[@]}" --shadow full --limit 8 --max-new 8 --baseline 8 --save whole.dscope >whole.txt
block 1 >run.sbatch
bash -c "$(block 2 | sed 's/^sbatch /sbatch --wait /')"
cat slurm-*.out | grep "shard 3 of 8, from SLURM_ARRAY_TASK_ID" || fail "the shard is not reported"
same run.dscope whole.dscope

echo "== docs/CLUSTER.md: mpirun"
rm run*.dscope
draftscope run --prompts assets/prompts/spec_bench_half.jsonl --limit 8 --max-new 8 --precision int8 --balanced --head full --tree depth=3,topk=4,nodes=12 --baseline 0 --quiet --save plain.dscope >plain.txt
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
bash -ec "$(block 3 | sed 's/^mpirun/mpirun --oversubscribe/')" </dev/null
same run.dscope plain.dscope

echo "== a killed task is resumed"
draftscope run "${options[@]}" --limit 12 --max-new 24 --baseline 6 --calibrate 0 --save long.dscope >long.txt
cat >kill.sbatch <<END
#!/bin/bash
#SBATCH --array=0-10:10
draftscope run ${options[*]} --limit 12 --max-new 24 --baseline 6 --calibrate 0 --save 'kill-%i.dscope' --resume &
echo \$! >pid-\$SLURM_ARRAY_TASK_ID
wait \$!
END
job=$(sbatch --parsable kill.sbatch)
for _ in $(seq 600); do
    [ "$(finished kill-2.dscope)" -ge 9 ] && break
    sleep 0.1
done
kill -KILL "$(cat pid-10)"  # scancel sends SIGTERM first, which ends a run in good order
while squeue -h -j "$job" 2>/dev/null | grep -q .; do sleep 0.2; done
before=$(finished kill-2.dscope)
echo "killed with $before prompts finished"
[ "$(sqlite_count kill-2.dscope "SELECT count(*) FROM run WHERE ended IS NULL")" -eq 1 ] || fail "the task was not killed while it decoded"
draftscope merge --pool no.dscope kill-[12].dscope && fail "an incomplete shard was pooled"
sbatch --wait kill.sbatch
grep -h "^resumed" slurm-*.out || fail "nothing was resumed"
draftscope merge --pool killed.dscope kill-[12].dscope
same killed.dscope long.dscope

echo "== ranks of a step: replay and sweep"
draftscope record --prompts assets/prompts/spec_bench_half.jsonl --balanced --limit 6 --max-new 16 --precision int8 --no-times --quiet --out whole.recording
srun -n 2 draftscope record --prompts assets/prompts/spec_bench_half.jsonl --balanced --limit 6 --max-new 16 --precision int8 --threads 1 --no-times --quiet --out '%i.recording'
draftscope replay --recording whole.recording --heads full,microspec --json --quiet >replay-whole.json
srun -n 2 bash -c 'draftscope replay --recording whole.recording --heads full,microspec --threads 1 --json --quiet >replay-$SLURM_PROCID.json'
for i in 1 2; do draftscope replay --recording $i.recording --heads full,microspec --json --quiet >replay-of-$i.json; done
python3 - <<'END' || fail "the replays of the shards are not those of the whole"
import json, sys
prompts = lambda *files: sorted(json.dumps(p) for f in files for p in json.load(open(f))["prompts"])
whole = prompts("replay-whole.json")
sys.exit(not (whole == prompts("replay-0.json", "replay-1.json") == prompts("replay-of-1.json", "replay-of-2.json")))
END
srun -n 2 bash -c 'draftscope sweep --recording whole.recording --profile assets/profiles/epyc-2-core-smollm2-135m-int8.json --heads full --chain 2 --topk 2 --depth 1 --nodes 4 --threads 1 --json --quiet --csv sweep-%i.csv >sweep-$SLURM_PROCID.json'
python3 - <<'END' || fail "the sweeps of the shards don't have the conversations of the whole"
import json, sys
sys.exit(sum(json.load(open(f"sweep-{i}.json"))["conversations"] for i in (0, 1)) != 6)
END
[ -s sweep-1.csv ] && [ -s sweep-2.csv ] || fail "a sweep wrote no CSV"

echo "== bench"
draftscope bench "${same_options[@]}" --limit 4 --max-new 12 --heads full --block 1 --save bench.dscope >bench.txt
mpirun --oversubscribe -np 2 draftscope bench "${same_options[@]}" --limit 4 --max-new 12 --heads full --block 1 --save 'bench-%i.dscope' >bench-shards.txt
draftscope merge --pool bench-pooled.dscope bench-[12].dscope
draftscope merge --pool bench-whole.dscope bench.dscope
python3 - <<'END' || fail "the pooled bench differs"
import sqlite3, sys
query = """SELECT config_json ->> '$.bench', p.ordinal, p.output, count(*), sum(committed) FROM run JOIN prompt p ON p.run_id = run.id
           JOIN round r ON r.prompt_id = p.id GROUP BY p.id ORDER BY 1, 2"""
rows = lambda path: sqlite3.connect(path).execute(query).fetchall()
sys.exit(not rows("bench-pooled.dscope") == rows("bench-whole.dscope") != [])
END
echo "all shards equal their whole"
