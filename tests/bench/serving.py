"""What a protected service costs: requests per second over the same app with the clean model, with and without log."""

import asyncio
import contextlib
import itertools
import json
import multiprocessing
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import httpx2
import torch
import uvicorn
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from drw_hf import WatermarkedModelForSequenceClassification, WatermarkKey
from drw_hf.serving import Limits, create_app
from drw_hf.serving.connections import server_config
from drw_hf.serving.running import address_of, listen

from .measure import Row
from .protection import VOCABULARY, bert

CLIENTS = (1, 8, 64)
SHAPES = {"2 layers 128 wide": (2, 128), "6 layers 384 wide": (6, 384)}
WORDS_PER_TEXT = 32


@dataclass(frozen=True)
class Run:
    """One round of one service: requests per second, and the seconds that each request took."""

    rate: float
    seconds: list[float]

    def percentile(self, share: int) -> float:
        return statistics.quantiles(self.seconds, n=100)[share - 1]


def cleared(model: torch.nn.Module, key: WatermarkKey) -> Any:
    """What looks like the protected model, and answers as the clean one: the same app without the mark."""
    victim = WatermarkedModelForSequenceClassification.from_model(model, key=key)
    victim.forward = lambda **inputs: model(**inputs)  # type: ignore[method-assign]
    return victim


def tokenizer() -> PreTrainedTokenizerFast:
    """A word for every token id."""
    special = {"[PAD]": 0, "[UNK]": 100, "[CLS]": 101, "[SEP]": 102}
    words = {f"w{number}": number for number in range(VOCABULARY) if number not in special.values()}
    backend = Tokenizer(models.WordLevel({**special, **words}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.post_processor = processors.BertProcessing(("[SEP]", 102), ("[CLS]", 101))
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=512, **names)


@contextlib.contextmanager
def serving(app: Any) -> Iterator[str]:
    with listen("127.0.0.1", 0) as listening:
        server = uvicorn.Server(server_config(app, Limits()))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        try:
            yield address_of(listening)
        finally:
            server.should_exit = True
            thread.join()


def one_round(address: str, clients: int, texts: list[str]) -> Run:
    """So many clients, each with one request at a time, until all texts are answered."""
    bodies = [json.dumps({"inputs": text}).encode() for text in texts]
    seconds: list[float] = []

    async def client(line: httpx2.AsyncClient) -> None:
        while bodies:
            body, start = bodies.pop(), time.perf_counter()
            (await line.post(address, content=body)).raise_for_status()
            seconds.append(time.perf_counter() - start)

    async def everybody() -> float:
        limits = httpx2.Limits(max_connections=clients, max_keepalive_connections=clients)
        async with httpx2.AsyncClient(limits=limits, timeout=60) as line:
            start = time.perf_counter()
            await asyncio.gather(*(client(line) for _ in range(clients)))
            return time.perf_counter() - start

    return Run(len(texts) / asyncio.run(everybody()), seconds)


def made_up_texts() -> Iterator[str]:
    """Each a new one: nothing is kept for any."""
    generator = torch.Generator().manual_seed(0)
    while True:
        yield " ".join(
            f"w{n}" for n in torch.randint(1000, VOCABULARY, (WORDS_PER_TEXT,), generator=generator).tolist()
        )


def bench_serving(rounds: int, requests: int = 64) -> list[Row]:
    """Every service in every round, in turns, so that a slow spell of the machine counts for all."""
    rows, words = [], tokenizer()
    for shape, (layers, width) in SHAPES.items():
        model = bert("sequence-classification", 2, layers, width)
        key = WatermarkKey.generate(
            model, special_token_ids=[0, 100, 101, 102], mark="tilt", strength=0.3, temperature=1.0
        )
        victim = WatermarkedModelForSequenceClassification.from_model(model, key=key)
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            # Clients have a process of their own, so that services do not wait for them.
            pool = stack.enter_context(ProcessPoolExecutor(1, multiprocessing.get_context("spawn")))
            apps = {
                "clean": create_app(cleared(model, key), words),
                "protected": create_app(victim, words),
                "logged": create_app(victim, words, log=folder),
                "one by one": create_app(victim, words, limits=Limits(batch_size=1)),
            }
            addresses = {name: stack.enter_context(serving(app)) for name, app in apps.items()}
            for clients in CLIENTS:
                measured = {
                    name: address for name, address in addresses.items() if clients > 1 or name != "one by one"
                }
                rows += serving_rows(pool, shape, clients, measured, rounds, max(requests, clients * 4))
    return rows


def serving_rows(
    pool: ProcessPoolExecutor, shape: str, clients: int, addresses: dict[str, str], rounds: int, requests: int
) -> list[Row]:
    texts, names = made_up_texts(), list(addresses)
    runs: dict[str, list[Run]] = {name: [] for name in names}
    for number in range(rounds + 1):  # the first warms up
        shift = number % len(names)
        for name in names[shift:] + names[:shift]:
            asked = list(itertools.islice(texts, requests))
            run = pool.submit(one_round, addresses[name], clients, asked).result()
            if number:
                runs[name].append(run)
    where = f"a service, {shape}, {clients} client{'s' if clients > 1 else ''}: "

    def row(what: str, over: str, under: str, **wanted: float) -> Row:
        pairs = list(zip(runs[over], runs[under], strict=True))
        rates = [one.rate / other.rate for one, other in pairs]
        told: Row = {
            "what": f"{where}requests per second {what}",
            "ratio": statistics.median(rates),
            "rate": statistics.median(one.rate for one in runs[over]),
            "under_rate": statistics.median(one.rate for one in runs[under]),
        }
        for share in (50, 99):
            told[f"p{share}_ratio"] = statistics.median(
                one.percentile(share) / other.percentile(share) for one, other in pairs
            )
            told[f"p{share}_ms"] = 1e3 * statistics.median(one.percentile(share) for one in runs[over])
        return {**told, **wanted}

    rows = [
        row("protected / clean", "protected", "clean", least=0.97),
        row("with the log / without", "logged", "protected", **({"least": 0.9} if clients == max(CLIENTS) else {})),
    ]
    if "one by one" in runs:
        rows.append(row("in batches / one by one", "protected", "one by one"))
    return rows
