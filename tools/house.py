#!/usr/bin/env python3
"""Prints how large and how tangled the tree is, with the rule beside each figure, so that two commits are counted alike.

usage: tools/house.py [--commit HASH] [--list NAME]     HASH: count that commit instead of the working tree
                                                        NAME: also print what was counted

A word is private if a reader who knows vLLM, llama.cpp or CUTLASS must look it up: the list is WORDS, and a synonym of a listed word
belongs there, too. WALKS holds the two walks; a change that moves them adds an entry, and a hop that is not in the code is an error.
"""
import argparse
import re
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("app", "engine", "kernels", "profiler", "storage", "capture", "base", "stats")
SOURCE = (".h", ".hpp", ".cpp", ".cu", ".cuh")

# Tests of the backend's kind, whatever their name, and null tests of what only a device has.
KIND = re.compile(
    r"\bis_host\(|\bon_host\w*|\bis_cpu\(|\bis_device\(|\bon_device\b|\bhost\b(?=\s*[?&|)])|!host\b|\bgrows_trees\(|\bis_gpu\("
    r"|\bdevice(?:_embeddings)?\(\)\s*[!=]=\s*nullptr|if \([^;]*= [\w.>-]*device\(\)\)|\bdevice\s*[!=]=\s*nullptr|\bdevice \? ")
# A name that holds the result of such a test and nothing else: `bool x = !backend.is_host();`, `bool x() const { return on_host_; }`
HOLDS_KIND = re.compile(r"\b(?:bool )?(\w+)(\(\)(?: const)? \{ return| =) !?(?:[\w.>()*-]*(?:\.|->))?(?:is_host\(\)|on_host_?|on_device_?"
                        r"|on_device\(\)|grows_trees\(\)|device\(\) [!=]= nullptr);")
# Classes whose virtual functions the backends implement, and the files of the two backends.
BACKEND_HEADERS = ("kernels/backend.h", "kernels/exec.h")
BACKENDS = {"cpu": "kernels/cpu/cpu_backend.cpp", "cuda": "kernels/cuda/cuda_backend.cpp"}
EMPTY = re.compile(r"\s*(?:return (?:true|false|nullptr|0|\{\}|\w+\{\}|Status\(\)|\w+::\w+);)?\s*")

# Identifiers in the spirit of a private language, as parts between underscores; behind some of them, what the field says.
WORDS = (
    "come", "comes", "said", "says", "sees", "here", "hand_sets", "use_sets", "set_words", "set_names", "aim",
    "tails",  # ancestor slots
    "room",  # reserve, scratch
    "goes_on", "drawn",  # sampled, draft probabilities
    "lowest",  # min_logit
    "masses",  # probability of a set
    "answer", "answers",  # results
    "place", "places",  # allocate; slot, index
    "cell", "cells", "drafted", "aside", "wanted", "wants", "asked", "told", "kept", "taken", "fresh", "own_columns", "whole", "meant",
    "watched",  # profiled, observed
    "recall", "recalled",  # reuse
    "tallest", "worst", "tried", "stretch", "meet", "still", "spent", "beyond", "pays")
# Whole identifiers of the same kind, which are plain as parts of others.
WORDS_ALONE = {"left_", "d_left_", "any_left", "names_", "fresh_names_", "words_", "own", "own_", "mine", "give", "give_", "goes"}
# What the field itself calls so: keys of other formats, a word of the tokenizers.
KNOWN_WORDS = {"bad_words_ids", "whole_words"}
# What a head with state adds to the interfaces.
STATE_HEAD = re.compile(
    r"\b(?:whole_tree|full_tree|tree_topk|tree_candidates|tree_candidates_note|tree_best|VerifiedNodes)\b|\breplay_estimate_note =|class MicroSpecHead")

