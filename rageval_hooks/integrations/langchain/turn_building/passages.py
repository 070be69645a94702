"""The passages of a turn: the documents in the final prompt, wherever they came from, and those that were retrieved.

``passages_of_turn`` collects in this order: what retrievers and tools returned, what functions and graph nodes did
with it, documents that the model saw although nothing retrieved them, and, if there is none of all these, search
results that are text. Passages of earlier turns come last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from langchain_core.messages import BaseMessage

from rageval_hooks.integrations.capture.authorship import ModelCall, carries, contributors, prompt_text
from rageval_hooks.integrations.capture.fields import names_search, names_search_results
from rageval_hooks.integrations.capture.host_values import attribute_text, first_string, is_a, or_else
from rageval_hooks.integrations.capture.passages import (
    EARLIER,
    EarlierPassages,
    PromptText,
    mark_seen,
    passage_key,
)
from rageval_hooks.integrations.capture.run_facts import end_of, is_inside, of_kind, outside
from rageval_hooks.integrations.capture.runs import Run
from rageval_hooks.integrations.capture.text_results import text_results
from rageval_hooks.integrations.langchain.payloads import (
    DocumentReader,
    fields_by_name,
    is_command,
    message_text,
    tool_text,
)
from rageval_hooks.integrations.langchain.turn_building.models import generated_text, prompt_messages, prompt_of
from rageval_hooks.integrations.langchain.turn_building.question import query_of
from rageval_hooks.turn import Passage, Turn

_MOST_HANDED_IN = 1000
"""Documents in inputs that are compared with the prompt."""

_MOST_THREADS = 10_000

Key: TypeAlias = tuple[str | None, str]
"""Id and text of a passage."""


@dataclass(frozen=True, kw_only=True)
class TurnPassages:
    """The documents that a turn retrieved, and those that the model saw.

    Attributes:
        passages: the documents of the final prompt and all that were retrieved, marked with ``in_prompt``.
        searches: the outermost runs that retrieved something: retrievers, tools, and functions that search by
            themselves.
        found: the passages that each search returned, by the identity of its run.
        queries: what was searched for, in order.
    """

    passages: tuple[Passage, ...]
    searches: Sequence[Run]
    found: Mapping[int, Sequence[Passage]]
    queries: Sequence[str]


def passages_of_turn(
    runs: Sequence[Run],
    *,
    models: Sequence[Run],
    answering: Run | None,
    response: str,
    earlier: Mapping[str, Sequence[Passage]],
) -> TurnPassages:
    """Collect the passages of a turn.

    Args:
        runs: the records by start time, the root first.
        models: the model calls outside of retrievers.
        answering: the call that wrote the answer; None if no model wrote it.
        response: the answer.
        earlier: what was found in earlier turns: see :class:`EarlierSearches`.
    """
    calls = _prompting_calls(runs, models, answering, response)
    prompt = "\n".join(prompt_text(prompt_of(call)) for call in calls) if calls else None
    reader = DocumentReader()
    carried_over = _carried_over(runs, reader)
    retrieved, found = _retrieved(runs, answering, response, reader, carried_over)
    passages = list(mark_seen(retrieved.passages, prompt))

    # Documents that nothing retrieved count only if the model saw them.
    if response or calls:  # not for a prompt template that is used without a model
        others = _handed_in(runs, reader, carried_over, earlier)
        for call in calls:
            others += _in_tool_messages(call, runs, reader, earlier)
        seen_texts = [passage.text for passage in passages if passage.seen_by_model]
        for passage in mark_seen(retrieved.unknown(others), prompt):
            may_be_seen = passage.in_prompt is not False or passage.prompt_share
            # A function that cuts documents passes on new ones with a part of the text.
            if may_be_seen and not any(passage.text in text for text in seen_texts):
                passages.append(passage)

    if prompt is not None and all(passage.from_turn for passage in passages):
        passages += _passages_in_texts(runs, models, calls, prompt, found, passages)
    queries = [_query(run, id(run) in found) for run in runs]
    # A chain that is the root has its whole turn around the search, so its duration says nothing about searching.
    searches = [run for run in runs if id(run) in found and not (run.parent is None and run.kind == "chain")]
    return TurnPassages(
        passages=tuple(sorted(passages, key=lambda passage: passage.from_turn is not None)),
        searches=searches,
        found=found,
        queries=[query for query in queries if query.strip()],
    )


def _query(run: Run, found_documents: bool) -> str:
    """Return what a run searched for; empty if it did not search, or if its input does not say for what."""
    is_function = run.kind == "chain" and run.parent is not None  # the input of the root is the question
    if run.kind == "retriever" or (found_documents and is_function):
        return run.input if isinstance(run.input, str) else ""
    # A tool's input may be a mapping of its arguments, for example {"query": "opening hours"}.
    return query_of(run.input) if found_documents and run.kind == "tool" else ""


def _prompting_calls(runs: Sequence[Run], models: Sequence[Run], answering: Run | None, response: str) -> Sequence[Run]:
    """Return the answering call and the calls whose text reached its prompt; none if no model wrote the answer."""
    if answering is None:
        return ()
    # A tool's text may be the answer (``return_direct``), unless a model has repeated it: then there is no prompt.
    if response and response in [tool_text(run.output) for run in of_kind(runs, "tool")]:
        written = [generated_text(run.output).strip() for run in of_kind(runs, "llm")]
        if response not in written:
            return ()
    if len(models) == 1:
        return models  # saves building the call, which formats its prompt
    calls = {
        id(run): ModelCall(
            prompt=prompt_text(prompt_of(run)),
            text=generated_text(run.output),
            started_at=run.started_at,
            ended_at=_end_or_start(run),
        )
        for run in models
    }
    chosen = contributors(calls[id(answering)], calls.values())
    return [run for run in models if calls[id(run)] in chosen]


def _end_or_start(run: Run) -> int:
    return end_of(run, run.started_at)


# --------------------------------------------------------------------------- retrievers, tools, functions


def _retrieved(
    runs: Sequence[Run], answering: Run | None, response: str, reader: DocumentReader, carried_over: set[Key]
) -> tuple[_Collected, dict[int, list[Passage]]]:
    """Return the documents that were retrieved, as the functions before the answer left them, and who found which."""
    collected = _Collected()
    found: dict[int, list[Passage]] = {}
    with_retriever = {id(ancestor) for run in of_kind(runs, "retriever") for ancestor in run.ancestors()}
    for run in runs:
        # An ensemble or a compressor is a retriever around others, and its result is what the application gets.
        is_outermost = run.kind == "retriever" and not is_inside(run, "retriever")
        if is_outermost or (run.kind == "tool" and id(run) not in with_retriever):
            passages = reader.passages_in(run.output)
            if not passages and run.details.get("is_search") is True:
                passages = list(_results_of_tool(run, named=True))
            if passages or is_outermost:
                found[id(run)] = passages
                collected.add(passages)

    def follow(run: Run) -> bool:
        """Take over what a function did with documents: it found some, chose among them, or scored and ordered them.

        Returns:
            True if it returned documents that it was not given.
        """
        is_new = False
        for documents in reader.new_lists(run.output, run.input):
            # The state that a graph returns has documents of earlier turns, too.
            passages = [one for one in documents if collected.has(one) or passage_key(one) not in carried_over]
            if passages and not all(map(collected.has, passages)):
                found.setdefault(id(run), []).extend(passages)
            collected.arrange(passages)
            is_new = is_new or bool(passages)
        return is_new

    # What happens inside a retriever is the retriever's.
    functions = sorted(outside(of_kind(runs, "chain", "tool"), "retriever"), key=_end_or_start)
    late = []
    for run in functions:
        # The prompt has nothing of what ended after the answering call had started.
        if run.parent is None or (answering is not None and _end_or_start(run) > answering.started_at):
            late.append(run)
        else:
            follow(run)
    if not collected.passages and response:
        # A function that searches and answers returns its documents with the answer.
        any(map(follow, late))
    return collected, found


class _Collected:
    """The passages so far, in the order in which the last step that handled them put them."""

    def __init__(self) -> None:
        self._by_key: dict[Key, Passage] = {}
        self._keys_by_text: dict[str, Key] = {}

    @property
    def passages(self) -> list[Passage]:
        """The passages in their order."""
        return list(self._by_key.values())

    def has(self, passage: Passage) -> bool:
        """Return True if a passage, or a copy of it, is here."""
        return self._key_of(passage) in self._by_key

    def _key_of(self, passage: Passage) -> Key:
        """Return the key of a passage. A copy without an id is the same passage if its text is the same."""
        same_text = self._keys_by_text.get(passage.text)
        if same_text is not None and None in (passage.id, same_text[0]):
            return same_text
        return passage_key(passage)

    def add(self, passages: Iterable[Passage]) -> None:
        """Add passages at the end, those that are here already excepted."""
        for passage in passages:
            key = self._key_of(passage)
            self._by_key.setdefault(key, passage)
            self._keys_by_text.setdefault(passage.text, key)

    def unknown(self, passages: Iterable[Passage]) -> list[Passage]:
        """Return those passages that are not here, each once."""
        new = _Collected()
        new.add(passage for passage in passages if not self.has(passage))
        return new.passages

    def arrange(self, passages: Sequence[Passage]) -> None:
        """Put passages into the order of a list, where the first of them was. Scores of the list replace older ones.

        A reranker that returns [c, a] for [a, b, c, d] makes [c, a, b, d].
        """
        self.add(passages)
        moved = {self._key_of(passage): passage for passage in passages}
        arranged: dict[Key, Passage] = {}
        for key, known in self._by_key.items():
            if key not in moved:
                arranged[key] = known
            elif key not in arranged:
                # The first of them: all come here, and the others are skipped when the loop reaches them.
                arranged.update((key, _rescored(self._by_key[key], passage)) for key, passage in moved.items())
        self._by_key = arranged


def _rescored(known: Passage, passage: Passage) -> Passage:
    """Return a known passage with the score that a later step gave it."""
    if passage.score is None or passage.score == known.score:
        return known
    return known.model_copy(update={"score": passage.score, "metadata": {**known.metadata, **passage.metadata}})


# --------------------------------------------------------------------------- documents that nothing retrieved


def _handed_in(
    runs: Sequence[Run], reader: DocumentReader, carried_over: set[Key], earlier: Mapping[str, Sequence[Passage]]
) -> list[Passage]:
    """Return the documents in the inputs and outputs of functions, graph nodes and prompt templates."""
    of_thread = {passage.text: passage.from_turn for passage in earlier.get(_thread_key(runs), ())}
    documents: dict[int, Passage] = {}
    for run in outside(of_kind(runs, "chain", "tool", "prompt", "parser"), "retriever"):
        for value in (run.input, run.output):
            documents.update((id(passage), passage) for passage in reader.passages_in(value))
    handed_in = list(documents.values())[:_MOST_HANDED_IN]
    return [
        passage.model_copy(update={"from_turn": of_thread.get(passage.text) or EARLIER})
        if passage_key(passage) in carried_over
        else passage
        for passage in handed_in
    ]


def _carried_over(runs: Sequence[Run], reader: DocumentReader) -> set[Key]:
    """Return the documents in the state of a graph that neither its input nor a run of this turn put there.

    A checkpointer keeps the state of a conversation, and so the documents of earlier turns.
    """

    def keys_in(value: Any) -> set[Key]:
        return set(map(passage_key, reader.passages_in(value)))

    nodes = [run for run in of_kind(runs, "chain") if run.parent is not None and "langgraph_node" in run.metadata]
    if not nodes:
        return set()
    found = [(run, keys) for run in runs if run.kind != "llm" and (keys := keys_in(run.output))]
    carried: set[Key] = set()
    for node in nodes:
        received = keys_in(node.input) - carried
        if not received:
            continue
        # The input of the graph, or of a chain around it, may have had them.
        received = received.difference(*(keys_in(run.input) for run in node.ancestors()))
        for run, keys in found:
            # A search of this turn, whenever it ran, or a run that ended before the node began.
            has_ended_before = run.ended_at is not None and run.ended_at <= node.started_at
            if run.kind in ("retriever", "tool") or has_ended_before:
                received -= keys
        carried |= received
    return carried


def _in_tool_messages(
    call: Run, runs: Sequence[Run], reader: DocumentReader, earlier: Mapping[str, Sequence[Passage]]
) -> Iterator[Passage]:
    """Yield what tools found whose results are in a prompt, perhaps in earlier turns of the conversation."""
    thread = _thread_key(runs)
    for message, is_earlier in _foreign_tool_messages(call, runs):
        # The message has the documents as its artifact if the tool has response_format="content_and_artifact".
        passages = reader.passages_in(message)
        if is_earlier:
            unknown = passages or _results_of_message(message)
            known = earlier.get(_call_key(thread, message))
            passages = list(known or (one.model_copy(update={"from_turn": EARLIER}) for one in unknown))
        yield from passages


def _foreign_tool_messages(call: Run, runs: Sequence[Run]) -> Iterator[tuple[Any, bool]]:
    """Yield the tool messages in a prompt whose tools did not run in this turn, and whether they are of an earlier one.

    An application that calls functions by itself appends their results after the question.
    """
    own = {_tool_call_id(tool.output) for tool in of_kind(runs, "tool")}
    messages = prompt_messages(call)
    last_human = max((at for at, message in enumerate(messages) if message.type == "human"), default=-1)
    for position, message in enumerate(messages):
        if message.type == "tool" and message.tool_call_id not in own:
            yield message, position < last_human


class EarlierSearches(EarlierPassages):
    """The passages that earlier turns found, by the id of the tool call or of the thread.

    A tool message has only text, unless the tool returns an artifact. Its id leads to the documents behind the text.
    """

    def __init__(self) -> None:
        super().__init__()
        self._question_keys: dict[str, str] = {}

    def question_key(self, runs: Sequence[Run]) -> str | None:
        """Return the key that the question had in the input of the conversation's turn before; None if unknown."""
        return self._question_keys.get(_thread_key(runs))

    def remember(self, runs: Sequence[Run], turn: Turn) -> None:
        """Remember what a turn found.

        Args:
            runs: the records of the turn.
            turn: the turn that was built from them.
        """
        thread = _thread_key(runs)
        given = fields_by_name(runs[0].input)
        key = next((key for key, item in given.items() if turn.query and query_of(item) == turn.query), None)
        if thread and key is not None and not turn.first_half_missing:
            if len(self._question_keys) >= _MOST_THREADS:
                self._question_keys.clear()
            self._question_keys[thread] = str(key)
        self.add(thread, turn.retrieved, turn.id)
        found = {step.id: step.passages for step in turn.steps if step.passages}
        for run in runs:
            if run.text_id in found:
                # A retriever may be inside a tool, and that tool an agent inside another tool.
                for tool in of_kind((run, *run.ancestors()), "tool"):
                    self.add(_call_key(thread, tool.output), found[run.text_id], turn.id)


