"""Files are whole or absent, and places are checked before the work."""

import os
from pathlib import Path

import pytest

from knifeedge import disk
from knifeedge.disk import check_target, remove_leftovers, write_atomically
from knifeedge.errors import DataError


def test_leftovers_of_a_killed_process_are_removed(tmp_path: Path) -> None:
    (tmp_path / ".knifeedge-0123.tmp").write_bytes(b"half")
    (tmp_path / "kept.tmp").write_bytes(b"whole")
    remove_leftovers(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["kept.tmp"]


def test_an_earlier_file_stays_whole_when_writing_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "scores.json"
    path.write_bytes(b"earlier")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(disk.os, "fsync", full)
    with pytest.raises(DataError, match=r"scores\.json cannot be written: No space left"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"earlier"
    assert list(tmp_path.iterdir()) == [path]


def test_an_interrupt_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(disk.os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "a", b"new")
    assert list(tmp_path.iterdir()) == []


def test_the_data_is_on_disk_before_the_rename(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    sync, rename = os.fsync, Path.replace
    monkeypatch.setattr(disk.os, "fsync", lambda fd: (steps.append("sync"), sync(fd)))
    monkeypatch.setattr(Path, "replace", lambda a, b: (steps.append("rename"), rename(a, b)))
    write_atomically(tmp_path / "a", b"new")
    assert steps == ["sync", "rename"]
    assert (tmp_path / "a").read_bytes() == b"new"


def test_a_link_is_followed(tmp_path: Path) -> None:
    real, link = tmp_path / "real" / "scores.json", tmp_path / "link.json"
    link.symlink_to(real)
    for content in (b"new", b"again"):  # first the link leads nowhere
        check_target(link)
        write_atomically(link, content)
        assert link.is_symlink()
        assert real.read_bytes() == content
    assert list(real.parent.iterdir()) == [real]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_written_to_and_stays_one(tmp_path: Path) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    for path in (pipe, link):
        check_target(path)
        write_atomically(path, b"scores")
        assert pipe.is_fifo()
        assert os.read(reader, 100) == b"scores"
    os.close(reader)
    with pytest.raises(DataError, match="is a file; name a folder"):
        check_target(pipe, folder=True)


def test_a_file_where_a_folder_is_needed(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DataError, match="cannot be written"):
        write_atomically(tmp_path / "file" / "scores.json", b"")


def test_places_are_checked_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    check_target(tmp_path / "new" / "scores.json")
    check_target(tmp_path / "file")
    check_target(tmp_path, folder=True)
    check_target(tmp_path / "new" / "folder", folder=True)
    assert not (tmp_path / "new").exists()
    with pytest.raises(DataError, match=r"is a folder; name a file in it, such as .*scores\.json"):
        check_target(tmp_path)
    with pytest.raises(DataError, match="is a file; name a folder"):
        check_target(tmp_path / "file", folder=True)
    with pytest.raises(DataError, match="is no folder that may be written to"):
        check_target(tmp_path / "file" / "scores.json")


def test_a_folder_without_write_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk.os, "access", lambda *_: False)
    with pytest.raises(DataError, match="may be written to"):
        check_target(tmp_path / "scores.json")
