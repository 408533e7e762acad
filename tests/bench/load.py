"""A service under load, of which a process is killed meanwhile: is anything lost, doubled, mixed up; does memory grow?

Bounded in count and in time, and on this machine alone.
"""

import asyncio
import json
import os
import signal
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import torch

from drw_hf import KeyRing, QueryLog, WatermarkedModelForSequenceClassification, WatermarkKey
from drw_hf.asking.log_lines import LogLine

from .measure import Row
from .protection import bert
from .serving import made_up_texts, tokenizer

SECONDS = 240.0  # no request is begun later
CLIENTS, USERS, TEXTS = 64, 200, 4
AS_EQUAL = 2e-3  # scores have three digits, and another batch may round the last one differently


@dataclass
class Load:
    """Clients that ask one text after the other, each a new one, and note what they were answered."""

    address: str
    tokens: dict[str, str]
    texts: list[str]
    wanted: int
    given: dict[str, tuple[str, list[float]]] = field(default_factory=dict)
    broken: int = 0
    begun: int = 0

    async def run(self, at_half: Any, at_fifth: Any) -> None:
        """Ask until all is answered or the time is over; the two are called at their place in between."""
        end, limits = time.monotonic() + SECONDS, httpx2.Limits(max_connections=CLIENTS)
        async with httpx2.AsyncClient(limits=limits, timeout=60) as line:
            work = [asyncio.create_task(self._ask(line, end)) for _ in range(CLIENTS)]
            for share, act in ((5, at_fifth), (2, at_half)):
                while len(self.given) < self.wanted // share and not all(task.done() for task in work):
                    await asyncio.sleep(0.005)
                act()
            await asyncio.gather(*work)

    async def _ask(self, line: httpx2.AsyncClient, end: float) -> None:
        users = list(self.tokens)
        while len(self.given) < self.wanted and time.monotonic() < end:
            number, self.begun = self.begun, self.begun + 1
            # The number makes every text another one; the tokenizer does not know it, so that the answer is known.
            user, text = users[number * 7919 % len(users)], f"{self.texts[number % len(self.texts)]} x{number}"
            told = {"Authorization": f"Bearer {self.tokens[user]}"}
            try:
                response = await line.post(self.address, content=json.dumps({"inputs": text}).encode(), headers=told)
            except httpx2.TransportError:  # the process behind the line was killed
                self.broken += 1
                await asyncio.sleep(0.05)
                continue
            (answer,) = response.raise_for_status().json()
            scores = {one["label"]: one["score"] for one in answer}
            self.given[text] = (user, [scores["LABEL_0"], scores["LABEL_1"]])


def bench_load(requests: int) -> list[Row]:
    """``drw-hf serve --workers 2``, asked by 64 clients for 200 users; half-way one worker gets ``kill -9``."""
    from ..serving import serving

    model, words = bert("sequence-classification", 2, 2, 128), tokenizer()
    key = WatermarkKey.generate(model, tokenizer=words, mark="tilt", strength=0.3, temperature=1.0)
    ring = KeyRing(key)
    tokens = {f"user {number}": ring.token_for(f"user {number}") for number in range(USERS)}
    texts = [text for text, _ in zip(made_up_texts(), range(TEXTS), strict=False)]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        model.save_pretrained(folder / "model")
        words.save_pretrained(folder / "model")
        ring.save_pretrained(folder / "ring")
        with serving(folder, "model", "--ring", "ring", "--log", "log", "--workers", "2") as service:
            load = Load(service.address, tokens, texts, requests)
            killed, kept, *_ = workers_of(service.process.pid)
            memory: list[float] = []
            start = time.monotonic()
            asyncio.run(load.run(lambda: os.kill(killed, signal.SIGKILL), lambda: memory.append(memory_of(kept))))
            seconds = time.monotonic() - start
            memory.append(memory_of(kept))
            service.end()
        log = QueryLog(folder / "log")
        log.check()
        lines = list(log.lines())
    victim = WatermarkedModelForSequenceClassification.from_model(model, key=ring)
    expected = {text: answers_of(victim, words, f"{text} x0", list(tokens)) for text in texts}
    return [
        {
            "what": "a service under load: memory at the end over that after a fifth of the requests",
            "ratio": memory[1] / memory[0],
            "limit": 1.1,
            "memory": memory[1],
            "requests": len(load.given),
            "clients": CLIENTS,
            "users": USERS,
            "rate": len(load.given) / seconds,
            **faults(load, lines, expected),
        }
    ]


def faults(load: Load, lines: list[LogLine], expected: dict[str, dict[str, float]]) -> dict[str, int]:
    """How many answers are not in the log, how many lines are there twice or for nothing, how many are of others."""
    logged = {line.text: line for line in lines}
    lost = mixed_up = 0
    for text, (user, scores) in load.given.items():
        line = logged.get(text)
        lost += line is None or line.answered != scores
        its = expected[text.rpartition(" ")[0]][user]
        mixed_up += abs(scores[0] - its) > AS_EQUAL or (line is not None and line.user != user)
    # Of requests whose line broke some had been logged: whether they were answered nobody knows.
    for_nothing = max(0, len(logged.keys() - load.given.keys()) - load.broken)
    return {"lost": lost, "doubled": len(lines) - len(logged) + for_nothing, "mixed_up": mixed_up}


def answers_of(victim: Any, words: Any, text: str, users: list[str]) -> dict[str, float]:
    """The first label's score of a text, for every user."""
    with torch.no_grad():
        scores = victim(**words([text] * len(users), return_tensors="pt"), user=users).logits.softmax(-1)[:, 0]
    return dict(zip(users, scores.tolist(), strict=True))


def workers_of(process: int) -> list[int]:
    """The processes that another one started."""
    return [int(pid) for pid in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def memory_of(process: int) -> float:
    """Resident memory in MiB."""
    with open(f"/proc/{process}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS")) / 1024
