"""``hhem``, on a tiny T5 of the published layout."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

import rageval_hooks
import rageval_hooks.models.hhem as model_module
from rageval_hooks import Passage, Score, Turn
from rageval_hooks.errors import ConfigurationError
from rageval_hooks.metrics.local.hhem import HallucinationEvaluation
from rageval_hooks.models import Models
from rageval_hooks.models.hhem import Hhem
from rageval_hooks.score import Result
from rageval_hooks.settings import ModelSettings
from tests import tiny_models
from tests.local import make_turn, run, why_not
from tests.metrics.texts import MUSEUM, PIER
from tests.text.junk import anything

pytestmark = pytest.mark.needs_torch


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.build_hhem(tmp_path_factory.mktemp("models") / "hhem")


@pytest.fixture(scope="module")
def models(folder: Path) -> Models:
    return Models(ModelSettings(hhem=str(folder), embedder="lexical", cross_encoder="lexical", nlp="lexical"))


@pytest.fixture(scope="module")
def hhem(models: Models) -> Hhem:
    return models.hhem(wait=True)


def score_of(results: tuple[Result, ...]) -> Score:
    [result] = results
    assert isinstance(result, Score), result
    return result


ANSWER = "Anna Berg designed the pier. It was opened in 2019."


def test_what_fits_is_read_in_one_pass(models: Models, hhem: Hhem) -> None:
    """The passages as one source, in their order, and the whole response, as Open RAG Eval has it."""
    score = score_of(run(HallucinationEvaluation(), make_turn(ANSWER, [PIER, "  ", MUSEUM]), models))

    assert score.value == hhem.support(f"{PIER}\n{MUSEUM}", ANSWER)
    assert score.model == hhem.name
    assert score.metadata == {"windows": 1}
    assert score.explanation is None


def test_hhem_is_enabled_by_its_name(folder: Path, hhem: Hhem) -> None:
    """With the model's folder among the models, and a threshold for its label."""
    turn = Turn(query="Who?", response=ANSWER, passages=(Passage(text=PIER),))

    evaluation = rageval_hooks.evaluate(
        turn, metrics=["hhem"], models={"hhem": str(folder)}, thresholds={"hhem": hhem.support(PIER, ANSWER)}
    )

    [score] = evaluation.scores
    assert (score.name, score.annotator, score.label) == ("hhem", "CODE", "pass")


def test_a_refusal_is_not_called_hallucinated(models: Models) -> None:
    """It claims nothing that the passages could support; no model is asked."""
    _, reason = why_not(run(HallucinationEvaluation(), make_turn("I don't know.", [PIER]), models))

    assert "declines to answer" in reason


