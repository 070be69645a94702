"""The journal of a command gives every result back, also when it is opened again."""

from __future__ import annotations

from pathlib import Path

from rageval_hooks.offline.journal import Journal


def test_results_are_found_again_by_their_keys(tmp_path: Path) -> None:
    path, work = tmp_path / "out.partial.jsonl", {"command": "test", "parts": (1, 2)}
    with Journal(path, work) as journal:
        for number in range(300):
            journal.append(str(number), {"text": "é" * number}, {"calls": number})
        journal.append("7", {"text": "newer"})

    with Journal(path, work) as journal:
        journal.append("300", {"text": "last"})
        assert len(journal) == 301
        assert journal.spent == {"calls": 299}
        found = [journal[str(number)]["text"] for number in (0, 7, 8, 299, 300)]
        assert found == ["", "newer", "é" * 8, "é" * 299, "last"]


def test_a_journal_without_results_leaves_no_file(tmp_path: Path) -> None:
    with Journal(tmp_path / "out.partial.jsonl", {}):
        pass
    assert list(tmp_path.iterdir()) == []
