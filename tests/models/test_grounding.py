"""Grounding models: each family computes what plain transformers computes, and what cannot be used is refused."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rageval_hooks.errors import ConfigurationError, InputTooLargeError, ModelUnavailableError
from rageval_hooks.models import load_now
from rageval_hooks.models.bert_graph import GraphKind
from rageval_hooks.models.grounding import GroundingInput, GroundingModel, PairModel
from rageval_hooks.settings import ModelSettings, Settings
from tests import tiny_models
from tests.lazily import LazyModule

torch = LazyModule("torch")
transformers = LazyModule("transformers")

pytestmark = pytest.mark.needs_torch  # most architectures are exported by PyTorch, or computed by it

QUERY = "When was the pier opened?"
PASSAGES = ["The new pier was opened in 2019 by Anna Berg.", "An old tower: £3 (½ price) is the bridge."]
RESPONSE = "The pier was opened in 2019. the old tower is old — £4!"
SENTENCES = [(0, 28), (29, len(RESPONSE))]
NLI = ["contradiction", "entailment", "neutral"]

PROMPT = (
    "Briefly answer the following question:\nWhen was the pier opened?\n"
    "Bear in mind that your response should be strictly based on the following 2 passages:\n"
    "passage 1: The new pier was opened in 2019 by Anna Berg.\n"
    "passage 2: An old tower: £3 (½ price) is the bridge.\n"
    "In case the passages do not contain the necessary information to answer the question, "
    'please reply with: "Unable to answer based on given passages."\noutput:'
)
FACTCG = (
    "{source}\n\nChoose your answer: based on the paragraph above can we conclude that "
    '"{claim}"?\n\nOPTIONS:\n- Yes\n- No\nI think the answer is '
)
BERT, ROBERTA = "BertForSequenceClassification", "RobertaForSequenceClassification"
DEBERTA, T5 = "DebertaV2ForSequenceClassification", "T5ForConditionalGeneration"
TOKENS = "ModernBertForTokenClassification"

# The folder's name, as names on the hub are, its class, its labels; the input in words, and what counts as supported.
PAIRS: list[tuple[str, str, list[str] | None, Any, int]] = [
    ("nli-bert", BERT, NLI, lambda source, claim: (source, claim), 1),
    ("nli-upper", ROBERTA, ["ENTAILMENT", "NOT_ENTAILMENT"], lambda source, claim: (source, claim), 0),
    ("nli-deberta", DEBERTA, ["neutral", "contradiction", "Entailment"], lambda source, claim: (source, claim), 2),
    ("MiniCheck-DeBERTa", DEBERTA, ["0", "1"], lambda source, claim: (f"{source}[SEP]{claim}",), 1),
    ("MiniCheck-RoBERTa", ROBERTA, None, lambda source, claim: (f"{source}</s>{claim}",), 1),
    ("FactCG-DeBERTa", DEBERTA, None, lambda source, claim: (FACTCG.format(source=source, claim=claim),), 1),
]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for models, which are made when they are needed."""
    return tmp_path_factory.mktemp("grounding")


def made(models: Path, name: str, kind: str, labels: list[str] | None = None, **options: Any) -> Path:
    folder = models / name
    return folder if folder.exists() else tiny_models.build_grounding(folder, kind, labels, **options)


def load(folder: Path, **fields: Any) -> GroundingModel:
    settings = {"backend": "torch", **fields}
    model: GroundingModel = load_now("grounding", ModelSettings(grounding=str(folder), download=False, **settings))
    return model


def grounding_input(passages: list[str], response: str = RESPONSE, query: str = QUERY, **fields: Any) -> GroundingInput:
    sources = list(enumerate(passages))
    return GroundingInput(query=query, sources=sources, response=response, **{"sentences": SENTENCES, **fields})


def softmax(logits: Any) -> np.ndarray:
    return np.asarray(torch.softmax(logits.float(), dim=-1))


