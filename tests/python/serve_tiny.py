"""A tiny causal model of bytes, served: `serve_tiny.py [SOCKET]`.  TINY_SKIP="LAYER TOKEN" makes the model itself skip that cell, which
says what a forced skip must give.  TINY_BEGINS=1: its tokenizer puts token 1 and a space before every text.  TORCH_DEVICE=cuda puts it
there."""
import os
import sys

import torch

import depthscope as ds

LAYERS, WIDTH, CONTEXT = 4, 24, 40
SKIP = [int(x) for x in os.environ.get("TINY_SKIP", "-1 -1").split()]
torch.set_num_threads(1)
torch.set_default_device(os.environ.get("TORCH_DEVICE", "cpu"))


class Block(torch.nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer
        self.q, self.k, self.v = (torch.nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.mlp = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU(), torch.nn.Linear(WIDTH, WIDTH))
        self.drop = torch.nn.Dropout(0.5)

    def forward(self, x):
        n = x.shape[1]
        score = self.q(x) @ self.k(x).transpose(1, 2) / WIDTH ** 0.5
        score = score.masked_fill(torch.triu(torch.ones(n, n, dtype=torch.bool, device=x.device), 1), float("-inf"))
        y = x + self.drop(torch.softmax(score, -1) @ self.v(x))
        y = y + self.mlp(y)
        if self.layer == SKIP[0] and SKIP[1] < n:
            y = torch.cat([y[:, :SKIP[1]], x[:, SKIP[1]:SKIP[1] + 1], y[:, SKIP[1] + 1:]], 1)
        return y


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.place = torch.nn.Embedding(256, WIDTH), torch.nn.Embedding(CONTEXT, WIDTH)
        self.blocks = torch.nn.ModuleList([Block(i) for i in range(LAYERS)])
        self.norm, self.head = torch.nn.LayerNorm(WIDTH), torch.nn.Linear(WIDTH, 256)

    def forward(self, ids):
        print("a line that a model prints")  # must not get between the answers
        if ids.shape[1] > CONTEXT:
            raise RuntimeError("the text is too long")
        x = self.embed(ids) + self.place(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Bytes:
    def encode(self, text):
        return list(text.encode())

    def decode(self, ids):
        return bytes(ids)


class Beginning(Bytes):
    def encode(self, text, add_special_tokens=True):
        return [1] * add_special_tokens + list(b" " + text.encode())


torch.manual_seed(3)
tokenizer = Beginning() if "TINY_BEGINS" in os.environ else Bytes()
ds.serve(Model(), tokenizer, socket=sys.argv[1] if len(sys.argv) > 1 else None, name="tiny", context=CONTEXT)
