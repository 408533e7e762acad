"""`create_app`: a protected model as an ASGI app."""

import asyncio
import contextlib
import hashlib
import hmac
import json
import logging
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from .._version import __version__
from ..asking.log_lines import Served
from ..asking.log_writer import LogWriter
from ..asking.query_log import QueryLog
from ..errors import InvalidInputError, LogNotWrittenError
from ..keys.frames import forgets_locals
from ..keys.ring import KeyRing
from .answering import TOO_LONG, Answer, Answerer, Job
from .batching import Batcher, QueueFullError
from .limits import Limits
from .metrics import EXPOSITION, Metrics
from .protocol import (
    Asked,
    RequestRefusedError,
    inference_answer,
    parse_inference,
    parse_tei,
    tei_answer,
    too_large,
)

logger = logging.getLogger(__name__)
_RETRY_AFTER = 1  # seconds
Endpoint = Callable[[Request], Awaitable[Response]]


@forgets_locals
def create_app(
    model: Any,
    tokenizer: Any,
    *,
    log: QueryLog | str | os.PathLike[str] | None = None,
    log_texts: bool = True,
    log_users: bool = True,
    api_token: str | None = None,
    admin_token: str | None = None,
    limits: Limits | None = None,
) -> Starlette:
    """Make an ASGI app that serves a protected model; run it with uvicorn, or with ``drw-hf serve``.

    ``POST /`` speaks the Inference protocol: ``huggingface_hub.InferenceClient(model=url, token=...)`` asks there. Of
    a classifier ``POST /predict`` takes the shapes of Text Embeddings Inference. ``GET /health`` and ``GET /info``
    (the public commitment, the labels, the limits) are open to all. No request can switch the mark off, choose a key
    or see a score without the mark.

    Parameters
    ----------
    model : protected model
        Of :class:`~drw_hf.WatermarkedModelForSequenceClassification` or its fellow for taggers. If its key is a ring,
        every request needs the token of a user (``ring.token_for(user)``) as its bearer token, and is answered by that
        user's key.
    tokenizer : PreTrainedTokenizerBase
        The model's.
    log : QueryLog or path, optional
        Where everything that is answered is kept, before it is sent: see :class:`drw_hf.QueryLog`. If it cannot be
        written, nothing is answered.
    log_texts, log_users : bool
        Whether texts and users' names stand in the log, or keyed digests of them alone.
    api_token : str, optional
        With a single key: the bearer token that every request needs.
    admin_token : str, optional
        The bearer token for ``GET /metrics``; without it there is no such page here.
    limits : Limits, optional
        What is taken on: :class:`drw_hf.serving.Limits`.

    Returns
    -------
    Starlette
        ``app.state.metrics`` are its counters.

    Examples
    --------
    >>> from drw_hf.serving import Limits
    >>> Limits(batch_size=16).queue
    512
    """
    answerer, limits = Answerer(model, tokenizer), limits or Limits()
    if isinstance(answerer.key, KeyRing) and api_token is not None:
        raise InvalidInputError("with a ring the users' tokens are asked for; leave api_token out")
    for name, token in (("api_token", api_token), ("admin_token", admin_token)):
        if token is not None and not (isinstance(token, str) and len(token) >= 8 and token.isascii()):
            raise InvalidInputError(f"{name} is too short, or no ASCII text; give one of 8 characters or more")
    writer = None
    if log is not None:
        kept = log if isinstance(log, QueryLog) else QueryLog(log)
        writer = kept.writer(answerer.key, label_kind=answerer.label_kind, texts=log_texts, users=log_users)
    service = _Service(answerer, writer, limits, api_token, admin_token)
    routes = [
        Route("/", service.answers(service.inference), methods=["POST"]),
        Route("/health", service.answers(service.health), methods=["GET"]),
        Route("/info", service.answers(service.info), methods=["GET"]),
    ]
    if answerer.task == "sequence-classification":
        routes.append(Route("/predict", service.answers(service.tei), methods=["POST"]))
    if admin_token is not None:
        routes.append(Route("/metrics", service.answers(service.metrics_page), methods=["GET"]))
    app = Starlette(routes=routes, lifespan=service.lifespan, exception_handlers={HTTPException: _not_served})
    app.router.redirect_slashes = False  # to wherever the Host header says
    app.state.metrics = service.metrics
    return app


