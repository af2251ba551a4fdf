#!/usr/bin/env python3
"""Runs tests/gpu/checklist.sh without a GPU: with a fake driver, ncu and compute-sanitizer, and kernels in the SIMT emulator.

usage: tests/gpu/checklist_test.py TEST_DEVICE_OPS [unittest arguments]     TEST_DEVICE_OPS: the built program
"""
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
OPS = None  # the real test program

# These suites really run, on the host; the others only print that they did.
GPU_TESTS = r"""#!/usr/bin/env bash
filter=
for argument in "$@"; do case $argument in --gtest_filter=*) filter=${argument#*=} ;; --gtest_list_tests) "$REAL_OPS" "$@"; printf 'Devices/DeviceRounds.\n  Are/simt1\n'; exit ;; esac; done
case "$filter" in
    *"$HANG"*) [ -z "$HANG" ] || { echo started; sleep 300; } ;;
esac
case "$filter" in
    *"$FAIL"*) [ -z "$FAIL" ] || { echo "[  FAILED  ] $filter"; echo "wrong product" >&2; exit 1; } ;;
esac
case "$filter" in
    *RouterOps*) exec "$REAL_OPS" "--gtest_filter=*RouterOps.MatchesMatmulThenTopKSet/simt1" ;;
    *DeviceOps.Add*) exec "$REAL_OPS" "--gtest_filter=*DeviceOps.Add/simt1" ;;
    *TypicalOps*) echo "[  SKIPPED ] $filter" ;;
    *) echo "[       OK ] Devices/${filter}/simt1 (1 ms)" ;;
esac
"""
# Kernels that do not overlap take 2 us longer, and later turns 0.25 us.
DRAFTSCOPE = r"""#!/usr/bin/env bash
case "$1 ${DRAFTSCOPE_GPU_OVERLAP:-}" in
    "kernels 0") echo '{"ops": [{"op": "head", "mode": "cold", "rows": 1, "median_us": 263.5}]}'; exit ;;
    "kernels 1") echo ran >>"$TMPDIR/turns"
        printf '{"ops": [{"op": "head", "mode": "cold", "rows": 1, "median_us": 261.%s}]}' $(($(wc -l <"$TMPDIR/turns") * 25)); exit ;;
    "bench 0") echo '{"methods": [{"method": "eagle3 x specvocab", "tau": 4.4, "tokens_per_second": 550}]}'; exit ;;
esac
case "$1" in
    doctor) echo '{"gpu": "made up"}' ;;
    kernels) echo '{"device": "made up", "vocab": 128256, "hidden": 4096, "read_gb_per_s": 4000.0, "ops": [{"op": "head", "mode": "cold", "rows": 1, "median_us": 261.5, "best_us": 260.0, "spread_us": 1.5, "gb_per_s": 4018.0}]}' ;;
    bench) echo '{"target": "synthetic", "acceptance": "replayed", "methods": [{"method": "eagle3 x specvocab", "tau": 4.4, "tokens_per_second": 612.5, "speedup": 3.1}]}' ;;
    run) echo '{"prompts": [{"tokens": [1, 2, 3]}], "totals": {"tokens_per_second": 201.5, "tau": 1.0}, "phases": [{"name": "verify", "median_us": 4800.0}], "gpu": {"graphs": 7, "graphs_refused": 0}}' ;;
    *) echo ok ;;
esac
"""
NCU = r"""#!/usr/bin/env bash
[ "$1" = --version ] && exit 0
echo '==PROF== Connected'
echo '"ID","Kernel Name","Section Name","Metric Name","Metric Unit","Metric Value"'
echo '"0","head_kernel<1>(HeadOp)","GPU Speed Of Light Throughput","DRAM Throughput","%","87.5"'
echo '"0","head_kernel<1>(HeadOp)","GPU Speed Of Light Throughput","Duration","us","262.1"'
"""
SANITIZER = r"""#!/usr/bin/env bash
[ "$1" = --version ] && exit 0
while [ "${1#--}" != "$1" ]; do case $1 in --tool | --error-exitcode) shift 2 ;; *) shift ;; esac; done
exec "$@"
"""
SMI = "#!/bin/sh\necho 'Driver Version : 580.0'\necho 'Product Name : Made up'\n"


def program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