@pytest.mark.parametrize(("name", "kind", "labels", "written", "index"), PAIRS, ids=[pair[0] for pair in PAIRS])
def test_a_pair_has_the_probability_that_transformers_computes(
    models: Path, name: str, kind: str, labels: list[str] | None, written: Any, index: int
) -> None:
    """The template is recognised by the name, the output that means support by ``id2label``."""
    folder = made(models, name, kind, labels)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    library = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    source = "\n".join(PASSAGES)
    expected = []
    for start, end in SENTENCES:
        inputs = tokenizer(*written(source, RESPONSE[start:end]), return_tensors="pt")
        with torch.no_grad():
            expected.append(softmax(library(**inputs).logits[0])[index])

    reading = load(folder).read(grounding_input(PASSAGES))

    assert [sentence.support for sentence in reading.sentences] == pytest.approx(expected, abs=1e-6)
    assert (reading.windows, reading.passes) == (1, 2)
    assert abs(expected[0] - expected[1]) > 1e-4


def test_minicheck_t5_answers_with_the_token_1(models: Path) -> None:
    """Its first written token is 0 or 1; the share of 1 among the two is the support."""
    folder = made(models, "MiniCheck-Flan-T5", T5)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    library = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    claim = RESPONSE[: SENTENCES[0][1]]
    inputs = tokenizer(f"predict: {PASSAGES[0]}</s>{claim}", return_tensors="pt")
    with torch.no_grad():
        logits = library(**inputs, decoder_input_ids=torch.zeros((1, 1), dtype=torch.long)).logits[0, 0]

    reading = load(folder).read(grounding_input(PASSAGES[:1], sentences=SENTENCES[:1]))

    assert reading.sentences[0].support == pytest.approx(softmax(logits[[3, 209]])[1], abs=1e-6)


def test_hhem_can_take_the_slot(models: Path) -> None:
    """With its own prompt; its code is not run."""
    folder = tiny_models.build_hhem(models / "hhem")

    model = load(folder)

    assert 0 < model.read(grounding_input(PASSAGES)).sentences[0].support < 1
    assert model.version == "hhem-1"


@pytest.mark.parametrize(
    ("labels", "unsupported"), [(None, 1), (["SUPPORTED", "HALLUCINATED"], 1), (["unsupported", "supported"], 0)]
)
def test_tokens_have_the_probabilities_that_transformers_computes(
    models: Path, labels: list[str] | None, unsupported: int
) -> None:
    """The worst token decides about its sentence; runs of unsupported tokens are spans of the answer."""
    folder = made(models, f"tokens-{'-'.join(labels or ['unnamed'])}", TOKENS, labels)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    library = transformers.AutoModelForTokenClassification.from_pretrained(folder).eval()
    inputs = tokenizer(PROMPT, RESPONSE, return_offsets_mapping=True, return_tensors="pt")
    offsets, owners = inputs.pop("offset_mapping")[0].tolist(), inputs.sequence_ids(0)
    with torch.no_grad():
        shares = softmax(library(**inputs).logits[0])[:, unsupported]
    own = []
    for (start, end), owner, share in zip(offsets, owners, shares, strict=True):
        # " the" belongs to the sentence that "the" begins; a space alone says nothing.
        word = RESPONSE[start:end].strip()
        if owner == 1 and word:
            own.append((end - len(word), end, share))

    reading = load(folder).read(grounding_input(PASSAGES))

    for sentence, (start, end) in zip(reading.sentences, SENTENCES, strict=True):
        inside = [token for token in own if start <= token[0] < end]
        assert sentence.support == pytest.approx(1 - max(token[2] for token in inside), abs=1e-6)
        marked = {place for token in inside if token[2] > 0.5 for place in range(token[0], token[1])}
        found = {place for span in sentence.unsupported for place in range(span.start, span.end)}
        assert {place for place in found if not RESPONSE[place].isspace()} == marked
        assert all(span.probability > 0.5 for span in sentence.unsupported)
    assert (reading.windows, reading.passes, reading.tokens) == (1, 1, len(offsets))
    assert any(sentence.unsupported for sentence in reading.sentences)


def test_without_a_question_the_answer_is_read_as_a_summary(models: Path) -> None:
    """LettuceDetect's models were trained with both prompts."""
    folder = made(models, "tokens-unnamed", TOKENS)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    prompt = f"Summarize the following text:\npassage 1: {PASSAGES[0]}\npassage 2: {PASSAGES[1]}\noutput:"

    reading = load(folder).read(grounding_input(PASSAGES, query=""))

    assert reading.tokens == len(tokenizer(prompt, RESPONSE).input_ids)


