"""What fairseq calls of every model with random feature attention: translation models and language models."""

from ..attention.packed_linear import pack_layers
from .dropout import retained_names
from .scripting import in_classes_of_fairseq


class FairseqHooks:
    """Stands before a class of fairseq among the parents of a model, whose decoder has the options `cfg`."""

    monitor = None
    """A Monitor in a training that is watched. Without an annotation, which torch.jit would follow."""

    def set_num_updates(self, num_updates):
        """Called by fairseq before each batch of training."""
        super().set_num_updates(num_updates)
        if self.monitor is not None:
            self.monitor.begin_update(num_updates)

    def train(self, mode=True):
        """Left by fairseq for validation: an update has ended, even if no optimizer of torch has made a step."""
        if self.monitor is not None and self.training and not mode:
            self.monitor.end_update()
        return super().train(mode)

    def make_generation_fast_(self, **options):
        """Called by fairseq before a model decodes and is trained no more."""
        if options.get("retain_dropout_modules") is not None:
            options["retain_dropout_modules"] = retained_names(self, options["retain_dropout_modules"])
        super().make_generation_fast_(**options)
        pack_layers(self, self.decoder.cfg.decoding_precision)

    def __prepare_scriptable__(self):
        """Called by torch.jit.script, which compiles what this returns."""
        return in_classes_of_fairseq(self)
