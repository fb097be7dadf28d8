"""The breakages: what each one breaks, where, and who has to notice.

``of`` names the promise of the design (1 to 10) or the table that is broken. ``old`` occurs exactly once in the
file; a test holds it to that, so an edit that moves the text has to take its mutant along.
"""

from __future__ import annotations

import attrs

PROMISES = "tests/test_promises.py"
CRASH = "tests/crash/test_every_commit.py"
DYING = "tests/crash/test_dying_processes.py"
FENCES = "tests/crash/test_fences.py"
INVARIANTS = "tests/test_invariants.py"

COMMITS = f"{CRASH}::test_a_kill_before_or_after_any_commit_shows_nowhere_in_the_end"
ORDER = f"{PROMISES}::test_the_order_is_priority_as_a_number_and_then_submission"
LINE = (
    f"{PROMISES}::test_a_task_that_cannot_start_does_not_hold_up_the_line_and_a_retried_one_keeps_its_place"
)
LIMITS = f"{PROMISES}::test_no_admission_goes_above_the_run_limit_nor_an_execution_above_the_other"
FILE_REFUSES = f"{PROMISES}::test_the_file_itself_refuses_a_run_above_the_limit_and_a_slot_that_is_taken"
WHY = f"{PROMISES}::test_every_task_that_is_not_running_says_exactly_why"
KEPT = f"{PROMISES}::test_what_was_asked_for_is_there_after_the_next_start"
LATE = f"{PROMISES}::test_a_result_of_an_attempt_that_was_left_behind_is_late_and_changes_nothing"
KEY = f"{PROMISES}::test_the_idempotency_key_is_the_same_over_retries_and_a_person_s_retry"
ONE_RESULT = f"{PROMISES}::test_the_file_itself_refuses_a_second_result_of_one_generation"
SHOWN = (
    f"{PROMISES}::"
    "test_a_failure_that_is_retried_leaves_its_error_shown_and_an_interruption_does_not_overwrite_it"
)
TRIES = f"{PROMISES}::test_a_node_is_tried_exactly_as_often_as_it_may"
TROUBLE = f"{PROMISES}::test_an_actor_that_crashes_and_a_handler_that_raises_are_no_one_else_s_trouble"
ANSWERED = f"{PROMISES}::test_every_ask_is_answered_also_when_the_store_is_away_and_the_runtime_closes"
MOVES = "tests/core/test_tables.py"
CELLS = f"{MOVES}::test_a_move_is_made_if_the_table_has_it_and_raises_if_not"
BLOCKING = f"{PROMISES}::test_reasons_that_block_are_those_that_no_waiting_ends"
DRAINED = f"{DYING}::test_a_graceful_drain_uses_up_no_death_and_no_try"
CLAIMED = f"{FENCES}::test_an_actor_whose_company_was_claimed_by_another_starts_nothing"
RECOVERERS = f"{FENCES}::test_of_two_that_recover_the_same_orphan_only_the_one_that_wins_acts"
ROLLED_BACK = f"{FENCES}::test_nothing_of_a_unit_that_was_rolled_back_is_ever_seen"
CURSORS = f"{FENCES}::test_readers_that_restart_from_their_cursors_see_every_event_once_and_in_order"
CELL = "tests/core/test_message_by_state.py::test_a_message_does_to_a_task_what_its_cell_says"
DURABILITY = "tests/storage/test_opening.py::test_full_durability_is_the_default"
BATCH = "tests/storage/test_writer.py::test_a_refused_unit_is_rolled_back_alone_wherever_it_stands"
OWNER = "tests/storage/test_ownership.py::test_a_second_opening_in_another_process_is_refused_by_the_name_of_the_first"
STALLS = "tests/attempts/test_stalls.py"
AGES = "tests/runtime/test_retention.py"
RECURRENCE = "tests/core/test_recurrence.py"
TIME = "tests/cases/test_schedules.py"
INBOX_HOST = "tests/inbox/test_inbox_host.py"
CRASHED_INBOX = (
    "tests/crash/test_inbox.py::test_a_kill_at_any_commit_makes_no_message_happen_twice_or_not_at_all"
)
BUDGETS = "tests/core/test_budgets.py"
SOUND = f"{INVARIANTS}::test_a_sound_file_breaks_no_rule"
PEOPLE = "tests/runtime/test_people.py"
LOOP = f"{PEOPLE}::test_a_review_sends_a_draft_back_twice_before_it_is_published"


@attrs.frozen
class Mutant:
    name: str
    of: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


TABLES = (
    "run",
    "node",
    "phase",
    "messages",
    "events",
    "ends",
    "gates",
    "schema",
    "retention",
    "time",
    "inbox",
    "people",
)
"""Every table that has to have a mutant, beside the ten promises; and what people say to a run."""

