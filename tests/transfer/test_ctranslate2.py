"""What transfer makes plain is converted by CTranslate2, without this package, and translates the same there."""

import argparse
import shutil

import pytest
import torch
from fairseq.checkpoint_utils import load_model_ensemble

from fairseq_rfa.model.config import RFA_OPTIONS
from fairseq_rfa.transfer import __main__ as transfer
from tiny_data import command, generate_here, results, train_here

TWIN = "--causal-attention softmax --cross-attention softmax".split()


@pytest.fixture(scope="module")
def twin(data, tmp_path_factory):
    """Softmax in both places of our model, trained until its translations differ."""
    return train_here(data, tmp_path_factory.mktemp("twin"), "--max-update", "60", *TWIN)


def as_of_a_configuration_file(path, folder):
    """Options as fairseq-hydra-train stores them: the model's apart, in a dictionary."""
    state = torch.load(path, weights_only=True)
    everything = vars(state["cfg"]["model"])
    own = ("_name", "encoder_", "decoder_", "causal_", "cross_", "no_", "share_", "rfa_")
    state["cfg"]["model"] = {name: value for name, value in everything.items() if name.startswith(own)}
    torch.save(state, folder / "configured.pt")
    return folder / "configured.pt"


def plain(path, folder):
    transfer.main(["--to", "softmax", str(path), str(folder / "softmax.pt")])
    return folder / "softmax.pt"


@pytest.mark.parametrize("source", ["twin", "configured", "rfa"])
def test_ctranslate2_converts_it_and_translates_the_same(data, twin, checkpoint, tmp_path, source):
    ctranslate2 = pytest.importorskip("ctranslate2")
    path = {"twin": twin, "rfa": checkpoint}.get(source) or as_of_a_configuration_file(twin, tmp_path)
    path = plain(path, tmp_path)
    dictionaries = tmp_path / "dictionaries"
    dictionaries.mkdir()
    for name in ("dict.de.txt", "dict.en.txt"):
        shutil.copy(data / name, dictionaries)
    flags = ["--source_lang", "de", "--target_lang", "en", "--output_dir", tmp_path / "converted"]
    done = command("ct2-fairseq-converter", "--model_path", path, "--data_dir", dictionaries, *flags, folder=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    translator = ctranslate2.Translator(str(tmp_path / "converted"), inter_threads=1, intra_threads=1)
    output = generate_here(data, path, "--beam", "1")
    expected = [fields[1] for _, fields in results(output)]
    sources = [fields[0].split() for _, fields in results(output, "S")]
    # Both give up at 200 tokens.
    found = translator.translate_batch(sources, beam_size=1, max_decoding_length=200)
    assert [" ".join(result.hypotheses[0]) for result in found] == expected
    assert len(set(expected)) > (1 if source == "rfa" else 3)


def test_options_are_attributes_and_plain_values(data, twin, tmp_path):
    path = plain(twin, tmp_path)
    allowed = torch.serialization.get_safe_globals()
    torch.serialization.clear_safe_globals()  # as without this package
    try:
        stored = torch.load(path, weights_only=True)
    finally:
        torch.serialization.add_safe_globals(allowed)
    options = stored["args"] or stored["cfg"]["model"]
    assert (options.arch, options.task, options.decoder_layers) == ("transformer", "translation", 2)
    assert vars(options) == dict(options)
    assert not vars(options).keys() & {option.name for option in RFA_OPTIONS}
    assert isinstance(stored["cfg"]["model"], dict) and not isinstance(options, argparse.Namespace)


def test_overrides_of_the_plain_model_work(data, twin, tmp_path):
    overrides = {"data": str(data), "max_source_positions": 77, "left_pad_source": False, "dropout": 0.25}
    (model,), cfg = load_model_ensemble([str(plain(twin, tmp_path))], arg_overrides=overrides)
    assert model.encoder.max_source_positions == 77 and cfg.task.left_pad_source is False
    assert model.decoder.dropout_module.p == 0.25
