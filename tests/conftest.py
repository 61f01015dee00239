"""Settings for the whole suite."""

import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    """The tensors here are small: a second thread only makes the first wait on a busy machine."""
    torch.set_num_threads(1)
