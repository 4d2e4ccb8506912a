"""Random feature attention for fairseq's Transformer: use with --user-dir, or import it."""

from .compat import allow_checkpoint_classes, restore_xla_functions

allow_checkpoint_classes()
restore_xla_functions()

from .model import architectures  # noqa: E402, F401
from .model.config import TransformerRFAConfig  # noqa: E402
from .model.transformer import TransformerRFAModel  # noqa: E402

__version__ = "0.1.0"
__all__ = ["TransformerRFAConfig", "TransformerRFAModel", "__version__"]
