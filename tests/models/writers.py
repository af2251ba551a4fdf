#!/usr/bin/env python3
"""Lets the classes of other projects save small drafters, and checks that the program reads each or refuses it by name.

Drafters belong to tests/golden/models/llama, their weights are random. Each writer saves a folder with its own classes and config, as
its trainer does. A drafter that is read decodes 12 tokens, whose text must equal plain decoding; a refused one ends with exit code 2
and names its family. A package that is not installed is named as skipped.

usage: writers.py --program BINARY [--only NAME] [--keep FOLDER]

    python3 -m venv v
    v/bin/pip install torch torchvision transformers pydantic-settings openai datasets omegaconf loguru pulp scipy nvidia-ml-py
    v/bin/pip install --no-deps speculators==0.9.0 hs-connectors==0.9.0 specforge==0.2.0 nvidia-modelopt==0.47.0 angelslim==0.5.0 medusa-llm==0.1
    v/bin/python tests/models/writers.py --program build/release/draftscope
"""
import argparse
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGET = ROOT / "tests/golden/models/llama"
WRITERS = {}


def writer(drafter, refused=None):
    """Registers a writer of a `drafter` checkpoint. `refused`: words of the message that refuses it; None = it is read."""
    def register(function):
        WRITERS[function.__name__] = (function, drafter, refused)
        return function
    return register


def layer_config(**changes):
    from transformers import LlamaConfig
    target = json.loads((TARGET / "config.json").read_text())
    values = {key: target[key] for key in ("hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size", "rms_norm_eps")}
    values |= {"intermediate_size": 96, "num_hidden_layers": 1, "max_position_embeddings": 256, "tie_word_embeddings": False, "pad_token_id": 0}
    return LlamaConfig(**(values | changes))


