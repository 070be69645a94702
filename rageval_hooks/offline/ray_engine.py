"""``--engine ray``: the commands ``score`` and ``run`` on a Ray cluster.

``score``: tasks read the files in parts, and actors, which hold the models, score the parts and write them. Rows pass
through Ray's memory from a task to an actor only, so that it stays bounded. A part that exists is not scored again.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any, Final

from rageval_hooks.errors import ConfigurationError, TurnError, requires
from rageval_hooks.offline.apps.asking import Asking, ask_all
from rageval_hooks.offline.apps.loading import App, load_app
from rageval_hooks.offline.batches import score_cells, score_columns, score_records
from rageval_hooks.offline.jobs.running import Advance, rare_collection
from rageval_hooks.offline.records import BadRow, ColumnMap, read_items
from rageval_hooks.offline.records.record import Record
from rageval_hooks.offline.scoring.score_file import Scored, build_pipeline, settings_of
from rageval_hooks.offline.scoring.workers import Counts, Details
from rageval_hooks.offline.testsets import GoldenQuestion
from rageval_hooks.online.pipeline import Pipeline
from rageval_hooks.privacy import PrivacyPolicy
from rageval_hooks.runtime.jsonable import Data, plain_value
from rageval_hooks.settings import Settings

with requires("ray", "ray", "--engine ray"):
    import pyarrow
    import pyarrow.parquet
    import ray
    import ray.data
    from fsspec.core import has_magic, url_to_fs

_PART_ROWS: Final = 1000
_PART_BYTES: Final = 16 * 2**20
"""A part ends with so many rows, or bytes of JSON. An actor that is killed loses one part."""

_WAITING_PARTS: Final = 8
"""Parts that wait in Ray's memory for each actor, at most, if they are large."""

_DONE: Final = "_SUCCESS"
"""A file that marks a folder as complete. Readers of Parquet ignore names that begin with an underscore."""

_METADATA: Final = b"rageval"
"""Key of :class:`_Done` in the metadata of a part."""


@dataclass(frozen=True, kw_only=True)
class RayScoring:
    """How to score, as plain data for tasks and actors.

    Attributes:
        options: arguments of :func:`rageval_hooks.offline.scoring.score_file.build_pipeline`.
        details: which scores keep their explanation and metadata.
        required: fields whose columns must be there.
        mapping: columns of the fields, as the user named them.
        encoding: of text files; None to detect it.
        environment: the variables of this package, which other machines may not have.
    """

    options: Mapping[str, Any]
    details: Details
    required: tuple[str, ...]
    mapping: ColumnMap | None = None
    encoding: str | None = None
    environment: Mapping[str, str] = field(
        default_factory=lambda: {name: value for name, value in os.environ.items() if name.startswith("RAGEVAL_")}
    )


class _Done(Data):
    """What was scored: a part, or a whole file.

    Attributes:
        work: what decided on the scores.
        counts: turns and results.
        bad: number of rows that could not be used.
        first_bad: line and reason of the first of them.
    """

    work: dict[str, Any]
    counts: Counts = Counts()
    bad: int = 0
    first_bad: tuple[int, str] | None = None

    def plus(self, other: _Done) -> _Done:
        return _Done(
            work=self.work,
            counts=self.counts.plus(other.counts),
            bad=self.bad + other.bad,
            first_bad=self.first_bad or other.first_bad,
        )


@dataclass(frozen=True)
class _File:
    """A file to score, the folder for its scores, and what decides on them."""

    url: str
    folder: str
    work: dict[str, Any]

    def check(self, done: _Done) -> _Done:
        """Check that scores that exist are those that this command would make.

        Raises:
            ConfigurationError: they are not.
        """
        changed = [name for name, value in self.work.items() if done.work.get(name) != value]
        if changed:
            raise ConfigurationError(
                f"{self.folder} has scores of a run with another {', '.join(changed)}: name another output, or give "
                "--restart to replace them"
            )
        return done


