"""Options in containers and numbers, so that a file with them loads where nobody has allowed a class."""

from argparse import Namespace
from collections import OrderedDict
from enum import Enum


def with_attributes(model, task):
    """All options as attributes of one object, as releases of fairseq before 0.12 stored them.

    Programs for decoding such as CTranslate2 read options in this way. A Namespace, which fairseq used, would not load
    without this package; torch itself loads a dictionary of this class with attributes.

    Args:
        model, task: plain options by name; those of the model come first.
    """
    options = {"task": task["_name"], **model}
    options |= {name: value for name, value in task.items() if options.get(name) is None}
    found = OrderedDict(options)
    vars(found).update(options)
    return found


def plain(value):
    """Options, or a value among them, without classes of argparse and of fairseq."""
    if isinstance(value, Namespace):
        value = vars(value)
    if isinstance(value, dict):
        return {name: plain(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    return value.value if isinstance(value, Enum) else value
