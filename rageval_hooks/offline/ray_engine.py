"""``--engine ray``: the commands ``score`` and ``run`` on a Ray cluster.

``score``: actors, which hold the models, read the files in parts, score the parts and write them. Several actors share
a large file: each reads all of it, which is fast, and scores some of its parts. Rows do not pass through Ray's memory.
A part that exists is not scored again.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any, Final

from rageval_hooks.errors import ConfigurationError, JudgeUnavailableError, TurnError, requires
from rageval_hooks.offline.asking import Asking, ask_all
from rageval_hooks.offline.dataset import score_columns
from rageval_hooks.offline.journal import bad_row_line
from rageval_hooks.offline.loading import App, load_app
from rageval_hooks.offline.records.formats import BadRow
from rageval_hooks.offline.records.reading import READ_AS_IS, Item, ReadOptions, read_items
from rageval_hooks.offline.records.record import Record
from rageval_hooks.offline.records.rows import FIXED_COLUMNS
from rageval_hooks.offline.records.writing import row_of
from rageval_hooks.offline.running import Advance
from rageval_hooks.offline.scoring.run import ScoringRun
from rageval_hooks.offline.scoring.score_file import Scored, build_pipeline, is_final, settings_of
from rageval_hooks.offline.scoring.workers import Counts, Details
from rageval_hooks.offline.testsets import GoldenQuestion
from rageval_hooks.online.pipeline import Pipeline
from rageval_hooks.runtime.jsonable import Data

with requires("ray", "ray", "--engine ray"):
    import pyarrow
    import pyarrow.parquet
    import ray
    import ray.data
    from fsspec.core import has_magic, url_to_fs

_PART_ROWS: Final = 1000
_PART_BYTES: Final = 16 * 2**20
"""A part ends with so many rows, or characters of text. An actor that is killed loses one part."""

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
        reading: how to read the files.
        environment: the variables of this package, which other machines may not have.
    """

    options: Mapping[str, Any]
    details: Details
    required: tuple[str, ...]
    reading: ReadOptions = READ_AS_IS
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
        complete: False if the budget of the judge left scores out.
    """

    work: dict[str, Any]
    counts: Counts = Counts()
    bad: int = 0
    first_bad: tuple[int, str] | None = None
    complete: bool = True

    def plus(self, other: _Done) -> _Done:
        return _Done(
            work=self.work,
            counts=self.counts.plus(other.counts),
            bad=self.bad + other.bad,
            first_bad=self.first_bad or other.first_bad,
            complete=self.complete and other.complete,
        )


@dataclass(frozen=True)
class _File:
    """A file to score, its size in bytes, the folder for its scores, and what decides on them."""

    url: str
    size: int
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

    def whole(self) -> _Done | None:
        """Return what the folder has if it is complete, else None."""
        target, path = url_to_fs(f"{self.folder}/{_DONE}")
        return self.check(_Done.model_validate_json(target.cat_file(path))) if target.exists(path) else None

    def part(self, number: int) -> _Done | None:
        """Return what a part has; None if there is none, or only the beginning of one, which a killed actor left."""
        target, path = url_to_fs(self.part_name(number))
        try:
            with target.open(path, "rb") as file:
                metadata = pyarrow.parquet.read_schema(file).metadata or {}
        except (FileNotFoundError, pyarrow.ArrowInvalid):
            return None
        if _METADATA not in metadata:
            raise ConfigurationError(
                f"{path} would be overwritten, and this command did not write it: name another output"
            )
        return self.check(_Done.model_validate_json(metadata[_METADATA]))

    def records(self, number: int) -> list[Record]:
        """Return the records of a part, in the order of the file."""
        target, path = url_to_fs(self.part_name(number))
        with target.open(path, "rb") as file:
            lines = pyarrow.parquet.read_table(file, columns=["rageval_record"])["rageval_record"].to_pylist()
        return list(map(Record.model_validate_json, lines))

    def part_name(self, number: int) -> str:
        return f"{self.folder}/part-{number:05d}.parquet"

    def remove(self) -> None:
        """Remove the scores, and nothing else in the folder."""
        target, path = url_to_fs(self.folder)
        for pattern in (_DONE, "part-*.parquet", "_errors-*.jsonl"):
            for name in target.glob(f"{path}/{pattern}"):
                target.rm_file(name)


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
    work = {
        **settings_of(pipeline, []),
        "details": scoring.details,
        "size of a part": [_PART_ROWS, _PART_BYTES],
        **scoring.reading.settings(),
    }
    files = _files(inputs, output, work)
    # What there is of each file.
    found: dict[int, _Done] = {}
    for number, file in enumerate(files):
        if restart:
            file.remove()
        elif (whole := file.whole()) is not None:
            found[number] = whole
    scored = Scored(resumed=sum(done.counts.turns for done in found.values()), finished=len(found) == len(files))
    advance(scored.resumed)
    ended = Counter[int]()
    for row in _score_shares(files, [number for number in range(len(files)) if number not in found], scoring, workers):
        number = row["file"]
        if row["done"]:
            part = _Done.model_validate_json(row["done"])
            found[number] = found[number].plus(part) if number in found else part
            scored.resumed += part.counts.turns if row["existed"] else 0
            advance(part.counts.turns)
            continue
        ended[number] += 1
        if ended[number] == row["of"] and found[number].complete:
            _write(f"{files[number].folder}/{_DONE}", found[number].model_dump_json().encode())
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
    found = list(filter(source.isfile, source.glob(path))) if has_magic(path) else source.find(path)
    # The folder before the first special character of a glob.
    root = path if source.isdir(path) else re.split(r"[*?[]", path)[0].rpartition("/")[0]
    if type(source) is type(target) and (root == there or there in found):
        raise ConfigurationError(f"the output {output} is the folder of the input: name another one")
    files = []
    for name in sorted(found):
        relative = name.removeprefix(root).lstrip("/")
        # Markers and hidden files are no input, and neither are scores in a folder next to them.
        if name.startswith(f"{there}/") or any(part.startswith((".", "_")) for part in relative.split("/")):
            continue
        about = source.info(name)
        stamp = about.get("ETag") or about.get("etag") or about.get("mtime")
        # As it comes back from JSON.
        own = json.loads(json.dumps({**work, "input": f"{about['size']} bytes, {stamp}"}))
        folder = target.unstrip_protocol(f"{there}/{relative}")
        files.append(_File(source.unstrip_protocol(name), about["size"], folder, own))
    if not files:
        raise ConfigurationError(f"there is no file {inputs}")
    return files


def _score_shares(
    files: Sequence[_File], numbers: Sequence[int], scoring: RayScoring, workers: int | None
) -> Iterator[dict[str, Any]]:
    """Score files, each in shares.

    Yields:
        A row for each part, in any order: the number of its file, what was scored, and True if it existed before. Each
        share ends with a row in which nothing was scored.
    """
    if not numbers:
        return
    actors = _start(workers)
    # As many shares in all as there are actors, or a few more, so that no actor waits for another one's large file.
    total = sum(files[number].size for number in numbers) or 1
    shares = {number: max(1, math.ceil(actors * files[number].size / total)) for number in numbers}
    rows = [{"file": number, "share": share, "of": count} for number, count in shares.items() for share in range(count)]
    data = ray.data.from_items(rows, override_num_blocks=len(rows))
    _prepare(data)
    scorers = data.flat_map(_PartScorer, fn_constructor_args=(files, scoring), num_cpus=1, compute=_pool(actors))
    yield from scorers.iter_rows()


class _PartScorer:
    """Scores and writes the parts of files, in an actor: the models are loaded once."""

    def __init__(self, files: Sequence[_File], scoring: RayScoring) -> None:
        self._files = files
        self._scoring = scoring
        self._pipeline: Pipeline | None = None

    def __call__(self, row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Score a share of a file: every so many-th part of it."""
        # Here, not in the constructor: Ray would hide the error behind the death of the actor.
        if self._pipeline is None:
            os.environ.update(self._scoring.environment)
            self._pipeline = build_pipeline(**self._scoring.options)
            gc.freeze()  # as in `scoring.workers`: it takes a tenth of the time of a row
        scoring, file = self._scoring, self._files[row["file"]]
        with _local(file.url) as path:
            items = read_items(path, scoring.required, options=scoring.reading)
            for number, part in enumerate(_parts(item for _, item in items)):
                if number % row["of"] == row["share"]:
                    done = existing = file.part(number)
                    if done is None or not done.complete:
                        earlier = [] if existing is None else file.records(number)
                        done = self._score(file, number, part, self._pipeline, earlier)
                    yield row | {"done": done.model_dump_json(), "existed": done is existing}
        yield row | {"done": "", "existed": True}

    def _score(
        self, file: _File, number: int, part: Sequence[Item], pipeline: Pipeline, earlier: Iterable[Record]
    ) -> _Done:
        bad = [item for item in part if isinstance(item, BadRow)]
        details, concurrency = self._scoring.details, self._scoring.options["concurrency"]
        run = ScoringRun(pipeline, concurrency=concurrency, details=details, privacy=pipeline.privacy)
        # Of a part for which the budget was not sufficient, the turns that lack a score are scored again.
        for index, record in enumerate(earlier):
            if all(map(is_final, record.results)):
                run.keep(index, record)
        scored = run.score([item for item in part if isinstance(item, Record)])
        if run.broken:
            raise JudgeUnavailableError(run.broken)
        done = _Done(
            work=file.work,
            counts=run.counts,
            complete=run.complete,
            bad=len(bad),
            first_bad=(bad[0].line, pipeline.privacy.data(bad[0].reason)) if bad else None,
        )
        if bad:
            _write(
                f"{file.folder}/_errors-{number:05d}.jsonl",
                b"".join(bad_row_line(item, pipeline.privacy) for item in bad),
            )
        columns = dict.fromkeys(FIXED_COLUMNS, "string") | {"run": "int64"}
        columns |= {**score_columns(pipeline.metrics), "rageval_record": "string"}
        schema = pyarrow.schema(
            [(name, pyarrow.type_for_alias(kind)) for name, kind in columns.items()],
            metadata={_METADATA: done.model_dump_json()},
        )
        lines = zip(scored, scored.lines(), strict=True)
        rows = [row_of(record) | {"rageval_record": line.decode()} for record, line in lines]
        buffer = pyarrow.BufferOutputStream()
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows, schema=schema), buffer, compression="zstd")
        _write(file.part_name(number), buffer.getvalue().to_pybytes())
        return done


