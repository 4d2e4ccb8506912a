"""Features, sums and states are float32 or wider, whatever the precision of the model."""

import functools
from typing import Optional

import torch
from torch import Tensor


def wide(x: Optional[Tensor]) -> Optional[Tensor]:
    """x in float32, or in float64 where it is."""
    return None if x is None else x.to(torch.promote_types(x.dtype, torch.float32))


def full_precision(function):
    """Automatic mixed precision does not reach into the function."""

    @functools.wraps(function)
    def without_autocast(*arguments, **options):
        values = (*arguments, *options.values())
        device = next(value.device for value in values if isinstance(value, Tensor)).type
        if not torch.is_autocast_enabled(device):
            return function(*arguments, **options)
        with torch.autocast(device, enabled=False):
            return function(*arguments, **options)

    return without_autocast
