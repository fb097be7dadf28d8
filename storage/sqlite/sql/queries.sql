-- Named statements. Each is prepared once by SQLite's own cache. What is hot (written at every move) touches a row by
-- its whole primary key and binds its parameters by place, for many rows at once; the others bind them by name.

-- name: claim_company
-- A company's actor begins: a new epoch fences whatever an earlier actor of it may still have under way.
UPDATE companies SET epoch = epoch + 1 WHERE name = :name
RETURNING company_id, name, epoch, runs_max, weight, paused_ms, task_seq, front_seq,
    budget, spent, reserved;

-- name: insert_company
-- Not one statement with the above: an upsert would use up an id each time.
INSERT INTO companies (name, epoch) VALUES (:name, 1)
RETURNING company_id, name, epoch, runs_max, weight, paused_ms, task_seq, front_seq,
    budget, spent, reserved;

-- name: find_company
SELECT company_id, name, epoch, runs_max, weight, paused_ms, task_seq, front_seq,
    budget, spent, reserved
FROM companies WHERE name = :name;

-- name: list_companies
SELECT name FROM companies WHERE name IS NOT NULL ORDER BY name;

-- name: fence
-- First statement of every turn: nothing but the newest epoch may write. It also hands out the event numbers.
UPDATE companies SET event_seq = event_seq + ?, due_ms = ? WHERE company_id = ? AND epoch = ?
RETURNING event_seq;

-- name: claim_holds
-- Of a company that is not being deleted.
SELECT 1 FROM companies WHERE company_id = ? AND epoch = ? AND name IS NOT NULL;

-- name: number_events
-- Event numbers for what is no turn. The fence came before it.
UPDATE companies SET event_seq = event_seq + :events WHERE company_id = :company_id RETURNING event_seq;

-- name: update_company
UPDATE companies SET runs_max = ?, weight = ?, paused_ms = ?, task_seq = ?, front_seq = ?, budget = ?, spent = ?,
    reserved = ?
WHERE company_id = ?;

-- name: put_graph
INSERT INTO graphs (company_id, name, version, shape, node_payloads) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (company_id, name) DO UPDATE SET version = excluded.version, shape = excluded.shape,
    node_payloads = excluded.node_payloads;

-- name: insert_task
INSERT INTO tasks (company_id, seq, id, priority, created_ms, mode, goal, graph, shape, tries_max, fail_fast,
    archived_ms, send_backs_max, budget, spent, reserved, title, payload, node_payloads, key, content, runless)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0);

-- name: update_task
UPDATE tasks SET priority = ?, mode = ?, goal = ?, graph = ?, shape = ?, tries_max = ?, fail_fast = ?,
    archived_ms = ?, send_backs_max = ?, budget = ?, spent = ?, reserved = ?
WHERE company_id = ? AND seq = ?;

-- name: archive_task
-- For a task whose row cannot be read: what is wrong in it stays as it is.
UPDATE tasks SET archived_ms = :archived_ms WHERE company_id = :company_id AND seq = :seq;

-- name: set_title
UPDATE tasks SET title = :title WHERE company_id = :company_id AND seq = :seq;

-- name: set_payload
UPDATE tasks SET payload = :payload WHERE company_id = :company_id AND seq = :seq;

-- name: set_node_payloads
UPDATE tasks SET node_payloads = :node_payloads WHERE company_id = :company_id AND seq = :seq;

-- name: set_not_before
-- Apart from the rest of a task's row: few tasks have one.
UPDATE tasks SET not_before_ms = :not_before_ms WHERE company_id = :company_id AND seq = :seq;

-- name: set_task_fire
-- Likewise. The unique index refuses a second task of one nominal time.
UPDATE tasks SET schedule = :schedule, nominal_ms = :nominal_ms WHERE company_id = :company_id AND seq = :seq;

-- name: put_schedule
INSERT INTO schedules (company_id, seq, name, template, cron, every_ms, zone, anchor_ms, overlap, misfire, jitter_ms,
    next_ms, due_ms, moved_ms, fired_ms, fired_task, fired_to_ms, missed, missed_ms, paused_ms, disabled)
VALUES (:company_id, :seq, :name, :template, :cron, :every_ms, :zone, :anchor_ms, :overlap, :misfire, :jitter_ms,
    :next_ms, :due_ms, :moved_ms, :fired_ms, :fired_task, :fired_to_ms, :missed, :missed_ms, :paused_ms, :disabled)
ON CONFLICT (company_id, seq) DO UPDATE SET name = excluded.name, template = excluded.template, cron = excluded.cron,
    every_ms = excluded.every_ms, zone = excluded.zone, anchor_ms = excluded.anchor_ms, overlap = excluded.overlap,
    misfire = excluded.misfire, jitter_ms = excluded.jitter_ms, next_ms = excluded.next_ms, due_ms = excluded.due_ms,
    moved_ms = excluded.moved_ms, fired_ms = excluded.fired_ms, fired_task = excluded.fired_task,
    fired_to_ms = excluded.fired_to_ms, missed = excluded.missed, missed_ms = excluded.missed_ms,
    paused_ms = excluded.paused_ms, disabled = excluded.disabled;