@pytest.mark.parametrize("kind", [TOKENS, BERT])
def test_a_long_context_is_read_in_windows_and_the_best_one_counts(models: Path, kind: str) -> None:
    """No window is longer than the model reads, and a sentence has the support of its best window."""
    # The tokens of BERT are words, the others' are bytes.
    positions = 225 if kind == BERT else 450
    small = made(models, f"small-{kind}", kind, NLI if kind == BERT else None, positions=positions)
    model = load(small)
    passages = [f"{passage} " * 12 for passage in PASSAGES] + ["The museum. " * 40]

    whole = model.read(grounding_input(passages))
    alone = [model.read(grounding_input([passage])) for passage in passages]

    assert whole.windows > 1
    assert whole.tokens / whole.passes <= positions
    assert all(0 <= sentence.support <= 1 for sentence in whole.sentences)
    # One passage fills a window, so the windows of the whole are those of the single passages.
    if kind == BERT:
        best = [max(reading.sentences[i].support for reading in alone) for i in range(len(SENTENCES))]
        assert [sentence.support for sentence in whole.sentences] == pytest.approx(best, abs=1e-6)
    with pytest.raises(InputTooLargeError, match="max_passes=1 passes"):
        model.read(grounding_input(passages, max_passes=1))


def test_a_sentence_with_more_tokens_than_characters_is_cut(models: Path) -> None:
    """A tokenizer of bytes makes three tokens of a Chinese character, which may be more than the model has places."""
    model = load(made(models, "bytes", ROBERTA, NLI, positions=450))

    reading = model.read(grounding_input(["今" * 300], sentences=SENTENCES[:1]))

    assert reading.windows == 3
    assert reading.tokens / reading.passes <= 450


@pytest.mark.parametrize("text", ["".join(map(chr, range(0x4E00, 0x4F2C))), "The museum is old. A tower! " * 40])
def test_every_character_of_a_long_passage_is_read_once(models: Path, text: str) -> None:
    """In their order; a passage without sentences, too."""
    model = load(made(models, "bytes", ROBERTA, NLI, positions=450))
    assert isinstance(model, PairModel)
    asked: list[str] = []

    def support(source: str, claim: str) -> tuple[float, int]:
        asked.append(source)
        return model.support(source, claim)

    reading = replace(model, support=support).read(grounding_input([text], sentences=SENTENCES[:1]))

    assert reading.windows == len(asked) > 1
    assert "".join("".join(asked).split()) == "".join(text.split())


@pytest.mark.parametrize(("kind", "labels"), [(TOKENS, None), (BERT, NLI)])
def test_a_model_that_reads_too_little_is_not_asked(models: Path, kind: str, labels: Any) -> None:
    """Passages and an answer do not fit."""
    model = load(made(models, f"tiny-{kind}", kind, labels, positions=60))

    with pytest.raises(InputTooLargeError, match="reads 60 tokens: too few for passages and an answer"):
        model.read(grounding_input(PASSAGES))


@pytest.mark.parametrize(("kind", "labels"), [(TOKENS, None), (BERT, NLI)])
def test_an_answer_that_is_too_long_for_the_model_is_not_judged(models: Path, kind: str, labels: Any) -> None:
    """A token classifier reads the answer at once, a sequence-pair model each sentence: none is cut."""
    model = load(made(models, f"small-{kind}", kind, labels, positions=450))
    response = f"{'tower ' * 300}."

    with pytest.raises(InputTooLargeError, match=r"tokens of the answer, which .* has to read at once, are more than"):
        model.read(grounding_input(PASSAGES[:1], response=response, sentences=[(0, len(response))]))


@pytest.mark.parametrize(
    ("kind", "labels", "graph"),
    [
        (BERT, NLI, "pair"),
        (ROBERTA, NLI, "pair"),
        (DEBERTA, NLI, "pair"),
        ("BertForTokenClassification", None, "tokens"),
        (TOKENS, None, "tokens"),
    ],
)
def test_onnx_runtime_computes_the_same(models: Path, kind: str, labels: list[str] | None, graph: GraphKind) -> None:
    """The score says which backend computed it; the weights are not needed."""
    folder = Path(shutil.copytree(made(models, f"plain-{kind}", kind, labels), models / f"onnx-{kind}"))
    tiny_models.add_graph(folder, graph)
    by_torch = load(folder)
    expected = by_torch.read(grounding_input(PASSAGES)).sentences
    (folder / "model.safetensors").unlink()

    by_onnx = load(folder, backend="onnx")

    assert (by_torch.details["backend"], by_onnx.details["backend"]) == ("torch", "onnx")
    found = by_onnx.read(grounding_input(PASSAGES)).sentences
    assert [one.support for one in found] == pytest.approx([one.support for one in expected], abs=1e-5)