def score_on_ray(
    inputs: str,
    output: str,
    pipeline: Pipeline,
    scoring: RayScoring,
    *,
    workers: int | None = None,
    restart: bool = False,
    advance: Advance = lambda _: None,
) -> Scored:
    """Score files on a Ray cluster: that of ``RAY_ADDRESS``, or one on this machine.

    Each file gets a folder of its name in the output, with its scores in Parquet files, in the order of its rows.

    Args:
        inputs: a file, a folder or a glob, here or in an object store: ``s3://bucket/answers/*.parquet``.
        output: a folder, here or in an object store.
        pipeline: made with the same options. It says what decides on the scores.
        scoring: how to score.
        workers: number of actors; None for one per CPU of the cluster.
        restart: replace the scores that exist.
        advance: called as turns are done.

    Raises:
        ConfigurationError: there is no such input, or the output has other scores.
        TurnError: a file cannot be read, a column is missing, or no row can be used.
        JudgeUnavailableError: the judge does not work; the parts that are done stay.
    """
    work = {**settings_of(pipeline, []), "details": scoring.details, "size of a part": [_PART_ROWS, _PART_BYTES]}
    files = _files(inputs, output, work)
    found: dict[int, _Done] = {}
    for number, file in enumerate(files):
        if restart:
            _remove(file)
        if (text := _read(f"{file.folder}/{_DONE}")) is not None:
            found[number] = file.check(_Done.model_validate_json(text))
    kept = sum(done.counts.turns for done in found.values())
    advance(kept)
    scored = Scored(resumed=kept, finished=len(found) == len(files))
    for number, done, existed in _score_parts(files, found.keys(), scoring, workers):
        found[number] = found[number].plus(done) if number in found else done
        scored.resumed += done.counts.turns if existed else 0
        advance(done.counts.turns)
    for number, done in sorted(found.items()):
        scored.counts = scored.counts.plus(done.counts)
        scored.bad += done.bad
        if scored.first_bad is None and done.first_bad is not None:
            line, reason = done.first_bad
            scored.first_bad = BadRow(line, reason)
            scored.errors = f"{files[number].folder}/_errors-*.jsonl"
    if not scored.counts.turns:
        bad = scored.first_bad
        raise TurnError(f"no row of {inputs} can be used" + (f": line {bad.line}: {bad.reason}" if bad else ""))
    return scored


def _files(inputs: str, output: str, work: Mapping[str, Any]) -> list[_File]:
    """Return the files to score, in the order of their names.

    Raises:
        ConfigurationError: there are none, or the output is one of them or their folder.
    """
    source, path = url_to_fs(inputs)
    target, there = url_to_fs(output)
    if has_magic(path):
        root = path[: min(map(path.index, filter(path.count, "*?[")))].rpartition("/")[0]
        found = [name for name in source.glob(path) if source.isfile(name)]
    else:
        root = path if source.isdir(path) else path.rpartition("/")[0]
        found = source.find(path)
    if type(source) is type(target) and (root == there or there in found):
        raise ConfigurationError(f"the output {output} is the folder of the input: name another one")
    names = {name: name.removeprefix(root).lstrip("/") for name in sorted(found)}
    # Markers and hidden files are no input, and neither are scores in a folder next to them.
    names = {
        name: relative
        for name, relative in names.items()
        if not name.startswith(f"{there}/") and not any(part.startswith((".", "_")) for part in relative.split("/"))
    }
    if not names:
        raise ConfigurationError(f"there is no file {inputs}")

    def signature(name: str) -> str:
        about = source.info(name)
        return f"{about['size']} bytes, {about.get('ETag') or about.get('etag') or about.get('mtime')}"

    return [
        _File(
            source.unstrip_protocol(name),
            target.unstrip_protocol(f"{there}/{relative}"),
            # As it comes back from JSON.
            json.loads(json.dumps({**work, "input": signature(name)})),
        )
        for name, relative in names.items()
    ]


