"""tests/numerics/reference.py COLAUTO: makes NAME.json and NAME.safetensors with PyTorch, in f64.

For every train section below, colauto writes its initial parameters (`--steps 0 --save`); PyTorch
then trains 20 steps from them on the same rows. The test (tests/training/curves_test.cc) compares
losses, gradient norms and final parameters; it needs neither PyTorch nor this script.
"""

import json
import math
import os
import struct
import subprocess
import sys
import tempfile

import torch
import torch.nn.functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
STEPS = 20


def load(path):
    data = open(path, "rb").read()
    (length,) = struct.unpack("<Q", data[:8])
    header, body = json.loads(data[8:8 + length]), data[8 + length:]
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        flat = torch.frombuffer(bytearray(body[begin:end]), dtype=torch.float32) if end > begin else torch.zeros(0)
        tensors[name] = flat.reshape(entry["shape"]).double()
    return tensors


def save(path, tensors):
    header, body = {}, b""
    for name, tensor in tensors.items():
        values = tensor.detach().float().contiguous().flatten().tolist()
        raw = struct.pack(f"<{len(values)}f", *values)
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [len(body), len(body) + len(raw)]}
        body += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    open(path, "wb").write(struct.pack("<Q", len(text)) + text + body)


def npy(name):
    data = open(os.path.join(HERE, name), "rb").read()
    (length,) = struct.unpack("<H", data[8:10])
    head = eval(data[10:10 + length])  # a literal dict of our own files
    dtype = {"|u1": torch.uint8, "<f4": torch.float32}[head["descr"]]
    return torch.frombuffer(bytearray(data[10 + length:]), dtype=dtype).reshape(head["shape"])


def text_rows(rows, length):
    data = torch.tensor(list(open(os.path.join(HERE, "text.txt"), "rb").read()))
    windows = (len(data) - 1) // length

    def batch(step):
        starts = [(step * rows + b) % windows * length for b in range(rows)]
        return (torch.stack([data[s:s + length] for s in starts]),
                torch.stack([data[s + 1:s + 1 + length] for s in starts]))
    return batch


def array_rows(rows, *names):
    arrays = [npy(name) for name in names]

    def batch(step):
        index = [(step * rows + b) % len(arrays[0]) for b in range(rows)]
        return tuple(array[index] for array in arrays)
    return batch


def layer_norm(w, path, x):
    return F.layer_norm(x, x.shape[-1:], w[path + ".g"], w[path + ".b"], 1e-5)


def rms_norm(w, path, x):
    return x * torch.rsqrt((x ** 2).mean(-1, keepdim=True) + 1e-5) * w[path + ".g"]


def linear(w, path, x):
    return x @ w[path + ".W"] + w[path + ".b"]


def attend(q, k, v, wo, spec):
    """q [b, t, heads.., k], k and v [b, s, ..]; spec: einsum letters of the heads of q and of k."""
    hq, hk = spec
    t = q.shape[1]
    s = torch.einsum(f"bt{hq}k,bs{hk}k->bt{hq}s", q, k) / math.sqrt(q.shape[-1])
    mask = torch.ones(t, t, dtype=torch.bool).tril()
    s = s.masked_fill(~mask.reshape([1, t] + [1] * len(hq) + [t]), -math.inf)
    y = torch.einsum(f"bt{hq}s,bs{hk}k->bt{hq}k", s.softmax(-1), v)
    return torch.einsum(f"bt{hq}k,{hq}kd->btd", y, wo)


def gpt(w, ids):
    x = w["wte"][ids] + w["wpe"]
    for i in range(2):
        p = f"h.{i}.block"
        y = layer_norm(w, p + ".layer_norm", x)
        q, k, v = (torch.einsum("btd,dhk->bthk", y, w[f"{p}.heads.W{c}"]) for c in "qkv")
        x = x + attend(q, k, v, w[p + ".heads.Wo"], ("h", "h"))
        y = layer_norm(w, p + ".layer_norm_1", x)
        x = x + linear(w, p + ".mlp.linear_1", F.gelu(linear(w, p + ".mlp.linear", y)))
    return layer_norm(w, "layer_norm", x) @ w["wte"].t()


def rotate(x, base=10_000.0):
    """x [b, t, .., k]: pairs (i, i + k/2) turn by t * base^(-2i/k)."""
    t, k = x.shape[1], x.shape[-1]
    angle = torch.outer(torch.arange(t).double(), base ** (-torch.arange(0, k, 2).double() / k))
    angle = angle.reshape([1, t] + [1] * (x.dim() - 3) + [k // 2])
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()), -1)


def llama(w, ids):
    x = w["emb.W"][ids]
    for i in range(2):
        p = f"layers.{i}.block"
        y = rms_norm(w, p + ".rms_norm", x)
        q = rotate(torch.einsum("btd,dgrk->btgrk", y, w[p + ".gqa.Wq"]))
        k = rotate(torch.einsum("btd,dgk->btgk", y, w[p + ".gqa.Wk"]))
        v = torch.einsum("btd,dgk->btgk", y, w[p + ".gqa.Wv"])
        x = x + attend(q, k, v, w[p + ".gqa.Wo"], ("gr", "g"))
        y = rms_norm(w, p + ".rms_norm_1", x)
        s = p + ".swi_glu" if p + ".swi_glu.Wg" in w else p + ".swiglu"
        x = x + (F.silu(y @ w[s + ".Wg"]) * (y @ w[s + ".Wu"])) @ w[s + ".Wd"]
    return rms_norm(w, "rms_norm", x) @ w["emb.W"].t()


