#!/usr/bin/env python3
"""Writes an EAGLE-3 folder without a vocabulary of its own as the GGUF that llama.cpp loads (--spec-type draft-eagle3).
Sizes come from the folder's config, the tokenizer from the target; LM head and embedding stay the target's.

Usage: make_peer_drafter.py DRAFTER_FOLDER TARGET.gguf OUT.gguf      needs: pip install gguf numpy
"""
import json
import struct
import sys
from pathlib import Path

import gguf
import numpy as np

LAYER = "midlayer."
# Names of the folder and of the GGUF. Vectors become f32; rows of q and k go to llama.cpp's order.
TENSORS = {
    "fc": "fc",
    "norm": "output_norm",
    LAYER + "input_layernorm": "blk.0.attn_norm",
    LAYER + "hidden_norm": "blk.0.attn_norm_2",
    LAYER + "self_attn.q_proj": "blk.0.attn_q",
    LAYER + "self_attn.k_proj": "blk.0.attn_k",
    LAYER + "self_attn.v_proj": "blk.0.attn_v",
    LAYER + "self_attn.o_proj": "blk.0.attn_output",
    LAYER + "post_attention_layernorm": "blk.0.ffn_norm",
    LAYER + "mlp.gate_proj": "blk.0.ffn_gate",
    LAYER + "mlp.up_proj": "blk.0.ffn_up",
    LAYER + "mlp.down_proj": "blk.0.ffn_down",
}


def read_tensors(path):
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    tensors = {}
    for name, info in header.items():
        if info["dtype"] != "F16":
            sys.exit(f"{path}: tensor {name} has type {info['dtype']}; only F16 is written")
        begin, end = info["data_offsets"]
        tensors[name] = np.frombuffer(data[8 + size + begin:8 + size + end], np.float16).reshape(info["shape"])
    return tensors


def interleave(values, heads):
    """Reorders the rows of each head from two halves to pairs."""
    return values.reshape(heads, 2, values.shape[0] // heads // 2, values.shape[1]).swapaxes(1, 2).reshape(values.shape)


def write_settings(writer, config, target):
    head = config["head_dim"]
    writer.add_block_count(1)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(head)
    writer.add_value_length(head)
    writer.add_rope_dimension_count(head)
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_array("eagle3.target_layers", config["eagle_config"]["eagle_aux_hidden_state_layer_ids"])
    writer.add_uint32("eagle3.target_hidden_size", config["target_hidden_size"])
    for field in gguf.GGUFReader(target).fields.values():
        if not field.name.startswith("tokenizer."):
            continue
        if field.types[0] == gguf.GGUFValueType.ARRAY:
            writer.add_array(field.name, field.contents())
        else:
            writer.add_key_value(field.name, field.contents(), field.types[0])


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    folder, target, out = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    config = json.loads((folder / "config.json").read_text())
    if config["draft_vocab_size"] != config["vocab_size"]:
        sys.exit(f"{folder}: draft_vocab_size {config['draft_vocab_size']} is a vocabulary of its own; this script writes none")
    tensors = read_tensors(folder / "model.safetensors")
    part = out.with_suffix(".part")
    writer = gguf.GGUFWriter(part, "eagle3")
    write_settings(writer, config, target)
    for source, name in TENSORS.items():
        values = tensors.pop(source + ".weight")
        if name.endswith(("attn_q", "attn_k")):
            values = interleave(values, config["num_attention_heads" if name.endswith("q") else "num_key_value_heads"])
        writer.add_tensor(name + ".weight", np.ascontiguousarray(values if values.ndim == 2 else values.astype(np.float32)))
    if tensors:
        sys.exit(f"{folder}: tensors {', '.join(tensors)} are not known; this script writes drafters like the demo's eagle3")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    part.rename(out)
    print(out)


if __name__ == "__main__":
    main()
