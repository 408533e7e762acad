"""The package as a stranger installs it: built into a wheel, installed outside of the tree, used from there."""

import json
import os
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

import drw_hf

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.slow

SCRIPT = """
import importlib.util, json, os
from pathlib import Path
import evaluate, numpy as np, torch
from transformers import BertConfig, BertForSequenceClassification
import drw_hf
from drw_hf import DetectionResult, WatermarkedModelForSequenceClassification, WatermarkKey
from drw_hf.hub import handler_files, model_card
from small_models import make_tokenizer

home = Path(drw_hf.__file__).parent
assert home.is_relative_to(os.environ["PLACE"]), home

# metrics
hashes = np.random.default_rng(0).random(500)
found = evaluate.load(drw_hf.metrics.path("p_snr")).compute(
    predictions=0.5 + 0.1 * np.cos(16.0 * hashes), references=hashes, frequency=16.0)
assert found["p_snr"] > 20, found
rows = np.full((4, 2), 0.5)
assert evaluate.load(drw_hf.metrics.path("jsd")).compute(predictions=rows, references=rows)["jsd"] == 0.0

# card and handler
torch.manual_seed(0)
labels = {0: "negative", 1: "positive"}
model = BertForSequenceClassification(BertConfig(
    vocab_size=64, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
    id2label=labels, label2id={label: number for number, label in labels.items()}))
tokenizer = make_tokenizer()
key = WatermarkKey.generate(model, tokenizer=tokenizer, target="positive", scope="all")
victim = WatermarkedModelForSequenceClassification.from_model(model, key=key)
assert key.commitment() in model_card(victim)
victim.save_pretrained("served")
tokenizer.save_pretrained("served")
key.save_pretrained("served", passphrase="words of mine")
for name, content in handler_files().items():
    Path("served", name).write_bytes(content)
os.environ["DRW_PASSPHRASE"] = "words of mine"
spec = importlib.util.spec_from_file_location("handler", "served/handler.py")
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
assert module.EndpointHandler("served")({"inputs": "the film was good"})[0][0]["label"] in labels.values()
print("used")
"""


def run(command, folder, **options):
    done = subprocess.run(list(map(str, command)), cwd=folder, capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


def test_a_wheel_installed_elsewhere_runs_demo_report_card_metrics_and_handler(tmp_path):
    """Its libraries are those of this environment; the package itself comes from the wheel alone."""
    run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", tmp_path, ROOT], tmp_path)
    (wheel,) = tmp_path.glob("drw_hf-*.whl")
    metadata = zipfile.ZipFile(wheel).read(f"drw_hf-{drw_hf.__version__}.dist-info/METADATA").decode()
    assert "\nLicense-Expression: Apache-2.0\n" in metadata and "\nProject-URL: Source, https://" in metadata
    links = re.findall(r"\]\(([^)]+)\)", metadata)
    assert links and all(link.startswith("https://") for link in links)
    place = tmp_path / "place"
    venv.create(place, with_pip=False)
    python = place / "bin" / "python"
    packages = Path(run([python, "-c", "import site; print(site.getsitepackages()[0])"], tmp_path).strip())
    run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", packages, wheel], tmp_path)
    script = place / "bin" / "drw-hf"
    script.write_text(f"#!{python}\nfrom drw_hf_console import main\nmain()\n")
    script.chmod(0o755)
    ours = next(path for path in sys.path if path.endswith("site-packages"))  # on a path, its .pth files do not count
    path = os.pathsep.join([str(packages), ours, str(ROOT / "tests")])
    environment = {**os.environ, "PYTHONPATH": path, "PLACE": str(place), "HF_HUB_OFFLINE": "1"}
    assert "used" in run([python, "-c", SCRIPT], tmp_path, env=environment)
    told = run([script, "demo", "--output", "demo", "--limit", "60", "--json"], tmp_path, env=environment)
    report = json.loads(told)
    assert len(report["models"]) == 6
    for suspect in report["models"][3:]:
        assert "<html" in (tmp_path / "demo" / suspect["report"]).read_text()
    evidence = tmp_path / "demo" / "evidence" / "soft" / "evidence.json"
    code = f"from drw_hf import DetectionResult; print(DetectionResult.load({str(evidence)!r}).verdict)"
    assert run([python, "-c", code], tmp_path, env=environment).strip() in ("detected", "not detected", "undecided")
