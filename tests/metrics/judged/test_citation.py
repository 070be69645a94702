"""Citations: precision, recall and f1 from the support of each pair, and what judges and responses get wrong."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rageval_hooks import Evaluation, Passage, Turn, evaluate
from rageval_hooks.errors import ConfigurationError, JudgeUnavailableError
from rageval_hooks.metrics.judged.citation import Citation, citation_scores
from rageval_hooks.testing import FakeJudge
from tests.metrics.good_judge import by_schema

TABLE: list[tuple[list[dict[object, float | None]], tuple[float, float, float]]] = [
    ([{"x": 1.0}], (1, 1, 1)),
    ([{"x": 0.0}], (0, 0, 0)),
    ([{"x": 1.0}, {}], (1, 0.5, 2 / 3)),
    ([{"x": 0.5}, {"y": 1.0}], (0.75, 0.75, 0.75)),
    ([{"x": 1.0, "y": 0.0}], (0.5, 0.5, 0.5)),
    # x is cited twice and counts once, with its mean; made-up citations cost precision alone
    ([{"x": 1.0}, {"x": 0.0, "y": 1.0}], (0.75, 0.75, 0.75)),
    ([{"x": 1.0, "made up": None}], (0.5, 1, 2 / 3)),
    ([{"x": 1.0}, {"made up": None}], (0.5, 0.5, 0.5)),
    ([{"made up": None}, {}], (0, 0, 0)),
]


@pytest.mark.parametrize(("parts", "expected"), TABLE)
def test_the_formulas(parts: Any, expected: Any) -> None:
    """Precision, recall, f1 by hand."""
    assert citation_scores(parts) == pytest.approx(expected)


KEYS = st.dictionaries(st.sampled_from("wxyz"), st.sampled_from([0.0, 0.5, 1.0, None]), max_size=4)


@given(parts=st.lists(KEYS, min_size=1, max_size=6).filter(any), random=st.randoms(use_true_random=False))
def test_ranges_order_and_monotonicity(parts: list[dict[object, float | None]], random: Any) -> None:
    """Scores are in 0..1 and do not depend on the order. Full support lowers none; f1 is between the other two."""
    precision, recall, f1 = citation_scores(parts)
    better = [{key: 1.0 if value is not None else None for key, value in part.items()} for part in parts]
    more = citation_scores(better)
    shuffled = list(parts)
    random.shuffle(shuffled)
    cheated = citation_scores([*parts[:-1], {**parts[-1], "made up": None}])

    assert 0 <= f1 <= 1
    assert min(precision, recall) - 1e-12 <= f1 <= max(precision, recall) + 1e-12
    assert citation_scores(shuffled) == pytest.approx((precision, recall, f1))
    assert more[0] >= precision - 1e-12
    assert more[1] >= recall - 1e-12
    assert cheated[0] <= precision + 1e-12
    assert cheated[1] == pytest.approx(recall)


TURN = Turn(
    query="When is water wet?",
    response="Water is wet when the sky is red [2]. That is in the evening [1, 9]. The cause is unknown.",
    passages=(
        Passage(text="The sky is red in the evening.", id="sky"),
        Passage(text="Water is wet when the sky is red.", id="water", metadata={"source": "water.pdf"}),
        Passage(text="Water boils.", metadata={"source": "water.pdf"}),
    ),
)


def pairs(*entries: tuple[str, int, str]) -> dict[str, Any]:
    return {"pairs": [{"sentence": key, "passage": index, "support": support} for key, index, support in entries]}


def judged(answer: Any, turn: Turn = TURN, **fields: Any) -> tuple[Evaluation, FakeJudge]:
    judge = FakeJudge([answer])
    return evaluate(turn.model_copy(update=fields), metrics=["citation"], judge=judge), judge


GOOD = pairs(("a", 1, "full"), ("b", 0, "partial"))


class TestScores:
    def test_three_scores_from_one_call(self) -> None:
        """All pairs at once; the made-up [9] is not asked about, and costs precision."""
        evaluation, judge = judged(GOOD)

        assert len(judge.calls) == 1
        assert "Pairs: (a, 1), (b, 0)\n" in judge.calls[0].prompt
        assert evaluation["citation.precision"] == pytest.approx((1 + 0.5 + 0) / 3)
        assert evaluation["citation.recall"] == pytest.approx((1 + 0.5 + 0) / 3)
        assert evaluation["citation.f1"] == pytest.approx(0.5)
        assert {(s.annotator, s.model, s.metric) for s in evaluation.scores} == {("LLM", "fake", "citation")}

    def test_the_evidence_is_kept(self) -> None:
        """Sentence by sentence, to read and as data."""
        evaluation, _ = judged(GOOD)
        score = evaluation.score("citation.f1")

        assert score is not None
        assert score.explanation == (
            "a [2] full support by passage water: “Water is wet when the sky is red [2].”\n"
            "b [1] partial support by passage sky; [9] no such passage: “That is in the evening [1, 9].”\n"
            "c not cited: “The cause is unknown.”"
        )
        assert score.metadata["made_up"] == ["9"]
        assert score.metadata["parts"][0]["citations"] == [{"name": "2", "passages": [1], "support": 1.0}]

    def test_a_document_in_pieces(self) -> None:
        """Its best piece counts."""
        evaluation, judge = judged(
            pairs(("a", 1, "full"), ("a", 2, "none")), response="Water is wet when the sky is red [water.pdf]."
        )

        assert "Pairs: (a, 1), (a, 2)\n" in judge.calls[0].prompt
        assert (evaluation["citation.precision"], evaluation["citation.recall"]) == (1.0, 1.0)

    def test_without_citations_there_is_no_score(self) -> None:
        """The scores are skipped and not 0; the judge is not asked."""
        evaluation, judge = judged(GOOD, response="Water is wet. The cause is unknown.")

        assert {skipped.name: skipped.reason for skipped in evaluation.skipped} == dict.fromkeys(
            ("citation.precision", "citation.recall", "citation.f1"), "the response has no citations"
        )
        assert evaluation.scores == ()
        assert judge.calls == []

    def test_citations_that_say_not_what_for(self) -> None:
        """Skipped likewise, with that reason."""
        evaluation, _ = judged(GOOD, response="Water is wet.\n\nSources: [1], [2]")

        assert evaluation.skipped[0].reason == "the citations (2) do not say what they are for"

    @pytest.mark.parametrize(
        "citation",
        [{"cited_text": "Mrs Ada Quill is ill"}, {"title": "On Mrs Ada Quill"}, "On Mrs Ada Quill"],
        ids=["cited text", "title", "name"],
    )
    def test_their_names_are_in_no_reason(self, citation: Any) -> None:
        """A reason is shown where texts are hidden, and a citation may quote them."""
        evaluation, _ = judged(GOOD, response="She is ill.", metadata={"citations": [citation]})

        assert {skipped.reason for skipped in evaluation.skipped} == {"the citations (1) do not say what they are for"}

    def test_made_up_citations_alone(self) -> None:
        """They count 0, and the judge is not asked about them."""
        evaluation, judge = judged(GOOD, response="Water is wet [7]. It is so [8].")

        assert {score.value for score in evaluation.scores} == {0.0}
        assert {(score.annotator, score.model) for score in evaluation.scores} == {("CODE", None)}
        assert judge.calls == []

    def test_what_the_framework_says(self) -> None:
        """The annotations are in the turn's metadata."""
        evaluation, _ = judged(
            pairs(("a", 0, "full")),
            response="The sky is red. It is blue.",
            metadata={"citations": [{"start_index": 0, "end_index": 14, "id": "sky"}]},
        )

        assert (evaluation["citation.precision"], evaluation["citation.recall"]) == (1.0, 0.5)

    def test_many_pairs_are_cut_into_batches(self) -> None:
        """Of 40, or of as many as one likes."""
        response = " ".join(f"Sentence number {n} is here [1, 2, 3]." for n in range(20))
        turn = TURN.model_copy(update={"response": response})
        judges = by_schema(), by_schema()
        evaluations = [
            evaluate(turn, metrics=[metric], judge=judge)
            for metric, judge in zip((Citation(), Citation(batch=7)), judges, strict=True)
        ]

        assert [len(judge.calls) for judge in judges] == [2, 9]
        assert [evaluation["citation.f1"] for evaluation in evaluations] == [1.0, 1.0]

    def test_at_most_a_thousand_pairs_are_judged(self) -> None:
        """The response must not decide the cost."""
        evaluation, judge = judged(GOOD, response=" ".join(f"It is so {n} [1, 2, 3]." for n in range(334)))

        assert [skipped.reason for skipped in evaluation.skipped] == [
            "the response has 1002 citations to check: more than 1000"
        ]
        assert judge.calls == []

    def test_an_empty_batch_is_refused(self) -> None:
        """At construction."""
        with pytest.raises(ConfigurationError, match="batch of citation must be at least 1"):
            Citation(batch=0)


