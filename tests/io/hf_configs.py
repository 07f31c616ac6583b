"""Public facts of published models, as the few fields of their configs that matter, and their published numbers of parameters.

Totals are those that the checkpoints' own metadata (safetensors) or the model's report state, tied matrices once.
"""

from __future__ import annotations

from typing import Any

__all__ = ["CONFIGS", "TOTALS"]


def _decoder(
    kind: str, h: int, inner: int, layers: int, heads: int, kv: int | None, words: int, **more: Any
) -> dict[str, Any]:
    found = {
        "model_type": kind, "hidden_size": h, "intermediate_size": inner, "num_hidden_layers": layers,
        "num_attention_heads": heads, "vocab_size": words, "max_position_embeddings": 131072, **more,
    }  # fmt: skip
    return found if kv is None else {**found, "num_key_value_heads": kv}


_MLA = {
    "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
}  # fmt: skip
_ALTERNATING = {"sliding_window": 4096, "head_dim": 256}
_SIGLIP = {
    "model_type": "siglip_vision_model", "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27,
    "num_attention_heads": 16, "image_size": 896, "patch_size": 14, "vision_use_head": False,
}  # fmt: skip

CONFIGS: dict[str, dict[str, Any]] = {
    "llama-2-7b": _decoder("llama", 4096, 11008, 32, 32, None, 32000),
    "llama-3-8b": _decoder("llama", 4096, 14336, 32, 32, 8, 128256, dtype="bfloat16"),
    "llama-3-70b": _decoder("llama", 8192, 28672, 80, 64, 8, 128256, torch_dtype="bfloat16"),
    "llama-3.1-405b": _decoder("llama", 16384, 53248, 126, 128, 8, 128256),
    "llama-3.2-1b": _decoder("llama", 2048, 8192, 16, 32, 8, 128256, head_dim=64, tie_word_embeddings=True),
    "mistral-7b-v0.1": _decoder("mistral", 4096, 14336, 32, 32, 8, 32000, sliding_window=4096),
    "mistral-7b-v0.3": _decoder("mistral", 4096, 14336, 32, 32, 8, 32768, sliding_window=None),
    "mixtral-8x7b": _decoder("mixtral", 4096, 14336, 32, 32, 8, 32000, num_local_experts=8, num_experts_per_tok=2),
    "mixtral-8x22b": _decoder("mixtral", 6144, 16384, 56, 48, 8, 32000, num_local_experts=8, num_experts_per_tok=2),
    "qwen2.5-0.5b": _decoder("qwen2", 896, 4864, 24, 14, 2, 151936, tie_word_embeddings=True),
    "qwen2.5-7b": _decoder("qwen2", 3584, 18944, 28, 28, 4, 152064),
    "qwen2.5-72b": _decoder("qwen2", 8192, 29568, 80, 64, 8, 152064),
    "qwen1.5-moe-a2.7b": _decoder(
        "qwen2_moe", 2048, 5632, 24, 16, 16, 151936, num_experts=60, num_experts_per_tok=4, moe_intermediate_size=1408,
        shared_expert_intermediate_size=5632,
    ),
    "qwen3-0.6b": _decoder("qwen3", 1024, 3072, 28, 16, 8, 151936, head_dim=128, tie_word_embeddings=True),
    "qwen3-8b": _decoder("qwen3", 4096, 12288, 36, 32, 8, 151936, head_dim=128),
    "qwen3-30b-a3b": _decoder(
        "qwen3_moe", 2048, 6144, 48, 32, 4, 151936, head_dim=128, num_experts=128, num_experts_per_tok=8,
        moe_intermediate_size=768,
    ),
    "qwen3-235b-a22b": _decoder(
        "qwen3_moe", 4096, 12288, 94, 64, 4, 151936, head_dim=128, num_experts=128, num_experts_per_tok=8,
        moe_intermediate_size=1536,
    ),
    "deepseek-v2-lite": _decoder(
        "deepseek_v2", 2048, 10944, 27, 16, 16, 102400, **{**_MLA, "q_lora_rank": None}, n_routed_experts=64,
        num_experts_per_tok=6, n_shared_experts=2, moe_intermediate_size=1408, first_k_dense_replace=1,
    ),
    "deepseek-v3": _decoder(
        "deepseek_v3", 7168, 18432, 61, 128, 128, 129280, **_MLA, n_routed_experts=256, num_experts_per_tok=8,
        n_shared_experts=1, moe_intermediate_size=2048, first_k_dense_replace=3, num_nextn_predict_layers=1,
    ),
    "gemma-2b": _decoder("gemma", 2048, 16384, 18, 8, 1, 256000, head_dim=256),
    "gemma-7b": _decoder("gemma", 3072, 24576, 28, 16, 16, 256000, head_dim=256),
    "gemma-2-2b": _decoder("gemma2", 2304, 9216, 26, 8, 4, 256000, **_ALTERNATING),
    "gemma-2-9b": _decoder("gemma2", 3584, 14336, 42, 16, 8, 256000, **_ALTERNATING),
    "gemma-2-27b": _decoder("gemma2", 4608, 36864, 46, 32, 16, 256000, sliding_window=4096, head_dim=128),
    "gemma-3-1b": _decoder(
        "gemma3_text", 1152, 6912, 26, 4, 1, 262144, head_dim=256, sliding_window=512, sliding_window_pattern=6
    ),
    "gemma-3-4b": {
        "model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"], "mm_tokens_per_image": 256,
        "text_config": {"model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34,
                        "sliding_window": 1024},
        "vision_config": _SIGLIP, "torch_dtype": "bfloat16",
    },
    "gemma-3-27b": {
        "model_type": "gemma3", "text_config": {
            "model_type": "gemma3_text", "hidden_size": 5376, "intermediate_size": 21504, "num_hidden_layers": 62,
            "num_attention_heads": 32, "num_key_value_heads": 16, "head_dim": 128, "sliding_window": 1024},
        "vision_config": _SIGLIP,
    },
    "gpt2": {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024, "vocab_size": 50257},
    "gpt2-xl": {"model_type": "gpt2", "n_embd": 1600, "n_layer": 48, "n_head": 25, "n_positions": 1024, "vocab_size": 50257},
    "bert-base": {"model_type": "bert", "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12,
                  "num_attention_heads": 12, "vocab_size": 30522, "max_position_embeddings": 512, "type_vocab_size": 2},
    "bert-large": {"model_type": "bert", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24,
                   "num_attention_heads": 16, "vocab_size": 30522, "max_position_embeddings": 512, "type_vocab_size": 2},
    "vit-base": {"model_type": "vit", "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12,
                 "num_attention_heads": 12, "image_size": 224, "patch_size": 16},
}  # fmt: skip
CONFIGS["bert-base-words"] = {**CONFIGS["bert-base"], "architectures": ["BertForMaskedLM"]}
CONFIGS["vit-base-1000"] = {
    **CONFIGS["vit-base"],
    "architectures": ["ViTForImageClassification"],
    "id2label": {str(k): f"class {k}" for k in range(1000)},
}