-- name: hold_schedule
-- For a schedule whose row cannot be trusted: what is wrong in it stays as it is.
UPDATE schedules SET paused_ms = :paused_ms, disabled = :disabled, next_ms = NULL, due_ms = NULL
WHERE company_id = :company_id AND seq = :seq;

-- name: disable_schedule
-- For a schedule whose moves the database refuses. It returns the value and not whether there is one: SQLite 3.40 says
-- of a NULL in RETURNING that it is not null.
UPDATE schedules SET disabled = :why, next_ms = NULL, due_ms = NULL, missed = 0, missed_ms = NULL
WHERE company_id = :company_id AND name = :name AND disabled IS NULL
RETURNING paused_ms;

-- name: delete_schedule
DELETE FROM schedules WHERE company_id = :company_id AND seq = :seq;

-- name: load_schedules
SELECT seq, name, template, cron, every_ms, zone, anchor_ms, overlap, misfire, jitter_ms, next_ms, due_ms, moved_ms,
    fired_ms, fired_task, fired_to_ms, missed, missed_ms, paused_ms, disabled
FROM schedules WHERE company_id = :company_id ORDER BY name;

-- name: fired_from
-- Nominal times that have fired already. Asked only where the wall clock went back.
SELECT nominal_ms FROM tasks INDEXED BY tasks_nominal
WHERE company_id = :company_id AND schedule = :schedule AND nominal_ms >= :from_ms AND nominal_ms IS NOT NULL
ORDER BY nominal_ms LIMIT :limit;

-- name: fired_last
SELECT max(nominal_ms) FROM tasks INDEXED BY tasks_nominal
WHERE company_id = :company_id AND schedule = :schedule AND nominal_ms IS NOT NULL;

-- name: insert_edge
INSERT INTO edges (company_id, seq, upstream) VALUES (?, ?, ?);

-- name: delete_edges
DELETE FROM edges WHERE company_id = :company_id AND seq = :seq;

-- name: keep_pins
-- The upstreams of a run are fixed from its admission on: before the edges of its task become others, it keeps its own.
UPDATE runs SET pins = (
    SELECT json_group_object(edge.upstream, edge.pinned_run) FROM edges AS edge
    WHERE edge.company_id = runs.company_id AND edge.seq = runs.seq AND edge.pinned_run IS NOT NULL)
WHERE company_id = ?1 AND seq = ?2 AND admitted_ms IS NOT NULL AND pins IS NULL
  AND number = (SELECT max(number) FROM runs WHERE company_id = ?1 AND seq = ?2);

-- name: pin_upstreams
-- In the admission commit: the upstream runs whose results are the inputs. Only completed ones can be pinned.
UPDATE edges SET pinned_run = (
    SELECT run.number FROM tasks AS up JOIN runs AS run ON run.company_id = up.company_id AND run.seq = up.seq
    WHERE up.company_id = edges.company_id AND up.id = edges.upstream AND run.status = 'completed'
      AND run.number = (SELECT max(number) FROM runs WHERE company_id = up.company_id AND seq = up.seq))
WHERE company_id = ? AND seq = ?;

-- name: unpinned_upstreams
-- The same rule once more, from the tables: admission with an upstream that is not completed is refused.
SELECT upstream FROM edges WHERE company_id = ? AND seq = ? AND pinned_run IS NULL LIMIT 1;

-- name: insert_run
INSERT INTO runs (company_id, seq, number, status, created_ms, slot, admitted_ms, settled_ms, started, front, reason, step,
    halted_ms)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: update_run
UPDATE runs SET status = ?, slot = ?, admitted_ms = ?, settled_ms = ?, started = ?, front = ?, reason = ?,
    step = ?, halted_ms = ?
WHERE company_id = ? AND seq = ? AND number = ?;

-- name: set_run_payload
UPDATE runs SET payload = :payload WHERE company_id = :company_id AND seq = :seq AND number = :number;

-- name: carry_run
-- A run that begins with the results of the one before it also has its payload, unless it is given another, and its pins.
UPDATE runs SET (payload, pins) = (
    SELECT coalesce(:payload, old.payload), old.pins FROM runs AS old
    WHERE old.company_id = :company_id AND old.seq = :seq AND old.number = :number - 1)
WHERE company_id = :company_id AND seq = :seq AND number = :number;

-- name: insert_node
-- The node's payload is copied by SQL from where its definition stands; no decision needs it in memory.
INSERT INTO nodes (company_id, seq, run, pos, spec, status, tries, unclean, generation, attempts, not_before_ms,
    error, feedback, send_backs, reached_ms, superseded, result, payload)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, CASE WHEN ?6 = 'succeeded' THEN ?17 END,
    (SELECT CASE WHEN task.graph IS NULL THEN task.node_payloads ELSE graph.node_payloads END -> ('$[' || ?4 || ']')
     FROM tasks AS task LEFT JOIN graphs AS graph ON graph.company_id = task.company_id AND graph.name = task.graph
     WHERE task.company_id = ?1 AND task.seq = ?2));

