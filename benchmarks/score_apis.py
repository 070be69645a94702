"""Scores on their way to score APIs that fail often: is one lost or stored twice?

    .venv/bin/python benchmarks/score_apis.py [BACKEND ...] [--turns 1000] [--rate 25] [--share 0.2]

A server on loopback answers as each backend does, but a fifth of the requests gets a 5xx, a 429 or a reset, half of
them after they took effect. In the middle of the turns it is stopped, and started again two seconds later. What it has
stored survives. Two scores are the same if the backend identifies them so. Prints one table.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from contextlib import ExitStack
from typing import Any
from urllib.parse import urlsplit

from _common import ROOT, describe_machine, table

sys.path.insert(0, str(ROOT))

from rageval_hooks import Score
from tests.exporters.recording import RecordingServer, recording_server, shaky
from tests.exporters.score_backends import NAMES, Store, backend_of
from tests.exporters.scored_turns import evaluation

DOWN = 2.0
"""Seconds for which the server is stopped."""

SCORES = tuple(Score(name=name, value=0.5, label="pass") for name in ("groundedness", "answer_relevance", "coverage"))


def measure(name: str, turns: int, rate: float, share: float) -> list[str]:
    """Return a line of the table."""
    backend = backend_of(name)
    store = Store(backend)
    respond = shaky(store.respond, share=share)
    started = time.monotonic()
    with ExitStack() as running:
        server = running.enter_context(recording_server(respond))
        os.environ.update(backend.variables)
        os.environ[backend.address] = server.url
        exporter = backend.exporter()
        servers = [server]
        for number in range(turns):
            exporter.export(evaluation(*SCORES, span_id=f"{number + 1:016x}"))
            time.sleep(max(0.0, started + number / rate - time.monotonic()))
            if number == turns // 2:
                running.close()
                time.sleep(DOWN)
                servers.append(restart(running, respond, server.url))
        complete = exporter.flush(120)
        took = time.monotonic() - started
        exporter.shutdown(5)
    expected = turns * len(SCORES)
    stats = exporter.stats()
    repeats = sum(store.taken.values()) - len(store.taken)
    requests = sum(len(server.requests) for server in servers)
    return [
        name, str(expected), str(requests), str(stats["errors"]), str(expected - len(store.taken)),
        str(store.doubled), str(repeats), str(stats["delivered"]), str(complete), f"{took:.1f}",
    ]  # fmt: skip


def restart(running: ExitStack, respond: Any, url: str) -> RecordingServer:
    """Start the server again at the same address."""
    return running.enter_context(recording_server(respond, port=urlsplit(url).port or 0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("backends", nargs="*", metavar="BACKEND", help=f"all by default: {', '.join(NAMES)}")
    parser.add_argument("--turns", type=int, default=1000)
    parser.add_argument("--rate", type=float, default=25, help="turns in a second")
    parser.add_argument("--share", type=float, default=0.2, help="of requests that fail")
    given = parser.parse_args()
    print(describe_machine(), end="\n\n")
    header = ["backend", "scores", "requests", "failed posts", "lost", "doubled", "taken again", "delivered"]
    lines = [measure(name, given.turns, given.rate, given.share) for name in given.backends or NAMES]
    print(table([*header, "flush", "seconds"], lines))


if __name__ == "__main__":
    main()
