"""Public PyTorch programs through ``gapless check``: ``python benchmarks/public_programs.py FOLDER [--dry] [NAME...]``.

FOLDER holds checkouts of pytorch/examples, karpathy/minGPT, karpathy/nanoGPT and huggingface/pytorch-image-models, each
under the name behind the slash. The data that the programs read is made up, in the form that they expect, beside their
code. Prints one JSON object a program; exit status 1 where one has a finding, or did not get to its end.
"""

from __future__ import annotations

import json
import os
import pickle
import struct
import subprocess
import sys
import tarfile
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

AT_ONCE = 8  # programs: most of their time goes into starting
PROGRAMS = {  # where it is run, and how
    "mnist": ("examples/mnist", "main.py --epochs 1 --log-interval 10"),
    "mnist_rnn": ("examples/mnist_rnn", "main.py --epochs 1 --accel --log-interval 10"),
    "mnist_forward_forward": (
        "examples/mnist_forward_forward",
        "main.py --epochs 20 --train_size 1000 --test_size 500",
    ),
    "siamese_network": ("examples/siamese_network", "main.py --epochs 1 --dry-run"),
    "vae": ("examples/vae", "main.py --epochs 1"),
    "dcgan": ("examples/dcgan", "main.py --dataset fake --accel --niter 1 --outf {made} --dry-run"),
    "imagenet": ("examples/imagenet", "main.py -a resnet18 -b 32 -j 2 --epochs 1 {made}/images"),
    "lstm": ("examples/word_language_model", "main.py --accel --epochs 1 --data {made}/words --save {made}/lstm.pt"),
    "transformer": (
        "examples/word_language_model",
        "main.py --accel --epochs 1 --data {made}/words --model Transformer --lr 0.1 --save {made}/transformer.pt",
    ),
    "gcn": ("examples/gcn", "main.py --epochs 20"),
    "gat": ("examples/gat", "main.py --epochs 5"),
    "single_gpu": ("examples/distributed/ddp-tutorial-series", "single_gpu.py 2 1"),
    "minGPT": ("minGPT", "projects/adder/adder.py --trainer.max_iters=30"),
    "nanoGPT train": (
        "nanoGPT",
        "train.py config/train_shakespeare_char.py --max_iters=20 --eval_interval=10 --eval_iters=2 --log_interval=5 "
        "--compile=False --out_dir={made}/nano",
    ),
    "nanoGPT bench": ("nanoGPT", "bench.py --compile=False --batch_size=4 --block_size=256"),
    "timm benchmark": (
        "pytorch-image-models",
        "benchmark.py --model resnet18 -b 16 --img-size 160 --num-warm-iter 2 --num-bench-iter 10 --bench both "
        "--results-file {made}/timm.csv",
    ),
    "timm train": (
        "pytorch-image-models",
        "train.py --data-dir {made}/images --model resnet18 -b 16 -j 2 --epochs 1 --warmup-epochs 0 --num-classes 4 "
        "--amp --output {made}/timm",
    ),
    "timm train, no prefetcher": (
        "pytorch-image-models",
        "train.py --data-dir {made}/images --model resnet18 -b 16 -j 2 --epochs 1 --warmup-epochs 0 --num-classes 4 "
        "--amp --no-prefetcher --pin-mem --output {made}/timm2",
    ),
}
REQUESTS = '''
"""Stands in for the network: gives the made-up Cora as the archive that the program asks for."""
class get:
    def __init__(self, *_, **__):
        self.raw = open(ARCHIVE, "rb")
    def __enter__(self):
        return self
    def __exit__(self, *_):
        self.raw.close()
'''


