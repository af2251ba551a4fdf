"""The four trained drafters as torch modules over the target's features, with the published tensor names.

A batch holds whole conversations: `tokens` [B, L], `hidden` [B, L, d], `aux` [B, L, 3d] and `at` [B, R], the rows
drafting starts from (padding points at row 0 and is masked by `Batch.wanted`). A drafter started at row t knows the
features of rows up to t and token t + 1; step k predicts token t + 2 + k, given the true tokens between.
`steps(batch)` yields for k = 0, 1, ... the vectors [B, R, d] that the target's LM head turns into logits."""
import torch
import torch.nn.functional as F
from torch import nn

from .target import rms, rope_frequencies, rope_tables, rotate


def following(values, at, ahead):
    """values [B, L, ...] at rows `at + ahead`, clipped to the last row: [B, R, ...]."""
    rows = (at + ahead).clamp(max=values.shape[1] - 1)
    if values.dim() == 2:
        return values.gather(1, rows)
    return values.gather(1, rows[..., None].expand(*rows.shape, values.shape[2]))


class Eagle(nn.Module):
    """EAGLE-2 (generation 2: fc over [embedding; feature], layer without input norm, feature regressed too) and
    EAGLE-3 (generation 3: fc over three aux states, a layer of 2d inputs with its own norms, own final norm)."""

    def __init__(self, generation, config, steps, features=None, bias=False, norm_before_residual=False):
        """`features` is the width of what fc reads; EAGLE-3 checkpoints may have a bias, and the residual after the norm."""
        super().__init__()
        self.generation, self.config, self.depth, self.norm_before_residual = generation, config, steps, norm_before_residual
        d, width = config.hidden, config.heads * config.head_dim
        narrow, m = config.kv_heads * config.head_dim, config.intermediate
        inputs = d if generation == 2 else 2 * d
        make = lambda *shape: nn.Parameter(torch.randn(*shape) * shape[-1] ** -0.5)
        self.fc = make(d, features or (2 * d if generation == 2 else 3 * d))
        self.bias = nn.Parameter(torch.zeros(d)) if bias else None
        self.q, self.k, self.v, self.o = make(width, inputs), make(narrow, inputs), make(narrow, inputs), make(d, width)
        self.gate, self.up, self.down = make(m, d), make(m, d), make(d, m)
        self.post = nn.Parameter(torch.ones(d))
        if generation == 3:
            self.of_hidden, self.of_input, self.final = (nn.Parameter(torch.ones(d)) for _ in range(3))
        self.register_buffer("inverse", rope_frequencies(config), persistent=False)
        self.register_buffer("scale", torch.ones(d), persistent=False)

    def start_from(self, target, hidden_rms, aux_rms):
        """The target's last layer, scaled to the features, so that training starts near something useful."""
        last, d = target.last_layer(), self.config.hidden
        put = lambda parameter, value: parameter.data.copy_(value)
        norm = target.norm.cpu()
        for name in ("gate", "up"):
            put(getattr(self, name), last[name])
        if self.generation == 2:
            put(self.fc, torch.cat([torch.randn(d, d) * 0.05, torch.eye(d)], 1))
            for name in ("q", "k", "v"):
                put(getattr(self, name), last[name] * last["in"] / norm)
            put(self.post, 1.95 * last["mid"] / norm)
            put(self.o, last["o"] * (norm / 60)[:, None])
            put(self.down, last["down"] * (norm / 60)[:, None])
        else:
            a = aux_rms.clamp(min=1e-3)
            noise = [torch.randn(d, d) * 0.02 / a[i * d : (i + 1) * d] for i in range(2)]
            put(self.fc, torch.cat([*noise, torch.diag(1 / a[2 * d :])], 1))
            for name in ("q", "k", "v"):
                put(getattr(self, name), torch.cat([torch.randn_like(last[name]) * 0.02, last[name]], 1))
            put(self.post, last["mid"])
            put(self.o, last["o"] * 0.02)
            put(self.down, last["down"] * 0.02)
            put(self.final, norm)

    def names(self):
        """Parameter -> tensor of the published layout."""
        layer = "layers.0." if self.generation == 2 else "midlayer."
        found = {"fc": "fc.weight", "post": layer + "post_attention_layernorm.weight"}
        found |= {x: f"{layer}self_attn.{x}_proj.weight" for x in "qkvo"}
        found |= {x: f"{layer}mlp.{x}_proj.weight" for x in ("gate", "up", "down")}
        if self.generation == 3:
            found |= {"of_hidden": layer + "hidden_norm.weight", "of_input": layer + "input_layernorm.weight", "final": "norm.weight"}
        return found

    def head_input(self, x):
        return x if self.generation == 2 else rms(x, self.final, self.config.eps)

    def _heads(self, x, weight, count):
        return F.linear(x, weight.to(x.dtype)).unflatten(-1, (count, self.config.head_dim)).transpose(1, 2)

    def _inputs(self, embedded, state, dtype):
        """(residual, input of q, k and v) in f32 and `dtype`."""
        if self.generation == 2:
            joined = torch.cat([embedded, state], -1).to(dtype)
            residual = self._fuse(joined)
            return residual, residual.to(dtype)
        normed = rms(state, self.of_hidden, self.config.eps)
        joined = torch.cat([rms(embedded, self.of_input, self.config.eps), normed], -1).to(dtype)
        return normed if self.norm_before_residual else state, joined

    def _fuse(self, x):
        return F.linear(x, self.fc.to(x.dtype), None if self.bias is None else self.bias.to(x.dtype)).float()

    def steps(self, batch, embedding, dtype):
        c, at, group = self.config, batch.at, self.config.heads // self.config.kv_heads
        rows, length = at.shape[1], batch.tokens.shape[1]
        source = batch.hidden if self.generation == 2 else self._fuse(batch.aux.to(dtype))
        if self.generation == 2 and self.training:
            noise = torch.rand(source.shape, generator=batch.generator).to(source.device)
            source = source + (noise - 0.5) * 0.2 * self.scale
        positions = torch.arange(length, device=at.device)
        embedded = F.embedding(batch.tokens[:, 1:], embedding).float()
        embedded = torch.cat([embedded, embedded[:, -1:]], 1)
        residual, inputs = self._inputs(embedded, source, dtype)
        cos, sin = rope_tables(self.inverse, positions)
        keys = rotate(self._heads(inputs, self.k, c.kv_heads).float(), cos, sin).to(dtype)
        values = self._heads(inputs, self.v, c.kv_heads)
        residual, inputs = following(residual, at, 0), following(inputs, at, 0)
        unseen = (positions[None, None] > at[..., None])[:, None, None]
        chain = []
        for k in range(self.depth):
            cos, sin = rope_tables(self.inverse, at + k)
            cos, sin = cos[:, None], sin[:, None]
            if k:
                step = F.embedding(following(batch.tokens, at, k + 1), embedding).float()
                residual, inputs = self._inputs(step, state, dtype)
                own = rotate(self._heads(inputs, self.k, c.kv_heads).float(), cos, sin).to(dtype)
                chain.append((own, self._heads(inputs, self.v, c.kv_heads)))
            q = rotate(self._heads(inputs, self.q, c.heads).float(), cos, sin).to(dtype) * c.head_dim**-0.5
            q = q.unflatten(1, (c.kv_heads, group))
            scores = (q.flatten(2, 3) @ keys.transpose(-1, -2)).unflatten(2, (group, rows))
            scores = scores.masked_fill(unseen, -torch.inf)
            extra = [(q * own[:, :, None]).sum(-1, keepdim=True) for own, _ in chain]
            shares = torch.softmax(torch.cat([scores, *extra], -1).float(), -1).to(dtype)
            out = (shares[..., :length].flatten(2, 3) @ values).unflatten(2, (group, rows))
            for j, (_, own) in enumerate(chain):
                out = out + shares[..., length + j : length + j + 1] * own[:, :, None]
            attended = out.flatten(1, 2).transpose(1, 2).flatten(2)
            middle = residual + F.linear(attended, self.o.to(dtype)).float()
            z = rms(middle, self.post, c.eps).to(dtype)
            state = middle + F.linear(F.silu(F.linear(z, self.gate.to(dtype))) * F.linear(z, self.up.to(dtype)), self.down.to(dtype)).float()
            yield state

    def extra_loss(self, k, state, batch, mask):
        """EAGLE-2 also regresses the target's next feature, in units of each dimension's spread."""
        if self.generation == 3:
            return None
        wanted = following(batch.hidden, batch.at, k + 1)
        return F.smooth_l1_loss(state[mask] / self.scale, wanted[mask] / self.scale)


