"""What a training tells: log.csv, TensorBoard, and what a torn file is read as."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from knifeedge.config import DataConfig, ModelConfig, TrainConfig
from knifeedge.engine.logs import CsvLog, EpochRecord, TensorBoardLog, read_log

CONFIG = TrainConfig(DataConfig("synthetic"), ModelConfig("tiny"))
HEADER = "epoch,step,loss,seconds,images_per_second,validation_ods,validation_threshold,threshold"

numbers = st.floats(0, 1e9)
records = st.builds(
    EpochRecord,
    st.integers(1, 10**6),
    st.integers(0, 10**9),
    numbers,
    numbers,
    numbers,
    st.none() | numbers,
    st.none() | numbers,
    st.none() | numbers,
)
ROWS = [
    EpochRecord(epoch, 8 * epoch, 1 / epoch, 1.5 * epoch, 123.456, *scores)
    for epoch, scores in enumerate([(), (0.75, 0.25), (), (1 / 3, 0.5)], start=1)
]


def write(folder: Path, rows: list[EpochRecord], step: int = 0) -> None:
    log = CsvLog()
    log.on_start(CONFIG, folder, step, 100)
    for row in rows:
        log.on_epoch(row, [row.loss])
    log.on_end(folder)


@given(st.lists(records, max_size=5))
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_rows_come_back_to_the_last_digit(tmp_path: Path, rows) -> None:
    (tmp_path / "log.csv").unlink(missing_ok=True)
    write(tmp_path, rows)
    assert read_log(tmp_path) == rows


def test_the_form_of_the_file(tmp_path: Path) -> None:
    write(tmp_path, ROWS[:2])
    assert (tmp_path / "log.csv").read_bytes().decode() == (
        f"{HEADER}\n1,8,1.0,1.5,123.456,,,\n2,16,0.5,3.0,123.456,0.75,0.25,\n"
    )


def test_no_file_is_no_rows(tmp_path: Path) -> None:
    assert read_log(tmp_path) == []
    (tmp_path / "log.csv").write_bytes(b"")
    assert read_log(tmp_path) == []


def test_a_resumed_training_drops_the_rows_it_does_again(tmp_path: Path) -> None:
    write(tmp_path, ROWS)
    write(tmp_path, [], step=17)
    assert read_log(tmp_path) == ROWS[:2]
    again = [EpochRecord(3, 24, 0.1, 9.0, 1.0)]
    write(tmp_path, again, step=16)
    assert read_log(tmp_path) == [*ROWS[:2], *again]
    write(tmp_path, [], step=0)
    assert read_log(tmp_path) == []


def test_a_torn_file_gives_its_whole_rows(tmp_path: Path) -> None:
    write(tmp_path, ROWS[:2])
    path = tmp_path / "log.csv"
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        count = max(0, whole[:length].count(b"\n") - 1)
        assert read_log(tmp_path) == ROWS[:count], whole[:length]
        # A training that goes on begins a new line.
        write(tmp_path, [ROWS[count]], step=1000)
        assert read_log(tmp_path) == ROWS[: count + 1]


@pytest.mark.parametrize(
    "line",
    [b"3,24", b"3,24,,1,1,,", b"x,24,1,1,1,,", b"3,24,1,1,1,,,4,5", b"\xff\x00\x00", b"", b'"'],
)
def test_a_line_that_is_no_row_is_skipped(tmp_path: Path, line: bytes) -> None:
    write(tmp_path, ROWS[:2])
    path = tmp_path / "log.csv"
    path.write_bytes(path.read_bytes() + line + b"\n")
    assert read_log(tmp_path) == ROWS[:2]


def test_another_header(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("epoch,loss\n1,0.5\n")
    assert read_log(tmp_path) == []
    (tmp_path / "log.csv").write_text(
        "epoch,step,loss,seconds,images_per_second\n1,8,0.5,1,20\n"  # without validation
    )
    assert read_log(tmp_path) == [EpochRecord(1, 8, 0.5, 1.0, 20.0)]


def test_tensorboard_has_every_step_and_a_resumed_run_only_once(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    def write_events(step: int, rows: list[EpochRecord], offset: float) -> None:
        log = TensorBoardLog()
        log.on_start(CONFIG, tmp_path, step, 100)
        for row in rows:
            log.on_epoch(row, [row.step - 7 + i + offset for i in range(8)])
        log.on_end(tmp_path)

    write_events(0, ROWS[:3], 0)
    write_events(16, ROWS[2:], 100)
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    losses = {event.step: event.value for event in events.Scalars("loss")}
    assert losses == {s: s if s <= 16 else s + 100 for s in range(1, 33)}
    assert len(events.Scalars("loss")) == 32
    scores = [(event.step, event.value) for event in events.Scalars("validation ODS")]
    assert scores == [(16, 0.75), (32, pytest.approx(1 / 3))]
    assert [event.step for event in events.Scalars("images per second")] == [8, 16, 24, 32]