# The walks from the enqueued step to the first matrix product and to the acceptance, as EAGLE-2 takes them: each function
# must name the next one. `names` are the names of one thing, one sequence's tree in the step, with a function of the walks or called
# by one in which it has that name. The last entry whose `since` is an ancestor of the counted commit holds.
STEP, EAGLE, LAYER = "engine/decode/backend_step.cpp", "engine/draft/eagle_drafter.cpp", "engine/draft/eagle_layer.cpp"
RULE = "engine/verify/tree_logits.cpp"
TARGET, LOGITS, TREE_STEP = "engine/transformer/target.cpp", "engine/transformer/device_logits.cpp", "engine/transformer/tree_step.cpp"
WALKS = [
    {"since": "",
     "first product": [(STEP, "BackendStep::enqueue"), (STEP, "BackendStep::enqueue_step"), (STEP, "BackendStep::enqueue_drafts"),
                       (EAGLE, "EagleDrafter::enqueue_draft"), (EAGLE, "EagleDrafter::enqueue_extend"), (EAGLE, "EagleDrafter::catch_up"),
                       (LAYER, "EagleLayer::enqueue_chain"), (LAYER, "EagleLayer::enqueue_layer"), (LAYER, "EagleLayer::enqueue_fused"),
                       ("kernels/backend.h", "Backend::fused_matmul")],
     "acceptance": [(STEP, "BackendStep::enqueue"), (STEP, "BackendStep::enqueue_step"), (STEP, "BackendStep::enqueue_verify"),
                    (TARGET, "Target::enqueue_answers"), (LOGITS, "DeviceLogits::enqueue_answers"),
                    (TREE_STEP, "TreeStep::accept_by_choices"), ("kernels/ops.h", "Backend::follow_argmax")],
     "names": [("rounds", STEP, "BackendStep::enqueue"), ("sequence", STEP, "BackendStep::enqueue"), ("jobs", STEP, "BackendStep::enqueue"),
               ("plans", STEP, "BackendStep::enqueue"), ("caches_", STEP, "BackendStep::enqueue"),
               ("tree_index", STEP, "BackendStep::plan"), ("trees_", EAGLE, "EagleDrafter::enqueue_draft"),
               ("slices_", EAGLE, "EagleDrafter::enqueue_extend"), ("state", EAGLE, "EagleDrafter::catch_up"),
               ("trees", TARGET, "Target::enqueue_answers"), ("index", TARGET, "Target::enqueue_answers"),
               ("moves", TARGET, "Target::enqueue_answers"), ("follow_choices_", TREE_STEP, "TreeStep::accept_by_choices")]},
    {"since": "4983d483",
     "first product": [(STEP, "BackendStep::enqueue"), (STEP, "BackendStep::draft"), (EAGLE, "EagleDrafter::enqueue"),
                       (EAGLE, "EagleDrafter::enqueue_extend"), (EAGLE, "EagleDrafter::catch_up"), (LAYER, "EagleLayer::enqueue"),
                       (LAYER, "EagleLayer::enqueue_layer"), (LAYER, "EagleLayer::enqueue_fused"), ("kernels/backend.h", "Backend::fused_matmul")],
     "acceptance": [(STEP, "BackendStep::enqueue"), (STEP, "BackendStep::accept"), (RULE, "AcceptanceRule::enqueue"),
                    (RULE, "AcceptanceRule::follow"), ("kernels/ops.h", "Backend::follow_argmax")],
     "names": [("rounds", STEP, "BackendStep::enqueue"), ("jobs", STEP, "BackendStep::enqueue"), ("plan", STEP, "BackendStep::plan"),
               ("tree_index", STEP, "BackendStep::plan"), ("sequence", STEP, "BackendStep::draft"), ("trees_", EAGLE, "EagleDrafter::enqueue"),
               ("slices_", EAGLE, "EagleDrafter::enqueue_extend"), ("state", EAGLE, "EagleDrafter::catch_up"),
               ("tree", STEP, "BackendStep::accept"), ("layout", STEP, "BackendStep::accept"), ("moves", STEP, "BackendStep::accept"),
               ("ops", RULE, "AcceptanceRule::follow")]},
    {"since": "3c4c69e5",
     "first product": [(STEP, "BackendStep::enqueue"), (STEP, "BackendStep::draft"), (EAGLE, "EagleDrafter::enqueue"),
                       (EAGLE, "EagleDrafter::catch_up"), (LAYER, "EagleLayer::enqueue"), (LAYER, "EagleLayer::enqueue_fused"),
                       ("kernels/backend.h", "Backend::fused_matmul")],
     "acceptance": [(STEP, "BackendStep::enqueue"), (STEP, "BackendStep::accept"), (RULE, "AcceptanceRule::enqueue"),
                    (RULE, "AcceptanceRule::follow"), ("kernels/ops.h", "Backend::follow_argmax")],
     "names": [("rounds", STEP, "BackendStep::enqueue"), ("jobs", STEP, "BackendStep::enqueue"), ("trees", STEP, "BackendStep::accept"),
               ("tree_index", RULE, "AcceptanceRule::follow"), ("state", EAGLE, "EagleDrafter::catch_up"),
               ("ops", RULE, "AcceptanceRule::follow")]},
]
MAX_UNRELATED = 4


