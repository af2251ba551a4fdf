#!/usr/bin/env python3
"""Checks the language of the repository (CONTRIBUTING.md, "Language"): words that no identifier contains, and
sentences that stay short in comments, documentation and Markdown.

usage: tools/check_language.py [--root FOLDER] [PATH...]    exit code 1 and one line per finding when a rule is broken
"""
import argparse
import re
import subprocess
import sys
from pathlib import Path

# Words that say nothing about their subject. The right-hand side is what to use instead.
WORDS = {
    "there": "device_, on_device or d_", "ask": "enqueue_ or request_", "asks": "enqueue_ or request_", "asked": "requested",
    "bring": "upload_ or download_", "brings": "upload_ or download_", "most": "max_", "fewest": "min_",
    "beside": "shadow_, side_stream or overlay_", "aside": "side_stream", "judged": "evaluated", "anew": "rebuilt",
}
PROSE_WORDS = {"anew": "again", "whoever": "the caller", "beside": "next to, or the noun of its role"}
# Identifiers whose word another library or plain English gave them.
ALLOWED_NAMES = {
    "GetTopMostPopupModal": "Dear ImGui's", "ImGuiWindowFlags_NoBringToFrontOnFocus": "Dear ImGui's",
}
ALLOWED_PARTS = ("AtMost", "at_most")
# path prefix -> why its sentences are not checked
ALLOWED_PROSE = {
    "docs/decisions/": "written once and superseded, never edited",
    "LICENSE": "the licence's own text",
    "THIRD_PARTY.md": "licences' own text",
}
MAX_SENTENCE = 40
MAX_AVERAGE = 22
MAX_FIRST_SENTENCE = 20
CODE = {".h", ".cpp", ".cu", ".cuh"}
TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"([^(\s]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\'|[A-Za-z_]\w*|\d[\w\'.]*', re.S)


def tokens(text):
    """(kind, text, line) of comments, strings and identifiers of C++ source."""
    line, last = 1, 0
    for match in TOKEN.finditer(text):
        line += text.count("\n", last, match.start())
        last = match.start()
        value = match.group(0)
        if value.startswith(("//", "/*")):
            yield "comment", value, line
        elif value.startswith(('"', "'", 'R"')):
            yield "string", value, line
        elif not value[0].isdigit():
            yield "identifier", value, line


def parts(identifier):
    return [part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", identifier)]


def comment_blocks(text):
    """(line, prose) of each run of // comment lines."""
    block, start, last = [], 0, -2
    for kind, value, line in tokens(text):
        if kind != "comment" or not value.startswith("//"):
            continue
        alone = text.splitlines()[line - 1].lstrip().startswith("//")
        if block and (line != last + 1 or not alone):
            yield start, "\n".join(block)
            block = []
        if not block:
            start = line
        block.append(re.sub(r"^//[/!]?<? ?", "", value))
        last = line
        if not alone:
            yield start, "\n".join(block)
            block = []
    if block:
        yield start, "\n".join(block)


def paragraphs(text):
    """(line, prose) of Markdown paragraphs and list items; code, tables, headings and quotes are left out."""
    fenced, block, start = False, [], 0
    for number, line in enumerate(text.splitlines() + [""], 1):
        if re.match(r"\s*(```|~~~)", line):
            fenced = not fenced
            line = ""
        skip = fenced or not line.strip() or re.match(r"\s*(\||#|<|!\[|>)|    ", line) is not None and not block
        item = re.match(r"\s*([-*+]|\d+[.)])\s+", line)
        if (skip or item) and block:
            yield start, " ".join(block)
            block = []
        if skip or re.match(r"\s*(\||#)", line):
            continue
        if not block:
            start = number
        block.append(line[item.end():] if item else line.strip())


def sentences(prose):
    """Sentences of a paragraph as lists of words; formulas, paths and code count as one word each."""
    prose = re.sub(r"`[^`]*`", "CODE", prose)
    prose = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", prose)
    prose = re.sub(r"\b(e\.g|i\.e|cf|vs|etc|Fig|Eq|Sec|al|approx|No)\.", r"\1", prose)
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*[-*] )", prose):
        for sentence in re.split(r"(?<=[.!?:;])[\"')]*\s+(?=[A-Z`\"'(0-9]|CODE)|(?<=[.!?])$", paragraph.strip()):
            words = [word for word in re.split(r"\s+|\s-+\s", sentence) if re.search(r"[A-Za-z]", word)]
            if words:
                yield words


def check_prose(name, blocks, header):
    counts = []
    for line, prose in blocks:
        if not re.search(r"[A-Za-z]{3}", prose) or prose.startswith(("NOLINT", "clang-format", "namespace")):
            continue
        for index, words in enumerate(sentences(prose)):
            counts.append(len(words))
            if len(words) > MAX_SENTENCE:
                yield f"{name}:{line}: a sentence of {len(words)} words (max {MAX_SENTENCE}): {' '.join(words[:6])} ..."
            elif header and index == 0 and len(words) > MAX_FIRST_SENTENCE:
                yield f"{name}:{line}: a first sentence of {len(words)} words (max {MAX_FIRST_SENTENCE}): {' '.join(words[:6])} ..."
        for word, instead in PROSE_WORDS.items():
            if re.search(rf"\b{word}\b", re.sub(r"`[^`]*`", "", prose), re.I):
                yield f'{name}:{line}: "{word}" in prose: {instead}'
    if len(counts) >= 10 and sum(counts) / len(counts) > MAX_AVERAGE:
        yield f"{name}: {sum(counts) / len(counts):.1f} words a sentence (max {MAX_AVERAGE})"


def check_identifiers(name, text):
    seen = set()
    for kind, value, line in tokens(text):
        if kind != "identifier" or value in seen or value in ALLOWED_NAMES:
            continue
        if any(part in value for part in ALLOWED_PARTS):
            continue
        for part in parts(value):
            if part in WORDS:
                seen.add(value)
                yield f'{name}:{line}: "{part}" in {value}: say {WORDS[part]}'
                break


def check_file(name, text):
    suffix = Path(name).suffix
    if suffix in CODE:
        yield from check_identifiers(name, text)
        yield from check_prose(name, comment_blocks(text), suffix in {".h", ".cuh"})
    elif suffix == ".md" and not name.startswith(tuple(ALLOWED_PROSE)):
        yield from check_prose(name, paragraphs(text), False)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", default=str(Path(__file__).resolve().parent.parent))
    parser.add_argument("paths", nargs="*", help="files or folders; default: all tracked files")
    arguments = parser.parse_args()
    root = Path(arguments.root)
    listed = subprocess.run(["git", "ls-files", *arguments.paths], cwd=root, capture_output=True, text=True, check=True)
    findings = []
    for name in filter(None, listed.stdout.split("\n")):
        if Path(name).suffix in CODE | {".md"} and (root / name).is_file():
            findings += check_file(name, (root / name).read_text(encoding="utf-8"))
    for finding in findings:
        print(finding)
    print("language: clean" if not findings else f"language: {len(findings)} finding(s)")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
