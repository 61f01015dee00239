import hashlib
import http.server
import io
import json
import tarfile
import threading
import zipfile

import pytest

from knifeedge.data import downloads
from knifeedge.data.downloads import Manifest, download, fetch, load_manifest
from knifeedge.errors import ConfigError, DataError
from shared_data import data_dir

FILES = {"imgs/a.png": b"picture " * 500, "gt/a.png": b"label " * 300, "LICENSE": b"free"}


@pytest.fixture
def server():
    """Files on 127.0.0.1, with ranges; `serve.cut` ends an answer early, `serve.seen` tells."""

    class Serve(http.server.BaseHTTPRequestHandler):
        files, cut, ranges, seen = {}, None, True, []

        def do_GET(self):
            data = self.files.get(self.path)
            start = 0
            asked = self.headers.get("Range")
            self.seen.append(asked)
            if data is None:
                return self.send_error(404)
            if asked and self.ranges:
                start = int(asked.removeprefix("bytes=").removesuffix("-"))
                if start >= len(data):
                    return self.send_error(416)
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
            else:
                self.send_response(200)
            self.send_header("Content-Length", str(len(data) - start))
            self.end_headers()
            self.wfile.write(data[start : self.cut])
            self.close_connection = True

        def log_message(self, *args):
            pass

    running = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Serve)
    thread = threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    Serve.address = f"http://127.0.0.1:{running.server_port}"
    yield Serve
    running.shutdown()
    running.server_close()
    thread.join()


def make_zip(files):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(f"set-main/{name}", content)
    return data.getvalue()