def git(*arguments, **options):
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=True, **options).stdout


def read_tree(commit):
    """Returns {path: text} of the C++ files."""
    listing = git("ls-tree", "-r", "--name-only", commit) if commit else git("ls-files", "-co", "--exclude-standard")
    wanted = [name for name in listing.decode().split("\n") if name.endswith(SOURCE) and name.split("/")[0] in ROOMS + ("tests",)]
    if not commit:
        return {name: (ROOT / name).read_text(encoding="utf-8") for name in wanted if (ROOT / name).exists()}
    stream = git("cat-file", "--batch", input="".join(f"{commit}:{name}\n" for name in wanted).encode())
    files, at = {}, 0
    for name in wanted:
        end = stream.index(b"\n", at)
        size = int(stream[at:end].split()[2])
        files[name] = stream[end + 1:end + 1 + size].decode("utf-8")
        at = end + size + 2
    return files


def tracked_mib(commit):
    if commit:
        sizes = [int(line.split()[3]) for line in git("ls-tree", "-r", "-l", commit).decode().split("\n") if line and line.split()[3] != "-"]
    else:
        paths = [ROOT / name for name in git("ls-files", "-z").decode().split("\0") if name]
        sizes = [path.lstat().st_size for path in paths if path.exists()]
    return sum(sizes) / 2**20


def code_lines(text):
    """(number, line) without comments and literals."""
    for number, line in enumerate(text.splitlines(), 1):
        line = re.sub(r"'(?:[^'\\]|\\.)'", "' '", re.sub(r'"(?:[^"\\]|\\.)*"', '""', line))
        yield number, re.sub(r"//.*", "", line)


def is_product(path):
    return path.split("/")[0] in ROOMS


def stem(path):
    return path.rsplit(".", 1)[0]


def percentile(values, share):
    return sorted(values)[int(share * (len(values) - 1))] if values else 0


def quiet_virtuals(files):
    """Virtual functions of the backends that do nothing, or return a constant, on one backend and not on the other."""
    text = "\n".join(files.get(path, "") for path in BACKEND_HEADERS)
    bodies = {name: body for name, body in re.findall(r"^    virtual [^;{=]*?(\w+)\([^;{]*?\)[^;{]*(?:\{([^{}]*(?:\{\}[^{}]*)*)\}|;|= 0;)", text, re.M)}
    quiet = {}
    for backend, path in BACKENDS.items():
        own = dict(re.findall(r"(\w+)\([^;{}]*\)(?: const)? override \{([^{}]*(?:\{\}[^{}]*)*)\}", files.get(path, "")))
        declared = set(re.findall(r"(\w+)\([^;{}]*\)(?: const)? override\b", files.get(path, "")))
        for name, default in bodies.items():
            is_inline_default = re.search(rf"virtual [^;{{]*\b{name}\([^;{{]*\)[^;{{]*\{{", text)
            body = own.get(name) if name in own else None if name in declared or not is_inline_default else default
            quiet.setdefault(name, {})[backend] = body is not None and EMPTY.fullmatch(body) is not None
    return sorted(name for name, found in quiet.items() if found.get("cpu") != found.get("cuda"))


