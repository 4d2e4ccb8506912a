"""Read what a training wrote into its train.log.

    PYTHONPATH=recipes/lib python -P -m training_log RUN/train.log

prints the number of updates.
"""

import dataclasses
import re
import sys

START = re.compile(r"fairseq_cli\.train \| \{'_name'")
DIRECTIONS = re.compile(r"\brfa_(causal|cross)_dim=(\d+)")
FEATURE_MAP = re.compile(r"\brfa_feature_map='(\w+)'")
PRECISION = re.compile(r"'(fp16|bf16|amp)': True")
DEVICE = re.compile(r"rank\s+\d+: capabilities = .* ; name = (.*\S)")
PARAMETERS = re.compile(r"num\. shared model params: ([\d,]+)")
SECONDS = re.compile(r"\| INFO \| train(?:_inner)? \|.*\bwall[ =](\d+)")
VALIDATION = re.compile(
    r"epoch (\d+) \| valid on 'valid' subset \|.*\| ppl (\S+) \|.*\| num_updates (\d+)\b"
)


@dataclasses.dataclass
class TrainingLog:
    parameters: int | None = None
    directions: dict = dataclasses.field(default_factory=dict)
    feature_map: str | None = None
    perplexities: dict = dataclasses.field(default_factory=dict)
    updates: int = 0
    seconds: int = 0
    precision: str = "float32"
    device: str = "cpu"


def read_training_log(path):
    """What the log says; of an epoch that a resumed training repeats, the last time counts.

    The seconds are those of all starts together, which fairseq counts from 0 each.

    Raises ValueError if there is no such file or the perplexity is not a number.
    """
    log, earlier, seconds = TrainingLog(), 0, 0
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            lines = stream.readlines()
    except OSError as error:
        raise ValueError(f"cannot read '{path}' ({error.strerror}); train this run again") from error
    for line in lines:
        if START.search(line):
            earlier, seconds = earlier + seconds, 0
            precision = PRECISION.search(line)
            log.precision = precision.group(1) if precision else "float32"
            log.directions = {place: int(number) for place, number in DIRECTIONS.findall(line)}
            feature_map = FEATURE_MAP.search(line)
            log.feature_map = feature_map.group(1) if feature_map else None
            log.device = "cpu"
        elif found := DEVICE.search(line):
            log.device = found.group(1)
        elif found := PARAMETERS.search(line):
            log.parameters = int(found.group(1).replace(",", ""))
        elif found := VALIDATION.search(line):
            epoch, perplexity, updates = found.groups()
            try:
                log.perplexities[int(epoch)] = float(perplexity)
            except ValueError:
                raise ValueError(
                    f"'{path}' gives the perplexity of epoch {int(epoch)} as '{perplexity}', which is no "
                    "number; remove the folder and train this run again"
                ) from None
            log.updates = int(updates)
        elif found := SECONDS.search(line):
            seconds = int(found.group(1))
    log.seconds = earlier + seconds
    return log


if __name__ == "__main__":
    try:
        print(read_training_log(sys.argv[1]).updates)
    except ValueError as error:
        sys.exit(str(error))