-- name: carry_node
-- A node of a run that begins with the results of the one before it. The parameters are those of insert_node; payload and
-- result are copied by SQL, so the results that stand may be as large as they like.
INSERT INTO nodes (company_id, seq, run, pos, spec, status, tries, unclean, generation, attempts, not_before_ms,
    error, feedback, send_backs, reached_ms, superseded, result, payload)
SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16,
    CASE WHEN ?6 = 'succeeded' THEN coalesce(?17, old.result) END, old.payload
FROM nodes AS old WHERE old.company_id = ?1 AND old.seq = ?2 AND old.run = ?3 - 1 AND old.pos = ?4;

-- name: update_node
UPDATE nodes SET status = ?1, tries = ?2, unclean = ?3, generation = ?4, attempts = ?5, not_before_ms = ?6, error = ?7,
    feedback = ?8, send_backs = ?9, reached_ms = ?10, superseded = ?11,
    result = CASE WHEN ?1 = 'succeeded' THEN coalesce(?12, result) END
WHERE company_id = ?13 AND seq = ?14 AND run = ?15 AND pos = ?16;

-- name: insert_attempt
INSERT INTO attempts (company_id, seq, run, pos, number, generation, host_id, started_ms, reserved)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: end_attempt
UPDATE attempts SET ended_ms = ?, end = ?, error = ?, spent = ?, assumed = ?, reserved = 0
WHERE company_id = ? AND seq = ? AND run = ? AND pos = ? AND number = ? AND ended_ms IS NULL;

-- name: book_attempt
-- What a live attempt has spent so far, or one that has ended said late.
UPDATE attempts SET spent = :spent, reserved = :reserved, assumed = :assumed
WHERE company_id = :company_id AND seq = :seq AND run = :run AND pos = :pos AND number = :number;

-- name: booked_of
-- Asked only where an attempt says what it spent after its end was committed.
SELECT spent, assumed FROM attempts
WHERE company_id = :company_id AND seq = :seq AND run = :run AND pos = :pos AND number = :number;

-- name: book_task
-- For a task that is not in memory, or whose row cannot be read.
UPDATE tasks SET spent = min(spent + :added, 9000000000000000000) WHERE company_id = :company_id AND seq = :seq;

-- name: set_attempt_process
UPDATE attempts SET pid = :pid, pid_started = :pid_started
WHERE company_id = :company_id AND seq = :seq AND run = :run AND pos = :pos AND number = :number;

-- name: attempt_process
SELECT host_id, pid, pid_started FROM attempts
WHERE company_id = :company_id AND seq = :seq AND run = :run AND pos = :pos AND number = :number;

-- name: attempt_payload
SELECT coalesce(run.payload, task.payload) AS payload, node.payload AS node_payload, run.pins
FROM nodes AS node
CROSS JOIN runs AS run ON run.company_id = node.company_id AND run.seq = node.seq AND run.number = node.run
CROSS JOIN tasks AS task ON task.company_id = node.company_id AND task.seq = node.seq
WHERE node.company_id = ? AND node.seq = ? AND node.run = ? AND node.pos = ?;

-- name: node_result
SELECT result FROM nodes WHERE company_id = ? AND seq = ? AND run = ? AND pos = ?;

-- name: upstream_results
-- What the pinned runs of the upstream tasks have to give, node by node; a task without nodes has one row, without a node.
SELECT edge.upstream, node.spec ->> 'name', node.result FROM edges AS edge
CROSS JOIN tasks AS up ON up.company_id = edge.company_id AND up.id = edge.upstream
LEFT JOIN nodes AS node ON node.company_id = up.company_id AND node.seq = up.seq AND node.run = edge.pinned_run
WHERE edge.company_id = ? AND edge.seq = ? AND edge.pinned_run IS NOT NULL ORDER BY edge.upstream, node.pos;

-- name: pinned_results
-- The same for a run that keeps pins of its own.
SELECT pin.key, node.spec ->> 'name', node.result FROM json_each(?2) AS pin
CROSS JOIN tasks AS up ON up.company_id = ?1 AND up.id = pin.key
LEFT JOIN nodes AS node ON node.company_id = ?1 AND node.seq = up.seq AND node.run = pin.value
ORDER BY pin.key, node.pos;

-- name: insert_event
INSERT INTO events (company_id, seq, kind, at_ms, task, task_seq, run, node, attempt, before, after, reason, data)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: last_insert_position
SELECT last_insert_rowid();

-- name: last_position
SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'events'), 0);

-- name: quarantine_insert
INSERT INTO quarantine (company_id, seq, at_ms, why, traceback) VALUES (:company_id, :seq, :at_ms, :why, :traceback)
ON CONFLICT (company_id, seq) DO UPDATE SET at_ms = excluded.at_ms, why = excluded.why, traceback = excluded.traceback;

-- name: quarantine_reserved
-- What the task's live attempts have reserved becomes spent, until they say what it was. These decode nothing, so they
-- work on rows that nobody can read.
SELECT coalesce(sum(reserved), 0) FROM attempts WHERE company_id = :company_id AND seq = :seq AND ended_ms IS NULL;

-- name: quarantine_task
UPDATE tasks SET spent = spent + :held, reserved = reserved - :held WHERE company_id = :company_id AND seq = :seq;