def test_another_graph_is_named_with_the_scores(models: Path) -> None:
    """``onnx_file``: what a quantized one says is not what the model says."""
    folder = Path(shutil.copytree(made(models, f"plain-{BERT}", BERT, NLI), models / "other-graph"))
    tiny_models.add_graph(folder, "pair", "onnx/small.onnx")

    assert load(folder, backend="onnx", onnx_file="onnx/small.onnx").name == f"{folder}, onnx/small.onnx"
    assert load(folder, backend="torch", onnx_file="onnx/small.onnx").name == str(folder)


def edited(folder: Path, target: Path, **changes: Any) -> Path:
    shutil.copytree(folder, target)
    config = json.loads((target / "config.json").read_text())
    (target / "config.json").write_text(json.dumps({**config, **changes}))
    return target


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architectures": ["BertModel"]}, "has the architecture BertModel. A grounding model classifies tokens or"),
        ({"id2label": {"0": "LABEL_0", "1": "LABEL_1"}}, "labels label_0, label_1, of which none is known to mean"),
        ({"id2label": {"0": "LABEL_0"}}, "write id2label in its config.json, with 'entailment'"),
        ({"architectures": ["T5ForConditionalGeneration"]}, "'grounding_template': 'minicheck'"),
        ({"model_type": "EuroBertX"}, "needs code from its repository, and such code is never run"),
        ({"architectures": ["BertForTokenClassification"]}, "labels contradiction, entailment, neutral"),
    ],
)
def test_a_model_of_another_kind_is_refused(
    models: Path, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    """The message says what is wrong and what to do."""
    folder = edited(made(models, "nli-bert", BERT, NLI), tmp_path / "model", **changes)

    with pytest.raises(ModelUnavailableError, match=message):
        load(folder)


def test_a_head_without_weights_is_refused(models: Path, tmp_path: Path) -> None:
    """Transformers would fill it with random numbers."""
    tiny_models.build_encoder(tmp_path / "encoder")
    folder = edited(
        tmp_path / "encoder", tmp_path / "model", architectures=["BertForSequenceClassification"],
        id2label={"0": "entailment", "1": "neutral"},
    )  # fmt: skip

    with pytest.raises(ModelUnavailableError, match=r"has no weights for classifier\.bias"):
        load(folder)


def test_a_renamed_model_needs_its_template(models: Path, tmp_path: Path) -> None:
    """``grounding_template`` says how it wants its input; one that does not fit is refused."""
    source = made(models, "MiniCheck-DeBERTa", DEBERTA, ["0", "1"])
    renamed = Path(shutil.copytree(source, tmp_path / "mine"))
    with pytest.raises(ModelUnavailableError, match="labels 0, 1, of which none is known"):
        load(renamed)

    expected, found = (
        model.read(grounding_input(PASSAGES)).sentences
        for model in (load(source), load(renamed, grounding_template="minicheck"))
    )
    assert found == expected
    with pytest.raises(ModelUnavailableError, match="'lettucedetect' does not fit its architecture"):
        load(renamed, grounding_template="lettucedetect")
    with pytest.raises(ConfigurationError, match="'auto', 'lettucedetect', 'pair', 'minicheck' or 'factcg'"):
        Settings.build(models={"grounding_template": "bert"})
    with pytest.raises(ConfigurationError, match="set embedder='lexical'"):
        Settings.build(models={"grounding": "lexical"})


def test_the_revision_of_a_model_of_the_hub_is_known(models: Path, tmp_path: Path) -> None:
    """From the name of its folder in the hub's cache; the scores have it in their metadata."""
    folder = tmp_path / "models--example--nli" / "snapshots" / ("0a" * 20)
    shutil.copytree(made(models, "nli-bert", BERT, NLI), folder)

    assert load(folder).details["revision"] == "0a" * 20


def test_a_model_that_is_not_on_this_machine_says_how_to_get_it() -> None:
    """Nothing is downloaded where that may not be."""
    with pytest.raises(
        ModelUnavailableError, match=r"hf download example/none\) and set models={'grounding': '/path'}"
    ):
        load_now("grounding", ModelSettings(grounding="example/none", download=False))
