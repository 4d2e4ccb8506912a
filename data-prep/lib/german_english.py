"""Numbers, dates, times of day and prices in German and English words.

Every function returns a pair: German, English.
"""

SMALL = [
    ("null", "zero"), ("eins", "one"), ("zwei", "two"), ("drei", "three"), ("vier", "four"),
    ("fünf", "five"), ("sechs", "six"), ("sieben", "seven"), ("acht", "eight"), ("neun", "nine"),
    ("zehn", "ten"), ("elf", "eleven"), ("zwölf", "twelve"), ("dreizehn", "thirteen"),
    ("vierzehn", "fourteen"), ("fünfzehn", "fifteen"), ("sechzehn", "sixteen"),
    ("siebzehn", "seventeen"), ("achtzehn", "eighteen"), ("neunzehn", "nineteen"),
]  # fmt: skip
TENS = [
    ("zwanzig", "twenty"), ("dreißig", "thirty"), ("vierzig", "forty"), ("fünfzig", "fifty"),
    ("sechzig", "sixty"), ("siebzig", "seventy"), ("achtzig", "eighty"), ("neunzig", "ninety"),
]  # fmt: skip
MONTHS = [
    ("Januar", "January", 31), ("Februar", "February", 29), ("März", "March", 31),
    ("April", "April", 30), ("Mai", "May", 31), ("Juni", "June", 30), ("Juli", "July", 31),
    ("August", "August", 31), ("September", "September", 30), ("Oktober", "October", 31),
    ("November", "November", 30), ("Dezember", "December", 31),
]  # fmt: skip
WEEKDAYS = [
    ("Montag", "Monday"), ("Dienstag", "Tuesday"), ("Mittwoch", "Wednesday"),
    ("Donnerstag", "Thursday"), ("Freitag", "Friday"), ("Samstag", "Saturday"),
    ("Sonntag", "Sunday"),
]  # fmt: skip
IRREGULAR_GERMAN_ORDINALS = {1: "erst", 3: "dritt", 7: "siebt", 8: "acht"}
IRREGULAR_ENGLISH_ORDINALS = {
    "one": "first", "two": "second", "three": "third", "five": "fifth", "eight": "eighth",
    "nine": "ninth", "twelve": "twelfth",
}  # fmt: skip


def german_number(number, last_one="eins"):
    """Words for 0 to 999,999; `last_one` is what a 1 at the end becomes (`ein` before a noun)."""
    thousands, rest = divmod(number, 1000)
    if thousands:
        return german_number(thousands, "ein") + "tausend" + (
            german_number(rest, last_one) if rest else ""
        )
    hundreds, rest = divmod(number, 100)
    if hundreds:
        return german_number(hundreds, "ein") + "hundert" + (
            german_number(rest, last_one) if rest else ""
        )
    if number == 1:
        return last_one
    if number < 20:
        return SMALL[number][0]
    tens, ones = divmod(number, 10)
    return (german_number(ones, "ein") + "und" if ones else "") + TENS[tens - 2][0]


def english_number(number):
    """Words for 0 to 999,999, with the British `and`."""
    thousands, rest = divmod(number, 1000)
    if thousands:
        words = english_number(thousands) + " thousand"
        if rest:
            words += (" and " if rest < 100 else " ") + english_number(rest)
        return words
    hundreds, rest = divmod(number, 100)
    if hundreds:
        return SMALL[hundreds][1] + " hundred" + (" and " + english_number(rest) if rest else "")
    if number < 20:
        return SMALL[number][1]
    tens, ones = divmod(number, 10)
    return TENS[tens - 2][1] + ("-" + SMALL[ones][1] if ones else "")


def number_words(number):
    if not 0 <= number <= 999_999:
        raise ValueError(f"no words for {number}; use 0 to 999,999")
    return german_number(number), english_number(number)


def german_ordinal(number, ending):
    if number >= 20:
        return german_number(number) + "st" + ending
    return IRREGULAR_GERMAN_ORDINALS.get(number, SMALL[number][0] + "t") + ending


def english_ordinal(number):
    stem, dash, last = english_number(number).rpartition("-")
    if last in IRREGULAR_ENGLISH_ORDINALS:
        last = IRREGULAR_ENGLISH_ORDINALS[last]
    elif last.endswith("y"):
        last = last[:-1] + "ieth"
    else:
        last += "th"
    return stem + dash + last


def date(day, month, ending):
    """`ending` is the German adjective's: `e` after `der`, `en` after `am` or `den`."""
    german, english, _ = MONTHS[month - 1]
    return f"{german_ordinal(day, ending)} {german}", f"{english_ordinal(day)} of {english}"


def date_with_digits(day, month):
    german, english, _ = MONTHS[month - 1]
    return f"{day}. {german}", f"{day} {english}"


def year(number):
    """Years from 1100 to 1999 are counted in hundreds, from 2000 to 2099 as numbers."""
    if number >= 2000:
        return number_words(number)
    century, rest = divmod(number, 100)
    german = german_number(century) + "hundert" + (german_number(rest) if rest else "")
    english = english_number(century)
    if rest == 0:
        return german, english + " hundred"
    return german, f"{english} {'oh ' if rest < 10 else ''}{english_number(rest)}"


def time_of_day(hour, minute):
    """Time on a clock of twelve hours; `hour` from 1 to 12."""
    following = hour % 12 + 1
    this, after = number_words(hour), number_words(following)
    if minute == 0:
        return f"{german_number(hour, 'ein')} Uhr", f"{this[1]} o'clock"
    if minute == 15:
        return f"Viertel nach {this[0]}", f"a quarter past {this[1]}"
    if minute == 25:
        return f"fünf vor halb {after[0]}", f"twenty-five past {this[1]}"
    if minute == 30:
        return f"halb {after[0]}", f"half past {this[1]}"
    if minute == 35:
        return f"fünf nach halb {after[0]}", f"twenty-five to {after[1]}"
    if minute == 45:
        return f"Viertel vor {after[0]}", f"a quarter to {after[1]}"
    if minute in (5, 10, 20):
        past = number_words(minute)
        return f"{past[0]} nach {this[0]}", f"{past[1]} past {this[1]}"
    if minute in (40, 50, 55):
        left = number_words(60 - minute)
        return f"{left[0]} vor {after[0]}", f"{left[1]} to {after[1]}"
    german = f"{german_number(hour, 'ein')} Uhr {german_number(minute)}"
    return german, f"{this[1]} {'oh ' if minute < 10 else ''}{english_number(minute)}"


def price(euros, cents):
    """In the accusative: `einen Euro`."""
    german = "einen Euro" if euros == 1 else f"{german_number(euros, 'ein')} Euro"
    english = "one euro" if euros == 1 else f"{english_number(euros)} euros"
    if cents == 0:
        return german, english
    return f"{german} {german_number(cents)}", f"{english} {english_number(cents)}"
