#!/usr/bin/env python3
"""Writes tests/golden/model/sentencepiece.json: a small BPE model trained by the `sentencepiece` library with Llama 2's settings,
and the ids that it and the `tokenizers` library (with the model written as a tokenizer.json in the older and the newer way) give
for the texts of make_tokenizer_golden.py. Run it again only when a case is added; the file is checked in.

usage: tools/make_sentencepiece_golden.py        needs the Python packages sentencepiece, tokenizers, gguf and jinja2
"""
import io
import json

import jinja2
import sentencepiece
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers
from make_tokenizer_golden import CHATS, ROOT, TEXTS, random_texts

OUT = ROOT / "tests" / "golden" / "model" / "sentencepiece.json"
MARK = "\u2581"
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6  # GGUF's token types
MORE = ["<s>hello</s>", "a<s> b</s>", " <s>", "<s><s>x", "[tool] call[tool]", "x[tool][tool] y", "<0x41>", "\u2581mark \u2581", "  two leading", "<unk>"]
# The templates of models with such vocabularies, as they are published: TinyLlama 1.1B Chat (Zephyr's) and Llama 2 Chat.
TEMPLATES = {
    "zephyr": "{% for message in messages %}\n{% if message['role'] == 'user' %}\n{{ '<|user|>\n' + message['content'] + eos_token }}\n"
              "{% elif message['role'] == 'system' %}\n{{ '<|system|>\n' + message['content'] + eos_token }}\n"
              "{% elif message['role'] == 'assistant' %}\n{{ '<|assistant|>\n'  + message['content'] + eos_token }}\n{% endif %}\n"
              "{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}",
    "llama2": "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}"
              "{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}{% for message in loop_messages %}"
              "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}"
              "{% if loop.index0 == 0 and system_message != false %}{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' "
              "+ message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}"
              "{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}"
              "{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}",
}


def chats():
    """Rendered by Jinja; conversations end with a question, and no template takes a late system message."""
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    for name, source in TEMPLATES.items():
        rendered = []
        for turns in CHATS:
            if turns[-1][0] != "user" or any(role == "system" for role, _ in turns[1:]):
                continue
            messages = [{"role": r, "content": c} for r, c in turns]
            text = environment.from_string(source).render(messages=messages, add_generation_prompt=True, bos_token="<s>", eos_token="</s>")
            rendered.append({"messages": turns, "text": text})
        yield name, {"template": source, "rendered": rendered}


def sentences():
    for name in ("spec_bench_half", "humaneval_half"):
        for line in (ROOT / "assets" / "prompts" / f"{name}.jsonl").read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            yield from (row["turns"][0] if "turns" in row else row["prompt"]).split("\n")


def train():
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=sentences(), model_writer=out, model_type="bpe", vocab_size=1500, byte_fallback=True, split_digits=True,
        normalization_rule_name="identity", remove_extra_whitespaces=False, allow_whitespace_only_pieces=True, character_coverage=0.999,
        user_defined_symbols=["[tool]"], num_threads=1, minloglevel=2)
    return sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())


def kind(model, i):
    if model.is_byte(i):
        return BYTE
    return UNKNOWN if model.is_unknown(i) else CONTROL if model.is_control(i) else USER_DEFINED if model.id_to_piece(i) == "[tool]" else NORMAL


def merges_of(pieces, scores, types):
    """Every way to put a piece together, the best piece first, as transformers converts such models."""
    ids = {p: i for i, p in enumerate(pieces)}
    found = []
    for i, piece in enumerate(pieces):
        if types[i] == NORMAL:
            local = [(piece[:c], piece[c:]) for c in range(1, len(piece)) if piece[:c] in ids and piece[c:] in ids]
            found += [(-scores[i], ids[a], ids[b], a, b) for a, b in local]
    return [(a, b) for _, _, _, a, b in sorted(found)]


def as_tokenizer(pieces, types, merges, newer):
    out = Tokenizer(models.BPE(vocab={p: i for i, p in enumerate(pieces)}, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    if newer:
        out.pre_tokenizer = pre_tokenizers.Metaspace(replacement=MARK, prepend_scheme="first", split=False)
    else:
        out.normalizer = normalizers.Sequence([normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)])
    out.add_special_tokens([AddedToken(p, normalized=False, special=True) for p, t in zip(pieces, types) if t in (UNKNOWN, CONTROL)])
    out.add_tokens([AddedToken("[tool]", normalized=False, special=False)])
    return out


def main():
    model = train()
    count = model.get_piece_size()
    pieces = [model.id_to_piece(i) for i in range(count)]
    scores = [model.get_score(i) for i in range(count)]
    types = [kind(model, i) for i in range(count)]
    merges = merges_of(pieces, scores, types)
    older, newer = (as_tokenizer(pieces, types, merges, n) for n in (False, True))
    ids = lambda t, text: t.encode(text, add_special_tokens=False).ids
    texts = TEXTS + MORE + list(random_texts(150)) + ["\n".join(sentences())[:20000]]
    out = {"about": "made by tools/make_sentencepiece_golden.py with the sentencepiece and tokenizers libraries",
           "pieces": pieces, "scores": scores, "types": types, "merges": [" ".join(m) for m in merges],
           "older": json.loads(older.to_str()), "newer": json.loads(newer.to_str()),
           "texts": [{"text": t, "sentencepiece": model.encode(t), "older": ids(older, t), "newer": ids(newer, t),
                      "decoded": model.decode(model.encode(t))} for t in texts]}
    differ = sum(row["sentencepiece"] != row["older"] for row in out["texts"])
    for row in out["texts"]:  # what is as expected is left out
        for name, expected in (("newer", "sentencepiece"), ("older", "sentencepiece"), ("decoded", "text")):
            if row[name] == row[expected]:
                del row[name]
    out["chats"] = dict(chats())
    for name in ("older", "newer"):  # the vocabulary is there once already
        del out[name]["model"]["vocab"], out[name]["model"]["merges"]
    OUT.write_text(json.dumps(out, separators=(",", ":")) + "\n", encoding="utf-8")
    print(f"{OUT}: {OUT.stat().st_size} bytes, {len(texts)} texts, {len(merges)} merges; the libraries differ on {differ}")


if __name__ == "__main__":
    main()