class _Service:
    """What the routes of an app share."""

    def __init__(
        self,
        answerer: Answerer,
        writer: LogWriter | None,
        limits: Limits,
        api_token: str | None,
        admin_token: str | None,
    ) -> None:
        self.answerer, self.writer, self.limits = answerer, writer, limits
        self.ring = answerer.key if isinstance(answerer.key, KeyRing) else None
        self._api_token, self._admin_token = _digest(api_token), _digest(admin_token)
        self.metrics, self._log_failed = Metrics(), False
        self._keeping: tuple[Any, Any] = (None, None)  # the writer's future, and the same for this event loop
        self.batcher: Batcher[Job, Answer | None] = Batcher(answerer.answer, limits.batch_size, limits.queue)
        self.metrics.gauges = {
            "drw_queue_texts": lambda: len(self.batcher),
            "drw_batches_total": lambda: self.batcher.n_batches,
            "drw_log_lines_total": lambda: 0 if writer is None else writer.n_written,
            "drw_log_syncs_total": lambda: 0 if writer is None else writer.n_syncs,
            "drw_log_sync_seconds_total": lambda: 0.0 if writer is None else writer.sync_seconds,
        }

    @contextlib.asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncIterator[None]:
        """Around serving: at the end what was taken on is answered, and logged."""
        yield
        await self.batcher.close()
        if self.writer is not None:
            await asyncio.to_thread(self.writer.close)

    def answers(self, endpoint: Endpoint) -> Endpoint:
        """A route: whatever happens in it, the client gets one clear error, and nothing from the inside."""

        async def route(request: Request) -> Response:
            start = time.perf_counter()
            try:
                response = await endpoint(request)
            except RequestRefusedError as error:
                response = error_response(error.status, error.message, error.retry_after)
            except ClientDisconnect:
                response = error_response(400, "the request was not sent to its end")
            except Exception as error:
                logger.error("a request failed with %s", type(error).__name__)
                response = error_response(500, "this request could not be answered")
            self.metrics.count(response.status_code, time.perf_counter() - start)
            return response

        return route

    # -- routes

    async def inference(self, request: Request) -> Response:
        """``POST /``: the Inference protocol."""
        user, content = self._user_of(request), await self._body_of(request)
        asked = parse_inference(content, self.answerer.task, self.limits)
        return _json(inference_answer(asked, await self._answer(asked, user), self.answerer.task))

    async def tei(self, request: Request) -> Response:
        """``POST /predict``: the shapes of Text Embeddings Inference."""
        user, content = self._user_of(request), await self._body_of(request)
        asked = parse_tei(content, self.limits)
        return _json(tei_answer(asked, await self._answer(asked, user)))

    async def health(self, _: Request) -> Response:
        """``GET /health``: whether questions are answered."""
        if self._log_failed and not await self._can_log():
            return error_response(503, "the log cannot be written, and nothing is served unlogged", _RETRY_AFTER)
        return _json({"status": "ok"})

    async def _can_log(self) -> bool:
        """Whether the log can be written again."""
        with contextlib.suppress(LogNotWrittenError, TimeoutError):
            async with asyncio.timeout(self.limits.timeout):
                await self._kept([])
            self._log_failed = False
        return not self._log_failed

    async def _kept(self, served: list[Served]) -> None:
        """Wait until this is on the disk."""
        assert self.writer is not None
        kept = self.writer.append(served)
        if kept is not self._keeping[0]:  # all who wait for one fsync are woken once
            self._keeping = (kept, asyncio.wrap_future(kept))
        await asyncio.shield(self._keeping[1])

    async def info(self, _: Request) -> Response:
        """``GET /info``: what anybody may know."""
        answerer, limits = self.answerer, self.limits
        return _json(
            {
                "task": answerer.task,
                "labels": list(answerer.labels),
                "label_kind": answerer.label_kind,
                "max_input_length": answerer.max_length,
                "max_client_batch_size": limits.inputs,
                "key_commitment": answerer.key.identity,
                "declared_root": None if self.ring is None or self.ring.declared is None else self.ring.declared.root,
                "users": self.ring is not None,
                "logged": self.writer is not None,
                "version": __version__,
            }
        )

    async def metrics_page(self, request: Request) -> Response:
        """``GET /metrics``, for whoever has the admin token."""
        self._check_token(request, self._admin_token)
        return Response(self.metrics.text(), media_type=EXPOSITION)

    # -- who asks

    def _user_of(self, request: Request) -> str | None:
        """The user of the ring whose token the request bears; with a single key nobody has a name."""
        if self.ring is None:
            self._check_token(request, self._api_token)
            return None
        with contextlib.suppress(InvalidInputError):
            return self.ring.user_of(_bearer(request))
        raise _unauthorised()

    def _check_token(self, request: Request, expected: bytes | None) -> None:
        # Digests are compared, which are of one length whatever was sent.
        if expected is not None and not hmac.compare_digest(_digest(_bearer(request)) or b"", expected):
            raise _unauthorised()

    # -- what is asked, and the answers

    async def _body_of(self, request: Request) -> bytes:
        if request.headers.get("content-encoding", "identity").lower() not in ("", "identity"):
            raise RequestRefusedError(415, "the request is packed; send it as it is")
        told = request.headers.get("content-length", "")
        if told.isdecimal() and int(told[:18]) > self.limits.body:
            raise too_large(self.limits)
        content = bytearray()
        try:
            async with asyncio.timeout(self.limits.timeout):
                async for chunk in request.stream():
                    content += chunk
                    if len(content) > self.limits.body:
                        raise too_large(self.limits)
        except TimeoutError:
            raise RequestRefusedError(408, "the request came too slowly; send it again") from None
        return bytes(content)

    async def _answer(self, asked: Asked, user: str | None) -> list[Any]:
        jobs = [Job(text, user, asked.parameters) for text in asked.texts]
        try:
            async with asyncio.timeout(self.limits.timeout):
                answers = await self.batcher.submit(jobs)
                found = [answer for answer in answers if answer is not None]
                if len(found) < len(answers):
                    raise RequestRefusedError(500, "this request could not be answered")
                if any(answer is TOO_LONG for answer in found):
                    raise RequestRefusedError(
                        413,
                        f"a text has more than the {self.answerer.max_length} tokens that the model reads; send a "
                        'shorter one, or "truncate": true',
                    )
                if self.writer is not None:
                    # Only what is on the disk is sent.
                    await self._kept([answer.served for answer in found])
                    self._log_failed = False
        except QueueFullError:
            raise RequestRefusedError(429, "too many requests wait already; come again soon", _RETRY_AFTER) from None
        except TimeoutError:
            raise RequestRefusedError(
                503, f"no answer within {self.limits.timeout:g} seconds; come again later", _RETRY_AFTER
            ) from None
        except LogNotWrittenError as error:
            if not self._log_failed:
                logger.error("%s", error)
            self._log_failed = True
            self.metrics.log_failures += 1
            raise RequestRefusedError(
                503, "the log cannot be written, and nothing is served unlogged; come again later", _RETRY_AFTER
            ) from None
        self.metrics.texts += len(found)
        return [answer.public for answer in found]


def error_response(status: int, message: str, retry_after: int | None = None) -> Response:
    """One clear error."""
    response = _json({"error": message}, status)
    if retry_after is not None:
        response.headers["Retry-After"] = str(retry_after)
    if status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    return response


async def _not_served(request: Request, error: Exception) -> Response:
    """What is said to a path or method that is not there."""
    status = error.status_code if isinstance(error, HTTPException) else 404
    return error_response(status, "there is nothing here; POST to / or /predict, or GET /health or /info")


def _unauthorised() -> RequestRefusedError:
    return RequestRefusedError(401, "a request needs the token that you were given, as Authorization: Bearer TOKEN")


def _bearer(request: Request) -> str:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _digest(token: str | None) -> bytes | None:
    return None if token is None else hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def _json(document: Any, status: int = 200) -> Response:
    content = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    return Response(content, status, media_type="application/json")