def make_tgz(files):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(f"set-main/{name}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return data.getvalue()


def manifest(url, files=FILES):
    sums = {name: (len(data), hashlib.sha256(data).hexdigest()) for name, data in files.items()}
    return Manifest("TINY", url, "set-main/", sums)


def assert_whole(folder):
    found = {
        p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()
    }
    assert found == FILES


@pytest.mark.parametrize("make", [make_zip, make_tgz])
def test_fetch_checks_and_unpacks(server, tmp_path, make):
    server.files = {"/set": make({**FILES, "more/other.txt": b"not ours"})}
    calls = []
    wanted = manifest(f"{server.address}/set")
    written = fetch(wanted, tmp_path / "TINY", progress=lambda *call: calls.append(call))
    assert sorted(written) == sorted(FILES)
    assert_whole(tmp_path / "TINY")
    assert calls[-1] == (len(server.files["/set"]),) * 2
    server.seen.clear()
    assert fetch(wanted, tmp_path / "TINY") == []
    assert server.seen == []
    (tmp_path / "TINY" / "gt" / "a.png").write_bytes(b"changed")
    assert fetch(wanted, tmp_path / "TINY") == ["gt/a.png"]
    assert_whole(tmp_path / "TINY")


@pytest.mark.parametrize("ranges", [True, False], ids=["ranges", "no ranges"])
def test_a_broken_download_goes_on(server, tmp_path, ranges):
    server.files, server.ranges, server.cut = {"/set.zip": make_zip(FILES)}, ranges, 300
    wanted = manifest(f"{server.address}/set.zip")
    with pytest.raises(
        DataError, match=r"broke off after 300 of \d+ bytes; run it again, it goes on"
    ):
        fetch(wanted, tmp_path)
    server.cut = None
    server.seen.clear()
    fetch(wanted, tmp_path)
    assert server.seen == ["bytes=300-"]
    assert_whole(tmp_path)


def test_an_archive_that_was_fetched_but_not_unpacked(server, tmp_path):
    data = make_zip(FILES)
    server.files = {"/set.zip": data}
    (tmp_path / ".download").mkdir()
    (tmp_path / ".download" / "set.zip").write_bytes(data)
    fetch(manifest(f"{server.address}/set.zip"), tmp_path)
    assert server.seen[-1] == f"bytes={len(data)}-"
    assert_whole(tmp_path)


def test_other_content_is_refused(server, tmp_path):
    changed = {**FILES, "imgs/a.png": b"pictures" * 500}
    server.files = {"/set.zip": make_zip(changed)}
    with pytest.raises(DataError, match=r"1 of 3 files of TINY were not in .* imgs/a\.png"):
        fetch(manifest(f"{server.address}/set.zip"), tmp_path)
    assert not (tmp_path / "imgs").exists()
    assert not (tmp_path / ".download").exists()
    server.files = {"/set.zip": make_zip(FILES)}
    assert fetch(manifest(f"{server.address}/set.zip"), tmp_path) == ["imgs/a.png"]


def evil_tar():
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        for name in ("../escaped", "/tmp/knifeedge-escaped", "set-main/../../escaped"):
            info = tarfile.TarInfo(name)
            info.size = 4
            archive.addfile(info, io.BytesIO(b"evil"))
        link = tarfile.TarInfo("set-main/gt")
        link.type, link.linkname = tarfile.SYMTYPE, "/tmp"
        archive.addfile(link)
        hard = tarfile.TarInfo("set-main/LICENSE")
        hard.type, hard.linkname = tarfile.LNKTYPE, "/etc/passwd"
        archive.addfile(hard)
        device = tarfile.TarInfo("set-main/imgs/a.png")
        device.type = tarfile.FIFOTYPE
        archive.addfile(device)
    return data.getvalue()


def evil_zip():
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("../escaped", b"evil")
        archive.writestr("set-main/imgs/a.png", bytes(50_000_000))  # swells
        link = zipfile.ZipInfo("set-main/gt/a.png")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
    return data.getvalue()


@pytest.mark.parametrize("make", [evil_tar, evil_zip])
def test_an_evil_archive_writes_nothing(server, tmp_path, make):
    server.files = {"/set": make()}
    folder = tmp_path / "deep" / "TINY"
    with pytest.raises(DataError, match="3 of 3 files of TINY"):
        fetch(manifest(f"{server.address}/set"), folder)
    assert [p for p in tmp_path.rglob("*") if p.is_file() or p.is_symlink()] == []


@pytest.mark.parametrize(
    "data",
    [b"", b"no archive", make_zip(FILES)[:-30], make_tgz(FILES)[:90]],
    ids=["empty", "text", "cut zip", "cut tar"],  # the bytes of an archive hold the time of day
)
def test_damaged_archives(server, tmp_path, data):
    server.files = {"/set": data}
    with pytest.raises(DataError, match=r"TINY|archive"):
        fetch(manifest(f"{server.address}/set"), tmp_path)
    server.files = {"/set": make_zip(FILES)}
    fetch(manifest(f"{server.address}/set"), tmp_path)
    assert_whole(tmp_path)


def test_servers_that_do_not_answer(server, tmp_path):
    with pytest.raises(DataError, match="answers 404"):
        fetch(manifest(f"{server.address}/nothing"), tmp_path)
    with pytest.raises(DataError, match="cannot be reached"):
        fetch(manifest("http://127.0.0.1:9/set.zip"), tmp_path)
    with pytest.raises(DataError, match="no http or https address"):
        fetch(manifest("file:///etc/passwd"), tmp_path)


def test_an_endless_answer_is_stopped(server, tmp_path, monkeypatch):
    monkeypatch.setattr(downloads, "MAX_ARCHIVE", 1000)
    server.files = {"/set.zip": bytes(5000)}
    with pytest.raises(DataError, match="larger than 1000 bytes; stopped"):
        fetch(manifest(f"{server.address}/set.zip"), tmp_path)


def test_a_folder_that_cannot_be_made(server, tmp_path):
    (tmp_path / "file").touch()
    server.files = {"/set.zip": make_zip(FILES)}
    with pytest.raises(DataError, match="cannot be written"):
        fetch(manifest(f"{server.address}/set.zip"), tmp_path / "file" / "TINY")


@pytest.mark.parametrize("name", ["../a", "/a", "b/../../a"])
def test_a_manifest_stays_in_its_folder(name):
    with pytest.raises(ValueError, match="inside its folder"):
        Manifest("TINY", "http://127.0.0.1/", "", {name: (1, "0" * 64)})


def test_names():
    for name, reason in (
        ("BRIND", "BRIND has no direct address: get it at .*RINDNet"),
        ("biped2", "BIPED2 has no direct address: .* unpack it in data/BIPED2, and try it with"),
    ):
        with pytest.raises(DataError, match=reason):
            download(name)
    with pytest.raises(ConfigError, match="nothing to download for 'synthetic'; there are BSDS500"):
        download("synthetic")


def test_download_to_where_data_are_looked_for(server, tmp_path, monkeypatch):
    server.files = {"/set.zip": make_zip(FILES)}
    monkeypatch.setattr(
        downloads, "load_manifest", lambda name: manifest("http://127.0.0.1:9/gone")
    )
    monkeypatch.setenv("KNIFEEDGE_DATA", str(tmp_path))
    assert download("uded", url=f"{server.address}/set.zip") == tmp_path / "UDED"
    assert_whole(tmp_path / "UDED")


@pytest.mark.parametrize(("name", "count"), [("UDED", 61), ("BSDS500", 1000)])
def test_the_manifests_are_those_of_the_data(name, count):
    shipped = load_manifest(name)
    assert len(shipped.files) == count
    assert shipped.wrong(data_dir(name)) == []
    assert json.dumps(shipped.files)
