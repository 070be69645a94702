"""``faithfulness``: one number for support, which wrong facts, reversed negations and the weakest sentence lower."""

from __future__ import annotations

import pytest

from rageval_hooks import Score
from rageval_hooks.metrics.local.faithfulness import Faithfulness
from rageval_hooks.metrics.local.groundedness import Groundedness
from tests.local import label_of, make_turn, run, why_not

PASSAGE = (
    "Acme acquired Beta Corp in 2019 for $5 million. The bridge opened on March 5, 1869. Sales rose by 12 percent in "
    "Germany, while costs were flat in Poland. The tower was rebuilt in 1931."
)


def score_of(response: str, passage: str = PASSAGE, query: str = "What happened?") -> Score:
    [score] = run(Faithfulness(), make_turn(response, [passage], query))
    assert isinstance(score, Score), score
    return score


@pytest.mark.parametrize(
    ("supported", "edited", "reason"),
    [
        ("Acme acquired Beta Corp in 2019.", "Acme acquired Beta Corp in 2018.", "missing: 2018"),
        ("Sales rose by 12 percent in Germany.", "Sales rose by 12 percent in Norway.", "missing: Norway"),
        (
            "The tower was rebuilt in 1931.",
            "The tower was not rebuilt in 1931.",
            "say: “The tower was rebuilt",
        ),
        (
            "The tower was rebuilt in 1931.",
            "The tower wasn't rebuilt in 1931.",
            "say: “The tower was rebuilt",
        ),
    ],
)
def test_small_edits_are_visible(supported: str, edited: str, reason: str) -> None:
    """A name, a number or a negation that differs lowers the score, and the explanation names it."""
    right, wrong = score_of(supported), score_of(edited)

    assert right.value > 0.8
    assert wrong.value < right.value - 0.25
    assert reason in (wrong.explanation or "")


def test_the_weakest_sentence_counts_as_much_as_the_mean() -> None:
    """The documented formula, by the sentences that the score lists: without wrong facts these have their own."""
    score = score_of(
        "Sales rose by 12 percent in Germany. Rabbits happily enjoyed juicy carrots near old wooden fences."
    )
    sentences = [(sentence["score"], sentence["weight"]) for sentence in score.metadata["sentences"]]
    mean = sum(value * weight for value, weight in sentences) / sum(weight for _, weight in sentences)
    weakest = mean + min((value - mean) * weight / (weight + 5) for value, weight in sentences)

    assert len(sentences) == 2
    assert score.value == pytest.approx((mean + weakest) / 2)
    assert score.value < mean - 0.1


PAIRS = [
    ("Dogs are not allowed on the night boat.", "Dogs are allowed on the night boat."),
    ("The museum does not open on Mondays.", "The museum opens on Mondays."),
    ("Visitors can't take photographs in the archive.", "Visitors can take photographs in the archive."),
    ("The bakery no longer sells rye bread.", "The bakery sells rye bread."),
    ("There is no charge for children under six.", "There is a charge for children under six."),
    ("The lighthouse was never open to the public.", "The lighthouse was open to the public."),
    ("Membership cannot be cancelled by phone.", "Membership can be cancelled by phone."),
    ("Neither the library nor the archive lends maps.", "The library and the archive lend maps."),
    ("The permit isn't valid after sunset.", "The permit is valid after sunset."),
]


@pytest.mark.parametrize(("passage", "response"), PAIRS + [(plain, negated) for negated, plain in PAIRS])
def test_a_negation_that_is_dropped_or_added_fails(passage: str, response: str) -> None:
    """Though the passage has every other word."""
    context = f"The island has two harbours. {passage} Trains run every hour."

    wrong = score_of(f"The island has two harbours. {response}", context)
    right = score_of(f"The island has two harbours. {passage}", context)

    assert (label_of(Faithfulness(), wrong), label_of(Faithfulness(), right)) == ("fail", "pass")
    assert "the passages say: " in (wrong.explanation or "")
    assert "the passages say: " not in (right.explanation or "")


@pytest.mark.parametrize(
    ("passage", "response"),
    [
        # Something else is negated, or nothing.
        (PASSAGE, "I am not sure but the tower was rebuilt in 1931."),
        (PASSAGE, "The tower was rebuilt not only in 1931."),
        (PASSAGE, "No, the tower was rebuilt in 1931."),
        (PASSAGE, "Costs were flat in Poland. Was the tower not rebuilt in 1931?"),
        (PASSAGE, "The tower was not rebuilt until 1931."),
        ("Brandt is willing to fight for the no 1 jersey at Ardwell.", "Brandt is willing to fight for the jersey."),
        ("He died in a non - alcohol - related accident.", "He died in a non-alcohol-related accident."),
        ("The console shows: Could not place order.", "The message “Could not place order.” means a lack of money."),
        # Another subject, clause or time.
        ("Cannabis smoke has not been linked with cancer.", "Tobacco smoke has been linked with cancer."),
        ("The games were held after a bidding process.", "The decision was taken without a bidding process."),
        ("The bakery baked rye bread on Mondays.", "The bakery no longer bakes rye bread on Mondays."),
        ("The library is quiet. It is not open on Mondays.", "The archive is old. It is open on Mondays."),
        # The same in other words.
        (
            "Breathing out requires no effort.",
            "Breathing out does not require any effort.",
        ),
        ("Nobody without a permit may enter the archive.", "Nobody may enter the archive."),
    ],
)
def test_a_negation_of_something_else_is_no_contradiction(passage: str, response: str) -> None:
    """All words of the two sentences must be the same, and only one of them negated."""
    assert "the passages say" not in (score_of(response, passage).explanation or "")


