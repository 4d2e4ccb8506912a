"""python -m fairseq_rfa.zero_shot: what a model trained with softmax is worth with random features, without training.

    python -m fairseq_rfa.zero_shot BINARIZED --checkpoint SOFTMAX.pt --out runs/zero_shot
    python -m fairseq_rfa.zero_shot BINARIZED --checkpoint SOFTMAX.pt --sites both encoder --bleu-directions 256
    python -m fairseq_rfa.zero_shot BINARIZED --checkpoint SOFTMAX.pt --directions 64 --distill-updates 1000

The decoder's attention gets features, or with --sites also that of the encoder; all parameters stay. With --imitate
softmax the features estimate the exp(q·k / √d) of softmax itself (--rfa-unnormalized, σ = d^-1/4); with unit-length
queries and keys are scaled to unit length, and σ of each head is the one that comes nearest to softmax on --fit-subset.
Maps whose kernel has another form (arccos, elu, learned and hedgehog at their start) are measured as they are, with
σ = 1. With --distill-updates each of them is also measured after its σ, and what the map learns, have been trained
towards the outputs of softmax's attention.

Each model reads the reference of some sentences, and its logits are compared with those of softmax. «limit» is
attention with the kernel itself in place of features, «equal» attention that weighs all positions alike.

Writes zero_shot.json, .csv, .md and .png and prints the table. Finished rows are kept in rows.jsonl: the same command
goes on where it was stopped, and more of --maps, --directions, --seeds, --imitate, --sites and --floors add to them.
"""

import hashlib
import sys
import time
from functools import cached_property

import torch

from ..functional.encoding import FEATURE_MAPS
from ..model.parameters import PLACES, RFA_PARAMETERS
from ..programs.program import check_folder, errors_in_one_line, find_device, load_plot, only_warnings, progress
from ..programs.signature import commit
from ..programs.trained_model import move_to, readable_sentences
from ..transfer.constants import measure_moments
from ..transfer.distillation import distill
from ..transfer.sentences import endless_batches
from ..transfer.temperature import fit_sigma
from . import bleu, logits, models
from .cases import SITES, cases
from .options import NAME, parse_arguments
from .report import learning, make_report, settings, table, write_all
from .rows import Rows


class Study:
    """The trained model, the sentences, and what can be measured with them.

    Raises ValueError with what is wrong with the checkpoint or the data.
    """

    def __init__(self, options):
        self.device = device = find_device(options.device)
        subsets = [options.subset, options.fit_subset, *["train"] * bool(options.distill_updates)]
        self.learning = learning(options)
        self.places = [place for place in PLACES if any(place in SITES[sites] for sites in options.sites)]
        """Where some case has features."""
        self.taught = {}
        """By case without its measure, the parameters of models that softmax has taught."""
        self.trained = models.load(options.checkpoint, options.data, subsets, device)
        self.beam = options.beam
        self.fit_batches, self.fit_digest, _ = self._read(options.fit_subset, options.fit_sentences, device)
        self.batches, self.digest, self.sentences = self._read(options.subset, options.sentences, device)
        self.scorer = None
        self.found_moments = {}
        if options.bleu_directions:
            self.scorer = bleu.make_scorer(
                options.data, self.trained.task, options.subset, options.reference
            )

    def _read(self, subset, number, device):
        """Batches, a digest of their words, and the number of sentences."""
        model, dataset = self.trained.model, self.trained.task.dataset(subset)
        found = readable_sentences(dataset, model, number, f"'{subset}' has no sentence that the model can read")
        digest = hashlib.sha256()
        for index in found:
            for side in ("source", "target"):
                digest.update(repr(dataset[index][side].tolist()).encode())
        return logits.make_batches(dataset, found, device), digest.hexdigest(), len(found)

    @cached_property
    def states(self):
        return logits.hidden_states(self.trained.model, self.batches)

    @cached_property
    def sigma(self):
        return fit_sigma(self.trained.model, self.fit_batches, self.places)

    def moments(self, case, fitted):
        """For a map with constants what `measure_moments` finds in the places of a case, which depends on the way of
        imitation only.
        """
        if case.kind != "features" or FEATURE_MAPS[case.map].constants is None:
            return None
        key = case.imitate, case.sites
        if key not in self.found_moments:
            student = models.converted(self.trained, case, fitted)
            self.found_moments[key] = measure_moments(self.trained.model, student, self.fit_batches, SITES[case.sites])
        return self.found_moments[key]

    def measure(self, case):
        """The numbers of a case."""
        trained = self.trained
        fitted = self.sigma if case.imitate == "unit-length" else None
        model = models.converted(trained, case, fitted, self.moments(case, fitted))
        if case.updates:
            self._teach(model, case)
        if case.measure == "logits":
            return logits.compare(model, trained.model, self.states, self.batches)
        score = self.scorer.score(model, trained.task, self.batches, self.beam)
        return {"bleu": score, "signature": self.scorer.signature}

    def _teach(self, model, case):
        """Distillation, once for all measures of a case."""
        key = case._replace(measure=None)
        if key not in self.taught:
            tokens, lr = self.learning["distill_tokens"], self.learning["distill_lr"]
            batches = endless_batches(self.trained.task, "train", tokens, case.seed or 1)
            batches = (move_to(batch, self.device) for batch in batches)
            distill(self.trained.model, model, SITES[case.sites], batches, case.updates, lr, str(case))
            self.taught[key] = {name: x for name, x in model.state_dict().items() if name.endswith(RFA_PARAMETERS)}
        model.load_state_dict({**model.state_dict(), **self.taught[key]})

    def scored_with(self):
        """What a score depends on besides its case and what all rows depend on."""
        return {"beam": self.beam, "reference": self.scorer.digest()}

    def depends_on(self, case):
        """What a row depends on besides its case and what all rows depend on."""
        learned = self.learning if case.updates else {}
        return learned if case.measure == "logits" else learned | self.scored_with()

    def is_finished(self, case, row):
        return row is not None and all(row[name] == value for name, value in self.depends_on(case).items())


def run(options):
    """Everything that is measured, ready for JSON.

    Raises ValueError and OSError with what is wrong with options, checkpoint, data or earlier rows.
    """
    study = Study(options)
    wanted = list(cases(options))
    rows = Rows(options.out / "rows.jsonl", settings(options, study))
    made_with = commit()
    missing = [case for case in wanted if not study.is_finished(case, rows.get(case))]
    with progress(NAME, len(missing), "rows") as advance:
        for case in missing:
            start = time.monotonic()
            numbers = study.measure(case) | study.depends_on(case)
            rows.add(case, **numbers, seconds=round(time.monotonic() - start, 2), commit=made_with)
            advance(str(case))
    return make_report(options, study, [rows.get(case) for case in wanted])


def main(arguments=None):
    options = parse_arguments(arguments, description=__doc__)
    if options.threads:
        torch.set_num_threads(options.threads)
    with only_warnings(), errors_in_one_line(NAME, sizes="--directions"):
        plot = load_plot(NAME, __package__)
        check_folder(options.out)
        try:
            report = run(options)
        except KeyboardInterrupt:
            sys.exit(f"{NAME}: interrupted; finished rows are kept in '{options.out / 'rows.jsonl'}'")
        write_all(report, options.out, plot)
    print(table(report))


if __name__ == "__main__":
    main()