class Call:
    """A finished call: exit code, summary, marks by step, log texts and the files that came back."""

    def __init__(self, code, results):
        self.code = code
        self.files = sorted(results.iterdir())
        self.summary = (results / "summary.md").read_text()
        self.outcomes = {}
        for name, outcome, text in re.findall(r"^\| (\w[\w-]*) \| (ok|failed|left) \| (.*) \|$", self.summary, re.M):
            self.outcomes[name] = (outcome, text)
        with tarfile.open(results / "gpu-results.tar.gz") as archive:
            self.packed = {member.name: archive.extractfile(member).read().decode() for member in archive if member.isfile()}

    def log(self, name):
        return self.packed[f"logs/{name}.log"]


class Checklist(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = Path(self.folder.name)
        self.results = self.path / "results"
        program(self.path / "bin/nvidia-smi", SMI)
        program(self.path / "bin/ncu", NCU)
        program(self.path / "bin/compute-sanitizer", SANITIZER)
        program(self.path / "programs/tests/gpu_tests", GPU_TESTS)
        shutil.copy("/bin/true", self.path / "programs/tests/gpu_cupti_graph_check")  # a program that the loader can start
        program(self.path / "programs/draftscope", DRAFTSCOPE)

    def environment(self, **changes):
        return {**os.environ, "PATH": f"{self.path / 'bin'}:{os.environ['PATH']}", "TMPDIR": str(self.path),
                "DRAFTSCOPE_PROGRAMS": str(self.path / "programs"), "DRAFTSCOPE_GPU_KIND": "simt1", "REAL_OPS": OPS,
                "HANG": "", "FAIL": "", "DRAFTSCOPE_DEMO_MODEL": "", "DRAFTSCOPE_RESULTS": str(self.results), **changes}

    def call(self, *arguments, **changes):
        done = subprocess.run([ROOT / "tests/gpu/checklist.sh", *arguments], env=self.environment(**changes), text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=100, check=False)
        self.output = done.stdout
        return Call(done.returncode, self.results)

    def test_a_whole_call_marks_measures_and_goes_on_behind_a_suite_that_hangs(self):
        call = self.call("--limit", "ops_CutOps=3", "--limit", "memcheck_CutOps=3", "--limit", "racecheck_CutOps=3", HANG="CutOps")
        self.assertEqual(call.code, 1)
        found = call.outcomes
        for name in ("gpu_opens", "ops_matmul", "ops_head", "ops_RouterOps", "ops_TreeOps", "kernels_llama_8b", "ncu_target", "bench_8b",
                     "run_8b", "text_same", "text_graphs_kept", "graph_early", "cupti_kernels", "cupti_early", "cupti_late", "cupti_no_cache", "run_tier2", "memcheck_matmul", "racecheck_RouterOps"):
            self.assertEqual(found[name][0], "ok", (name, found[name]))
        self.assertIn("MatchesMatmulThenTopKSet/simt1", call.log("ops_RouterOps"))
        self.assertEqual(found["ops_CutOps"], ("failed", "killed at its limit of 3 s"))
        # If all tests of a suite were skipped, it did not run on a GPU.
        self.assertEqual(found["ops_TypicalOps"], ("failed", "no test ran on the GPU"))
        self.assertEqual(found["demo_none"], ("left", "no demo model"))
        for text in ("Product Name : Made up", "| head | cold | 1 | 261.50 | - | 260.00 | 1.50 |", "| eagle3 x specvocab | 4.400 | 612.5 | 7.184 | 3.100 |",
                     "201.5 tok/s", "| head_kernel<1> | 262.1 us | 87.5 % |",
                     "| op | mode | rows | on | off | off - on | off / on | turns apart |", "| head | cold | 1 | 261.38 | 263.50 | 2.12 | 1.008 | 0.25 |",
                     "| eagle3 x specvocab | 7183.67 | 8000.00 | 816.33 | 1.114 | 0.00 |"):
            self.assertIn(text, call.summary)
        names = list(found)
        self.assertEqual([name for name in names if name.startswith("overlap_")],
                         [f"overlap_{kind}_{way}_{turn}" for kind in ("kernels", "rounds") for turn in (1, 2) for way in ("on", "off")])
        self.assertGreater(names.index("overlap_kernels_on_1"), names.index("check_tier1"))
        # What decides comes first; CUPTI before the figures, the counters after them.
        order = ["gpu_opens", "graph_early", "ops_matmul", "engine_DeviceRounds", "cupti_kernels", "kernels_llama_8b", "bench_8b", "run_8b_no_overlap",
                 "ncu_target", "text_same", "run_tier2", "overlap_kernels_on_1"]
        self.assertEqual(order, [name for name in names if name in order])
        self.assertIn("logs/clocks.csv", call.packed)
        self.assertIn("logs/ops_CutOps.failed", call.packed)
        self.assertEqual(call.packed["summary.md"], call.summary)
        self.assertLessEqual(len(call.files), 8)
        self.assertLess(max(path.stat().st_size for path in call.files), 16 << 20)
        self.assertFalse(any("initcheck" in name for name in found))
        # The next call runs only the steps that did not pass.
        earlier = self.path / "earlier.md"
        earlier.write_text(call.summary)
        again = self.call("--passed", earlier, "ops_CutOps", "ops_head", "kernels_*")
        self.assertEqual(again.outcomes["ops_head"], ("ok", "in an earlier call"))
        self.assertEqual(again.outcomes["ops_CutOps"][0], "ok")
        self.assertNotIn("logs/ops_head.log", again.packed)
        self.assertEqual(again.code, 0)

    def test_without_a_gpu_the_call_ends_at_once(self):
        program(self.path / "bin/nvidia-smi", "#!/bin/sh\necho 'no devices were found'\nexit 6\n")
        call = self.call()
        self.assertEqual(call.code, 1)
        self.assertEqual(call.outcomes["device"][0], "failed")
        self.assertIn("Ended early: no GPU that runs a kernel", call.summary)
        self.assertNotIn("ops_matmul", call.outcomes)

    def test_programs_that_do_not_open_the_gpu_end_the_call(self):
        call = self.call(FAIL="DeviceOps.Add")
        self.assertEqual(call.outcomes["gpu_opens"][0], "failed")
        self.assertNotIn("ops_matmul", call.outcomes)

    def test_a_wrong_product_goes_to_its_sanitizer_and_stops_what_builds_on_it(self):
        call = self.call("device", "programs", "gpu_opens", "ops_*", "*check_matmul", "*check_head", "kernels_llama_8b", "text_none",
                         FAIL="DeviceOps.Matmul*/")
        found = call.outcomes
        self.assertEqual(found["ops_matmul"][0], "failed")
        self.assertIn("wrong product", found["ops_matmul"][1])
        names = list(found)
        self.assertLess(names.index("memcheck_matmul"), names.index("kernels_llama_8b"))
        self.assertEqual(found["memcheck_matmul"][0], "failed")
        self.assertEqual(found["ops_head"][0], "ok")
        self.assertEqual(found["memcheck_head"][0], "ok")
        for name in ("kernels_llama_8b", "text_none"):
            self.assertEqual(found[name], ("left", "ops_matmul failed"))

    def test_rounds_that_are_right_only_without_early_kernels_go_on_without(self):
        program(self.path / "programs/draftscope", DRAFTSCOPE.replace("run) echo", "run) echo \"overlap ${DRAFTSCOPE_GPU_OVERLAP:-on}\" >&2; echo"))
        failing = GPU_TESTS.replace('case "$filter" in\n    *"$FAIL"*)', '[ "${DRAFTSCOPE_GPU_OVERLAP:-1}" = 0 ] && FAIL=\ncase "$filter" in\n    *"$FAIL"*)')
        program(self.path / "programs/tests/gpu_tests", failing)
        call = self.call("device", "programs", "gpu_opens", "ops_matmul", "ops_head", "engine_*", "run_8b_plain", FAIL="DeviceRounds")
        self.assertEqual(call.outcomes["engine_DeviceRounds"][0], "failed")
        self.assertEqual(call.outcomes["engine_DeviceRounds_plain"][0], "ok")
        self.assertEqual(call.outcomes["run_8b_plain"][0], "ok", "an engine that fails does not stop the measurements")
        self.assertIn("overlap 0", call.packed["logs/run_8b_plain.err"])
        self.assertIn("DeviceRounds", call.packed["logs/overlap_off.log"])

    def test_what_does_not_fit_is_left(self):
        call = self.call("--seconds", "4")
        self.assertEqual(call.outcomes["device"], ("left", "no time"))
        self.assertEqual(call.outcomes["kernels_llama_8b"][0], "left")
        self.assertEqual(call.code, 1)

    def test_a_kernels_run_that_is_ended_early_keeps_what_it_measured(self):
        slow = DRAFTSCOPE.replace('kernels) echo', """kernels) echo '{"op": "head", "mode": "cold", "rows": 1, "median_us": 261.5}' >&2; sleep 300; echo""")
        program(self.path / "programs/draftscope", slow)
        call = self.call("device", "programs", "gpu_opens", "ops_matmul", "ops_head", "kernels_llama_8b", "--limit", "kernels_llama_8b=2")
        self.assertEqual(call.outcomes["kernels_llama_8b"], ("failed", "killed at its limit of 2 s"))
        self.assertIn("kernels_llama_8b: ended early, as far as measured", call.summary)
        self.assertIn("| head | cold | 1 | 261.50 |", call.summary)

    def test_a_call_that_is_ended_brings_its_results(self):
        command = [ROOT / "tests/gpu/checklist.sh", "--limit", "ops_TreeOps=200"]
        with subprocess.Popen(command, env=self.environment(HANG="TreeOps"), stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL) as process:
            self.addCleanup(process.kill)
            for _ in range(600):
                hanging = [path.read_text() for path in self.path.glob("tmp.*/logs/ops_TreeOps.log")]
                if (hanging == ["started\n"] and list(self.path.glob("tmp.*/logs/ops_matmul.ok"))) or process.poll() is not None:
                    break
                time.sleep(0.1)
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(30), 128 + signal.SIGTERM)
            self.assertEqual(hanging, ["started\n"])
        call = Call(143, self.results)
        self.assertEqual(call.outcomes["ops_matmul"][0], "ok")
        self.assertRegex(call.outcomes["ops_TreeOps"][1], "ended with the call")
        self.assertIn("ended by signal 15", call.summary)
        self.assertIn("logs/ops_TreeOps.log", call.packed)
        for _ in range(50):  # a killed program needs a moment to end
            left = subprocess.run(["pgrep", "-f", str(self.path / "programs")], stdout=subprocess.PIPE, text=True, check=False)
            if left.stdout == "":
                break
            time.sleep(0.1)
        self.assertEqual(left.stdout, "")

    def call_of_steps(self, body):
        """A call that consists of `body`, with the steps and the archive of steps.sh."""
        program(self.path / "call.sh", f"""#!/usr/bin/env bash
            results=$1 work=$2 helper=tests/gpu/results.py seconds=100 only=() passed=() kind=simt1
            logs=$work/logs
            mkdir -p "$results" "$logs"
            declare -A given_limit
            . tests/gpu/steps.sh
            trap end_call EXIT
            trap 'end_by_signal 15' TERM
            {body}
            """)
        done = subprocess.run([self.path / "call.sh", self.results, self.path / "work"], env=self.environment(), cwd=ROOT,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60, check=False)
        return Call(done.returncode, self.results)

    def test_a_call_that_is_ended_while_steps_start_brings_its_results(self):
        # A process that ends before it runs its step's command is still a copy of the shell, with its traps.
        call = self.call_of_steps('parallel=12; for one in {1..12}; do start "step$one" 30 "" sleep 300; done; kill -TERM $$; sleep 10')
        self.assertEqual(call.code, 128 + signal.SIGTERM)
        self.assertEqual(len(call.outcomes), 12)
        for name in call.outcomes:
            self.assertRegex(call.packed[f"logs/{name}.failed"], "ended with the call")
        self.assertEqual([path.name for path in call.files], ["gpu-results.tar.gz", "summary.md"])

    def test_a_disk_that_is_full_leaves_the_archive_of_the_stage_before(self):
        call = self.call_of_steps('step first 30 "" true; pack; tar() { return 2; }; step second 30 "" true')
        self.assertEqual(call.code, 0)
        self.assertIn("logs/first.ok", call.packed)
        self.assertNotIn("logs/second.ok", call.packed)
        self.assertEqual(call.outcomes["second"][0], "ok")
        self.assertEqual([path.name for path in call.files], ["gpu-results.tar.gz", "summary.md"])

    def test_wrong_usage_is_refused(self):
        for arguments in (["--seconds", "soon"], ["--result", "x"], ["--results"], ["--passed", "/nowhere.md"], ["--limit", "x"]):
            done = subprocess.run([ROOT / "tests/gpu/checklist.sh", *arguments], env=self.environment(), stderr=subprocess.PIPE,
                                  stdout=subprocess.PIPE, check=False)
            self.assertEqual(done.returncode, 2, arguments)


