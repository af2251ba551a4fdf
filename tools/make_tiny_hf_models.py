#!/usr/bin/env python3
"""Makes tests/golden/models/<architecture>/: small random HF model folders and what transformers computes with them.

Each folder is what a model's publisher would upload (config, weights, tokenizer, chat template) plus golden.json:
a prompt, 64 greedy tokens, logits, features after the final norm and residual streams at some positions, and ids of
tricky texts by the `tokenizers` library. Together the folders cover bf16 and f32, single and sharded files, tied and
untied heads, both spellings of merges, vocabularies padded beyond the tokenizer, and one (mistral, a llama under
another name) whose added tokens go beyond the embedding.

The models run in float64 apart from the norms and the rotation angles, which transformers computes in float32.

    pip install torch transformers==4.51.3 "numpy<2"
    tools/make_tiny_hf_models.py
"""
import argparse
import json
import math
import pathlib

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import (LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM, Olmo2Config, Olmo2ForCausalLM,
                          Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM)

ROOT = pathlib.Path(__file__).resolve().parent.parent
NEW_TOKENS = 64
CLEAR = 2e-3  # least lead of a greedy token: far above the rounding of a float32 engine
POSITIONS = (0, 11, 40, 70)

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
CHATML = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>'"
          " + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
LLAMA3_CHAT = ("{% for message in messages %}{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + "
               "message['content'] | trim + '<|eot_id|>' }}{% endfor %}{{ '<|start_header_id|>assistant"
               "<|end_header_id|>\n\n' }}")

TRAINING_TEXT = ["The draft proposes and the target disposes: what the draft says, the target reads.",
                 "All that the reader reads there is what the writer writes; then there is nothing there.",
                 "the theatre, the weather, the other, the rather, and another and another", "it's, they're, we'll, I'd",
                 "1 22 333 4444 55555", "for (int i = 0; i < n; ++i)\n    total += value[i];\n"]
CORPUS = ["", " ", "Hello, world!", "the theatre of the other", "It's what they'Re; I'LL 'S 't", "12345678 1 22 333\u0663\u00bd",
          "a  b   c    \n\n  d\t\te \n", "na\u00efve caf\u00e9 cafe\u0301 \uac00 \u1100\u1161", "\u65e5\u672c\u8a9e \u0440\u0443\u0441\u0441\u043a\u0438\u0439 \U0001f600\U0001f468\u200d\U0001f469",
          "for (int i = 0; i < n; ++i)\r\n    total += value[i];\r\n", "x\u00a0y\u3000z\u2028w\u180e", "<|endoftext|>the end<|endoftext|>",
          "a<think>b</think> <think", "trailing   "]
PROMPT = "The draft proposes, and the target reads what the writer writes."


