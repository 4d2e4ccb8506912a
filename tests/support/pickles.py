"""Pickles written by hand: names, calls and states in any combination, such as no honest program saves."""

import pickle
from types import SimpleNamespace

import torch


class Name:
    """A class or function by the name that a file gives it."""

    def __init__(self, module, name):
        self.text = f"{module}\n{name}\n".encode()


class Made:
    """What calling a name, or making an object of it, gives, with states that are set one after the other."""

    def __init__(self, made_by, arguments, *states, new=False):
        self.parts = made_by, arguments
        self.operation = pickle.NEWOBJ if new else pickle.REDUCE
        self.states = states


def again(made, *states):
    """The same object, with more states."""
    return Made(made, None, *states)


class Writer(pickle._Pickler):
    """Python's own pickler, which can be taught."""

    def save_name(self, name):
        self.write(pickle.GLOBAL + name.text)

    def save_made(self, made):
        made_by, arguments = made.parts
        self.save(made_by)
        if arguments is not None:
            self.save(arguments)
            self.write(made.operation)
        for state in made.states:
            self.save(state)
            self.write(pickle.BUILD)
        if arguments is not None:
            self.memoize(made)

    dispatch = {**pickle._Pickler.dispatch, Name: save_name, Made: save_made}


def write(contents, path):
    """As torch.save."""
    module = SimpleNamespace(Pickler=Writer, **{n: getattr(pickle, n) for n in ("dumps", "dump", "__name__")})
    torch.save(contents, path, pickle_module=module)
    return path
