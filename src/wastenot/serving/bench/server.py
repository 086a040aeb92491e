"""A server with OpenAI's interface: whether it is there, what it serves, and what it can be asked for."""

from __future__ import annotations

import asyncio
import errno
import json
from base64 import b64encode
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import unquote, urlsplit

from wastenot.core.errors import BadInputError, ServerError, first_line
from wastenot.core.suggest import suggestion
from wastenot.serving.bench.loads import Api, Ask, Prompts
from wastenot.serving.bench.replies import aiohttp_or_error, text_of

_PATHS: dict[Api, str] = {"completions": "/v1/completions", "chat": "/v1/chat/completions"}
_LONGEST_ANSWER = 200  # characters of a server's message that an error repeats
_PROBE_WORDS = (40, 400)

_EVERY_CHUNK = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
_AT_THE_END = {"stream_options": {"include_usage": True}}
_NO_EARLY_END = {"ignore_eos": True}


@dataclass(frozen=True, slots=True)
class Target:
    """Which server to measure, and how to speak to it; what is ``None`` is found out.

    Attributes:
        url: of the server.
        model: to ask for.
        api: of the two that stream texts.
        key: sent as a bearer token.
    """

    url: str
    model: str | None = None
    api: Api | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Server:
    """Where requests go, and how they are written.

    Attributes:
        url: of the server, without ``/v1``.
        model: to ask for.
        api: of the two that stream texts.
        headers: of each request.
        counts: fields that make a stream tell how many tokens it has.
        exact: fields that keep an answer from ending before the length asked for; empty where the server has none.
    """

    url: str
    model: str
    api: Api = "completions"
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    counts: tuple[tuple[str, Any], ...] = ()
    exact: tuple[tuple[str, Any], ...] = ()

    @property
    def endpoint(self) -> str:
        """The address that requests are sent to."""
        return self.url + _PATHS[self.api]

    @property
    def path(self) -> str:
        """Of the address that requests are sent to."""
        return urlsplit(self.endpoint).path

    def body(self, ask: Ask) -> bytes:
        """A request as the server reads it."""
        fields: dict[str, Any] = {"model": self.model, "stream": True, "temperature": 0.0}
        if self.api == "chat":
            text = ask.content
            fields["messages"] = [{"role": "user", "content": text}] if isinstance(text, str) else list(text)
        elif isinstance(ask.content, str):
            fields["prompt"] = ask.content
        else:
            raise BadInputError("`requests` has chat messages, which /v1/completions does not take: use `api` chat")
        if ask.output_tokens is not None:
            fields["max_tokens"] = ask.output_tokens
        fields.update(self.counts)
        if ask.exact:
            fields.update(self.exact)
        return json.dumps(fields).encode()


def server_url(text: str) -> str:
    """The address of a server as it was typed, without a name and password, ``/v1`` or a slash at its end.

    Raises:
        BadInputError: it is none.
    """
    typed = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(typed)
        there = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        there = False
    if not there:
        raise BadInputError(f"{text}: not the address of a server; write one such as http://localhost:8000")
    address = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl().rstrip("/")
    for end in (*_PATHS.values(), "/v1"):
        address = address.removesuffix(end)
    return address


async def find_server(session: Any, target: Target) -> Server:
    """Find out what a server serves and which fields it takes, by asking for its models and for two tokens.

    The first model that it lists is asked for by default, by completions where it has them.

    Raises:
        BadInputError: nothing answers there, it does not serve the model, or it refuses any request.
        ServerError: it fails.
    """
    model = target.model
    address = server_url(target.url)
    secret = f"Bearer {target.key}" if target.key else _basic(target.url)
    headers = (("Content-Type", "application/json"), *((("Authorization", secret),) if secret else ()))
    listed = await _models(session, address, dict(headers))
    if model is None and not listed:
        raise BadInputError(f"{address}: does not list its models; name one with `model`")
    # A list of several may hold what a server could load, as that of ``transformers serve``, rather than what it serves.
    if model is not None and len(listed) == 1 and model not in listed:
        raise BadInputError(f"`model` {model}: {address} does not serve it; {suggestion(model, listed)}")
    server = Server(address, model or listed[0], headers=headers)
    apis: tuple[Api, ...] = ("completions", "chat") if target.api is None else (target.api,)
    said = ""
    for server_api in apis:
        for counts, exact in (
            (_EVERY_CHUNK, _NO_EARLY_END), (_AT_THE_END, _NO_EARLY_END), (_AT_THE_END, {}), ({}, {}),
        ):  # fmt: skip
            tried = replace(server, api=server_api, counts=tuple(counts.items()), exact=tuple(exact.items()))
            status, said = await _post(session, tried, Ask("one two three", 2, exact=True))
            if status == 200:
                return tried
            if status not in {400, 404, 405, 422, 501}:
                break
            if status in {404, 405}:
                break
        if status not in {400, 404, 405, 422, 501}:
            break
    raise _refusal(server, status, said)


