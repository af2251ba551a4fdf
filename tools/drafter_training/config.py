"""What a target's layers look like, whichever file they come from."""
from dataclasses import dataclass, field


@dataclass
class Config:
    architecture: str
    vocab: int
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    eps: float
    rope_base: float
    rope_scaling: dict = field(default_factory=dict)  # "llama3" rules, empty = none
    context: int = 8192
    eos: tuple = ()
    bos: int | None = None
    tokens: int = 0  # real ids; rows of the LM head beyond are padding and never chosen (0 = all are real)

    @property
    def aux_layers(self):
        """EAGLE-3's three: hidden states entering these layers, counted from 0 (early, middle, late).

        The published 2, L/2, L-3 need six layers; smaller targets spread theirs, and a layer may serve twice."""
        last = self.layers - 1
        return (2, self.layers // 2, self.layers - 3) if self.layers >= 6 else (min(1, last), self.layers // 2, last)
