"""Prompts that a target writes itself: it goes on where the user is about to speak (Magpie, arXiv 2406.08464)."""
import torch

from .target import Cache

# Prompts of a batch, least and greatest number of tokens of a prompt, tokens among which each is drawn (our defaults).
TOGETHER, LEAST, LONGEST, BEST = 256, 4, 96, 100


def opening(text):
    """Token ids of a conversation up to the user's first word."""
    if not text.template:
        raise SystemExit("magpie: the target has no chat template, so it knows no user; give prompts to generate instead")
    mark = "\u0001user\u0001"
    return text.encode(text.render([{"role": "user", "content": mark}]).split(mark)[0])


@torch.inference_mode()
def turns(target, begin, temperature, generator):
    """Token ids of the user's turns of a batch, without the one that ends a turn. Those that are too long are dropped."""
    cache = Cache(target, TOGETHER, len(begin) + LONGEST)
    hidden, _ = target.forward(torch.tensor([begin] * TOGETHER, device=target.device), cache)
    cache.lengths[:] = len(begin)
    hidden, written, ended = hidden[:, -1], [[] for _ in range(TOGETHER)], {}
    active = list(range(TOGETHER))  # the turn in each row of the cache, ended ones until the batch shrinks
    for _ in range(LONGEST):
        logits = target.logits(hidden).float() / temperature
        logits, ids = logits.topk(min(BEST, logits.shape[-1]), -1)
        drawn = torch.multinomial(logits.softmax(-1).cpu(), 1, generator=generator)
        next_ids = ids.gather(1, drawn.to(ids.device))[:, 0]
        for turn, token in zip(active, next_ids.tolist()):
            if token in target.config.eos:
                ended.setdefault(turn, written[turn])
            elif turn not in ended:
                written[turn].append(token)
        rows = torch.tensor([row for row, turn in enumerate(active) if turn not in ended], device=target.device)
        if len(rows) == 0:
            break
        if len(rows) <= 0.75 * len(active):
            cache.select(rows, cache.capacity)
            next_ids, active = next_ids[rows], [active[row] for row in rows]
        hidden, _ = target.step(next_ids, cache)
    return list(ended.values())


def write(target, text, count, seed, temperature, unwanted):
    """Records of `count` prompts as `generate` reads them; `unwanted(prompt)` drops one."""
    if temperature <= 0:
        raise SystemExit(f"magpie: --temperature {temperature} would give one prompt only; it must be above 0")
    generator, begin, made, seen = torch.Generator().manual_seed(seed), opening(text), [], set()
    while len(made) < count:
        before = len(seen)
        for ids in turns(target, begin, temperature, generator):
            prompt = text.decode(ids).strip()
            if len(ids) >= LEAST and prompt not in seen and not unwanted(prompt):
                made.append({"id": f"magpie-{seed}-{len(made)}", "category": "magpie", "prompt": prompt})
            seen.add(prompt)
        print(f"{len(made)} prompts", flush=True)
        if len(seen) == before:
            raise SystemExit(f"magpie: none of {TOGETHER} turns of the user is new and ends within {LONGEST} tokens; raise --temperature, or give prompts to generate instead")
    return made[:count]