-- name: quarantine_company
UPDATE companies SET spent = spent + :held, reserved = reserved - :held WHERE company_id = :company_id;

-- name: quarantine_attempts
UPDATE attempts SET ended_ms = :at_ms, end = 'interrupted', error = :why, spent = spent + reserved, reserved = 0,
    assumed = 1
WHERE company_id = :company_id AND seq = :seq AND ended_ms IS NULL;

-- name: quarantine_nodes
UPDATE nodes SET status = 'pending', superseded = 0
WHERE company_id = :company_id AND seq = :seq AND status = 'running';

-- name: quarantine_runs
-- A stop that was asked for stays a stop.
UPDATE runs SET status = CASE status WHEN 'stopping' THEN 'stopped' ELSE 'failed' END, slot = 0, settled_ms = :at_ms,
    reason = :why, front = 0
WHERE company_id = :company_id AND seq = :seq AND slot > 0
RETURNING number, status;

-- name: delete_quarantine
DELETE FROM quarantine WHERE company_id = :company_id AND seq = :seq;

-- name: load_tasks
-- Every task whose newest run is unsettled. The index is the partial one of unsettled runs.
SELECT task.seq, task.id, task.priority, task.created_ms, task.mode, task.goal, task.graph, task.shape, task.tries_max,
    task.fail_fast, task.archived_ms, task.not_before_ms, task.schedule, task.send_backs_max, task.budget, task.spent,
    task.reserved,
    run.number, run.status, run.created_ms, run.slot, run.admitted_ms, run.settled_ms, run.started, run.front, run.reason,
    run.step, run.halted_ms, quarantine.why
FROM runs AS run INDEXED BY runs_unsettled
JOIN tasks AS task ON task.company_id = run.company_id AND task.seq = run.seq
LEFT JOIN quarantine ON quarantine.company_id = task.company_id AND quarantine.seq = task.seq
WHERE run.company_id = :company_id AND run.settled_ms IS NULL AND task.archived_ms IS NULL
ORDER BY run.seq;

-- name: load_tasks_by_id
-- Tasks in whatever state, each with its newest run.
SELECT task.seq, task.id, task.priority, task.created_ms, task.mode, task.goal, task.graph, task.shape, task.tries_max,
    task.fail_fast, task.archived_ms, task.not_before_ms, task.schedule, task.send_backs_max, task.budget, task.spent,
    task.reserved,
    run.number, run.status, run.created_ms, run.slot, run.admitted_ms, run.settled_ms, run.started, run.front, run.reason,
    run.step, run.halted_ms, quarantine.why
FROM json_each(:ids) AS wanted
CROSS JOIN tasks AS task ON task.company_id = :company_id AND task.id = wanted.value
LEFT JOIN runs AS run ON run.company_id = task.company_id AND run.seq = task.seq AND run.number =
    (SELECT max(number) FROM runs WHERE company_id = task.company_id AND seq = task.seq)
LEFT JOIN quarantine ON quarantine.company_id = task.company_id AND quarantine.seq = task.seq;

-- name: load_runless
-- Planted rows: a task without any run. The partial index holds none but those that may be.
SELECT task.seq, task.id, task.priority, task.created_ms, task.mode, task.goal, task.graph, task.shape, task.tries_max,
    task.fail_fast, task.archived_ms, task.not_before_ms, task.schedule, task.send_backs_max, task.budget, task.spent,
    task.reserved,
    NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, quarantine.why
FROM tasks AS task INDEXED BY tasks_runless
LEFT JOIN quarantine ON quarantine.company_id = task.company_id AND quarantine.seq = task.seq
WHERE task.company_id = :company_id AND task.runless = 1 AND task.archived_ms IS NULL
  AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.company_id = task.company_id AND runs.seq = task.seq)
ORDER BY task.seq;

-- name: load_edges
SELECT edge.seq, edge.upstream
FROM runs AS run INDEXED BY runs_unsettled
CROSS JOIN edges AS edge ON edge.company_id = run.company_id AND edge.seq = run.seq
WHERE run.company_id = :company_id AND run.settled_ms IS NULL;

-- name: load_edges_of
SELECT edge.seq, edge.upstream FROM json_each(:seqs) AS wanted
CROSS JOIN edges AS edge ON edge.company_id = :company_id AND edge.seq = wanted.value;

-- name: load_nodes
SELECT node.seq, node.run, node.pos, node.spec, node.status, node.tries, node.unclean, node.generation, node.attempts,
    node.not_before_ms, node.error, node.feedback, node.send_backs, node.reached_ms, node.superseded,
    coalesce(CASE WHEN node.status = 'running' THEN (
        SELECT attempt.spent FROM attempts AS attempt WHERE attempt.company_id = node.company_id
          AND attempt.seq = node.seq AND attempt.run = node.run AND attempt.pos = node.pos
          AND attempt.number = node.attempts) END, 0)
FROM json_each(:runs) AS wanted
CROSS JOIN nodes AS node ON node.company_id = :company_id AND node.seq = wanted.value ->> 0 AND node.run = wanted.value ->> 1;

