"""An application over a test set: real frameworks, many questions at a time, records in a file."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from llama_index_instrumentation import get_dispatcher

import rageval_hooks
from rageval_hooks.errors import ConfigurationError, TurnError
from rageval_hooks.integrations.capture.recorder import shared_recorder
from rageval_hooks.offline.journal import Journal, file_hash, journal_path
from rageval_hooks.offline.records import read_records
from rageval_hooks.offline.records.record import Record
from rageval_hooks.testing import InMemoryExporter
from rageval_hooks.turn import Passage, Turn
from tests.command import invoke
from tests.integrations.langchain import fakes as langchain
from tests.integrations.llama_index import fakes as llama_index

ROWS = [
    {"question": "When was the pier opened?", "ground_truth_answer": "In 2019.", "chunk_id": "d1", "document": "a.md"},
    {"question": "How long is the ferry's trip?", "chunk_id": "d2", "document": "a.md", "style": "factual"},
]


class Bench:
    """A folder with a test set, a module that holds the application, and the command."""

    def __init__(self, folder: Path, module: str) -> None:
        self.folder = folder
        self.module = module
        self.data = folder / "set.jsonl"
        self.said: list[str] = []
        self.warned: list[str] = []
        self.write(ROWS)

    @property
    def output(self) -> Path:
        return self.folder / "out.jsonl"

    def write(self, rows: list[dict[str, Any]]) -> None:
        self.data.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def status(self, app: Any, *, keep: bool = False, **options: Any) -> int:
        # Most tests ask another application under the same name: a finished output would be reused.
        if not keep and not options.get("retry_failed"):
            self.output.unlink(missing_ok=True)
        vars(sys.modules[self.module])["app"] = app
        return self.run(f"{self.module}:app", **options)

    def run(self, app: str, *, data: Path | None = None, **options: Any) -> int:
        done = invoke("run", data or self.data, app=app, **{"output": self.output, "timeout": 20.0, **options})
        self.said, self.warned = done.stdout.splitlines(), done.stderr.splitlines()
        return done.exit_code

    def __call__(self, app: Any, *, status: int = 0, **options: Any) -> list[Record]:
        assert self.status(app, **options) == status, self.said + self.warned
        assert not self.folder.joinpath("out.jsonl.partial.jsonl").exists()
        return list(read_records(self.output))


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    name = re.sub(r"\W", "_", f"app_{tmp_path.parent.name}_{tmp_path.name}")
    (tmp_path / f"{name}.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    __import__(name)
    yield Bench(tmp_path, name)
    del sys.modules[name]
    assert len(shared_recorder()) == 0, "runs are left in the table"
    assert "RAGEVAL_ENABLED" not in os.environ


def both(question: str) -> tuple[str, list[str]]:
    return "In 2019.", ["The pier was opened in 2019."]


async def later(question: str) -> dict[str, Any]:
    await asyncio.sleep(0)
    return {"answer": "In 2019.", "contexts": ["The pier was opened in 2019."]}


class Caller:
    def __call__(self, question: str) -> Turn:
        return Turn(query="?", response="In 2019.", passages=(Passage(text="The pier was opened in 2019."),))


def words(question: str) -> Iterator[str]:
    yield from ("In ", "2019.")


async def async_words(question: str) -> Any:
    for part in ("In ", "2019."):
        yield part


def by_hand(question: str) -> Any:
    """As in “Test procedure and metrics for RAG in 5 minutes”: the retriever, then the model."""
    documents = langchain.retriever().invoke(question)
    return langchain.model().invoke(f"{langchain.join(documents)}\n{question}")


def inside(question: str) -> str:
    return langchain.lcel().invoke(question)


async def inside_async(question: str) -> str:
    return await langchain.lcel().ainvoke(question)


def query_engine(**options: Any) -> Any:
    """The real query engine over the first two facts."""
    from llama_index.core.query_engine import RetrieverQueryEngine
    from llama_index.core.schema import NodeWithScore

    found = [NodeWithScore(node=node, score=0.5) for node in llama_index.nodes()[:2]]
    retriever = llama_index.ScriptedRetriever(lambda query: found)
    return RetrieverQueryEngine.from_args(retriever, llm=llama_index.llm(), **options)


def fixed(value: Any) -> Callable[[str], Any]:
    return lambda question: value


class TestWhatIsCaptured:
    @pytest.mark.parametrize(
        "app",
        [langchain.lcel(), langchain.lcel, inside, inside_async, by_hand, lambda question: inside_async(question)],
        ids=["runnable", "factory", "function", "coroutine function", "retriever and model", "awaitable"],
    )
    def test_langchain(self, bench: Bench, app: Any) -> None:
        """Whatever form it has: the turn is as the integration sees it."""
        first, second = bench(app)

        assert first.turn.query == "When was the pier opened?"
        assert first.turn.response == "It was opened in 2019."
        assert [(passage.id, passage.in_prompt) for passage in first.turn.passages] == [("d1", True), ("d2", True)]
        assert first.turn.usage is not None
        assert first.turn.usage.input_tokens == 40
        assert first.turn.model == "scripted-1-2026"
        assert first.turn.framework == "langchain"
        assert first.turn.reference == "In 2019."
        assert (first.target, first.rank, first.document) == ("d1", 1, "a.md")
        assert (second.rank, second.turn.reference, second.turn.metadata["style"]) == (2, None, "factual")
        assert bench.said == [
            "2 of 2 questions answered",
            "the chunk with the answer was retrieved for 2 of 2",
            f"wrote {bench.output}",
        ]

    def test_a_function_that_searches_twice(self, bench: Bench) -> None:
        """Its calls are one turn: with the model's prompt, the time of both searches, and what is known of passages."""

        def app(question: str) -> Any:
            documents = langchain.retriever().invoke(question)
            answer = langchain.model().invoke(f"{langchain.join(documents)}\n{question}")
            langchain.retriever().invoke("See also")
            return answer, documents

        first, _ = bench(app)
        turn = first.turn
        assert "When was the pier opened?" in turn.prompt[-1].content
        assert turn.retrieval_queries == ("See also",)
        assert [(passage.id, passage.in_prompt) for passage in turn.passages] == [("d1", True), ("d2", True)]
        searches = [step.ended_at - step.started_at for step in turn.steps if step.kind == "retriever"]
        assert len(searches) == 2
        assert turn.timing is not None
        assert turn.timing.retrieval == pytest.approx(sum(searches) / 1e9)

    def test_llama_index(self, bench: Bench) -> None:
        """A query engine; streamed; in a function that streams; and asynchronous, in a function."""
        engine, streaming = query_engine(), query_engine(streaming=True)

        async def ask(question: str) -> Any:
            return await engine.aquery(question)

        dispatcher = get_dispatcher()
        handlers = [*dispatcher.span_handlers, *dispatcher.event_handlers]
        for app in (engine, streaming, lambda question: streaming.query(question), ask):
            first, second = bench(app)
            assert first.turn.response == "It was opened in 2019."
            assert [passage.id for passage in first.turn.passages] == ["d1", "d2"]
            assert first.turn.framework == "llama_index"
            assert (first.rank, second.rank) == (1, 2)
        # What the application does afterwards is not captured.
        assert [*dispatcher.span_handlers, *dispatcher.event_handlers] == handlers

    @pytest.mark.parametrize(
        "app",
        [
            both,
            lambda *asked: both(*asked),
            later,
            Caller(),
            Caller,
            fixed({"result": "In 2019.", "source_documents": langchain.FACTS[:1]}),
        ],
        ids=["pair", "wrapper", "mapping, later", "Turn", "class", "documents"],
    )
    def test_functions_without_a_framework(self, bench: Bench, app: Any) -> None:
        """What they return is the turn; the chunk is found by its text."""
        bench.write([{**ROWS[0], "chunk_id": "c77", "chunk": "the  pier was OPENED in 2019."}])
        [record] = bench(app)

        assert (record.turn.query, record.turn.response) == ("When was the pier opened?", "In 2019.")
        assert [passage.text for passage in record.turn.passages] == ["The pier was opened in 2019."]
        assert (record.target, record.rank) == ("c77", 1)
        assert record.turn.timing is not None

    def test_passages_as_one_text(self, bench: Bench) -> None:
        """Are a passage, unless the retrieval was seen: then it is all of them, joined."""
        first, _ = bench(fixed({"answer": "In 2019.", "context": "The pier was opened in 2019."}))
        assert [passage.text for passage in first.turn.passages] == ["The pier was opened in 2019."]

        def joined(question: str) -> dict[str, Any]:
            found = langchain.retriever().invoke(question)
            return {"answer": "In 2019.", "context": langchain.join(found)}

        first, _ = bench(joined)
        assert [passage.id for passage in first.turn.passages] == ["d1", "d2"]

    @pytest.mark.parametrize("app", [words, async_words, fixed("In 2019.")], ids=["stream", "async stream", "text"])
    def test_answers_without_passages(self, bench: Bench, app: Any) -> None:
        """Are answers; that no passage was seen is said."""
        first, _ = bench(app)

        assert (first.turn.response, first.turn.passages, first.rank) == ("In 2019.", (), None)
        assert bench.said[2].startswith("  2 answers without passages")

    def test_what_the_function_returns_comes_first(self, bench: Bench) -> None:
        """The user got that answer, and those passages."""

        def shorten(question: str) -> tuple[str, list[Any]]:
            return inside(question).upper(), langchain.FACTS[1:]

        first, second = bench(shorten)

        assert first.turn.response == "IT WAS OPENED IN 2019."
        assert [passage.id for passage in first.turn.passages] == ["d2"]
        assert (first.rank, second.rank) == (None, 1)
        assert [step.kind for step in first.turn.steps] == ["retriever", "llm"]

        # Captured passages have ids too, so they are kept if the function returns the same texts.
        first, _ = bench(lambda question: (inside(question), [fact.page_content for fact in langchain.FACTS]))
        assert [passage.id for passage in first.turn.passages] == ["d1", "d2"]

    @pytest.mark.parametrize(
        ("chain", "input_key"),
        [
            (langchain.PROMPT.partial(context="x") | langchain.model(), None),
            (langchain.PROMPT | langchain.model(), "question"),
        ],
    )
    def test_runnables_of_mappings(self, bench: Bench, chain: Any, input_key: str | None) -> None:
        """Get the question under the one key that they need, or under the one that is named."""
        if input_key is not None:
            with pytest.raises(ConfigurationError, match=r"takes more than a question \(context, question\)"):
                bench(chain)
            chain = {"context": lambda given: "x", "question": lambda given: given["question"]} | chain
        first, _ = bench(chain, input_key=input_key)

        assert first.turn.prompt[-1].content == "When was the pier opened?"

    def test_graphs(self, bench: Bench) -> None:
        """Of LangGraph: of messages, or with a state that has a key for the question."""
        from langgraph.graph import END, START, MessagesState, StateGraph
        from typing_extensions import TypedDict

        class State(TypedDict):
            question: str
            answer: str

        def graph(state: Any, answer: Callable[[Any], Any]) -> Any:
            builder = StateGraph(state)
            builder.add_node("answer", answer)
            builder.add_edge(START, "answer")
            builder.add_edge("answer", END)
            return builder.compile()

        def by_messages(state: Any) -> Any:
            return {"messages": [by_hand(state["messages"][-1].content)]}

        def by_key(state: Any) -> Any:
            return {"answer": by_hand(state["question"]).content}

        for app in (graph(MessagesState, by_messages), graph(State, by_key)):
            first, second = bench(app)
            assert (first.turn.query, first.turn.response) == ("When was the pier opened?", "It was opened in 2019.")
            assert (first.rank, second.rank) == (1, 2)

    def test_a_retriever_alone(self, bench: Bench) -> None:
        """Has ranks, though no answers."""
        first, second = bench(langchain.retriever())

        assert (first.rank, second.rank) == (1, 2)
        assert first.turn.response == ""


