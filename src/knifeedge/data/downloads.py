"""Public data sets from their public addresses, checked file by file.

An archive is fetched (going on where an earlier try broke off), and of what is in it only the files
of the manifest are unpacked, each under the manifest's own name, at most of its size, and only if
its SHA-256 is right. So nothing an archive says can write elsewhere, link, or swell.
"""

import hashlib
import http.client
import json
import os
import shutil
import tarfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path, PurePosixPath
from typing import IO

from knifeedge.data.layouts import LAYOUTS, search_places
from knifeedge.errors import ConfigError, DataError

Progress = Callable[[int, int], None]

MAX_ARCHIVE = 2**32
TIMEOUT = 60.0
_CHUNK = 2**20


@dataclass(frozen=True)
class Manifest:
    """What a data set consists of.

    Args:
        name: Of the data set.
        url: Of a zip or tar archive.
        prefix: Of the files' names in the archive.
        files: Name to (bytes, SHA-256).
    """

    name: str
    url: str
    prefix: str
    files: dict[str, tuple[int, str]]

    def __post_init__(self) -> None:
        """Refuse names outside the folder."""
        for name in self.files:
            if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
                raise ValueError(f"a manifest names files inside its folder, got {name!r}")

    def wrong(self, folder: Path) -> list[str]:
        """The files that are missing in a folder, or differ."""
        return [name for name, (size, digest) in self.files.items()
                if not _is_right(folder / name, size, digest)]  # fmt: skip


def download(
    name: str,
    root: str | Path | None = None,
    *,
    url: str | None = None,
    progress: Progress | None = None,
) -> Path:
    """Fetch, check and unpack a public data set; what is right already is not fetched again.

    Args:
        name: UDED or BSDS500; the others have no direct address, and the error says where they are.
        root: Folder to put it in; else $KNIFEEDGE_DATA/NAME, else ./data/NAME.
        url: Another address of the same archive.
        progress: Called with (bytes, all bytes).

    Returns:
        The folder.

    Raises:
        DataError: It could not be fetched, or is not what it should be.

    >>> download("BIPED2", "here")
    Traceback (most recent call last):
    knifeedge.errors.DataError: BIPED2 has no direct address: get it at https://www.kaggle.com/...
    """
    proper = {key.lower(): key for key in LAYOUTS}.get(name.lower())
    if proper is None:
        raise ConfigError(
            f"there is nothing to download for {name!r}; there are {', '.join(LAYOUTS)}"
        )
    folder = search_places(proper, root)[0]
    manifest = load_manifest(proper)
    if manifest is None:
        raise DataError(
            f"{proper} has no direct address: get it at {LAYOUTS[proper].page},"
            f" unpack it in {folder}, and try it with knifeedge data check {folder}"
        )
    if url is not None:
        manifest = Manifest(manifest.name, url, manifest.prefix, manifest.files)
    fetch(manifest, folder, progress=progress)
    return folder


def load_manifest(name: str) -> Manifest | None:
    """The manifest of a data set in the package, if it has one.

    >>> manifest = load_manifest("UDED")
    >>> len(manifest.files)
    61
    """
    file = resources.files("knifeedge.data") / "manifests" / f"{name.lower()}.json"
    if not file.is_file():
        return None
    content = json.loads(file.read_text("utf-8"))
    files = {path: (size, digest) for path, (size, digest) in content["files"].items()}
    return Manifest(content["name"], content["url"], content["prefix"], files)


