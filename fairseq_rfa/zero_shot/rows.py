"""Rows that are kept as they are finished, so that the same command goes on where it was stopped."""

import json
import os


class Rows:
    """Results by case, in a file of JSON lines whose first line is what they all depend on.

    Raises:
        ValueError: the file was made with other settings, or is none of these files.
    """

    def __init__(self, file, settings):
        self.file = file
        self.results = {}
        lines = []
        if file.exists():
            lines = file.read_text(encoding="utf-8").split("\n")
            lines.pop()  # nothing, or a line that was not finished
        try:
            lines = [json.loads(line) for line in lines]
            if lines:
                _compare(lines[0], settings, file)
            for line in lines[1:]:
                self.results[_key(line["case"])] = line
        except (json.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"'{file}' is damaged; remove it") from error
        file.parent.mkdir(parents=True, exist_ok=True)
        self._write_all(lines or [settings])

    def _write_all(self, lines):
        partial = self.file.with_name(self.file.name + ".partial")
        partial.write_text("".join(_line(line) for line in lines), encoding="utf-8")
        os.replace(partial, self.file)

    def get(self, case):
        """The row of a case, None where it is not finished."""
        row = self.results.get(_key(case._asdict()))
        return row and {**row, "case": case._asdict()}

    def add(self, case, **result):
        row = {"case": case._asdict(), **result}
        with open(self.file, "a", encoding="utf-8") as stream:
            stream.write(_line(row))
        self.results[_key(row["case"])] = row


def _compare(found, settings, file):
    names = sorted(name for name in found.keys() | settings.keys() if found.get(name) != settings.get(name))
    if names:
        raise ValueError(
            f"'{file}' was made with another {', '.join(names)}; use another --out or remove that file"
        )


def _key(case):
    """Rows of an older release lack what its cases did not have."""
    return tuple(sorted((name, value) for name, value in case.items() if value is not None))


def _line(entry):
    return json.dumps(entry, ensure_ascii=False, allow_nan=False) + "\n"