def maps(vocab, kept):
    """(t2d, d2t) of the `kept` most frequent tokens, as trainers make them: offsets of ascending ids."""
    import torch
    ids = torch.arange(1, vocab, (vocab - 1) // kept)[:kept]
    t2d = torch.zeros(vocab, dtype=torch.bool)
    t2d[ids] = True
    return t2d, ids - torch.arange(kept)


def spread(module):
    """Random weights large enough that drafts differ from token 0."""
    import torch
    for name, value in module.named_parameters():
        if value.dim() > 1:
            torch.nn.init.normal_(value, std=0.2)
    return module


def speculators_config(model_class, config_class, name, folder, **changes):
    from speculators.config import SpeculatorsConfig, VerifierConfig
    from speculators.proposals.greedy import GreedyTokenProposalConfig
    verifier = VerifierConfig(name_or_path=str(TARGET), architectures=["LlamaForCausalLM"])
    about = SpeculatorsConfig(algorithm=name, proposal_methods=[GreedyTokenProposalConfig(speculative_tokens=3)], default_proposal_method="greedy",
                              verifier=verifier)
    vocab = layer_config().vocab_size
    config = config_class(**({"transformer_layer_config": layer_config(), "speculators_config": about} | changes))
    model = spread(model_class(config=config))
    if getattr(config, "draft_vocab_size", vocab) != vocab:
        model.load_vocab_mappings(*maps(vocab, config.draft_vocab_size))
    model.save_pretrained(folder)


@writer("eagle3")
def speculators_eagle3(folder):
    from speculators.models.eagle3 import Eagle3DraftModel, Eagle3SpeculatorConfig
    speculators_config(Eagle3DraftModel, Eagle3SpeculatorConfig, "eagle3", folder, draft_vocab_size=layer_config().vocab_size)


@writer("eagle3")
def speculators_eagle3_trimmed(folder):
    from speculators.models.eagle3 import Eagle3DraftModel, Eagle3SpeculatorConfig
    speculators_config(Eagle3DraftModel, Eagle3SpeculatorConfig, "eagle3", folder, draft_vocab_size=100, norm_before_residual=True)


@writer("eagle3")
def speculators_eagle3_norms(folder):
    from speculators.models.eagle3 import Eagle3DraftModel, Eagle3SpeculatorConfig
    speculators_config(Eagle3DraftModel, Eagle3SpeculatorConfig, "eagle3", folder, draft_vocab_size=100, fc_norm=True, norm_output=True,
                       eagle_aux_hidden_state_layer_ids=[0, 1, 2])


@writer("eagle3", refused=("p-eagle", "peagle"))
def speculators_peagle(folder):
    from speculators.models.peagle import PEagleDraftModel, PEagleSpeculatorConfig
    speculators_config(PEagleDraftModel, PEagleSpeculatorConfig, "peagle", folder, draft_vocab_size=100)


@writer("eagle3", refused=("dflash",))
def speculators_dflash(folder):
    from speculators.models.dflash import DFlashDraftModel, DFlashSpeculatorConfig
    speculators_config(DFlashDraftModel, DFlashSpeculatorConfig, "dflash", folder, draft_vocab_size=100, aux_hidden_state_layer_ids=[0, 1, 2],
                       mask_token_id=0)


@writer("eagle3", refused=("mtp", "multi-token"))
def speculators_mtp(folder):
    from speculators.models.mtp import MTPDraftModel, MTPSpeculatorConfig
    from transformers import Qwen3Config
    config = layer_config().to_dict()
    config = Qwen3Config(**{key: config[key] for key in ("hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size", "num_hidden_layers")})
    speculators_config(MTPDraftModel, MTPSpeculatorConfig, "mtp", folder, transformer_layer_config=config)


def specforge_eagle3_as(folder, **changes):
    import torch
    from specforge.modeling.draft.llama3_eagle import LlamaForCausalLMEagle3
    config = layer_config(draft_vocab_size=100, architectures=["LlamaForCausalLMEagle3"], **changes)
    model = spread(LlamaForCausalLMEagle3(config))
    model.t2d, model.d2t = maps(config.vocab_size, 100)
    # Its trainer saves the state without the embedding.
    state = {name: value for name, value in model.state_dict().items() if "embed" not in name.lower()}
    model.to(torch.bfloat16).save_pretrained(folder, state_dict={n: v.to(torch.bfloat16) if v.is_floating_point() else v for n, v in state.items()})


@writer("eagle3")
def specforge_eagle3(folder):
    specforge_eagle3_as(folder)


@writer("eagle3")
def specforge_eagle3_norms(folder):
    specforge_eagle3_as(folder, fc_norm=True, norm_output=True)


@writer("eagle3", refused=("dflash",))
def specforge_dflash(folder):
    from specforge.modeling.draft.dflash import DFlashDraftModel
    config = layer_config(architectures=["DFlashDraftModel"], num_target_layers=3, block_size=4, layer_types=["full_attention"],
                          dflash_config={"target_layer_ids": [1], "mask_token_id": 0})
    config.attention_bias = False
    spread(DFlashDraftModel(config)).save_pretrained(folder)


@writer("eagle3")
def angelslim_eagle3(folder):
    import importlib.util
    import types
    place = Path(importlib.util.find_spec("angelslim").submodule_search_locations[0])
    # The package leaves out a module that its own indices import, so the folders above the class are taken without their indices.
    for name in ("angelslim", "angelslim.compressor", "angelslim.compressor.speculative", "angelslim.compressor.speculative.train",
                 "angelslim.compressor.speculative.train.models", "angelslim.compressor.speculative.train.models.draft",
                 "angelslim.compressor.speculative.train.data"):
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__path__ = [str(place.joinpath(*name.split(".")[1:]))]
    from angelslim.compressor.speculative.train.models.draft.llama_eagle3 import Eagle3LlamaForCausalLM
    config = layer_config(draft_vocab_size=100, architectures=["Eagle3LlamaForCausalLM"], rope_scaling=None)
    config.rope_scaling, config.rope_theta = None, 10000.0
    model = spread(Eagle3LlamaForCausalLM(config))
    model.t2d, model.d2t = maps(config.vocab_size, 100)
    model.save_pretrained(folder, state_dict={name: value for name, value in model.state_dict().items() if "embed" not in name})


def modelopt(folder, mode, settings):
    import torch
    import modelopt.torch.speculative as mtsp
    from modelopt.torch.export.plugins import hf_spec_export
    from transformers import AutoModelForCausalLM
    model = AutoModelForCausalLM.from_pretrained(TARGET, dtype=torch.float32)
    mtsp.convert(model, [(mode, settings)])
    exporter = {"eagle": hf_spec_export.EagleExporter}[mode]
    exporter(model).export(folder)


@writer("eagle3")
def modelopt_eagle3(folder):
    from modelopt.torch.speculative.config import EAGLE3_DEFAULT_CFG
    settings = json.loads(json.dumps(EAGLE3_DEFAULT_CFG["config"])) if "config" in EAGLE3_DEFAULT_CFG else {}
    settings["eagle_architecture_config"] = (settings.get("eagle_architecture_config") or {}) | {
        "num_hidden_layers": 1, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
    modelopt(folder, "eagle", settings)


@writer("medusa")
def medusa_llm(folder):
    import torch
    from types import SimpleNamespace
    from medusa.model import medusa_model
    from transformers import AutoModelForCausalLM
    medusa_model.AutoTokenizer = SimpleNamespace(from_pretrained=lambda *_, **__: None)  # saving needs none
    MedusaConfig, MedusaModel = medusa_model.MedusaConfig, medusa_model.MedusaModel
    base = AutoModelForCausalLM.from_pretrained(TARGET, dtype=torch.float32)
    model = MedusaModel(base, medusa_num_heads=3, medusa_num_layers=1, base_model_name_or_path=str(TARGET))
    Path(folder).mkdir(parents=True)
    torch.save(model.medusa_head.state_dict(), Path(folder) / "medusa_lm_head.pt")
    MedusaConfig(medusa_num_heads=3, medusa_num_layers=1, base_model_name_or_path=str(TARGET)).save_pretrained(folder)


def run(options, drafter):
    done = subprocess.run([options.program, "run", "--model", TARGET, "--prompt", "The draft proposes", "--max-new", "12", "--precision", "f32", "--ignore-eos",
                           "--drafter", drafter, "--quiet", "--json", *([] if drafter == "none" else ["--tree", "chain=3", "--calibrate", "0"])],
                          capture_output=True, text=True)
    return done, json.loads(done.stdout) if done.returncode == 0 else None


def verdict(options, folder, drafter, refused, plain):
    done, result = run(options, f"{drafter}:{folder}")
    last = (done.stderr.strip().split("\n") or [""])[-1]
    if refused:
        named = any(word in last.replace(str(folder), "").lower() for word in refused)
        return (done.returncode == 2 and named), f"exit {done.returncode}: {last}"
    if result is None:
        return False, f"exit {done.returncode}: {last}"
    same = result["prompts"][0]["tokens"] == plain
    return same, "read" + ("" if same else ", but the text differs from plain decoding") + "".join(f"\n    note: {one}" for one in result["notes"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--only", help="writers whose name contains this")
    parser.add_argument("--keep", help="folder that keeps the checkpoints")
    options = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    plain = run(options, "none")[1]["prompts"][0]["tokens"]
    counts = {"right": 0, "WRONG": 0, "SKIPPED": 0}
    with tempfile.TemporaryDirectory() as scratch:
        for name, (function, drafter, refused) in WRITERS.items():
            if options.only and options.only not in name:
                continue
            folder = Path(options.keep or scratch) / name
            try:
                with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                    import torch
                    torch.manual_seed(7)
                    function(folder)
            except Exception as error:  # the package or one that it needs is missing, or its classes have changed
                state, text = "SKIPPED", f"it could not save: {type(error).__name__}: {error}"
            else:
                good, text = verdict(options, folder, drafter, refused, plain)
                state = "right" if good else "WRONG"
            counts[state] += 1
            print(f"{state:7} {name}: {text[:400]}", flush=True)
    print(", ".join(f"{count} {state}" for state, count in counts.items()))
    sys.exit(1 if counts["WRONG"] else 77 if not counts["right"] else 0)


if __name__ == "__main__":
    main()
