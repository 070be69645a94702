"""The extra ``languages``: the real package instead of the rules."""

from __future__ import annotations

import pytest

from rageval_hooks import evaluate
from rageval_hooks.score import Skipped
from rageval_hooks.text.language import language_of, prepare_language_detection
from tests.local import make_turn

pytest.importorskip("py3langid")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Who leads the school?", "en"),
        ("Wie hoch ist das Haus?", "de"),
        ("Qui dirige cette école ?", "fr"),
        ("¿Quién ganó el partido?", "es"),
        ("Perché piove tanto?", "it"),
        ("Quem pintou este quadro?", "pt"),
        ("Wat eten beren graag?", "nl"),
        ("首都是哪里?", "zh"),
        ("館長は誰ですか。", "ja"),
        ("När öppnar museet på söndag?", "sv"),
        ("Hvenær opnar safnið á sunnudögum?", None),
        ("Marie Curie", None),
        ("", None),
    ],
)
def test_short_questions_are_decided(text: str, expected: str | None) -> None:
    """The function words of most are not enough. Names, and languages that no rule treats, stay undecided."""
    prepare_language_detection(wait=True)
    assert language_of(text) == expected


def test_scores_for_english_are_skipped() -> None:
    """The question has no function word of German that the rules know."""
    turn = make_turn("Gold glänzt gelb.", ["Gold glänzt gelb."], "Welche Farbe hat Gold?")
    evaluation = evaluate(turn, models="lexical", metrics=["concept_completeness"])
    [result] = evaluation.results
    assert isinstance(result, Skipped)
    assert result.reason.startswith("language German")