def make_tokenizer(family):
    tokenizer = Tokenizer(models.BPE(ignore_merges=family == "llama"))
    pattern = {"qwen2": QWEN2, "qwen3": QWEN2}.get(family, LLAMA3)
    behaviour, invert = ("removed", True) if family == "olmo2" else ("isolated", False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), behaviour, invert),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    if family.startswith("qwen"):
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=296, show_progress=False, min_frequency=1,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(TRAINING_TEXT, trainer)
    if family == "llama":
        names = ["<|begin_of_text|>", "<|endoftext|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
    else:
        names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokenizer.add_special_tokens(names)
    if family in ("qwen3", "mistral"):
        tokenizer.add_tokens([AddedToken("<think>", special=False, normalized=False),
                              AddedToken("</think>", special=False, normalized=False)])
    if family == "llama":
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", tokenizer.token_to_id(names[0]))])
    return tokenizer


def save_tokenizer(tokenizer, family, folder):
    data = json.loads(tokenizer.to_str())
    if family in ("llama", "olmo2"):  # the older spelling of merges
        data["model"]["merges"] = [" ".join(pair) for pair in data["model"]["merges"]]
    write_json(folder / "tokenizer.json", data)
    eos = "<|eot_id|>" if family == "llama" else "<|endoftext|>" if family == "olmo2" else "<|im_end|>"
    config = {"eos_token": eos}
    if family == "llama":
        config["bos_token"] = {"content": "<|begin_of_text|>", "special": True}
        config["chat_template"] = LLAMA3_CHAT
    elif family == "qwen2":
        config["chat_template"] = [{"name": "default", "template": CHATML}]
    elif family == "qwen3":
        (folder / "chat_template.jinja").write_text(CHATML)
    write_json(folder / "tokenizer_config.json", config)
    ends = [tokenizer.token_to_id(name) for name in {eos, "<|endoftext|>"}]
    write_json(folder / "generation_config.json", {"eos_token_id": sorted(ends) if family != "olmo2" else ends[0]})
    return sorted(ends)


def make_model(family, tokens):
    common = dict(hidden_size=64, num_attention_heads=4, num_key_value_heads=2, num_hidden_layers=3,
                  intermediate_size=96, max_position_embeddings=256, attn_implementation="eager")
    if family == "llama":
        scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                   "original_max_position_embeddings": 32}
        return LlamaForCausalLM(LlamaConfig(vocab_size=tokens, rope_theta=10000.0, rms_norm_eps=1e-5,
                                            tie_word_embeddings=True, rope_scaling=scaling, **common))
    if family == "qwen2":
        small = dict(common, hidden_size=48, num_hidden_layers=2, num_key_value_heads=1, intermediate_size=80)
        return Qwen2ForCausalLM(Qwen2Config(vocab_size=tokens + 13, rope_theta=1e6, rms_norm_eps=1e-6,
                                            tie_word_embeddings=False, **small))
    if family == "qwen3":
        return Qwen3ForCausalLM(Qwen3Config(vocab_size=tokens + 9, rope_theta=1e6, rms_norm_eps=1e-6, head_dim=32,
                                            tie_word_embeddings=True, **dict(common, num_hidden_layers=2)))
    if family == "mistral":
        return MistralForCausalLM(MistralConfig(vocab_size=tokens - 2, rope_theta=1e6, rms_norm_eps=1e-5, head_dim=24,
                                                sliding_window=256, tie_word_embeddings=False,
                                                **dict(common, num_hidden_layers=2)))
    return Olmo2ForCausalLM(Olmo2Config(vocab_size=tokens, rope_theta=5e5, rms_norm_eps=1e-6,
                                        tie_word_embeddings=False, **dict(common, num_key_value_heads=4, num_hidden_layers=2)))


def fill(model, tokens, seed, dtype):
    """Random weights under which the text depends on the context. Padding rows are loud, so that a program that
    does not hide them is found out."""
    generator = torch.Generator().manual_seed(seed)
    tied = model.config.tie_word_embeddings
    d = model.config.hidden_size
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            value = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            if name.endswith("norm.weight"):
                value = 1 + 0.2 * value
                if "post_" in name and model.config.model_type == "olmo2":
                    value = 1.5 * value
            elif name.endswith(".bias"):
                value = 0.5 * value
            elif "embed_tokens" in name:
                value = value * (4 / math.sqrt(d) if tied else 1)
            elif "lm_head" in name:
                value = value * 4 / math.sqrt(d)
            else:
                gain = 1.6 if "q_proj" in name or "k_proj" in name else 1.5
                value = value * gain / math.sqrt(parameter.shape[1])
            if "embed_tokens" in name or "lm_head" in name:
                value[tokens:] *= 3
            parameter.copy_(value.to(dtype))