class TestWhatJudgesGetWrong:
    @pytest.mark.parametrize(
        ("answer", "message"),
        [
            (pairs(("a", 1, "full")), "no support of (b, 0): the judge said nothing"),
            (
                pairs(("a", 1, "full"), ("b", 0, "mostly")),
                "no support of (b, 0): the judge gave a value that is out of range",
            ),
            (pairs(("a", 0, "full"), ("b", 1, "full")), "no support of (a, 1), (b, 0): the judge said nothing"),
            (JudgeUnavailableError("the server is down"), "no support of (a, 1), (b, 0): the server is down"),
        ],
        ids=["missing", "no such word", "pairs that were not asked about", "down"],
    )
    def test_a_missing_pair_fails_all_three(self, answer: Any, message: str) -> None:
        """They all hang on it."""
        evaluation, _ = judged(answer)

        assert evaluation.scores == ()
        assert [(failed.name, failed.message) for failed in evaluation.failed] == [
            (f"citation.{name}", message) for name in ("precision", "recall", "f1")
        ]

    @pytest.mark.parametrize("written", ["a ", "A", "[a]", "(a):", "a."])
    def test_keys_in_another_notation(self, written: str) -> None:
        """Mean the same sentences."""
        evaluation, _ = judged(pairs((written, 0, "full")), response="Water is wet [1].")

        assert evaluation["citation.f1"] == 1.0

    def test_made_up_and_repeated_pairs(self) -> None:
        """The former are dropped, of the latter the lesser support holds; both are counted."""
        evaluation, _ = judged(
            pairs(
                ("a", 1, "full"),
                ("a", 1, "none"),
                ("b", 0, "full"),
                ("b", 9, "full"),
                ("z", 0, "full"),
                ("c", 0, "full"),
            )
        )
        score = evaluation.score("citation.recall")

        assert score is not None
        assert score.value == pytest.approx(1 / 3)
        assert score.metadata["dropped"] == {"repeated": 1, "made_up": 3}