class TestManyAtATime:
    @pytest.mark.parametrize("kind", ["langchain", "langchain, async", "llama_index", "llama_index, async"])
    def test_every_question_has_its_own_turn(self, bench: Bench, kind: str) -> None:
        """Each answer and each passage names its question: they are not mixed up, whatever runs at the same time."""
        numbers = range(24)
        bench.write([{"question": f"question {n}?", "chunk_id": f"chunk {n}"} for n in numbers])
        gate = threading.Barrier(4, timeout=60)

        def wait() -> None:
            with suppress(threading.BrokenBarrierError):
                gate.wait()  # all that are asked at a time are under way together

        if kind.startswith("langchain"):

            def find(query: str) -> Any:
                if "async" not in kind:
                    wait()
                number = query.split()[1].rstrip("?")
                return [
                    langchain.Document(id=f"chunk {int(number) + 1}", page_content=f"beside {number}"),
                    langchain.Document(id=f"chunk {number}", page_content=f"text {number}"),
                ]

            chain = (
                {"context": langchain.ScriptedRetriever(find=find) | langchain.join, "question": lambda given: given}
                | langchain.PROMPT
                | langchain.model(lambda messages: f"answer to {messages[-1].content}")
            )
            app: Any = chain
            if "async" in kind:

                async def app(question: str) -> Any:
                    return await chain.ainvoke(question)
        else:
            from llama_index.core.query_engine import RetrieverQueryEngine
            from llama_index.core.schema import NodeWithScore, TextNode

            def nodes(query: str) -> Any:
                if "async" not in kind:
                    wait()
                number = query.split()[1].rstrip("?")
                texts = ((int(number) + 1, f"beside {number}"), (number, f"text {number}"))
                return [NodeWithScore(node=TextNode(id_=f"chunk {n}", text=text), score=0.5) for n, text in texts]

            def say(messages: Any) -> str:
                found = re.search(r"question \d+\?", messages[-1].content)
                return f"answer to {found[0] if found else '?'}"

            engine = RetrieverQueryEngine.from_args(llama_index.ScriptedRetriever(nodes), llm=llama_index.llm(say))
            app = engine
            if "async" in kind:

                async def app(question: str) -> Any:
                    return await engine.aquery(question)

        records = bench(app, concurrency=4, repeat=2)

        assert [(record.turn.query, record.run) for record in records] == [
            (f"question {n}?", run) for n in numbers for run in (1, 2)
        ]
        for record in records:
            number = record.turn.query.split()[1].rstrip("?")
            assert record.turn.response == f"answer to question {number}?"
            assert [passage.text for passage in record.turn.passages] == [f"beside {number}", f"text {number}"]
            assert record.rank == 2

    def test_no_more_than_that(self, bench: Bench) -> None:
        """The limit holds."""
        bench.write([{"question": f"question {n}?"} for n in range(12)])
        under_way, most = [], []
        three = threading.Barrier(3, timeout=60)

        def app(question: str) -> str:
            under_way.append(question)
            most.append(len(under_way))
            three.wait()
            under_way.remove(question)
            return "x"

        bench(app, concurrency=3)
        assert max(most) == 3


