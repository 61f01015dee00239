"""Settings for the whole suite."""

import pytest
import torch

from knifeedge.models import registry


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    """The tensors here are small: a second thread only makes the first wait on a busy machine."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="module")
def _models_stay_in_their_module():
    """Networks that a test registers are gone after its module; tests of all networks go on."""
    before = dict(registry._ENTRIES)
    yield
    registry._ENTRIES.clear()
    registry._ENTRIES.update(before)