def thread_of(runs: Sequence[Run]) -> str | None:
    """Return the id of the conversation, from the first run that has it; None without one."""
    # {"configurable": {"thread_id": "42"}}: LangGraph copies it into the metadata.
    for run in runs:
        for source in (run.metadata, run.details.get("configurable")):
            if source and "thread_id" in source:
                return first_string(source, ("thread_id",))
    return None


def _thread_key(runs: Sequence[Run]) -> str:
    """Return the key of a conversation among earlier searches; empty without the id of a thread."""
    thread = thread_of(runs)
    return f"thread {thread}" if thread else ""


def _call_key(thread: str, message: Any) -> str:
    """Return the key of a tool call among earlier searches. Some models number the calls of each conversation."""
    identity = _tool_call_id(message)
    return f"{thread} call {identity}" if identity else ""


@or_else("")
def _tool_call_id(output: Any) -> str:
    """Return the id of the call that a tool's message answers; empty if the tool returned something else."""
    # ToolMessage(content="The pier was …", tool_call_id="call_1")
    return attribute_text(output, "tool_call_id") or ""


# --------------------------------------------------------------------------- search results that are text


def _passages_in_texts(
    runs: Sequence[Run],
    models: Sequence[Run],
    calls: Sequence[Run],
    prompt: str,
    found: dict[int, list[Passage]],
    known: Sequence[Passage],
) -> list[Passage]:
    """Return the search results in the prompt that tools, functions and fields of a state hold as text.

    Used for a turn without documents: next to documents, other texts are more likely something else. Results of tools
    come first. Without any, those of functions and fields that are named like search results are taken.

    Args:
        runs: the records by start time, the root first.
        models: the model calls outside of retrievers.
        calls: the calls behind the answer.
        prompt: all text of their prompts.
        found: receives the runs that searched.
        known: passages of earlier turns.
    """
    query, text = query_of(runs[0].input), PromptText(prompt)
    written = [generated_text(run.output) for run in models]
    taken = {passage.text for passage in known}
    passages: list[Passage] = []

    def take(results: Iterable[Passage], run: Run | None) -> None:
        """Add the results that are in the prompt and that no model of this turn wrote, each once."""
        new = []
        for result in results:
            if result.text in taken or result.text == query or not text.contains(result.text):
                continue
            if not any(carries(result.text, one) for one in written):
                taken.add(result.text)
                new.append(result.model_copy(update={"in_prompt": True, "prompt_share": 1.0}))
        passages.extend(new)
        if new and run is not None:
            found[id(run)] = new

    for run in of_kind(runs, "tool"):
        if run.details.get("is_search") is not False:
            take(_results_of_tool(run), run)
    for call in calls:
        # Tools that the application calls without LangChain have messages, but no runs.
        for message, is_earlier in _foreign_tool_messages(call, runs):
            if not is_earlier:
                take(_results_of_message(message), None)
    if passages:
        return passages

    for run in sorted(outside(of_kind(runs, "chain"), "retriever", "tool"), key=_end_or_start):
        is_root = run.parent is None
        if is_root or _end_or_start(run) <= calls[-1].started_at:
            results = _results_in_fields(run, run.input if is_root else run.output)
            # A later function may join the results that earlier ones returned. A text with the question is a prompt.
            joined = [query, *(passage.text for passage in passages)]
            # What the root received was handed in, not found.
            take(
                (one for one in results if not any(text and text in one.text for text in joined)),
                None if is_root else run,
            )
    return passages