def branches(files):
    """Lines in engine/ that depend on the kind of the backend, in code. The definition of a test counts, too."""
    engine = {path: text for path, text in files.items() if path.startswith("engine/")}
    quiet = quiet_virtuals(files)
    calls = re.compile(r"(?:\.|->)(?:" + "|".join(quiet) + r")\(") if quiet else None
    holders, functions = {}, set()  # {stem: names}, and functions that any file may call
    for path, text in engine.items():
        for _, line in code_lines(text):
            held = HOLDS_KIND.search(line)
            if held and held.group(2).startswith("("):
                functions.add(held.group(1))
            elif held:
                holders.setdefault(stem(path), set()).add(held.group(1))
    found = []
    for path, text in engine.items():
        names = [rf"\b{name}\b" for name in holders.get(stem(path), ())] + [rf"\b{name}\(\)" for name in functions]
        named = re.compile("|".join(names)) if names else None
        found += [f"{path}:{number}: {line.strip()}" for number, line in code_lines(text)
                  if KIND.search(line) or (named and named.search(line)) or (calls and calls.search(line))]
    return found


def classes(files):
    """Classes and structs: path, name, line, lines between the braces, members. A member is a declaration that ends with ';' and is
    no function, type or alias. all_members adds those of member types that are defined inside the class, or that no other class and
    no other file than its own and the class's names."""
    found = []
    for path, text in files.items():
        lines = [line for _, line in code_lines(text)]
        for start, line in enumerate(lines):
            opened = re.match(r"(\s*)(?:class|struct) (\w+)(?: final)?(?:\s*:[^:].*)? \{$", line)
            if not opened:
                continue
            indent = opened.group(1)
            end = next((i for i in range(start + 1, len(lines)) if lines[i].startswith(indent + "};")), None)
            if end is None:
                continue
            body = lines[start + 1:end]
            members, types, statement, depth = [], set(), "", 0
            for one in body:
                if depth == 0 or statement:
                    statement += " " + one.strip()
                depth += one.count("{") - one.count("}")
                if depth == 0 and statement.rstrip().endswith((";", "}")):
                    declaration = re.sub(r"\{.*\}", "{}", statement.strip())
                    declaration = re.sub(r"^(?:public|private|protected):\s*", "", declaration)
                    if (declaration.endswith(";") and not re.match(r"(using|friend|static|class|struct|enum|template|typedef|virtual|explicit|~)\b", declaration)
                            and not re.search(r"\)\s*(const|override|noexcept|= 0|= default|= delete|->[^;]*)*\s*;$", declaration)
                            and not re.search(r"\boperator\b", declaration)):
                        members += re.findall(r"(\w+)\s*(?:=[^,;]*|\{\}|\[[^\]]*\])?\s*(?=[,;])", re.sub(r"<[^;]*>", "", declaration))
                        types |= set(re.findall(r"\b([A-Z]\w+)\b", declaration))
                    statement = ""
                elif depth == 0 and re.fullmatch(r"\s*(?:public|private|protected):", statement):
                    statement = ""
            found.append({"path": path, "is_struct": "struct" in opened.group(0).split(opened.group(2))[0], "name": opened.group(2), "line": start + 1, "end": end + 1, "body": end - start - 1,
                          "members": len(members), "types": types, "named": set(re.findall(r"\b([A-Z]\w+)\b", "\n".join(body)))})
    users = {}
    for path, text in files.items():
        for name in set(re.findall(r"\b[A-Z]\w+\b", text)):
            users.setdefault(name, set()).add(stem(path))

    def made_for(inner, one):
        if inner["path"] == one["path"] and one["line"] < inner["line"] and inner["end"] < one["end"]:
            return True
        others = [c for c in found if inner["name"] in c["named"] and c is not one and c is not inner
                  and not (c["path"] == one["path"] and one["line"] < c["line"] < one["end"])]
        return not others and users[inner["name"]] <= {stem(inner["path"]), stem(one["path"])}

    def count(one, seen):
        if "all_members" not in one:
            one["all_members"] = one["members"]
            for name in one["types"]:
                inner = [c for c in found if c["name"] == name and c["is_struct"] and c is not one and id(c) not in seen and made_for(c, one)]
                if inner:
                    one["all_members"] += count(inner[0], seen | {id(one)})
        return one["all_members"]

    for one in found:
        count(one, frozenset())
    return found


