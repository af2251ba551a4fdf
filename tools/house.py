#!/usr/bin/env python3
"""Prints how large and how tangled the tree is: lines, files, branches on the backend's kind, the largest classes, circles between
folders, virtual functions, and private words. The rules stand beside the figures, so that two commits
are counted alike.

usage: tools/house.py [--commit HASH] [--list NAME]     HASH: count that commit instead of the working tree
                                                        NAME: also print what was counted (branches, members, circles, words)

A word is private if a reader who knows vLLM, llama.cpp or CUTLASS must look it up: the list is WORDS, and a synonym of a listed word
belongs there, too.
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

# Identifiers in the spirit of a private language, as parts between underscores or capitals.
WORDS = ("sets_come", "come_ids", "size_said", "sets_here", "here_", "left_", "names_", "hand_sets", "use_sets", "aim", "tails_moved", "room",
         "make_room", "goes_on", "drawn", "lowest", "masses", "answers", "place", "places", "place_sets", "cells", "set_words", "words_",
         "can_answer", "drafted", "aside", "wanted", "asked", "told", "kept", "taken", "fresh", "own_columns", "whole", "meant")


def read_tree(commit):
    """Returns {path: text} of the C++ files."""
    if commit:
        names = subprocess.run(["git", "ls-tree", "-r", "--name-only", commit], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    else:
        names = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    wanted = [name for name in names if name.endswith(SOURCE) and name.split("/")[0] in ROOMS + ("tests",)]
    if not commit:
        return {name: (ROOT / name).read_text(encoding="utf-8") for name in wanted if (ROOT / name).exists()}
    stream = subprocess.run(["git", "cat-file", "--batch"], cwd=ROOT, input="".join(f"{commit}:{name}\n" for name in wanted).encode(),
                            capture_output=True, check=True).stdout
    files, at = {}, 0
    for name in wanted:
        end = stream.index(b"\n", at)
        size = int(stream[at:end].split()[2])
        files[name] = stream[end + 1:end + 1 + size].decode("utf-8")
        at = end + size + 2
    return files


def code_lines(text):
    """(number, line) without comments and literals."""
    for number, line in enumerate(text.splitlines(), 1):
        line = re.sub(r'"(?:[^"\\]|\\.)*"', '""', line)
        yield number, re.sub(r"//.*", "", line)


def is_product(path):
    return path.split("/")[0] in ROOMS


def branches(files):
    """Lines in engine/ that test the kind of the backend, in code. The definition of the test itself counts, too."""
    return [f"{path}:{number}: {line.strip()}" for path, text in files.items() if path.startswith("engine/")
            for number, line in code_lines(text) if KIND.search(line)]


def classes(files):
    """(path, name, line, lines of the body, members). A body is what stands between the braces of a class or struct with
    functions; a member is a declaration that ends with ';' and is no function, type or alias. Those of a struct defined inside the
    class, or of a struct in the same file whose only member use is this class, count with it."""
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
            members, statement, depth = [], "", 0
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
                    statement = ""
                elif depth == 0 and re.fullmatch(r"\s*(?:public|private|protected):", statement):
                    statement = ""
            found.append({"path": path, "name": opened.group(2), "line": start + 1, "body": end - start - 1, "members": len(members),
                          "types": set(re.findall(r"\b([A-Z]\w+)\b", "\n".join(body)))})
    by_name = {}
    for one in found:
        by_name.setdefault(one["name"], []).append(one)
    for one in found:  # structs that exist for one class
        inner = 0
        for name in one["types"]:
            other = by_name.get(name, [])
            users = [c for c in found if name in c["types"]]
            if len(other) == 1 and other[0] is not one and other[0]["path"] == one["path"] and users == [one]:
                inner += other[0]["members"]
        one["all_members"] = one["members"] + inner
    return found


def folder_circles(files):
    """Strongly connected sets of folders by #include, of more than one folder."""
    edges = {}
    for path, text in files.items():
        if not is_product(path):
            continue
        folder = path.rsplit("/", 1)[0]
        edges.setdefault(folder, set())
        for name in re.findall(r'^\s*#\s*include "([^"]+)"', text, re.M):
            other = name.rsplit("/", 1)[0]
            if "/" in name and other != folder and name in files:
                edges[folder].add(other)
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
    """{identifier: uses} in engine/ and kernels/ whose parts hold a private word."""
    uses = {}
    for path, text in files.items():
        if not path.startswith(("engine/", "kernels/")):
            continue
        for _, line in code_lines(text):
            for name in re.findall(r"\b[a-z][a-z0-9_]*\b", line):
                parts = f"_{name}_"
                if any(f"_{word.strip('_')}_" in parts for word in WORDS):
                    uses[name] = uses.get(name, 0) + 1
    return uses


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commit")
    parser.add_argument("--list", choices=("branches", "members", "circles", "words"))
    options = parser.parse_args()
    files = read_tree(options.commit)
    product = {path: text for path, text in files.items() if is_product(path)}
    lengths = {path: text.count("\n") for path, text in product.items()}
    kinds = branches(files)
    engine = [one for one in classes({p: t for p, t in product.items() if p.startswith("engine/")})]
    of_round = max(engine, key=lambda one: one["all_members"])
    body = max(classes(product), key=lambda one: one["body"])
    circles = folder_circles(files)
    words = private_words(files)
    rows = [
        ("product lines / lines of tests", f"{sum(lengths.values())} / {sum(t.count(chr(10)) for p, t in files.items() if not is_product(p))}"),
        ("product files; median lines", f"{len(product)}; {statistics.median(lengths.values()):.0f}"),
        ("lines in engine/ that test the backend's kind", len(kinds)),
        ("members of engine/'s largest class", f"{of_round['all_members']} ({of_round['name']})"),
        ("largest class body", f"{body['body']} lines ({body['name']}, {body['path']})"),
        ("circles between folders", len(circles)),
        ("virtual functions of a drafter / a head",
         f"{virtual_functions(files, 'engine/draft/drafter.h', 'Drafter')} / {virtual_functions(files, 'engine/heads/head.h', 'LmHead')}"),
        ("private words in engine/ and kernels/", f"{len(words)} identifiers, {sum(words.values())} uses"),
    ]
    for name, value in rows:
        print(f"{name:50} {value}")
    listed = {"branches": kinds, "circles": [" ".join(one) for one in circles],
              "words": [f"{uses:4} {name}" for name, uses in sorted(words.items(), key=lambda one: -one[1])],
              "members": [f"{one['all_members']:3} {one['body']:4} {one['name']} {one['path']}:{one['line']}"
                          for one in sorted(engine, key=lambda one: -one["all_members"])[:20]]}
    if options.list:
        print("", *listed[options.list], sep="\n")


if __name__ == "__main__":
    main()
