"""An agent pipeline: research, draft, an automatic review that sends the draft back, and a person's approval.

Run it with ``python -m examples.agent_pipeline [DATABASE]``. The model is played by two small functions, so that the
example needs no account anywhere. Kill it at any point and run it again: it goes on where it was.
"""

from __future__ import annotations

import sys
from typing import Any

import trio

from actors import Approve, Context, Gate, Node, Retention, Runtime, SendBack, Submit, WorkState, open_runtime

WORDS_MAX = 12


def model(prompt: str) -> str:
    """What a language model would answer: shorter each time it is told to be shorter."""
    shortenings = prompt.count("shorter")
    return " ".join(["bread"] * (WORDS_MAX + 4 - 4 * shortenings))


async def research(ctx: Context) -> dict[str, Any]:
    ctx.progress("reading")
    return {"sources": ["flour", "water"], "topic": ctx.payload["topic"]}


async def draft(ctx: Context) -> str:
    feedback = ctx.feedback or ""
    return model(f"Write about {ctx.inputs['research']['topic']}. {feedback}")


async def review(ctx: Context) -> str:
    words = len(ctx.inputs["draft"].split())
    if words > WORDS_MAX:
        # The draft is made again, and so is this review. This attempt is superseded and ends here.
        await ctx.company.ask(SendBack(ctx.task, "draft", f"{words} words: make it shorter"))
    return f"{words} words are fine"


async def publish(ctx: Context) -> dict[str, str]:
    # A real program would give ctx.key to the service, so that a repeated call publishes once.
    return {"text": ctx.inputs["draft"], "key": ctx.key, "approved_by": ctx.inputs["approve"]["note"]}


HANDLERS = {"research": research, "draft": draft, "review": review, "publish": publish}
NODES = (
    Node("research"),
    Node("draft", after=["research"], timeout_s=300),
    Node("review", after=["draft"]),
    Gate("approve", after=["review"]),
    Node("publish", after=["draft", "approve"]),
)


async def approve_when_asked(runtime: Runtime, task: str) -> None:
    """The person: waits until the run is halted at the gate, and lets it go on."""
    acme = runtime.company("acme")
    async for event in runtime.events(company="acme"):
        if event.kind == "node.sent_back":
            print("sent back:", event.data["feedback"])
        if event.kind == "run.halted" and (await acme.status(task)).state is WorkState.HALTED:
            await acme.ask(Approve(task, "approve", "Ada"))
            return


async def main(database: str) -> None:
    keep = Retention(events_s=30 * 86_400)
    async with (
        open_runtime(database, handlers=HANDLERS, retention=keep) as runtime,
        trio.open_nursery() as nursery,
    ):
        acme = runtime.company("acme")
        post = await acme.ask(Submit("A post", id="post", nodes=NODES, payload={"topic": "bread"}))
        nursery.start_soon(approve_when_asked, runtime, post.id)
        outcome = await acme.when_settled(post.id)
        published = (outcome.result or {})["publish"]
        print(f"{outcome.status}: {published['text']!r}, approved by {published['approved_by']}")
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main, sys.argv[1] if sys.argv[1:] else "pipeline.db")
