"""Dense layers of a model that only decodes, their weights kept in the form in which a CPU computes with them.

The product of few rows with a large weight, which is most of a decoding step, takes half the time this way in float32,
and less in fewer bytes.
The weight that stands in the layer counts: whether it is still the one that was packed is asked of its entries, because
neither its address nor its version tells of what is written through `.data`. A search asks once, at its first step.
"""

import logging
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, Optional, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .decoding_precision import PRECISIONS

logger = logging.getLogger(__name__)

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

    It is that function where gradients are recorded, for a W that is small or not float32 on a CPU and, in float32,
    for more rows than E, which gain little (and oneDNN prepares itself anew for each number of rows).
    """

    def __init__(self, weight: Tensor, bias: Optional[Tensor] = None, precision: str = "float32"):
        """weight (O, E), bias (O), precision one of `PRECISIONS`"""
        self.weight = weight
        self.bias = bias
        self.precision = precision
        self.packed = PRECISIONS[precision].pack(weight) if _can_pack(weight, precision) else None

    def __reduce__(self):
        return PackedProduct, (self.weight, self.bias, self.precision)

    def __call__(self, x: Tensor) -> Tensor:
        """x (…, E) → (…, O)"""
        if self.packed is None or not _gains(x, self.precision):
            return F.linear(x, self.weight, self.bias)
        return PRECISIONS[self.precision].multiply(x, self.packed, self.bias)


class PackedForward:
    """In the place of the forward of a dense layer: a `PackedProduct` of the weight and the bias that it has now.

    The layer stays an nn.Linear for everybody who asks for its type, as torch's quantisation does.
    """

    def __init__(self, layer: nn.Linear, precision: str = "float32"):
        self.layer = layer
        self.precision = precision
        self._forget()

    def _forget(self) -> None:
        self.packed: Any = None
        self.fingerprint: Optional[Tensor] = None
        """Of the weight that was packed."""
        self.joined: Optional[PackedProduct] = None
        self.joined_fingerprint: Optional[Tensor] = None
        """Of the weights and biases of this layer and of others, which were packed as one."""

    def __getstate__(self):
        return {"layer": self.layer, "precision": self.precision}

    def __setstate__(self, state):
        vars(self).update(state)
        self._forget()

    def __call__(self, x: Tensor) -> Tensor:
        """x (…, E) → (…, O)"""
        if _gains(x, self.precision):
            if self.packed is None or not _search_goes_on.get():
                self._pack()
            if self.packed is not None:
                return PRECISIONS[self.precision].multiply(x, self.packed, self.layer.bias)
        elif self.precision != "float32" and not _is_of_cpu(x):
            _warn(
                f"--decoding-precision {self.precision} is for float32 on a CPU; dense layers of {x.dtype} on "
                f"{x.device.type} compute as they are"
            )
        return F.linear(x, self.layer.weight, self.layer.bias)

    def _pack(self) -> None:
        """Unless the weight is the one that was packed."""
        weight = self.layer.weight
        if not _can_pack(weight, self.precision):
            self.packed = None
            return
        fingerprint = _fingerprint(weight)
        if self.packed is None or not torch.equal(fingerprint, self.fingerprint):
            self.packed, self.fingerprint = PRECISIONS[self.precision].pack(weight), fingerprint

    def join(self, *others: nn.Linear) -> PackedProduct:
        """This layer and others as one product; the last one, if neither weights nor biases have changed since."""
        layers = (self.layer, *others)
        if not all(_is_of_cpu(layer.weight) for layer in layers):
            return _joined(layers, self.precision)
        fingerprint = torch.cat([_fingerprint(layer.weight) for layer in layers])
        if self.layer.bias is not None:
            fingerprint = torch.cat([fingerprint, *(layer.bias for layer in layers)])
        if self.joined is None or not torch.equal(fingerprint, self.joined_fingerprint):
            self.joined, self.joined_fingerprint = _joined(layers, self.precision), fingerprint
        return self.joined


def pack_layers(model: nn.Module, precision: str = "float32") -> None:
    """Each plain dense layer of the model gets a `PackedForward`; for a model that is not trained any more.

    Args:
        precision: one of `PRECISIONS`; where something is missing here for it, float32 with a warning.
    """
    lack = PRECISIONS[precision].lack()
    if lack and precision != "float32":
        _warn(f"--decoding-precision {precision}: {lack}; dense layers compute in float32")
        precision = "float32"
    for layer in model.modules():
        if is_plain(layer) and layer.weight.numel() >= LEAST_ENTRIES:
            layer.forward = PackedForward(layer, precision)


def precision_of(layer: nn.Module) -> str:
    """In which a layer multiplies."""
    forward = vars(layer).get("forward")
    return forward.precision if isinstance(forward, PackedForward) else "float32"


def join_layers(*layers: nn.Module) -> Optional[PackedProduct]:
    """Several layers with one input as one product; None unless all are plain layers in evaluation."""
    if not all(is_plain(layer) and not layer.training for layer in layers):
        return None
    first, *others = layers
    forward = vars(first).get("forward")
    return _joined(layers) if forward is None else forward.join(*others)


def _joined(layers: Sequence[nn.Linear], precision: str = "float32") -> PackedProduct:
    weight = torch.cat([layer.weight for layer in layers])
    bias = None if layers[0].bias is None else torch.cat([layer.bias for layer in layers])
    return PackedProduct(weight, bias, precision)


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


def _gains(x: Tensor, precision: str) -> bool:
    """Whether a packed weight is faster here, and can be used: not by a trace, which cannot hold it."""
    some = x.numel() > 0 and x.dim() > 1
    few = x.numel() <= x.size(-1) ** 2 or not PRECISIONS[precision].few_rows
    return some and few and _is_of_cpu(x) and not torch.is_grad_enabled() and not torch.jit.is_tracing()


def _is_of_cpu(x: Tensor) -> bool:
    """Whether it is float32 on a CPU, for which all of this is."""
    return x.dtype == torch.float32 and x.device.type == "cpu"


def _can_pack(weight: Tensor, precision: str) -> bool:
    return (
        weight.numel() >= LEAST_ENTRIES
        and _is_of_cpu(weight)
        and weight.is_contiguous()
        and PRECISIONS[precision].lack() is None
    )


@lru_cache(maxsize=None)
def _warn(line: str) -> None:
    """Once, however many models and layers it is about."""
    logger.warning(line)


def _fingerprint(weight: Tensor) -> Tensor:
    """The product with one fixed vector, (O): a change that it does not show, to the last bit, is one of rounding.

    It reads the weight once, as fast as memory goes, where sums of bits would have to be taken over rows and columns.
    """
    columns = torch.arange(1.0, weight.size(1) + 1, device=weight.device)
    return weight.detach().mv((columns * columns).cos())
