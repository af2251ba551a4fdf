#!/usr/bin/env python3
"""Holds the GPU kernels to their budgets: registers, blocks per multiprocessor, spills, shared memory, loads in flight.
Needs nvcc and no GPU. Kernels are compiled for sm_90; the figures come from ptxas and from the disassembly.

usage: tools/sass_budget.py [FILE.cu ...]      all files of kernels/cuda, or some by name
       tools/sass_budget.py --write            accepts the figures of this compiler and writes the table of docs/design/gpu.md

Budgets are in tools/sass_budgets.json, by file and kernel. `loads` is the least number of global loads that a thread has
in flight: the longest run of them without a product, a store or a barrier in between, counting weights only in
products. `early` is the least number of them that stand before a wait for the previous kernel. `turns` is the most
places of a loop without barriers where a load follows a store; each may wait for memory. `unfenced` is the most tickets
(atomics that return a value) that follow a store with no fence in between.
Exit codes: 0 within budget, 1 over budget, 2 a file does not compile, 77 skipped.
"""
import argparse
import concurrent.futures
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUDGETS = ROOT / "tools/sass_budgets.json"
DOCUMENT = ROOT / "docs/design/gpu.md"
BEGIN, END = "<!-- sass_budget.py: begin -->\n", "<!-- sass_budget.py: end -->\n"
FLAGS = ["-std=c++20", "-O3", "--expt-relaxed-constexpr", "-I.", "-gencode=arch=compute_90,code=sm_90", "-cubin", "-Xptxas", "-v"]
SKIPPED = 77
# A multiprocessor of sm_90: registers, warps, blocks, bytes of shared memory, bytes of it that a block's launch takes.
REGISTERS, WARPS, BLOCKS, SHARED, RESERVED = 65536, 64, 32, 233472, 1024