class TestErrors:
    def test_are_records(self, bench: Bench) -> None:
        """With type and message, and with what was retrieved before; the rest goes on."""

        def fail(messages: Any) -> Any:
            return ValueError("no quota") if "pier" in messages[-1].content else "18 minutes."

        first, second = bench(langchain.lcel(fail), status=1)

        assert first.turn.status == "error"
        assert first.turn.error is not None
        assert (first.turn.error.type, first.turn.error.message) == ("ValueError", "no quota")
        assert [passage.id for passage in first.turn.passages] == ["d1", "d2"]
        assert (first.rank, first.turn.response, first.turn.reference) == (1, "", "In 2019.")
        assert (second.turn.status, second.turn.response) == ("ok", "18 minutes.")
        assert bench.said[0] == "1 of 2 questions answered"
        assert "  1 failed: ValueError" in bench.said
        assert "  the first: ValueError: no quota" in bench.said

    @pytest.mark.parametrize("kind", ["function", "coroutine function"])
    def test_a_time_limit(self, bench: Bench, kind: str) -> None:
        """For each question; the others are answered."""
        gate = threading.Event()

        def app(question: str) -> str:
            if "pier" in question:
                gate.wait(60)
            return "18 minutes."

        async def async_app(question: str) -> str:
            if "pier" in question:
                await asyncio.Event().wait()
            return "18 minutes."

        first, second = bench(app if kind == "function" else async_app, status=1, timeout=2.5)
        gate.set()

        assert first.turn.error is not None
        assert (first.turn.error.type, first.turn.error.message) == ("TimeoutError", "no answer within 2.5 s")
        assert second.turn.response == "18 minutes."

    @pytest.mark.parametrize(
        ("value", "found"),
        [
            (None, "None"),
            (7, "an int"),
            ({"reply": "x"}, "a mapping with reply"),
            (("x", 7), "passages are an int"),
            (("x", [{"words": "y"}]), "passage 1 has no text"),
        ],
    )
    def test_what_is_no_answer(self, bench: Bench, value: Any, found: str) -> None:
        """Is an error that says what was returned and what an answer is; where all fail, the status is 2."""
        first, _ = bench(fixed(value), status=2)

        assert first.turn.error is not None
        assert first.turn.error.type == "UnreadableAnswerError"
        assert found in first.turn.error.message

    def test_an_application_that_exits(self, bench: Bench) -> None:
        """Does not take the command with it."""

        def leave(question: str) -> str:
            sys.exit(3)

        async def leave_later(question: str) -> str:
            sys.exit(3)

        def leave_awaited(question: str) -> Any:
            return leave_later(question)

        async def leave_in_the_stream(question: str) -> Any:
            yield "In "
            sys.exit(3)

        for app in (leave, leave_later, leave_awaited, leave_in_the_stream):
            first, _ = bench(app, status=2)
            assert first.turn.error is not None
            assert first.turn.error.message == "SystemExit: 3"

    def test_an_application_that_cancels_itself(self, bench: Bench) -> None:
        """A library may cancel the task that it runs in: the other questions are asked all the same."""

        async def cancel(question: str) -> str:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(0)
            return "never"

        first, second = bench(cancel, status=2)
        for record in (first, second):
            assert record.turn.error is not None
            assert record.turn.error.message == "the application cancelled its own task"

    def test_an_application_that_searches_in_nothing(self, bench: Bench) -> None:
        """``next()`` of an empty search result is a failure of this question, and does not last until the timeout."""

        def take_first(question: str) -> Any:
            return next(iter([]))

        first, _ = bench(take_first, status=2)
        assert first.turn.error is not None
        assert first.turn.error.message == "StopIteration: "

    def test_bad_rows_are_kept(self, bench: Bench) -> None:
        """With their line and reason; the others are asked."""
        bench.data.write_text(f'{json.dumps(ROWS[0])}\nnonsense\n{{"question": " "}}\n')
        assert len(bench(both, status=1)) == 1

        rows = [json.loads(line) for line in (bench.folder / "out.jsonl.errors.jsonl").read_text().splitlines()]
        assert [row["line"] for row in rows] == [2, 3]
        assert rows[0]["row"] == "nonsense"
        assert "2 rows of" in bench.warned[0]

        bench.write(ROWS)
        bench(both)
        assert not (bench.folder / "out.jsonl.errors.jsonl").exists(), "they are of an earlier run"

    @pytest.mark.parametrize("name", ["out.jsonl", "out.jsonl.errors.jsonl", "out.jsonl.partial.jsonl"])
    def test_the_test_set_is_not_written_over(self, bench: Bench, name: str) -> None:
        """Neither by the answers, nor by the rows that are no questions."""
        bench.data = bench.data.rename(bench.folder / name)
        before = bench.data.read_bytes()
        with pytest.raises(ConfigurationError, match="input"):
            bench(both, keep=True, restart=True)
        assert bench.data.read_bytes() == before

    def test_a_table_as_output(self, bench: Bench) -> None:
        """Would lack the passages."""
        with pytest.raises(ConfigurationError, match=r"should end in .jsonl: a table has no passages"):
            bench(both, output=bench.folder / "out.csv")

    def test_a_folder_for_the_bad_rows(self, bench: Bench) -> None:
        """Is said before anything is asked."""
        (bench.folder / "out.jsonl.errors.jsonl").mkdir()
        with pytest.raises(ConfigurationError, match=r"--errors .* is a folder"):
            bench(both)
        assert not bench.output.exists()

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("app", "--app must have the form package.module:object, not 'app'"),
            ("no_such.module:app", "no_such.module cannot be imported from"),
            ("{module}:ap", "there is no 'ap'. Did you mean 'app'?"),
            ("{module}:app", "this is an int"),
        ],
    )
    def test_a_wrong_app_is_said_before_any_work(self, bench: Bench, name: str, message: str) -> None:
        """With what the module has."""
        vars(sys.modules[bench.module])["app"] = 7
        with pytest.raises(ConfigurationError, match=re.escape(message)):
            bench.run(name.format(module=bench.module))

        assert not bench.output.exists()

    def test_chat_engines_and_indexes(self, bench: Bench) -> None:
        """Say what to name instead: a conversation would go on from question to question."""
        from llama_index.core import MockEmbedding, VectorStoreIndex
        from llama_index.core.chat_engine import SimpleChatEngine
        from llama_index.core.memory import ChatMemoryBuffer

        memory = ChatMemoryBuffer.from_defaults(token_limit=100)
        index = VectorStoreIndex(llama_index.nodes(), embed_model=MockEmbedding(embed_dim=4))
        with pytest.raises(ConfigurationError, match="remembers the conversation"):
            bench(SimpleChatEngine.from_defaults(llm=llama_index.llm(), memory=memory))
        with pytest.raises(ConfigurationError, match=r"index\.as_query_engine"):
            bench(index)

    def test_a_query_engine_has_no_key_for_the_question(self, bench: Bench) -> None:
        """The message says what the option is for."""
        engine = llama_index.index().as_query_engine(llm=llama_index.llm())
        with pytest.raises(ConfigurationError, match="--input-key is for applications that take an object"):
            bench(engine, input_key="question")

    def test_a_factory_that_fails(self, bench: Bench) -> None:
        """Says with what, coroutine function or not."""

        async def make() -> Any:
            raise OSError("no disk")

        def make_now() -> Any:
            raise OSError("no disk")

        def leave() -> Any:
            sys.exit("no disk")

        for app, kind in ((make, "OSError"), (make_now, "OSError"), (leave, "SystemExit")):
            with pytest.raises(ConfigurationError, match=rf"app\(\) failed: {kind}: no disk"):
                bench(app)

    def test_no_column_with_questions(self, bench: Bench) -> None:
        """Says which names are accepted, and which columns there are."""
        bench.write([{"utterance": "x", "chunk_id": "d1"}])
        with pytest.raises(TurnError, match=r"(?s)accepted are query, user_input.*query=utterance.*chunk_id: d1"):
            bench(both)

    def test_no_question_at_all(self, bench: Bench) -> None:
        """An empty file is an error."""
        bench.write([])
        with pytest.raises(ConfigurationError, match=r"there is no question in .*: it is empty"):
            bench(both)