# Expected seconds of a step on each card, estimated as in tools/gpu_estimate.py; loading weights takes most of an 8B run.
EXPECTED = {"doctor": (1, 1), "gpu_opens": (3, 3), "ops": (12, 12), "engine": (18, 18), "cupti": (6, 6), "kernels": (52, 40),
            "kernels_short": (20, 16), "ncu": (30, 28), "bench_8b": (65, 57), "bench": (16, 14), "run_8b": (11, 10), "run": (6, 6)}
SLEEPS = r"""
wait_for() { local of=SLEEP_$1; sleep "${!of}"; }
"""
SLEEPING_TESTS = SLEEPS.join(["#!/usr/bin/env bash\n", r"""
for argument in "$@"; do case $argument in --gtest_filter=*) filter=${argument#*=} ;; --gtest_list_tests) "$REAL_OPS" "$@"; printf 'Devices/DeviceRounds.\n  Are/simt1\nDevices/DeviceEngine.\n  Are/simt1\nDevices/DeviceTargets.\n  Are/simt1\n'; exit ;; esac; done
case "$filter" in *DeviceOps.Add*) wait_for gpu_opens ;; *DeviceRounds* | *DeviceEngine* | *DeviceTargets*) wait_for engine ;; *) wait_for ops ;; esac
echo "[       OK ] Devices/${filter}/simt1 (1 ms)"
"""])
SLEEPING_DRAFTSCOPE = SLEEPS.join(["#!/usr/bin/env bash\n", DRAFTSCOPE.partition("\n")[2].replace('case "$1 ${DRAFTSCOPE', r"""
case "$*" in
    doctor*) wait_for doctor ;;
    kernels*1,10*) wait_for kernels ;;
    kernels*) wait_for kernels_short ;;
    bench*"8b --"*) wait_for bench_8b ;;
    bench*) wait_for bench ;;
    run*llama-3.1-8b*) wait_for run_8b ;;
    run*) wait_for run ;;
esac
case "$1 ${DRAFTSCOPE""", 1)])


