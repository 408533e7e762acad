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

    def median(self) -> float:
        return statistics.median(self.seconds)


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


def bench_serving(rounds: int, seconds: float = 65.0, requests: int = 64) -> list[Row]:
    """Every service in every round, in turns, so that a slow spell of the machine counts for all.

    For each shape and number of clients there are so many rounds, or as many as begin within so many seconds: all of
    it takes no more than eight minutes.
    """
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
            services = {name: Service(stack.enter_context(serving(app)), app) for name, app in apps.items()}
            for clients in CLIENTS:
                # One client's requests come one by one anyway.
                measured = {name: one for name, one in services.items() if clients > 1 or name != "one by one"}
                cell = Cell(shape, clients, max(requests, clients * 4))
                cell.measure(pool, measured, rounds, seconds)
                rows += cell.rows()
    return rows


@dataclass(frozen=True)
class Service:
    """A running service, and its app, which counts how long the log waited for the disk."""

    address: str
    app: Any

    def synced(self) -> float:
        return self.app.state.metrics.gauges["drw_log_sync_seconds_total"]()

    def syncs(self) -> float:
        return self.app.state.metrics.gauges["drw_log_syncs_total"]()


class Cell:
    """What services of one shape took for one number of clients."""

    def __init__(self, shape: str, clients: int, requests: int) -> None:
        self.where = f"a service, {shape}, {clients} client{'s' if clients > 1 else ''}: "
        self.clients, self.requests = clients, requests
        self.runs: dict[str, list[Run]] = {}
        self.sync_seconds = self.n_syncs = 0.0

    def measure(self, pool: ProcessPoolExecutor, services: dict[str, Service], rounds: int, seconds: float) -> None:
        texts, names, end = made_up_texts(), list(services), time.perf_counter() + seconds
        self.runs = {name: [] for name in names}
        for number in range(rounds + 1):  # the first warms up
            if number > 1 and time.perf_counter() > end:
                break
            shift = number % len(names)
            for name in names[shift:] + names[:shift]:
                asked = list(itertools.islice(texts, self.requests))
                synced, syncs = services[name].synced(), services[name].syncs()
                run = pool.submit(one_round, services[name].address, self.clients, asked).result()
                if number:
                    self.runs[name].append(run)
                    self.sync_seconds += services[name].synced() - synced
                    self.n_syncs += services[name].syncs() - syncs

    def rows(self) -> list[Row]:
        at_most = self.clients == max(CLIENTS)
        logged = self.row("with the log / without", "logged", "protected", **({"least": 0.9} if at_most else {}))
        took = sum(self.requests / run.rate for run in self.runs["logged"])
        logged |= {"sync_share": self.sync_seconds / took, "sync_ms": 1e3 * self.sync_seconds / self.n_syncs}
        rows = [
            self.row("protected / clean", "protected", "clean", least=0.97),
            self.median_row("protected / clean", "protected", "clean", limit=1.03),
            logged,
        ]
        if "one by one" in self.runs:
            rows.append(self.row("in batches / one by one", "protected", "one by one"))
        return rows

    def row(self, what: str, over: str, under: str, **wanted: float) -> Row:
        """Requests per second, by rounds; the 99th percentile over all of them, since a round has few."""
        pairs = list(zip(self.runs[over], self.runs[under], strict=True))
        slow, its = ([one for run in self.runs[name] for one in run.seconds] for name in (over, under))
        p99 = 1e3 * statistics.quantiles(slow, n=100)[98]
        return {
            "what": f"{self.where}requests per second {what}",
            "ratio": statistics.median(one.rate / other.rate for one, other in pairs),
            "rounds": len(pairs),
            "rate": statistics.median(one.rate for one, _ in pairs),
            "under_rate": statistics.median(other.rate for _, other in pairs),
            "p99_ms": p99,
            "p99_ratio": p99 / (1e3 * statistics.quantiles(its, n=100)[98]),
            **wanted,
        }

    def median_row(self, what: str, over: str, under: str, **wanted: float) -> Row:
        """The median time of a request, by rounds."""
        pairs = list(zip(self.runs[over], self.runs[under], strict=True))
        return {
            "what": f"{self.where}median time of a request {what}",
            "ratio": statistics.median(one.median() / other.median() for one, other in pairs),
            "p50_ms": 1e3 * statistics.median(one.median() for one, _ in pairs),
            "under_p50_ms": 1e3 * statistics.median(other.median() for _, other in pairs),
            **wanted,
        }
