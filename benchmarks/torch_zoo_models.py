"""Small training steps of many architectures, from whichever model libraries are installed, with random weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import nn

__all__ = ["Entry", "entries"]


class Entry(NamedTuple):
    """One model: its name, and a function that makes the model and a batch for it as keyword arguments."""

    name: str
    make: Callable[[], tuple[nn.Module, dict[str, Any]]]


def entries() -> Iterator[Entry]:
    """Yield every model whose library can be imported; name the libraries that cannot."""
    for library in (_transformers_text, _transformers_vision, _torchvision, _timm, _diffusers, _peft):
        try:
            yield from library()
        except ImportError as error:
            print(f"left out: {library.__name__.strip('_')} ({error})")


def _words(words: int = 128, length: int = 32, batch: int = 4, **more: Any) -> dict[str, Any]:
    ids = torch.randint(words, (batch, length))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids.clone(), **more}


_TEXT = {
    "BertForMaskedLM": ("BertConfig", {}),
    "RobertaForMaskedLM": ("RobertaConfig", {"max_position_embeddings": 66}),
    "DistilBertForMaskedLM": ("DistilBertConfig", {"dim": 64, "n_heads": 4, "hidden_dim": 128, "n_layers": 2}),
    "AlbertForMaskedLM": ("AlbertConfig", {"embedding_size": 32}),
    "ElectraForMaskedLM": ("ElectraConfig", {"embedding_size": 32}),
    "GPT2LMHeadModel": ("GPT2Config", {"n_embd": 64, "n_head": 4, "n_layer": 2, "n_positions": 64}),
    "GPTNeoXForCausalLM": ("GPTNeoXConfig", {}),
    "OPTForCausalLM": ("OPTConfig", {"ffn_dim": 128, "word_embed_proj_dim": 64}),
    "BloomForCausalLM": ("BloomConfig", {"n_layer": 2, "n_head": 4}),
    "LlamaForCausalLM": ("LlamaConfig", {"num_key_value_heads": 2}),
    "MistralForCausalLM": ("MistralConfig", {"num_key_value_heads": 2}),
    "Qwen2ForCausalLM": ("Qwen2Config", {"num_key_value_heads": 2}),
    "GemmaForCausalLM": ("GemmaConfig", {"num_key_value_heads": 2, "head_dim": 16}),
    "PhiForCausalLM": ("PhiConfig", {}),
    "T5ForConditionalGeneration": ("T5Config", {"d_model": 64, "d_ff": 128, "d_kv": 16, "num_heads": 4, "num_layers": 2,
                                                "decoder_start_token_id": 0}),
    "BartForConditionalGeneration": (
        "BartConfig", {"d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128,
                       "encoder_attention_heads": 4, "decoder_attention_heads": 4, "max_position_embeddings": 64}),
    "MambaForCausalLM": ("MambaConfig", {"state_size": 8}),
}  # fmt: skip
_COMMON = {
    "vocab_size": 128, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip


def _transformers_text() -> Iterator[Entry]:
    import transformers

    for name, (config_name, own) in _TEXT.items():

        def make(name: str = name, config_name: str = config_name, own: dict[str, Any] = own) -> Any:
            config = getattr(transformers, config_name)(**{**_COMMON, **own}, use_cache=False)
            return getattr(transformers, name)(config), _words()

        yield Entry(f"transformers {name}", make)


_VISION = {
    "ViTForImageClassification": ("ViTConfig", {"image_size": 32, "patch_size": 8}),
    "DeiTForImageClassification": ("DeiTConfig", {"image_size": 32, "patch_size": 8}),
    "BeitForImageClassification": ("BeitConfig", {"image_size": 32, "patch_size": 8}),
    "SwinForImageClassification": ("SwinConfig", {"image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [2, 2],
                                                  "num_heads": [2, 4], "window_size": 4}),
    "ConvNextForImageClassification": ("ConvNextConfig", {"hidden_sizes": [16, 32, 48, 64], "depths": [1, 1, 2, 1]}),
    "ResNetForImageClassification": ("ResNetConfig", {"embedding_size": 16, "hidden_sizes": [16, 32, 48, 64],
                                                      "depths": [1, 1, 2, 1]}),
    "MobileNetV2ForImageClassification": ("MobileNetV2Config", {"depth_multiplier": 0.35}),
    "RegNetForImageClassification": ("RegNetConfig", {"embedding_size": 16, "hidden_sizes": [16, 32, 48, 64],
                                                      "depths": [1, 1, 2, 1], "groups_width": 8}),
}  # fmt: skip


def _transformers_vision() -> Iterator[Entry]:
    import transformers

    for name, (config_name, own) in _VISION.items():

        def make(name: str = name, config_name: str = config_name, own: dict[str, Any] = own) -> Any:
            kept = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
            common = {key: _COMMON[key] for key in kept if "patch_size" in own and "depths" not in own}
            config = getattr(transformers, config_name)(**{**common, **own}, num_labels=10)
            return getattr(transformers, name)(config), {
                "pixel_values": torch.randn(4, 3, 32, 32),
                "labels": torch.randint(10, (4,)),
            }

        yield Entry(f"transformers {name}", make)


class _Classifier(nn.Module):
    """An image model with a loss, called as transformers' models are."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, pixel_values: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": nn.functional.cross_entropy(self.body(pixel_values), labels)}


