"""tools/make_data.py DIR: the synthetic data of the examples, from the standard library alone.

spiral-{x,y}.npy    two spirals: x f32 [N, 2], y i32 [N]                      (examples/mlp.cad)
shapes-{x,y}.npy    ten kinds of drawing: x u8 [N, 1, 28, 28], y u8 [N]       (convnet.cad, vit.cad)
train.bin, val.bin  token ids, uint16: words of kjv.txt by rank, below 50257  (gpt2-124m.cad)
"""

import array
import collections
import math
import random
import re
import sys


def write_npy(path, kind, shape, data):
    """Version 1.0 of the format: magic, header padded to 64 bytes, little-endian data in C order."""
    shape_text = "(" + ", ".join(str(n) for n in shape) + ("," if len(shape) == 1 else "") + ")"
    header = "{'descr': '%s', 'fortran_order': False, 'shape': %s, }" % (kind, shape_text)
    header += " " * (63 - (10 + len(header)) % 64) + "\n"
    with open(path, "wb") as f:
        f.write(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode())
        f.write(bytes(data))


def spirals(count, rng):
    xs, ys = array.array("f"), array.array("i")
    for _ in range(count):
        label = rng.randrange(2)
        t = 0.5 + 3.0 * math.pi * rng.random()
        angle = t + math.pi * label
        xs.extend([t / 5 * math.cos(angle) + rng.gauss(0, 0.05), t / 5 * math.sin(angle) + rng.gauss(0, 0.05)])
        ys.append(label)
    return xs.tobytes(), ys.tobytes()


def draw(label, rng):
    """One of ten drawings, 28 x 28 bytes: bars, crosses, boxes, a disc, rings, diagonals, a checkerboard."""
    size, cx, cy, r = 28, 14 + rng.randint(-4, 4), 14 + rng.randint(-4, 4), rng.randint(5, 9)
    tests = [
        lambda dx, dy: abs(dy) <= 1 and abs(dx) <= r,
        lambda dx, dy: abs(dx) <= 1 and abs(dy) <= r,
        lambda dx, dy: (abs(dx) <= 1 and abs(dy) <= r) or (abs(dy) <= 1 and abs(dx) <= r),
        lambda dx, dy: max(abs(dx), abs(dy)) <= r,
        lambda dx, dy: r - 2 <= max(abs(dx), abs(dy)) <= r,
        lambda dx, dy: dx * dx + dy * dy <= r * r,
        lambda dx, dy: (r - 2) ** 2 <= dx * dx + dy * dy <= r * r,
        lambda dx, dy: abs(dx - dy) <= 1 and abs(dx) <= r,
        lambda dx, dy: abs(dx + dy) <= 1 and abs(dx) <= r,
        lambda dx, dy: max(abs(dx), abs(dy)) <= r and (dx // 3 + dy // 3) % 2 == 0,
    ]
    inside, ink = tests[label], rng.randint(160, 255)
    pixels = bytearray(rng.choices(range(32), k=size * size))
    for y in range(max(0, cy - r), min(size, cy + r + 1)):
        for x in range(max(0, cx - r), min(size, cx + r + 1)):
            if inside(x - cx, y - cy):
                pixels[y * size + x] = ink
    return pixels


def shapes(count, rng):
    xs, ys = bytearray(), bytearray()
    for _ in range(count):
        label = rng.randrange(10)
        xs += draw(label, rng)
        ys.append(label)
    return xs, ys


def tokens(path, ranks):
    words = re.findall(rb"\w+|[^\w\s]|\s", open(path, "rb").read())
    return array.array("H", (ranks.get(w, 0) for w in words)).tobytes()


def main(folder):
    rng = random.Random(1337)
    for name, count in (("", 1024), ("-val", 256)):
        x, y = spirals(count, rng)
        write_npy(f"{folder}/spiral{name}-x.npy", "<f4", (count, 2), x)
        write_npy(f"{folder}/spiral{name}-y.npy", "<i4", (count,), y)
    for name, count in (("", 4096), ("-val", 512)):
        x, y = shapes(count, rng)
        write_npy(f"{folder}/shapes{name}-x.npy", "|u1", (count, 1, 28, 28), x)
        write_npy(f"{folder}/shapes{name}-y.npy", "|u1", (count,), y)
    counts = collections.Counter(re.findall(rb"\w+|[^\w\s]|\s", open(f"{folder}/kjv.txt", "rb").read()))
    ranks = {w: i + 1 for i, (w, _) in enumerate(counts.most_common(50000))}
    for source, target in (("kjv.txt", "train.bin"), ("kjv-val.txt", "val.bin")):
        with open(f"{folder}/{target}", "wb") as f:
            f.write(tokens(f"{folder}/{source}", ranks))


if __name__ == "__main__":
    main(sys.argv[1])