def function_lengths(text):
    """(lines, first line) of each function: from the line that opens its body to the line that closes it. Lambdas belong to theirs."""
    head, open_at = [], []  # (depth before, line) of the open functions
    depth = 0
    for number, line in code_lines(text):
        if line.startswith("#"):
            continue
        head.append(line.strip())
        if line.rstrip().endswith(("{", "}")) and "{" in line:
            said = " ".join(head)
            if (re.match(r"(?!(?:if|for|while|switch|else|do|catch|namespace|return|case|class|struct|enum|union|\}|DS_\w+)\b)[\w~:\[<]", said)
                    and re.match(r"[^=({]*(?:operator\S+)?\(.*\)\s*(?:const|noexcept|override|final|->|[\w:<>*& ]|:\s.*)*\{", said) and "](" not in said.split("{")[0]):
                open_at.append((depth, number))
        depth += line.count("{") - line.count("}")
        while open_at and depth <= open_at[-1][0]:
            yield max(number - open_at[-1][1], 1), open_at.pop()[1]
        if not line.strip() or line.rstrip().endswith((";", "{", "}", ":")):
            head = []


def includes(files):
    """{path: included product files}"""
    return {path: {name for name in re.findall(r'^\s*#\s*include "([^"]+)"', text, re.M) if name in files and is_product(name)}
            for path, text in files.items()}


def single_user_headers(product):
    """(lines, header, user) of the headers that exactly one other unit of the product includes; a unit is a .h with its .cpp."""
    units = {}
    for path, names in includes(product).items():
        for name in names:
            if stem(path) != stem(name):
                units.setdefault(name, set()).add(stem(path))
    return sorted((product[name].count("\n"), name, next(iter(found))) for name, found in units.items() if len(found) == 1 and name.endswith(".h"))


def unrelated_types(product):
    """Headers that hold more than MAX_UNRELATED groups of types. Types at the top level of a header are in one group if one names
    the other, if one declaration of the header names both, or if their last words are equal (RowOp, TreeOp)."""
    found = []
    for path, text in product.items():
        if not path.endswith(".h"):
            continue
        blocks, current = [], []
        for _, line in code_lines(text):
            if not line.strip() or line.startswith(("#", "namespace", "}  // namespace")):
                continue
            current.append(line)
            if re.match(r"\S.*;$|\}", line) or (line.endswith(";") and not any(one.endswith("{") for one in current)):
                blocks.append("\n".join(current))
                current = []
        types = [match.group(1) for block in blocks if (match := re.search(r"^(?:class|struct|enum class|enum) (\w+)[^;]*\{", block, re.M))]
        group = {name: name for name in types}

        def root(name):
            return name if group[name] == name else root(group[name])

        for block in blocks:
            named = [name for name in types if re.search(rf"\b{name}\b", block)]
            for name in named[1:]:
                group[root(name)] = root(named[0])
        for name in types:
            last = re.findall(r"[A-Z][a-z0-9]*", name)[-1:]
            for other in types:
                if last and re.findall(r"[A-Z][a-z0-9]*", other)[-1:] == last:
                    group[root(other)] = root(name)
        groups = {root(name) for name in types}
        if len(groups) > MAX_UNRELATED:
            found.append(f"{path}: {len(groups)} unrelated groups of {len(types)} types")
    return found


