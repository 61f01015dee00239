"""Configurations: from files and back, and what is said of a wrong one."""

import json
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import knifeedge as ke
from knifeedge.config import (
    MOST_CROP,
    DataConfig,
    ModelConfig,
    ProtocolConfig,
    TrainConfig,
    Training,
    from_mapping,
    read_config,
    to_mapping,
)
from knifeedge.errors import ConfigError

PLAIN = TrainConfig(DataConfig("UDED"), ModelConfig("hed"))

# --- there and back -------------------------------------------------------------------------------

words = st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=8)
scalars = st.booleans() | st.integers(-(2**40), 2**40) | words
scalars |= st.floats(allow_nan=False, allow_infinity=False)
options = st.dictionaries(words, scalars | st.lists(scalars, max_size=3), max_size=3)
rates = st.floats(0, 1e30)
names = st.lists(words.filter(bool), min_size=1, max_size=3, unique=True).map(tuple)
shared = {
    "data": st.builds(DataConfig, words, words, st.none() | words, options),
    "model": st.builds(ModelConfig, words, options),
    "epochs": st.none() | st.integers(1, 10**6),
    "seed": st.integers(0, 2**63 - 1),
    "batch_size": st.integers(1, 10**6),
    "crop": st.integers(1, MOST_CROP),
    "refresh": st.integers(1, 10**6),
    "turns": st.booleans(),
    "noiseless": st.booleans(),
    "learning_rate": rates,
    "weight_decay": rates,
    "precision": st.sampled_from(["32-true", "bf16-mixed"]),
    "validate_every": st.integers(0, 10**6),
    "validation_split": words,
    "validation_protocol": words,
    "checkpoint_seconds": rates,
}
unsplit = st.builds(DataConfig, words, root=st.none() | words, options=options)
configs = st.builds(TrainConfig, **shared, loss=words) | st.builds(
    ProtocolConfig, **shared | {"data": unsplit}, losses=names, scoring=names
)


def test_the_strategies_know_every_field() -> None:
    assert list(shared) == [entry.name for entry in fields(Training)]


@given(configs)
def test_a_mapping_and_back(config) -> None:
    assert from_mapping(type(config), to_mapping(config)) == config


def toml(value) -> str:
    """A value as TOML; JSON but for tables."""
    if isinstance(value, dict):
        inside = ", ".join(f"{toml(key)} = {toml(v)}" for key, v in value.items() if v is not None)
        return f"{{{inside}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    return json.dumps(value, ensure_ascii=False)


@given(configs)
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_files_and_back(tmp_path: Path, config) -> None:
    content = to_mapping(config)
    lines = [f"{key} = {toml(value)}" for key, value in content.items() if value is not None]
    (tmp_path / "a.toml").write_text("\n".join(lines), "utf-8", newline="")
    (tmp_path / "a.json").write_text(json.dumps(content), "utf-8")
    assert read_config(type(config), tmp_path / "a.toml") == config
    assert read_config(type(config), tmp_path / "a.json") == config


