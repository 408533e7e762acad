"""The page about the Hub says what is so: its examples run in order, and its table lists what a push writes."""

import re
from pathlib import Path

import numpy as np
import pytest
from datasets import Dataset

from drw_hf import WatermarkedModelForSequenceClassification
from drw_hf.keys import RarestRule
from local_tsa import OPENSSL, LocalTSA
from small_models import make_key, make_model, make_tokenizer, make_victim
from small_wheel import make_wheel

PAGE = (Path(__file__).parents[1] / "docs" / "hub.md").read_text(encoding="utf-8")
PASSPHRASE = "correct horse battery staple"


def test_the_examples_run_in_their_order(hub, monkeypatch, capsys):
    hub.add_user("me")
    monkeypatch.setenv("HF_TOKEN", hub.token("me"))
    monkeypatch.setenv("DRW_PASSPHRASE", PASSPHRASE)
    make_model().push_to_hub("me/classifier", private=True)
    make_tokenizer().push_to_hub("me/classifier")
    rows = {"text": ["the film was good", "the book was dull"], "label": ["positive", "negative"]}
    names = {"labelled_data": Dataset.from_dict(rows)}
    examples = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    assert len(examples) == 6
    for example in examples:
        exec(compile(example, "docs/hub.md", "exec"), names)
    printed = capsys.readouterr().out
    assert re.search(r"^me/protected \(private\), 3 commits: safe", printed, flags=re.MULTILINE)
    assert "owner's word" in printed
    assert (
        WatermarkedModelForSequenceClassification.from_pretrained("me/protected", passphrase=PASSPHRASE).key
        == (names["new_key"])
    )


@pytest.mark.skipif(OPENSSL is None, reason="openssl, which makes the time stamps, is not installed")
def test_the_table_lists_every_file_of_a_push_in_every_mode(hub, tmp_path):
    lines = PAGE[PAGE.index("| file | plain |") :].split("\n\n")[0].splitlines()
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
    tokenizer, model = make_tokenizer(), make_model()
    key = make_key(model, tokenizer=tokenizer, hash_rule=RarestRule(np.arange(64.0)))
    victim = make_victim(model=model, key=key)
    modes = [
        {},
        {"passphrase": PASSPHRASE},
        {"key_repo_id": "owner/keys"},
        {"push_key": False},
    ]
    with LocalTSA(tmp_path / "tsa").running() as tsa:
        for column, options in enumerate(modes, start=1):
            repo = f"owner/model{column}"
            endpoint = {"handler": True, "package": make_wheel(tmp_path)}
            victim.push_to_hub(repo, tokenizer=tokenizer, **endpoint, timestamp_url=tsa.url, **options)
            listed = {
                name.replace("<fingerprint>", key.fingerprint)
                for names, *cells, _ in table
                for name in re.findall(r"`([\w./<>-]+)`", names)
                if cells[column - 1] != "–"
            }
            found = {name.replace("-1.0-", "-<version>-") for name in hub.files(repo)}
            assert found - {".gitattributes"} == listed, options
    assert set(hub.files("owner/keys")) - {".gitattributes"} == {
        f"{key.fingerprint}/drw_key.json",
        f"{key.fingerprint}/drw_key.safetensors",
    }
