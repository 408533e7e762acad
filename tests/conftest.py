"""What every test runs with: no network, no progress bars, cheap sealing."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"  # read when huggingface_hub is imported, so before anything else

import hypothesis
import pytest
import torch
import transformers

from drw_hf.keys import sealing
from small_models import make_tokenizer

transformers.logging.disable_progress_bar()
torch.set_num_threads(1)  # the models are tiny: a second thread costs more than it brings, and waits for busy cores
hypothesis.settings.register_profile("drw_hf", deadline=None)  # a busy machine is not a bug
hypothesis.settings.load_profile("drw_hf")


@pytest.fixture(autouse=True)
def cheap_sealing(monkeypatch):
    """scrypt at N = 2¹⁷ takes half a second a call by design; the format is the same at N = 2⁴."""
    monkeypatch.setattr(sealing, "COST", 2**4)


@pytest.fixture(scope="session")
def tokenizer():
    return make_tokenizer()
