#!/usr/bin/env python3
"""Writes tests/golden/model/tokenizer.json: what the `tokenizers` library and Jinja make of texts with the demo model's
vocabulary and chat template. Run it again only when a case is added; the file is checked in.

usage: tools/make_tokenizer_golden.py MODEL.gguf        needs the Python packages gguf, tokenizers and jinja2
"""
import argparse
import json
import random
import unicodedata
from pathlib import Path

import gguf
import jinja2
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "tests" / "golden" / "model" / "tokenizer.json"
# Conversations whose prompts are compared id by id, by question_id of spec_bench_half.jsonl.
PROMPTS = [113, 121, 423, 369, 81, 195, 159, 347, 451, 183]
CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
PATTERNS = {
    "smollm": [r"\p{N}", GPT2],
    "gpt-2": [GPT2],
    "llama-bpe": [CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + TAIL],
    "qwen2": [CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + TAIL],
}
TEXTS = [
    "", " ", "  ", "\n", "\n\n", " \n ", "\t\tx", "a", " a", "a ", "  a  ", "Hello, world!", "hello  world   again",
    "I'm, you're, he's, we'll, they'd, I've, don't, IT'S, O'Neil's", "1234567890", "in 2024, 3.14159 or 1,000,000",
    "x1y22z333", "4 5  6   7", "def f(x):\n    return x ** 2  # square\n", "for (int i = 0; i < n; ++i) {\n\tsum += a[i];\n}",
    "SELECT * FROM t WHERE a >= 10 AND b != 'x';", "{\"key\": [1, 2, {\"nested\": null}]}\r\n", "<div class=\"a\">&nbsp;</div>",
    "https://example.com/a?b=c&d=%20#frag", "name@example.com", "C:\\dir\\file.txt", "a\r\nb\rc\n", "\n\n\n\n    x\n\n",
    "trailing spaces   ", "\u00a0nbsp\u00a0\u00a0two", "em\u2014dash\u2026 \u201cquoted\u201d \u2018single\u2019",
    "\u00fcber Stra\u00dfe na\u00efve \u00c5ngstr\u00f6m", "cafe\u0301 e\u0301\u0302", "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! \u043a\u0430\u043a \u0434\u0435\u043b\u0430?",
    "\u4f60\u597d\uff0c\u4e16\u754c\uff01\u4eca\u5929\u662f2024\u5e74\u3002", "\u3053\u3093\u306b\u3061\u306f\u3001\u4e16\u754c\u3002\u30ab\u30bf\u30ab\u30ca", "\uc548\ub155\ud558\uc138\uc694 \uc138\uacc4",
    "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645 \u0661\u0662\u0663", "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e \u0967\u0968\u0969", "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e0a\u0e32\u0e27\u0e42\u0e25\u0e01",
    "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd", "\u0393\u03b5\u03b9\u03ac \u03c3\u03bf\u03c5 \u039a\u03cc\u03c3\u03bc\u03b5", "\U0001f600\U0001f680\U0001f468\u200d\U0001f469\u200d\U0001f467 ok \U0001f1e9\U0001f1ea",
    "\u2460\u2461 \u00bd \u00b2\u00b3 \u2163 \u216f", "a\u200bb\u200dc\ufeffd", "\u2028line\u2029para\u0085next", "\u1680ogham\u180emongol\u3000wide",
    "\x00nul\x01\x02\x03\x07\x08\x0b\x0c\x0e\x1b\x7f", "\x04\x06\x13\x14\x16\x1d", "t\x04he", "the\x04\x04 the",
    "<|im_start|>user\nhi<|im_end|>\n", "<|im_start|><|im_end|>", "a<|endoftext|>b", "<|im_start", "<|im_end|><|im_end|",
    "<repo_name>x<reponame>y<file_sep>z<filename>", " <|im_end|> ", "<issue_start><issue_comment>5<issue_closed>",
    "<jupyter_code>print(1)<jupyter_output>1<empty_output>", "<<|im_start|>>", "<|IM_START|>",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", " " * 100, "\n" * 30, "=" * 77, "-" * 64 + "\n", "ab" * 200,
    "internationalization antidisestablishmentarianism supercalifragilisticexpialidocious", "ALLCAPS MixedCase camelCase snake_case kebab-case",
    "\u0130stanbul \u0131\u015f\u0131k", "\ufb01 ligature \u017f long s '\u017f", "x\u0300\u0301\u0302\u0303", "\U0001d54f\U0001d7d8 math", "\U000e0001\U000f0000\U0010ffff end", "\U00050000\U000c0000 plane 5 and 12",
]
POOLS = ["abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJ", "0123456789", " ", "  \t", "\n\r", ".,;:!?'\"()[]{}<>|/\\-_=+*&^%$#@~`", "\u00e4\u00f6\u00fc\u00df\u00e9\u00e8\u00f1",
         "\u0430\u0431\u0432\u0433\u0434", "\u4f60\u597d\u4e16\u754c", "\u3042\u30a2\u30fc", "\u0661\u0662\u0967", "\U0001f600\U0001f680\u200d\ufe0f", "\u00a0\u2003\u3000\u2028", "'s", "\u0300\u0301"]