MUTANTS = [
    Mutant(
        "a full mailbox refuses",
        "1",
        "actors/runtime/mailbox.py",
        "                await self._room.park()",
        '                raise RuntimeError("full")',
        (f"{PROMISES}::test_submitting_to_a_busy_company_never_fails_for_being_busy",),
    ),
    Mutant(
        "priorities are compared as text",
        "2",
        "actors/core/order.py",
        "return (-run.front, task.priority, task.seq)",
        "return (-run.front, str(task.priority), task.seq)  # type: ignore[return-value]",
        (ORDER,),
    ),
    Mutant(
        "one run more than allowed",
        "3",
        "actors/core/facts.py",
        "return max(0, self.company.runs_max - len(self.slots))",
        "return max(0, self.company.runs_max + 1 - len(self.slots))",
        (LIMITS,),
    ),
    Mutant(
        "the file lets two runs have one slot",
        "3",
        "storage/sqlite/sql/schema.sql",
        "CREATE UNIQUE INDEX runs_slot",
        "CREATE INDEX runs_slot",
        (FILE_REFUSES,),
    ),
    Mutant(
        "explain forgets the line",
        "4",
        "actors/core/work_state.py",
        "return gates if line is None else [*gates, line]",
        "return gates",
        (WHY,),
    ),
    Mutant(
        "what is blocked is called waiting",
        "4",
        "actors/messages/views.py",
        "BLOCKING = frozenset(\n    {\n        ReasonKind.UPSTREAM_FAILED,\n",
        "BLOCKING = frozenset(\n    {\n",
        (BLOCKING, WHY),
    ),
    Mutant(
        "a commit is not synced",
        "5",
        "storage/sqlite/opening.py",
        '"full": "PRAGMA synchronous = FULL"',
        '"full": "PRAGMA synchronous = NORMAL"',
        (
            DURABILITY,
            "tests/storage/test_opening.py::test_the_writer_is_set_up_for_the_durability_that_was_asked_for",
        ),
    ),
    Mutant(
        "a transaction is never committed",
        "5",
        "storage/sqlite/connection.py",
        'connection.execute("COMMIT")',
        'connection.execute("ROLLBACK")',
        (KEPT,),
    ),
    Mutant(
        "what ran when the process died is forgotten",
        "5",
        "actors/runtime/recovery.py",
        "    ended = await _orphans(company, state.company.company_id, gone, services)\n",
        "    ended = await _orphans(company, state.company.company_id, gone[:0], services)\n",
        (f"{COMMITS}[chain]",),
    ),
    Mutant(
        "an ask is answered before its commit",
        "5",
        "actors/runtime/company.py",
        "            made = self._decide(taken, prefetched, slots)\n",
        "            made = self._decide(taken, prefetched, slots)\n            self._answer(taken, made)\n",
        (
            "tests/runtime/test_durable_first.py::test_nothing_is_seen_answered_or_started_before_the_commit_returns",
        ),
    ),
    Mutant(
        "the result of an older attempt counts",
        "6",
        "actors/core/task_state.py",
        "return node if node.status is NodeStatus.RUNNING and node.attempts == key.number else None",
        "return node if node.status is NodeStatus.RUNNING else None",
        (LATE,),
    ),
    Mutant(
        "each attempt has its own idempotency key",
        "6",
        "actors/runtime/inputs.py",
        "{attempt.spec.name}/{attempt.generation}",
        "{attempt.spec.name}/{key.number}",
        (KEY,),
    ),
    Mutant(
        "a recoverer acts without having won",
        "6",
        "storage/sqlite/sql/queries.sql",
        "due_ms = ? WHERE company_id = ? AND epoch = ?\n",
        "due_ms = ? WHERE company_id = ? AND ? IS NOT NULL\n",
        (CLAIMED, RECOVERERS),
    ),
    Mutant(
        "two processes own one database",
        "6",
        "storage/sqlite/ownership.py",
        "    while not lock_owner(fd, owner):\n",
        "    while False:\n",
        (OWNER,),
    ),
    Mutant(
        "a retried failure hides its error",
        "7",
        "actors/core/reports.py",
        "status=after, tries=tries, not_before_ms=due, error=report.error)",
        "status=after, tries=tries, not_before_ms=due, error=report.error if last else None)",
        (SHOWN,),
    ),
    Mutant(
        "one try too many",
        "7",
        "actors/core/reports.py",
        "tries >= limit",
        "tries > limit",
        (TRIES,),
    ),
    Mutant(
        "an actor's crash reaches the nursery",
        "8",
        "actors/runtime/supervisor.py",
        "                    await self._survive(cell, error)\n",
        "                    raise\n",
        (TROUBLE,),
    ),
    Mutant(
        "a refused unit takes its neighbours along",
        "8",
        "storage/sqlite/writing.py",
        '            raw.execute("ROLLBACK TO operation")\n',
        "            pass\n",
        (BATCH, ROLLED_BACK),
    ),
    Mutant(
        "silence is not noticed",
        "8",
        "actors/runtime/stalls.py",
        "            self._stalled(attempt)\n",
        "            pass\n",
        (f"{STALLS}::test_progress_keeps_an_attempt_alive_and_silence_ends_it",),
    ),
    Mutant(
        "a mailbox that closes answers nobody",
        "9",
        "actors/runtime/mailbox.py",
        "        self.closed = error\n        self.fail_all(error)\n",
        "        self.closed = error\n",
        (ANSWERED,),
    ),
    Mutant(
        "a reader skips an event at each page",
        "10",
        "storage/sqlite/events.py",
        "LogPlace(lines[-1].position if lines else after)",
        "LogPlace(lines[-1].position + 1 if lines else after)",
        (CURSORS,),
    ),
    Mutant(
        "a failed run cannot be retried",
        "run",
        "actors/core/transitions.py",
        '        R.FAILED: {R.QUEUED: "retry, send back"},\n',
        "        R.FAILED: {},\n",
        (CELLS, LINE),
    ),
    Mutant(
        "a failed node can succeed",
        "node",
        "actors/core/transitions.py",
        '        N.FAILED: {N.PENDING: "fresh allowance"},\n',
        '        N.FAILED: {N.PENDING: "fresh allowance", N.SUCCEEDED: "approve"},\n',
        (CELLS,),
    ),
    Mutant(
        "finalizing does not absorb",
        "phase",
        "actors/core/transitions.py",
        '        P.FINALIZING: {P.FINALIZING: "again"},\n',
        "        P.FINALIZING: {},\n",
        (CELLS,),
    ),
    Mutant(
        "a running task is run again",
        "messages",
        "actors/core/refusals.py",
        '                RUN: ("is running: stop it first", ("Stop",)),\n',
        "",
        (CELL,),
    ),
    Mutant(
        "an event lacks a field of its kind",
        "events",
        "actors/core/advance.py",
        "before=RunStatus.QUEUED, after=RunStatus.RUNNING, slot=slot)",
        "before=RunStatus.QUEUED, after=RunStatus.RUNNING)",
        (SOUND,),
    ),
    Mutant(
        "a shutdown counts as a failure",
        "ends",
        "actors/runtime/executor.py",
        '    "closing": AttemptEnd.INTERRUPTED,\n',
        '    "closing": AttemptEnd.FAILED,\n',
        (DRAINED, SHOWN),
    ),
    Mutant(
        "a pause lets new runs in",
        "gates",
        "actors/core/admission.py",
        "    if state.company.paused_ms is not None and not (entry.run is not None and entry.run.front):\n",
        "    if False:\n",
        (f"{COMMITS}[pause]", KEPT),
    ),
    Mutant(
        "what others have reserved is not counted",
        "gates",
        "actors/core/budget.py",
        "    return all((room := room_in(account)) is None or need <= room for",
        "    return all((room := room_in(account)) is None or need <= room + account.reserved for",
        (f"{BUDGETS}::test_a_node_that_does_not_fit_waits_for_what_others_have_reserved",),
    ),
    Mutant(
        "the file takes a result of a node that failed",
        "schema",
        "storage/sqlite/sql/schema.sql",
        "    CHECK ((result IS NOT NULL) = (status = 'succeeded'))\n",
        "    CHECK (1)\n",
        (ONE_RESULT,),
    ),
    Mutant(
        "a task that others depend on is pruned",
        "retention",
        "storage/sqlite/retention.py",
        '    return [row[0] for row in conn.execute(SQL["dependents_of"], params).fetchall()]\n',
        "    return []\n",
        (
            f"{AGES}::test_an_upstream_stays_for_whom_it_is_a_condition_or_an_input",
            f"{AGES}::test_many_that_need_the_same_go_and_it_goes_after_the_last",
        ),
    ),
    Mutant(
        "a fixed local time follows real time",
        "time",
        "actors/recurrence.py",
        "        if self.fixed:\n",
        "        if False:\n",
        (f"{RECURRENCE}::test_a_fixed_local_time_fires_exactly_once_on_each_date_of_two_years",),
    ),
    Mutant(
        "the file lets a nominal time fire twice",
        "time",
        "storage/sqlite/sql/schema.sql",
        "CREATE UNIQUE INDEX tasks_nominal",
        "CREATE INDEX tasks_nominal",
        (f"{TIME}::test_of_two_processes_only_the_owner_fires_and_the_file_refuses_a_nominal_time_twice",),
    ),
    Mutant(
        "the answer follows in a commit of its own",
        "inbox",
        "actors/runtime/inbox_host.py",
        """        envelope = Envelope(row.message, row, row.stored.number)
        self._begin(row)
        try:
            cell = self._services.directory.cell(row.stored.company)
            row.unit_answers = cell.parked is None
""",
        """        envelope = Envelope(row.message, row)
        self._begin(row)
        try:
            cell = self._services.directory.cell(row.stored.company)
            row.unit_answers = False
""",
        (CRASHED_INBOX, f"{INBOX_HOST}::test_the_answer_is_in_the_very_commit_that_carries_the_message_out"),
    ),
    Mutant(
        "only the judged node is done again",
        "people",
        "actors/core/review.py",
        "    again = [*_reset_users(draft, entry, pos, message.feedback), pos]\n",
        "    again = [pos]\n",
        (LOOP,),
    ),
]