def conv_bn(w, path, x):
    y = F.conv2d(x, w[path + ".conv.W"], padding=1)
    b = path + ".batch_norm"
    return F.batch_norm(y, w[b + ".mu"], w[b + ".var"], w[b + ".g"], w[b + ".b"], training=True, momentum=0.1, eps=1e-5)


def convnet(w, img):
    x = F.relu(conv_bn(w, "conv_bn", img.double() / 255))
    x = F.max_pool2d(x, 2)
    h = F.relu(conv_bn(w, "res_block.conv_bn", x))
    x = F.relu(x + conv_bn(w, "res_block.conv_bn_1", h))
    return linear(w, "linear", x.mean((2, 3)))


def mlp(w, x):
    return linear(w, "linear_1", torch.tanh(linear(w, "linear", x.double())))


def tokens_loss(model):
    return lambda w, x, y: F.cross_entropy(model(w, x).flatten(0, 1), y.flatten())


def class_loss(model):
    return lambda w, x, y: F.cross_entropy(model(w, x), y.long())


def square_loss(model):
    return lambda w, x, y: F.mse_loss(model(w, x), y.double())


class Lion(torch.optim.Optimizer):
    def __init__(self, groups, lr, betas=(0.9, 0.99)):
        super().__init__(groups, dict(lr=lr, betas=betas))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                b1, b2 = group["betas"]
                update = (b1 * m + (1 - b1) * p.grad).sign()
                p.mul_(1 - group["lr"] * group["weight_decay"]).sub_(update, alpha=group["lr"])
                m.mul_(b2).add_(p.grad, alpha=1 - b2)


def constant(rate):
    return lambda t: rate


def cosine(p, warmup, to):
    return lambda t: p * t / warmup if t <= warmup else to + (p - to) * (1 + math.cos(math.pi * (t - warmup) / (STEPS - warmup))) / 2


def falling(p, warmup):
    return lambda t: p * t / warmup if t <= warmup else p * (STEPS - t) / (STEPS - warmup)


O = torch.optim
mlp_rows = array_rows(8, "rows.npy", "targets.npy")
# (program, train section): loss, rows, optimizer of groups, decay, schedule, clip
CASES = {
    ("gpt", "adamw"): (tokens_loss(gpt), text_rows(4, 16), lambda g: O.AdamW(g, betas=(0.9, 0.95)), 0.1, cosine(3e-3, 5, 3e-4), 1.0),
    ("llama", "adamw"): (tokens_loss(llama), text_rows(4, 16), lambda g: O.AdamW(g, betas=(0.9, 0.95)), 0.1, falling(3e-3, 4), 1.0),
    ("convnet", "sgd"): (class_loss(convnet), array_rows(8, "images.npy", "labels.npy"), lambda g: O.SGD(g, momentum=0.9, nesterov=True), 5e-4, constant(0.05), None),
    ("mlp", "adamw"): (square_loss(mlp), mlp_rows, O.AdamW, 0.1, constant(1e-2), None),
    ("mlp", "adam"): (square_loss(mlp), mlp_rows, O.Adam, 0.01, constant(1e-2), None),
    ("mlp", "sgd"): (square_loss(mlp), mlp_rows, lambda g: O.SGD(g, momentum=0.9), 0.01, constant(0.05), None),
    ("mlp", "lion"): (square_loss(mlp), mlp_rows, lambda g: Lion(g, lr=1e-3), 0.1, constant(1e-3), None),
    ("mlp", "adafactor"): (square_loss(mlp), mlp_rows, lambda g: O.Adafactor(g, eps=(2.0 ** -23, 1e-3)), 0.0, constant(1e-2), None),
    ("mlp", "micro"): (square_loss(mlp), mlp_rows, O.AdamW, 0.1, constant(1e-2), 0.5),
}


def initial(colauto, program, train):
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([colauto, "run", os.path.join(HERE, program + ".cad"), "--train", train, "--steps", "0",
                        "--save", folder, "--quiet"], check=True)
        return load(os.path.join(folder, "model.safetensors"))


def run(colauto, program, train):
    loss_of, rows, make, decay, rate, clip = CASES[program, train]
    w = initial(colauto, program, train)
    states = {name for name in w if name.endswith((".mu", ".var"))}
    params = {name: t for name, t in w.items() if name not in states}
    for p in params.values():
        p.requires_grad_(True)
    groups = [{"params": [p for p in params.values() if p.dim() >= 2], "weight_decay": decay},
              {"params": [p for p in params.values() if p.dim() < 2], "weight_decay": 0.0}]
    optimizer = make(groups)
    losses, norms = [], []
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = rate(step + 1)
        optimizer.zero_grad()
        loss = loss_of(w, *rows(step))
        loss.backward()
        norm = torch.sqrt(sum((p.grad ** 2).sum() for p in params.values()))
        if clip:
            for p in params.values():
                p.grad.mul_(min(1.0, clip / (norm.item() + 1e-6)))
        optimizer.step()
        losses.append(loss.item())
        norms.append(norm.item())
    name = os.path.join(HERE, f"{program}-{train}")
    with open(name + ".json", "w") as out:
        json.dump({"losses": losses, "norms": norms}, out, indent=1)
        out.write("\n")
    save(name + ".safetensors", w)
    print(f"{program} {train}: {losses[0]:.6f} -> {losses[-1]:.6f}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    for case in CASES:
        run(sys.argv[1], *case)
