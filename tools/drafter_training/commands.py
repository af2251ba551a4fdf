"""The subcommands of train_drafter.py."""
import json
import pathlib
import random

import torch


def _load(args):
    from . import target

    if args.threads:
        torch.set_num_threads(args.threads)
    return target.load(args.target, {"bf16": torch.bfloat16, "f32": torch.float32}[args.dtype], args.device)


def _records(paths):
    found = []
    for path in paths:
        for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
            if not line.strip():
                continue
            record = json.loads(line)
            if "turns" not in record and "prompt" not in record:
                raise SystemExit(f"{path}:{number}: neither 'prompt' nor 'turns'")
            record.setdefault("id", record.get("question_id", record.get("task_id", f"{path.stem}-{number}")))
            found.append(record)
    return found


SHARES = {"writing": 9, "roleplay": 9, "reasoning": 9, "math": 9, "coding": 9, "extraction": 9, "stem": 9, "humanities": 9, "translation": 6,
          "summarization": 6, "qa": 8, "rag": 4, "gsm": 0}


def _split(count):
    """How many conversations of each kind; what the shares leave over goes to the first kinds, one each."""
    total = sum(SHARES.values())
    counts = {kind: count * share // total for kind, share in SHARES.items() if share}
    for kind in list(counts)[: count - sum(counts.values())]:
        counts[kind] += 1
    return counts


def _overlap(exclude):
    from . import make_prompts as m

    return m.Overlap([t for r in _records(exclude) for t in (r.get("turns") or [r["prompt"]])])


def _write_prompts(records, out):
    with open(out, "w", encoding="utf-8") as file:
        for record in records:
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
    print(f"{len(records)} conversations, {sum(len(r.get('turns') or [0]) for r in records)} turns")


def prompts(args):
    from . import make_prompts as m

    overlap = _overlap(args.exclude)
    passages = [p for p in (m.passages_of(args.passages) if args.passages else []) if not overlap.hits(p)]
    if args.passages and not passages:
        raise SystemExit(f"--passages {args.passages}: no paragraph of 300 to 1600 characters that --exclude allows; leave it out or give a file with longer texts")
    passages = passages or [" ".join(m.ENGLISH)]
    made = m.make(args.seed, _split(args.count), passages, overlap)
    if len(made) < args.count:
        print(f"{len(made)} of {args.count} conversations: the templates gave no more that differ and that --exclude allows")
    for item in args.add:
        path, _, count = str(item).rpartition(":")
        path, count = (pathlib.Path(path), int(count)) if path and count.isdigit() else (item, None)
        extra = [r for r in _records([path]) if not any(map(overlap.hits, r.get("turns") or [r["prompt"]]))]
        made += random.Random(args.seed).sample(extra, min(count, len(extra))) if count else extra
    _write_prompts(made, args.out)


def magpie(args):
    from . import magpie as m

    target, text = _load(args)
    _write_prompts(m.write(target, text, args.count, args.seed, args.temperature, _overlap(args.exclude).hits), args.out)


def generate(args):
    from . import generate as g

    target, text = _load(args)
    g.run(target, text, _records(args.prompts), args.out, args.max_new, args.temperature, args.seed, pathlib.Path(args.target).name, args.worker,
          args.tokens)


def features(args):
    from . import features as f

    target, _ = _load(args)
    records = [r for path in args.corpus for r in f.read_corpus(path, args.temperature, args.least)]
    random.Random(1).shuffle(records)
    f.run(target, records, args.out, pathlib.Path(args.target).name, args.temperature, args.worker)


def train(args):
    from . import training

    target, _ = _load(args)
    training.run(args, target)


def fit(args):
    """For `draftscope fit`, which reads stdout: a line that begins with "error" is shown to the user."""
    import signal

    from . import heads

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is draftscope's, which then ends this process
    try:
        heads.run(args.folder, args.device, args.threads)
    except SystemExit as refused:
        print(f"error {refused}", flush=True)
        raise SystemExit(2) from None


def export(args):
    from . import training

    training.export_checkpoint(args.checkpoint, args.out)


def check(args):
    from . import selfcheck

    selfcheck.run()
