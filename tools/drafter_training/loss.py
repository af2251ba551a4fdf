"""Forward KL from the target's ranking to the drafter, over a sampled vocabulary, with its gradient made on the spot."""
import math

import torch
import torch.nn.functional as F

CHUNK = 1024  # rows whose logits exist at once


class SoftCrossEntropy(torch.autograd.Function):
    """Mean over rows of the cross-entropy of the target's (renormalised) top probabilities against softmax(x W^T + shift).
    x [N, d], weight [S, d], shift [S], places [N, K] columns of the target's choices, shares [N, K] their probabilities, which
    may be weighted by row. Both gradients need the same logits, so they are computed with them and no logits are kept."""

    @staticmethod
    def forward(ctx, x, weight, shift, places, shares):
        total, gradient = x.new_zeros((), dtype=torch.float32), torch.empty_like(x)
        of_weight = torch.zeros_like(weight) if ctx.needs_input_grad[1] else None
        scale = 1.0 / max(1, x.shape[0])
        for at in range(0, x.shape[0], CHUNK):
            part = slice(at, at + CHUNK)
            logits = F.linear(x[part].to(weight.dtype), weight).float()
            if shift is not None:
                logits += shift
            logits -= logits.amax(-1, keepdim=True)
            chosen = logits.gather(1, places[part])
            logits.exp_()
            mass = logits.sum(-1, keepdim=True)
            total += (shares[part] * (mass.log() - chosen)).sum()
            logits *= shares[part].sum(-1, keepdim=True) / mass
            logits.scatter_add_(1, places[part], -shares[part])
            logits = (logits * scale).to(weight.dtype)
            gradient[part] = (logits @ weight).to(x.dtype)
            if of_weight is not None:
                of_weight.addmm_(logits.T, x[part].to(weight.dtype))
        ctx.save_for_backward(gradient, of_weight)
        return total * scale

    @staticmethod
    def backward(ctx, upstream):
        return *(None if g is None else g * upstream for g in ctx.saved_tensors), None, None, None


class Vocabulary:
    """The columns of one training step: every choice of the target, and a random sample of the rest that stands for all of
    it (each sampled column counts as rest / sample)."""

    def __init__(self, head, ids, negatives, generator):
        vocab = head.shape[0]
        if negatives == 0 or negatives + ids.numel() // 8 >= vocab:
            self.columns, self.weight, self.shift = torch.arange(vocab, device=head.device), head, None
            self.place = self.columns
            return
        wanted = torch.zeros(vocab, dtype=torch.bool, device=head.device)
        wanted[ids.flatten()] = True
        rest = (~wanted).nonzero()[:, 0]
        sample = rest[torch.randperm(len(rest), generator=generator)[:negatives].to(head.device)]
        sure = wanted.nonzero()[:, 0]
        self.columns = torch.cat([sure, sample])
        self.weight = head[self.columns]
        self.shift = torch.zeros(len(self.columns), device=head.device)
        self.shift[len(sure) :] = math.log(len(rest) / max(1, len(sample)))
        self.place = torch.zeros(vocab, dtype=torch.long, device=head.device)
        self.place[self.columns] = torch.arange(len(self.columns), device=head.device)