def test_a_file_needs_only_what_has_no_default(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text('data = { name = "UDED" }\nmodel.name = "hed"\nlearning_rate = 1\n')
    config = read_config(TrainConfig, path)
    assert config == replace(PLAIN, learning_rate=1.0)
    assert type(config.learning_rate) is float


def test_what_is_done_to_the_content_first(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps(to_mapping(PLAIN)))
    changed = read_config(TrainConfig, path, lambda content: content | {"seed": 3})
    assert changed == replace(PLAIN, seed=3)


# --- wrong files ----------------------------------------------------------------------------------

HEAD = '[data]\nname = "UDED"\n[model]\nname = "hed"\n'


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("epoch = 3\n" + HEAD, 1, "there is no key 'epoch' (the closest is 'epochs'); there are"),
        ("epochs = 3\n\nsede = 1\n" + HEAD, 3, "'sede' (the closest is 'seed')"),
        ("# sede = 2\nloss = 'sede'\nsede = 1\n" + HEAD, 3, "'sede'"),
        ("xyzzy = 3\n" + HEAD, 1, "there is no key 'xyzzy'; there are data, model, epochs"),
        (HEAD + "option = {}\n", 5, "no key 'option' in [model] (the closest is 'options')"),
        (HEAD + "[data.x]\n", 5, "no key 'x' in [data]"),
        ("data.nam = 'UDED'\nmodel.name = 'hed'\n", 1, "no key 'nam' in [data]"),
        ("epochs = 'many'\n" + HEAD, 1, "epochs must be a whole number, got 'many'"),
        ("epochs = 3.0\n" + HEAD, 1, "epochs must be a whole number, got 3.0"),
        ("epochs = true\n" + HEAD, 1, "epochs must be a whole number, got True"),
        ("crop = 9\nturns = 1\n" + HEAD, 2, "turns must be true or false, got 1"),
        ("learning_rate = '1'\n" + HEAD, 1, "learning_rate must be a number, got '1'"),
        ("learning_rate = true\n" + HEAD, 1, "learning_rate must be a number, got True"),
        (f"weight_decay = 1{'0' * 400}\n" + HEAD, 1, "weight_decay must be a number"),
        ("loss = ['wbce']\n" + HEAD, 1, "loss must be text, got ['wbce']"),
        ("precision = '16'\n" + HEAD, 1, "precision must be '32-true' or 'bf16-mixed', got '16'"),
        ("data = 'UDED'\nmodel.name = 'hed'\n", 1, "data must be a table, got 'UDED'"),
        (HEAD + "options = 3\n", 5, "options must be a table, got 3"),
    ],
)
def test_a_wrong_key_or_type_is_named_with_its_line(tmp_path, text, line, message) -> None:
    path = tmp_path / "a.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_config(TrainConfig, path)
    assert str(caught.value).startswith(f"{path}, line {line}: ")
    assert message in str(caught.value)


def test_lines_in_json(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps(to_mapping(PLAIN) | {"sede": 1}, indent=1))
    number = path.read_text().splitlines().index(' "sede": 1') + 1
    with pytest.raises(ConfigError, match=rf"line {number}: there is no key 'sede'"):
        read_config(TrainConfig, path)


@pytest.mark.parametrize("entries", ["wbce", 3, {"a": 1}, None])
def test_a_list_must_be_one(entries) -> None:
    content = to_mapping(PLAIN)
    del content["loss"]
    with pytest.raises(ConfigError, match="losses must be a list, each text, got"):
        from_mapping(ProtocolConfig, content | {"losses": entries})
    with pytest.raises(ConfigError, match=r"losses must be a list, each text, got \['wbce', 3\]"):
        from_mapping(ProtocolConfig, content | {"losses": ["wbce", 3]})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"model": {"name": "hed"}}, "data is missing"),
        ({"data": {"split": "all"}, "model": {"name": "hed"}}, "name is missing in [data]"),
        ([], "a configuration must be a table, got []"),
        (None, "a configuration must be a table, got None"),
    ],
)
def test_missing_parts(content, message) -> None:
    with pytest.raises(ConfigError) as caught:
        from_mapping(TrainConfig, content)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.toml", b"epochs = = 3", r"a\.toml is not TOML: .*line 1"),
        ("a.json", b'{"epochs": 3,}', r"a\.json is not JSON: .*line 1"),
        ("a.json", b"[" * 100_000, r"a\.json is not JSON: "),
        ("a.toml", b"\xff\xfe", r"a\.toml is not TOML: .*utf-8"),
        ("a.json", b"", r"a\.json is not JSON: "),
    ],
)
def test_a_file_that_is_neither(tmp_path: Path, name, content, message) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        read_config(TrainConfig, tmp_path / name)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"a\.toml cannot be read: No such file"):
        read_config(TrainConfig, tmp_path / "a.toml")
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        read_config(TrainConfig, tmp_path)


# --- values ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["epochs", "batch_size", "crop", "refresh"])
def test_numbers_from_one_on(name: str) -> None:
    assert getattr(replace(PLAIN, **{name: 1}), name) == 1
    with pytest.raises(ConfigError, match=f"{name} must be at least 1 and finite, got 0"):
        replace(PLAIN, **{name: 0})


FROM_ZERO = ["seed", "learning_rate", "weight_decay", "validate_every", "checkpoint_seconds"]


