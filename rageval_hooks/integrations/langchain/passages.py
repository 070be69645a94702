"""The passages of a turn: the documents in the final prompt, wherever they came from, and those that were retrieved.

``TurnPassages`` collects in this order: what retrievers and tools returned, what functions and graph nodes did
with it, documents that the model saw although nothing retrieved them, and, if there is none of all these, search
results that are text. Passages of earlier turns come last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from langchain_core.messages import BaseMessage, ToolMessage

from rageval_hooks.integrations.capture import authorship, turns, values
from rageval_hooks.integrations.capture.evidence import WRITTEN_BY_MODEL, Evidence
from rageval_hooks.integrations.capture.passages import (
    EARLIER,
    MIN_PART,
    EarlierPassages,
    PromptText,
    mark_seen,
    passage_key,
    results_in_fields,
    text_results,
)
from rageval_hooks.integrations.capture.recent_searches import passages_before
from rageval_hooks.integrations.capture.recorder import Run
from rageval_hooks.integrations.capture.values import is_a, or_else
from rageval_hooks.integrations.langchain import payloads
from rageval_hooks.integrations.langchain.model_calls import generated_text, prompt_messages, prompt_of, tool_calls_of
from rageval_hooks.integrations.langchain.question_and_answer import query_of
from rageval_hooks.integrations.langchain.runs import LangChainRun
from rageval_hooks.runtime.lazy import cached_property
from rageval_hooks.turn import Passage, Turn

_MAX_HANDED_IN = 1000
"""Documents in inputs that are compared with the prompt."""

SESSION_KEYS = ("session_id", "thread_id", "conversation_id")
USER_KEYS = ("user_id",)
IDENTITY_KEYS = (*SESSION_KEYS, *USER_KEYS)

Key: TypeAlias = tuple[str | None, str]
"""Id and text of a passage."""


def _queries(run: Run) -> Sequence[str]:
    """Return what a run searched for; nothing if its input does not say for what."""
    given = run.input
    if values.is_a(given, str):
        # The input of the root is the question. The only argument of a tool may be passed by itself.
        return [given] if run.parent is not None or run.kind == "retriever" else ()
    # The arguments of a tool, or the state of a graph: {"question": "How long is it?", "search_query": "pier length"}.
    return values.queries_among(payloads.fields_by_name(given))


def _end_or_start(run: Run) -> int:
    return turns.end_of(run, run.started_at)


class TurnPassages:
    """The documents that a turn retrieved, and those that the model saw.

    Args:
        runs: the records by start time, the root first.
        models: the model calls outside of retrievers.
        answering: the call that wrote the answer; None if no model wrote it.
        response: the answer.
        earlier: what tools and retrievers found in earlier turns: see :func:`remember`.
        evidence: tells what is evidence.

    Attributes:
        prompts: the prompt of each model call, by the identity of its run.
        identity: the ids of session and user.
        found: the passages that each search returned, by the identity of its run.
        left_out: why the result of a tool is no passage, by the identity of its run.
        asked_before: what the searches before the turn were for that found its passages.
        passages: the documents of the final prompt and all that were retrieved, marked with ``in_prompt``.
        searches: the outermost runs that retrieved something: retrievers, tools, and functions that search by
            themselves.
        queries: what was searched for, in order.
    """

    def __init__(
        self,
        *,
        runs: Sequence[LangChainRun],
        models: Sequence[LangChainRun],
        answering: LangChainRun | None,
        response: str,
        earlier: EarlierPassages,
        evidence: Evidence,
    ) -> None:
        self.prompts = {id(run): prompt_of(run) for run in turns.of_kind(runs, "llm")}
        self.found: dict[int, list[Passage]] = {}
        self.left_out: dict[int, str] = {}
        self.asked_before: list[str] = []
        self._evidence = evidence
        self._runs = runs
        self._models = models
        self._answering = answering
        self._response = response
        self._earlier = earlier
        self.identity = identity_of(runs)
        self._thread = values.first_string(self.identity, ("thread_id",)) or ""
        self._reader = payloads.DocumentReader()
        self._calls = self._prompting_calls()
        self._prompt = "\n".join(map(self._prompt_text, self._calls)) if self._calls else None
        self._carried_over = self._find_carried_over()
        self.passages = tuple(self._collect())
        # A chain that is the root has its whole turn around the search, so its duration says nothing about searching.
        self.searches = [
            run for run in runs if id(run) in self.found and not (run.parent is None and run.kind == "chain")
        ]
        searches = [
            one for one in runs if one.kind == "retriever" or (id(one) in self.found and one.parent is not None)
        ]
        self.queries = [query for run in searches for query in _queries(run) if query.strip()]

    def _collect(self) -> list[Passage]:
        retrieved = self._retrieved()
        passages = list(mark_seen(retrieved.passages, self._prompt))
        # Documents that nothing retrieved count only if the model saw them.
        if self._response or self._calls:  # not for a prompt template that is used without a model
            others = [*self._handed_in(), *self._in_tool_messages()]
            seen_texts = [passage.text for passage in passages if passage.seen_by_model]
            for passage in mark_seen(retrieved.unknown(others), self._prompt):
                may_be_seen = passage.in_prompt is not False or passage.prompt_share
                # A function that cuts documents passes on new ones with a part of the text.
                if may_be_seen and not any(passage.text in text for text in seen_texts):
                    passages.append(passage)
        if self._prompt is not None and all(passage.from_turn for passage in passages):
            root = self._runs[0]
            before, self.asked_before = passages_before(root.searches_before, root.text_id, self._prompt)
            passages += before or self._in_texts(self._prompt, {passage.text for passage in passages})
        return passages

    def _unwritten(self, found: Iterable[Passage], run: Run, at: int | None = None) -> list[Passage]:
        """Return the passages that no model of this turn wrote before they were found.

        Args:
            found: the passages.
            run: the run that returned them, or received them.
            at: when they were there; by default when the run's output was.
        """
        at = self._evidence.found_at(run) if at is None else at
        return self._evidence.among(found, at, lambda: (*self._searched, *_queries(run)))

    @cached_property
    def _searched(self) -> list[str]:
        """What retrievers and tools were asked for. The results may have it, although a model wrote it."""
        return [query for run in turns.of_kind(self._runs, "retriever", "tool") for query in _queries(run)]

    def _prompt_text(self, call: Run) -> str:
        return turns.prompt_text(self.prompts[id(call)])

    def _prompting_calls(self) -> Sequence[Run]:
        """Return the answering call and the calls whose text reached its prompt; none if no model wrote the answer."""
        if self._answering is None:
            return ()
        # A tool may answer (``return_direct``): then there is no prompt. But a model may have written that text, as
        # the argument of that tool, or repeated it.
        response = self._response
        if response and response in [payloads.as_text(run.output) for run in turns.of_kind(self._runs, "tool")]:
            written = [generated_text(run.output).strip() for run in turns.of_kind(self._runs, "llm")]
            if response not in written and not self._evidence.is_written(response, _end_or_start(self._runs[0])):
                return ()
        if len(self._models) == 1:
            return self._models  # saves looking for texts in its prompt
        return authorship.contributors(
            self._answering,
            self._models,
            self._prompt_text,
            lambda run: generated_text(run.output),
            self._evidence.reached,
        )

    # ----------------------------------------------------------------------- retrievers, tools, functions

    def _retrieved(self) -> _Collected:
        """Return the documents that were retrieved, as the functions before the answer left them."""
        collected = _Collected()
        # A tool may be an agent with tools of its own, so the inner ones come first.
        for run in reversed(self._runs):
            # An ensemble or a compressor is a retriever around others, and its result is what the application gets.
            is_outermost = run.kind == "retriever" and not turns.is_inside(run, "retriever")
            if is_outermost or (run.kind == "tool" and not self._evidence.has_search_inside(run)):
                results = self._reader.passages_in(run.output) if is_outermost else self._results_of_tool(run)
                passages = self._unwritten(results, run)
                if results and not passages and isinstance(run.output, ToolMessage):
                    # A model has summarized them, and saw them for the answer.
                    passages = self._unwritten(text_results(run.output.artifact, {"tool": run.name}), run)
                if passages or is_outermost:
                    self.found[id(run)] = passages
                    self._evidence.note_search_inside(run.ancestors())
                elif results:
                    self.left_out[id(run)] = WRITTEN_BY_MODEL
        for run in self._runs:
            collected.add(self.found.get(id(run), ()))

        # What happens inside a retriever is the retriever's.
        functions = sorted(turns.outside(turns.of_kind(self._runs, "chain", "tool"), "retriever"), key=_end_or_start)
        late = []
        for run in functions:
            # The prompt has nothing of what ended after the answering call had started.
            is_late = self._answering is not None and _end_or_start(run) > self._answering.started_at
            if run.parent is None or is_late:
                late.append(run)
            else:
                self._follow(run, collected)
        if not collected.passages and self._response:
            # A function that searches and answers returns its documents with the answer.
            for run in late:
                if self._follow(run, collected):
                    break
        return collected

    def _results_of_tool(self, run: LangChainRun) -> Sequence[Passage]:
        """Return what a tool found: documents, or search results that are text."""
        output = _message_of_command(run)
        text: Any = output.content if isinstance(output, BaseMessage) else output
        is_search, reason = self._evidence.tool_searches(
            run.name, description=run.description, arguments=run.input, result=text
        )
        documents = self._reader.passages_in(run.output)
        # A tool that hands over passes on the whole state.
        if documents and (is_search or not payloads.is_command(run.output)):
            return documents
        if not is_search:
            self.left_out[id(run)] = reason
            return []
        return _text_results(output, {"tool": run.name})

    def _follow(self, run: Run, collected: _Collected) -> bool:
        """Take over what a function did with documents: it found some, chose among them, or scored and ordered them.

        Returns:
            True if it returned documents that it was not given.
        """
        is_new = False
        for documents in self._reader.new_lists(run.output, run.input):
            # The state that a graph returns has documents of earlier turns, too.
            own = [one for one in documents if passage_key(one) not in self._carried_over or collected.has(one)]
            own = [one for one in own if not collected.joins(one)]
            passages = [one for one in own if collected.has(one) or self._unwritten([one], run)]
            if passages and not all(map(collected.has, passages)):
                self.found.setdefault(id(run), []).extend(passages)
            collected.arrange(passages)
            is_new = is_new or bool(passages)
        return is_new

    # ----------------------------------------------------------------------- documents that nothing retrieved

    def _find_carried_over(self) -> set[Key]:
        """Return the documents in the state of a graph that neither its input nor a run of this turn put there.

        A checkpointer keeps the state of a conversation, and so the documents of earlier turns.
        """

        def keys_in(value: Any) -> set[Key]:
            return set(map(passage_key, self._reader.passages_in(value)))

        chains = turns.of_kind(self._runs, "chain")
        # What runs inside a node has the node's place, too: a chain, or the function of a conditional edge.
        nodes = [run for run in chains if run.parent is not None and place_of(run) not in (None, place_of(run.parent))]
        found = [(run, keys_in(run.output)) for run in self._runs if nodes and run.kind != "llm"]
        carried: set[Key] = set()
        for node in nodes:
            # The input of the graph, or of a chain around it, may have had them.
            received = keys_in(node.input).difference(carried, *(keys_in(run.input) for run in node.ancestors()))
            for run, keys in found if received else ():
                # A search of this turn, whenever it ran, or a run that ended before the node began.
                has_ended_before = run.ended_at is not None and run.ended_at <= node.started_at
                if run.kind in ("retriever", "tool") or has_ended_before:
                    received -= keys
            carried |= received
        return carried

    def _handed_in(self) -> Iterator[Passage]:
        """Yield the documents in the inputs and outputs of functions, graph nodes and prompt templates."""
        of_thread = {passage.text: passage.from_turn for passage in self._earlier.get(self._thread)}
        documents: dict[int, Passage] = {}
        for run in turns.outside(turns.of_kind(self._runs, "chain", "tool", "prompt", "parser"), "retriever"):
            for value, at in ((run.input, run.started_at), (run.output, None)):
                found = [passage for passage in self._reader.passages_in(value) if id(passage) not in documents]
                documents |= {id(passage): passage for passage in self._unwritten(found, run, at)}
        for passage in list(documents.values())[:_MAX_HANDED_IN]:
            if passage_key(passage) in self._carried_over:
                yield passage.model_copy(update={"from_turn": of_thread.get(passage.text) or EARLIER})
            else:
                yield passage

    def _in_tool_messages(self) -> Iterator[Passage]:
        """Yield what tools found whose results are in a prompt, perhaps in earlier turns of the conversation."""
        for message, passages, is_earlier in self._foreign_tool_messages():
            if is_earlier:
                known = self._earlier.get(_call_key(self._thread, message))
                yield from known or (one.model_copy(update={"from_turn": EARLIER}) for one in passages)
            else:
                yield from passages

    def _foreign_tool_messages(self) -> Iterator[tuple[Any, list[Passage], bool]]:
        """Yield the tool messages in the prompts whose tools did not run in this turn, with what they found.

        The last item says whether the message is of an earlier turn: it is before the last question, and no model of
        this turn requested it. An application may put an instruction after the results.
        """
        own: set[str | None] = set()
        for tool in turns.of_kind(self._runs, "tool"):
            own |= {values.attribute_text(tool.output, "tool_call_id"), tool.tool_call_id} - {None}
        for call in self._calls:
            messages = prompt_messages(call)
            last_human = max((at for at, message in enumerate(messages) if message.type == "human"), default=-1)
            requested = {one["id"]: one for message in messages for one in getattr(message, "tool_calls", ())}
            for position, message in enumerate(messages):
                if message.type == "tool" and message.tool_call_id not in own and not self._repeats_found(message):
                    request = requested.get(message.tool_call_id) or {}
                    found = self._unwritten(self._results_of_message(message, request), call, call.started_at)
                    yield message, found, position < last_human and message.tool_call_id not in self._requested

    def _repeats_found(self, message: Any) -> bool:
        """Return True if an application has made a message of what a tool, or another search of this turn, found."""
        text = PromptText(payloads.message_text(message))
        known = (passage.text for found in self.found.values() for passage in found)
        return any(text.contains(one) for one in known if one.strip())

    @cached_property
    def _requested(self) -> set[str | None]:
        """The ids of the tool calls that models of this turn requested.

        Some models number the calls of each conversation: an id with a result in the prompt is that of an earlier call.
        """
        ids: set[str | None] = set()
        for run in self._models:
            answered = {message.tool_call_id for message in prompt_messages(run) if message.type == "tool"}
            ids |= {call["id"] for call in tool_calls_of(run.output)} - answered
        return ids

    def _results_of_message(self, message: Any, request: Mapping[str, Any]) -> Sequence[Passage]:
        # The message has the documents as its artifact if the tool has response_format="content_and_artifact".
        if documents := self._reader.passages_in(message):
            return documents
        name = message.name or request.get("name")
        is_search, _ = self._evidence.tool_searches(
            name, description=None, arguments=request.get("args"), result=message.content
        )
        return _text_results(message, {"tool": name or "tool"}) if is_search else []

    # ----------------------------------------------------------------------- search results that are text

    def _in_texts(self, prompt: str, taken: set[str]) -> list[Passage]:
        """Return the search results in the prompt that functions and fields of a state hold as text.

        Used for a turn in which nothing else was found: next to other passages, such texts are more likely something
        else. Functions and fields count that are named like search results.

        Args:
            prompt: all text of the prompts behind the answer.
            taken: texts of passages of earlier turns.
        """
        query, text = query_of(self._runs[0].input), PromptText(prompt)
        passages: list[Passage] = []
        answered_at = self._calls[-1].started_at
        for run in sorted(turns.outside(turns.of_kind(self._runs, "chain"), "retriever", "tool"), key=_end_or_start):
            is_root = run.parent is None
            if is_root or (_end_or_start(run) <= answered_at and not self._evidence.has_search_inside(run)):
                # A later function may join the results that earlier ones returned. A text with the question is a
                # prompt.
                joined = [one for one in (query, *(passage.text for passage in passages)) if one]
                new = []
                at = run.started_at if is_root else None
                for result in self._unwritten(_results_in_fields(run, run.input if is_root else run.output), run, at):
                    is_known = result.text in taken or any(one in result.text for one in joined)
                    if not is_known and text.contains(result.text):
                        taken.add(result.text)
                        new.append(result.model_copy(update={"in_prompt": True, "prompt_share": 1.0}))
                passages += new
                # What the root received was handed in, not found.
                if new and not is_root:
                    self.found[id(run)] = new
        return passages


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
        new.add(passage for passage in passages if not self.has(passage) and not self.joins(passage))
        return new.passages

    def joins(self, passage: Passage) -> bool:
        """Return True if a passage is made of several that are here: a node may join web results into one document."""
        known = [text for text in self._keys_by_text if text.strip() and text in passage.text]
        rest = len(passage.text) - sum(map(len, known))
        return len(known) > 1 and rest <= MIN_PART * len(known)

    def arrange(self, passages: Sequence[Passage]) -> None:
        """Put passages into the order of a list, where the first of them was. Scores of the list replace older ones.

        A reranker that returns [c, a] for [a, b, c, d] makes [c, a, b, d].
        """
        self.add(passages)
        moved: dict[Key, Passage] = {}
        for passage in passages:
            key = self._key_of(passage)
            known = self._by_key[key]
            if passage.score is not None and passage.score != known.score:
                known = known.model_copy(
                    update={"score": passage.score, "metadata": {**known.metadata, **passage.metadata}}
                )
            moved[key] = known
        arranged: dict[Key, Passage] = {}
        for key, known in self._by_key.items():
            arranged.update(moved if key in moved else {key: known})  # all come to the place of the first of them
        self._by_key = arranged


# --------------------------------------------------------------------------- earlier turns


def remember(earlier: EarlierPassages, runs: Sequence[LangChainRun], turn: Turn) -> None:
    """Remember what a turn found, by the id of the thread and of the tool call.

    A tool message has only text, unless the tool returns an artifact. Its id leads to the documents behind the text.
    """
    thread = thread_of(runs) or ""
    earlier.add(thread, turn.retrieved, turn.id)
    earlier.add_tools(runs, turn, partial(_call_key, thread))


def place_of(run: Run) -> str | None:
    """Return where in a graph a run is, for example "answer:3f1c…", or "agent:3f1c…|tools:9a2e…" in a graph inside.

    It ends with the id of the node's task, which stays the same when it is resumed. None outside of graphs.
    """
    return values.first_string(run.metadata, ("langgraph_checkpoint_ns",))


def thread_of(runs: Iterable[Run]) -> str | None:
    """Return the id of the conversation; None without one."""
    return values.first_string(identity_of(runs), ("thread_id",))


def identity_of(runs: Iterable[Run]) -> dict[str, Any]:
    """Return the ids of session and user: from the first run that has them, or from its configuration."""
    identity: dict[str, Any] = {}
    for run in runs:
        # chain.invoke(…, {"metadata": {"session_id": "42"}}) or {"configurable": {"thread_id": "42"}}
        for source in (run.metadata, run.configurable if isinstance(run, LangChainRun) else {}):
            known = {key: source[key] for key in IDENTITY_KEYS if source.get(key) is not None}
            identity = {**known, **identity}
    return identity


def _call_key(thread: str, message: Any) -> str:
    """Return the key of a tool call among earlier searches. Some models number the calls of each conversation."""
    # ToolMessage(content="The pier was …", tool_call_id="call_1")
    identity = values.attribute_text(message, "tool_call_id")
    return f"{thread} call {identity}" if identity else ""


# --------------------------------------------------------------------------- search results that are text


@or_else(None)
def _message_of_command(run: LangChainRun) -> Any:
    """Return the output of a tool; of a command, the message in it that answers the call, or None."""
    if not payloads.is_command(run.output):
        return run.output
    # Command(update={"messages": [ToolMessage("The pier was …", tool_call_id="call_1")]}, goto="answer")
    update = run.output.update
    messages = update.get("messages") if is_a(update, Mapping) else update
    answers = [one for one in messages if is_a(one, BaseMessage) and one.type == "tool"]
    call_id = run.tool_call_id
    return values.last_of([one for one in answers if call_id in (None, one.tool_call_id)])


@or_else(())
def _text_results(output: Any, about: Mapping[str, Any]) -> Sequence[Passage]:
    """Return the search results in what a tool returned, or in its message."""
    if not is_a(output, BaseMessage):
        return text_results(output, about) or text_results(payloads.as_text(output), about)
    if getattr(output, "status", None) == "error":
        return ()
    # The artifact has the results one by one, with their scores. The model saw the content.
    structured = text_results(output.artifact, about) if output.artifact else ()
    content = PromptText(payloads.message_text(output))
    if structured and all(content.contains(passage.text) for passage in structured):
        return structured
    return text_results(output.content, about)


@or_else(())
def _results_in_fields(run: Run, value: Any) -> Sequence[Passage]:
    """Return the search results in a text, or in the fields of a mapping or a state, by their names."""
    if is_a(value, (str, list, tuple)):
        return text_results(value, {"function": run.name}, is_field=True) if values.names_search(run.name) else ()
    given = payloads.fields_by_name(run.input) if value is not run.input else {}
    return results_in_fields(payloads.fields_by_name(value.update if payloads.is_command(value) else value), given)