def _basic(url: str) -> str | None:
    """What a name and password in an address are sent as."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.username is None:
        return None
    named = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return f"Basic {b64encode(named.encode()).decode()}"


async def token_counts(session: Any, server: Server) -> tuple[float, float, bool]:
    """Tokens of a word and those of a prompt beside its words, from how many the server counts in two texts.

    The last value is whether it counts them at all; where it does not, a word is taken for a token.
    """
    plain = Prompts(seed=0)
    few, many = [await _prompt_tokens(session, server, plain.of_words(words)) for words in _PROBE_WORDS]
    if few is None:
        return 1.0, 0.0, False
    if many is None or many <= few:  # more than fits its context, perhaps
        return few / _PROBE_WORDS[0], 0.0, True
    per_word = (many - few) / (_PROBE_WORDS[1] - _PROBE_WORDS[0])
    return per_word, few - per_word * _PROBE_WORDS[0], True


async def _models(session: Any, address: str, headers: dict[str, str]) -> list[str]:
    try:
        async with session.get(f"{address}/v1/models", headers=headers, allow_redirects=False) as reply:
            status, text, elsewhere = reply.status, await text_of(reply), reply.headers.get("Location")
    except _network_errors() as error:
        raise BadInputError(f"{address}: {unreachable(error)}; is the server running, and is this its address?") from None
    if status in {401, 403}:
        raise _refusal(Server(address, ""), status, text)
    if 300 <= status < 400:
        raise BadInputError(f"{address}: redirects requests to {elsewhere or 'another address'}; give that address")
    try:
        fields = json.loads(text) if status == 200 else {}
    except ValueError:
        return []
    models = fields.get("data") if isinstance(fields, dict) else None
    return [str(each["id"]) for each in models or () if isinstance(each, dict) and "id" in each]


async def _post(session: Any, server: Server, ask: Ask) -> tuple[int, str]:
    for again in (True, True, False):
        try:
            async with session.post(server.endpoint, data=server.body(ask), headers=dict(server.headers)) as reply:
                return reply.status, await text_of(reply)
        except _network_errors() as error:
            if not (again and stale(error)):
                raise ServerError(f"{server.url}: {unreachable(error)} while it answered its first request") from None
    raise AssertionError


async def _prompt_tokens(session: Any, server: Server, text: str) -> int | None:
    status, answer = await _post(session, server, Ask(text, 1, exact=True))
    if status != 200:
        return None
    for line in reversed(answer.splitlines()):
        if not line.startswith("data:") or '"usage"' not in line:
            continue
        try:
            usage = json.loads(line[5:]).get("usage")
        except ValueError:
            continue
        if isinstance(usage, dict) and isinstance(usage.get("prompt_tokens"), int):
            return int(usage["prompt_tokens"])
    return None


def _refusal(server: Server, status: int, said: str) -> BadInputError | ServerError:
    message = message_of(said)
    if status in {401, 403}:
        return BadInputError(f"{server.url}: requires an API key ({status}); give it with `api_key`, or set OPENAI_API_KEY")
    if status in {404, 405}:
        return BadInputError(
            f"{server.endpoint}: does not exist ({status}); give the address of a server with OpenAI's interface"
            + (f"; it says: {message}" if message else "")
        )
    if status == 429:
        return BadInputError(f"{server.url}: limits its rate and refuses even a first request (429); try again later")
    if status >= 500:
        return ServerError(f"{server.url}: fails ({status}); it says: {message or 'nothing'}")
    return BadInputError(f"{server.url}: refuses a request to '{server.model}' ({status}); it says: {message or 'nothing'}")


def message_of(said: str) -> str:
    """The message in what a server answered in place of a stream, on one line and not too long."""
    text = said.strip()
    try:
        fields = json.loads(text)
    except ValueError:
        fields = None
    for name in ("error", "message", "detail"):
        if isinstance(fields, dict) and name in fields:
            fields = fields[name]
            if isinstance(fields, dict):
                fields = fields.get("message", json.dumps(fields))
            text = fields if isinstance(fields, str) else json.dumps(fields)
            break
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_ANSWER else line[: _LONGEST_ANSWER - 1] + "…"


def unreachable(error: BaseException) -> str:
    """What became of a connection, in words."""
    if isinstance(error, TimeoutError):
        return "does not answer in time"
    cause = getattr(error, "os_error", error)
    text = f"{error} {cause}"
    if isinstance(cause, ConnectionRefusedError) or getattr(cause, "errno", None) == errno.ECONNREFUSED:
        return "refuses connections"
    if "CERTIFICATE_VERIFY" in text:
        return "its certificate cannot be verified"
    if "Name or service" in text or "nodename" in text or "getaddrinfo" in text or "name resolution" in text:
        return "there is no such host"
    if isinstance(cause, ConnectionResetError) or "disconnected" in text.lower() or "not completed" in text.lower():
        return "closed the connection"
    return first_line(error)


def stale(error: BaseException) -> bool:
    """Whether a connection that was kept open had been closed by the server when it was used again."""
    aiohttp = aiohttp_or_error()
    reset = isinstance(error, aiohttp.ClientOSError) and not isinstance(error, aiohttp.ClientConnectorError)
    return reset or isinstance(error, aiohttp.ServerDisconnectedError)


def _network_errors() -> tuple[type[BaseException], ...]:
    aiohttp = aiohttp_or_error()
    return (aiohttp.ClientError, asyncio.TimeoutError, OSError)