def test_hhem_is_not_a_default_metric() -> None:
    """It needs a model of 440 MB."""
    assert HallucinationEvaluation.default is False


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows of 64 tokens that share 8, responses of 32."""
    monkeypatch.setattr(model_module, "WINDOW_TOKENS", 64)
    monkeypatch.setattr(model_module, "OVERLAP_TOKENS", 8)
    monkeypatch.setattr(model_module, "RESPONSE_TOKENS", 32)


SENTENCES = ["Anna Berg designed the pier.", "It was opened in 2019.", "…", "Why?"]
LONG = [f"the old {word} was open and the new {word} of the city is built by the river" for word in tiny_models._WORDS]


@pytest.mark.usefixtures("small")
def test_a_long_source_is_read_in_windows(models: Models, hhem: Hhem) -> None:
    """Per sentence its best window counts, for the turn the mean over sentences."""
    windows = hhem.source_windows("\n".join(LONG))

    score = score_of(run(HallucinationEvaluation(), make_turn(" ".join(SENTENCES), LONG), models))

    judged = [SENTENCES[0], SENTENCES[1], SENTENCES[3]]  # "…" says nothing
    best = [max(hhem.support(window, sentence) for window in windows) for sentence in judged]
    assert len(windows) > 5
    assert score.value == math.fsum(best) / 3
    assert score.metadata["windows"] == len(windows)
    assert [(row["text"], row["score"]) for row in score.metadata["sentences"]] == [
        (sentence, value) for sentence, value in zip(judged, best, strict=True)
    ]
    assert score.explanation is not None
    first, head, *poor = score.explanation.splitlines()
    assert first == f"read in {len(windows)} windows, sentence by sentence"
    assert head == f"{len(poor)} of 3 sentences below 0.50:"
    assert poor == [f"{v:.2f} “{s}”" for v, s in sorted(zip(best, judged, strict=True)) if v < 0.5]


@pytest.mark.usefixtures("small")
def test_what_the_end_of_a_long_source_says_counts(models: Models, hhem: Hhem) -> None:
    """Nothing is cut off: the last window counts like the first."""
    windows = hhem.source_windows("\n".join(LONG))
    only_last = score_of(run(HallucinationEvaluation(), make_turn(SENTENCES[0], LONG), models)).value

    values = [hhem.support(window, SENTENCES[0]) for window in windows]
    assert only_last == max(values)
    reversed_order = score_of(run(HallucinationEvaluation(), make_turn(SENTENCES[0], LONG[::-1]), models)).value
    assert reversed_order == max(hhem.support(w, SENTENCES[0]) for w in hhem.source_windows("\n".join(LONG[::-1])))


@pytest.mark.usefixtures("small")
def test_a_long_response_is_read_sentence_by_sentence(models: Models, hhem: Hhem) -> None:
    """A sentence longer than the model reads in pieces, which count like sentences."""
    sentence = "the old pier was built in the city by the river and the museum is new " * 4
    response = f"{sentence.strip()}. Anna Berg designed the pier."

    score = score_of(run(HallucinationEvaluation(), make_turn(response, [PIER]), models))

    assert score.metadata["windows"] == 1
    assert len(score.metadata["sentences"]) == len(hhem.response_pieces(f"{sentence.strip()}.")) + 1
    assert score.explanation is not None
    assert score.explanation.startswith("read sentence by sentence")


@pytest.mark.usefixtures("small")
def test_more_work_than_is_reasonable_is_skipped(models: Models) -> None:
    """It would take minutes; the reason says how much it is."""
    turn = make_turn(" ".join(SENTENCES), LONG)
    results = run(HallucinationEvaluation(max_passes=7), turn, models)

    name, reason = why_not(results)
    assert name == "hhem"
    assert reason.endswith(
        "windows of the passages for each of 3 sentences are more than max_passes=7 passes of the model"
    )


@pytest.mark.parametrize(
    ("response", "passages", "reason"),
    [
        ("", [PIER], "the turn has no response"),
        ("?!", [PIER], "the response has no words"),
        ("An answer.", [], "the turn has no passages"),
        ("An answer.", [" \n"], "the passages have no text"),
        ("An answer.", ["x" * 300_001], "300,011 characters to read; the limit is 300,000"),
    ],
)
def test_what_cannot_be_judged_is_skipped(models: Models, response: str, passages: list[str], reason: str) -> None:
    """With the reason; never a number in its place."""
    assert why_not(run(HallucinationEvaluation(), make_turn(response, passages), models)) == ("hhem", reason)


def test_without_the_model_it_is_skipped() -> None:
    """In the lexical tier, and where the model is not on this machine."""
    turn = make_turn("An answer.", [PIER])
    absent = Models(ModelSettings(hhem="rageval-tests/none", download=False))

    name, reason = why_not(run(HallucinationEvaluation(), turn, absent))
    assert name == "hhem"
    assert reason.startswith("hhem: rageval-tests/none is not on this machine and may not be downloaded. Download it")
    lexical = rageval_hooks.evaluate(turn, metrics=["hhem"], models="lexical")
    assert why_not(lexical.results)[1].startswith("hhem: the lexical tier has no replacement for it")


def test_a_limit_below_one_pass_is_refused() -> None:
    """The metric's constructor raises."""
    with pytest.raises(ConfigurationError, match="max_passes of hhem must be at least 1, not 0"):
        HallucinationEvaluation(max_passes=0)


_texts = st.lists(st.sampled_from(tiny_models._WORDS), max_size=8).map(" ".join) | anything()


@given(_texts, st.lists(_texts, max_size=3))
@hypothesis_settings(max_examples=40)
def test_the_score_is_a_probability_and_deterministic(models: Models, response: str, passages: list[str]) -> None:
    """This holds for any texts."""
    turn = make_turn(response, passages)
    first, second = (run(HallucinationEvaluation(), turn, models) for _ in range(2))

    assert first == second
    assert not isinstance(first[0], Score) or 0 <= first[0].value <= 1