class PathHeads(nn.Module):
    """Medusa (each head sees the feature alone) and Hydra (also the embeddings of the tokens drafted so far). Both start
    one row later than an EAGLE step: head k, given the feature of row t, predicts token t + 2 + k."""

    def __init__(self, sequential, config, steps):
        super().__init__()
        self.sequential, self.config, self.depth = sequential, config, steps
        d = config.hidden
        self.weights = nn.ParameterList([nn.Parameter(torch.zeros(d, d * ((k + 2) if sequential else 1))) for k in range(steps)])
        self.biases = nn.ParameterList([nn.Parameter(torch.zeros(d)) for _ in range(steps)])

    def start_from(self, target, hidden_rms, aux_rms):
        pass  # zeros: every head begins as the target's own prediction

    def names(self):
        found = {f"weights.{k}": f"{k}.0.linear.weight" for k in range(self.depth)}
        return found | {f"biases.{k}": f"{k}.0.linear.bias" for k in range(self.depth)}

    def head_input(self, x):
        return x

    def steps(self, batch, embedding, dtype):
        feature = following(batch.hidden, batch.at, 0)
        seen = [feature]
        for k in range(self.depth):
            if self.sequential:
                seen.append(F.embedding(following(batch.tokens, batch.at, k + 1), embedding).float())
            joined = torch.cat(seen, -1).to(dtype)
            yield feature + F.silu(F.linear(joined, self.weights[k].to(dtype)).float() + self.biases[k])

    def extra_loss(self, k, state, batch, mask):
        return None


