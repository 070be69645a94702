"""The names of columns by field, as this package and other tools write them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence

from rageval_hooks.errors import TurnError

__all__ = ["ALIASES", "CONTAINERS", "canonical", "has_column", "missing_column", "names_inside"]

# Between a lower-case letter or digit and a capital: "actualOutput" becomes "actual_output".
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_MOST_NAMES_SHOWN = 8


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


ALIASES: dict[str, tuple[str, ...]] = {
    "query": _names(
        "query user_input question input query_text user_query user_question question_text query_str prompt "
        "user_prompt instruction search_query test_question sample_question request problem inputs "
        "pregunta frage domanda pergunta vraag pytanie soru pertanyaan вопрос 问题 問題 質問 질문 cau_hoi"
    ),
    # "answer", "output" and "result" come late: next to a column such as "prediction" they hold the golden answer.
    "response": _names(
        "response actual_output generated_answer generated_text generated_response prediction predicted_answer "
        "model_answer model_output model_response llm_answer llm_response llm_output rag_answer rag_response "
        "system_answer bot_response assistant_response final_answer completion generation generated hypothesis "
        "actual_answer actual_response predicted predicted_response ai_answer ai_response chatbot_answer "
        "chatbot_response agent_answer agent_response pred generated_texts answer output result outputs "
        "respuesta antwort reponse risposta resposta antwoord odpowiedz cevap jawaban ответ 回答 答案 답변 cau_tra_loi"
    ),
    "passages": _names(
        "passages retrieved_contexts retrieval_context contexts retrieved_passages context retrieved_context documents "
        "chunks retrieved_documents retrieved_docs retrieved_chunks retrieved_nodes retrieved_texts source_documents "
        "source_nodes search_results retrieval_results ctxs docs retrieved evidence sources knowledge context_texts "
        "retrieved_contents hits search_hits contexto kontext contexte contesto контекст 上下文 文脈"
    ),
    # "answer" and "answers" are references only if they are not taken as the response.
    "reference": _names(
        "reference reference_answer expected_output ground_truth ground_truths ground_truth_answer golden_answer "
        "expected_answer golden_answers gold_answer gold_answers gt_answer gold gt groundtruth expected_response "
        "expected_answers expected ideal ideal_answer correct_answer correct_answers true_answer target_answer "
        "reference_answers reference_output reference_outputs expected_outputs best_answer human_answer "
        "ground_truth_answers golden generation_gt respuesta_esperada respuesta_correcta erwartete_antwort "
        "reponse_attendue risposta_attesa resposta_esperada эталон 参考答案 标准答案 正解 정답 answers answer 答案"
    ),
    "id": _names("id query_id question_id turn_id example_id sample_id qid"),
    "run": _names("run query_run repetition repetition_number"),
    "citations": ("citations",),
    "metadata": _names("metadata additional_metadata"),
    "target": _names("target chunk_id target_id"),
    "target_text": _names(
        "target_text chunk chunk_text reference_contexts reference_context golden_context gold_context source_text "
        "ground_truth_context ground_truth_contexts gold_passages"
    ),
    "rank": _names("rank target_rank ranks"),
    "document": ("document",),
    "answerable": _names(
        "answerable is_answerable unanswerable is_unanswerable is_impossible expected_abstain should_abstain"
    ),
    "error": _names("error exception error_message"),
}
"""Field of a record → the names of its column, the preferred one first.

They are those of this package, Ragas, DeepEval, open-rag-eval, MLflow, LangSmith, Langfuse, Phoenix, TruLens,
RAGChecker, ARES and AutoRAG, and the plain words for question, answer and context in other languages.
"""

CONTAINERS: dict[str, tuple[str, ...]] = {
    "query": _names("inputs input request query vars example data messages conversation conversations"),
    "response": _names("outputs output response prediction result run_outputs messages conversation conversations"),
    "passages": _names("outputs output response inputs input vars result retrieval data"),
    "reference": _names(
        "reference_outputs reference_output expected_output expected_outputs expectations expected reference "
        "ground_truth"
    ),
    "id": _names("example data"),
}
"""Field → the objects in which other tools nest it: LangSmith and Phoenix write ``inputs.question``."""

_MORE_INSIDE = {"response": ("text", "content"), "reference": (*ALIASES["response"], "text", "content")}
"""Field → further names within an object. There the object says whether an answer is golden."""


def canonical(name: str) -> str:
    """Return a column name in the form of :data:`ALIASES`: ``ground_truth`` for ``Ground Truth`` or ``groundTruth``."""
    with_underscores = _CAMEL.sub("_", str(name).strip())
    return _without_accents(with_underscores.lower().replace(" ", "_").replace("-", "_"))


def _without_accents(name: str) -> str:
    """Return ``reponse`` for ``réponse``; names in other scripts than Latin are unchanged."""
    if name.isascii():
        return name
    # This form separates a letter from its accent.
    apart = unicodedata.normalize("NFKD", name)
    letters = "".join(letter for letter in apart if not unicodedata.combining(letter))
    return letters if letters.isascii() else name


def has_column(name: str, columns: Iterable[str]) -> bool:
    """Return True if one of the columns is a field's, under any of its names."""
    return any(canonical(column) in ALIASES[name] for column in columns)


def missing_column(name: str, found: Sequence[str], hint: str = "") -> TurnError:
    """Return the error for a field without a column."""
    accepted = ", ".join(ALIASES[name][:_MOST_NAMES_SHOWN])
    return TurnError(
        f"there is no column for the {name}: accepted are {accepted} …; found: {', '.join(found) or '(none)'}{hint}"
    )


def names_inside(name: str) -> tuple[str, ...]:
    """Return a field's names within an object such as ``outputs``."""
    return (*ALIASES[name], *_MORE_INSIDE.get(name, ()))
