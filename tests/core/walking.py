"""Random walks of a company: messages, outcomes of attempts, time, limits, refused units, new actors, planted rows.

All chance comes from one ``random.Random``: from Hypothesis, so that a failing walk is shrunk, or from a seed, so
that a long walk is cheap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from actors.core.budget import Spending
from actors.core.draft import AttemptKey
from actors.core.reports import Report
from actors.messages import (
    Approve,
    Archive,
    Backoff,
    DefineGraph,
    Edit,
    Gate,
    Message,
    Next,
    Node,
    Pause,
    PauseSchedule,
    RemoveSchedule,
    Rerun,
    ResumeSchedule,
    Retry,
    RunNow,
    SendBack,
    SetBudget,
    SetLimits,
    SetSchedule,
    Start,
    StartNow,
    Stop,
    StopGoal,
    Submit,
    SubmitMany,
    Unarchive,
    Unpause,
)
from actors.runtime.recovery import Quarantine
from storage.records import AttemptEnd

from .agreement import check_against_file, snapshot, watch
from .world import World, writing

NAMES = "abcdefgh"
SCHEDULES = ("hourly", "nightly")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
GRAPHS: Sequence[tuple[Node | Gate, ...]] = (
    (),
    (Node("one", "x", payload=1),),
    (Node("one", "x", estimate=3), Node("two", "y", after=["one"], estimate=4)),
    (Node("one", "y", tries_max=1), Node("two", "x", tries_max=1)),
    (
        Node("l", "x", retry=Backoff(base_s=1, max_s=4)),
        Node("r", "y"),
        Node("end", "x", after=["l", "r"]),
    ),
    (
        Node("one", "x"),
        Gate("gate", after=["one"]),
        Gate("other"),
        Node("two", "y", after=["one"], estimate=5),
        Node("end", "x", after=["gate", "two"], tries_max=1),
    ),
)
PLACES = ("one", "two", "gate", "other", "l", "r", "end")
"""Names of nodes and gates."""
FITTING: Sequence[tuple[Callable[[str], Message[Any]], str]] = (
    (Retry, "failed"),
    (Retry, "stopped"),
    (Retry, "running"),
    (StartNow, "failed"),
    (StartNow, "queued"),
    (Start, "queued"),
    (Rerun, "completed"),
    (Rerun, "failed"),
    (Rerun, "stopped"),
    (Archive, "completed"),
    (Archive, "failed"),
    (Stop, "running"),
)
"""Messages that do something to a task whose newest run stands so."""
WORDS: Sequence[tuple[Callable[[str], Message[Any]], str]] = (
    (Next, "halted"),
    (Next, "halted"),
    (lambda task: Approve(task, "gate"), "halted"),
    (lambda task: Approve(task, "other", "yes"), "halted"),
    (lambda task: Approve(task, "other"), "running"),
    (lambda task: SendBack(task, "one", "again"), "halted"),
    (lambda task: SendBack(task, "one", "better"), "running"),
    (lambda task: SendBack(task, "one", "more"), "completed"),
    (lambda task: SendBack(task, "one", "less"), "failed"),
    (lambda task: SendBack(task, "one", "once more"), "stopped"),
    (lambda task: SendBack(task, "one", "not yet"), "queued"),
    (lambda task: Rerun(task, from_node="two"), "completed"),
    (lambda task: Rerun(task, from_node="two", payload=2), "failed"),
    (lambda task: Rerun(task, from_node="end"), "halted"),
    (lambda _: Unpause(), "queued"),
    (lambda _: SetLimits(runs_max=2), "queued"),
    (StartNow, "queued"),
    (Retry, "failed"),
    (Retry, "stopped"),
)
"""What people say to a run at a gate, before a step, or about its results; and what keeps all going."""


PLANTED_EDGE = "INSERT OR IGNORE INTO edges VALUES (1, ?, ?, NULL)"
PLANTED_HALT = (
    "UPDATE runs SET status = 'halted', halted_ms = 1 WHERE seq = ? AND status = 'queued' AND admitted_ms > 0"
)
PLANTED_HOLE = """
    DELETE FROM runs WHERE seq = ? AND admitted_ms IS NULL
    AND NOT EXISTS (SELECT 1 FROM runs AS other WHERE other.seq = runs.seq AND other.number > 1)"""


class Walk:
    def __init__(
        self,
        rng: Random,
        *,
        planting: bool = False,
        people: bool = False,
        graphs: Sequence[tuple[Node | Gate, ...]] = GRAPHS,
    ) -> None:
        self.rng = rng
        self.graphs = graphs
        self.world = World(runs_max=3, handlers={"x", "y"}, executions_max=4)
        self.story: list[str] = []
        """What was done, for the one who has to find out."""
        self.last: Report | None = None
        self.said: dict[AttemptKey, int] = {}
        """What attempts have said that they spent."""
        self.steps: list[Callable[[], None]] = [
            self.messages,
            self.messages,
            self.a_fitting_message,
            self.a_fitting_message,
            self.a_fitting_message,
            self.back_again,
            self.outcomes,
            self.outcomes,
            self.all_succeed,
            self.both,
            self.a_refused_turn,
            self.time_passes,
            self.execution_slots,
            self.a_new_actor,
            self.quarantine,
            self.nobody_looked,
            self.spendings,
        ]
        if planting:
            self.steps.append(self.plant)
        if people:
            self.steps = [
                *[self.a_word] * 5,
                *[self.outcomes] * 3,
                self.all_succeed,
                self.all_succeed,
                self.messages,
                self.back_again,
                self.a_refused_turn,
                self.time_passes,
                self.a_new_actor,
            ]
        watch(self.world)

    def go(self, steps: int) -> None:
        try:
            self.turn(DefineGraph("g", GRAPHS[2]), self.everything())
            for _ in range(steps):
                step = self.pick(self.steps)
                self.story.append(step.__name__)
                step()
                check_against_file(self.world)
        except Exception as error:
            error.add_note("\n".join(self.story[-60:]))
            raise

    # --- chance -------------------------------------------------------------------------------------------------

    def pick(self, among: Sequence[Any]) -> Any:
        return among[self.rng.randrange(len(among))]

    def maybe(self, one_in: int = 2) -> bool:
        return self.rng.randrange(one_in) == 0

    def some(self, among: Sequence[str], most: int) -> list[str]:
        left = list(among)
        count = self.rng.randrange(min(most, len(left)) + 1)
        return [left.pop(self.rng.randrange(len(left))) for _ in range(count)]

    # --- messages -------------------------------------------------------------------------------------------------

    def submit(self, task: str | None, above: Sequence[str], *, key: str | None = None) -> Submit:
        return Submit(
            "title",
            id=task,
            depends_on=[up for up in self.some(above, 2) if up != task],
            priority=self.rng.randrange(1, 4),
            mode=self.pick(["auto", "auto", "auto", "auto", "manual", "step"]),
            goal="goal" if self.maybe(3) else None,
            key=key,
            tries_max=self.pick([None, None, 1, 2]),
            send_backs_max=self.pick([None, None, 1, 2]),
            fail_fast=self.maybe(3),
            not_before=self.soon(),
            budget=self.pick([None, None, None, 0, 6, 20]),
            **self.shape(),
        )

    def soon(self) -> datetime | None:
        """A moment of the next seconds, now and then."""
        if not self.maybe(6):
            return None
        return EPOCH + timedelta(milliseconds=self.world.now_ms + self.rng.randrange(-1_000, 6_000))

    def schedule(self) -> SetSchedule:
        return SetSchedule(
            self.pick(SCHEDULES),
            every=self.pick([2, 3, 5]),
            task=Submit("of a schedule", handler=self.pick(["x", "y"]), depends_on=self.some(NAMES, 1)),
            overlap=self.pick(["skip", "queue"]),
            misfire=self.pick(["latest", "skip"]),
            jitter_s=self.pick([0, 0, 2]),
        )

    def shape(self) -> dict[str, Any]:
        return self.pick(  # type: ignore[no-any-return]
            [{"handler": "x"}, {"graph": "g"}, *({"nodes": nodes} for nodes in self.graphs)]
        )

    def everything(self) -> SubmitMany:
        """Every task, each depending on some before it."""
        return SubmitMany([self.submit(task, NAMES[:i]) for i, task in enumerate(NAMES)])

    def batch(self) -> SubmitMany:
        """Some tasks in any order, depending on anything."""
        chosen = ["new", *self.some(NAMES, 2)]
        self.rng.shuffle(chosen)
        return SubmitMany([self.submit(task, [*NAMES, "new"]) for task in chosen])

    def edit(self) -> Edit:
        fields: dict[str, Callable[[], Any]] = {
            "priority": lambda: self.rng.randrange(1, 4),
            "tries_max": lambda: self.pick([None, 1, 2]),
            "depends_on": lambda: self.some([*NAMES, "new"], 2),
            "send_backs_max": lambda: self.pick([None, 0, 3]),
            "mode": lambda: self.pick(["auto", "manual", "step"]),
            "goal": lambda: self.pick([None, "goal"]),
            "payload": lambda: 1,
            "fail_fast": self.maybe,
            "budget": lambda: self.pick([None, 4, 30]),
            "not_before": self.soon,
        }
        chosen = {name: fields[name]() for name in self.some(list(fields), 2)}
        shape = self.shape() if self.maybe() else {}
        return Edit(self.pick(NAMES), title="other", **chosen, **shape)

    def message(self) -> Message[Any]:
        kinds: list[Callable[[], Message[Any]]] = [
            self.edit,
            self.edit,
            self.batch,
            lambda: self.submit(self.pick([None, "new", *NAMES]), NAMES, key=self.pick([None, "k"])),
            lambda: self.pick([Start, StartNow, Stop, Retry, Rerun, Archive, Unarchive])(self.pick(NAMES)),
            lambda: self.pick([Start, StartNow, Stop, Retry, Rerun, Archive, Unarchive])(self.pick(NAMES)),
            lambda: self.to_a_node(self.pick(NAMES), self.pick(PLACES)),
            lambda: self.to_a_node(self.pick(NAMES), self.pick(PLACES)),
            lambda: SetLimits(runs_max=self.pick([0, 1, 2, 3, 4])),
            lambda: self.pick([Pause(), Unpause(), Unpause(), Unpause(), StopGoal("goal")]),
            lambda: SetBudget(self.pick([None, None, None, 0, 5, 15, 60])),
            lambda: DefineGraph("g", self.pick(self.graphs)),
            self.schedule,
            lambda: self.pick([PauseSchedule, ResumeSchedule, RemoveSchedule, RunNow])(self.pick(SCHEDULES)),
        ]
        return self.pick(kinds)()  # type: ignore[no-any-return]

    def to_a_node(self, task: str, node: str) -> Message[Any]:
        return self.pick(  # type: ignore[no-any-return]
            [
                Approve(task, node),
                SendBack(task, node, self.pick(["again", "better"])),
                Rerun(task, from_node=node),
                Next(task),
            ]
        )

    def outcome(self, key: AttemptKey) -> Report:
        others = [end for end in AttemptEnd if end is not AttemptEnd.SUPERSEDED]
        ends = [*others, *[AttemptEnd.SUCCEEDED] * 5, AttemptEnd.FAILED]
        if any(effect.key == key and effect.why == "superseded" for effect in self.world.cancelled):
            ends.append(AttemptEnd.SUPERSEDED)
        end = self.pick(ends)
        node = self.world.running[key].spec.name
        spent = None if end is AttemptEnd.LOST else self.spent_by(key)
        if end is AttemptEnd.SUCCEEDED:
            return Report(key, end, result="1", spent=spent, node=node)
        if end is AttemptEnd.FAILED:
            return Report(key, end, error="E", give_up=self.maybe(), spent=spent, node=node)
        again_s = self.pick([None, 2.0]) if end is AttemptEnd.INTERRUPTED else None
        return Report(key, end, again_s=again_s, spent=spent, node=node)

    def spent_by(self, key: AttemptKey) -> int | None:
        """What the attempt says of its spending, more from time to time."""
        said = self.said.get(key, 0) + self.pick([0, 0, 0, 1, 4])
        self.said[key] = said
        return said if said or self.world.running[key].spec.estimate else None

    def spendings(self) -> None:
        """Live attempts say what they have spent so far, and one that has ended does."""
        alive = [key for key in self.world.running if self.maybe()]
        late = [self.last.key] if self.last is not None and self.last.key in self.said else []
        for key in late:
            self.said[key] += 1
        said = [Spending(key, self.spent_by(key) or 0, self.world.running[key].spec.name) for key in alive]
        name = None if self.last is None else self.last.node
        self.turn(*said, *(Spending(key, self.said[key], name) for key in late))

    def some_outcomes(self, most: int) -> list[Report]:
        alive = list(self.world.running)
        count = min(len(alive), self.rng.randrange(most + 1))
        chosen = [alive.pop(self.rng.randrange(len(alive))) for _ in range(count)]
        late = [self.last] if self.last is not None and self.maybe(8) else []
        return [*(self.outcome(key) for key in chosen), *late]

    # --- steps ------------------------------------------------------------------------------------------------------

    def turn(self, *contents: Message[Any] | Report | Spending, moves_max: int = 200) -> None:
        for content in contents:
            self.story.append(f"  {content!r}")
            if isinstance(content, Report):
                self.last = content
        for answer in self.world.turn(*contents, moves_max=moves_max):
            self.story.append(f"    -> {answer!r}")

    def messages(self) -> None:
        count = self.rng.randrange(1, 4)
        self.turn(*[self.message() for _ in range(count)], moves_max=self.pick([200, 200, 1, 2]))

    def both(self) -> None:
        self.turn(*self.some_outcomes(2), self.message(), self.message())

    def a_fitting_message(self) -> None:
        self.fit(*self.pick(FITTING))

    def a_word(self) -> None:
        self.fit(*self.pick(WORDS))

    def fit(self, kind: Callable[[str], Message[Any]], status: str) -> None:
        tasks = [
            row[0]
            for row in self.world.stored(
                "SELECT task.id FROM tasks AS task JOIN runs AS run USING (company_id, seq)"
                " WHERE run.status = ? AND task.archived_ms IS NULL ORDER BY task.seq",
                status,
            )
        ]
        if tasks:
            self.turn(kind(self.pick(tasks)))

    def back_again(self) -> None:
        """An archived or quarantined task comes back."""
        tasks = [
            row[0] for row in self.world.stored("SELECT id FROM tasks WHERE archived_ms > 0 ORDER BY seq")
        ]
        tasks += [
            row[0]
            for row in self.world.stored(
                "SELECT task.id FROM tasks AS task JOIN quarantine USING (company_id, seq) ORDER BY task.seq"
            )
        ]
        if tasks:
            task = self.pick(tasks)
            self.turn(Unarchive(task), Retry(task))

    def outcomes(self) -> None:
        self.turn(*self.some_outcomes(4))

    def all_succeed(self) -> None:
        self.turn(
            *[
                Report(key, AttemptEnd.SUCCEEDED, result="1", node=one.spec.name)
                for key, one in self.world.running.items()
            ]
        )

    def a_refused_turn(self) -> None:
        """The database refuses the unit: in memory nothing happened."""
        contents = [self.message() for _ in range(self.rng.randrange(3))]
        reports = self.some_outcomes(3)
        self.world.look(contents)
        self.world.look(contents, reports)  # what the first look brought in may need its own upstreams
        before = snapshot(self.world)
        self.story.append(f"  {[*reports, *contents]!r}")
        self.world.turn(*reports, *contents, commit=False)
        assert snapshot(self.world) == before

    def time_passes(self) -> None:
        self.world.wait(self.rng.randrange(1, 6))

    def nobody_looked(self) -> None:
        """For so long that schedules missed some of their times."""
        if self.maybe(3):
            self.world.wait(100)

    def execution_slots(self) -> None:
        self.world.slots.free = self.rng.randrange(5)
        self.turn()

    def a_new_actor(self) -> None:
        self.world.handlers = frozenset(self.pick([{"x", "y"}, {"x", "y"}, {"x"}]))
        self.world.reload()

    def quarantine(self) -> None:
        if not self.maybe(4):
            return
        task = self.pick(NAMES)
        rows = self.world.stored("SELECT seq FROM tasks WHERE id = ?", task)
        if rows:
            self.story.append(f"  {task}")
            with writing(self.world.conn):
                Quarantine(self.world.name, task, rows[0][0], "why", None, self.world.now_ms)(self.world.conn)
            for key in self.world.attempts(task):
                del self.world.running[key]
                self.world.slots.held.discard(key)
            self.world.reload()

    def plant(self) -> None:
        """Rows that no message can make: an upstream that is not there, any edge at all, a run that is gone, a halt."""
        rows = self.world.stored("SELECT seq FROM tasks ORDER BY seq")
        if not rows:
            return
        seq = self.pick(rows)[0]
        statement, *params = self.pick(
            [
                (PLANTED_EDGE, seq, "ghost"),
                (PLANTED_EDGE, seq, "new"),
                (PLANTED_EDGE, seq, self.pick(NAMES)),
                (PLANTED_EDGE, seq, self.pick(NAMES)),
                (PLANTED_HALT, seq),
                (PLANTED_HOLE, seq),
            ]
        )
        self.story.append(f"  {statement} {params}")
        self.world.plant(statement, *params)
