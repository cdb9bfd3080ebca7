"""openai-agents' side of ``benchmarks/turns.py``; runs under a Python that has that package, and needs no Callboard.

    PEER_PYTHON benchmarks/peer_openai_agents.py BASE_URL whole|streamed

Takes one order a line on its standard input, as JSON, and answers each by one line: ``{"turns": n, "same": bool}`` and
``{"noisy": tool or null, "turns": n, "within_s": s}`` by the seconds of each turn, ``{"crowd": n, "each": n}`` by turns
a second, all with the CPU seconds that this process used.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import json
import sys
import time
from typing import Any

import turn_work
from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI


class Peer:
    """One agent with the three tools; a conversation is a list of input items."""

    def __init__(self, base_url: str, *, streamed: bool) -> None:
        self._streamed = streamed
        client = AsyncOpenAI(base_url=base_url, api_key="k", max_retries=0)
        self._agent: Any = Agent(
            name="bench",
            instructions=turn_work.INSTRUCTIONS,
            model=OpenAIChatCompletionsModel(model="scripted", openai_client=client),
            tools=[function_tool(tool) for tool in (turn_work.echo, turn_work.nap, turn_work.burn)],
        )

    async def obey(self, order: dict[str, Any]) -> Any:
        """Carry out one order."""
        if "crowd" in order:
            return await self._crowd(order["crowd"], order["each"])
        if "noisy" in order:
            return await self._noisy(order["noisy"], order["turns"], order["within_s"])
        shared: list[Any] = []
        return [await self._timed(shared if order["same"] else []) for _ in range(order["turns"])]

    async def _timed(self, conversation: list[Any]) -> float:
        began = time.perf_counter()
        answer = await self._turn(conversation, turn_work.LIGHT)
        took = time.perf_counter() - began
        if answer != turn_work.ANSWER:
            raise RuntimeError(f"a turn went wrong: {answer}")
        return took

    async def _turn(self, conversation: list[Any], text: str) -> Any:
        given = [*conversation, {"role": "user", "content": text}]
        if self._streamed:
            result: Any = Runner.run_streamed(self._agent, given)
            async for _ in result.stream_events():
                pass
        else:
            result = await Runner.run(self._agent, given)
        conversation[:] = result.to_input_list()
        return result.final_output

    async def _crowd(self, at_once: int, each: int) -> float:
        async def take() -> None:
            conversation: list[Any] = []
            for _ in range(each):
                await self._timed(conversation)

        began = time.perf_counter()
        await asyncio.gather(*(take() for _ in range(at_once)))
        return at_once * each / (time.perf_counter() - began)

    async def _noisy(self, tool: str | None, count: int, within_s: float) -> list[float]:
        async def keep_busy() -> None:
            while True:
                await self._turn([], turn_work.HEAVY[tool or ""])

        heavy = [
            asyncio.create_task(keep_busy()) for _ in range(turn_work.HEAVY_CONVERSATIONS if tool else 0)
        ]
        await asyncio.sleep(turn_work.UNDER_WAY_S if tool else 0)
        conversation: list[Any] = []
        took: list[float] = []
        give_up_at = time.perf_counter() + within_s
        while len(took) < count and time.perf_counter() < give_up_at:
            took.append(await self._timed(conversation))
        for task in heavy:
            task.cancel()
        return took


async def main(base_url: str, replies: str) -> None:
    """Obey until the input ends."""
    set_tracing_disabled(True)
    peer = Peer(base_url, streamed=replies == "streamed")
    say({"version": importlib.metadata.version("openai-agents")})
    while line := await asyncio.to_thread(sys.stdin.readline):
        cpu_s = time.process_time()
        answer = await peer.obey(json.loads(line))
        say({"answer": answer, "cpu_s": time.process_time() - cpu_s})


def say(value: dict[str, Any]) -> None:
    """Write one line to whoever ordered."""
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(*sys.argv[1:]))
