"""A server's target along known continuations: `harness.engines.shared.sglang_target` over HTTP."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from harness.engines.server.client import Client
from harness.engines.server.sampling import SENT

__all__ = ["HttpGenerator"]


class HttpGenerator:
    """A server as an SGLang that answers; see `harness.engines.shared.sglang_target.SglangGenerator`.

    Args:
        client: The server.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    def generate(self, **arguments: Any) -> list[dict[str, Any]]:
        """Return `output_ids` and `meta_info` of each prompt, which are sent one by one, so many at once as is set.

        Raises:
            InputError: The server wants another key.
            EngineError: It fails, or answers no log-probabilities.
        """
        count = len(arguments["input_ids"])
        sampling = SENT | arguments["sampling_params"]
        bodies = [
            {key: value[index] if isinstance(value, list) else value for key, value in arguments.items()}
            | {"sampling_params": sampling}
            for index in range(count)
        ]
        return self._client.each(self._ask, bodies)

    def flush_cache(self) -> None:
        """Leave the server's cache alone, which belongs to its other users too.

        Nothing is lost: if the log-probabilities of a continuation are asked for, SGLang computes it again.
        """

    async def _ask(self, body: Mapping[str, Any]) -> dict[str, Any]:
        what = f"the target along a text, {len(body['input_ids'])} tokens with its prompt"
        _, answer = await self._client.ask("/generate", dict(body), what)
        try:
            meta = answer["meta_info"]
            # The first entry belongs to a token that nothing predicts here.
            best = [entry[0] for entry in meta["input_top_logprobs"][1:]]
            given = meta["input_token_logprobs"][1:]
            usable = _numbers(best) and _numbers(given)
        except (KeyError, TypeError, IndexError):
            usable = False
        if not usable:
            self._client.fail(
                f"POST /generate for {what}",
                f"answered without finite log-probabilities of the continuation: {str(answer)[:200]}",
                "check that the address is an SGLang server's own, and that its target computes no NaN",
            )
        return dict(answer)


def _numbers(entries: Sequence[Sequence[Any]]) -> bool:
    return all(isinstance(entry[0], int | float) and math.isfinite(entry[0]) for entry in entries)
