"""tools/torch_models.py: the examples as PyTorch programs, for reference numbers only.

Written as a PyTorch user would for speed: nn.Linear, scaled_dot_product_attention, fused AdamW.
"""

import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, dim, heads, bias, drop):
        super().__init__()
        self.heads, self.drop = heads, drop
        self.qkv = nn.Linear(dim, 3 * dim, bias=bias)
        self.out = nn.Linear(dim, dim, bias=bias)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(x).split(d, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=self.drop if self.training else 0.0)
        return self.out(y.transpose(1, 2).reshape(b, t, d))


class Block(nn.Module):
    def __init__(self, dim, heads, bias, drop, resid_drop, gelu):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = Attention(dim, heads, bias, drop)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.gelu, self.resid_drop = gelu, resid_drop

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        h = self.down(F.gelu(self.up(self.ln2(x)), approximate=self.gelu))
        return x + (F.dropout(h, self.resid_drop, self.training) if self.resid_drop else h)


class GPT(nn.Module):
    """gpt.cad and gpt2-124m.cad: learned positions, tied head."""

    def __init__(self, vocab, length, dim, layers, heads, bias=False, drop=0.0, gelu="none"):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, dim), nn.Embedding(length, dim)
        self.blocks = nn.ModuleList(Block(dim, heads, bias, drop, drop, gelu) for _ in range(layers))
        self.ln = nn.LayerNorm(dim)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, 0.0, 0.02)

    def forward(self, ids):
        x = self.wte(ids) + self.wpe.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.ln(x) @ self.wte.weight.t()


class RMSNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.g = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return F.rms_norm(x, (x.shape[-1],), self.g, 1e-5)


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)


class LlamaBlock(nn.Module):
    def __init__(self, dim, groups, repeat, width):
        super().__init__()
        self.groups, self.repeat, self.size = groups, repeat, dim // (groups * repeat)
        self.n1, self.n2 = RMSNorm(dim), RMSNorm(dim)
        self.q = nn.Linear(dim, dim, bias=False)
        self.kv = nn.Linear(dim, 2 * groups * self.size, bias=False)
        self.o = nn.Linear(dim, dim, bias=False)
        self.gate, self.up = nn.Linear(dim, width, bias=False), nn.Linear(dim, width, bias=False)
        self.down = nn.Linear(width, dim, bias=False)

    def forward(self, x, cos, sin):
        b, t, d = x.shape
        y = self.n1(x)
        q = rotate(self.q(y).view(b, t, -1, self.size).transpose(1, 2), cos, sin)
        k, v = self.kv(y).view(b, t, 2 * self.groups, self.size).transpose(1, 2).chunk(2, dim=1)
        k = rotate(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.o(y.transpose(1, 2).reshape(b, t, d))
        y = self.n2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    """llama.cad: rotary positions, grouped queries, SwiGLU, tied head."""

    def __init__(self, vocab, length, dim, layers, groups, repeat, width):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList(LlamaBlock(dim, groups, repeat, width) for _ in range(layers))
        self.norm = RMSNorm(dim)
        size = dim // (groups * repeat)
        angle = torch.outer(torch.arange(length).float(), 10_000.0 ** (-torch.arange(0, size, 2).float() / size))
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())
        nn.init.normal_(self.emb.weight, 0.0, 0.02)

    def forward(self, ids):
        x = self.emb(ids)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return self.norm(x) @ self.emb.weight.t()


# name -> (program, settings, rows, length, vocabulary, model)
BENCHMARKS = {
    "gpt": ("examples/gpt.cad", {}, 32, 128, 256,
            lambda: GPT(256, 128, 192, 6, 6, drop=0.1)),
    "gpt2-124m": ("examples/gpt2-124m.cad", {"B": 4, "T": 256, "accumulate": 1}, 4, 256, 50257,
                  lambda: GPT(50257, 256, 768, 12, 12, bias=True, gelu="tanh")),
    "llama": ("examples/llama.cad", {"accumulate": 1}, 16, 128, 256,
              lambda: Llama(256, 128, 256, 6, 4, 2, 704)),
}


def trainer(model, vocab, rows, length, compiled):
    """A function that trains one step on random ids: forward, backward, clip, fused AdamW."""
    net = torch.compile(model) if compiled else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    ids = torch.randint(0, vocab, (rows, length + 1))

    def step():
        loss = F.cross_entropy(net(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    return step
