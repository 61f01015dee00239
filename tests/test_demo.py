"""The demonstration: the same seed gives the same table, and a picture is written."""

from PIL import Image

from knifeedge import demo


def test_the_same_seed_gives_the_same_table(tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "SCENES", 4)
    monkeypatch.setattr(demo, "SIZE", 64)
    monkeypatch.setattr(demo, "CROP", 48)
    lines = []
    first = demo.run(tmp_path / "one", epochs=2, tell=lines.append)
    assert [row.loss for row in first] == ["WBCE", "BAA-0.7"]
    assert all(0 <= row.f <= row.ods <= 1 for row in first)
    assert lines[0].startswith("WBCE: epoch 1 of 2, loss ")
    assert demo.run(tmp_path / "two", epochs=2, tell=lines.append) == first
    with Image.open(tmp_path / "one" / "demo.png") as picture:
        assert picture.size == (4 * 64, 64)  # image, label, two maps; one test scene