def _score_parts(
    files: Sequence[_File], done: Iterable[int], scoring: RayScoring, workers: int | None
) -> Iterator[tuple[int, _Done, bool]]:
    """Score the files that are not done, and mark them as done.

    Yields:
        For each part, in any order, the number of its file, what was scored, and True if it existed before.
    """
    numbers = sorted(set(range(len(files))) - set(done))
    if not numbers:
        return
    actors = _start(workers)
    data = ray.data.from_items([{"file": number} for number in numbers], override_num_blocks=len(numbers))
    _prepare(data, memory=actors * _WAITING_PARTS * _PART_BYTES)

    def read(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        for part in _parts(files[row["file"]].url, scoring):
            yield {**row, **part}

    # Readers take no CPU of the cluster's, because actors take all of them. A reader keeps several actors busy.
    readers = ray.data.TaskPoolStrategy(size=max(1, actors // 4))
    parts = data.flat_map(read, num_cpus=0, compute=readers).map(
        _PartScorer,
        fn_constructor_args=(files, scoring),
        num_cpus=1,
        compute=_pool(actors),
    )
    wholes: dict[int, _Done] = {}
    missing: dict[int, int] = {}
    for row in parts.iter_rows():
        number, part = row["file"], _Done.model_validate_json(row["done"])
        wholes[number] = wholes[number].plus(part) if number in wholes else part
        # The last part says how many there are; it may come before the others.
        missing[number] = missing.get(number, 0) + row["of"] - 1
        if missing[number] == 0:
            _write(f"{files[number].folder}/{_DONE}", wholes[number].model_dump_json().encode())
        yield number, part, row["existed"]


def _parts(url: str, scoring: RayScoring) -> Iterator[dict[str, Any]]:
    """Yield the rows of a file in parts: its ``number``, ``records`` and ``bad`` rows as lines of JSON.

    The last part has their number under ``of``; the others have 0.
    """
    os.environ.update(scoring.environment)
    privacy = PrivacyPolicy.of(Settings.build())
    number, records, bad, size = 0, list[str](), list[str](), 0

    def part(of: int) -> dict[str, Any]:
        return {"part": number, "of": of, "records": "\n".join(records), "bad": "\n".join(bad)}

    with _local(url) as path:
        for _, item in read_items(path, scoring.required, mapping=scoring.mapping, encoding=scoring.encoding):
            if len(records) + len(bad) >= _PART_ROWS or size >= _PART_BYTES:
                yield part(of=0)
                number, records, bad, size = number + 1, [], [], 0
            if isinstance(item, Record):
                records.append(item.to_json())
                size += len(records[-1])
            else:
                entry = {"line": item.line, "reason": item.reason, "row": plain_value(item.raw)}
                bad.append(json.dumps(privacy.data(entry), ensure_ascii=False))
                size += len(bad[-1])
    yield part(of=number + 1)


class _PartScorer:
    """Scores and writes parts, in an actor: the models are loaded once."""

    def __init__(self, files: Sequence[_File], scoring: RayScoring) -> None:
        self._files = files
        self._scoring = scoring
        self._pipeline: Pipeline | None = None

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        file = self._files[row["file"]]
        name = f"{file.folder}/part-{row['part']:05d}.parquet"
        existing = _part_at(name)
        if existing is None:
            with rare_collection():
                done = self._score(file, name, _lines(row["records"]), _lines(row["bad"]))
        else:
            done = file.check(existing)
        return {
            "file": row["file"],
            "of": row["of"],
            "existed": existing is not None,
            "done": done.model_dump_json(),
        }

    def _score(self, file: _File, name: str, lines: Sequence[str], bad: Sequence[str]) -> _Done:
        # Here, not in the constructor: Ray would hide the error behind the death of the actor.
        if self._pipeline is None:
            os.environ.update(self._scoring.environment)
            self._pipeline = build_pipeline(**self._scoring.options)
        pipeline = self._pipeline
        counts, scored = score_records(
            list(map(Record.model_validate_json, lines)),
            pipeline,
            details=self._scoring.details,
            concurrency=self._scoring.options["concurrency"],
            privacy=pipeline.privacy,
        )
        first = json.loads(bad[0]) if bad else None
        done = _Done(
            work=file.work,
            counts=counts,
            bad=len(bad),
            first_bad=None if first is None else (first["line"], first["reason"]),
        )
        if bad:
            folder, _, part = name.rpartition("/")
            _write(f"{folder}/_errors-{part[5:10]}.jsonl", ("\n".join(bad) + "\n").encode())
        records = [record.redacted(pipeline.privacy) for record, _ in scored]
        text, number = pyarrow.string(), pyarrow.float64()
        columns = {
            "id": pyarrow.array([record.id for record in records], text),
            "run": pyarrow.array([record.run for record in records], pyarrow.int64()),
            "query": pyarrow.array([record.turn.query for record in records], text),
            "response": pyarrow.array([record.turn.response for record in records], text),
        }
        cells = score_cells([record for record, _ in scored], pipeline.metrics)
        for column, kind in score_columns(pipeline.metrics).items():
            columns[column] = pyarrow.array(cells[column], number if kind == "double" else text)
        columns["rageval_record"] = pyarrow.array([line for _, line in scored], text)
        table = pyarrow.table(columns).replace_schema_metadata({_METADATA: done.model_dump_json()})
        buffer = pyarrow.BufferOutputStream()
        pyarrow.parquet.write_table(table, buffer, compression="zstd")
        _write(name, buffer.getvalue().to_pybytes())
        return done


def ask_on_ray(
    askings: Sequence[Asking], app: Mapping[str, Any], *, concurrency: int, timeout: float
) -> Iterator[tuple[Asking, Record]]:
    """Ask an application questions on a Ray cluster. Each actor imports it, and asks so many questions at a time.

    Args:
        askings: the questions, and the numbers of their repetitions.
        app: arguments of :func:`rageval_hooks.offline.apps.loading.load_app`.
        concurrency: questions at a time in each actor.
        timeout: seconds for each question.

    Yields:
        Each question with its record, in any order.

    Raises:
        ConfigurationError: an actor cannot import the application.
    """
    actors = _start(None)
    rows = [
        {"number": number, "question": question.model_dump_json(), "run": run}
        for number, (question, run) in enumerate(askings)
    ]
    if not rows:
        return
    # A block is what an actor asks at once, and what is asked again if it dies.
    data = ray.data.from_items(rows, override_num_blocks=-(-len(rows) // concurrency))
    _prepare(data, memory=actors * _WAITING_PARTS * _PART_BYTES)
    answers = data.map_batches(
        _Asker,
        fn_constructor_args=(app, concurrency, timeout),
        batch_size=None,
        num_cpus=1,
        compute=_pool(min(actors, data.num_blocks())),
    )
    for row in answers.iter_rows():
        yield askings[row["number"]], Record.model_validate_json(row["record"])


class _Asker:
    """Asks the application, in an actor, always on the same event loop."""

    def __init__(self, app: Mapping[str, Any], concurrency: int, timeout: float) -> None:
        self._name = app
        self._concurrency, self._timeout = concurrency, timeout
        self._app: App | None = None
        self._runner = asyncio.Runner()

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        if self._app is None:
            # Answers to test questions do not mix with those to users; see `rageval-hooks run`.
            os.environ["RAGEVAL_ENABLED"] = "false"
            try:
                self._app = self._runner.run(load_app(**self._name))
            except ConfigurationError as error:
                raise ConfigurationError(
                    f"an actor of Ray cannot import the application: {error}. On a cluster, start the command with "
                    "`ray job submit --working-dir`"
                ) from error
        askings = [
            (GoldenQuestion.model_validate_json(question), int(run))
            for question, run in zip(batch["question"], batch["run"], strict=True)
        ]
        records: dict[tuple[str, int], str] = {}

        def keep(question: GoldenQuestion, run: int, record: Record) -> None:
            records[question.id, run] = record.model_dump_json()

        self._runner.run(ask_all(askings, self._app, keep, concurrency=self._concurrency, timeout=self._timeout))
        return {
            "number": batch["number"],
            "record": [records[question.id, run] for question, run in askings],
        }


def _lines(text: str) -> list[str]:
    # Not splitlines(): texts in JSON may have other separators, such as U+2028.
    return text.split("\n") if text else []


def _start(workers: int | None) -> int:
    """Connect to the cluster, or start one on this machine. Returns how many actors it has room for."""
    if not ray.is_initialized():
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        ray.init(include_dashboard=False, logging_level=logging.ERROR)
    room = max(1, int(ray.cluster_resources().get("CPU", 1)))
    return room if workers is None else min(room, workers)


def _pool(actors: int) -> Any:
    """Return a pool that begins with so many actors."""
    # With `size`, Ray warns about every input with fewer parts than actors.
    return ray.data.ActorPoolStrategy(min_size=1, max_size=actors, initial_size=actors)


def _prepare(data: Any, memory: int) -> None:
    """Set how Ray runs this dataset, and only this one."""
    context = data.context
    context.target_max_block_size = 1  # every row is a block: a part is scored as soon as it is read
    context.execution_options.resource_limits = context.execution_options.resource_limits.copy(
        object_store_memory=memory
    )
    context.raise_original_map_exception = True
    context.enable_progress_bars = False  # the command shows its own
    context.print_on_execution_start = False


@contextmanager
def _local(url: str) -> Iterator[Path]:
    """Yield a file as a local one. Its name stays: it says the format."""
    source, path = url_to_fs(url)
    if "file" in (source.protocol, *source.protocol):
        yield Path(path)
        return
    with TemporaryDirectory(prefix="rageval-") as folder:
        copy = Path(folder) / PurePosixPath(path).name
        source.get_file(path, str(copy))
        yield copy


def _part_at(url: str) -> _Done | None:
    """Return what a part has; None if there is none, or only the beginning of one, which a killed actor left."""
    target, path = url_to_fs(url)
    try:
        with target.open(path, "rb") as file:
            metadata = pyarrow.parquet.read_schema(file).metadata or {}
    except (FileNotFoundError, pyarrow.ArrowInvalid):
        return None
    if _METADATA not in metadata:
        raise ConfigurationError(f"{url} would be overwritten, and this command did not write it: name another output")
    return _Done.model_validate_json(metadata[_METADATA])


def _read(url: str) -> bytes | None:
    target, path = url_to_fs(url)
    try:
        return bytes(target.cat_file(path))
    except FileNotFoundError:
        return None


def _write(url: str, content: bytes) -> None:
    target, path = url_to_fs(url)
    target.makedirs(path.rpartition("/")[0], exist_ok=True)
    target.pipe_file(path, content)


def _remove(file: _File) -> None:
    """Remove the scores of a file, and nothing else in its folder."""
    target, path = url_to_fs(file.folder)
    for pattern in (_DONE, "part-*.parquet", "_errors-*.jsonl"):
        for name in target.glob(f"{path}/{pattern}"):
            target.rm_file(name)
