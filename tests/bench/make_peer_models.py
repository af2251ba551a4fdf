#!/usr/bin/env python3
"""Writes the demo model's weights as GGUF files of other types, for comparing like with like:
demo.f32.gguf, demo.bf16.gguf, demo.q8_0.gguf, demo.q4_0.gguf. Every matrix, the embedding included, has the
file's type; vectors stay F32. `folder` writes the dequantised weights as a model hub's folder instead, in float32.

Usage: make_peer_models.py MODEL.gguf OUT_FOLDER [folder]      needs: pip install gguf numpy (safetensors for folder)
"""
import json
import sys
from pathlib import Path

import gguf
import numpy as np
from gguf import quants

TYPES = {
    "f32": gguf.GGMLQuantizationType.F32,
    "bf16": gguf.GGMLQuantizationType.BF16,
    "q8_0": gguf.GGMLQuantizationType.Q8_0,
    "q4_0": gguf.GGMLQuantizationType.Q4_0,
}


def copy_fields(reader, writer):
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name in ("general.architecture", "general.file_type"):
            continue
        kind = field.types[0]
        sub_kind = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), kind, sub_type=sub_kind)


def write(reader, kind, path):
    architecture = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(path, architecture)
    copy_fields(reader, writer)
    for tensor in reader.tensors:
        values = quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        values = values.reshape([int(n) for n in reversed(tensor.shape)])
        to = kind if values.ndim == 2 else gguf.GGMLQuantizationType.F32
        writer.add_tensor(tensor.name, quants.quantize(values, to), raw_dtype=to)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


# Names of a Llama GGUF and of a folder.
NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def folder_config(value, tied):
    hidden, heads = value("llama.embedding_length"), value("llama.attention.head_count")
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "torch_dtype": "float32",
        "hidden_size": hidden, "intermediate_size": value("llama.feed_forward_length"),
        "num_hidden_layers": value("llama.block_count"), "num_attention_heads": heads,
        "num_key_value_heads": value("llama.attention.head_count_kv"), "head_dim": hidden // heads,
        "max_position_embeddings": value("llama.context_length"), "vocab_size": value("llama.vocab_size"),
        "rope_theta": value("llama.rope.freq_base"), "rms_norm_eps": 1e-5, "tie_word_embeddings": tied,
        "bos_token_id": value("tokenizer.ggml.bos_token_id"), "eos_token_id": value("tokenizer.ggml.eos_token_id"),
        "pad_token_id": value("tokenizer.ggml.padding_token_id"),
    }


def folder_tokenizer(value):
    """tokenizer.json of a byte-level BPE whose digits stand alone, as SmolLM's."""
    tokens, types = value("tokenizer.ggml.tokens"), value("tokenizer.ggml.token_type")
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    added = [{"id": i, "content": token} | flags for i, token in enumerate(tokens) if types[i] == gguf.TokenType.CONTROL]
    bytes_ = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "post_processor": None,
        "added_tokens": added, "decoder": bytes_,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, bytes_]},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                  "vocab": {token: i for i, token in enumerate(tokens)}, "merges": value("tokenizer.ggml.merges")},
    }


def write_folder(reader, out):
    """Writes the dequantised weights, config and tokenizer of a Llama GGUF as a model hub's folder."""
    from safetensors.numpy import save_file

    def value(name):
        return reader.fields[name].contents()

    if value("tokenizer.ggml.pre") != "smollm" or value("general.architecture") != "llama":
        sys.exit("make_peer_models: only the demo model is written as a folder")
    heads = {"attn_q": value("llama.attention.head_count"), "attn_k": value("llama.attention.head_count_kv")}
    tensors = {}
    for tensor in reader.tensors:
        values = quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        values = values.reshape([int(n) for n in reversed(tensor.shape)])
        *block, name, _ = tensor.name.split(".")
        if name in heads:  # pairs become two halves
            values = values.reshape(heads[name], -1, 2, values.shape[1]).swapaxes(1, 2).reshape(values.shape)
        prefix = f"model.layers.{block[1]}." if block else ""
        tensors[f"{prefix}{NAMES[name]}.weight"] = np.ascontiguousarray(values)
    out.mkdir(parents=True, exist_ok=True)
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    texts = value("tokenizer.ggml.tokens")
    about = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": value("tokenizer.chat_template"),
             "model_max_length": value("llama.context_length"), "clean_up_tokenization_spaces": False}
    about |= {f"{key}_token": texts[value(f"tokenizer.ggml.{name}_token_id")]
              for key, name in (("bos", "bos"), ("eos", "eos"), ("pad", "padding"), ("unk", "unknown"))}
    (out / "tokenizer.json").write_text(json.dumps(folder_tokenizer(value), ensure_ascii=False))
    (out / "tokenizer_config.json").write_text(json.dumps(about))
    (out / "config.json").write_text(json.dumps(folder_config(value, "lm_head.weight" not in tensors)))


def main():
    if len(sys.argv) not in (3, 4) or sys.argv[3:] not in ([], ["folder"]):
        sys.exit(__doc__)
    reader = gguf.GGUFReader(sys.argv[1])
    out = Path(sys.argv[2])
    if sys.argv[3:]:
        return write_folder(reader, out)
    out.mkdir(parents=True, exist_ok=True)
    for name, kind in TYPES.items():
        path = out / f"demo.{name}.gguf"
        if path.exists():
            continue
        write(reader, kind, path.with_suffix(".part"))
        path.with_suffix(".part").rename(path)
        print(path)


if __name__ == "__main__":
    main()