def make(name, config, steps):
    if name in ("eagle2", "eagle3"):
        return Eagle(int(name[-1]), config, steps)
    if name in ("medusa", "hydra"):
        return PathHeads(name == "hydra", config, steps)
    raise SystemExit(f"drafter '{name}' is none of eagle2, eagle3, medusa, hydra")


def load(drafter, tensors, path, names=None):
    """Takes over the weights of a drafter's file; `names`: parameter -> tensor, by default the published ones."""
    named = dict(drafter.named_parameters())
    for parameter, name in (names or drafter.names()).items():
        if name not in tensors:
            raise SystemExit(f"{path}: tensor '{name}' is missing")
        if tensors[name].shape != named[parameter].shape:
            raise SystemExit(f"{path}: '{name}' is {list(tensors[name].shape)}, expected {list(named[parameter].shape)}")
        named[parameter].data.copy_(tensors[name].float())


def config_json(name, drafter, target_eos):
    """config.json beside the weights, as the published checkpoints have it."""
    c = drafter.config
    if name in ("medusa", "hydra"):
        found = {f"{name}_num_heads": drafter.depth, f"{name}_num_layers": 1, "hidden_size": c.hidden, "shares_target_lm_head": True}
        return found | ({"grounded_heads": True} if name == "hydra" else {})
    found = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM" + ("Eagle3" if name == "eagle3" else "")], "hidden_size": c.hidden,
        "intermediate_size": c.intermediate, "num_attention_heads": c.heads, "num_key_value_heads": c.kv_heads, "head_dim": c.head_dim,
        "num_hidden_layers": 1, "vocab_size": c.vocab, "rms_norm_eps": c.eps, "rope_theta": c.rope_base, "hidden_act": "silu",
        "max_position_embeddings": c.context, "tie_word_embeddings": True, "torch_dtype": "float16",
    }
    if c.rope_scaling:
        found["rope_scaling"] = c.rope_scaling
    if target_eos:
        found["eos_token_id"] = target_eos[0]
    if c.bos is not None:
        found["bos_token_id"] = c.bos
    if name == "eagle2":
        return found | {"bias": False}
    return found | {"draft_vocab_size": c.vocab, "target_hidden_size": c.hidden,
                    "eagle_config": {"eagle_aux_hidden_state_layer_ids": list(c.aux_layers), "aux_meaning": "hidden state entering these 0-based layers"}}