def folder_circles(files):
    """Strongly connected sets of folders by #include, of more than one folder."""
    edges = {}
    for path, names in includes(files).items():
        if is_product(path):
            folder = path.rsplit("/", 1)[0]
            edges.setdefault(folder, set()).update(name.rsplit("/", 1)[0] for name in names if name.rsplit("/", 1)[0] != folder)
    index, low, stack, out, counter = {}, {}, [], [], [0]
    sys.setrecursionlimit(10000)

    def visit(v):
        index[v] = low[v] = counter[0]
        counter[0] += 1
        stack.append(v)
        for w in edges.get(v, ()):
            if w not in index:
                visit(w)
                low[v] = min(low[v], low[w])
            elif w in stack:
                low[v] = min(low[v], index[w])
        if low[v] == index[v]:
            members = []
            while True:
                members.append(stack.pop())
                if members[-1] == v:
                    break
            if len(members) > 1:
                out.append(sorted(members))

    for v in list(edges):
        if v not in index:
            visit(v)
    return out


def virtual_functions(files, path, name):
    match = re.search(rf"^class {name} \{{$(.*?)^\}};", files.get(path, ""), re.M | re.S)
    return len(re.findall(r"^\s*virtual (?!~)", match.group(1), re.M)) if match else None


def private_words(files):
    """{identifier: uses} in engine/ and kernels/ that are or hold a private word."""
    parts = re.compile("_(?:" + "|".join(WORDS) + ")_")
    uses = {}
    for path, text in files.items():
        if path.startswith(("engine/", "kernels/")):
            for _, line in code_lines(text):
                for name in re.findall(r"\b[a-z][a-z0-9_]*\b", "" if line.startswith("#") else line):
                    if name not in KNOWN_WORDS and (name in WORDS_ALONE or parts.search(f"_{name}_")):
                        uses[name] = uses.get(name, 0) + 1
    return uses


def function_bodies(files, path, name):
    """Bodies of the definitions of `Class::function` in a file, also of those inside the class; of a macro's list, the text."""
    text = "\n".join(line for _, line in code_lines(files.get(path, "")))
    owner, function = name.split("::")
    found = []
    for match in re.finditer(rf"\b{owner}::{function}\(|\b{function}\(", text):
        start = text.rfind("\n", 0, match.start()) + 1
        rest = text[start:]
        body = re.match(r"( *)(?!return|if|for)[\w:&<>*, ]*?\b(?:\w+::)?" + function + r"\([^;{}]*?\)[^;{}]*\{\n(.*?)\n\1\}", rest, re.S)
        if body and (match.group().startswith(owner) or re.search(rf"(?:class|struct) {owner}\b", text[:start])):
            found.append(body.group(2))
    return found


def walk_problems(files, walks):
    """What of the walks is not in the code."""
    for what in ("first product", "acceptance"):
        hops = walks[what]
        for (path, name), (next_path, called) in zip(hops, hops[1:]):
            bodies = function_bodies(files, path, name)
            if not bodies:
                yield f"{what}: no definition of {name} in {path}"
            elif not any(re.search(rf"\b{called.split('::')[1]}\(", body) for body in bodies):
                yield f"{what}: {name} in {path} does not call {called}"
        last_path, last = hops[-1]
        if not re.search(rf"\b{last.split('::')[1]}\b", files.get(last_path, "")):
            yield f"{what}: no {last} in {last_path}"
    for name, path, function in walks["names"]:
        if not any(re.search(rf"\b{name}\b", body) for body in function_bodies(files, path, function)):
            yield f"names: no {name} in {function} of {path}"


