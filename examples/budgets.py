"""Model calls within a budget: a run that cannot pay halts, and goes on once the budget is raised.

Run it with ``python -m examples.budgets [DATABASE]``.
"""

from __future__ import annotations

import sys

import trio

from actors import Context, Node, Retry, SetBudget, Submit, describe_reason, open_runtime


async def ask_model(ctx: Context) -> str:
    tokens = 700
    ctx.spend(tokens)  # a real program takes the number from the model's answer
    return f"an answer of {tokens} tokens"


async def main(database: str) -> None:
    async with open_runtime(database, handlers={"ask_model": ask_model}) as runtime:
        acme = runtime.company("acme")
        await acme.ask(SetBudget(1_000))
        nodes = [
            Node("outline", "ask_model", estimate=600),
            Node("text", "ask_model", after=["outline"], estimate=600),
        ]
        await acme.ask(Submit("An article", nodes=nodes, id="article"))
        await acme.when_idle()
        why = await acme.explain("article")
        print(why.state.value, "–", describe_reason(why.gates[0], subject="article"))
        await acme.ask(SetBudget(2_000))
        await acme.ask(Retry("article"))
        outcome = await acme.when_settled("article")
        budget = await acme.budget()
        print(f"{outcome.status.value}: {budget.spent} of {budget.limit} spent")


if __name__ == "__main__":
    trio.run(main, sys.argv[1] if sys.argv[1:] else "budgets.db")
