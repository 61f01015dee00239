"""Models by name, and a user's own beside the built-in ones."""

import re

import pytest
import torch
from torch import nn

from knifeedge.errors import ConfigError
from knifeedge.models import create_model, model_entry, model_names, register_model, registry


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch):
    monkeypatch.setattr(registry, "_ENTRIES", dict(registry._ENTRIES))


class Own(nn.Module):
    """One convolution.

    And more text.
    """

    def __init__(self, kernel: int = 1):
        super().__init__()
        self.conv = nn.Conv2d(3, 1, kernel, padding=kernel // 2)

    def forward(self, images):
        return [self.conv(images)]


def test_the_names():
    assert {"bdcn", "dexined", "ees3-double", "hed", "tiny"} <= set(model_names())


def test_a_call_registers():
    assert register_model("own", Own, "mine") is Own
    assert create_model("own", kernel=3).conv.kernel_size == (3, 3)
    entry = model_entry("own")
    assert (entry.name, entry.description, entry.options) == ("own", "mine", ["kernel"])


def test_a_decorator_registers_and_the_docstring_describes():
    @register_model("own")
    def build(kernel: int = 1) -> nn.Module:
        """A function will do."""
        return Own(kernel)

    assert isinstance(build(), Own)
    assert model_entry("own").description == "A function will do."
    assert create_model("own")(torch.zeros(1, 3, 4, 4))[-1].shape == (1, 1, 4, 4)


def test_a_name_is_taken_once_unless_replaced():
    register_model("own", Own)
    with pytest.raises(ConfigError, match=r"there is a model 'own' already; .* replace=True"):
        register_model("own", Own)
    register_model("own", Own, "new", replace=True)
    assert model_entry("own").description == "new"


@pytest.mark.parametrize("name", ["HED", "heed", "resnet", ""])
def test_an_unknown_name_is_answered_with_the_known_ones(name):
    with pytest.raises(ConfigError) as caught:
        create_model(name)
    assert f"there is no model {name!r}" in str(caught.value)
    assert all(known in str(caught.value) for known in model_names())
    assert ("the closest is 'hed'" in str(caught.value)) == (name == "heed")


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("hed", {"vgg": "x"}, "model 'hed' has no option 'vgg' (the closest is 'vgg16'); it has"),
        ("tiny", {"vgg16": "x"}, "model 'tiny' has no option 'vgg16'; it has none"),
        ("bdcn", {"side_channels": 0}, "side_channels must be >= 1, got 0"),
        ("hed", {"side_channels": "abc"}, "side_channels must be a whole number, got 'abc'"),
        ("hed", {"side_channels": True}, "side_channels must be a whole number, got True"),
        ("hed", {"vgg16": 5}, "vgg16 must be text or a path, got 5"),
        ("ees3-double", {"attention": "False"}, "attention must be true or false, got 'False'"),
        ("ees3-double", {"atention": True}, "no option 'atention' (the closest is 'attention')"),
    ],
)
def test_an_unknown_or_wrong_option_is_refused(name, options, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        create_model(name, **options)


def test_a_factory_may_take_any_option():
    register_model("own", lambda **options: Own(**options))
    assert create_model("own", kernel=5).conv.kernel_size == (5, 5)


def test_annotations_that_are_texts_or_none_at_all():
    def build(kernel: "int", other=None, odd: "Nowhere" = 3) -> nn.Module:  # noqa: F821
        return Own(kernel)

    register_model("own", build)
    assert create_model("own", kernel=3, other="x", odd="y").conv.kernel_size == (3, 3)
    build.__annotations__["odd"] = "str | None"
    register_model("own", build, replace=True)
    with pytest.raises(ConfigError, match="kernel must be a whole number, got '3'"):
        create_model("own", kernel="3")


@pytest.mark.parametrize(
    ("name", "factory", "message"),
    [
        ("", Own, "name must be a non-empty text"),
        (3, Own, "name must be a non-empty text"),
        ("own", "Own", "must be callable, got 'Own'"),
    ],
)
def test_bad_registrations(name, factory, message):
    with pytest.raises(ConfigError, match=message):
        register_model(name, factory)


def test_a_factory_must_build_a_module():
    register_model("own", lambda: "no module")
    with pytest.raises(ConfigError, match=r"must return a torch\.nn\.Module, got 'no module'"):
        create_model("own")