@pytest.mark.parametrize("name", FROM_ZERO)
@pytest.mark.parametrize("value", [-1, float("nan"), float("inf")])
def test_numbers_from_zero_on(name: str, value: float) -> None:
    assert getattr(replace(PLAIN, **{name: 0}), name) == 0
    whole = isinstance(getattr(PLAIN, name), int)
    says = "a whole number" if whole and value != -1 else "at least 0 and finite"
    with pytest.raises(ConfigError, match=f"{name} must be {says}, got {value}"):
        replace(PLAIN, **{name: value})


def test_numbers_that_are_too_large() -> None:
    wrong = {"seed": 2**63, "learning_rate": 1e31, "weight_decay": 1e31, "crop": 10**9}
    for name, value in wrong.items():
        with pytest.raises(ConfigError, match=f"{name} must be at most"):
            replace(PLAIN, **{name: value})


def test_a_precision_that_is_none() -> None:
    with pytest.raises(ConfigError, match="precision must be '32-true' or 'bf16-mixed', got '8'"):
        replace(PLAIN, precision="8")


def test_values_of_another_type() -> None:
    for cls in (TrainConfig, ProtocolConfig):
        with pytest.raises(ConfigError, match="data must be a DataConfig, got 'UDED'"):
            cls("UDED", PLAIN.model)
        with pytest.raises(ConfigError, match="model must be a ModelConfig, got 'hed'"):
            cls(PLAIN.data, "hed")
    with pytest.raises(ConfigError, match="epochs must be a whole number, got '3'"):
        replace(PLAIN, epochs="3")
    protocol = ProtocolConfig(PLAIN.data, PLAIN.model, losses=["wbce"], learning_rate=1)
    assert (protocol.losses, protocol.learning_rate) == (("wbce",), 1.0)


def test_a_configuration_of_another_kind(tmp_path) -> None:
    protocol = ProtocolConfig(PLAIN.data, PLAIN.model)
    for other, name in ((protocol, "ProtocolConfig"), ({"data": "UDED"}, "dict")):
        with pytest.raises(ConfigError, match=f"config must be a TrainConfig, got {name}"):
            ke.train(other, tmp_path / "run")
    with pytest.raises(ConfigError, match="config must be a ProtocolConfig, got TrainConfig"):
        ke.run_protocol(PLAIN, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["losses", "scoring"])
@pytest.mark.parametrize("entries", [(), ("a", "b", "a")])
def test_lists_are_at_least_one_each_once(name, entries) -> None:
    with pytest.raises(ConfigError, match=f"{name} must be at least one, each once"):
        ProtocolConfig(PLAIN.data, PLAIN.model, **{name: entries})


def test_the_papers_number_of_epochs() -> None:
    def epochs(name: str, given: int | None) -> int | None:
        return replace(PLAIN, data=DataConfig(name), epochs=given).resolved().epochs

    assert (epochs("UDED", None), epochs("uded", None), epochs("UDED", 3)) == (200, 200, 3)
    assert (epochs("BSDS500", None), epochs("synthetic", None)) == (50, 50)


def test_the_stages_of_a_protocol() -> None:
    config = ProtocolConfig(
        DataConfig("UDED", root="somewhere", options={"a": 1}),
        PLAIN.model,
        seed=3,
        crop=64,
        validate_every=2,
    )
    first = config.stage("pretrain", "wbce")
    assert first.data == DataConfig("UDED", "pretrain", "somewhere", {"a": 1})
    assert (first.loss, first.seed, first.crop, first.validate_every) == ("wbce", 3, 64, 2)
    # Validation images are trained on in the last stage: a score there would mean nothing.
    last = config.stage("train", "baa-0.7", ModelConfig("tiny"))
    assert (last.loss, last.validate_every, last.model) == ("baa-0.7", 0, ModelConfig("tiny"))


def test_the_split_of_a_protocol_is_not_for_the_user(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text(HEAD.replace("[model]", 'split = "pretrain"\n[model]'))
    assert read_config(TrainConfig, path).data.split == "pretrain"
    with pytest.raises(ConfigError, match=r"line 3: split must be left out, got 'pretrain'"):
        read_config(ProtocolConfig, path)
