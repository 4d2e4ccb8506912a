"""Small archives in the formats of the original releases of IWSLT14 and WMT14."""

import functools
import gzip
import html
import http.server
import io
import tarfile
import threading
from contextlib import contextmanager

import number_phrases

IWSLT_TESTS = ["TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012"]
# Each character ends a line for some tool or other.
SEPARATORS = "\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"

sentence_pairs = functools.cache(number_phrases.sentence_pairs)


def write_tar(path, files, mode="w:gz"):
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, mode) as tar:
        for name, data in files.items():
            data = data.encode("utf-8") if isinstance(data, str) else data
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path


def lines_of(pairs, side):
    return "".join(pair[side] + "\n" for pair in pairs)


def talks(pairs, size=50):
    return [pairs[start : start + size] for start in range(0, len(pairs), size)]


def iwslt_training_text(pairs, side):
    """Talks with their metadata; title and description are text."""
    language = ("de", "en")[side]
    lines = []
    for number, talk in enumerate(talks(pairs)):
        title, description, *rest = [pair[side] for pair in talk]
        lines += [
            f"<url>http://talks.example/lang/{language}/talk_{number}.html</url>",
            "<keywords>talks, numbers, <b>dates</b></keywords>",
            "<speaker>A. Speaker</speaker>",
            f"<talkid>{number}</talkid>",
            f"<title>{title}</title>",
            f"<description>{description}</description>",
            *rest,
            '<reviewer href="http://talks.example/reviewer">A. Reviewer</reviewer>',
            '<translator href="http://talks.example/translator">A. Translator</translator>',
        ]
    return "".join(line + "\n" for line in lines)


def segments(talk, side):
    return "".join(
        f'<seg id="{number}"> {html.escape(pair[side], quote=False)} </seg>\n'
        for number, pair in enumerate(talk, start=1)
    )


def iwslt_set(name, pairs, side):
    kind, language = (("srcset", "german"), ("refset", "english"))[side]
    documents = "".join(
        f'<doc docid="{number}" genre="lectures">\n<talkid>{number}</talkid>\n<title>No test</title>\n'
        f"{segments(talk, side)}</doc>\n"
        for number, talk in enumerate(talks(pairs, 7))
    )
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<mteval>\n<{kind} setid="iwslt2014-{name}" '
        f'srclang="{language}">\n{documents}</{kind}>\n</mteval>\n'
    )


def iwslt_files(train, tests):
    """What de-en.tgz holds, by name; `tests` are lists of pairs in the order of IWSLT_TESTS."""
    files = {"de-en/README": "made for tests\n"}
    for side, language in enumerate(("de", "en")):
        files[f"de-en/train.tags.de-en.{language}"] = iwslt_training_text(train, side)
        for name, pairs in zip(IWSLT_TESTS, tests):
            files[f"de-en/IWSLT14.{name}.de-en.{language}.xml"] = iwslt_set(name, pairs, side)
    return files


def sgm(pairs, side, kind, language):
    documents = "".join(
        f'<doc sysid="ref" docid="{number}-paper" genre="news" origlang="en">\n<p>\n{segments(talk, side)}'
        "</p>\n</doc>\n"
        for number, talk in enumerate(talks(pairs, 4))
    )
    return f'<{kind} setid="newstest2014" srclang="any" trglang="{language}">\n{documents}</{kind}>\n'


def swapped(pairs):
    return [(english, german) for german, english in pairs]


def wmt_archives(corpora, valid, test, target):
    """The files of each archive by name; all pairs are English and `target`."""
    pair = f"{target}-en"
    names = {
        "training-parallel-europarl-v7.tgz": f"training/europarl-v7.{pair}.",
        "training-parallel-commoncrawl.tgz": f"commoncrawl.{pair}.",
        "training-parallel-nc-v9.tgz": f"training/news-commentary-v9.{pair}.",
        "training-parallel-un.tgz": "un/undoc.2000.fr-en.",
        "training-giga-fren.tar": "giga-fren.release2.fixed.",
    }
    languages = ("en", target)
    archives = {}
    for (archive, name), pairs in zip(names.items(), corpora):
        # Other languages lie in the same archives.
        files = {"training/europarl-v7.cs-en.cs": "jiný jazyk\n"}
        for side, language in enumerate(languages):
            files[name + language] = lines_of(pairs, side)
        if archive.endswith(".tar"):
            files = {f"{n}.gz": gzip.compress(text.encode("utf-8"), mtime=0) for n, text in files.items()}
        archives[archive] = files
    archives["dev.tgz"] = {
        f"dev/newstest2013.{language}": lines_of(valid, side) for side, language in enumerate(languages)
    }
    stem = f"test-full/newstest2014-{target}en"
    archives["test-full.tgz"] = {
        f"{stem}-src.en.sgm": sgm(test, 0, "srcset", "en"),
        f"{stem}-ref.{target}.sgm": sgm(test, 1, "refset", target),
    }
    return archives


def write_archives(folder, archives):
    for name, files in archives.items():
        write_tar(folder / name, files, "w" if name.endswith(".tar") else "w:gz")
    return folder


@contextmanager
def web_server(folder):
    """The address at which this machine serves the folder."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    handler = functools.partial(Handler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{running.server_port}"
        finally:
            running.shutdown()
            thread.join()