def walks_of(commit):
    """Returns the entry of WALKS that holds for a commit, or for the working tree, to which the last one belongs."""
    if not commit:
        return WALKS[-1]
    chosen = WALKS[0]
    for entry in WALKS[1:]:
        known = subprocess.run(["git", "merge-base", "--is-ancestor", entry["since"], commit], cwd=ROOT, capture_output=True)
        chosen = entry if known.returncode == 0 else chosen
    return chosen


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commit")
    parser.add_argument("--list", choices=("branches", "members", "circles", "words", "tiny", "unrelated", "functions", "state"))
    options = parser.parse_args()
    files = read_tree(options.commit)
    product = {path: text for path, text in files.items() if is_product(path)}
    lengths = {path: text.count("\n") for path, text in product.items()}
    functions = sorted(((length, f"{path}:{line}") for path, text in product.items() for length, line in function_lengths(text)), reverse=True)
    kinds = branches(files)
    all_classes = classes(product)
    engine = [one for one in all_classes if one["path"].startswith("engine/")]
    of_round = max(engine, key=lambda one: one["all_members"])
    body = max(all_classes, key=lambda one: one["body"])
    circles = folder_circles(files)
    words = private_words(files)
    tiny = single_user_headers(product)
    unrelated = unrelated_types(product)
    state = sorted(path for path, text in product.items() if any(STATE_HEAD.search(line) for _, line in code_lines(text)))
    walks = walks_of(options.commit)
    hops = {what: [name for _, name in walks[what]] for what in ("first product", "acceptance")}
    owners = {name.split("::")[0] for names in hops.values() for name in names}
    rows = [
        ("product / test lines", f"{sum(lengths.values())} / {sum(t.count(chr(10)) for p, t in files.items() if not is_product(p))}",
         "all lines of C++ and CUDA files in the rooms / in tests"),
        ("product files; median / p90 / max lines",
         f"{len(product)}; {statistics.median(lengths.values()):.0f} / {percentile(lengths.values(), 0.9)} / {max(lengths.values())}", "C++ and CUDA files"),
        ("functions: p50 / p90 / max lines", f"{percentile([f[0] for f in functions], 0.5)} / {percentile([f[0] for f in functions], 0.9)} / {functions[0][0]}",
         "from the opening brace's line to the closing brace, also inside classes; 1 for a body on one line"),
        ("headers with one user; under 40 lines", f"{len(tiny)}; {sum(one[0] < 40 for one in tiny)}",
         "the user is the only other unit (.h with its .cpp) of the product that includes it"),
        ("headers of unrelated types", len(unrelated), f"more than {MAX_UNRELATED} groups of types that no declaration names together"),
        ("engine lines that depend on the backend's kind", len(kinds),
         "tests under any name, names that hold a test's result, calls of virtual functions that do nothing on one backend"),
        ("members of engine/'s largest class", f"{of_round['all_members']} ({of_round['name']})", "with those of member types made for it"),
        ("largest class body", f"{body['body']} lines ({body['name']}, {body['path']})", "lines between the braces"),
        ("hops to the first product / to acceptance", f"{len(hops['first product']) - 1} / {len(hops['acceptance']) - 1}",
         "calls from the enqueued step to the op; each is checked against the code"),
        ("classes on the walks; names for one thing", f"{len(owners)}; {len(walks['names'])}", "one sequence's tree in the step; each name is checked"),
        ("circles between folders", len(circles), "strongly connected sets of folders by #include"),
        ("virtual functions of a drafter / a head",
         f"{virtual_functions(files, 'engine/draft/drafter.h', 'Drafter')} / {virtual_functions(files, 'engine/heads/head.h', 'LmHead')}", "without destructors"),
        ("files for a head with state", len(state), "product files with what only microspec needs"),
        ("private words in engine/ and kernels/", f"{len(words)} identifiers, {sum(words.values())} uses", "identifiers of WORDS_ALONE, and those with a part of WORDS"),
        ("tracked files", f"{tracked_mib(options.commit):.2f} MiB", "sizes of all files in git"),
    ]
    for name, value, rule in rows:
        print(f"{name:47} {value!s:45} {rule}")
    listed = {"branches": kinds, "circles": [" ".join(one) for one in circles], "tiny": [f"{lines:3} {name} <- {user}" for lines, name, user in tiny], "unrelated": unrelated, "state": state,
              "functions": [f"{length:4} {where}" for length, where in functions[:40]],
              "words": [f"{uses:4} {name}" for name, uses in sorted(words.items(), key=lambda one: -one[1])],
              "members": [f"{one['all_members']:3} {one['body']:4} {one['name']} {one['path']}:{one['line']}"
                          for one in sorted(engine, key=lambda one: -one["all_members"])[:20]]}
    if options.list:
        print("", *listed[options.list], sep="\n")
    problems = list(walk_problems(files, walks))
    print("".join(f"{one}\n" for one in problems), end="", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
