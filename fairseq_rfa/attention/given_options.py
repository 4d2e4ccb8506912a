"""Options that a module gets though the model that calls it knows nothing of them."""

from torch import nn
from torch.utils.hooks import RemovableHandle


def given(module: nn.Module, **more) -> RemovableHandle:
    """Within it, each call of the module has these options more; a handle of torch is a context."""

    def with_more(module, arguments, options):
        return arguments, {**options, **more}

    return module.register_forward_pre_hook(with_more, with_kwargs=True)
