"""Dense layers of a model that only decodes, their weights kept in the order in which oneDNN computes with them.

The product of few rows with a large weight, which is most of a decoding step on a CPU, takes half the time this way.
The weight that stands in the layer counts: whether it is still the one that was packed is asked of its entries, because
neither its address nor its version tells of what is written through `.data`. A search asks once, at its first step.
"""

from contextlib import contextmanager
from contextvars import ContextVar
from typing import Optional

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LEAST_ENTRIES = 2**17
"""Of a weight that is packed: smaller ones gain nothing."""

_search_goes_on = ContextVar("search_goes_on", default=False)


@contextmanager
def search(goes_on: bool):
    """Within it, weights that were packed are taken to be those of the layers where the search goes on."""
    token = _search_goes_on.set(goes_on)
    try:
        yield
    finally:
        _search_goes_on.reset(token)


class PackedProduct:
    """x Wᵀ + b as `torch.nn.functional.linear`, up to rounding, of a W that does not change.

    It is that function for more rows than E, which gain little (and oneDNN prepares itself anew for each number of
    rows), where gradients are recorded, and for a W that is small or not float32 on a CPU.
    """

    def __init__(self, weight: Tensor, bias: Optional[Tensor] = None):
        """weight (O, E), bias (O)"""
        self.weight = weight
        self.bias = bias
        self.packed = _packed(weight) if _can_pack(weight) else None

    def __reduce__(self):
        return PackedProduct, (self.weight, self.bias)

    def __call__(self, x: Tensor) -> Tensor:
        """x (…, E) → (…, O)"""
        if self.packed is None or not _gains(x):
            return F.linear(x, self.weight, self.bias)
        return _multiply(x, self.packed, self.bias)


class PackedForward:
    """In the place of the forward of a dense layer: a `PackedProduct` of the weight and the bias that it has now.

    The layer stays an nn.Linear for everybody who asks for its type, as torch's quantisation does.
    """

    def __init__(self, layer: nn.Linear):
        self.layer = layer
        self.packed: Optional[Tensor] = None
        self.fingerprint: Optional[Tensor] = None
        """Of the weight that was packed."""

    def __getstate__(self):
        return {"layer": self.layer, "packed": None, "fingerprint": None}

    def __call__(self, x: Tensor) -> Tensor:
        """x (…, E) → (…, O)"""
        if _gains(x):
            if self.packed is None or not _search_goes_on.get():
                self._pack()
            if self.packed is not None:
                return _multiply(x, self.packed, self.layer.bias)
        return F.linear(x, self.layer.weight, self.layer.bias)

    def _pack(self) -> None:
        """Unless the weight is the one that was packed."""
        weight = self.layer.weight
        if not _can_pack(weight):
            self.packed = None
            return
        fingerprint = _fingerprint(weight)
        if self.packed is None or not torch.equal(fingerprint, self.fingerprint):
            self.packed, self.fingerprint = _packed(weight), fingerprint


def pack_layers(model: nn.Module) -> None:
    """Each plain dense layer of the model gets a `PackedForward`; for a model that is not trained any more."""
    for layer in model.modules():
        if is_plain(layer) and layer.weight.numel() >= LEAST_ENTRIES:
            layer.forward = PackedForward(layer)


def join_layers(*layers: nn.Module) -> Optional[PackedProduct]:
    """Several layers with one input as one product; None unless all are plain layers in evaluation."""
    if not all(is_plain(layer) and not layer.training for layer in layers):
        return None
    biases = [layer.bias for layer in layers]
    return PackedProduct(
        torch.cat([layer.weight for layer in layers]), None if biases[0] is None else torch.cat(biases)
    )


def is_plain(layer: nn.Module) -> bool:
    """Whether nothing but the product happens when the layer is called: no hook, and no forward of somebody else."""
    hooks = layer._forward_hooks or layer._forward_pre_hooks
    own_forward = isinstance(vars(layer).get("forward"), (PackedForward, type(None)))
    return type(layer) is nn.Linear and own_forward and not hooks


def unpack_layers(model: nn.Module) -> None:
    """The plain dense layers of the model get back the forward of their class."""
    for layer in model.modules():
        if is_plain(layer):
            vars(layer).pop("forward", None)


def _gains(x: Tensor) -> bool:
    """Whether a packed weight is faster here, and can be used: not by a trace, which cannot hold it."""
    few = 0 < x.numel() <= x.size(-1) ** 2
    can = x.dtype == torch.float32 and x.device.type == "cpu" and not torch.is_grad_enabled()
    return few and can and not torch.jit.is_tracing()


def _can_pack(weight: Tensor) -> bool:
    return (
        weight.numel() >= LEAST_ENTRIES
        and weight.device.type == "cpu"
        and weight.dtype == torch.float32
        and weight.is_contiguous()
        and torch.backends.mkldnn.is_available()
        and torch.backends.mkldnn.enabled
        and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )


def _packed(weight: Tensor) -> Tensor:
    return torch.ops.mkldnn._reorder_linear_weight(weight.detach())


def _multiply(x: Tensor, packed: Tensor, bias: Optional[Tensor]) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")


def _fingerprint(weight: Tensor) -> Tensor:
    """The product with one fixed vector, (O): a change that it does not show, to the last bit, is one of rounding.

    It reads the weight once, as fast as memory goes, where sums of bits would have to be taken over rows and columns.
    """
    columns = torch.arange(1.0, weight.size(1) + 1, device=weight.device)
    return weight.detach().mv((columns * columns).cos())
