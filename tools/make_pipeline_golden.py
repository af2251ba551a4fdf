#!/usr/bin/env python3
"""Writes tests/golden/model/pipelines.json: the ids that the `tokenizers` library gives with the splitting steps and the kinds of
added tokens that a tokenizer.json may have, over two small vocabularies that it trained. Run it again only when a case is added;
the file is checked in.

usage: tools/make_pipeline_golden.py        needs the Python package tokenizers
"""
import json

from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers
from make_tokenizer_golden import ROOT, TEXTS

OUT = ROOT / "tests" / "golden" / "model" / "pipelines.json"
MARK = "\u2581"
# As published: Mistral NeMo's, DeepSeek V3's.
TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
          r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK3 = (r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"""
             r"\s*[\r\n]+|\s+(?!\S)|\s+")
MORE = ["<pad> a <pad>b", "a word words word", "sword word", "<n> <n><pad><n>", "x<n>y", " \u00fcber", "a \u00fcberall", "<|end|><|end|>", "1234 12 1,234",
        "a,b , c", "two words", "two wordsx", "hello, hello", "ohello", "[X] a[X]  [X]", "[PAD]", "a[PAD] [PAD]b", "<s>[PAD]</s>", "no-break-s - x",
        "line\n  \nend  ", "tail \n", "\u00b2 \u00bd 3\u00b3"]


def split(pattern, behaviour="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behaviour, invert)


def byte_level(words=False):
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=words)


def pipelines():
    yield "tekken", [split(TEKKEN), byte_level()]
    yield "deepseek-v3", [split(r"\p{N}{1,3}"), split("[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"), split(DEEPSEEK3), byte_level()]
    yield "deepseek-coder", [split("[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split("[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"), pre_tokenizers.Digits(True), byte_level()]
    yield "steps behind the bytes", [pre_tokenizers.Punctuation("contiguous"), byte_level(True), pre_tokenizers.Digits(False), split("[0-9][0-9][0-9]")]
    yield "merged", [split(r"\s+", "merged_with_next"), split(",", "merged_with_previous"), split(r"\p{L}+", "contiguous"), pre_tokenizers.Split("-", "merged_with_previous"), byte_level()]
    yield "inverted", [split(r"[^\s]+|\s+", "removed", True), split(r"\s+$"), byte_level()]
    yield "removed", [split(r"\s+", "removed"), byte_level()]


def corpus():
    for name in ("spec_bench_half", "humaneval_half"):
        for line in (ROOT / "assets" / "prompts" / f"{name}.jsonl").read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            yield row["turns"][0] if "turns" in row else row["prompt"]


def described(tokenizer, texts):
    file = json.loads(tokenizer.to_str())
    ids = lambda special: [encode(tokenizer, text, special) for text in texts]
    return {"normalizer": file["normalizer"], "pre_tokenizer": file["pre_tokenizer"], "added_tokens": file["added_tokens"],
            "ids": ids(True), "plain": ids(False)}


def encode(tokenizer, text, special):
    tokenizer.encode_special_tokens = not special
    return tokenizer.encode(text, add_special_tokens=False).ids


def bytes_models(texts):
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = byte_level(True)
    trained.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=600, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    model = json.loads(trained.to_str())["model"]
    merges = [tuple(merge) for merge in model["merges"]]
    out = {}
    for name, steps in pipelines():
        tokenizer = Tokenizer(models.BPE(vocab=model["vocab"], merges=merges))
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
        tokenizer.add_special_tokens([AddedToken("<|end|>", special=True, normalized=False)])
        if name == "tekken":
            tokenizer.add_tokens([AddedToken("<pad>", lstrip=True, rstrip=True, normalized=False), AddedToken("word", single_word=True, normalized=False),
                                  AddedToken("<n>", normalized=True), AddedToken("<n><pad>", normalized=True), AddedToken("\u00fcber", lstrip=True, normalized=True)])
        out[name] = described(tokenizer, texts)
    return {"model": model, "pipelines": out}


def sentence_models(texts):
    trained = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    trained.pre_tokenizer = pre_tokenizers.Metaspace(replacement=MARK, prepend_scheme="always", split=True)
    special = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    trained.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=900, special_tokens=special, show_progress=False))
    model = json.loads(trained.to_str())["model"]
    merges = [tuple(merge) for merge in model["merges"]]
    out = {}
    for name in ("prepended", "replaced", "metaspace"):
        tokenizer = Tokenizer(models.BPE(vocab=model["vocab"], merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
        replace = normalizers.Replace(" ", MARK)
        if name == "metaspace":
            tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement=MARK, prepend_scheme="first", split=False)
        else:
            tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(MARK), replace] if name == "prepended" else [replace])
        tokenizer.add_special_tokens([AddedToken(token, normalized=name != "metaspace", special=True) for token in ("<unk>", "<s>", "</s>")])
        tokenizer.add_tokens([AddedToken("[PAD]", normalized=True), AddedToken("<|end|>", normalized=False), AddedToken("two words", normalized=True, rstrip=True),
                              AddedToken("[X]", normalized=True, lstrip=True), AddedToken("hello", normalized=True, single_word=True)])
        out[name] = described(tokenizer, texts)
    return {"model": model, "pipelines": out}


def main():
    texts = TEXTS + MORE
    out = {"about": "made by tools/make_pipeline_golden.py with the tokenizers library", "texts": texts, "vocabularies": [bytes_models(texts), sentence_models(texts)]}
    OUT.write_text(json.dumps(out, separators=(",", ":")) + "\n", encoding="utf-8")
    print(f"{OUT}: {OUT.stat().st_size} bytes, {len(texts)} texts")


if __name__ == "__main__":
    main()
