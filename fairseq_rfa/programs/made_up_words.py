"""A dictionary for models whose words mean nothing."""

from fairseq.data import Dictionary


def made_up_dictionary(size: int) -> Dictionary:
    """One of so many symbols, those that fairseq's dictionaries always have included."""
    dictionary = Dictionary()
    while len(dictionary) < size:
        dictionary.add_symbol(f"word{len(dictionary)}")
    return dictionary
