"""Write a small German-English corpus of numbers, dates, times of day and prices.

The translations are true by construction, and a German number such as
dreiundzwanzigtausendvierhundertfünf must be reordered on the way to English. No sentence of
either language occurs twice, so train, valid and test do not overlap. The same seed and sizes
give the same files.

    PYTHONPATH=data-prep/lib python -P -m number_phrases --out DIR
"""

import argparse
import os
import random
import string

from german_english import (
    MONTHS,
    WEEKDAYS,
    date,
    date_with_digits,
    number_words,
    price,
    time_of_day,
    year,
)

PEOPLE = [
    ("Anna", "Anna"), ("Peter", "Peter"), ("meine Schwester", "my sister"),
    ("der Lehrer", "the teacher"), ("die Ärztin", "the doctor"), ("das Kind", "the child"),
]  # fmt: skip
THINGS = [
    ("Äpfel", "apples"), ("Bücher", "books"), ("Flaschen", "bottles"), ("Fahrkarten", "tickets"),
    ("Briefe", "letters"), ("Blumen", "flowers"),
]  # fmt: skip
GOODS = [
    ("das Fahrrad", "the bicycle"), ("das Haus", "the house"), ("die Uhr", "the watch"),
    ("das Bild", "the painting"), ("die Reise", "the journey"),
]  # fmt: skip
EVENTS = [
    ("der Film", "the film"), ("das Konzert", "the concert"), ("die Sitzung", "the meeting"),
    ("das Spiel", "the match"),
]  # fmt: skip

DIGITS = (1, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 4, 4, 5, 6)

FRAMES = [
    ("die Antwort lautet {number}.", "the answer is {number}."),
    ("bitte schreiben Sie die Zahl {number} an die Tafel.", "please write the number {number} on the board."),
    ("{comparison}.", "{comparison}."),
    ("wir wissen, dass {sum} ergibt.", "we know that {sum}."),
    ("{person} kauft {count} {things}.", "{person} buys {count} {things}."),
    ("gestern hat {person} {count} {things} verkauft.", "yesterday {person} sold {count} {things}."),
    ("im Lager liegen {count} {things}.", "there are {count} {things} in the warehouse."),
    ("in dieser Stadt wohnen {count} Menschen.", "{count} people live in this city."),
    ("{goods} kostet {price}.", "{goods} costs {price}."),
    ("{person} hat {price} für {goods} bezahlt.", "{person} paid {price} for {goods}."),
    ("es ist jetzt {time}.", "it is now {time}."),
    ("der Zug fährt um {time} ab.", "the train leaves at {time}."),
    ("um {time} beginnt {event}.", "{event} starts at {time}."),
    ("wir treffen uns um {time} am Bahnhof.", "we will meet at the station at {time}."),
    ("heute ist {weekday}, der {date_e}.", "today is {weekday}, the {date_e}."),
    ("am {date_en} um {time} beginnt {event}.", "{event} starts on the {date_en} at {time}."),
    ("{person} hat am {date_en} Geburtstag.", "{person}'s birthday is on the {date_en}."),
    ("am {digits} fährt {person} nach Berlin.", "{person} is travelling to Berlin on {digits}."),
    ("{event} findet am {weekday}, dem {date_en}, statt.", "{event} takes place on {weekday}, the {date_en}."),
    ("{person} wurde am {date_en} {year} geboren.", "{person} was born on the {date_en} {year}."),
    ("im Jahr {year} wurde {goods} verkauft.", "{goods} was sold in the year {year}."),
]  # fmt: skip


