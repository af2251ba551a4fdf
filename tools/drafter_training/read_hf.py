"""A target from a Hugging Face folder: config.json, model*.safetensors, tokenizer.json, tokenizer_config.json."""
import json

from .config import Config
from .text import Text


def read(path):
    from safetensors.torch import load_file
    from tokenizers import Tokenizer

    for name in ("config.json", "tokenizer.json"):
        if not (path / name).exists():
            raise SystemExit(f"{path}: {name} is missing")
    c = json.loads((path / "config.json").read_text())
    raw = {}
    for part in sorted(path.glob("*.safetensors")):
        raw |= load_file(part)
    if not raw:
        raise SystemExit(f"{path}: no .safetensors file")
    if c.get("tie_word_embeddings"):
        raw.pop("lm_head.weight", None)
    heads, rope = c["num_attention_heads"], c.get("rope_scaling") or c.get("rope_parameters") or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind not in ("default", "llama3"):
        raise SystemExit(f"{path}/config.json: rope type '{kind}' is neither default nor llama3")
    architecture, window = c["model_type"], c.get("sliding_window")
    if architecture == "mistral":
        if window is not None and window < c.get("max_position_embeddings", 8192):
            raise SystemExit(f"{path}/config.json: sliding_window {window} is shorter than the context; full attention is all there is here")
        architecture = "llama"
    eos = c.get("eos_token_id")
    config = Config(
        architecture=architecture, vocab=c["vocab_size"], hidden=c["hidden_size"], intermediate=c["intermediate_size"],
        layers=c["num_hidden_layers"], heads=heads, kv_heads=c.get("num_key_value_heads", heads),
        head_dim=c.get("head_dim") or c["hidden_size"] // heads, eps=c["rms_norm_eps"],
        rope_base=c.get("rope_theta") or rope.get("rope_theta", 10000.0), rope_scaling=rope if kind == "llama3" else {},
        context=c.get("max_position_embeddings", 8192), eos=tuple(eos) if isinstance(eos, list) else (() if eos is None else (eos,)),
        bos=c.get("bos_token_id"))
    extra = json.loads((path / "tokenizer_config.json").read_text()) if (path / "tokenizer_config.json").exists() else {}
    template = extra.get("chat_template")
    if (path / "chat_template.jinja").exists():
        template = (path / "chat_template.jinja").read_text()
    named = lambda key: (extra.get(key) or {}).get("content", "") if isinstance(extra.get(key), dict) else extra.get(key) or ""
    tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
    config.tokens = min(config.vocab, tokenizer.get_vocab_size())
    return config, raw, Text(tokenizer, template, named("bos_token"), named("eos_token"))