def fetch(manifest: Manifest, folder: Path, *, progress: Progress | None = None) -> list[str]:
    """Bring a folder to what a manifest says.

    Args:
        manifest: See `Manifest`.
        folder: Made if it is not there.
        progress: Called with (bytes, all bytes).

    Returns:
        The files that were written; none if all were right.

    >>> fetch(Manifest("nothing", "http://127.0.0.1/", "", {}), Path("unused"))
    []
    """
    wanted = manifest.wrong(folder)
    if not wanted:
        return []
    if not manifest.url.startswith(("http://", "https://")):
        raise DataError(f"{manifest.url} is no http or https address")
    archive = folder / ".download" / (manifest.url.rstrip("/").rsplit("/", 1)[-1] or "archive")
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        _get(manifest.url, archive, progress)
        written = _unpack(archive, manifest, wanted, folder)
        shutil.rmtree(archive.parent)
    except OSError as error:
        raise DataError(
            f"{error.filename or folder} cannot be written: {error.strerror}"
        ) from error
    missing = [name for name in wanted if name not in written]
    if missing:
        shown = ", ".join(missing[:5]) + (", .." if len(missing) > 5 else "")
        raise DataError(
            f"{len(missing)} of {len(manifest.files)} files of {manifest.name} were not in the"
            f" archive of {manifest.url}, or differ from the manifest: {shown}. The archive was"
            " removed; run it again, or give another address with --url"
        )
    return written


def _get(url: str, archive: Path, progress: Progress | None) -> None:
    """Fetch a file, going on from what is there."""
    have = archive.stat().st_size if archive.exists() else 0
    headers = {"User-Agent": "knifeedge", **({"Range": f"bytes={have}-"} if have else {})}
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, headers=headers), timeout=TIMEOUT
        ) as answer:
            if answer.status != 206:  # the server sends all of it
                have = 0
            length = answer.headers.get("Content-Length", "")
            total = have + int(length) if length.isdigit() else 0
            with archive.open("ab" if have else "wb") as file:
                while chunk := answer.read(_CHUNK):
                    have += file.write(chunk)
                    if have > MAX_ARCHIVE:
                        raise DataError(f"{url} is larger than {MAX_ARCHIVE} bytes; stopped")
                    if progress is not None:
                        progress(have, max(total, have))
    except urllib.error.HTTPError as error:
        if error.code == 416 and have:  # nothing is left to fetch
            return
        raise DataError(
            f"{url} answers {error.code} {error.reason}; give another with --url"
        ) from error
    except (
        urllib.error.URLError,
        http.client.HTTPException,
        TimeoutError,
        ConnectionError,
    ) as error:
        reason = getattr(error, "reason", None) or error
        raise DataError(f"{url} cannot be reached or broke off: {reason}; run it again") from error
    if have < total:
        raise DataError(
            f"{url} broke off after {have} of {total} bytes; run it again, it goes on from there"
        )


def _unpack(archive: Path, manifest: Manifest, wanted: list[str], folder: Path) -> list[str]:
    """Write the wanted files whose checksums are right."""
    inside = {manifest.prefix + name: name for name in wanted}
    written: list[str] = []
    try:
        for member, source in _members(archive, inside):
            name = inside[member]
            size, digest = manifest.files[name]
            data = source.read(size + 1)
            if len(data) == size and hashlib.sha256(data).hexdigest() == digest:
                _write(folder / name, data)
                written.append(name)
    except DataError:
        raise
    except Exception as error:  # zlib.error, BadZipFile, BadGzipFile, TarError, EOFError, ...
        archive.unlink(missing_ok=True)
        raise DataError(
            f"{manifest.url} is no whole zip or tar archive ({error}); it was removed, run it again"
        ) from error
    return written


def _members(archive: Path, names: Container[str]) -> Iterator[tuple[str, IO[bytes]]]:
    """The plain files of these names in an archive; links and devices are passed over."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as zipped:
            for info in zipped.infolist():
                if info.filename in names:
                    with zipped.open(info) as source:
                        yield info.filename, source
        return
    with tarfile.open(archive) as tar:
        for member in tar:
            opened = tar.extractfile(member) if member.isreg() and member.name in names else None
            if opened is not None:
                with opened:
                    yield member.name, opened


def _write(path: Path, data: bytes) -> None:
    """A file that is there is whole, even if this is interrupted."""
    part = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(data)
        os.replace(part, path)
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror}") from error


def _is_right(path: Path, size: int, digest: str) -> bool:
    try:
        return (
            path.stat().st_size == size and hashlib.sha256(path.read_bytes()).hexdigest() == digest
        )
    except OSError:
        return False