class Slots:
    """Draws what stands between the braces of a frame."""

    def __init__(self, source):
        self.source = source

    def draw_number(self, most_digits=6):
        """Numbers of two and three digits are the most frequent."""
        digits = min(self.source.choice(DIGITS), most_digits)
        return self.source.randrange(10**digits)

    def draw_day(self):
        month = self.source.randint(1, len(MONTHS))
        return self.source.randint(1, MONTHS[month - 1][2]), month

    def number(self):
        return number_words(self.draw_number())

    def count(self):
        """A number that German puts before a plural as it stands."""
        number = 1
        while number == 0 or number % 100 == 1:
            number = self.draw_number()
        return number_words(number)

    def sum(self):
        first, second = self.draw_number(3), self.draw_number(3)
        words = [number_words(number) for number in (first, second, first + second)]
        german, english = zip(*words)
        return (
            f"{german[0]} plus {german[1]} {german[2]}",
            f"{english[0]} plus {english[1]} is {english[2]}",
        )

    def comparison(self):
        first = second = 0
        while first == second:
            first, second = self.draw_number(), self.draw_number()
        german, english = zip(number_words(max(first, second)), number_words(min(first, second)))
        return " ist größer als ".join(german), " is greater than ".join(english)

    def price(self):
        euros = 0
        while euros == 0 or euros > 1 and euros % 100 == 1:
            euros = self.draw_number(4)
        return price(euros, self.source.choice([0, self.source.randint(10, 99)]))

    def time(self):
        minute = self.source.choice([self.source.randrange(60), 5 * self.source.randrange(12)])
        return time_of_day(self.source.randint(1, 12), minute)

    def date_e(self):
        return date(*self.draw_day(), "e")

    def date_en(self):
        return date(*self.draw_day(), "en")

    def digits(self):
        return date_with_digits(*self.draw_day())

    def year(self):
        return year(self.source.randrange(1700, 2021))

    def person(self):
        return self.source.choice(PEOPLE)

    def things(self):
        return self.source.choice(THINGS)

    def goods(self):
        return self.source.choice(GOODS)

    def event(self):
        return self.source.choice(EVENTS)

    def weekday(self):
        return self.source.choice(WEEKDAYS)

    def fill(self, frame):
        names = [name for _, name, _, _ in string.Formatter().parse(frame[0]) if name]
        drawn = {name: getattr(self, name)() for name in names}
        return tuple(
            capitalize(text.format(**{name: pair[side] for name, pair in drawn.items()}))
            for side, text in enumerate(frame)
        )


def capitalize(text):
    return text[0].upper() + text[1:]


def sentence_pairs(count, seed):
    """`count` pairs, all different in each language."""
    slots = Slots(random.Random(seed))
    pairs, german_seen, english_seen = [], set(), set()
    for _ in range(20 * count + 1000):
        if len(pairs) == count:
            return pairs
        german, english = slots.fill(slots.source.choice(FRAMES))
        if german not in german_seen and english not in english_seen:
            pairs.append((german, english))
            german_seen.add(german)
            english_seen.add(english)
    raise ValueError(f"only {len(pairs)} different sentences found, not {count}; ask for fewer")


def write_lines(name, lines):
    with open(name + ".partial", "w", encoding="utf-8", newline="\n") as stream:
        stream.writelines(line + "\n" for line in lines)
    os.replace(name + ".partial", name)


def positive(text):
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return number


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], allow_abbrev=False)
    parser.add_argument("--out", required=True, help="folder for train, valid and test")
    parser.add_argument("--train", type=positive, default=16000, help="pairs for training")
    parser.add_argument("--valid", type=positive, default=500, help="pairs for validation")
    parser.add_argument("--test", type=positive, default=500, help="pairs for the test")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    try:
        pairs = sentence_pairs(options.train + options.valid + options.test, options.seed)
    except ValueError as error:
        parser.error(str(error))
    os.makedirs(options.out, exist_ok=True)
    start = 0
    for split in ("test", "valid", "train"):
        part = pairs[start : start + getattr(options, split)]
        start += len(part)
        for side, language in enumerate(("de", "en")):
            write_lines(os.path.join(options.out, f"{split}.{language}"), [p[side] for p in part])


if __name__ == "__main__":
    main()
