"""How an option is called on the command line, and the line that refuses its value."""


def flag_of(name):
    return "--" + name.replace("_", "-")


def refusal(name, value, remedy):
    return ValueError(f"{flag_of(name)} is {value!r}; use {remedy}")


def refusal_of(options, name, remedy):
    """That of what the options say."""
    return refusal(name, getattr(options, name), remedy)