def _parts(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Yield the rows of a file in parts; at least one, also for an empty file."""
    part: list[Item] = []
    size = 0
    for item in items:
        if len(part) >= _PART_ROWS or size >= _PART_BYTES:
            yield part
            part, size = [], 0
        part.append(item)
        size += sum(map(len, item.turn.texts())) if isinstance(item, Record) else len(str(item.raw))
    yield part


def ask_on_ray(
    askings: Sequence[Asking], app: Mapping[str, Any], *, concurrency: int, timeout: float
) -> Iterator[Record]:
    """Ask an application questions on a Ray cluster. Each actor imports it, and asks so many questions at a time.

    Args:
        askings: the questions, and the numbers of their repetitions.
        app: arguments of :func:`rageval_hooks.offline.loading.load_app`.
        concurrency: questions at a time in each actor.
        timeout: seconds for each question.

    Yields:
        The records, in any order.

    Raises:
        ConfigurationError: an actor cannot import the application.
    """
    actors = _start(None)
    rows = [{"question": question.model_dump_json(), "run": run} for question, run in askings]
    if not rows:
        return
    # A block is what an actor asks at once, and what is asked again if it dies.
    data = ray.data.from_items(rows, override_num_blocks=-(-len(rows) // concurrency))
    _prepare(data)
    answers = data.map_batches(
        _Asker,
        fn_constructor_args=(app, concurrency, timeout),
        batch_size=None,
        num_cpus=1,
        compute=_pool(min(actors, data.num_blocks())),
    )
    for row in answers.iter_rows():
        yield Record.model_validate_json(row["record"])


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
        records: list[Record] = []
        asking = ask_all(askings, self._app, records.append, concurrency=self._concurrency, timeout=self._timeout)
        self._runner.run(asking)
        return {"record": [record.model_dump_json() for record in records]}


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


def _prepare(data: Any) -> None:
    """Set how Ray runs this dataset, and only this one."""
    context = data.context
    context.target_max_block_size = 1  # every row is a block: what is done is reported at once
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


def _write(url: str, content: bytes) -> None:
    target, path = url_to_fs(url)
    target.makedirs(path.rpartition("/")[0], exist_ok=True)
    target.pipe_file(path, content)