class TestFrameworks:
    def test_llama_index_citation_engine(self) -> None:
        """Its own nodes, numbered from 1, are the passages of the turn; the answer's numbers mean them."""
        from llama_index.core import Document, VectorStoreIndex
        from llama_index.core.embeddings import MockEmbedding
        from llama_index.core.llms import CompletionResponse, MockLLM
        from llama_index.core.query_engine import CitationQueryEngine

        import rageval_hooks
        from rageval_hooks.testing import InMemoryExporter

        class Citing(MockLLM):
            def complete(self, prompt: str, formatted: bool = False, **options: Any) -> CompletionResponse:
                return CompletionResponse(text="Water is wet [2]. The sky is red [1]. It is so [5].")

        documents = [Document(text="The sky is red.", id_="sky"), Document(text="Water is wet.", id_="water")]
        index = VectorStoreIndex.from_documents(documents, embed_model=MockEmbedding(embed_dim=8))
        engine = CitationQueryEngine.from_args(index, llm=Citing(), similarity_top_k=2)
        exporter = InMemoryExporter()
        with rageval_hooks.instrument(metrics=["citation"], judge=by_schema(), exporters=[exporter]) as handle:
            engine.query("When is water wet?")
            assert handle.flush(30)
        [score] = exporter.results("citation.precision")
        turn = exporter.evaluations[-1].turn

        assert [passage.text[:9] for passage in turn.passages] == ["Source 1:", "Source 2:"]
        assert score.status == "scored", score
        assert score.value == pytest.approx(2 / 3)
        assert score.metadata["made_up"] == ["5"]
        assert [part["citations"][0]["passages"] for part in score.metadata["parts"]] == [[1], [0], []]
