"""Many requests, one model: what waits when the model is free is answered together."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

Job = TypeVar("Job")
Answer = TypeVar("Answer")


class QueueFullError(Exception):
    """So much waits that more would only wait in vain."""


class Batcher(Generic[Job, Answer]):
    """Answers jobs in batches, in the order in which they came, in a thread of its own.

    Nobody waits for a batch to fill: it is made of what came while the one before was answered. So a single client is
    answered at once, and sixty-four of them share the work.

    Parameters
    ----------
    answer : callable
        From a list of jobs to a list of answers; called by one thread alone.
    batch_size, queue : int
        How many jobs at once, and how many may wait.
    """

    def __init__(self, answer: Callable[[list[Job]], Sequence[Answer]], batch_size: int, queue: int) -> None:
        self._answer, self.batch_size, self.queue = answer, batch_size, queue
        self._waiting: deque[tuple[Job, asyncio.Future[Answer]]] = deque()
        self._came = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="drw-hf model")
        self._task: asyncio.Task[None] | None = None
        self._ending = False
        self.n_batches, self.n_jobs = 0, 0

    def __len__(self) -> int:
        return len(self._waiting)

    async def submit(self, jobs: Sequence[Job]) -> list[Answer]:
        """The answers to some jobs; all are taken on, or none."""
        if self._ending or len(self._waiting) + len(jobs) > max(self.queue, len(jobs) if not self._waiting else 0):
            raise QueueFullError
        if self._task is None:
            self._task = asyncio.create_task(self._work())
        loop = asyncio.get_running_loop()
        futures = [loop.create_future() for _ in jobs]
        self._waiting.extend(zip(jobs, futures, strict=True))
        self._came.set()
        try:
            return [await futures[0]] if len(futures) == 1 else list(await asyncio.gather(*futures))
        finally:
            for future in futures:  # of somebody who gave up: nobody works for that any more
                future.cancel()

    async def close(self) -> None:
        """Answer what was taken on, and end."""
        self._ending = True
        self._came.set()
        if self._task is not None:
            await self._task
        self._thread.shutdown()

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._came.wait()
            self._came.clear()
            while batch := self._next():
                jobs = [job for job, _ in batch]
                try:
                    answers = await loop.run_in_executor(self._thread, self._answer, jobs)
                except Exception as error:
                    for _, future in batch:
                        if not future.done():
                            future.set_exception(error)
                    continue
                self.n_batches, self.n_jobs = self.n_batches + 1, self.n_jobs + len(jobs)
                for (_, future), answer in zip(batch, answers, strict=True):
                    if not future.done():
                        future.set_result(answer)
            if self._ending:
                return

    def _next(self) -> list[tuple[Job, "asyncio.Future[Answer]"]]:
        batch: list[tuple[Job, asyncio.Future[Answer]]] = []
        while self._waiting and len(batch) < self.batch_size:
            job, future = self._waiting.popleft()
            if not future.done():
                batch.append((job, future))
        return batch