CHATS = [
    [["user", "Hello"]],
    [["system", "Be brief."], ["user", "Hi there"]],
    [["user", "one"], ["assistant", "two"], ["user", "three"]],
    [["system", ""], ["user", ""]],
    [["user", "  spaces kept \n\n"], ["assistant", "\nyes\n"], ["user", "<|im_end|> inside"], ["assistant", "ok"], ["user", "\U0001f600 {{ x }} {% y %}"]],
    [["user", "first"], ["system", "late system"], ["user", "second"]],
    [["system", "a"], ["user", "b"], ["assistant", "c"]],
]


def make_tokenizer(tokens, merges, types):
    tokenizer = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=[tuple(m.split(" ")) for m in merges]))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([t for t, kind in zip(tokens, types) if kind == 3])
    return tokenizer


def fnv(ids):
    value = 0xCBF29CE484222325
    for number in ids:
        for byte in int(number).to_bytes(4, "little"):
            value = (value ^ byte) * 0x100000001B3 % 2**64
    return f"{value:016x}"


def random_texts(count):
    rng = random.Random(20250101)
    for _ in range(count):
        text = ""
        for _ in range(rng.randint(1, 12)):
            pool = rng.choice(POOLS)
            text += pool if pool == "'s" else "".join(rng.choice(pool) for _ in range(rng.randint(1, 5)))
        yield text


def blocks(encode):
    """Every assigned character, by blocks of 256, between letters, spaces and digits."""
    for first in [*range(0, 0x20000, 256), 0xE0000]:
        characters = [chr(c) for c in range(first, first + 256) if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")]
        if len(characters) == 256 and len({unicodedata.category(c) for c in characters}) == 1:
            characters = characters[::16]
        if characters:
            text = "".join(f"{c}a {c} b{c}{c} 1{c}\n" for c in characters)
            yield f"{first:x}", {"characters": "".join(characters), "hash": fnv(encode(text))}


def pieces_of(patterns, text):
    steps = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
    return [piece for piece, _ in pre_tokenizers.Sequence(steps).pre_tokenize_str(text)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    fields = gguf.GGUFReader(parser.parse_args().model).fields
    read = lambda key: fields[key].contents()
    parts = [read("tokenizer.ggml." + key) for key in ("tokens", "merges", "token_type")]
    tokenizer, plain = make_tokenizer(*parts), make_tokenizer(*parts)
    plain.encode_special_tokens = True
    encode = lambda text: tokenizer.encode(text, add_special_tokens=False).ids
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(read("tokenizer.chat_template"))
    render = lambda turns: template.render(messages=[{"role": r, "content": c} for r, c in turns], add_generation_prompt=True)

    out = {"about": "made by tools/make_tokenizer_golden.py with the tokenizers library and Jinja"}
    texts = TEXTS + list(random_texts(150))
    out["texts"] = [{"text": t, "ids": encode(t), "plain": plain.encode(t, add_special_tokens=False).ids} for t in texts]
    out["blocks"] = dict(blocks(encode))
    out["pieces"] = {name: [{"text": t, "pieces": pieces_of(p, t)} for t in TEXTS if t] for name, p in PATTERNS.items()}
    out["chats"] = [{"messages": turns, "text": render(turns)} for turns in CHATS]
    out["prompts"], out["prompt_hashes"] = [], {}
    for name in ("spec_bench_half", "humaneval_half"):
        hashes = out["prompt_hashes"][name] = []
        for line in (ROOT / "assets" / "prompts" / f"{name}.jsonl").read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            text = row["turns"][0] if "turns" in row else row["prompt"]
            ids = encode(render([["user", text]]))
            hashes.append([len(ids), fnv(ids)])
            if row.get("question_id") in PROMPTS:
                out["prompts"].append({"id": row["question_id"], "ids": ids})
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(out, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")
    print(f"{OUT}: {OUT.stat().st_size} bytes, {len(texts)} texts, {len(out['blocks'])} blocks")


if __name__ == "__main__":
    main()