def _results_of_tool(run: Run, named: bool = False) -> Sequence[Passage]:
    """Return the search results in what a tool returned."""
    about = {"tool": run.name}
    if is_a(run.output, BaseMessage):
        return _results_of_message(run.output, about, named)
    # A command changes the state of a graph, or hands over to another agent.
    if is_command(run.output):
        return text_results(tool_text(run.output), about, named=True) if named else ()
    results = text_results(run.output, about, named=named)
    if results or not is_a(run.output, Mapping):
        return results
    return text_results(tool_text(run.output), about, named=named)  # nothing can be told apart


@or_else(())
def _results_of_message(message: Any, about: Mapping[str, Any] | None = None, named: bool = False) -> Sequence[Passage]:
    """Return the search results in the message of a tool."""
    if getattr(message, "status", None) == "error":
        return ()
    about = about or {"tool": message.name or "tool"}
    # The artifact has the results one by one, with their scores. The model saw the content.
    structured = text_results(message.artifact, about) if message.artifact else ()
    content = PromptText(message_text(message))
    if structured and all(content.contains(passage.text) for passage in structured):
        return structured
    return text_results(message.content, about, named=named)


@or_else(())
def _results_in_fields(run: Run, value: Any) -> Sequence[Passage]:
    """Return the search results in a text, or in the fields of a mapping or a state, by their names."""
    if is_a(value, (str, list, tuple)):
        return text_results(value, {"function": run.name}) if names_search(run.name) else ()
    given = fields_by_name(run.input) if value is not run.input else {}
    results: list[Passage] = []
    for key, item in fields_by_name(value.update if is_command(value) else value).items():
        # What a function was given, it has not found.
        if names_search_results(key) and is_a(item, (str, list, tuple)) and item != given.get(key):
            results += text_results(item, {"field": key})
    return results
