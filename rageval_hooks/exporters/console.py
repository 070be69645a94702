"""Evaluations as text: a tree of what happened, and a table of scores. Readable in a terminal and in a file."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar, TextIO

from rageval_hooks.exporters.base import Exporter
from rageval_hooks.exporters.content import ContentPolicy
from rageval_hooks.runtime.fork import delay_forks
from rageval_hooks.score import (
    VERDICT,
    Evaluation,
    Failed,
    Result,
    Score,
    Skipped,
    is_about_turn,
    label_of,
    verdict_of,
    with_cause,
)
from rageval_hooks.text.formatting import format_value, shorten, shown
from rageval_hooks.turn import Passage, Step, Turn, Usage

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text
    from rich.tree import Tree


_WIDTH_WHEN_PIPED = 120
_MAX_LINE_LENGTH = 160
_VERDICT_STYLES = {"good": "bold green", "doubtful": "bold yellow", "bad": "bold red"}


class ConsoleExporter(Exporter):
    """Prints evaluations.

    Args:
        stream: where to; standard error by default, so that an application's own output stays clean.
        policy: the texts that may be printed; all that the settings show by default.
    """

    name: ClassVar[str] = "console"

    def __init__(self, stream: TextIO | None = None, *, policy: ContentPolicy | None = None) -> None:
        self._stream = stream
        self.content = policy or ContentPolicy()
        self._reported_models: set[str] = set()

    def export(self, evaluation: Evaluation) -> None:
        """Print the turn's tree with its local scores, or a table of late ones."""
        # A missing model is reported once: the same rows in every table would hide the scores.
        missing: dict[str, list[Skipped]] = {}
        results = list[Result]()
        for result in evaluation.results:
            if isinstance(result, Skipped) and result.missing_model:
                if result.missing_model not in self._reported_models:
                    missing.setdefault(result.missing_model, []).append(result)
            else:
                results.append(result)
        self._reported_models |= missing.keys()
        shown: list[RenderableType] = []
        if evaluation.stage == "inline":
            shown.append(turn_tree(evaluation.turn, evaluation.results))
        elif results or missing:
            verdict = _verdict(results)
            shown += [] if verdict is None else [verdict]
            turn = evaluation.turn
            about = f"trace {turn.span.trace_id}" if not turn.query and turn.span else turn.query
            shown.append(_line("later scores of", about))
        if results:
            shown.append(score_table(results))
        for skipped in missing.values():
            names = ", ".join(result.name for result in skipped)
            shown.append(_text(f"not computed: {names} ({skipped[-1].reason})"))
        # A new console each time: an application may replace sys.stderr, and in a forked child the lock of a console
        # that printed in the parent at the moment of the fork is never released. Nor is that of the stream.
        console = make_console(self._stream or sys.stderr)
        with delay_forks():
            for part in shown:
                console.print(part)


def make_console(stream: TextIO) -> Console:
    """Return a console for a stream; without colours and of fixed width unless it is a terminal."""
    from rich.console import Console

    # A pipe has no width, and rich would wrap at 80 columns.
    width = None if stream.isatty() else _WIDTH_WHEN_PIPED
    return Console(file=stream, width=width, highlight=False, emoji=False, markup=False)


def turn_tree(turn: Turn, results: Sequence[Result] = ()) -> Tree:
    """Return the turn as a tree: the verdict, times, tokens and cost, then its question, steps and answer.

    Args:
        turn: the turn, without texts that may not be shown.
        results: its results, among them the verdict and the cost.
    """
    from rich.tree import Tree

    head = _text(f"rag {turn.name}" if turn.is_rag else turn.name, style="bold")
    head.append("  " + "  ".join(_turn_facts(turn, results)), style="default")
    verdict = _verdict(results)
    tree = Tree(head if verdict is None else verdict.append("\n").append(head))
    tree.add(_line("question", turn.query))
    nodes: dict[str | None, Tree] = {}
    for step in turn.steps:
        # Steps come by start time, so a step's parent is there before it; without one, it goes below the turn.
        node = nodes[step.id] = nodes.get(step.parent_id, tree).add(_text("  ".join(_step_facts(step))))
        for passage in step.passages:
            node.add(_passage_line(passage))
        if step.error is not None:
            node.add(_line(step.error.type, step.error.message))
    if turn.error is not None:
        tree.add(_line(turn.error.type, turn.error.message))
    else:
        tree.add(_line("answer", turn.response))
    return tree


