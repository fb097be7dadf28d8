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
LOWERED = f"{PROMISES}::test_lowering_the_limit_stops_nothing_and_lets_nothing_in_until_the_count_is_below"
FILE_REFUSES = f"{PROMISES}::test_the_file_itself_refuses_a_run_above_the_limit_and_a_slot_that_is_taken"
WHY = f"{PROMISES}::test_every_task_that_is_not_running_says_exactly_why"
FREED = f"{PROMISES}::test_what_is_blocked_is_free_the_moment_its_cause_is_gone"
KEPT = f"{PROMISES}::test_what_was_asked_for_is_there_after_the_next_start"
LATE = f"{PROMISES}::test_a_result_of_an_attempt_that_was_left_behind_is_late_and_changes_nothing"
STOPPED = f"{PROMISES}::test_a_result_that_comes_after_the_stop_was_committed_changes_nothing"
KEY = f"{PROMISES}::test_the_idempotency_key_is_the_same_over_retries_and_a_person_s_retry"
ONE_RESULT = f"{PROMISES}::test_the_file_itself_refuses_a_second_result_of_one_generation"
SHOWN = (
    f"{PROMISES}::"
    "test_a_failure_that_is_retried_leaves_its_error_shown_and_an_interruption_does_not_overwrite_it"
)
TRIES = f"{PROMISES}::test_a_node_is_tried_exactly_as_often_as_it_may"
TROUBLE = f"{PROMISES}::test_an_actor_that_crashes_and_a_handler_that_raises_are_no_one_else_s_trouble"
ANSWERED = f"{PROMISES}::test_every_ask_is_answered_also_when_the_store_is_away_and_the_runtime_closes"
STORY = f"{PROMISES}::test_the_whole_story_of_a_task_is_told_in_its_order"
MOVES = "tests/core/test_tables.py"
CELLS = f"{MOVES}::test_a_move_is_made_if_the_table_has_it_and_raises_if_not"
FROZEN = f"{MOVES}::test_a_table_cannot_be_changed_at_any_level"
BLOCKING = f"{PROMISES}::test_reasons_that_block_are_those_that_no_waiting_ends"
FIVE_DEATHS = f"{DYING}::test_a_node_under_which_the_process_dies_five_times_fails_and_the_others_run_on"
SUSPECTS = f"{DYING}::test_suspects_of_all_companies_execute_one_at_a_time_until_they_succeed"
HOSTS = f"{DYING}::test_the_number_of_a_pruned_host_is_not_given_to_the_next"
FOUND_DEAD = f"{DYING}::test_a_node_found_dead_blocks_its_dependents_just_as_one_that_failed"
DRAINED = f"{DYING}::test_a_graceful_drain_uses_up_no_death_and_no_try"
FORGIVEN = f"{DYING}::test_a_success_forgets_the_deaths_before_it"
CLAIMED = f"{FENCES}::test_an_actor_whose_company_was_claimed_by_another_starts_nothing"
RECOVERERS = f"{FENCES}::test_of_two_that_recover_the_same_orphan_only_the_one_that_wins_acts"
ROLLED_BACK = f"{FENCES}::test_nothing_of_a_unit_that_was_rolled_back_is_ever_seen"
CURSORS = f"{FENCES}::test_readers_that_restart_from_their_cursors_see_every_event_once_and_in_order"
REUSED = f"{FENCES}::test_a_cursor_never_comes_to_point_at_another_event"
CELL = "tests/core/test_message_by_state.py::test_a_message_does_to_a_task_what_its_cell_says"
DURABILITY = "tests/storage/test_opening.py::test_full_durability_is_the_default"
BATCH = "tests/storage/test_writer.py::test_a_refused_unit_is_rolled_back_alone_wherever_it_stands"
UNITS = "tests/storage/test_units.py"
OWNER = "tests/storage/test_ownership.py::test_a_second_opening_in_another_process_is_refused_by_the_name_of_the_first"
FAIR = "tests/attempts/test_fairness.py"
WAITING = "tests/attempts/test_waiting.py"
PROMISED = "test_a_slot_that_was_promised_to_a_company_is_not_given_to_one_that_comes_back_before_it_was_used"
DEAF = "tests/attempts/test_deaf_commands.py"
SUSPECT = "tests/attempts/test_suspects.py"
WATCHDOG = "tests/attempts/test_watchdog.py"
OUTLIVED = "test_commands_that_outlived_their_host_are_ended_before_their_nodes_run_again"
STOPPING = "tests/cli/test_stopping.py"
MANAGED = "test_a_service_managers_stop_within_its_limit_leaves_no_lock_and_costs_no_tries"
PROCESSES = "tests/cli/test_processes.py"
STALLS = "tests/attempts/test_stalls.py"
WAKES = "tests/attempts/test_lost_wakes.py"
CRASHES = (
    "tests/attempts/test_actor_crashes.py::test_a_crash_of_the_actor_runs_nothing_twice_and_loses_nothing"
)
STOPS = "tests/attempts/test_stops.py"
STOPPED_ANYWHERE = f"{STOPS}::test_a_stop_ends_the_task_within_the_grace_and_twice_is_harmless"
LATE_RESULTS = "tests/attempts/test_late_results.py"
COMES_LATE = f"{LATE_RESULTS}::test_a_late_result_is_recorded_and_changes_nothing"
CLOSING = "tests/runtime/test_closing.py"
NOT_BEGUN = (
    f"{CLOSING}::test_a_child_that_was_started_and_has_not_begun_when_closing_begins_does_no_work[async]"
)
FAR_AWAY = "tests/core/test_retry.py::test_times_far_away_that_no_node_waits_for_any_more_are_not_kept"
CLEARED = (
    "tests/core/test_against_the_oracle.py::"
    "test_due_times_are_what_the_definitions_say_however_often_they_are_cleared[8]"
)
NOT_LOOKED_UP = (
    "tests/runtime/test_crashes.py::"
    "test_a_message_that_cannot_even_be_looked_up_is_answered_and_not_taken_again"
)
GAUGES = "tests/runtime/test_statistics.py::test_every_gauge_shows_what_it_is_named_for"
AGES = "tests/runtime/test_retention.py"
FLOORS = "tests/runtime/test_cursor_too_old.py"
DELETION = "tests/runtime/test_deletion.py"
MAINTENANCE = "tests/runtime/test_maintenance.py"
COPIES = "tests/storage/test_backup.py"
BOUNDS = "tests/cases/test_storage_bounds.py"
SWEEP_BOUND = (
    f"{BOUNDS}::test_the_sweep_s_question_costs_a_company_no_more_than_a_bound_and_everything_gets_its_turn"
)
NOMINAL = "tests/core/test_nominal.py"
SCHEDULES = "tests/core/test_schedules.py"
BY_STATE = "tests/core/test_schedule_by_state.py"
TIME = "tests/cases/test_schedules.py"
ROUND = "tests/runtime/test_schedules.py"
INTAKE = "tests/inbox/test_inbox_host.py"
LETTERS = "tests/inbox/test_inbox_client.py"
CONTRACT_INBOX = "tests/storage/contract/test_inbox.py"
SUPERVISION = "tests/runtime/test_supervision.py"
CONTRACT_RETENTION = "tests/storage/contract/test_retention.py"
WIRE = "tests/inbox/test_wire.py"
CRASHED_INBOX = (
    "tests/crash/test_inbox.py::test_a_kill_at_any_commit_makes_no_message_happen_twice_or_not_at_all"
)
STEERING = "tests/cli/test_steering.py"
BUDGETS = "tests/core/test_budgets.py"
SPENDING = "tests/runtime/test_budgets.py"
C67 = (
    "tests/cases/test_budgets.py::"
    "test_of_ten_that_are_ready_three_start_and_a_crash_keeps_what_they_have_reserved"
)
SOUND = f"{INVARIANTS}::test_a_sound_file_breaks_no_rule"
GATES = "tests/core/test_gates.py"
BACK = "tests/core/test_send_back.py"
PEOPLE = "tests/runtime/test_people.py"
THREE_DAYS = f"{PEOPLE}::test_a_company_whose_first_task_waits_three_days_for_a_person_loses_nothing"
LOOP = f"{PEOPLE}::test_a_review_sends_a_draft_back_twice_before_it_is_published"
MADE_UP_FOR = f"{PEOPLE}::test_a_cancellation_that_was_lost_is_made_up_for"
CHECKS = f"{GATES}::test_the_file_itself_refuses_what_no_run_can_be"
C31 = (
    "tests/cases/test_people.py::test_send_backs_and_drains_do_not_count_towards_the_backoff_nor_use_up_tries"
)


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
    # --- 1. queueing, not refusing
    Mutant(
        "a full mailbox refuses",
        "1",
        "actors/runtime/mailbox.py",
        "                await self._room.park()",
        '                raise RuntimeError("full")',
        (f"{PROMISES}::test_submitting_to_a_busy_company_never_fails_for_being_busy",),
    ),
    # --- 2. order
    Mutant(
        "priorities are compared as text",
        "2",
        "actors/core/order.py",
        "return (-run.front, task.priority, task.seq)",
        "return (-run.front, str(task.priority), task.seq)  # type: ignore[return-value]",
        (ORDER,),
    ),
    Mutant(
        "the last submitted goes first",
        "2",
        "actors/core/order.py",
        "return (-run.front, task.priority, task.seq)",
        "return (-run.front, task.priority, -task.seq)",
        (ORDER,),
    ),
    Mutant(
        "a closed gate holds up the line",
        "2",
        "actors/core/state.py",
        "if entry.queued and entry.run is not None and is_open(entry):",
        "if entry.queued and entry.run is not None:",
        (LINE,),
    ),
    # --- 3. admission
    Mutant(
        "one run more than allowed",
        "3",
        "actors/core/state.py",
        "return max(0, self.company.runs_max - len(self.slots))",
        "return max(0, self.company.runs_max + 1 - len(self.slots))",
        (LIMITS,),
    ),
    Mutant(
        "executions are not counted",
        "3",
        "actors/runtime/slots.py",
        "return self._registry.slots_in_use + sum(self._offers.values())",
        "return sum(self._offers.values())",
        (LIMITS,),
    ),
    Mutant(
        "the file lets one run more in",
        "3",
        "storage/sqlite/sql/schema.sql",
        """CREATE TRIGGER runs_admission_by_update BEFORE UPDATE OF slot ON runs WHEN NEW.slot > 0 AND OLD.slot = 0
BEGIN
    SELECT RAISE(ABORT, 'runs_max reached')""",
        """CREATE TRIGGER runs_admission_by_update BEFORE UPDATE OF slot ON runs WHEN NEW.slot > 0 AND OLD.slot = 0
BEGIN
    SELECT RAISE(IGNORE)""",
        (FILE_REFUSES,),
    ),
    Mutant(
        "the file lets two runs have one slot",
        "3",
        "storage/sqlite/sql/schema.sql",
        "CREATE UNIQUE INDEX runs_slot",
        "CREATE INDEX runs_slot",
        (FILE_REFUSES,),
    ),
    # --- 4. no lie in the queue
    Mutant(
        "explain forgets the line",
        "4",
        "actors/core/work_state.py",
        "return gates if line is None else [*gates, line]",
        "return gates",
        (WHY,),
    ),
    Mutant(
        "blocked does not dissolve",
        "4",
        "actors/core/state.py",
        "            dependent.dead += dead\n",
        "            dependent.dead += max(0, dead)\n",
        (FREED,),
    ),
    Mutant(
        "what is blocked is called waiting",
        "4",
        "actors/states.py",
        "BLOCKING = frozenset(\n    {\n        ReasonKind.UPSTREAM_FAILED,\n",
        "BLOCKING = frozenset(\n    {\n",
        (BLOCKING, WHY),
    ),
    # --- 5. nothing is lost
    Mutant(
        "an ask is answered before its commit",
        "5",
        "actors/runtime/company.py",
        "            answer = Value(decide(draft, content, looked))\n",
        "            answer = Value(decide(draft, content, looked))\n            envelope.answer(answer.value)\n",
        (f"{COMMITS}[chain]",),
    ),
    Mutant(
        "what ran when the process died is forgotten",
        "5",
        "actors/runtime/recovery.py",
        "    ended = await _orphans(company, state.company.company_id, gone, around)\n",
        "    ended = await _orphans(company, state.company.company_id, gone[:0], around)\n",
        (f"{COMMITS}[chain]",),
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
        "a run's moves are not written",
        "5",
        "storage/sqlite/unit_of_work.py",
        "    changed = [_run_row(unit.claim.company_id, run) for unit in units for run in unit.runs]\n",
        "    changed: list[Row] = []\n",
        (SOUND, KEPT),
    ),
    Mutant(
        "a company's settings are not written",
        "5",
        "storage/sqlite/unit_of_work.py",
        "for unit in units if unit.company is not None)",
        "for unit in units if unit.company is None)",
        (KEPT,),
    ),
    Mutant(
        "two turns of one company are written as if they were of two",
        "2",
        "storage/sqlite/writing.py",
        "(turn is None or turn.claim.company_id in companies)",
        "turn is None",
        (f"{UNITS}::test_two_turns_of_one_company_in_one_batch_keep_their_order",),
    ),
    Mutant(
        "what is written between two turns is written after them",
        "2",
        "storage/sqlite/writing.py",
        "(turn is None or turn.claim.company_id in companies)",
        "turn is not None and turn.claim.company_id in companies",
        (f"{UNITS}::test_a_unit_between_turns_is_run_between_them",),
    ),
    Mutant(
        "the file lets one run more be born active",
        "3",
        "storage/sqlite/sql/schema.sql",
        "CREATE TRIGGER runs_admission_by_insert BEFORE INSERT ON runs WHEN NEW.slot > 0\n",
        "CREATE TRIGGER runs_admission_by_insert BEFORE INSERT ON runs WHEN NEW.slot > 99\n",
        (FILE_REFUSES,),
    ),
    # --- 6. at least once, accepted once
    Mutant(
        "the result of an older attempt counts",
        "6",
        "actors/core/entry.py",
        "return node if node.status is NodeStatus.RUNNING and node.attempts == key.number else None",
        "return node if node.status is NodeStatus.RUNNING else None",
        (LATE,),
    ),
    Mutant(
        "a result after the stop counts",
        "6",
        "actors/core/reports.py",
        "    if entry.run.status is RunStatus.STOPPING:\n        _end_stopped",
        "    if entry.run.status is RunStatus.STOPPING and report.result is None:\n        _end_stopped",
        (STOPPED,),
    ),
    Mutant(
        "each attempt has its own idempotency key",
        "6",
        "actors/runtime/execution.py",
        "{attempt.spec.name}/{attempt.generation}",
        "{attempt.spec.name}/{key.number}",
        (KEY,),
    ),
    Mutant(
        "the file takes two results of one generation",
        "6",
        "storage/sqlite/sql/schema.sql",
        "CREATE UNIQUE INDEX attempts_accepted",
        "CREATE INDEX attempts_accepted",
        (ONE_RESULT,),
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
        "            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)\n",
        "            pass\n",
        (OWNER,),
    ),
    # --- 7. failed means given up
    Mutant(
        "a retried failure hides its error",
        "7",
        "actors/core/reports.py",
        "status=after, tries=tries, not_before_ms=due, error=report.error)",
        "status=after, tries=tries, not_before_ms=due, error=report.error if last else None)",
        (SHOWN,),
    ),
    Mutant(
        "an interruption is shown as an error",
        "7",
        "actors/core/reports.py",
        "    draft.node(entry, node.pos, status=NodeStatus.PENDING)\n",
        "    draft.node(entry, node.pos, status=NodeStatus.PENDING, error=report.error)\n",
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
        "a failure without text has no name",
        "7",
        "actors/runtime/describe.py",
        'return clean_text(f"{name}: {text}") if text else name',
        'return clean_text(f"{name}: {text}") if text else ""',
        (SHOWN,),
    ),
    # --- 8. one company's trouble is its own
    Mutant(
        "an actor's crash reaches the nursery",
        "8",
        "actors/runtime/supervisor.py",
        "                    await self._survive(cell, error)\n",
        "                    raise\n",
        (TROUBLE,),
    ),
    Mutant(
        "all the suspects at once",
        "8",
        "actors/core/advance.py",
        "    return node.unclean >= SUSPECT_FROM\n",
        "    return False\n",
        (FIVE_DEATHS, SUSPECTS),
    ),
    Mutant(
        "a killer runs for ever",
        "8",
        "actors/core/reports.py",
        "    enough = unclean >= UNCLEAN_MAX\n",
        "    enough = False\n",
        (FIVE_DEATHS,),
    ),
    Mutant(
        "a success does not clear a suspect",
        "8",
        "actors/core/reports.py",
        "    draft.node(entry, node.pos, status=NodeStatus.SUCCEEDED, unclean=0)\n",
        "    draft.node(entry, node.pos, status=NodeStatus.SUCCEEDED)\n",
        (FORGIVEN, SUSPECTS),
    ),
    Mutant(
        "a suspect that is kept back is never woken",
        "8",
        "actors/runtime/company.py",
        "            self.around.slots.keep_back(self.name)\n",
        "            pass\n",
        (SUSPECTS,),
    ),
    Mutant(
        "a refused unit takes its neighbours along",
        "8",
        "storage/sqlite/writing.py",
        '            raw.execute("ROLLBACK TO operation")\n',
        "            pass\n",
        (BATCH, ROLLED_BACK),
    ),
    # --- 9. a message is answered
    Mutant(
        "a mailbox that closes answers nobody",
        "9",
        "actors/runtime/mailbox.py",
        "        self.closed = error\n        self.fail_all(error)\n",
        "        self.closed = error\n",
        (ANSWERED,),
    ),
    Mutant(
        "the guilty message is not answered",
        "9",
        "actors/runtime/company.py",
        "            guilty.fail(ActorCrashed(self.name, describe(error)))\n            self.mailbox.put_back",
        "            self.mailbox.put_back",
        (TROUBLE,),
    ),
    # --- 10. the log is complete
    Mutant(
        "an archive is not told",
        "10",
        "actors/core/decide.py",
        '    draft.event("task.archived", entry)\n',
        "    pass\n",
        (STORY, SOUND),
    ),
    Mutant(
        "an event comes before its commit",
        "10",
        "actors/runtime/company.py",
        "            committed = await self._commit(turn, slots)\n",
        "            assert turn.draft is not None\n"
        "            self.around.published(self.name, tuple(turn.draft.events), Committed(0, 0, ()))\n"
        "            committed = await self._commit(turn, slots)\n",
        (f"{FENCES}::test_nothing_is_said_before_it_is_durable",),
    ),
    Mutant(
        "numbers of a company have gaps",
        "10",
        "storage/sqlite/events.py",
        "            None if first_seq is None else first_seq + place,\n",
        "            None if first_seq is None else first_seq + 2 * place,\n",
        (STORY, SOUND),
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
        "a position is used again",
        "10",
        "storage/sqlite/sql/schema.sql",
        "    position    INTEGER PRIMARY KEY AUTOINCREMENT,",
        "    position    INTEGER PRIMARY KEY,              ",
        (REUSED,),
    ),
    Mutant(
        "a host's number is used again",
        "5",
        "storage/sqlite/sql/schema.sql",
        "    host_id     INTEGER PRIMARY KEY AUTOINCREMENT,",
        "    host_id     INTEGER PRIMARY KEY,              ",
        (HOSTS,),
    ),
    # --- the tables
    Mutant(
        "a failed run cannot be retried",
        "run",
        "actors/core/transitions.py",
        '        R.FAILED: {R.QUEUED: "retry, send back"},\n',
        "        R.FAILED: {},\n",
        (CELLS, LINE),
    ),
    Mutant(
        "a completed run can be queued again",
        "run",
        "actors/core/transitions.py",
        "        R.COMPLETED: {},\n",
        '        R.COMPLETED: {R.QUEUED: "retry"},\n',
        (CELLS,),
    ),
    Mutant(
        "a skipped node stays so",
        "node",
        "actors/core/transitions.py",
        '        N.SKIPPED: {N.PENDING: "fresh allowance"},\n',
        "        N.SKIPPED: {},\n",
        (CELLS, LATE),
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
        "what is cancelled may go on executing",
        "phase",
        "actors/core/transitions.py",
        '        P.CANCELLING: {P.FINALIZING: "end"},\n',
        '        P.CANCELLING: {P.FINALIZING: "end", P.EXECUTING: "go on"},\n',
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
        "a move outside its table is made",
        "phase",
        "actors/core/transitions.py",
        "    if after not in table.get(before, {}):\n",
        "    if False:\n",
        (CELLS,),
    ),
    Mutant(
        "a table can be changed inside",
        "run",
        "actors/core/transitions.py",
        "return MappingProxyType({before: MappingProxyType(after) for before, after in rows.items()})",
        "return MappingProxyType({before: after for before, after in rows.items()})",
        (FROZEN,),
    ),
    Mutant(
        "a running task is run again",
        "messages",
        "actors/core/decide.py",
        '                RUN: ("is running: stop it first", ("Stop",)),\n',
        "",
        (CELL,),
    ),
    Mutant(
        "a completed task is started",
        "messages",
        "actors/core/decide.py",
        "        StartNow: MappingProxyType({ING: _STOPPING, DONE: _COMPLETED}),\n",
        "        StartNow: MappingProxyType({ING: _STOPPING}),\n",
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
        "actors/runtime/execution.py",
        '    "closing": AttemptEnd.INTERRUPTED,\n',
        '    "closing": AttemptEnd.FAILED,\n',
        (DRAINED, SHOWN),
    ),
    Mutant(
        "a lost attempt uses up a try",
        "ends",
        "actors/core/reports.py",
        "    draft.node(entry, node.pos, status=after, unclean=unclean, error=error)\n",
        "    draft.node(entry, node.pos, status=after, unclean=unclean, error=error, tries=node.tries + 1)\n",
        (f"{COMMITS}[chain]", FIVE_DEATHS),
    ),
    Mutant(
        "a node found dead is only told as lost",
        "ends",
        "actors/core/reports.py",
        "    after = NodeStatus.FAILED if enough else NodeStatus.PENDING\n",
        "    after = NodeStatus.SKIPPED if enough else NodeStatus.PENDING\n",
        (FOUND_DEAD,),
    ),
    Mutant(
        "a pause lets new runs in",
        "gates",
        "actors/core/gates.py",
        "    if state.company.paused_ms is not None and not (entry.run is not None and entry.run.front):\n",
        "    if False:\n",
        (f"{COMMITS}[pause]", KEPT),
    ),
    Mutant(
        "a failed upstream is no gate",
        "gates",
        "actors/core/gates.py",
        "        lambda entry: not entry.admitted and entry.dead > 0,\n",
        "        lambda entry: False,\n",
        (WHY,),
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
        "a lowered limit is not in force at once",
        "3",
        "actors/core/decide.py",
        "    draft.company(runs_max=runs_max, weight=weight)\n",
        "    draft.company(runs_max=max(company.runs_max, runs_max), weight=weight)\n",
        (LOWERED, f"{COMMITS}[limits]"),
    ),
    Mutant(
        "a writer answers before it has committed",
        "5",
        "storage/group_commit.py",
        "        outcomes = await self._commit_whatever_comes([submitted.operation for submitted in batch])\n",
        "        for submitted in batch:\n            submitted.answer(Value(None))\n"
        "        outcomes = await self._commit_whatever_comes([submitted.operation for submitted in batch])\n",
        (f"{COMMITS}[chain]",),
    ),
    # --- attempts that always end
    Mutant(
        "weights do not count",
        "8",
        "actors/runtime/slots.py",
        "            left = (self._turns_left.get(company, 0) or weight) - 1\n",
        "            left = 0\n",
        (f"{FAIR}::test_a_heavier_company_gets_its_share",),
    ),
    Mutant(
        "who waits keeps its slot",
        "8",
        "actors/runtime/execution.py",
        "            self._registry.free_slot(attempt)\n            self._slots.offer()\n            self._host",
        "            self._slots.offer()\n            self._host",
        (f"{WAITING}::test_who_waits_frees_its_slot_and_comes_back_before_new_attempts",),
    ),
    Mutant(
        "new attempts go before those that come back",
        "8",
        "actors/runtime/slots.py",
        "        while self._returning and self._taken < self.executions_max:\n",
        "        while self._returning and not self._line and self._taken < self.executions_max:\n",
        (
            f"{WAKES}::{PROMISED}",
            f"{WAITING}::test_who_waits_frees_its_slot_and_comes_back_before_new_attempts",
        ),
    ),
    Mutant(
        "a slot is given back beside those that were promised",
        "3",
        "actors/runtime/slots.py",
        "        while self._returning and self._taken < self.executions_max:\n",
        "        while self._returning and self._registry.slots_in_use < self.executions_max:\n",
        (f"{WAKES}::{PROMISED}",),
    ),
    Mutant(
        "a time limit of the handler's own leaves it without a slot",
        "3",
        "actors/runtime/slots.py",
        "        with trio.CancelScope(shield=True):\n            await event.wait()\n",
        "        await event.wait()\n",
        (f"{WAITING}::test_a_time_limit_of_the_handlers_own_does_not_leave_it_without_a_slot",),
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
        "waiting counts as silence",
        "8",
        "actors/runtime/stalls.py",
        "        if attempt.phase is Phase.WAITING:\n",
        "        if False:\n",
        (f"{STALLS}::test_waiting_is_not_silence",),
    ),
    Mutant(
        "any number may be left behind",
        "8",
        "actors/runtime/slots.py",
        "        return len(self._registry.abandoned) >= self.abandoned_max\n",
        "        return False\n",
        (f"{STALLS}::test_at_abandoned_max_nothing_new_starts_and_explain_says_why",),
    ),
    Mutant(
        "a wake is lost between taking the event and waiting for it",
        "10",
        "actors/runtime/hub.py",
        "        if self._asked:",
        "        if self._news.statistics().tasks_waiting:",
        (f"{WAKES}::test_a_change_between_taking_the_event_and_waiting_for_it_is_not_missed",),
    ),
    # --- budgets
    Mutant(
        "what others have reserved is not counted",
        "gates",
        "actors/core/budget.py",
        "    return all((room := room_in(account)) is None or need <= room for",
        "    return all((room := room_in(account)) is None or need <= room + account.reserved for",
        (f"{BUDGETS}::test_a_node_that_does_not_fit_waits_for_what_others_have_reserved",),
    ),
    Mutant(
        "an estimate of nothing needs nothing",
        "gates",
        "actors/core/budget.py",
        "    return max(1, estimate)",
        "    return estimate",
        (
            f"{BUDGETS}::test_without_an_estimate_one_unit_has_to_be_left_and_no_limit_is_not_a_limit_of_nothing",
        ),
    ),
    Mutant(
        "nothing is reserved",
        "gates",
        "actors/core/advance.py",
        "    if spec.estimate:\n",
        "    if spec.estimate > 10**9:\n",
        (f"{BUDGETS}::test_an_attempt_starts_only_if_spent_reserved_and_its_estimate_are_within_the_limit",),
    ),
    Mutant(
        "a reservation keeps nobody in the queue",
        "gates",
        "actors/core/budget.py",
        "account.budget - account.spent - account.reserved",
        "account.budget - account.spent",
        (C67,),
    ),
    Mutant(
        "who does not fit holds up the line",
        "2",
        "actors/core/gates.py",
        "state.open.first() if room is None else state.open_by_need.first(room)",
        "state.open.first()",
        (f"{BUDGETS}::test_who_does_not_fit_holds_up_nobody_who_needs_less",),
    ),
    Mutant(
        "a failure costs nothing",
        "ends",
        "actors/core/reports.py",
        "spent = settle(draft, entry, node, report.spent, assume=assumed)",
        "spent = settle(draft, entry, node, report.spent if end is AttemptEnd.SUCCEEDED else 0, assume=assumed)",
        (f"{BUDGETS}::test_every_end_books_what_was_spent_and_frees_the_reservation",),
    ),
    Mutant(
        "a death costs nothing",
        "ends",
        "actors/core/budget.py",
        "total = max(spent or 0, node.spent, estimate if assume else 0)",
        "total = max(spent or 0, node.spent)",
        (C67,),
    ),
    Mutant(
        "what is said late is not booked",
        "6",
        "actors/core/reports.py",
        "        if report.spent is not None:\n",
        "        if report.spent is None:\n",
        (f"{BUDGETS}::test_a_late_report_books_its_spend_and_changes_nothing_else",),
    ),
    Mutant(
        "a reservation stays when it is spent",
        "ends",
        "actors/core/budget.py",
        "    kept = max(0, estimate - spent)",
        "    kept = estimate",
        (f"{BUDGETS}::test_what_is_said_while_it_runs_is_booked_at_once_and_comes_off_its_reservation",),
    ),
    Mutant(
        "a run that cannot pay waits for ever",
        "run",
        "actors/core/state.py",
        "entry.short = limited(self.company, entry.task) and cannot_go_on(self, entry)",
        "entry.short = False",
        (f"{BUDGETS}::test_a_run_that_what_is_spent_keeps_from_going_on_halts_and_frees_its_slot",),
    ),
    Mutant(
        "a retry goes on without a budget",
        "messages",
        "actors/core/decide.py",
        "    if not was_short or not cannot_go_on(draft.state, entry):\n",
        "    if True:\n",
        (f"{BUDGETS}::test_a_halted_run_goes_on_by_retry_and_only_when_the_budget_is_no_longer_short",),
    ),
    Mutant(
        "what is halted on budget is only unfinished",
        "4",
        "actors/core/state.py",
        "        if is_halted_on_budget(entry):\n",
        "        if False:\n",
        (f"{BUDGETS}::test_a_run_that_what_is_spent_keeps_from_going_on_halts_and_frees_its_slot",),
    ),
    Mutant(
        "the warning comes with every booking",
        "events",
        "actors/core/budget.py",
        "    if before.budget != after.budget or not _spent_much(before):\n",
        "    if True:\n",
        (f"{BUDGETS}::test_four_fifths_are_said_once_for_each_limit",),
    ),
    Mutant(
        "what a live attempt spends is told only at its end",
        "5",
        "actors/runtime/execution.py",
        "        if tell:\n",
        "        if False:\n",
        (f"{SPENDING}::test_a_process_that_dies_is_charged_what_is_known_or_the_estimate",),
    ),
    Mutant(
        "what is spent after it was left behind is lost",
        "6",
        "actors/runtime/execution.py",
        "        if spent > attempt.spent_told:\n",
        "        if spent > attempt.spent_told and not attempt.ended:\n",
        (f"{SPENDING}::test_what_is_spent_after_it_was_left_behind_is_booked_late",),
    ),
    Mutant(
        "a company that is held up leaves and hears nothing",
        "8",
        "actors/runtime/company.py",
        " or self.wants_slot or self._held_up())",
        " or self.wants_slot)",
        (f"{WAKES}::test_what_was_held_up_by_attempts_left_behind_starts_when_they_are_gone",),
    ),
    Mutant(
        "a message that cannot be looked up is forgotten",
        "9",
        "actors/runtime/company.py",
        "            self._blame(turn, guilty, error)\n",
        "            pass\n",
        (
            f"{CRASHES}[what to load-executing]",
            NOT_LOOKED_UP,
        ),
    ),
    Mutant(
        "a message that cannot be looked up is taken again for ever",
        "9",
        "actors/runtime/company.py",
        "            guilty = turn.envelopes[0] if ours and self._alone and messages else None\n",
        "            guilty = None\n",
        (NOT_LOOKED_UP,),
    ),
    Mutant(
        "an end that is durable is told again as late",
        "10",
        "actors/runtime/company.py",
        "            for effect in turn.draft.effects if turn.draft is not None else ():\n",
        "            for effect in ():\n",
        (f"{CRASHES}[publish-reporting]", f"{CRASHES}[finish-cancelling]"),
    ),
    Mutant(
        "the next actor adopts nobody",
        "6",
        "actors/runtime/recovery.py",
        "    gone = [key for key in running if around.registry.get(AttemptRef(company, key)) is None]\n",
        "    gone = list(running)\n",
        (f"{CRASHES}[take-executing]", f"{CRASHES}[load of the next actor: facts-waiting]"),
    ),
    Mutant(
        "a stop that was committed and not acted upon is forgotten",
        "8",
        "actors/runtime/recovery.py",
        '            around.executor.cancel(AttemptRef(company, key), "stopped")\n',
        "            pass\n",
        (f"{CRASHES}[publish-being stopped]", f"{CRASHES}[cancel-being stopped]"),
    ),
    Mutant(
        "what a crashed turn reserved is kept",
        "3",
        "actors/runtime/company.py",
        "            slots.give_back()\n",
        "            pass\n",
        (f"{CRASHES}[commit, twice-starting]", f"{CRASHES}[publish-starting]"),
    ),
    Mutant(
        "what has run to its end in this turn is stopped",
        "6",
        "actors/core/reports.py",
        "    if key.task not in draft.state.reached:\n",
        "    if False:\n",
        (
            f"{STOPS}::test_of_a_stop_and_an_end_the_first_counts[its end and then the stop in one commit-a success]",
            "tests/core/test_turns.py::test_what_is_said_in_the_turn_in_which_a_run_ends_finds_it_ended",
        ),
    ),
    Mutant(
        "a second stop does not wait for the first",
        "3",
        "actors/core/decide.py",
        "    if status.settled or status is ING:\n        return False\n",
        "    if status.settled:\n        return False\n",
        (f"{STOPPED_ANYWHERE}[stopping already-ask]", f"{STOPPED_ANYWHERE}[stopping already-StopGoal]"),
    ),
    Mutant(
        "what wants its slot back does not hear a stop",
        "8",
        "actors/runtime/execution.py",
        "        self._slots.forget(attempt)\n",
        "",
        (f"{STOPPED_ANYWHERE}[returning from waiting-ask]",),
    ),
    Mutant(
        "a goal is stopped in part",
        "5",
        "actors/core/decide.py",
        "    for entry in sorted(members, key=lambda entry: entry.task.seq):\n",
        "    for entry in sorted(members, key=lambda entry: entry.task.seq)[:1_000]:\n",
        (f"{STOPS}::test_a_goal_of_many_tasks_in_every_phase_is_stopped_in_one_commit",),
    ),
    Mutant(
        "an attempt of an older run is taken for the newest one's",
        "6",
        "actors/core/entry.py",
        "    if entry.run is None or entry.run.number != key.run or entry.nodes is None",
        "    if entry.run is None or entry.nodes is None",
        (f"{COMES_LATE}[rerun, executing-a success]", f"{COMES_LATE}[rerun, executing-giving up]"),
    ),
    Mutant(
        "what comes late while there is no actor is dropped",
        "10",
        "actors/runtime/company.py",
        "        self.mailbox.drop_reports(lambda report: self._registered(report) is not None)\n",
        "        self.mailbox.drop_reports(lambda report: True)\n",
        (
            f"{LATE_RESULTS}::test_a_late_result_that_comes_while_there_is_no_actor_is_kept_for_the_next[stopped]",
            f"{LATE_RESULTS}::test_a_late_result_is_recorded_by_a_company_that_is_loaded_anew[failed-a success]",
        ),
    ),
    Mutant(
        "what returns late is counted as left behind for ever",
        "8",
        "actors/runtime/attempts.py",
        "        self._abandoned.pop(attempt.ref, None)\n",
        "",
        (f"{COMES_LATE}[stopped-a success]",),
    ),
    Mutant(
        "who waits is counted as executing",
        "4",
        "actors/runtime/statistics.py",
        "        executing=runtime.registry.slots_in_use,\n",
        "        executing=runtime.registry.slots_in_use + runtime.registry.waiting,\n",
        (GAUGES,),
    ),
    Mutant(
        "the lanes are mistaken for one another",
        "4",
        "actors/runtime/statistics.py",
        "        mailbox_user=sum(user for user, _ in depths),\n",
        "        mailbox_user=sum(system for _, system in depths),\n",
        (GAUGES,),
    ),
    Mutant(
        "a child that begins while the runtime closes works",
        "8",
        "actors/runtime/execution.py",
        "        if self.closing:\n",
        "        if False:\n",
        (
            NOT_BEGUN,
            f"{CLOSING}::test_a_child_that_starts_while_the_runtime_closes_does_no_work",
        ),
    ),
    Mutant(
        "what a stop had ended is said to run again",
        "4",
        "actors/runtime/runtime.py",
        "        again = self._interrupted | {",
        "        again = self._interrupted | set(abandoned) | {",
        (f"{CLOSING}::test_the_report_names_exactly_what_closing_cut_short",),
    ),
    Mutant(
        "a time that no node waits for is kept until it comes",
        "8",
        "actors/core/state.py",
        "        if len(self._due) > self._due_max:",
        "        if False:",
        (FAR_AWAY,),
    ),
    Mutant(
        "times that are waited for are cleared away with the others",
        "5",
        "actors/core/state.py",
        "            self._due = sorted(set(filter(self._is_awaited, self._due)))\n",
        "            self._due = []\n",
        (
            FAR_AWAY,
            CLEARED,
        ),
    ),
    # --- letting go: what is needed stays
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
        "a chain goes one task at a time",
        "retention",
        "storage/sqlite/retention.py",
        "            work.extend(_upstream_seqs(conn, company_id, seq))\n",
        "            pass\n",
        (f"{AGES}::test_a_chain_goes_from_its_end_in_one_pass",),
    ),
    Mutant(
        "a task is pruned in the middle of a turn",
        "retention",
        "actors/runtime/retention/housekeeping.py",
        "        if cell is None:\n            operation = prepare(claim, ())\n",
        "        if True:\n            operation = prepare(claim, ())\n",
        (f"{AGES}::test_what_a_turn_has_read_does_not_go_before_its_commit",),
    ),
    Mutant(
        "a claim is used though the next one was asked for",
        "5",
        "actors/runtime/company.py",
        "        self.around.claimed(self.name, None)\n",
        "",
        (
            f"{SUPERVISION}::test_what_is_written_for_a_company_while_its_actor_is_replaced_is_written_under_the_new_claim",
        ),
    ),
    Mutant(
        "a query's answer is built over a snapshot that is still open, on the event loop",
        "5",
        "storage/sqlite/store.py",
        "        return await reading(self.reader, work)\n",
        "        return build(await self.fetch(query))\n",
        ("tests/storage/contract/test_store.py::test_what_is_built_of_an_answer_is_built_where_it_was_read",),
    ),
    Mutant(
        "a task that lost its runs is not looked at",
        "5",
        "storage/sqlite/sql/schema.sql",
        "    UPDATE tasks SET runless = 1 WHERE company_id = OLD.company_id AND seq = OLD.seq;\n",
        "    SELECT 1;\n",
        ("tests/storage/test_query_plans.py::test_a_task_without_a_run_is_found_among_many_that_are_done",),
    ),
    Mutant(
        "an operation on a company needs no claim that holds",
        "retention",
        "storage/sqlite/engine.py",
        "        require(conn, asked.claim)\n",
        "",
        (
            f"{AGES}::test_a_unit_that_was_made_before_an_actor_came_is_refused_by_its_epoch",
            "tests/storage/contract/test_fencing.py::test_an_operation_with_a_stale_claim_changes_nothing",
        ),
    ),
    Mutant(
        "a company that is being deleted is written to by its own claim",
        "retention",
        "storage/sqlite/sql/queries.sql",
        "SELECT 1 FROM companies WHERE company_id = ? AND epoch = ? AND name IS NOT NULL;",
        "SELECT 1 FROM companies WHERE company_id = ? AND epoch = ?;",
        (f"{CONTRACT_RETENTION}::test_a_mark_ends_every_claim_but_its_own",),
    ),
    Mutant(
        "a task is pruned that the actor holds in memory",
        "retention",
        "actors/runtime/retention/pruning.py",
        "if task not in held and seq not in alive]",
        "if seq not in alive]",
        (f"{AGES}::test_what_the_actor_holds_in_memory_stays_until_it_has_left",),
    ),
    Mutant(
        "attempts that were left behind are forgotten",
        "retention",
        "actors/runtime/retention/housekeeping.py",
        "return [*registry.of_company(company), *left]",
        "return [*registry.of_company(company), *list(left)[:0]]",
        (f"{AGES}::test_what_an_attempt_was_left_behind_of_stays_until_it_has_returned",),
    ),
    Mutant(
        "a task goes by its first run",
        "retention",
        "storage/sqlite/sql/queries.sql",
        "WHERE run.company_id = task.company_id AND run.seq = task.seq ORDER BY run.number DESC LIMIT 1)",
        "WHERE run.company_id = task.company_id AND run.seq = task.seq ORDER BY run.number LIMIT 1)",
        (f"{AGES}::test_a_task_goes_by_its_newest_run_and_not_while_that_is_open",),
    ),
    Mutant(
        "a key goes before its time",
        "retention",
        "storage/sqlite/sql/queries.sql",
        "    (task.key IS NULL OR task.created_ms < :keys_ms)\n",
        "    1\n",
        (
            f"{AGES}::test_a_key_lives_with_its_task_which_stays_until_the_key_may_go",
            f"{AGES}::test_where_keys_are_kept_for_ever_so_are_their_tasks",
        ),
    ),
    Mutant(
        "a quarantined task is pruned",
        "retention",
        "storage/sqlite/sql/queries.sql",
        """            AND NOT EXISTS (SELECT 1 FROM quarantine
                            WHERE quarantine.company_id = task.company_id AND quarantine.seq = task.seq) END
""",
        "        END\n",
        (f"{AGES}::test_a_quarantined_task_waits_for_a_person_even_if_it_is_completed",),
    ),
    Mutant(
        "a pass goes in one unit",
        "retention",
        "storage/contract/retention.py",
        "ROWS_MAX: Final = 500\n",
        "ROWS_MAX: Final = 500_000\n",
        (f"{DELETION}::test_it_goes_in_small_units_between_which_others_get_their_turn",),
    ),
    # --- letting go: the log
    Mutant(
        "a reader goes on behind a gap",
        "10",
        "storage/sqlite/events.py",
        "    if after < floor:\n",
        "    if False:\n",
        (
            f"{FLOORS}::test_a_cursor_below_the_floor_is_refused_and_told_where_the_floor_is",
            f"{FLOORS}::test_a_reader_that_is_overtaken_gets_what_it_has_fetched_and_then_hears_of_it",
        ),
    ),
    Mutant(
        "a quiet company's cursor is too old with the log's",
        "10",
        "storage/sqlite/events.py",
        "    floor = floor_of(conn, company_id)\n",
        "    floor = floor_of(conn)\n",
        (f"{FLOORS}::test_a_company_s_own_floor_counts_for_its_readers",),
    ),
    Mutant(
        "lines go and the floor stays",
        "10",
        "storage/sqlite/retention.py",
        "    for company_id, top in {**tops, WHOLE_LOG: Floor(last)}.items():\n",
        "    for company_id, top in tops.items():\n",
        (f"{FLOORS}::test_a_cursor_below_the_floor_is_refused_and_told_where_the_floor_is",),
    ),
    Mutant(
        "the log goes with a hole",
        "10",
        "storage/sqlite/retention.py",
        "        elif row[1] <= now_ms:\n            break\n",
        "",
        (f"{AGES}::test_a_line_that_is_young_keeps_what_stands_behind_it",),
    ),
    Mutant(
        "each pruning of the log is told to the next for ever",
        "10",
        "storage/sqlite/retention.py",
        "return old[-1][0] if any(row[2] != LOG_PRUNED for row in old) else None",
        "return old[-1][0] if old else None",
        (f"{AGES}::test_a_log_of_nothing_but_prunings_is_left_alone",),
    ),
    # --- deleting a company
    Mutant(
        "a company that runs is deleted",
        "retention",
        "storage/sqlite/deletion.py",
        "    if active or asked.attempts:\n",
        "    if asked.attempts:\n",
        (f"{MAINTENANCE}::test_what_a_dead_process_left_is_left_to_the_next_host",),
    ),
    Mutant(
        "a company that nobody deleted goes",
        "retention",
        "storage/sqlite/deletion.py",
        "    if row is None:\n        raise StaleEpoch(claim.name, claim.epoch)\n    if inbox",
        '    row = row or ("", 0, 0, 0)\n    if inbox',
        (f"{DELETION}::test_nothing_of_a_company_that_nobody_deleted_goes",),
    ),
    Mutant(
        "an actor of a deleted company goes on",
        "retention",
        "storage/sqlite/sql/queries.sql",
        "UPDATE companies SET name = NULL, epoch = epoch + 1, due_ms = NULL WHERE",
        "UPDATE companies SET name = NULL, due_ms = NULL WHERE",
        (f"{DELETION}::test_an_actor_of_it_that_was_overlooked_can_write_nothing_any_more",),
    ),
    Mutant(
        "the id of a deleted company is given to the next",
        "schema",
        "storage/sqlite/sql/schema.sql",
        "    company_id  INTEGER PRIMARY KEY AUTOINCREMENT, ",
        "    company_id  INTEGER PRIMARY KEY, ",
        (f"{DELETION}::test_the_name_begins_anew_with_an_id_and_numbers_of_its_own",),
    ),
    Mutant(
        "a deleted company comes back by being looked at",
        "retention",
        "actors/runtime/company.py",
        "            create = self.mailbox.addressed\n",
        "            create = True\n",
        (f"{DELETION}::test_it_does_not_come_back_by_being_looked_at",),
    ),
    Mutant(
        "a deletion that was cut short is forgotten",
        "5",
        "actors/runtime/retention/housekeeping.py",
        "            if claim.company_id not in self._waited_for:\n",
        "            if False:\n",
        (
            f"{DELETION}::test_who_stops_waiting_does_not_stop_it",
            f"{MAINTENANCE}::test_a_deletion_that_was_begun_is_finished_by_whoever_opens_the_database_next",
        ),
    ),
    Mutant(
        "a table is forgotten when a company is deleted",
        "retention",
        "storage/sqlite/deletion.py",
        '"company_quarantine"),\n',
        "None),\n",
        (
            "tests/storage/test_retention.py::test_whatever_has_a_company_goes_with_it_and_whatever_has_a_task_with_that",
        ),
    ),
    # --- a copy, the write-ahead log, and a long backlog
    Mutant(
        "a copy is not checked",
        "retention",
        "storage/sqlite/backup.py",
        '        if found != ["ok"]:\n',
        "        if False:\n",
        (f"{COPIES}::test_a_copy_that_does_not_hold_together_is_none",),
    ),
    Mutant(
        "a copy overwrites",
        "retention",
        "storage/sqlite/backup.py",
        "        if os.path.lexists(name):\n",
        "        if False:\n",
        (f"{COPIES}::test_nothing_is_overwritten_and_nothing_that_lies_there_becomes_a_part_of_it",),
    ),
    Mutant(
        "a copy ends the processes of its original",
        "retention",
        "storage/sqlite/backup.py",
        '        raw.execute(SQL["forget_processes"])\n',
        "",
        (f"{COPIES}::test_processes_of_the_original_are_not_in_the_copy",),
    ),
    Mutant(
        "a reading leaves its snapshot open",
        "retention",
        "storage/sqlite/connection.py",
        "            connection.text_factory = str\n    finally:\n        roll_back(connection)\n",
        "            connection.text_factory = str\n    finally:\n        pass\n",
        (
            f"{BOUNDS}::test_the_wal_stays_small_while_a_reader_of_the_log_takes_its_time",
            f"{BOUNDS}::test_a_list_that_is_cancelled_half_way_holds_no_snapshot",
        ),
    ),
    Mutant(
        "a write-ahead log that has grown stays so",
        "retention",
        "storage/sqlite/wal.py",
        '    busy, _, _ = raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()\n    return bool(busy)\n',
        "    return False\n",
        (f"{BOUNDS}::test_a_wal_that_somebody_else_makes_grow_is_told_of_and_shrinks_when_he_goes",),
    ),
    Mutant(
        "a long backlog is looked at in one go",
        "8",
        "actors/runtime/recovery.py",
        "    for _ in range(min(len(unseen), LOOKED_MAX)):\n",
        "    for _ in range(len(unseen)):\n",
        (SWEEP_BOUND,),
    ),
    Mutant(
        "a long backlog is loaded at every sweep",
        "8",
        "actors/runtime/sweep.py",
        "                if rest_s > EVERY_S:\n",
        "                if False:\n",
        (
            f"{BOUNDS}::test_a_long_backlog_is_looked_at_in_turn_and_what_is_due_or_runs_every_time",
            f"{BOUNDS}::test_a_system_that_only_waits_costs_next_to_nothing",
        ),
    ),
    # --- time
    Mutant(
        "a fixed local time follows real time",
        "time",
        "actors/nominal.py",
        "        if self.fixed:\n",
        "        if False:\n",
        (f"{NOMINAL}::test_a_fixed_local_time_fires_exactly_once_on_each_date_of_two_years",),
    ),
    Mutant(
        "an hour that comes twice is left out the second time",
        "time",
        "actors/nominal.py",
        "        if back:  #",
        "        if False:  #",
        (f"{NOMINAL}::test_on_the_days_on_which_clocks_change_a_search_of_every_minute_finds_the_same",),
    ),
    Mutant(
        "counting has no end",
        "time",
        "actors/nominal.py",
        "            if counted == limit:\n",
        "            if False:\n",
        (f"{NOMINAL}::test_counting_ends_at_its_limit_and_says_so",),
    ),
    Mutant(
        "all that was missed is caught up",
        "time",
        "actors/core/firing.py",
        "    slot = rule.after(now_ms)\n    low = now_ms + 1\n",
        "    slot = rule.after(record.due_ms or now_ms)\n    low = (record.next_ms or now_ms) + 1\n",
        (
            f"{SCHEDULES}::test_after_an_absence_at_most_one_is_caught_up_and_the_rest_is_counted",
            f"{TIME}::test_what_fell_due_while_nobody_ran_follows_the_misfire_rule_once",
        ),
    ),
    Mutant(
        "the misfire rule is not asked",
        "time",
        "actors/core/firing.py",
        "(record.misfire is Misfire.SKIP and not on_time)",
        "False",
        (f"{TIME}::test_what_fell_due_while_nobody_ran_follows_the_misfire_rule_once",),
    ),
    Mutant(
        "whoever is a moment late has missed it",
        "time",
        "actors/core/firing.py",
        "ON_TIME_MS = 60_000\n",
        "ON_TIME_MS = 0\n",
        (f"{SCHEDULES}::test_a_fire_that_is_less_than_a_minute_late_was_not_missed",),
    ),
    Mutant(
        "overlap is not asked",
        "time",
        "actors/core/firing.py",
        "    overlaps = overlapping and record.overlap is Overlap.SKIP\n",
        "    overlaps = False\n",
        (f"{SCHEDULES}::test_while_a_task_of_it_is_not_settled_the_next_fire_is_skipped_or_queued",),
    ),
    Mutant(
        "nobody knows whose tasks they are",
        "time",
        "actors/core/state.py",
        "            self.schedules.note_task(entry.task.schedule, task)\n",
        "            pass\n",
        (f"{SCHEDULES}::test_a_run_by_hand_counts_for_overlap_and_moves_no_time",),
    ),
    Mutant(
        "a run by hand moves the next fire",
        "time",
        "actors/core/scheduling.py",
        "    made = carry_out(draft, template_of(record.template), looked, Fire(record.name))\n",
        "    made = carry_out(draft, template_of(record.template), looked, Fire(record.name))\n"
        "    draft.schedule(record, changed(record, next_ms=(record.next_ms or 0) + 60_000))\n",
        (
            f"{TIME}::test_run_now_moves_no_fire",
            f"{BY_STATE}::test_a_message_does_to_a_schedule_what_its_cell_says",
        ),
    ),
    Mutant(
        "jitter moves the nominal time",
        "time",
        "actors/core/scheduling.py",
        "Fire(record.name, nominal, start_ms)",
        "Fire(record.name, start_ms or nominal, start_ms)",
        (f"{TIME}::test_jitter_near_a_clock_change_skips_no_day",),
    ),
    Mutant(
        "jitter is chance",
        "time",
        "actors/core/schedules.py",
        'zlib.crc32(identity.encode("utf-8")) //',
        "zlib.crc32(str(id(object())).encode()) //",
        (
            f"{SCHEDULES}::test_jitter_moves_the_start_and_never_the_nominal_time_and_is_the_same_for_the_same_fire",
        ),
    ),
    Mutant(
        "another cron ends the pause",
        "time",
        "actors/core/scheduling.py",
        "        new = changed(old, **said, anchor_ms=draft.now_ms)\n",
        "        new = changed(old, **said, anchor_ms=draft.now_ms, paused_ms=None)\n",
        (
            f"{TIME}::test_a_pause_is_never_forgotten",
            f"{SCHEDULES}::test_a_paused_schedule_stays_paused_whatever_is_done_to_it_but_for_a_resume",
        ),
    ),
    Mutant(
        "what was missed under the old cron is forgotten",
        "time",
        "actors/core/scheduling.py",
        "        return changed(old, missed=count, missed_ms=last)\n",
        "        return old\n",
        (
            f"{BY_STATE}::test_what_was_missed_under_the_old_rule_follows_the_misfire_rule_when_the_pause_ends",
        ),
    ),
    Mutant(
        "another cron fires at once",
        "time",
        "actors/core/firing.py",
        "due_ms=slot if rule.steady else following)\n",
        "due_ms=now_ms)\n",
        (f"{BY_STATE}::test_a_message_does_to_a_schedule_what_its_cell_says",),
    ),
    Mutant(
        "schedules of a paused company fire",
        "time",
        "actors/core/scheduling.py",
        "    while draft.state.company.paused_ms is None:\n",
        "    while True:\n",
        (f"{SCHEDULES}::test_a_paused_company_holds_its_schedules_and_going_on_follows_the_misfire_rule",),
    ),
    Mutant(
        "a clock that goes back stops everything",
        "time",
        "actors/core/scheduling.py",
        "    for record in schedules.ahead_of(draft.now_ms):\n",
        "    for record in schedules.ahead_of(draft.now_ms)[:0]:\n",
        (
            f"{TIME}::test_the_wall_clock_jumps",
            f"{SCHEDULES}::test_the_clock_goes_back_by_hours_and_what_follows_real_time_goes_on",
        ),
    ),
    Mutant(
        "nobody looks which times have fired already",
        "time",
        "actors/core/firing.py",
        "    return first is not None and record.fired_to_ms is not None and first <= record.fired_to_ms\n",
        "    return False\n",
        (f"{SCHEDULES}::test_a_jump_there_and_back_again_leaves_every_date_its_one_fire",),
    ),
    Mutant(
        "absent companies do not hear that the clock went back",
        "time",
        "actors/runtime/supervisor.py",
        "                self._again.extend(self._due)\n",
        "                pass\n",
        (f"{TIME}::test_the_wall_clock_jumps",),
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
        "a row that nobody can follow is never disabled",
        "time",
        "actors/core/schedules.py",
        "                self.unfit[name] = None\n",
        "                pass\n",
        (f"{TIME}::test_a_cron_that_can_never_fire",),
    ),
    Mutant(
        "nobody comes back for a schedule",
        "time",
        "actors/core/state.py",
        "        if not self.schedules.by_name or self.company.paused_ms is not None:\n",
        "        if True:\n",
        (f"{ROUND}::test_an_absent_company_is_brought_back_for_its_schedule_and_leaves_again",),
    ),
    Mutant(
        "the sweep does not look at schedules",
        "time",
        "storage/sqlite/companies.py",
        '("sweep_due", "sweep_schedules")',
        '("sweep_due",)',
        (f"{ROUND}::test_a_schedule_whose_company_does_not_know_that_it_is_due_is_found_by_the_sweep",),
    ),
    Mutant(
        "a schedule that crashes its actor goes on doing so",
        "time",
        "actors/runtime/supervisor.py",
        "        claim, schedule = cell.claim, schedule_of(about)\n",
        "        claim, schedule = cell.claim, None\n",
        (f"{ROUND}::test_a_schedule_whose_moves_crash_the_actor_twice_is_disabled_and_nobody_else_notices",),
    ),
    Mutant(
        "a time before which it may not start holds nobody up",
        "time",
        "actors/core/gates.py",
        "        lambda entry: entry.early is not None,\n",
        "        lambda entry: False,\n",
        (
            f"{SCHEDULES}::test_a_later_start_can_be_changed_and_taken_away",
            f"{ROUND}::test_a_later_start_survives_restarts_and_a_time_that_passed_meanwhile_is_made_up_for",
        ),
    ),
    Mutant(
        "StartNow does not open the start",
        "time",
        "actors/core/state.py",
        "entry.waits_for_upstreams and entry.run is not None and not entry.run.front\n",
        "entry.waits_for_upstreams and entry.run is not None\n",
        (f"{SCHEDULES}::test_start_now_overrides_a_later_start_and_the_override_is_stored",),
    ),
    Mutant(
        "a time without a zone is taken for one",
        "time",
        "actors/messages.py",
        "    if value.utcoffset() is None:\n",
        "    if False:\n",
        ("tests/core/test_message_checks.py::test_what_cannot_be_carried_out_is_refused_in_words",),
    ),
    # --- people in the loop
    Mutant(
        "a run at a gate keeps its slot",
        "people",
        "actors/core/entry.py",
        "        return Halt.APPROVAL if progress.reached else None\n",
        "        return None\n",
        (THREE_DAYS, f"{COMMITS}[gates]"),
    ),
    Mutant(
        "failed comes before an open gate",
        "people",
        "actors/core/advance.py",
        "    if halt is not None:\n",
        "    if halt is not None and not failed:\n",
        (f"{GATES}::test_an_open_gate_comes_before_failed",),
    ),
    Mutant(
        "fail_fast waits for people",
        "people",
        "actors/core/entry.py",
        "        if progress is None or (self.task.fail_fast and progress.counts[NodeStatus.FAILED]):\n",
        "        if progress is None:\n",
        (f"{GATES}::test_under_fail_fast_a_gate_is_not_waited_for",),
    ),
    Mutant(
        "a gate is approved before it is reached",
        "people",
        "actors/core/people.py",
        "for p in entry.progress.reached if _spec(entry, p).name == message.gate",
        "for p in entry.progress.unsaid | entry.progress.idle if _spec(entry, p).name == message.gate",
        (f"{GATES}::test_a_gate_is_reached_only_when_all_before_it_have_succeeded",),
    ),
    Mutant(
        "who was let past a pause is not so after a gate",
        "people",
        "actors/core/halting.py",
        "reason=None, halted_ms=None, **fields)",
        "reason=None, halted_ms=None, front=0, **fields)",
        (f"{GATES}::test_a_run_that_was_put_in_front_past_a_pause_is_so_also_after_it_was_halted",),
    ),
    Mutant(
        "what depends on a halted run is blocked",
        "people",
        "actors/core/state.py",
        "        if run.status.settled or entry.blocked or",
        "        if run.status.settled or run.status is RunStatus.HALTED or entry.blocked or",
        (THREE_DAYS, f"{GATES}::test_dependents_of_a_halted_task_wait_and_are_not_blocked"),
    ),
    Mutant(
        "step by step everything starts that is ready",
        "people",
        "actors/core/entry.py",
        "        return bool(ready) if self.task.mode is not Mode.STEP else self.run.step in ready\n",
        "        return bool(ready)\n",
        (f"{GATES}::test_a_run_that_goes_step_by_step_halts_before_each_node_and_next_lets_one_start",),
    ),
    Mutant(
        "a step that was let through is another's",
        "people",
        "actors/core/advance.py",
        "        return let if let is not None and able(let) else None\n",
        "        return entry.progress.next_ready()\n",
        (f"{GATES}::test_what_becomes_ready_while_a_step_rests_waits_for_a_word_of_its_own",),
    ),
    Mutant(
        "a run at a gate can be retried",
        "people",
        "actors/core/decide.py",
        "        Retry: MappingProxyType({Halt.STEP: _STEP, Halt.APPROVAL: _GATE}),\n",
        "",
        (CELL,),
    ),
    Mutant(
        "only the judged node is done again",
        "people",
        "actors/core/people.py",
        "    again = [*_reset_users(draft, entry, pos, message.feedback), pos]\n",
        "    again = [pos]\n",
        (LOOP,),
    ),
    Mutant(
        "what is done again is of the same generation",
        "people",
        "actors/core/people.py",
        "    generation = node.generation + 1\n",
        "    generation = node.generation\n",
        (
            LOOP,
            f"{BACK}::test_what_is_done_again_is_a_new_generation_with_the_feedback_for_each_of_its_attempts",
        ),
    ),
    Mutant(
        "feedback is for the first attempt only",
        "people",
        "actors/core/advance.py",
        "is_suspect(node), names, node.feedback, upstream)",
        "is_suspect(node), names, None if node.tries else node.feedback, upstream)",
        (
            C31,
            f"{BACK}::test_what_is_done_again_is_a_new_generation_with_the_feedback_for_each_of_its_attempts",
        ),
    ),
    Mutant(
        "what was superseded counts if it succeeds",
        "people",
        "actors/core/reports.py",
        "    elif node.superseded:\n",
        "    elif node.superseded and report.end is not AttemptEnd.SUCCEEDED:\n",
        (f"{BACK}::test_after_the_commit_of_a_send_back_an_attempts_own_end_does_not_count",),
    ),
    Mutant(
        "what works with a result that was sent back is left to it",
        "people",
        "actors/core/people.py",
        '            draft.effects.append(CancelAttempt(attempt_key(entry, node), "superseded"))\n',
        "",
        (LOOP, f"{BACK}::test_a_live_attempt_at_a_user_is_superseded_and_runs_on_until_it_has_ended"),
    ),
    Mutant(
        "that an attempt is superseded dies with the actor",
        "people",
        "storage/sqlite/loading.py",
        "        superseded=bool(row[14]),\n",
        "",
        (f"{BACK}::test_that_an_attempt_is_superseded_survives_a_new_actor_and_a_new_process",),
    ),
    Mutant(
        "the sweep does not ask who is superseded",
        "people",
        "actors/runtime/recovery.py",
        '    draft.effects.extend(CancelAttempt(key, "superseded") for key in superseded_attempts(state))\n',
        "",
        (f"{MADE_UP_FOR}[the sweep]",),
    ),
    Mutant(
        "a restarted actor does not ask who is superseded",
        "people",
        "actors/runtime/recovery.py",
        "    for key in superseded_attempts(state):\n        around.executor.cancel",
        "    for key in superseded_attempts(state)[:0]:\n        around.executor.cancel",
        (f"{MADE_UP_FOR}[the next actor]",),
    ),
    Mutant(
        "what is sent back keeps the tries that it used",
        "people",
        "actors/core/people.py",
        'FRESH: dict[str, Any] = {"tries": 0, "unclean": 0, ',
        "FRESH: dict[str, Any] = {",
        (f"{BACK}::test_tries_and_deaths_of_what_is_reset_are_forgotten_and_those_of_others_are_not",),
    ),
    Mutant(
        "a review may go round for ever",
        "people",
        "actors/core/people.py",
        "    if node.send_backs >= limit:\n",
        "    if False:\n",
        (
            "tests/cases/test_people.py::test_send_backs_have_a_limit_of_their_own",
            f"{BACK}::test_a_result_is_sent_back_as_often_as_its_node_or_task_says_or_else_ten_times",
        ),
    ),
    Mutant(
        "blank feedback is taken",
        "people",
        "actors/messages.py",
        '    if not _words(value, "feedback").strip():\n',
        '    if not _words(value, "feedback"):\n',
        ("tests/core/test_message_checks.py::test_what_cannot_be_carried_out_is_refused_in_words",),
    ),
    Mutant(
        "a new run keeps no results",
        "people",
        "actors/core/people.py",
        "    kept = [node.pos for node in old if node.status is NodeStatus.SUCCEEDED and node.pos not in again]\n",
        "    kept: list[int] = []\n",
        (
            f"{PEOPLE}::test_a_new_run_of_a_completed_task_runs_only_what_was_judged_and_its_users",
            f"{BACK}::test_a_completed_run_stays_as_it_is_and_a_new_one_keeps_the_results_that_were_not_judged",
        ),
    ),
    Mutant(
        "a new run forgets the payload of the one before",
        "people",
        "storage/sqlite/sql/queries.sql",
        "    SELECT coalesce(:payload, old.payload), old.pins FROM runs AS old\n",
        "    SELECT :payload, old.pins FROM runs AS old\n",
        (f"{BACK}::test_a_rerun_from_a_node_can_have_another_payload_and_else_has_that_of_the_run_before",),
    ),
    Mutant(
        "upstream results are those of the newest run",
        "people",
        "storage/sqlite/sql/queries.sql",
        " AND node.run = edge.pinned_run\n",
        " AND node.run = (\n    SELECT max(number) FROM runs WHERE company_id = up.company_id AND seq = up.seq)\n",
        (f"{PEOPLE}::test_the_upstream_runs_are_pinned_at_the_first_admission",),
    ),
    Mutant(
        "an edit takes the upstreams of a run that has begun",
        "people",
        "storage/sqlite/unit_of_work.py",
        '    _write(conn, "keep_pins", ((u.claim.company_id, seq) for u in units for seq in u.repinned))\n',
        "",
        (f"{PEOPLE}::test_an_edit_of_the_dependencies_counts_from_the_next_run_on_also_for_their_results",),
    ),
    Mutant(
        "the file takes a halted run without since when",
        "people",
        "storage/sqlite/sql/schema.sql",
        "    CHECK ((halted_ms IS NOT NULL) = (status = 'halted')),\n",
        "",
        (f"{CHECKS}[UPDATE runs SET halted_ms = 1]",),
    ),
    Mutant(
        "the file takes a superseded node that does not run",
        "people",
        "storage/sqlite/sql/schema.sql",
        "CHECK (superseded = 0 OR (superseded = 1 AND status = 'running'))",
        "CHECK (superseded IN (0, 1))",
        (f"{CHECKS}[UPDATE nodes SET superseded = 1 WHERE pos = 1]",),
    ),
    # --- attempts that always end, with real processes
    Mutant(
        "a command that a service manager ends has failed",
        "7",
        "actors/cli/interrupts.py",
        "            if ctx.cancel_requested or not await self._ended_with_us(failed):\n",
        "            if failed:\n",
        (
            f"{STOPPING}::{MANAGED}[its_control_group]",
            f"{STOPPING}::test_a_command_that_catches_the_signal_and_exits_with_a_status_was_interrupted_too",
        ),
    ),
    Mutant(
        "SIGTERM waits as long as Ctrl-C does",
        "5",
        "actors/cli/run.py",
        "        return HASTY_DRAIN_S if self._interrupts.hasty else DRAIN_S\n",
        "        return DRAIN_S\n",
        (f"{STOPPING}::{MANAGED}[the_process]",),
    ),
    Mutant(
        "a command that cannot be killed is forgotten",
        "3",
        "actors/commands.py",
        "        while not has_ended(process) and ctx.cancel_requested and not ctx.closing:\n",
        "        while False:\n",
        (f"{DEAF}::test_a_command_that_cannot_be_killed_is_left_behind_and_counted_until_it_is_gone",),
    ),
    Mutant(
        "orphans run beside the next attempt",
        "6",
        "actors/runtime/recovery.py",
        "            if process.pid is not None and process.started is not None:\n",
        "            if False and process.pid is not None and process.started is not None:\n",
        (f"{SUSPECT}::{OUTLIVED}",),
    ),
    Mutant(
        "what an orphan that ended has left is not looked for",
        "6",
        "actors/processes.py",
        "    return any(wanted <= _environment(member) for member in _members(pid))\n",
        "    return False\n",
        (f"{SUSPECT}::{OUTLIVED}[their leaders have ended]",),
    ),
    Mutant(
        "the inputs of a killed host stay",
        "8",
        "actors/runtime/runtime.py",
        "        clear_inputs(_private_folder(path))\n",
        "",
        (f"{PROCESSES}::test_a_run_that_was_killed_goes_on_where_it_was_and_its_orphan_is_ended_first",),
    ),
    Mutant(
        "the watchdog names only the first of several",
        "8",
        "actors/runtime/watchdog.py",
        "                if who == named or now - seen_at < self._blocked_s:\n                    continue\n",
        "                continue\n",
        (f"{WATCHDOG}::test_the_watchdog_names_each_of_those_that_block_the_loop_before_it_turns_again",),
    ),
    Mutant(
        "an attempt that has ended keeps its result",
        "8",
        "actors/runtime/attempts.py",
        "        attempt.report = None  # a result",
        "        # a result",
        (f"{STALLS}::test_the_result_of_an_attempt_is_not_kept_while_its_stall_limit_runs_on",),
    ),
    # --- the inbox
    Mutant(
        "the answer follows in a commit of its own",
        "inbox",
        "actors/runtime/inbox_host.py",
        """        envelope = Envelope(row.message, row, row.stored.number)
        self._begin(row)
        try:
            cell = supervisor.cell(row.stored.company)
            row.unit_answers = cell.parked is None
""",
        """        envelope = Envelope(row.message, row)
        self._begin(row)
        try:
            cell = supervisor.cell(row.stored.company)
            row.unit_answers = False
""",
        (CRASHED_INBOX, f"{INTAKE}::test_the_answer_is_in_the_very_commit_that_carries_the_message_out"),
    ),
    Mutant(
        "a message that is gone is carried out all the same",
        "inbox",
        "storage/sqlite/sql/schema.sql",
        "    WHERE NOT EXISTS (SELECT 1 FROM inbox WHERE number = NEW.number AND answered_ms IS NULL);",
        "    WHERE 0;",
        (f"{INTAKE}::test_a_unit_that_would_answer_a_message_twice_is_refused_whole",),
    ),
    Mutant(
        "an answer may be changed",
        "inbox",
        "storage/sqlite/sql/schema.sql",
        "ON inbox WHEN OLD.answered_ms IS NOT NULL\n",
        "ON inbox WHEN 0\n",
        (f"{INTAKE}::test_the_file_refuses_a_second_answer_and_an_answer_without_a_time",),
    ),
    Mutant(
        "a control message overtakes what was sent before it",
        "inbox",
        "actors/runtime/inbox_host.py",
        "            if lane is not None and row.message.control is not lane:\n",
        "            if False:\n",
        (f"{INTAKE}::test_messages_of_a_company_are_taken_in_their_order_and_no_control_message_overtakes",),
    ),
    Mutant(
        "the next rows are taken while some are under way",
        "inbox",
        "actors/runtime/inbox_host.py",
        "NextMessages(tuple(self._under_way), ",
        "NextMessages((), ",
        (f"{INTAKE}::test_what_is_under_way_is_not_taken_again_and_what_follows_it_waits",),
    ),
    Mutant(
        "a company that sends many is served first",
        "inbox",
        "storage/sqlite/sql/queries.sql",
        "WHERE place <= :each ORDER BY place, number LIMIT :limit;",
        "WHERE place <= :each ORDER BY number LIMIT :limit;",
        (f"{INTAKE}::test_a_look_is_shared_between_companies_in_rounds",),
    ),
    Mutant(
        "all of a company is taken at once",
        "inbox",
        "storage/sqlite/sql/queries.sql",
        "WHERE place <= :each ORDER BY place, number LIMIT :limit;",
        "WHERE :each > 0 ORDER BY place, number LIMIT :limit;",
        (f"{INTAKE}::test_a_look_is_shared_between_companies_in_rounds",),
    ),
    Mutant(
        "a change by another process is not seen",
        "inbox",
        "storage/sqlite/inbox.py",
        "    if version == asked.known:\n",
        "    if asked.known is not None:\n",
        (
            f"{INTAKE}::test_a_host_looks_four_times_a_second_and_reads_nothing_while_nobody_else_has_written",
            f"{INTAKE}::test_a_message_that_comes_while_the_host_itself_writes_is_seen_too",
        ),
    ),
    Mutant(
        "the table is read at every look",
        "inbox",
        "storage/sqlite/inbox.py",
        "    if version == asked.known:\n",
        "    if False:\n",
        (f"{CONTRACT_INBOX}::test_nothing_is_looked_for_while_nobody_else_has_written",),
    ),
    Mutant(
        "who rests is asked again and again",
        "inbox",
        "actors/runtime/inbox_host.py",
        "isinstance(what, ActorCrashed | CompanyDeleted | CompanyParked)",
        "isinstance(what, CompanyDeleted | CompanyParked)",
        (
            f"{INTAKE}::test_a_message_whose_unit_is_refused_changes_nothing_is_told_so_and_its_neighbours_go_on",
        ),
    ),
    Mutant(
        "a row for a company without a name is taken",
        "inbox",
        "actors/runtime/inbox_host.py",
        '    check_name(row.company, what="a company\'s name")\n',
        "",
        (f"{INTAKE}::test_a_broken_row_is_answered_in_its_row_and_harms_nobody",),
    ),
    Mutant(
        "an answer goes as soon as it is there",
        "inbox",
        "actors/runtime/inbox_host.py",
        "        before_ms = self._runtime.now_ms() - KEPT_MS\n",
        "        before_ms = self._runtime.now_ms()\n",
        (f"{INTAKE}::test_an_answered_row_goes_a_week_after_its_answer_and_its_id_is_free_again",),
    ),
    Mutant(
        "a deleted company leaves behind what was said to it",
        "inbox",
        "storage/sqlite/deletion.py",
        "    if inbox.forget(conn, claim.company_id):\n",
        "    if False:\n",
        (f"{INTAKE}::test_a_company_that_is_deleted_takes_with_it_what_was_said_to_it",),
    ),
    Mutant(
        "another message under the same id is the same message",
        "inbox",
        "storage/sqlite/inbox.py",
        "        if there.message != asked.message:\n",
        "        if False:\n",
        (f"{LETTERS}::test_the_same_message_under_the_same_id_is_done_once_and_has_its_first_answer",),
    ),
    Mutant(
        "any number may wait",
        "inbox",
        "storage/sqlite/inbox.py",
        "    if of_company >= asked.of_company_max:\n",
        "    if False:\n",
        (f"{LETTERS}::test_the_inbox_takes_only_so_many_and_a_company_cannot_fill_it",),
    ),
    Mutant(
        "an unknown field is passed over",
        "inbox",
        "actors/wire.py",
        "    if unknown := set(given) - set(forms):\n",
        "    given = {name: value for name, value in given.items() if name in forms}\n"
        "    if unknown := set(given) - set(forms):\n",
        (f"{WIRE}::test_what_is_no_message_is_refused_with_the_place",),
    ),
    Mutant(
        "every version is read as this one",
        "inbox",
        "actors/wire.py",
        "    if type(version) is not int or version != VERSION:\n",
        "    if version is None:\n",
        (f"{WIRE}::test_what_is_no_message_is_refused_with_the_place",),
    ),
    Mutant(
        "what cannot be carried is carried as it is",
        "inbox",
        "actors/wire.py",
        '    raise CannotCarry(f"{hint!r} has no form in JSON")\n',
        '    return _Form("anything", lambda _: True, lambda value: value, lambda value, _: value)\n',
        (f"{WIRE}::test_a_message_class_that_cannot_be_carried_is_found",),
    ),
    Mutant(
        "a run ends before what was sent to it is done",
        "inbox",
        "actors/cli/run.py",
        "            if at_rest(self.statuses) and self._runtime.inbox_quiet:\n",
        "            if at_rest(self.statuses):\n",
        (f"{STEERING}::test_a_run_does_all_that_waits_for_it_before_it_ends",),
    ),
    Mutant(
        "a command sends where nobody listens",
        "inbox",
        "actors/cli/sending.py",
        "        if not host and not self.options.later:\n",
        "        if False:\n",
        (f"{STEERING}::test_where_no_host_runs_nothing_is_sent_unless_it_may_be_later",),
    ),
    Mutant(
        "a refusal looks like success",
        "inbox",
        "actors/cli/sending.py",
        "EXIT_REFUSED: Final = 1\n",
        "EXIT_REFUSED: Final = 0\n",
        (f"{STEERING}::test_a_refusal_says_what_to_do_instead_as_a_command",),
    ),
]