-- name: load_graphs
SELECT name, version, shape, node_payloads FROM graphs WHERE company_id = :company_id;

-- name: standing_of
-- Of upstreams that are not in memory: done, there but not done, or (no row) missing.
SELECT wanted.value, run.status = 'completed' AND quarantine.seq IS NULL
FROM json_each(:ids) AS wanted
CROSS JOIN tasks AS task ON task.company_id = :company_id AND task.id = wanted.value
LEFT JOIN runs AS run ON run.company_id = task.company_id AND run.seq = task.seq AND run.number =
    (SELECT max(number) FROM runs WHERE company_id = task.company_id AND seq = task.seq)
LEFT JOIN quarantine ON quarantine.company_id = task.company_id AND quarantine.seq = task.seq;

-- name: contents_by_id
SELECT task.id, task.content FROM json_each(:ids) AS wanted
CROSS JOIN tasks AS task ON task.company_id = :company_id AND task.id = wanted.value;

-- name: tasks_by_key
SELECT task.key, task.id, task.content FROM json_each(:keys) AS wanted
CROSS JOIN tasks AS task INDEXED BY tasks_key ON task.company_id = :company_id AND task.key = wanted.value;

-- name: upstream_closure
-- All edges from these tasks upwards. UNION, so a planted circle ends.
WITH RECURSIVE above (id) AS (
    SELECT value FROM json_each(:ids)
    UNION
    SELECT edge.upstream FROM above
    JOIN tasks AS task ON task.company_id = :company_id AND task.id = above.id
    JOIN edges AS edge ON edge.company_id = :company_id AND edge.seq = task.seq)
SELECT task.id, edge.upstream FROM above
CROSS JOIN tasks AS task ON task.company_id = :company_id AND task.id = above.id
CROSS JOIN edges AS edge ON edge.company_id = :company_id AND edge.seq = task.seq;

-- name: task_key
SELECT task.company_id, task.seq
FROM companies AS company JOIN tasks AS task ON task.company_id = company.company_id
WHERE company.name = :company AND task.id = :id;

-- name: task_standing
-- With whether it is set aside.
SELECT task.seq, EXISTS (
    SELECT 1 FROM quarantine WHERE quarantine.company_id = task.company_id AND quarantine.seq = task.seq)
FROM companies AS company JOIN tasks AS task ON task.company_id = company.company_id
WHERE company.name = :company AND task.id = :id;

-- name: titles
SELECT task.id, task.title FROM json_each(:ids) AS wanted
CROSS JOIN tasks AS task ON task.company_id = :company_id AND task.id = wanted.value;

-- name: all_task_ids
-- For display: creation order.
SELECT id FROM tasks WHERE company_id = (SELECT company_id FROM companies WHERE name = :company)
  AND (archived_ms IS NULL OR :archived) ORDER BY seq;

-- name: results
SELECT node.spec, node.result FROM nodes AS node
WHERE node.company_id = :company_id AND node.seq = :seq AND node.run = :run AND node.status = 'succeeded'
ORDER BY node.pos;

-- name: attempts_of
SELECT node.spec, attempt.seq, attempt.run, attempt.pos, attempt.number, attempt.generation, attempt.host_id,
    attempt.started_ms, attempt.ended_ms, attempt.end, attempt.error, attempt.reserved, attempt.spent, attempt.assumed
FROM attempts AS attempt
JOIN nodes AS node ON node.company_id = attempt.company_id AND node.seq = attempt.seq AND node.run = attempt.run
    AND node.pos = attempt.pos
WHERE attempt.company_id = :company_id AND attempt.seq = :seq
ORDER BY attempt.run, attempt.started_ms, attempt.pos, attempt.number;

-- name: events_all
-- A company that is being deleted has no name any more; its deletion knows what it was.
SELECT event.position,
    coalesce(company.name, (SELECT name FROM deletions WHERE deletions.company_id = event.company_id)),
    event.seq, event.at_ms, event.kind, event.task, event.run, event.node, event.attempt,
    event.before, event.after, event.reason, event.data
FROM events AS event LEFT JOIN companies AS company ON company.company_id = event.company_id
WHERE event.position > :after ORDER BY event.position LIMIT :limit;

-- name: events_company
SELECT event.position, :name, event.seq, event.at_ms, event.kind, event.task, event.run, event.node, event.attempt,
    event.before, event.after, event.reason, event.data
FROM events AS event
WHERE event.company_id = :company_id AND event.seq > :after_seq ORDER BY event.seq LIMIT :limit;

-- name: event_position
SELECT position FROM events WHERE company_id = :company_id AND seq = :seq;

-- name: event_seq
SELECT event_seq FROM companies WHERE company_id = :company_id;

-- name: events_task
SELECT event.position, :name, event.seq, event.at_ms, event.kind, event.task, event.run, event.node, event.attempt,
    event.before, event.after, event.reason, event.data
FROM events AS event INDEXED BY events_task
WHERE event.company_id = :company_id AND event.task_seq = :task_seq ORDER BY event.position;

-- name: host_begin
INSERT INTO hosts (pid, started_ms) VALUES (:pid, :started_ms) RETURNING host_id;