class TestGoingOn:
    def left(self, bench: Bench, **other: Any) -> Path:
        """Leave what an interrupted run leaves: the first of two answers."""
        record = bench(both)[0]
        work = {
            "command": "run",
            "app": f"{bench.module}:app",
            "data": file_hash(bench.data),
            "input_key": None,
            **other,
        }
        path = journal_path(bench.output)
        with Journal(path, work) as journal:
            journal.append(f"1/{record.id}", record.model_dump(mode="json"))
        with path.open("a") as file:
            file.write('{"key": "1/torn')
        return path

    def test_what_is_there_is_not_asked_again(self, bench: Bench) -> None:
        """The last line, which was being written when it was killed, counts for nothing."""
        asked: list[str] = []
        self.left(bench)
        records = bench(lambda question: asked.append(question) or "x")

        assert asked == ["How long is the ferry's trip?"]
        assert [record.turn.response for record in records] == ["In 2019.", "x"]
        assert bench.warned == [f"going on from {bench.output}.partial.jsonl"]

    @pytest.mark.parametrize("other", [{"data": "another"}, {"app": "another:app"}])
    def test_another_run_does_not_go_on(self, bench: Bench, other: dict[str, str]) -> None:
        """What it has left is not mixed with other answers, unless it is dropped."""
        path = self.left(bench, **other)
        with pytest.raises(ConfigurationError, match=f"with another {next(iter(other))}\\. .*--restart"):
            bench(both)

        assert path.exists()
        assert len(bench(fixed("x"), restart=True)) == 2

    def test_what_failed_is_asked_again(self, bench: Bench) -> None:
        """On request, and nothing else."""
        asked: list[str] = []

        def app(question: str) -> str:
            asked.append(question)
            if "pier" in question and len(asked) < 3:
                raise OSError("no line")
            return f"answer {len(asked)}"

        bench(app, status=1, concurrency=1)
        records = bench(app, retry_failed=True)

        assert asked == ["When was the pier opened?", "How long is the ferry's trip?", "When was the pier opened?"]
        assert [record.turn.response for record in records] == ["answer 3", "answer 2"]

    def test_repetitions_are_not_lost(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        """What failed is asked again only for as many repetitions as there are answers; the path is as given."""
        bench(both, repeat=3)
        before = bench.output.read_bytes()
        monkeypatch.chdir(bench.output.parent)
        with pytest.raises(ConfigurationError, match=r"^2 answers in out.jsonl would be lost"):
            bench(both, output=Path("out.jsonl"), repeat=2, retry_failed=True)

        assert bench.output.read_bytes() == before
        assert len(bench(both, repeat=3, retry_failed=True)) == 6

    @pytest.mark.parametrize("restart", [False, True])
    def test_what_another_command_has_left(self, bench: Bench, restart: bool) -> None:
        """Is named, and kept: its answers are paid."""
        path = journal_path(bench.output)
        with Journal(path, {"command": "generate"}) as journal:
            journal.append("draft", {})
        before = path.read_bytes()
        with pytest.raises(
            ConfigurationError, match=r"belongs to an interrupted rageval-hooks generate.*name another output"
        ):
            bench(both, restart=restart)
        assert path.read_bytes() == before

    def test_two_at_a_time(self, bench: Bench) -> None:
        """A second process does not write into the first one's journal."""
        path = self.left(bench)
        with path.open("ab") as file:
            fcntl = pytest.importorskip("fcntl")
            fcntl.flock(file, fcntl.LOCK_EX)
            with pytest.raises(ConfigurationError, match="another process is writing"):
                bench(both)

    @pytest.mark.parametrize("notes", ["my notes\n", "my notes, without an end of line"])
    def test_a_file_in_the_way(self, bench: Bench, notes: str) -> None:
        """Something else under the journal's name is left alone."""
        path = journal_path(bench.output)
        path.write_text(notes)
        for restart in (False, True):
            with pytest.raises(ConfigurationError, match="is not a journal of rageval-hooks"):
                bench(both, restart=restart)

        assert path.read_text() == notes

    def test_a_journal_that_was_cut_off_in_its_first_line(self, bench: Bench) -> None:
        """Nothing was done yet."""
        journal_path(bench.output).write_text('{"rageval_journal": 2, "wo')
        assert len(bench(both)) == 2


class TestItsOwnHooks:
    def test_the_applications_evaluation_is_off(self, bench: Bench) -> None:
        """Its instrument() and its handlers see nothing of a test: no turn is lost to them, none is scored twice."""
        exporter = InMemoryExporter()

        def make() -> Any:
            rageval_hooks.instrument(metrics=[], exporters=[exporter])
            handler = rageval_hooks.integrations.langchain.CallbackHandler(metrics=[], exporters=[exporter])
            return langchain.lcel().with_config({"callbacks": [handler]})

        first, _ = bench(make)

        assert [passage.id for passage in first.turn.passages] == ["d1", "d2"]
        assert exporter.evaluations == []

    def test_the_switch_of_the_environment_is_as_before(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        """A program may run the command, and go on."""
        with monkeypatch.context() as patch:
            patch.setenv("RAGEVAL_ENABLED", "true")
            bench(both)
            assert os.environ["RAGEVAL_ENABLED"] == "true"

    def test_settings_of_the_environment_are_not_its_own(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        """A judge or a sampling rate for production changes nothing here."""
        monkeypatch.setenv("RAGEVAL_JUDGE", "openai:x")
        monkeypatch.setenv("RAGEVAL_SAMPLE_RATE", "0.0")

        assert len(bench(langchain.lcel())[0].turn.passages) == 2


class TestRecords:
    def test_repetitions_have_one_id(self, bench: Bench) -> None:
        """And numbers; the same questions have the same ids in every run, from CSV or JSON lines."""
        records = bench(both, repeat=3)
        table = bench.folder / "set.csv"
        table.write_text("question,chunk_id\n" + "".join(f"{row['question']},{row['chunk_id']}\n" for row in ROWS))

        assert [(record.id, record.run) for record in records[:3]] == [(records[0].id, run) for run in (1, 2, 3)]
        assert {record.id for record in bench(both, data=table)} == {record.id for record in records}

    def test_ids_of_the_file_are_kept(self, bench: Bench) -> None:
        """Two rows with the same one are told apart."""
        bench.write([{"query_id": "q1", "query": "a"}, {"query_id": "q1", "query": "b"}])

        assert [record.id for record in bench(both)] == ["q1", "q1-2"]

    def test_an_id_is_never_that_of_another_row(self, bench: Bench) -> None:
        """However the rows are named: each question has its own answer."""
        bench.write(
            [{"id": name, "question": text} for name, text in (("a", "first"), ("a", "second"), ("a-2", "third"))]
        )
        records = bench(lambda question: f"answer to {question}")

        assert [(record.id, record.turn.query, record.turn.response) for record in records] == [
            ("a", "first", "answer to first"),
            ("a-3", "second", "answer to second"),
            ("a-2", "third", "answer to third"),
        ]

    @pytest.mark.parametrize(("column", "value"), [("id", 0), ("Question ID", "A7"), ("queryId", 5)])
    def test_ids_of_any_form_are_kept(self, bench: Bench, column: str, value: object) -> None:
        """The number 0, and under each name that is accepted elsewhere."""
        bench.write([{column: value, "question": "a"}])
        assert [record.id for record in bench(both)] == [str(value)]

    def test_a_column_of_turn_numbers(self, bench: Bench) -> None:
        """Makes no record of a row."""
        bench.write([{"question": "a", "turn": 1}])
        assert [record.turn.query for record in bench(both)] == ["a"]

    @pytest.mark.parametrize("form", ["records", "table"])
    def test_repetitions_are_one_question(self, bench: Bench, form: str) -> None:
        """Records of several runs, or a table of them, are asked once, under their ids."""
        before = bench(both, repeat=2)
        if form == "records":
            bench.data.write_bytes(bench.output.read_bytes())
        else:
            bench.write([{"id": r.id, "run": r.run, "question": r.turn.query} for r in before])

        assert [record.id for record in bench(both)] == [record.id for record in before if record.run == 1]

    def test_records_can_be_asked_again(self, bench: Bench) -> None:
        """The output of one run is the test set of another."""
        before = bench(both)
        bench.data.write_bytes(bench.output.read_bytes())
        after = bench(fixed("x"))

        assert [(record.id, record.target, record.turn.reference) for record in after] == [
            (record.id, record.target, record.turn.reference) for record in before
        ]
        assert [record.turn.response for record in after] == ["x", "x"]

    @pytest.mark.parametrize(
        ("passages", "rank"),
        [
            ([Passage(text="y", id="d9"), Passage(text="x", id="d1")], 2),
            ([Passage(text="x", metadata={"chunk_id": "d1"})], 1),
            ([Passage(text="Before. The pier was opened in\n2019. It is long. After.", id="other")], 1),
            ([Passage(text="it is long.", id="other"), Passage(text="The pier was opened in 2019.")], 2),
            ([Passage(text="The pier was closed in 2019. It is long.", id="other")], None),
            ([], None),
        ],
    )
    def test_the_rank(self, bench: Bench, passages: list[Passage], rank: int | None) -> None:
        """By the passage's id or its metadata, else by its text; a small part of the chunk is not the chunk."""
        bench.write([{**ROWS[0], "chunk": "The pier was opened in 2019. It is long."}])

        assert [record.rank for record in bench(fixed(("x", passages)))] == [rank]


class TestRanks:
    """Ids that cannot match are no misses, and the text of the chunk finds it under any id."""

    def table(self, bench: Bench, *columns: str) -> Path:
        path = bench.folder / "set.csv"
        rows = [
            ("When was the pier opened?", "c77", "The pier was opened in 2019."),
            ("How long?", "c78", "18 minutes."),
        ]
        text = "".join(",".join(row[: len(columns)]) + "\n" for row in rows)
        path.write_text(",".join(columns) + "\n" + text)
        return path

    def test_a_table_with_the_text_of_the_chunk(self, bench: Bench) -> None:
        """Has the ranks that JSON Lines have."""
        data = self.table(bench, "question", "chunk_id", "chunk")
        first, second = bench(both, data=data)

        assert (first.rank, second.rank, second.missed) == (1, None, True)
        assert "the chunk with the answer was retrieved for 1 of 2" in bench.said

    def test_ids_that_cannot_match(self, bench: Bench) -> None:
        """Leave the rank unknown: nothing is said of hits and misses."""
        data = self.table(bench, "question", "chunk_id")
        records = bench(fixed(("x", [Passage(text="y", id="7f3a")])), data=data)

        assert [(record.rank, record.missed) for record in records] == [(None, False), (None, False)]
        assert not any("was retrieved for" in line for line in bench.said)
        assert any(line.startswith("for 2 of them the rank of the chunk is unknown") for line in bench.said)

    def test_declined_questions(self, bench: Bench) -> None:
        """Of those that have no answer."""
        bench.write([{**row, "answerable": False} for row in ROWS])
        answers = iter(["I don't know.", "In 2019."])
        bench(lambda question: next(answers), concurrency=1)

        assert "the application declined 1 of 2 questions marked as unanswerable" in bench.said

    def test_an_application_without_passages(self, bench: Bench) -> None:
        """Leaves the rank unknown, whatever the test set has, and the summary says why."""
        bench(fixed("x"), data=self.table(bench, "question", "chunk_id", "chunk"))
        assert "for 2 of them the rank of the chunk is unknown: the application returned no passages" in bench.said

    def test_ids_that_match_elsewhere(self, bench: Bench) -> None:
        """Make a miss of a target whose id was not retrieved."""
        data = self.table(bench, "question", "chunk_id")
        records = bench(fixed(("x", [Passage(text="y", id="c77")])), data=data)
        assert [(record.rank, record.missed) for record in records] == [(1, False), (None, True)]

    def test_the_first_hit_of_a_long_run(self, bench: Bench) -> None:
        """Shows that ids can be compared, also for the answers before it."""
        path = bench.folder / "set.csv"
        path.write_text("question,chunk_id\n" + "".join(f"Question {number}?,c{number}\n" for number in range(102)))
        records = bench(fixed(("x", [Passage(text="y", id="c101")])), data=path)

        assert [record.missed for record in records] == [True] * 101 + [False]


class TestGoldenAnswers:
    @pytest.mark.parametrize(
        ("row", "reference"),
        [
            ({"question": "a?", "answer": "Blue."}, "Blue."),
            ({"question": "a?", "answer": ["Blue.", "Azure."]}, "Blue.\nAzure."),
            ({"question": "a?", "answers": {"text": ["Blue."], "answer_start": [3]}}, "Blue."),
            ({"question": "a?", "answer": [{"x": 1}]}, None),
            ({"inputs": {"question": "a?"}, "outputs": {"answer": "Blue."}}, "Blue."),
        ],
        ids=["text", "list", "SQuAD", "unknown form", "LangSmith"],
    )
    def test_are_kept_in_any_form(self, bench: Bench, row: dict[str, Any], reference: str | None) -> None:
        """And an answer in an unknown form rejects no question."""
        bench.write([row])
        [record] = bench(both)
        assert (record.turn.query, record.turn.reference) == ("a?", reference)

    def test_columns_can_be_named(self, bench: Bench) -> None:
        """By --map, also inside of nested values."""
        bench.write([{"item": {"frage": "a?"}, "loesung": "Blue."}])
        [record] = bench(both, map=("query=item.frage", "reference=loesung"))
        assert (record.turn.query, record.turn.reference) == ("a?", "Blue.")

    @pytest.mark.parametrize("field", ["query", "reference", "target"])
    def test_a_misspelled_column_is_an_error(self, bench: Bench, field: str) -> None:
        """Also for an optional field, which would be empty in every row."""
        bench.write([{"question": "a?", "loesung": "Blue."}])
        with pytest.raises(TurnError, match=f"'losung', which --map names for the {field}\nColumns of"):
            bench(both, map=(f"{field}=losung",))


class TestFailures:
    @pytest.mark.parametrize(("allowed", "status"), [(None, 1), ("0", 1), ("1", 0), ("50%", 0), ("49%", 1)])
    def test_max_errors(self, bench: Bench, allowed: str | None, status: int) -> None:
        """Says how many questions may fail with exit status 0; a failed question is a record with its error."""

        def fails_once(question: str) -> str:
            if question.startswith("How"):
                raise LookupError("nothing found")
            return "x"

        records = bench(fails_once, status=status, max_errors=allowed)
        assert [record.turn.status for record in records] == ["ok", "error"]

    @pytest.mark.parametrize("text", ["many", "-1", "1.5", "101%"])
    def test_an_allowance_that_is_none(self, bench: Bench, text: str) -> None:
        """Is said before anything is asked."""
        with pytest.raises(ConfigurationError, match="should be a whole number such as 3, or a percentage"):
            bench(both, max_errors=text)


class TestFinishedRuns:
    """A finished output is neither paid for again nor overwritten by a command with other options."""

    def test_the_same_command(self, bench: Bench) -> None:
        """Asks nothing."""
        before = bench(both)
        asked: list[str] = []
        assert bench(lambda question: asked.append(question), keep=True) == before
        assert asked == []
        assert bench.warned == [f"{bench.output} is finished already, with the same options: nothing was asked again"]

    def test_a_larger_test_set(self, bench: Bench) -> None:
        """Asks only the new questions."""
        bench(fixed("first"))
        bench.write([*ROWS, {"question": "And now?"}])
        assert [record.turn.response for record in bench(fixed("second"), keep=True)] == ["first", "first", "second"]

    def test_another_test_set(self, bench: Bench) -> None:
        """Would lose answers: it is refused, unless --restart is given."""
        bench(fixed("first"))
        bench.write(ROWS[:1])
        with pytest.raises(ConfigurationError, match=r"1 answer in .* would be lost: .*--restart"):
            bench(fixed("second"), keep=True)
        assert len(list(read_records(bench.output))) == 2
        assert [record.turn.response for record in bench(fixed("second"), keep=True, restart=True)] == ["second"]

    def test_other_columns(self, bench: Bench) -> None:
        """May make other questions."""
        bench(fixed("first"))
        with pytest.raises(ConfigurationError, match=r"was made with another map: .*--restart"):
            bench(fixed("second"), keep=True, map=("query=question",))

    @pytest.mark.parametrize("text", ["", "my notes"])
    def test_a_file_of_something_else(self, bench: Bench, text: str) -> None:
        """Is kept."""
        bench.output.write_text(text)
        with pytest.raises(ConfigurationError, match=r"exists already, and this command did not write it"):
            bench(both, keep=True)
        assert bench.output.read_text() == text

    def test_an_output_that_was_edited(self, bench: Bench) -> None:
        """Is kept."""
        bench(both)
        bench.output.write_text(bench.output.read_text() + "\n")
        with pytest.raises(ConfigurationError, match="was changed after it was written"):
            bench(both, keep=True)

    def test_a_dry_run(self, bench: Bench) -> None:
        """Asks and writes nothing."""
        files = sorted(bench.folder.iterdir())
        assert bench.status(both, dry_run=True, repeat=3) == 0
        assert bench.said == [
            "6 calls of the application, 0 answers kept",
            "dry run: nothing was asked, and nothing was written",
        ]
        assert [path for path in sorted(bench.folder.iterdir()) if path not in files and path.suffix == ".jsonl"] == []


class TestHttp:
    def test_a_url(self, bench: Bench) -> None:
        """Is asked by POST, with a body of the user's; a JSON answer has its usual names."""
        from tests.judges.server import JudgeServer, Reply

        received: list[Any] = []

        def reply(request: Any) -> Reply:
            received.append(request.body)
            return Reply(
                content=json.dumps({"answer": "In 2019.", "contexts": ["The pier was opened in 2019."]}).encode()
            )

        with JudgeServer() as server:
            server.otherwise(reply)
            url = f"{server.url}/chat/completions"
            bench.write([{**ROWS[0], "question": 'When was "the pier" opened?'}, ROWS[1]])
            assert bench.run(url, request='{"q": {"text": "{question}"}}', concurrency=1) == 0
            with pytest.raises(ConfigurationError, match="was made with another request"):
                bench.run(url, request='{"query": "{question}"}', concurrency=1)
        first, _ = read_records(bench.output)
        assert received[0] == {"q": {"text": 'When was "the pier" opened?'}}
        assert (first.turn.response, [passage.text for passage in first.turn.passages]) == (
            "In 2019.",
            ["The pier was opened in 2019."],
        )

    @pytest.mark.parametrize("status", [301, 303, 307])
    def test_redirects(self, bench: Bench, status: int) -> None:
        """Are errors that name their target, on the same host or on another, and are not followed."""
        with served(status) as (url, asked), served(200) as (other, asked_there):
            for location, target in (("/there", f"{url}/there"), (f"{other}/there", f"{other}/there")):
                asked.location = location
                assert bench.run(f"{url}/here", restart=True) == 2
                said = f"{status}: {url}/here redirects to {target}: name the right URL with --app"
                assert said in "\n".join(bench.said)
        assert {record.turn.response for record in read_records(bench.output)} == {""}
        assert asked_there.paths == []
        assert set(asked.paths) == {("POST", "/here")}

    def test_a_reply_that_is_too_large(self, bench: Bench) -> None:
        """Is an error of its question."""
        with served(200) as (url, asked):
            asked.body = b"x" * ((16 << 20) + 1)
            assert bench.run(url) == 2
        assert "the reply is larger than 16 MiB" in "\n".join(bench.said)

    @pytest.mark.parametrize(
        "body", ["In 2019.", '"In 2019."', '{"choices": [{"message": {"role": "assistant", "content": "In 2019."}}]}']
    )
    def test_replies_of_other_forms(self, bench: Bench, body: str) -> None:
        """Plain text, a JSON string, a chat completion."""
        with served(200) as (url, asked):
            asked.body = body.encode()
            assert bench.run(url) == 0
        assert {record.turn.response for record in read_records(bench.output)} == {"In 2019."}

    def test_the_body_is_for_urls(self, bench: Bench) -> None:
        """It is an error for other applications, and one without a place for the question is one for a URL."""
        with pytest.raises(ConfigurationError, match="--input-key is for applications that take an object"):
            bench.status(both, input_key="q")
        with pytest.raises(ConfigurationError, match=r"is for an --app that is a URL"):
            bench.status(both, request='{"q": "{question}"}')
        with pytest.raises(ConfigurationError, match=r"--request has no \{question\}"):
            bench.run("http://127.0.0.1:9", request='{"q": "x"}')

    def test_a_server_that_is_not_there_or_refuses(self, bench: Bench) -> None:
        """Is an error of each question, with what the server says."""
        from tests.judges.server import JudgeServer, Reply

        with JudgeServer() as server:
            server.otherwise(Reply(status=418, content=b"no tea today"))
            assert bench.run(f"{server.url}/chat/completions") == 2
        assert "no tea today" in "\n".join(bench.said)
        assert bench.run(server.url, restart=True) == 2
        assert f"{server.url} cannot be reached" in "\n".join(bench.said)


class Asked:
    """What a server was asked, and what it does: it redirects everything but ``/there``."""

    def __init__(self) -> None:
        self.location = ""
        self.body = json.dumps({"answer": "In 2019."}).encode()
        self.paths: list[tuple[str, str]] = []


@contextmanager
def served(status: int) -> Iterator[tuple[str, Asked]]:
    asked = Asked()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            asked.paths.append((self.command, self.path))
            redirects = status != 200 and self.path != "/there"
            self.send_response(status if redirects else 200)
            if redirects:
                self.send_header("Location", asked.location)
            self.end_headers()
            # A client that has read enough closes the connection.
            with suppress(OSError):
                self.wfile.write(asked.body)

        do_GET = do_POST

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