def test_passages_that_say_both_contradict_nothing() -> None:
    """One of them supports the answer."""
    both = "Dogs are allowed on the night boat. Dogs are not allowed on the night boat."

    assert score_of("Dogs are allowed on the night boat.", both).value > 0.8


def test_the_weakest_sentence_counts_half() -> None:
    """One invented sentence among many supported ones lowers the score more than it lowers the mean."""
    supported = "Acme acquired Beta Corp in 2019. The tower was rebuilt in 1931. The bridge opened on March 5, 1869. "
    mixed = make_turn(supported + "Wolves guard seven crystal gardens nightly.", [PASSAGE], "What happened?")
    [faithfulness], [groundedness] = run(Faithfulness(), mixed), run(Groundedness(), mixed)
    assert isinstance(faithfulness, Score)
    assert isinstance(groundedness, Score)

    assert score_of(supported).value == pytest.approx(1)
    assert faithfulness.value < groundedness.value - 0.1


def test_a_short_sentence_counts_less_as_the_weakest() -> None:
    """Small talk of two words does not decide."""
    supported = "Acme acquired Beta Corp in 2019. The tower was rebuilt in 1931. "

    short, long = score_of(supported + "Wonderful stuff."), score_of(supported + "Wolves guard seven crystal gardens.")

    assert short.value > long.value + 0.2


def test_each_wrong_fact_lowers_the_score() -> None:
    """Two are worse than one."""
    one = score_of("Acme acquired Beta Corp in 2018 for $5 million.")
    two = score_of("Acme acquired Beta Corp in 2018 for $6 million.")

    assert 0.9 > one.value > two.value + 0.1


def test_passages_without_a_name_of_the_question_support_less() -> None:
    """They may be about something else, and the answer is not wrong for it."""
    scores = [
        run(
            Faithfulness(),
            make_turn(f"The tower {of}was rebuilt in 1931.", [PASSAGE], "When was it in Ardwell rebuilt?"),
        )
        for of in ("", "in Ardwell ")
    ]

    [[plain], [named]] = scores
    assert isinstance(plain, Score)
    assert isinstance(named, Score)
    assert plain.value > named.value > 0.6


def test_sentences_have_scores_of_their_own() -> None:
    """The wrong sentence of an answer is the one that the explanation names."""
    score = score_of("The tower was rebuilt in 1931. Sales rose by 12 percent in France.")

    [first, second] = score.metadata["sentences"]
    assert first["score"] > 0.8 > 0.75 > second["score"]
    assert first["text"] not in (score.explanation or "")
    assert second["missing"] == ["France"]


@pytest.mark.parametrize(
    "aside",
    [
        "Based on the given passages, here are the key points:",
        "Here is a summary of the events:",
        "I hope this helps!",
        "Let me know if you have any other questions.",
        "The passages do not mention who designed the bridge.",
        "Sure! Events:",
    ],
)
def test_sentences_that_claim_nothing_are_not_scored(aside: str) -> None:
    """Introductions, closings and refusals inside of an answer are no claims."""
    plain = score_of("The tower was rebuilt in 1931.")

    assert score_of(f"{aside}\nThe tower was rebuilt in 1931.").value == plain.value
    assert score_of(f"The tower was rebuilt in 1931. {aside}").value == plain.value


@pytest.mark.parametrize(
    "response",
    [
        "According to passage 1, the tower was rebuilt in 1931.",
        "The tower was rebuilt in 1931 (passage 1).",
        "Passage 1 states that the tower was rebuilt in 1931.",
        "As mentioned in the provided context, the tower was rebuilt in 1931.",
        "Although the documents do not say who designed it, the tower was rebuilt in 1931.",
        "While the provided text does not specifically address its cost, the tower was rebuilt in 1931.",
    ],
)
def test_talk_about_passages_is_not_scored(response: str) -> None:
    """Only what the sentence says about the subject counts, and "Passage 1" is neither a name nor a number."""
    score = score_of(response)

    assert score.value == pytest.approx(1)


def test_an_answer_that_only_introduces_is_skipped() -> None:
    """There is nothing to judge."""
    skipped = run(Faithfulness(), make_turn("Sure! Here are the key points:", [PASSAGE], "What happened?"))

    assert "claims nothing" in why_not(skipped)[1]


def test_without_words_it_is_skipped() -> None:
    """There is no number where nothing can be compared."""
    assert why_not(run(Faithfulness(), make_turn("Yes, it is.", ["Yes."])))[0] == "faithfulness"
