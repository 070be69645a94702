"""A judge on loopback in a separate process. It labels every sentence as supported, prints its URL, then counts.

Reads lines: for each it prints how many requests have come so far.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.judges.server import JudgeServer, Received, Reply, answer

LABELS = {
    "relevance_explanation": "The first passage says so.",
    "all_relevant_sentence_keys": ["0a"],
    "sentence_support_information": [
        {
            "response_sentence_key": key,
            "explanation": "as the passage says",
            "supporting_sentence_keys": ["0a"],
            "fully_supported": True,
        }
        for key in "ab"
    ],
    "all_utilized_sentence_keys": ["0a"],
    "overall_supported": True,
}


def main() -> None:
    count = [0]

    def respond(_: Received) -> Reply:
        count[0] += 1
        server.requests.clear()
        return answer(LABELS)

    with JudgeServer() as server:
        server.otherwise(respond)
        print(server.url, flush=True)
        for _ in sys.stdin:
            print(count[0], flush=True)


if __name__ == "__main__":
    main()
