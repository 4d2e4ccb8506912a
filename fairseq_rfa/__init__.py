"""Random feature attention for fairseq's Transformer: use with --user-dir, or import it."""

from . import compat

__version__ = "0.1.0"
__all__ = ["TransformerRFAConfig", "TransformerRFALanguageModel", "TransformerRFAModel", "__version__"]

if not compat.is_asked_for_report():
    compat.prepare_libraries()

    from .programs.saved_classes import allow_checkpoint_classes

    allow_checkpoint_classes()

    from .documents import task  # noqa: F401
    from .language import task as stateful_task  # noqa: F401
    from .model import architectures, language_model_architectures  # noqa: F401
    from .model.config import TransformerRFAConfig
    from .model.language_model import TransformerRFALanguageModel
    from .model.transformer import TransformerRFAModel