TOTALS = {
    "llama-2-7b": 6_738_415_616,
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "llama-3.2-1b": 1_235_814_400,
    "mistral-7b-v0.1": 7_241_732_096,
    "mistral-7b-v0.3": 7_248_023_552,
    "mixtral-8x7b": 46_702_792_704,
    "mixtral-8x22b": 140_620_634_112,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-72b": 72_706_203_648,
    "qwen1.5-moe-a2.7b": 14_315_784_192,
    "qwen3-0.6b": 596_049_920,
    "qwen3-8b": 8_190_735_360,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-235b-a22b": 235_093_634_560,
    "deepseek-v2-lite": 15_706_484_224,
    "deepseek-v3": 671_026_419_200,
    "gemma-2b": 2_506_172_416,
    "gemma-7b": 8_537_680_896,
    "gemma-2-2b": 2_614_341_888,
    "gemma-2-9b": 9_241_705_984,
    "gemma-2-27b": 27_227_128_320,
    "gemma-3-1b": 999_885_952,
    "gemma-3-4b": 4_300_079_472,
    "gemma-3-27b": 27_432_406_640,
    "gpt2": 124_439_808,
    "gpt2-xl": 1_557_611_200,
    "bert-base": 109_482_240,
    "bert-large": 335_141_888,
    "bert-base-words": 109_514_298,
    "vit-base": 86_389_248,
    "vit-base-1000": 86_567_656,
}
