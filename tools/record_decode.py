#!/usr/bin/env python3
"""Records a target's decode as a Draftscope trace (docs/FORMATS.md, "Traces") with transformers, for any causal LM
that transformers can run. `draftscope replay` and `draftscope fit` read the result without the target.

usage: tools/record_decode.py --model FOLDER_OR_NAME --prompts F.jsonl --out DIR
         [--max-new 128] [--limit N] [--temperature T --seed S --top-p P --top-k K] [--dtype auto|float32|bfloat16]
         [--device-map auto|cpu|cuda:0] [--aux 2,15,27|none] [--ignore-eos] [--raw] [--no-weights]

Large targets: --device-map auto spreads the layers over the GPUs of a machine (needs the package `accelerate`).

With vLLM or another server: let it generate the texts, keep prompt and text as token ids, one JSON object per line
({"id", "category", "turn", "prompt_ids": [...], "text_ids": [...], "first_turn": "..."}), and give that file with
--texts instead of --prompts: the model then only reads them (teacher forcing), which costs one pass over each text.
A trace made so is exact for the texts that the server produced; set --temperature to the one it sampled with.

The rows are: the hidden state after the final norm, the residual streams entering the --aux layers, and the 32 best
tokens to follow, with ties to the lower id. Greedy texts are recomputed from these rows (argmax of the logits), so a
text and its rows never disagree; a sampled text is drawn with torch's generator (seed, then one draw per token).
"""
import argparse
import json
import struct
import sys
from pathlib import Path

import torch
import transformers

TOPK = 32


def prompt_hash(text):
    """FNV-1a, 64 bits, of the text without white space at its ends, as Draftscope names prompts."""
    value = 0xCBF29CE484222325
    for byte in text.strip(" \t\r\n\f\v").encode("utf-8"):
        value = ((value ^ byte) * 0x100000001B3) % (1 << 64)
    return f"{value:016x}"


class SafetensorsWriter:
    """Tensors of a growing number of rows: each in a file of its own, joined at the end. Memory stays bounded."""

    TYPES = {"I32": torch.int32, "BF16": torch.bfloat16, "F16": torch.float16}

    def __init__(self, folder, tensors):
        self.folder, self.tensors, self.rows = folder, tensors, 0
        self.files = {name: open(folder / f"{name}.part", "wb") for name in tensors}

    def append(self, rows):
        count = len(rows["tokens"])
        for name, (kind, columns) in self.tensors.items():
            value = rows[name].to(self.TYPES[kind]).contiguous().cpu()
            assert value.numel() == count * max(columns, 1), name
            self.files[name].write(value.view(torch.uint8).numpy().tobytes())
        self.rows += count

    def finish(self, path):
        header, offset = {"__metadata__": {"format": "draftscope-trace"}}, 0
        for name, (kind, columns) in self.tensors.items():
            size = self.rows * max(columns, 1) * self.TYPES[kind].itemsize
            shape = [self.rows, columns] if columns else [self.rows]
            header[name] = {"dtype": kind, "shape": shape, "data_offsets": [offset, offset + size]}
            offset += size
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with open(path, "wb") as out:
            out.write(struct.pack("<Q", len(text)) + text)
            for name, file in self.files.items():
                file.close()
                with open(file.name, "rb") as part:
                    while chunk := part.read(1 << 20):
                        out.write(chunk)
                Path(file.name).unlink()


class Recorder:
    """A model that reads a text and says what the trace wants of each position."""

    def __init__(self, model, aux_layers):
        self.model, self.aux_layers = model, aux_layers
        self.past, self.rows = None, None

    def begin(self):
        self.past = None
        self.rows = {"hidden": [], "aux": [], "topk_ids": [], "topk_logprobs": []}

    @torch.no_grad()
    def read(self, ids):
        """Goes on with `ids`, keeps their rows, returns the logits after the last one."""
        device = self.model.get_input_embeddings().weight.device
        out = self.model(input_ids=torch.tensor([ids], device=device), past_key_values=self.past, use_cache=True,
                         output_hidden_states=True)
        self.past = out.past_key_values
        # hidden_states[i] enters layer i; the last one comes after the final norm.
        states = out.hidden_states
        self.rows["hidden"].append(states[-1][0].float().cpu())
        if self.aux_layers:
            self.rows["aux"].append(torch.cat([states[i][0].float().cpu() for i in self.aux_layers], dim=-1))
        logits = out.logits[0].float().cpu()
        best, ids_of = self.best(logits)
        self.rows["topk_ids"].append(ids_of)
        self.rows["topk_logprobs"].append(best - logits.logsumexp(-1, keepdim=True))
        return logits[-1]

    @staticmethod
    def best(logits):
        """The best logits of each row and their ids, ties to the lower id."""
        k = min(TOPK, logits.shape[-1])
        values, ids = torch.sort(logits, dim=-1, descending=True, stable=True)
        values, ids = values[:, :k], ids[:, :k]
        if k < TOPK:  # a smaller vocabulary: the last token again, at no probability
            pad = TOPK - k
            values = torch.cat([values, torch.full((len(values), pad), -torch.inf)], dim=-1)
            ids = torch.cat([ids, ids[:, -1:].expand(-1, pad)], dim=-1)
        return values, ids

    def take(self, tokens):
        rows = {name: torch.cat(parts) for name, parts in self.rows.items() if parts}
        rows["tokens"] = torch.tensor(tokens)
        return rows