def blocks_per_sm(registers, threads, shared):
    """Blocks that fit on a multiprocessor. Each of its four parts gives registers to a warp in steps of 256."""
    warps = -(-threads // 32)
    by_registers = 4 * (REGISTERS // 4 // (-(-registers * 32 // 256) * 256)) // warps
    return min(by_registers, WARPS // warps, BLOCKS, SHARED // (shared + RESERVED))


def find_nvcc():
    return os.environ.get("NVCC") or shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")


def find_nvdisasm():
    """nvdisasm of the toolkit, or of a Python wheel (nvidia-cuda-nvdisasm, triton) in this Python or that of tools/with_torch.sh."""
    found = os.environ.get("NVDISASM") or shutil.which("nvdisasm") or shutil.which("nvdisasm", path="/usr/local/cuda/bin")
    if found:
        return found
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "draftscope/python/lib"
    for folder in [*map(Path, sys.path), *cache.glob("python3*/site-packages")]:
        for place in ("nvidia/cu13/bin/nvdisasm", "triton/backends/nvidia/bin/nvdisasm"):
            if (folder / place).is_file():
                return str(folder / place)
    return None


def short_name(symbol):
    """matmul_kernel<1,1,4> of a mangled name, with the 16-bit format left out: both have the same budget."""
    name = subprocess.run(["c++filt", symbol], capture_output=True, text=True, check=True).stdout.strip()
    match = re.search(r"(\w+)(?:<([^()]*(?:\([^()]*\)[^()]*)*)>)?\(", name.replace("(anonymous namespace)::", ""))
    arguments = re.sub(r"\([\w:]*Float16Kind\)\d+", "", match.group(2) or "")
    arguments = re.sub(r"\([\w:]+\)", "", arguments).replace(" ", "").strip(",")
    return match.group(1) + (f"<{arguments}>" if arguments else "")


def parse_ptxas(text):
    """symbol -> registers, shared bytes and spilled bytes, of the output of `ptxas -v`."""
    found, symbol = {}, None
    for line in text.splitlines():
        if match := re.search(r"Compiling entry function '(\w+)'", line):
            symbol = match.group(1)
            found[symbol] = {"registers": 0, "shared": 0, "spills": 0}
        elif symbol and (match := re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line)):
            found[symbol]["spills"] = max(found[symbol]["spills"], *map(int, match.groups()))
        elif symbol and (match := re.search(r"Used (\d+) registers", line)):
            found[symbol]["registers"] = int(match.group(1))
            shared = re.search(r"(\d+) bytes smem", line)
            found[symbol]["shared"] = int(shared.group(1)) if shared else 0
    return found


INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)(.*)")


def parse_sass(text):
    """symbol -> loads, early, turns and unfenced, of the output of `nvdisasm -c`."""
    functions, body, labels = {}, None, {}
    for line in text.splitlines():
        if match := re.match(r"^\.text\.(\w+):", line):
            body, labels = [], {}
            functions[match.group(1)] = (body, labels)
        elif body is None:
            continue
        elif match := re.match(r"^(\.L_x_\d+):", line):
            labels[match.group(1)] = len(body)
        elif match := INSTRUCTION.match(line):
            body.append((match.group(1), match.group(2)))
        elif line.startswith("\t.section"):
            body = None
    return {symbol: figures_of(*function) for symbol, function in functions.items()}


def is_load(code):
    return code.startswith(("LDG.", "LD.E"))


def is_store(code):
    return code.startswith(("STG.", "ST.E", "STS"))


def count_loads(body):
    """loads and early. Products load their weights past L1 (.NA) or into shared memory, so that rows are not counted."""
    products = any(code.startswith("HMMA") for code, _ in body)
    loads = early = run = since_wait = 0
    for code, _ in body:
        if is_load(code) or code.startswith("LDGSTS"):
            counts = not products or ".NA" in code or code.startswith("LDGSTS")
            run, since_wait = run + counts, since_wait + counts
            loads = max(loads, run)
        elif code.startswith("ACQBULK"):
            early, since_wait = max(early, since_wait), 0
        elif is_store(code) or code.startswith(("HMMA", "BAR")):
            run = since_wait = 0
    return {"loads": loads, "early": early}


def count_unfenced(body):
    stored = unfenced = 0
    for code, _ in body:
        if code.startswith(("STG.", "ST.E")):
            stored = 1
        elif code.startswith("MEMBAR"):
            stored = 0
        elif code.startswith(("ATOMG", "ATOM.")):
            unfenced += stored
    return unfenced


def figures_of(body, labels):
    ranges = []
    for last, (code, operands) in enumerate(body):
        target = re.search(r"`\((\.L_x_\d+)\)", operands)
        if code.startswith("BRA") and target and labels.get(target.group(1), last + 1) <= last:
            ranges.append((labels[target.group(1)], last))
    turns = 0
    for first, last in ranges:
        codes = [code for code, _ in body[first:last]]
        inner = any(first <= a and b <= last and (a, b) != (first, last) for a, b in ranges)
        if inner or any(code.startswith("BAR") for code in codes):
            continue
        order = [is_store(code) for code in codes if is_load(code) or is_store(code)]
        turns = max(turns, sum(a and not b for a, b in zip(order, order[1:])))
    return {**count_loads(body), "turns": turns, "unfenced": count_unfenced(body)}


def compile_file(nvcc, nvdisasm, source, folder):
    """name -> figures of every kernel of a file; those of both 16-bit formats together, the worse ones."""
    cubin = Path(folder) / (source + "bin")
    done = subprocess.run([nvcc, *FLAGS, f"kernels/cuda/{source}", "-o", str(cubin)], cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{source} does not compile:\n{done.stderr}")
    found = parse_ptxas(done.stderr + done.stdout)
    if nvdisasm:
        code = subprocess.run([nvdisasm, "-c", str(cubin)], capture_output=True, text=True, check=True).stdout
        for symbol, figures in parse_sass(code).items():
            if symbol in found:
                found[symbol].update(figures)
    kernels = {}
    for symbol, figures in found.items():
        name = short_name(symbol)
        old = kernels.get(name, figures)
        kernels[name] = {key: (min if key in ("loads", "early") else max)(value, old[key]) for key, value in figures.items()}
    return kernels


def over_budget(name, figures, budget):
    """Sentences about the figures of a kernel that are worse than its budget."""
    for key in ("registers", "shared", "spills", "turns", "unfenced"):
        if key in figures and figures[key] > budget[key]:
            yield f"{name}: {key} {figures[key]}, budget {budget[key]}"
    if "loads" in figures and figures["loads"] < budget["loads"]:
        yield f"{name}: {figures['loads']} loads in flight, budget at least {budget['loads']}"
    if "early" in figures and figures["early"] < budget["early"]:
        yield f"{name}: {figures['early']} loads before the wait for the previous kernel, budget at least {budget['early']}"
    blocks = blocks_per_sm(figures["registers"], budget["threads"], figures["shared"] + budget["dynamic"])
    if blocks < budget["blocks"]:
        yield f"{name}: {blocks} blocks per multiprocessor, budget at least {budget['blocks']}"


def table(budgets):
    lines = [f"nvcc {budgets['nvcc']}, sm_90. Spills in bytes, shared memory in KB with the dynamic part for heads of 128.\n\n",
             "| kernel | threads | registers | blocks per SM | shared | spills | loads in flight | loads before the wait | turns |\n",
             "| --- | --: | --: | --: | --: | --: | --: | --: | --: |\n"]
    for file, kernels in budgets["files"].items():
        for name, b in kernels.items():
            if b.get("shown"):
                lines.append(f"| `{file}` `{name}` | {b['threads']} | {b['registers']} | {b['blocks']} | "
                             f"{(b['shared'] + b['dynamic']) / 1024:.1f} | {b['spills']} | {b['loads']} | {b['early']} | {b['turns']} |\n")
    return "".join(lines)


def write(budgets, results):
    for file, kernels in results.items():
        old = budgets["files"].get(file, {})
        budgets["files"][file] = {}
        for name, figures in kernels.items():
            budget = {"threads": 256, "dynamic": 0, **old.get(name, {}), **figures}
            budget["blocks"] = blocks_per_sm(budget["registers"], budget["threads"], budget["shared"] + budget["dynamic"])
            budgets["files"][file][name] = budget
    rows = []
    for file, kernels in sorted(budgets["files"].items()):
        entries = ",\n".join(f"      {json.dumps(name)}: {json.dumps(budget)}" for name, budget in kernels.items())
        rows.append(f"    {json.dumps(file)}: {{\n{entries}\n    }}")
    BUDGETS.write_text('{\n  "nvcc": ' + json.dumps(budgets["nvcc"]) + ',\n  "files": {\n' + ",\n".join(rows) + "\n  }\n}\n")
    text = DOCUMENT.read_text()
    before, rest = text.split(BEGIN)
    DOCUMENT.write_text(before + BEGIN + table(budgets) + END + rest.split(END)[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*")
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    nvcc = find_nvcc()
    if not nvcc:
        print("sass_budget: skipped, nvcc is not installed")
        return SKIPPED
    version = re.search(r"release (\S+),", subprocess.run([nvcc, "--version"], capture_output=True, text=True).stdout).group(1)
    budgets = json.loads(BUDGETS.read_text())
    if arguments.write:
        budgets["nvcc"] = version
    if version != budgets["nvcc"]:
        print(f"sass_budget: skipped, budgets are those of nvcc {budgets['nvcc']}, this is {version}")
        return SKIPPED
    nvdisasm = find_nvdisasm()
    if not nvdisasm:
        print("sass_budget: `loads`, `early`, `turns` and `unfenced` are not checked, because nvdisasm was not found (pip install nvidia-cuda-nvdisasm)")
    files = arguments.files or sorted(path.name for path in (ROOT / "kernels/cuda").glob("*.cu"))
    try:
        with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            results = dict(zip(files, pool.map(lambda file: compile_file(nvcc, nvdisasm, file, folder), files)))
    except RuntimeError as error:
        print(f"sass_budget: {error}", file=sys.stderr)
        return 2
    if arguments.write:
        if not nvdisasm:
            print("sass_budget: --write needs nvdisasm", file=sys.stderr)
            return 2
        write(budgets, results)
        return 0
    findings = []
    for file, kernels in results.items():
        known = budgets["files"].get(file, {})
        findings += [f"{file}: {name} has a budget but does not exist" for name in known if name not in kernels]
        for name, figures in kernels.items():
            if name in known:
                findings += [f"{file}: {finding}" for finding in over_budget(name, figures, known[name])]
            else:
                findings.append(f"{file}: {name} has no budget")
    for finding in findings:
        print(f"sass_budget: {finding}")
    if findings:
        print("sass_budget: `tools/sass_budget.py --write` accepts new figures")
    print(f"{sum(map(len, results.values()))} kernels of {len(results)} files, nvcc {version}: {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