class DryRun(Checklist):
    """A visit with programs that sleep as long as the real ones are expected to run, in fast motion."""

    SCALE = 20
    VISIT = 480

    def visit(self, card):
        folder = self.path / card
        program(folder / "programs/tests/gpu_tests", SLEEPING_TESTS)
        program(folder / "programs/tests/gpu_cupti_graph_check", SLEEPS.join(["#!/usr/bin/env bash\n", "wait_for cupti\n"]))
        program(folder / "programs/draftscope", SLEEPING_DRAFTSCOPE)
        program(folder / "bin/ncu", SLEEPS.join(["#!/usr/bin/env bash\n", NCU.partition("\n")[2].replace("echo '==PROF", "wait_for ncu\necho '==PROF")]))
        sleeps = {f"SLEEP_{name}": str(times[card == "h200"] / self.SCALE) for name, times in EXPECTED.items()}
        changes = {"DRAFTSCOPE_PROGRAMS": str(folder / "programs"), "TMPDIR": str(folder),
                   "PATH": f"{folder / 'bin'}:{self.path / 'bin'}:{os.environ['PATH']}"}
        # No step starts in the last eight seconds of a call.
        command = [ROOT / "tests/gpu/checklist.sh", "--results", folder / "results", "--seconds", str(self.VISIT // self.SCALE + 8)]
        ended, began = {}, time.monotonic()
        with subprocess.Popen(command, env=self.environment(**changes, **sleeps), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              text=True) as process:
            for line in process.stdout:
                if passed := re.match(r"   ([\w-]+): ok \(", line):
                    ended[passed[1]] = time.monotonic() - began
        return ended

    def test_what_decides_ends_within_the_visit(self):
        with ThreadPoolExecutor() as both:
            for card, ended in zip(("h100", "h200"), both.map(self.visit, ("h100", "h200"))):
                order = ["gpu_opens", "graph_early", "ops_matmul", "engine_DeviceRounds", "cupti_kernels", "kernels_llama_8b", "bench_8b", "run_8b",
                         "ncu_drafter", "text_same", "check_tier1"]
                self.assertEqual([name for name in order if name not in ended], [], card)
                self.assertEqual(sorted(order, key=ended.get), order, card)
                self.assertLessEqual(ended["check_tier1"] * self.SCALE, self.VISIT, card)


def load_tests(loader, _, __):
    """Without the tests that DryRun inherits."""
    return unittest.TestSuite([loader.loadTestsFromTestCase(Checklist), DryRun("test_what_decides_ends_within_the_visit")])


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    OPS = sys.argv.pop(1)
    unittest.main()