def save_weights(model, family, folder, dtype):
    weights = {name: value.detach().to(dtype).contiguous() for name, value in model.state_dict().items()
               if not (name == "lm_head.weight" and model.config.tie_word_embeddings)}
    if family != "llama":
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        return
    names = sorted(weights)
    parts = {"model-00001-of-00002.safetensors": names[: len(names) // 2],
             "model-00002-of-00002.safetensors": names[len(names) // 2:]}
    for file, held in parts.items():
        save_file({name: weights[name] for name in held}, folder / file, metadata={"format": "pt"})
    size = sum(value.numel() * value.element_size() for value in weights.values())
    write_json(folder / "model.safetensors.index.json", {
        "metadata": {"total_size": size}, "weight_map": {name: file for file, held in parts.items() for name in held}})


def run(model, ids):
    with torch.no_grad():
        out = model(torch.tensor([ids]), output_hidden_states=True, use_cache=False)
    return out.logits[0], [h[0] for h in out.hidden_states]


def golden(model, tokenizer, tokens):
    prompt = tokenizer.encode(PROMPT, add_special_tokens=False).ids
    ids = list(prompt)
    margin = math.inf
    padding_wins = 0
    for _ in range(NEW_TOKENS):
        row = run(model, ids)[0][-1]
        best = row[:tokens].topk(2).values
        margin = min(margin, float(best[0] - best[1]))
        padding_wins += int(row.argmax() >= tokens)
        ids.append(int(row[:tokens].argmax()))
    logits, hidden = run(model, ids[:-1])

    def short(values):
        return [float(f"{v:.7g}") for v in values.tolist()]

    rows = [{"position": p, "logits": short(logits[p]), "hidden": short(hidden[-1][p]),
             "aux": [short(h[p]) for h in hidden[:-1]]} for p in POSITIONS]
    return {"prompt": prompt, "greedy": ids[len(prompt):], "rows": rows}, margin, padding_wins, len(set(ids[len(prompt):]))


def repeats(ids):
    """How often three tokens follow one another again: what n-gram drafts live on."""
    seen, count = set(), 0
    for i in range(len(ids) - 2):
        count += tuple(ids[i:i + 3]) in seen
        seen.add(tuple(ids[i:i + 3]))
    return count


def write_json(path, data):
    path.write_text(json.dumps(data, ensure_ascii=False, indent=None, separators=(",", ":")) + "\n")


def make(family, out):
    folder = out / family
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = make_tokenizer(family)
    tokens = tokenizer.get_vocab_size()
    dtype = torch.float32 if family == "qwen2" else torch.bfloat16
    model = make_model(family, tokens)
    # The first seed whose greedy tokens all lead clearly, and whose text does not fall into a short cycle.
    for seed in range(1, 200):
        fill(model, tokens, seed, dtype)
        model.double().eval()
        data, margin, padding_wins, distinct = golden(model, tokenizer, tokens)
        if family == "mistral" and repeats(data["prompt"] + data["greedy"]) < 4:
            continue
        if margin > CLEAR and distinct > 12 and (padding_wins > 0 or model.config.vocab_size <= tokens):
            break
    else:
        raise SystemExit(f"{family}: no seed gives a clear text")
    save_weights(model, family, folder, dtype)
    model.config.torch_dtype = dtype
    model.config.architectures = [type(model).__name__]
    model.config.eos_token_id = save_tokenizer(tokenizer, family, folder)[0]
    model.config.bos_token_id = tokenizer.token_to_id("<|begin_of_text|>")
    (folder / "config.json").write_text(model.config.to_json_string())
    data["tokens"] = tokens
    data["corpus"] = [{"text": text, "ids": tokenizer.encode(text, add_special_tokens=False).ids} for text in CORPUS]
    write_json(folder / "golden.json", data)
    print(f"{family}: seed {seed}, least lead {margin:.4f}, {distinct} different tokens, padding would win {padding_wins} times")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "tests/golden/models")
    parser.add_argument("families", nargs="*", default=["llama", "qwen2", "qwen3", "olmo2", "mistral"])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for family in arguments.families:
        make(family, arguments.out)


if __name__ == "__main__":
    main()
