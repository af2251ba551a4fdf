"""A target from a GGUF file: weights dequantised, rows of q and k back in the half-split rope order, tokenizer."""
import numpy as np
import torch

from .config import Config
from .text import Text

NAMES = {
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj", "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
# Regular expressions of the splitting before BPE, by tokenizer.ggml.pre.
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
SPLITS = {"llama-bpe": LLAMA3, "qwen2": LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}"), "olmo": None, "gpt-2": None, "smollm": None, "dbrx": LLAMA3}

CONTROL = 3  # gguf's type of control tokens
KNOWN_ENDS = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>")


def unpermuted(weight, heads):
    """GGUF stores llama's q and k for interleaved rope; torch's way splits each head in halves."""
    return weight.reshape(heads, weight.shape[0] // heads // 2, 2, -1).transpose(1, 2).reshape(weight.shape)


def read(path):
    import gguf

    reader = gguf.GGUFReader(path)
    value = lambda key, default=None: reader.fields[key].contents() if key in reader.fields else default
    arch = value("general.architecture")
    get = lambda key, default=None: value(f"{arch}.{key}", default)
    heads = get("attention.head_count")
    raw = {}
    for tensor in reader.tensors:
        shape = [int(n) for n in reversed(tensor.shape)]
        array = gguf.dequantize(tensor.data, tensor.tensor_type).reshape(shape)
        stem, kind = tensor.name.rsplit(".", 1)
        if stem.startswith("blk."):
            _, layer, name = stem.split(".", 2)
            stem = f"model.layers.{layer}.{NAMES[name]}"
        else:
            stem = TOP.get(stem, stem)
        raw[f"{stem}.{kind}"] = torch.from_numpy(np.array(array, dtype=np.float32))
    scaling = {}
    factors = raw.pop("rope_freqs.weight", None)
    config = Config(
        architecture=arch, vocab=raw["model.embed_tokens.weight"].shape[0], hidden=get("embedding_length"), intermediate=get("feed_forward_length"),
        layers=get("block_count"), heads=heads, kv_heads=get("attention.head_count_kv", heads),
        head_dim=get("attention.key_length", get("embedding_length") // heads), eps=get("attention.layer_norm_rms_epsilon"),
        rope_base=get("rope.freq_base", 10000.0), context=get("context_length", 8192), bos=value("tokenizer.ggml.bos_token_id"))
    if factors is not None:
        # llama3 scaling is stored as its result, one divisor per frequency; the ends tell the factor.
        scaling = {"factor": float(factors.max()), "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
    config.rope_scaling = scaling
    if arch == "llama":
        for i in range(config.layers):
            for x, n in (("q", heads), ("k", config.kv_heads)):
                key = f"model.layers.{i}.self_attn.{x}_proj.weight"
                raw[key] = unpermuted(raw[key], n)
    if arch == "olmo2":
        for i in range(config.layers):
            raw.pop(f"model.layers.{i}.input_layernorm.weight", None)
    text = tokenizer(value)
    config.tokens = min(config.vocab, text.tokenizer.get_vocab_size())
    ends = {value(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom")}
    # Those that the engine ends a text at: fits on a trace keep its end tokens in every vocabulary.
    kinds = zip(value("tokenizer.ggml.tokens"), value("tokenizer.ggml.token_type") or [])
    ends |= {i for i, (token, kind) in enumerate(kinds) if kind == CONTROL and token in KNOWN_ENDS}
    config.eos = tuple(sorted(e for e in ends if e is not None))
    return config, raw, text


def tokenizer(value):
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    if value("tokenizer.ggml.model") != "gpt2":
        raise SystemExit("only byte-level BPE tokenizers are read from GGUF; use the target's Hugging Face folder")
    tokens, types, pre = value("tokenizer.ggml.tokens"), value("tokenizer.ggml.token_type"), value("tokenizer.ggml.pre", "gpt-2")
    if pre not in SPLITS:
        raise SystemExit(f"tokenizer.ggml.pre '{pre}' is none of {', '.join(SPLITS)}; use the target's Hugging Face folder")
    made = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=[tuple(m.split(" ")) for m in value("tokenizer.ggml.merges")],
                                ignore_merges=pre == "llama-bpe"))
    steps = [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=SPLITS[pre] is None)]
    if SPLITS[pre] is not None:
        steps.insert(0, pre_tokenizers.Split(Regex(SPLITS[pre]), "isolated"))
    if pre == "smollm":
        steps.insert(0, pre_tokenizers.Digits(individual_digits=True))
    made.pre_tokenizer, made.decoder = pre_tokenizers.Sequence(steps), decoders.ByteLevel()
    made.add_special_tokens([t for t, kind in zip(tokens, types) if kind == 3])
    named = lambda key: tokens[value(key)] if value(key) is not None else ""
    return Text(made, value("tokenizer.chat_template"), named("tokenizer.ggml.bos_token_id"), named("tokenizer.ggml.eos_token_id"))
