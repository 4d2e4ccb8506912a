import random

import pytest

import german_english
import number_phrases
from scripts import checksums, files_below

NUMBERS = [
    (0, "null", "zero"),
    (1, "eins", "one"),
    (12, "zwölf", "twelve"),
    (16, "sechzehn", "sixteen"),
    (17, "siebzehn", "seventeen"),
    (20, "zwanzig", "twenty"),
    (21, "einundzwanzig", "twenty-one"),
    (30, "dreißig", "thirty"),
    (67, "siebenundsechzig", "sixty-seven"),
    (100, "einhundert", "one hundred"),
    (101, "einhunderteins", "one hundred and one"),
    (116, "einhundertsechzehn", "one hundred and sixteen"),
    (1000, "eintausend", "one thousand"),
    (1001, "eintausendeins", "one thousand and one"),
    (21021, "einundzwanzigtausendeinundzwanzig", "twenty-one thousand and twenty-one"),
    (23405, "dreiundzwanzigtausendvierhundertfünf", "twenty-three thousand four hundred and five"),
    (101000, "einhunderteintausend", "one hundred and one thousand"),
    (
        999999,
        "neunhundertneunundneunzigtausendneunhundertneunundneunzig",
        "nine hundred and ninety-nine thousand nine hundred and ninety-nine",
    ),
]


@pytest.mark.parametrize(("number", "german", "english"), NUMBERS)
def test_numbers(number, german, english):
    assert german_english.number_words(number) == (german, english)


@pytest.mark.parametrize("number", [-1, 1_000_000])
def test_numbers_without_words_are_refused(number):
    with pytest.raises(ValueError, match=f"{number}.*0 to 999,999"):
        german_english.number_words(number)


@pytest.mark.parametrize(
    ("made", "german", "english"),
    [
        (german_english.date(1, 1, "e"), "erste Januar", "first of January"),
        (german_english.date(3, 3, "en"), "dritten März", "third of March"),
        (german_english.date(7, 5, "en"), "siebten Mai", "seventh of May"),
        (german_english.date(8, 6, "e"), "achte Juni", "eighth of June"),
        (german_english.date(12, 8, "e"), "zwölfte August", "twelfth of August"),
        (german_english.date(20, 9, "en"), "zwanzigsten September", "twentieth of September"),
        (german_english.date(31, 12, "e"), "einunddreißigste Dezember", "thirty-first of December"),
        (german_english.date_with_digits(3, 3), "3. März", "3 March"),
        (german_english.year(1984), "neunzehnhundertvierundachtzig", "nineteen eighty-four"),
        (german_english.year(1900), "neunzehnhundert", "nineteen hundred"),
        (german_english.year(1805), "achtzehnhundertfünf", "eighteen oh five"),
        (german_english.year(2004), "zweitausendvier", "two thousand and four"),
        (german_english.time_of_day(1, 0), "ein Uhr", "one o'clock"),
        (german_english.time_of_day(2, 30), "halb drei", "half past two"),
        (german_english.time_of_day(12, 30), "halb eins", "half past twelve"),
        (german_english.time_of_day(1, 15), "Viertel nach eins", "a quarter past one"),
        (german_english.time_of_day(12, 45), "Viertel vor eins", "a quarter to one"),
        (german_english.time_of_day(4, 25), "fünf vor halb fünf", "twenty-five past four"),
        (german_english.time_of_day(4, 35), "fünf nach halb fünf", "twenty-five to five"),
        (german_english.time_of_day(3, 20), "zwanzig nach drei", "twenty past three"),
        (german_english.time_of_day(3, 50), "zehn vor vier", "ten to four"),
        (german_english.time_of_day(1, 7), "ein Uhr sieben", "one oh seven"),
        (german_english.time_of_day(9, 21), "neun Uhr einundzwanzig", "nine twenty-one"),
        (german_english.price(1, 0), "einen Euro", "one euro"),
        (german_english.price(21, 0), "einundzwanzig Euro", "twenty-one euros"),
        (german_english.price(3, 50), "drei Euro fünfzig", "three euros fifty"),
    ],
)
def test_dates_times_and_prices(made, german, english):
    assert made == (german, english)


def test_no_sentence_of_either_language_occurs_twice():
    pairs = number_phrases.sentence_pairs(3000, seed=1)
    for side in range(2):
        assert len({pair[side] for pair in pairs}) == 3000


def test_the_corpus_depends_on_its_seed_alone(tmp_path):
    sizes = ["--train", "30", "--valid", "5", "--test", "6"]
    for folder, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        number_phrases.main(["--out", str(tmp_path / folder), "--seed", seed, *sizes])
    first, again, other = (checksums(tmp_path / folder) for folder in "abc")
    assert first == again != other
    lines = {n: f.read_text(encoding="utf-8").splitlines() for n, f in files_below(tmp_path / "a").items()}
    assert {name: len(text) for name, text in lines.items()} == {
        f"{split}.{language}": count
        for split, count in (("train", 30), ("valid", 5), ("test", 6))
        for language in ("de", "en")
    }
    for language in ("de", "en"):
        everything = sum((lines[f"{s}.{language}"] for s in ("train", "valid", "test")), [])
        assert len(set(everything)) == 41


def test_numbers_before_a_noun_need_no_ending():
    slots = number_phrases.Slots(random.Random(5))
    for _ in range(2000):
        german, _ = slots.count()
        assert not german.endswith("eins") and german != "null"
