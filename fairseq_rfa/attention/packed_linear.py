"""Dense layers of a model that only decodes, their weights kept in the order in which oneDNN computes with them.

The product of few rows with a large weight, which is most of a decoding step on a CPU, takes half the time this way.
"""

from typing import Optional

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LEAST_ENTRIES = 2**17
"""Of a weight that is packed: smaller ones gain nothing."""


class PackedProduct:
    """x Wᵀ + b as `torch.nn.functional.linear`, up to rounding.

    It is that function for more rows than E, which gain little (and oneDNN prepares itself anew for each number of
    rows), where gradients are recorded, and for a W that is small or not float32 on a CPU.
    """

    def __init__(self, weight: Tensor, bias: Optional[Tensor] = None):
        """weight (O, E), bias (O)"""
        self.weight = weight
        self.bias = bias
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach()) if _can_pack(weight) else None

    def __reduce__(self):
        return PackedProduct, (self.weight, self.bias)

    def __call__(self, x: Tensor) -> Tensor:
        """x (…, E) → (…, O)"""
        few = 0 < x.numel() <= x.size(-1) ** 2
        if self.packed is None or not few or x.dtype != torch.float32 or torch.is_grad_enabled():
            return F.linear(x, self.weight, self.bias)
        return torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")


def _can_pack(weight: Tensor) -> bool:
    return (
        weight.numel() >= LEAST_ENTRIES
        and weight.device.type == "cpu"
        and weight.dtype == torch.float32
        and torch.backends.mkldnn.is_available()
        and torch.backends.mkldnn.enabled
        and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )


class PackedLinear(nn.Linear):
    """nn.Linear whose weight is packed at the first call, and again when it has changed."""

    def __init__(self, layer: nn.Linear):
        """Takes over the parameters of the layer."""
        nn.Module.__init__(self)
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self.weight, self.bias = layer.weight, layer.bias
        self.training = layer.training
        self.product, self.packed_weight = None, None

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight.data_ptr(), self.weight._version, self.weight.dtype
        if weight != self.packed_weight:
            self.product, self.packed_weight = PackedProduct(self.weight, self.bias), weight
        return self.product(x)

    def __getstate__(self):
        return {**super().__getstate__(), "product": None, "packed_weight": None}


def pack_layers(model: nn.Module) -> None:
    """Each plain dense layer of the model becomes a `PackedLinear`; for a model that is not trained any more."""
    packed = {}
    for module in list(model.modules()):
        for name, layer in module.named_children():
            if type(layer) is nn.Linear and is_plain(layer):
                if layer not in packed:
                    packed[layer] = PackedLinear(layer)
                setattr(module, name, packed[layer])


def join_layers(*layers: nn.Module) -> Optional[PackedProduct]:
    """Several layers with one input as one product; None unless all are plain layers in evaluation."""
    if not all(is_plain(layer) and not layer.training for layer in layers):
        return None
    biases = [layer.bias for layer in layers]
    return PackedProduct(
        torch.cat([layer.weight for layer in layers]), None if biases[0] is None else torch.cat(biases)
    )


def is_plain(layer: nn.Module) -> bool:
    """Whether nothing but the product happens when the layer is called."""
    hooks = layer._forward_hooks or layer._forward_pre_hooks
    return type(layer) in (nn.Linear, PackedLinear) and not hooks
