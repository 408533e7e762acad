"""What every test runs with: no network, no progress bars, cheap sealing."""

import os

from loopback_hub.client import HubOfTest

HUB = HubOfTest()  # has its port from here on, but answers only in tests that ask for it
# Read when huggingface_hub is imported, so before anything else.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_ENDPOINT"] = HUB.url

import datasets
import hypothesis
import pytest
import torch
import transformers
from huggingface_hub.utils import disable_progress_bars

from drw_hf.cli import passphrases
from drw_hf.keys import sealing
from local_tsa import OPENSSL, LocalTSA
from small_models import make_tokenizer

transformers.logging.disable_progress_bar()
disable_progress_bars()
torch.set_num_threads(1)  # the models are tiny: a second thread costs more than it brings, and waits for busy cores
# A busy machine is not a bug. Before a change lands the same examples are tried every time; at one's desk, new ones.
hypothesis.settings.register_profile("drw_hf", deadline=None, derandomize="CI" in os.environ)
hypothesis.settings.load_profile("drw_hf")


# Files whose few tests take long. Two processes share the files, and none shall be left with one of these at the end.
LONG = "notebooks theft cli_reproduce leaks cli labelling tracing demo distillation docs package wheel".split()


def pytest_collection_modifyitems(items):
    order = {f"test_{name}": place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: order.get(item.path.stem, len(LONG)))  # stable: within a file nothing changes


@pytest.fixture(autouse=True)
def cheap_sealing(monkeypatch):
    """scrypt at N = 2¹⁷ takes half a second per call by design; the format is the same at N = 2⁴."""
    monkeypatch.setattr(sealing, "COST", 2**4)


@pytest.fixture(scope="session")
def tokenizer():
    return make_tokenizer()


@pytest.fixture(scope="session")
def hub_server():
    """The loopback Hub, serving for the rest of the session."""
    with HUB:
        yield HUB


@pytest.fixture
def hub(hub_server, monkeypatch, tmp_path):
    """An empty Hub with the users "owner", whom the client acts for, and "stranger"; large files go by LFS."""
    hub_server.start().reset()  # a test may have stopped it
    hub_server.add_user("stranger")
    hub_server.point_client(monkeypatch, tmp_path / "hf_home", token=hub_server.add_user("owner"))
    return hub_server


@pytest.fixture(params=["lfs", "xet"])
def upload_path(request, hub, monkeypatch):
    """Runs the test once for each way that large files take."""
    hub.use_xet(monkeypatch, request.param == "xet")
    return request.param


@pytest.fixture(scope="module")
def environment(place):
    """Inside the folder ``place``, which a module makes, with its own caches and its passphrase in the environment."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.chdir(place)
        monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(place / "cache"))
        monkeypatch.setattr(sealing, "COST", 2**4)
        monkeypatch.setenv(passphrases.VARIABLE, (place / "passphrase").read_text().rstrip())
        yield monkeypatch


@pytest.fixture
def inside(place, monkeypatch):
    """Inside the folder ``place``, with its own caches and no passphrase."""
    monkeypatch.chdir(place)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(place / "cache"))
    return place


@pytest.fixture
def here(environment, place, monkeypatch):
    """The same for a test that changes some of it."""
    monkeypatch.chdir(place)
    return place


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    """A time-stamping authority, serving for the module."""
    if OPENSSL is None:
        pytest.skip("the authority of these tests needs the openssl program")
    pytest.importorskip("rfc3161_client", reason="time stamps need the extra drw_hf[timestamp]")
    with LocalTSA(tmp_path_factory.mktemp("tsa")).running() as tsa:
        yield tsa


@pytest.fixture
def tsa(authority):
    """The authority, honest and on time again after each test."""
    yield authority
    authority.fault = authority.time = None