def _images(model: nn.Module, size: int = 64, batch: int = 4) -> tuple[nn.Module, dict[str, Any]]:
    return _Classifier(model), {
        "pixel_values": torch.randn(batch, 3, size, size),
        "labels": torch.randint(10, (batch,)),
    }


def _torchvision() -> Iterator[Entry]:
    import torchvision.models as zoo

    names = (
        "resnet50",
        "vgg11_bn",
        "densenet121",
        "mobilenet_v3_small",
        "efficientnet_b0",
        "shufflenet_v2_x0_5",
        "squeezenet1_1",
    )
    for name in names:
        yield Entry(f"torchvision {name}", lambda name=name: _images(getattr(zoo, name)(num_classes=10)))


def _timm() -> Iterator[Entry]:
    import timm

    for name in ("mixer_s32_224", "convmixer_768_32", "resnest14d", "efficientformer_l1", "poolformer_s12"):
        sized = {"img_size": 64} if name.startswith("mixer") else {}
        size = 224 if name.startswith("efficientformer") else 64  # it takes no other
        yield Entry(
            f"timm {name}",
            lambda name=name, sized=sized, size=size: _images(timm.create_model(name, num_classes=10, **sized), size),
        )


def _diffusers() -> Iterator[Entry]:
    from diffusers import UNet2DModel

    class Denoiser(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = UNet2DModel(
                sample_size=16, block_out_channels=(32, 64), layers_per_block=1, norm_num_groups=8,
                down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"),
            )  # fmt: skip

        def forward(self, sample: torch.Tensor, noise: torch.Tensor, times: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"loss": nn.functional.mse_loss(self.net(sample + noise, times).sample, noise)}

    def make() -> tuple[nn.Module, dict[str, Any]]:
        sample = torch.randn(2, 3, 16, 16)
        return Denoiser(), {"sample": sample, "noise": torch.randn_like(sample), "times": torch.randint(1000, (2,))}

    yield Entry("diffusers UNet2DModel", make)


def _peft() -> Iterator[Entry]:
    import transformers
    from peft import LoraConfig, get_peft_model

    def make() -> tuple[nn.Module, dict[str, Any]]:
        config = transformers.LlamaConfig(**_COMMON, num_key_value_heads=2, use_cache=False)
        lora = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], lora_dropout=0.1)
        return get_peft_model(transformers.LlamaForCausalLM(config), lora), _words()

    yield Entry("peft Llama with LoRA", make)