-- name: host_end
UPDATE hosts SET ended_ms = :ended_ms WHERE host_id = :host_id;

-- name: sweep_active
-- Companies that may not wait: something of them is running or stopping. From the runs, so the idle cost nothing.
SELECT company.name, company.company_id FROM (
    SELECT DISTINCT company_id FROM runs INDEXED BY runs_slot
    WHERE slot > 0 AND company_id > :after ORDER BY company_id LIMIT :limit) AS active
CROSS JOIN companies AS company ON company.company_id = active.company_id;

-- name: sweep_due
SELECT name FROM companies INDEXED BY companies_due WHERE due_ms <= :now_ms ORDER BY due_ms LIMIT :limit;

-- name: sweep_schedules
-- Companies with a schedule whose time has come, in case their own due time does not say so.
SELECT company.name FROM schedules AS schedule INDEXED BY schedules_due
CROSS JOIN companies AS company ON company.company_id = schedule.company_id
WHERE schedule.due_ms <= :now_ms AND schedule.paused_ms IS NULL AND company.paused_ms IS NULL
  AND company.name IS NOT NULL ORDER BY schedule.due_ms LIMIT :limit;

-- name: sweep_queued
-- Companies with unsettled runs that do not only wait for a person, oldest-checked first. It steps from company to company along the index of unsettled
-- runs, so neither the idle ones nor the length of a queue cost anything.
WITH RECURSIVE living (company_id) AS (
    SELECT min(company_id) FROM runs INDEXED BY runs_unsettled WHERE settled_ms IS NULL
    UNION ALL
    SELECT (SELECT min(company_id) FROM runs INDEXED BY runs_unsettled
            WHERE settled_ms IS NULL AND company_id > living.company_id)
    FROM living WHERE living.company_id IS NOT NULL)
SELECT company.name FROM living CROSS JOIN companies AS company ON company.company_id = living.company_id
WHERE company.name IS NOT NULL
  AND EXISTS (SELECT 1 FROM runs INDEXED BY runs_unsettled
              WHERE runs.company_id = company.company_id AND runs.settled_ms IS NULL AND runs.status <> 'halted')
ORDER BY company.checked_ms, company.company_id LIMIT :limit;

-- name: mark_checked
UPDATE companies SET checked_ms = :now_ms WHERE name IN (SELECT value FROM json_each(:names));

-- name: earliest_due
-- With whether it may be for a schedule. Companies with work of their own are loaded by the first sweep, and know.
SELECT company.name, company.due_ms,
    EXISTS (SELECT 1 FROM schedules WHERE schedules.company_id = company.company_id)
FROM companies AS company INDEXED BY companies_due WHERE company.due_ms IS NOT NULL
ORDER BY company.due_ms LIMIT :limit;

-- name: latest_event_ms
-- What the wall clock showed before the event of this position.
SELECT at_ms FROM events WHERE position < :before ORDER BY position DESC LIMIT 1;

-- name: inbox_find
SELECT number, company, id, sent_ms, answered_ms, answer, message FROM inbox WHERE company = :company AND id = :id;

-- name: inbox_put
INSERT INTO inbox (company, id, sent_ms, message) VALUES (:company, :id, :sent_ms, :message);

-- name: inbox_count
-- How many wait, and how many of them for this company; counts stop at what is allowed.
SELECT (SELECT count(*) FROM (SELECT 1 FROM inbox INDEXED BY inbox_waiting WHERE answered_ms IS NULL LIMIT :most)),
    (SELECT count(*) FROM (SELECT 1 FROM inbox INDEXED BY inbox_waiting
                           WHERE answered_ms IS NULL AND company = :company LIMIT :most_of_company));

-- name: data_version
-- Changes with every commit of another connection, whichever process it belongs to, and with nothing else.
PRAGMA data_version;

-- name: inbox_waiting
-- The first that wait, in rounds over the companies: the first of each, then the second of each. Reads the index alone.
SELECT number FROM (
    SELECT number, row_number() OVER (PARTITION BY company ORDER BY number) AS place
    FROM inbox INDEXED BY inbox_waiting
    WHERE answered_ms IS NULL AND company NOT IN (SELECT value FROM json_each(:busy)))
WHERE place <= :each ORDER BY place, number LIMIT :limit;

-- name: inbox_row
SELECT number, company, id, sent_ms, answered_ms, answer, message FROM inbox WHERE number = :number;

-- name: inbox_answer
-- In the unit that carries out the message; refused if it is answered already or gone.
INSERT INTO inbox_answers (number, answered_ms, answer) VALUES (:number, :answered_ms, :answer);

-- name: inbox_answer_unless_answered
-- For a message that was not carried out, or whose unit has answered it itself.
UPDATE inbox SET answered_ms = ?, answer = ? WHERE number = ? AND answered_ms IS NULL;

-- name: inbox_answer_all
-- Whatever waits for a company that is being deleted.
UPDATE inbox INDEXED BY inbox_waiting SET answered_ms = :answered_ms, answer = :answer
WHERE answered_ms IS NULL AND company = :company;