def choose(logits, args, generator):
    if args.temperature <= 0:
        return int((logits == logits.max()).nonzero()[0])  # ties to the lower id
    scaled = logits / args.temperature
    if args.top_k > 0:
        scaled[scaled < scaled.topk(min(args.top_k, len(scaled))).values[-1]] = -torch.inf
    probs = scaled.softmax(-1)
    if args.top_p < 1:
        order = probs.argsort(descending=True, stable=True)
        before = probs[order].cumsum(-1) - probs[order]
        probs[order[before >= args.top_p]] = 0
    return int(torch.multinomial(probs, 1, generator=generator))


def decode(recorder, prompt, args, eos, context, generator):
    """Text of one prompt and why it ended; the recorder holds a row for every token."""
    recorder.begin()
    text, logits = [], recorder.read(prompt)
    while True:
        token = choose(logits, args, generator)
        text.append(token)
        logits = recorder.read([token])
        if not args.ignore_eos and token in eos:
            return text, "eos"
        if len(text) >= args.max_new:
            return text, "length"
        if len(prompt) + len(text) >= context:
            return text, "context"


def turns_of(path, limit):
    """(id, category, [user turns]) of a prompt file."""
    with open(path, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file if line.strip()]
    for ordinal, entry in enumerate(lines[: limit or None]):
        name = next((entry[key] for key in ("id", "question_id", "task_id") if key in entry), ordinal)
        yield str(name), str(entry.get("category", "")), entry.get("turns") or [entry["prompt"]]


def conversations(path, limit, tokenizer, args, answer):
    """Plays a prompt file: yields (prompt fields, prompt ids) and asks `answer` for the text of the turn before."""
    for name, category, turns in turns_of(path, limit):
        messages, raw = [], ""
        for turn, user in enumerate(turns):
            if turn > 0:
                text = tokenizer.decode(answer(), skip_special_tokens=True)
                messages.append({"role": "assistant", "content": text})
                raw += text
            messages.append({"role": "user", "content": user})
            raw += user
            if args.raw or tokenizer.chat_template is None:
                ids = tokenizer(raw, add_special_tokens=True)["input_ids"]
            else:
                ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True)
            yield {"id": name, "category": category, "turn": turn, "hash": prompt_hash(turns[0])}, ids


def given_texts(path, limit):
    with open(path, encoding="utf-8") as file:
        for ordinal, line in enumerate(file):
            if limit and ordinal >= limit:
                return
            entry = json.loads(line)
            fields = {"id": str(entry.get("id", ordinal)), "category": entry.get("category", ""),
                      "turn": entry.get("turn", 0), "hash": prompt_hash(entry.get("first_turn", ""))}
            yield fields, entry["prompt_ids"], entry["text_ids"]


def end_tokens(model, tokenizer):
    ends = model.generation_config.eos_token_id
    ends = ends if isinstance(ends, list) else [ends]
    return sorted({end for end in [*ends, tokenizer.eos_token_id if tokenizer else None] if end is not None})