def make_data(folder: Path, made: Path) -> None:
    """Make up what the programs read."""
    random = np.random.default_rng(0)
    for root in (folder / "examples/data", folder / "examples/mnist_forward_forward/data"):
        raw = root / "MNIST/raw"
        raw.mkdir(parents=True, exist_ok=True)
        for name, count in (("train", 2048), ("t10k", 1024)):
            _idx(raw / f"{name}-images-idx3-ubyte", random.integers(0, 256, (count, 28, 28)))
            _idx(raw / f"{name}-labels-idx1-ubyte", np.arange(count) % 10)
    (made / "words").mkdir()
    for name, lines in (("train", 750), ("valid", 100), ("test", 100)):
        words = "\n".join(" ".join(f"w{n}" for n in random.integers(0, 500, 12)) for _ in range(lines))
        (made / f"words/{name}.txt").write_text(words + "\n")
    for name, most in (("shakespeare_char/train", 65), ("shakespeare_char/val", 65), ("openwebtext/train", 50_000)):
        tokens = folder / f"nanoGPT/data/{name}.bin"
        tokens.parent.mkdir(parents=True, exist_ok=True)
        random.integers(0, most, 60_000).astype(np.uint16).tofile(tokens)
    said = {"vocab_size": 65, "itos": {}, "stoi": {}}
    (folder / "nanoGPT/data/shakespeare_char/meta.pkl").write_bytes(pickle.dumps(said))
    _cora(random, made)
    _images(random, made)


def _idx(path: Path, values: Any) -> None:
    path.write_bytes(
        struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape) + values.astype("u1").tobytes()
    )


def _cora(random: np.random.Generator, made: Path) -> None:
    nodes = 1800
    (made / "cora").mkdir()
    rows = ("\t".join(map(str, (n, *random.integers(0, 2, 64), f"class{n % 7}"))) for n in range(nodes))
    (made / "cora/cora.content").write_text("\n".join(rows) + "\n")
    edges = (f"{a}\t{b}" for a, b in random.integers(0, nodes, (4000, 2)))
    (made / "cora/cora.cites").write_text("\n".join(edges) + "\n")
    with tarfile.open(made / "cora.tgz", "w:gz") as archive:
        archive.add(made / "cora", "cora")
    (made / "stand_ins").mkdir()
    (made / "stand_ins/requests.py").write_text(f"ARCHIVE = {str(made / 'cora.tgz')!r}\n{REQUESTS}")


def _images(random: np.random.Generator, made: Path) -> None:
    from PIL import Image

    for part in ("train", "val"):
        for kind in range(4):
            folder = made / f"images/{part}/{kind}"
            folder.mkdir(parents=True)
            for n in range(24):
                Image.fromarray(random.integers(0, 256, (240, 240, 3), np.uint8)).save(folder / f"{n}.jpg")


def run(name: str, folder: Path, made: Path, *, dry: bool) -> dict[str, Any]:
    """Run one program through the check; say what came of it."""
    where, line = PROGRAMS[name]
    paths = [
        os.environ.get("PYTHONPATH", ""),
        str(made / "stand_ins"),
        *([str(folder / where)] if "GPT" in where else []),
    ]
    command = [sys.executable, "-m", "gapless", "check", "--json", *(["--dry"] if dry else []), "--", sys.executable,
               *line.format(made=made).split()]  # fmt: skip
    done = subprocess.run(
        command, cwd=folder / where, capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "2"},
    )  # fmt: skip
    last = next((text for text in reversed(done.stdout.splitlines()) if text.startswith('{"program"')), "{}")
    said = json.loads(last)
    return {"program": name, "status": done.returncode, "operations": said.get("operations"),
            "streams": len(said.get("streams", [])), "findings": said.get("findings"),
            "unchecked": said.get("unchecked"), "ended": said.get("ended", done.stderr[-500:])}  # fmt: skip


def main() -> int:
    """Run what the command line names, by default all."""
    folder, dry = Path(sys.argv[1]).resolve(), "--dry" in sys.argv
    names = [name for name in PROGRAMS if name in sys.argv[2:]] or [*PROGRAMS]
    worst = 0
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(AT_ONCE) as pool:
        made = Path(temporary)
        make_data(folder, made)
        for result in pool.map(lambda name: run(name, folder, made, dry=dry), names):
            print(json.dumps(result), flush=True)
            worst = max(worst, int(result["status"] != 0))
    return worst


if __name__ == "__main__":
    sys.exit(main())