-- name: inbox_forget
-- What was said to a company that is being deleted, some at a time.
DELETE FROM inbox WHERE number IN (
    SELECT inbox.number FROM deletions CROSS JOIN inbox ON inbox.company = deletions.name
    WHERE deletions.company_id = :company_id AND inbox.answered_ms <= deletions.asked_ms LIMIT :limit);

-- name: inbox_unanswered
SELECT number, company, id, sent_ms, answered_ms, answer, message FROM inbox INDEXED BY inbox_waiting
WHERE answered_ms IS NULL AND (:company IS NULL OR company = :company) ORDER BY number LIMIT :limit;

-- name: inbox_lately_answered
SELECT number, company, id, sent_ms, answered_ms, answer, message FROM inbox INDEXED BY inbox_answered
WHERE answered_ms IS NOT NULL AND (:company IS NULL OR company = :company) ORDER BY answered_ms DESC, number DESC LIMIT :limit;

-- name: inbox_companies
SELECT DISTINCT company FROM inbox INDEXED BY inbox_waiting WHERE answered_ms IS NULL;

-- name: inbox_oldest_answer
SELECT answered_ms FROM inbox INDEXED BY inbox_answered WHERE answered_ms IS NOT NULL ORDER BY answered_ms LIMIT 1;

-- name: inbox_prune
DELETE FROM inbox WHERE number IN (
    SELECT number FROM inbox INDEXED BY inbox_answered WHERE answered_ms < :before_ms ORDER BY answered_ms LIMIT :limit);
-- name: floor
-- Row 0 is the floor of the whole log.
SELECT position, seq FROM floors WHERE company_id = :company_id;

-- name: raise_floor
INSERT INTO floors (company_id, position, seq) VALUES (:company_id, :position, :seq)
ON CONFLICT (company_id) DO UPDATE SET position = excluded.position, seq = excluded.seq;

-- name: oldest_events
SELECT position, at_ms, kind, company_id, seq FROM events WHERE position > :after ORDER BY position LIMIT :limit;

-- name: prune_events
DELETE FROM events WHERE position > :after AND position <= :last;

-- name: prune_hosts
-- The newest is the one that runs, or ran last.
DELETE FROM hosts WHERE host_id IN (SELECT host_id FROM hosts ORDER BY host_id LIMIT :limit)
  AND started_ms < :before_ms AND host_id < (SELECT max(host_id) FROM hosts);

-- name: companies_after
SELECT company_id, name, task_seq FROM companies
WHERE company_id > :after AND name IS NOT NULL ORDER BY company_id LIMIT :limit;

-- name: epoch_of
-- Of a company that is not being deleted.
SELECT epoch FROM companies WHERE company_id = :company_id AND name IS NOT NULL;

-- name: task_from
-- Tasks are numbered in the order of their creation, so a time can be found by halving.
SELECT seq, created_ms FROM tasks WHERE company_id = :company_id AND seq >= :seq ORDER BY seq LIMIT 1;

-- name: old_tasks
-- The next tasks, and whether each is old enough to go: archived, or completed and not set aside; with nothing of it
-- unsettled or open, and its key not to be remembered any more. A time that is not given lets nothing go.
SELECT task.seq, task.id,
    (task.key IS NULL OR task.created_ms < :keys_ms)
    AND CASE WHEN task.archived_ms IS NOT NULL THEN task.archived_ms < :archived_ms
        ELSE (SELECT run.status = 'completed' AND run.settled_ms < :tasks_ms FROM runs AS run
              WHERE run.company_id = task.company_id AND run.seq = task.seq ORDER BY run.number DESC LIMIT 1)
            AND NOT EXISTS (SELECT 1 FROM quarantine
                            WHERE quarantine.company_id = task.company_id AND quarantine.seq = task.seq) END
    AND NOT EXISTS (SELECT 1 FROM runs
                    WHERE runs.company_id = task.company_id AND runs.seq = task.seq AND runs.settled_ms IS NULL)
    AND NOT EXISTS (SELECT 1 FROM attempts
                    WHERE attempts.company_id = task.company_id AND attempts.seq = task.seq AND attempts.ended_ms IS NULL)
FROM tasks AS task
WHERE task.company_id = :company_id AND task.seq > :after AND task.seq < :before ORDER BY task.seq LIMIT :limit;

-- name: dependents_of
SELECT seq FROM edges WHERE company_id = :company_id AND upstream = :task LIMIT :limit;

-- name: upstream_seqs
SELECT up.seq FROM edges AS edge
CROSS JOIN tasks AS up ON up.company_id = edge.company_id AND up.id = edge.upstream
WHERE edge.company_id = :company_id AND edge.seq = :seq;

-- name: old_attempts
-- The next attempts, and whether each is old enough to go: its run is settled.
SELECT attempt.seq, attempt.run, attempt.pos, attempt.number,
    attempt.ended_ms < :before_ms AND run.settled_ms IS NOT NULL
FROM attempts AS attempt
JOIN runs AS run ON run.company_id = attempt.company_id AND run.seq = attempt.seq AND run.number = attempt.run
WHERE attempt.company_id = :company_id
  AND (attempt.seq, attempt.run, attempt.pos, attempt.number) > (:seq, :run, :pos, :number) AND attempt.seq < :before
