#!/usr/bin/env python3
"""Makes tests/golden/draft_model.json: the rounds of transformers' assisted generation, where a small model drafts.

The target is tests/golden/models/llama. The draft model is its first two of three layers, so that it is often right. The
file has, for each case, the prompt, the length of a draft, the tokens that end a text, the text, and in each round the
drafted tokens and how many of them were accepted.

    pip install torch transformers
    tools/make_draft_model_golden.py
"""
import json
import pathlib

import torch
import transformers
from transformers import LlamaForCausalLM
from transformers.generation.candidate_generator import AssistedCandidateGenerator

ROOT = pathlib.Path(__file__).resolve().parent.parent
NEW_TOKENS = 40
DRAFT_LAYERS = 2
CLEAR = 2e-3  # least lead of a greedy token: far above the rounding of a float32 engine
NO_END = 300


def load(layers=None):
    folder = ROOT / "tests/golden/models/llama"
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager").eval()
    if layers is not None:
        model.model.layers = model.model.layers[:layers]
        model.config.num_hidden_layers = layers
    return model


@torch.no_grad()
def is_clear(model, tokens, first):
    """Whether the best token leads at every position from `first` on."""
    best = model(torch.tensor([tokens])).logits[0, first - 1:].topk(2).values
    return bool((best[:, 0] - best[:, 1] > CLEAR).all())


@torch.no_grad()
def decode(target, draft, base, k, end):
    # An engine's prefill has chosen the first token before a draft.
    prompt = base + [int(target(torch.tensor([base])).logits[0, -1].argmax())]
    rounds = []
    update, propose = AssistedCandidateGenerator.update_candidate_strategy, AssistedCandidateGenerator.get_candidates

    def watch_update(self, input_ids, scores, num_matches):
        rounds[-1]["accepted"] = int(num_matches)
        return update(self, input_ids, scores, num_matches)

    def watch_propose(self, input_ids, *args, **kwargs):
        candidates, logits = propose(self, input_ids, *args, **kwargs)
        known = input_ids.shape[1]
        rounds.append({"text": known, "drafted": candidates[0, known:].tolist()})
        return candidates, logits

    AssistedCandidateGenerator.update_candidate_strategy = watch_update
    AssistedCandidateGenerator.get_candidates = watch_propose
    for model in (target, draft):
        model.generation_config.eos_token_id = end
        model.generation_config.pad_token_id = end
    draft.generation_config.num_assistant_tokens = k
    draft.generation_config.num_assistant_tokens_schedule = "constant"
    draft.generation_config.assistant_confidence_threshold = 0
    ids = torch.tensor([prompt])
    out = target.generate(ids, attention_mask=torch.ones_like(ids), assistant_model=draft, do_sample=False,
                          max_new_tokens=NEW_TOKENS, eos_token_id=end)[0].tolist()
    AssistedCandidateGenerator.update_candidate_strategy, AssistedCandidateGenerator.get_candidates = update, propose
    for one in rounds:
        drafted = out[:one["text"]] + one["drafted"]
        if one["drafted"] and not is_clear(draft, drafted[:-1], one["text"]):
            return None
    if not is_clear(target, out[:-1], len(base)):
        return None
    return {"prompt": base, "k": k, "end": end, "text": out[len(base):],
            "rounds": [[one["accepted"], one["drafted"]] for one in rounds if "accepted" in one]}


def main():
    torch.set_num_threads(1)
    target, draft = load(), load(DRAFT_LAYERS)
    text = json.loads((ROOT / "tests/golden/models/llama/golden.json").read_text())["prompt"]
    cases, seen = [], set()
    for length in range(len(text), 2, -1):
        for k in (3, 5):
            if len(cases) == 4:
                break
            case = decode(target, draft, text[:length], k, NO_END)
            if case is None or tuple(case["text"]) in seen:
                continue
            counts = {accepted for accepted, _ in case["rounds"]}
            if not {0, k} <= counts:
                continue
            seen.add(tuple(case["text"]))
            cases.append(case)
    plain = list(cases)
    # A token within an accepted part of a draft, and one within a rejected part, ends the text.
    ends = []
    for case in cases:
        for accepted, drafted in case["rounds"][2:]:
            for place, end in enumerate(drafted[:-1]):
                if end in case["prompt"] + case["text"][:1] or any(e["inside"] == (place < accepted) for e in ends):
                    continue
                ended = decode(target, draft, case["prompt"], case["k"], end)
                if ended is not None:
                    ends.append({**ended, "inside": place < accepted})
    for case in ends:
        del case["inside"]
    out = {"source": f"transformers {transformers.__version__}", "layers": DRAFT_LAYERS, "cases": plain + ends}
    path = ROOT / "tests/golden/draft_model.json"
    path.write_text(json.dumps(out, separators=(",", ":")).replace('{"prompt', '\n{"prompt') + "\n")
    print(path, path.stat().st_size, "bytes,", len(plain), "+", len(ends), "cases")


if __name__ == "__main__":
    main()