def aux_layers(text, layers):
    if text == "none":
        return []
    if text:
        return [int(part) for part in text.split(",")]
    return [2, layers // 2, layers - 3] if layers >= 6 else [min(1, layers - 1), layers // 2, layers - 1]


def write_weights(model, path):
    from safetensors.torch import save_file

    embedding = model.get_input_embeddings().weight.detach().cpu()
    head = model.get_output_embeddings().weight.detach().cpu()
    tensors = {"model.embed_tokens.weight": embedding.contiguous()}
    if head.data_ptr() != embedding.data_ptr() and not model.config.tie_word_embeddings:
        tensors["lm_head.weight"] = head.contiguous()
    save_file(tensors, str(path))


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--prompts", help="JSONL with `prompt` or `turns`")
    source.add_argument("--texts", help="JSONL with prompt_ids and text_ids from another engine")
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--limit", type=int, default=0)
    parser.add_argument("--max-new", type=int, default=128)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--top-p", type=float, default=1.0)
    parser.add_argument("--top-k", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dtype", default="auto", choices=["auto", "float32", "bfloat16", "float16"])
    parser.add_argument("--device-map", default=None)
    parser.add_argument("--aux", default="")
    parser.add_argument("--ignore-eos", action="store_true")
    parser.add_argument("--raw", action="store_true")
    parser.add_argument("--no-weights", action="store_true", help="replay will need the target's own files")
    return parser.parse_args()


def load(args):
    dtype = "auto" if args.dtype == "auto" else getattr(torch, args.dtype)
    placing = {"device_map": args.device_map} if args.device_map else {}
    model = transformers.AutoModelForCausalLM.from_pretrained(args.model, torch_dtype=dtype, **placing).eval()
    return model, None if args.texts else load_tokenizer(args)


def load_tokenizer(args):
    try:
        return transformers.AutoTokenizer.from_pretrained(args.model)
    except (TypeError, ValueError, ImportError) as error:
        alone = Path(args.model) / "tokenizer.json"
        if not args.raw or not alone.exists():
            raise
        print(f"{args.model}: {error}; going on with tokenizer.json alone", file=sys.stderr)
        return transformers.PreTrainedTokenizerFast(tokenizer_file=str(alone))


def main():
    args = options()
    if (args.out / "trace.json").exists():
        sys.exit(f"{args.out}: holds a trace already")
    model, tokenizer = load(args)
    config = model.config.get_text_config()
    layers, hidden, vocab = config.num_hidden_layers, config.hidden_size, config.vocab_size
    context = config.max_position_embeddings
    aux, eos = aux_layers(args.aux, layers), end_tokens(model, tokenizer)
    args.out.mkdir(parents=True, exist_ok=True)
    tensors = {"aux": ("BF16", len(aux) * hidden)} if aux else {}
    tensors |= {"hidden": ("BF16", hidden), "topk_ids": ("I32", TOPK), "topk_logprobs": ("F16", TOPK),
                "tokens": ("I32", 0)}
    writer, recorder, prompts = SafetensorsWriter(args.out, tensors), Recorder(model, aux), []
    generator = torch.Generator().manual_seed(args.seed)
    suite, complete, text = Path(args.prompts or args.texts).stem, True, []

    def keep(fields, ids, finish):
        prompts.append(fields | {"suite": suite, "first_row": writer.rows, "prompt_tokens": len(ids),
                                 "generated_tokens": len(text), "finish": finish})
        writer.append(recorder.take(ids + text))

    try:
        if args.texts:
            for fields, ids, text in given_texts(args.texts, args.limit):
                recorder.begin()
                recorder.read(ids + text)
                keep(fields, ids, "eos" if text[-1] in eos else "length")
        else:
            for fields, ids in conversations(args.prompts, args.limit, tokenizer, args, lambda: text):
                if len(ids) >= context:
                    continue
                text, finish = decode(recorder, ids, args, eos, context, generator)
                keep(fields, ids, finish)
                print(f"{len(prompts)} turns, {writer.rows} rows", end="\r", file=sys.stderr)
    except KeyboardInterrupt:
        complete = False  # the turns that ended are kept
    if not prompts:
        sys.exit("nothing was recorded")
    writer.finish(args.out / "trace.safetensors")
    if not args.no_weights:
        write_weights(model, args.out / "weights.safetensors")
    max_new = max([args.max_new, *(prompt["generated_tokens"] for prompt in prompts)])
    info = {
        "format": "draftscope-trace", "version": 1, "source": f"transformers {transformers.__version__}",
        "target": {"name": Path(args.model).name, "layers": layers, "hidden": hidden, "vocab": vocab,
                   "tokens": min(vocab, len(tokenizer)) if tokenizer else vocab, "context": context,
                   "tokenizer_hash": None, "eos": eos},
        "sampling": {"temperature": args.temperature, "top_p": args.top_p, "top_k": args.top_k, "seed": args.seed},
        "max_new": max_new, "ignore_eos": args.ignore_eos, "raw": args.raw,
        "backend": None, "isa": None, "precision": None, "aux_layers": aux, "rows": writer.rows,
        "complete": complete, "times": {"verify_ns": {}, "overhead_ns": None}, "prompts": prompts}
    (args.out / "trace.json").write_text(json.dumps(info, indent=1) + "\n", encoding="utf-8")
    print(f"{args.out}: {len(prompts)} turns, {writer.rows} rows", file=sys.stderr)


if __name__ == "__main__":
    main()