ORDER BY attempt.seq, attempt.run, attempt.pos, attempt.number LIMIT :limit;

-- name: prune_attempts
-- Those named, if they may still go.
DELETE FROM attempts WHERE company_id = :company_id AND (seq, run, pos, number) IN (
    SELECT attempt.seq, attempt.run, attempt.pos, attempt.number FROM json_each(:keys) AS wanted
    CROSS JOIN attempts AS attempt ON attempt.company_id = :company_id AND attempt.seq = wanted.value ->> 0
        AND attempt.run = wanted.value ->> 1 AND attempt.pos = wanted.value ->> 2 AND attempt.number = wanted.value ->> 3
    JOIN runs AS run ON run.company_id = attempt.company_id AND run.seq = attempt.seq AND run.number = attempt.run
    WHERE attempt.ended_ms < :before_ms AND run.settled_ms IS NOT NULL);

-- name: task_attempts
DELETE FROM attempts WHERE company_id = :company_id AND seq = :seq;

-- name: task_nodes
DELETE FROM nodes WHERE company_id = :company_id AND seq = :seq;

-- name: task_runs
DELETE FROM runs WHERE company_id = :company_id AND seq = :seq;

-- name: task_row
DELETE FROM tasks WHERE company_id = :company_id AND seq = :seq;

-- name: active_tasks
SELECT task.id FROM runs AS run INDEXED BY runs_slot
CROSS JOIN tasks AS task ON task.company_id = run.company_id AND task.seq = run.seq
WHERE run.company_id = :company_id AND run.slot > 0 ORDER BY run.slot LIMIT :limit;

-- name: mark_deleted
-- The name is free from here on, and no actor of the company can write any more.
UPDATE companies SET name = NULL, epoch = epoch + 1, due_ms = NULL WHERE company_id = :company_id RETURNING epoch;

-- name: insert_deletion
INSERT INTO deletions (company_id, name, asked_ms) VALUES (:company_id, :name, :asked_ms);

-- name: list_deletions
SELECT deletion.company_id, deletion.name, company.epoch
FROM deletions AS deletion JOIN companies AS company USING (company_id) ORDER BY deletion.company_id;

-- name: deletion
-- One that goes on under this epoch.
SELECT deletion.name, deletion.tasks, deletion.attempts, deletion.events
FROM deletions AS deletion JOIN companies AS company USING (company_id)
WHERE deletion.company_id = :company_id AND company.epoch = :epoch;

-- name: count_deleted
UPDATE deletions SET tasks = tasks + :tasks, attempts = attempts + :attempts, events = events + :events
WHERE company_id = :company_id;

-- name: company_attempts
-- These let go of some rows of a company, by its keys; what refers to a row goes before it.
DELETE FROM attempts WHERE company_id = :company_id AND (seq, run, pos, number) IN (
    SELECT seq, run, pos, number FROM attempts WHERE company_id = :company_id
    ORDER BY seq, run, pos, number LIMIT :limit);

-- name: company_nodes
DELETE FROM nodes WHERE company_id = :company_id AND (seq, run, pos) IN (
    SELECT seq, run, pos FROM nodes WHERE company_id = :company_id ORDER BY seq, run, pos LIMIT :limit);

-- name: company_edges
DELETE FROM edges WHERE company_id = :company_id AND (seq, upstream) IN (
    SELECT seq, upstream FROM edges WHERE company_id = :company_id ORDER BY seq, upstream LIMIT :limit);

-- name: company_quarantine
DELETE FROM quarantine WHERE company_id = :company_id AND seq IN (
    SELECT seq FROM quarantine WHERE company_id = :company_id ORDER BY seq LIMIT :limit);

-- name: company_runs
DELETE FROM runs WHERE company_id = :company_id AND (seq, number) IN (
    SELECT seq, number FROM runs WHERE company_id = :company_id ORDER BY seq, number LIMIT :limit);

-- name: company_tasks
DELETE FROM tasks WHERE company_id = :company_id AND seq IN (
    SELECT seq FROM tasks WHERE company_id = :company_id ORDER BY seq LIMIT :limit);

-- name: company_graphs
DELETE FROM graphs WHERE company_id = :company_id AND name IN (
    SELECT name FROM graphs WHERE company_id = :company_id ORDER BY name LIMIT :limit);

-- name: company_schedules
DELETE FROM schedules WHERE company_id = :company_id AND seq IN (
    SELECT seq FROM schedules WHERE company_id = :company_id ORDER BY seq LIMIT :limit);

-- name: company_events
DELETE FROM events WHERE position IN (
    SELECT position FROM events WHERE company_id = :company_id ORDER BY seq LIMIT :limit);

-- name: company_floor
DELETE FROM floors WHERE company_id = :company_id;

-- name: company_deletion
DELETE FROM deletions WHERE company_id = :company_id;

-- name: company_row
DELETE FROM companies WHERE company_id = :company_id;

-- name: forget_processes
-- In a copy of the database: whose commands these are does not change, but whoever opens the copy must not end them.
UPDATE attempts SET pid = NULL, pid_started = NULL WHERE pid IS NOT NULL AND ended_ms IS NULL;
