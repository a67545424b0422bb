"""A tiny random model and a noisy copy of it as its drafter: two megabytes of weights that speculate like real ones.

The drafter agrees with the target at its first position in about two thirds of all drafts, at its fourth in a quarter,
so every K has accepted and rejected tokens. Neither has a tokenizer: prompts and answers are token ids.

``ensure`` makes them once; the file itself, run by the engine's environment, is what makes them (torch is there alone).
"""

from __future__ import annotations

import hashlib
import importlib
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.engine import environment

VOCABULARY = 512
SEED = 7
NOISE = 0.10  # of each matrix's deviation; 0.05 would give .86 at the first position, 0.20 gives .40
RESIDUAL_SCALE = (
    0.015  # of what a layer adds: greedy text then falls into perturbed cycles, as real text repeats itself
)


@dataclass(frozen=True, slots=True)
class Models:
    """Folders with config.json and weights, as vLLM's ``--model`` takes them."""

    target: Path
    draft: Path


def ensure() -> Models:
    """Both models, made in a second if they are not there; the environment must be."""
    key = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:16]
    place = environment.cache_folder() / "models" / key
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=".making-", dir=place.parent))
        try:
            command = [str(environment.python()), "-m", "tests.engine.models", str(scratch)]
            subprocess.run(command, cwd=environment.REPOSITORY, check=True, capture_output=True, text=True)
            try:
                scratch.rename(place)
            except OSError:  # somebody else was faster; theirs are the same
                if not place.exists():
                    raise
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return Models(place / "target", place / "draft")


def make(place: Path) -> None:
    """Write both models; the same bytes each time."""
    torch: Any = importlib.import_module("torch")
    transformers: Any = importlib.import_module("transformers")
    torch.manual_seed(SEED)
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=2048,
        initializer_range=0.08,
        tie_word_embeddings=False,
        torch_dtype="float32",
    )
    model = transformers.LlamaForCausalLM(config).eval()
    with torch.no_grad():
        model.lm_head.weight.normal_(0, 0.25)
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.mul_(RESIDUAL_SCALE)
            layer.mlp.down_proj.weight.mul_(RESIDUAL_SCALE)
    model.save_pretrained(place / "target")
    with torch.no_grad():
        for weights in model.parameters():
            if weights.dim() > 1:
                weights.add_(torch.randn_like(weights) * weights.std() * NOISE)
    model.save_pretrained(place / "draft")


if __name__ == "__main__":
    make(Path(sys.argv[1]))