def _verdict(results: Iterable[Result]) -> Text | None:
    """Return the verdict and its reason; None without a verdict."""
    verdict = verdict_of(results)
    if verdict is None or not verdict.label:
        return None
    text = _text(verdict.label, style=_VERDICT_STYLES.get(verdict.label, "bold"))
    explanation = with_cause(verdict).explanation
    return text.append(_text(f": {explanation}" if explanation else "", style="default"))


def _turn_facts(turn: Turn, results: Iterable[Result]) -> Iterable[str]:
    if turn.status != "ok":
        yield turn.status
    if turn.timing is not None:
        yield _seconds(turn.timing.total)
        if turn.timing.time_to_first_token is not None:
            yield f"first token {_seconds(turn.timing.time_to_first_token)}"
    if turn.usage is not None:
        yield _tokens(turn.usage)
    # A cost that was skipped or failed has no value.
    for result in results:
        if isinstance(result, Score) and result.name == "cost":
            yield f"{result.value:.6f} USD"
    if turn.span is not None:
        yield f"trace {turn.span.trace_id}"


def _step_facts(step: Step) -> Iterable[str]:
    yield f"{step.kind} {step.model or step.name}" if step.kind == "llm" else f"{step.kind} {step.name}"
    yield _seconds((step.ended_at - step.started_at) / 1e9)
    if step.usage is not None:
        yield _tokens(step.usage)
    if step.kind in ("retriever", "reranker"):
        yield f"{len(step.passages)} passages"
    if not step.complete:
        yield "(not finished)"


def _passage_line(passage: Passage) -> RenderableType:
    score = "" if passage.score is None else f"{passage.score:.3f} "
    name = f"[{passage.id}]" if passage.id else "passage"
    share, note = passage.prompt_share, ""
    if share is not None and 0 < share < 1:
        note = f" ({share:.0%} of it in the prompt)"
    # None means that no prompt is known, which says nothing about the passage.
    elif passage.in_prompt is False:
        note = " (not in the prompt)"
    return _line(f"{score}{name}{note}", passage.text)


def _line(head: str, text: str) -> RenderableType:
    # A passage may have many lines; the tree has one per passage.
    return _text(f"{head}: {shorten(text, _MAX_LINE_LENGTH) or '(empty)'}")


def _text(text: str, style: str = "") -> Text:
    """Return a text in which a passage cannot move the cursor or reverse a line."""
    from rich.text import Text

    return Text(shown(text), style=style)


def score_table(results: Iterable[Result]) -> Table:
    """Return the results about the whole turn as a table: value, label, and why."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), expand=False)
    table.add_column("score", no_wrap=True)
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("label", no_wrap=True)
    table.add_column("why", overflow="fold", ratio=1)
    # Scores of passages and sentences would fill the screen; files and traces have them. The verdict is the first line
    # of the turn.
    for result in filter(is_about_turn, results):
        if result.name == VERDICT and not isinstance(result, Failed):
            continue
        # A dash, not a number: a reader would take 0 for a bad score.
        value = "-" if result.value is None else format_value(result.value)
        table.add_row(_text(result.name), value, _text(label_of(result) or ""), _text(result.explanation or ""))
    return table


def _seconds(value: float) -> str:
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.2f} s"


def _tokens(usage: Usage) -> str:
    about = "~" if usage.estimated else ""
    return f"{about}{usage.input_tokens}→{usage.output_tokens} tokens"
