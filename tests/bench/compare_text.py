#!/usr/bin/env python3
"""Compares chat templates and tokenizers of published models with the libraries that define them. Every *.jinja file of
a folder is compared with jinja2 configured as in transformers, with and without system turns, in several turns and with
a date. Every tokenizer.json is compared with `tokenizers`. What has no files or no Python package is skipped, and said;
exit code 77 if that is all.

usage: tests/bench/compare_text.py build/release/text_peer FOLDER...
    FOLDER holds *.jinja (llama.cpp's models/templates), or ggml-vocab-*.gguf with their vectors *.inp and *.out (llama.cpp's
    models), or is a model folder with tokenizer.json and config.json
"""
import datetime
import json
import subprocess
import sys
from pathlib import Path

try:
    import jinja2
    from jinja2.ext import loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment
except ImportError:
    sys.exit(print("skipped: the Python package jinja2 is not installed") or 77)

ROOT = Path(__file__).resolve().parent.parent.parent
CONVERSATIONS = [
    [["user", "Hello"]],
    [["user", "  spaces kept? \n\n"], ["assistant", "\nyes\n"], ["user", "{{ x }} {% y %} 'quoted' \"twice\" \\n"]],
    [["system", "Be brief."], ["user", "Hi there"]],
    [["system", "Be brief."], ["user", "one"], ["assistant", "two"], ["user", "three"], ["assistant", "four"], ["user", "five"]],
    [["user", "one"], ["assistant", "<think>\nhm</think>\n\ntwo\n"], ["user", "three"]],
    [["system", ""], ["user", ""]],
    [["user", "one"], ["assistant", ""], ["user", "\u00fcber \u4f60\u597d \U0001f600"]],
    [["user", "one"], ["system", "late"], ["user", "two"]],
    [["system", "a"], ["user", "b"], ["assistant", "c"]],
]


DATES = [None, datetime.date(2026, 2, 3)]


class Generation(jinja2.ext.Extension):
    """{% generation %} marks answers for training; it outputs its contents."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_inside"), [], [], body).set_lineno(line)

    def _inside(self, caller):
        return caller()


class TemplateSays(Exception):
    pass


def rendered(source, messages, date):
    """Renders as transformers does. Contents are typed parts if a text is lost. Without a date, it is the engine's fixed one,
    and strftime_now is not defined."""
    def write(parts, messages):
        return rendered_as(source, [{"role": r, "content": [{"type": "text", "text": c}] if parts else c}
                                    for r, c in messages], date)
    try:
        parts = "qzprobe" not in write(False, [["user", "qzprobe"]])
    except Exception:  # a template may raise anything
        parts = True
    return write(parts, messages)


def rendered_as(source, messages, date):
    def raise_exception(message):
        raise TemplateSays(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    if date or "strftime_now is defined" not in source and "strftime_now" in source:
        environment.globals["strftime_now"] = lambda form: (date or datetime.date(2024, 7, 26)).strftime(form)
    return environment.from_string(source).render(
        messages=messages, add_generation_prompt=True, tools=None, documents=None,
        bos_token="<s>", eos_token="</s>")


class Peer:
    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")

    def ask(self, request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


def compare_templates(peer, files):
    equal = refused = different = 0
    for file in files:
        source = file.read_text(encoding="utf-8")
        for number, (messages, date) in enumerate((m, d) for d in DATES for m in CONVERSATIONS):
            try:
                expected, why = rendered(source, messages, date), ""
            except Exception as error:  # a template may raise anything
                expected, why = None, f"{type(error).__name__}: {error}"
            answer = peer.ask({"template": source, "messages": messages, "bos": "<s>", "eos": "</s>",
                               "switches": [f"date={date}"] if date else []})
            if expected is None and "error" in answer:
                refused += 1
            elif expected == answer.get("text"):
                equal += 1
            else:
                different += 1
                print(f"{file.name}, conversation {number}:\n  expected {expected!r} {why}\n  found    {answer.get('text', answer.get('error'))!r}")
    print(f"templates: {equal} prompts equal, {refused} refused by both, {different} different")
    return different


def corpus():
    sys.path.insert(0, str(ROOT / "tools"))
    from make_tokenizer_golden import TEXTS, random_texts
    yield from TEXTS
    yield from random_texts(600)
    for name in ("spec_bench_half", "humaneval_half"):
        for line in (ROOT / "assets" / "prompts" / f"{name}.jsonl").read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            yield row["turns"][0] if "turns" in row else row["prompt"]


def compare_tokenizer(peer, folder):
    try:
        from tokenizers import Tokenizer
    except ImportError:
        print(f"skipped: {folder}/tokenizer.json; the Python package tokenizers is not installed")
        return 0
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    added = [token["content"] for token in json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["added_tokens"]]
    texts = list(corpus()) + [t for token in added[:300] for t in (token, f"a{token}b", f" {token} c", f"x {token}{token}")]
    answer = peer.ask({"model": str(folder), "texts": texts})
    if "error" in answer:
        print(f"{folder}: {answer['error']}")
        return 1
    different = 0
    for field, special in (("ids", True), ("plain", False)):
        tokenizer.encode_special_tokens = not special
        for text, found in zip(texts, answer[field]):
            expected = tokenizer.encode(text, add_special_tokens=False).ids
            if expected != found:
                different += 1
                if different < 6:
                    print(f"{folder.name} ({field}): {text[:100]!r}\n  expected {expected[:40]}\n  found    {found[:40]}")
    print(f"{folder}: {2 * len(texts)} texts, {different} different")
    return different


def compare_vectors(peer, files):
    """Texts and ids of llama.cpp's own tests. A vocabulary that is not supported must be refused by name."""
    equal = different = 0
    refused = []
    for file in files:
        texts = Path(f"{file}.inp").read_text(encoding="utf-8").split("\n__ggml_vocab_test__\n")
        lines = Path(f"{file}.out").read_text(encoding="utf-8").splitlines()
        answer = peer.ask({"model": str(file), "texts": texts[:len(lines)]})
        if "error" in answer:
            refused.append(f"  {file.name}: {answer['error']}")
            continue
        for text, line, found in zip(texts, lines, answer["plain"]):
            if [int(one) for one in line.split()] == found:
                equal += 1
            else:
                different += 1
                print(f"{file.name}: {text[:100]!r}\n  expected {line[:200]}\n  found    {found[:40]}")
    print(f"vectors: {equal} texts equal, {different} different; refused:", *refused, sep="\n")
    return different


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    peer, different, compared = Peer(sys.argv[1]), 0, 0
    for name in sys.argv[2:]:
        folder = Path(name)
        if (folder / "tokenizer.json").exists():
            different += compare_tokenizer(peer, folder)
        vectors = [file for file in sorted(folder.glob("*.gguf")) if Path(f"{file}.inp").exists()]
        if vectors:
            different += compare_vectors(peer, vectors)
        templates = sorted(folder.glob("*.jinja"))
        if templates:
            different += compare_templates(peer, templates)
        found = len(templates) + len(vectors) + (folder / "tokenizer.json").exists()
        compared += found
        if not found:
            print(f"skipped: {folder} has no *.jinja, no vectors and no tokenizer.json")
    sys.exit(1 if different else 0 if compared else 77)


if __name__ == "__main__":
    main()
