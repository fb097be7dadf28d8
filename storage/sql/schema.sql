-- The facts. The tables repeat the rules of the code as CHECKs, indexes and triggers, so that a mistake in the code is
-- refused by the file. Every key begins with the company; a task is known by its submission sequence inside the company,
-- which its actor gives out, so a unit of work can be written without reading anything back.
-- Times are integer milliseconds UTC. Booleans are 0 or 1.

CREATE TABLE hosts (
    -- one row per process that opened the database as its owner
    host_id     INTEGER PRIMARY KEY AUTOINCREMENT,
    pid         INTEGER NOT NULL,
    started_ms  INTEGER NOT NULL,
    ended_ms    INTEGER
) STRICT;

CREATE TABLE companies (
    company_id  INTEGER PRIMARY KEY AUTOINCREMENT,   -- never reused: under a name that is used again lives another one
    name        TEXT    UNIQUE CHECK (length(name) BETWEEN 1 AND 128),   -- NULL: it is being deleted
    epoch       INTEGER NOT NULL DEFAULT 0,
    runs_max    INTEGER NOT NULL DEFAULT 1 CHECK (runs_max >= 0),
    weight      INTEGER NOT NULL DEFAULT 1 CHECK (weight >= 1),
    paused_ms   INTEGER,
    task_seq    INTEGER NOT NULL DEFAULT 0,
    front_seq   INTEGER NOT NULL DEFAULT 0,
    event_seq   INTEGER NOT NULL DEFAULT 0,
    due_ms      INTEGER,                     -- the earliest time at which something here becomes due
    checked_ms  INTEGER NOT NULL DEFAULT 0,  -- when the sweep last looked
    budget      INTEGER CHECK (budget >= 0),                         -- NULL: unlimited
    spent       INTEGER NOT NULL DEFAULT 0 CHECK (spent >= 0),       -- by all attempts there ever were
    reserved    INTEGER NOT NULL DEFAULT 0 CHECK (reserved >= 0)     -- by those that live
) STRICT;

CREATE INDEX companies_due ON companies (due_ms) WHERE due_ms IS NOT NULL;

CREATE TABLE graphs (
    -- the newest definition only: a run copies it into its node rows at its first admission
    company_id     INTEGER NOT NULL REFERENCES companies,
    name           TEXT    NOT NULL,
    version        INTEGER NOT NULL,
    shape          TEXT    NOT NULL,
    node_payloads  TEXT,
    PRIMARY KEY (company_id, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE tasks (
    company_id     INTEGER NOT NULL REFERENCES companies,
    seq            INTEGER NOT NULL CHECK (seq > 0),
    id             TEXT    NOT NULL CHECK (length(id) BETWEEN 1 AND 128),
    priority       INTEGER NOT NULL,
    created_ms     INTEGER NOT NULL,
    mode           TEXT    NOT NULL CHECK (mode IN ('auto', 'manual', 'step')),
    goal           TEXT,
    graph          TEXT,
    shape          TEXT    NOT NULL,
    tries_max   INTEGER CHECK (tries_max >= 1),
    fail_fast      INTEGER NOT NULL CHECK (fail_fast IN (0, 1)),
    archived_ms    INTEGER,
    title          TEXT    NOT NULL,
    payload        TEXT,
    node_payloads  TEXT,                     -- JSON array by node position, NULL when no node has one
    key            TEXT,
    content        TEXT,                     -- digest of what was submitted under the key or the chosen id
    not_before_ms  INTEGER,
    schedule       TEXT,                     -- the schedule that made it; without a nominal time: by RunNow
    nominal_ms     INTEGER,
    send_backs_max INTEGER CHECK (send_backs_max >= 0),
    budget         INTEGER CHECK (budget >= 0),
    spent          INTEGER NOT NULL DEFAULT 0 CHECK (spent >= 0),
    reserved       INTEGER NOT NULL DEFAULT 0 CHECK (reserved >= 0),
    PRIMARY KEY (company_id, seq),
    CHECK (nominal_ms IS NULL OR schedule IS NOT NULL)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX tasks_id  ON tasks (company_id, id);
CREATE UNIQUE INDEX tasks_key ON tasks (company_id, key) WHERE key IS NOT NULL;

-- Of one nominal time of a schedule there is one task, whatever the code believes.
CREATE UNIQUE INDEX tasks_nominal ON tasks (company_id, schedule, nominal_ms) WHERE nominal_ms IS NOT NULL;

CREATE TABLE schedules (
    -- One row while the schedule is there; RemoveSchedule deletes it, nothing else prunes it. The tasks that it made are
    -- tasks like others, and go with them.
    company_id   INTEGER NOT NULL REFERENCES companies,
    seq          INTEGER NOT NULL CHECK (seq > 0),
    name         TEXT    NOT NULL CHECK (length(name) BETWEEN 1 AND 128),
    template     TEXT    NOT NULL,
    cron         TEXT,
    every_ms     INTEGER CHECK (every_ms >= 1000),
    zone         TEXT    NOT NULL,
    anchor_ms    INTEGER NOT NULL,
    overlap      TEXT    NOT NULL CHECK (overlap IN ('skip', 'queue')),
    misfire      TEXT    NOT NULL CHECK (misfire IN ('latest', 'skip')),
    jitter_ms    INTEGER NOT NULL CHECK (jitter_ms >= 0),
    next_ms      INTEGER,                    -- the next nominal time
    due_ms       INTEGER,                    -- when it is due by the wall clock: then, unless the clock went back
    moved_ms     INTEGER NOT NULL,
    fired_ms     INTEGER,
    fired_task   TEXT,
    fired_to_ms  INTEGER,
    missed       INTEGER NOT NULL DEFAULT 0 CHECK (missed >= 0),
    missed_ms    INTEGER,
    paused_ms    INTEGER,
    disabled     TEXT,
    PRIMARY KEY (company_id, seq),
    CHECK ((cron IS NULL) <> (every_ms IS NULL)),
    CHECK ((next_ms IS NULL) = (disabled IS NOT NULL)),
    CHECK ((due_ms IS NULL) = (next_ms IS NULL)),
    CHECK (due_ms <= next_ms),
    CHECK ((missed > 0) = (missed_ms IS NOT NULL)),
    CHECK ((fired_ms IS NULL) = (fired_task IS NULL))
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX schedules_name ON schedules (company_id, name);
-- What the sweep asks, in case a company's own due time was lost.
CREATE INDEX schedules_due ON schedules (due_ms) WHERE due_ms IS NOT NULL AND paused_ms IS NULL;

CREATE TABLE edges (
    -- by id, not by sequence: an upstream whose row is missing must still be nameable
    company_id  INTEGER NOT NULL,
    seq         INTEGER NOT NULL,
    upstream    TEXT    NOT NULL,
    pinned_run  INTEGER,                     -- the upstream's run whose results are the inputs, from admission on
    PRIMARY KEY (company_id, seq, upstream),
    FOREIGN KEY (company_id, seq) REFERENCES tasks
) STRICT, WITHOUT ROWID;

-- Who depends on a task: as long as anybody does, it stays. Written with the edges only, which few tasks have.
CREATE INDEX edges_upstream ON edges (company_id, upstream);

CREATE TABLE runs (
    company_id    INTEGER NOT NULL,
    seq           INTEGER NOT NULL,
    number        INTEGER NOT NULL CHECK (number > 0),
    status        TEXT    NOT NULL CHECK (status IN
                      ('queued', 'running', 'stopping', 'halted', 'completed', 'failed', 'stopped')),
    created_ms    INTEGER NOT NULL,
    slot          INTEGER NOT NULL DEFAULT 0,
    admitted_ms   INTEGER,
    settled_ms    INTEGER,
    started       INTEGER NOT NULL DEFAULT 0 CHECK (started IN (0, 1)),
    front         INTEGER NOT NULL DEFAULT 0,  -- rank by StartNow: first in order, and past a company pause
    reason        TEXT,
    payload       TEXT,                      -- replaces the task's payload in this run
    step          INTEGER,                   -- position of the node that a person let start last
    halted_ms     INTEGER,
    pins          TEXT,                      -- JSON upstream -> run, once the task's edges are other than those it was admitted with
    PRIMARY KEY (company_id, seq, number),
    FOREIGN KEY (company_id, seq) REFERENCES tasks,
    CHECK ((halted_ms IS NOT NULL) = (status = 'halted')),
    CHECK ((slot > 0) = (status IN ('running', 'stopping'))),
    CHECK ((settled_ms IS NOT NULL) = (status IN ('completed', 'failed', 'stopped'))),
    CHECK (status IN ('queued', 'stopped', 'failed') OR admitted_ms IS NOT NULL)
) STRICT, WITHOUT ROWID;

-- Each active run has a slot number of its own. NOT NULL matters: NULLs would not collide.
CREATE UNIQUE INDEX runs_slot ON runs (company_id, slot) WHERE slot > 0;
-- What an actor loads; it does not hold the status, so a move inside the living ones does not rewrite it.
CREATE INDEX runs_unsettled ON runs (company_id, seq) WHERE settled_ms IS NULL;

-- The limit holds even if the code is wrong: becoming active counts, and aborts above the limit then in force.
CREATE TRIGGER runs_admission_by_update BEFORE UPDATE OF slot ON runs WHEN NEW.slot > 0 AND OLD.slot = 0
BEGIN
    SELECT RAISE(ABORT, 'runs_max reached')
    WHERE (SELECT count(*) FROM runs WHERE company_id = NEW.company_id AND slot > 0)
       >= (SELECT runs_max FROM companies WHERE company_id = NEW.company_id);
END;

CREATE TRIGGER runs_admission_by_insert BEFORE INSERT ON runs WHEN NEW.slot > 0
BEGIN
    SELECT RAISE(ABORT, 'runs_max reached')
    WHERE (SELECT count(*) FROM runs WHERE company_id = NEW.company_id AND slot > 0)
       >= (SELECT runs_max FROM companies WHERE company_id = NEW.company_id);
END;

CREATE TABLE nodes (
    company_id     INTEGER NOT NULL,
    seq            INTEGER NOT NULL,
    run            INTEGER NOT NULL,
    pos            INTEGER NOT NULL CHECK (pos >= 0),
    spec           TEXT    NOT NULL,
    status         TEXT    NOT NULL CHECK (status IN ('pending', 'running', 'succeeded', 'failed', 'skipped')),
    tries          INTEGER NOT NULL DEFAULT 0 CHECK (tries >= 0),
    unclean        INTEGER NOT NULL DEFAULT 0 CHECK (unclean >= 0),
    generation     INTEGER NOT NULL DEFAULT 0,
    attempts       INTEGER NOT NULL DEFAULT 0,
    not_before_ms  INTEGER,
    error          TEXT,
    payload        TEXT,
    result         TEXT,
    feedback       TEXT,                     -- of this generation
    send_backs     INTEGER NOT NULL DEFAULT 0 CHECK (send_backs >= 0),
    reached_ms     INTEGER CHECK (reached_ms IS NULL OR status = 'pending'),   -- of a gate: since when it waits
    superseded     INTEGER NOT NULL DEFAULT 0 CHECK (superseded = 0 OR (superseded = 1 AND status = 'running')),
    PRIMARY KEY (company_id, seq, run, pos),
    FOREIGN KEY (company_id, seq, run) REFERENCES runs,
    CHECK ((result IS NOT NULL) = (status = 'succeeded'))
) STRICT, WITHOUT ROWID;

CREATE TABLE attempts (
    company_id   INTEGER NOT NULL,
    seq          INTEGER NOT NULL,
    run          INTEGER NOT NULL,
    pos          INTEGER NOT NULL,
    number       INTEGER NOT NULL CHECK (number > 0),
    generation   INTEGER NOT NULL,
    host_id      INTEGER NOT NULL,
    started_ms   INTEGER NOT NULL,
    ended_ms     INTEGER,
    end          TEXT CHECK (end IN ('succeeded', 'failed', 'timed_out', 'stalled', 'interrupted', 'stopped',
                                     'superseded', 'lost')),
    error        TEXT,
    pid          INTEGER,                    -- of a command node: what a restart ends before it runs the node again
    pid_started  TEXT,
    reserved     INTEGER NOT NULL DEFAULT 0 CHECK (reserved >= 0),   -- of its estimate, what it has not spent yet
    spent        INTEGER NOT NULL DEFAULT 0 CHECK (spent >= 0),      -- as far as it is booked
    assumed      INTEGER NOT NULL DEFAULT 0 CHECK (assumed IN (0, 1)),   -- nobody could say what it spent
    PRIMARY KEY (company_id, seq, run, pos, number),
    FOREIGN KEY (company_id, seq, run, pos) REFERENCES nodes,
    CHECK ((end IS NULL) = (ended_ms IS NULL)),
    CHECK (reserved = 0 OR end IS NULL)
) STRICT, WITHOUT ROWID;

-- Of one generation one result is accepted.
CREATE UNIQUE INDEX attempts_accepted ON attempts (company_id, seq, run, pos, generation) WHERE end = 'succeeded';

CREATE TABLE quarantine (
    -- tasks whose rows or moves cannot be trusted; written by SQL that decodes nothing
    company_id  INTEGER NOT NULL,
    seq         INTEGER NOT NULL,
    at_ms       INTEGER NOT NULL,
    why         TEXT    NOT NULL,
    traceback   TEXT,
    PRIMARY KEY (company_id, seq),
    FOREIGN KEY (company_id, seq) REFERENCES tasks
) STRICT, WITHOUT ROWID;

CREATE TABLE events (
    position    INTEGER PRIMARY KEY AUTOINCREMENT,   -- never reused, so a cursor never points at something else
    company_id  INTEGER,                             -- NULL: an event of the runtime itself
    seq         INTEGER,
    at_ms       INTEGER NOT NULL,
    kind        TEXT    NOT NULL,
    task        TEXT,
    task_seq    INTEGER,
    run         INTEGER,
    node        TEXT,
    attempt     INTEGER,
    before      TEXT,
    after       TEXT,
    reason      TEXT,
    data        TEXT,
    CHECK ((company_id IS NULL) = (seq IS NULL))
) STRICT;

CREATE UNIQUE INDEX events_company ON events (company_id, seq) WHERE company_id IS NOT NULL;
CREATE INDEX events_task ON events (company_id, task_seq) WHERE task_seq IS NOT NULL;

CREATE TABLE inbox (
    -- messages that other processes left for the host, each with its answer; the one table that others write to.
    -- Pruned by the host itself: an answered row goes a week after its answer, see storage/inbox.py
    number       INTEGER PRIMARY KEY AUTOINCREMENT,   -- the order of arrival
    company      TEXT    NOT NULL,
    id           TEXT    NOT NULL,                    -- chosen by the sender: sent again it finds its first answer
    sent_ms      INTEGER NOT NULL,
    answered_ms  INTEGER,                             -- NULL: it waits
    answer       TEXT,
    message      TEXT    NOT NULL CHECK (length(message) <= 4194304),
    UNIQUE (company, id),
    CHECK ((answered_ms IS NULL) = (answer IS NULL))
) STRICT;

CREATE INDEX inbox_waiting ON inbox (company, answered_ms) WHERE answered_ms IS NULL;
CREATE INDEX inbox_answered ON inbox (answered_ms) WHERE answered_ms IS NOT NULL;

-- An answer is given once. The unit that carries out a message writes the answer through this view, so a message that is
-- answered already, or is not there, takes the whole unit back and nothing of it happens.
CREATE VIEW inbox_answers AS SELECT number, answered_ms, answer FROM inbox WHERE answered_ms IS NOT NULL;

CREATE TRIGGER inbox_answer INSTEAD OF INSERT ON inbox_answers
BEGIN
    SELECT RAISE(ABORT, 'no such message waits for an answer')
    WHERE NOT EXISTS (SELECT 1 FROM inbox WHERE number = NEW.number AND answered_ms IS NULL);
    UPDATE inbox SET answered_ms = NEW.answered_ms, answer = NEW.answer WHERE number = NEW.number;
END;

CREATE TRIGGER inbox_answered_once BEFORE UPDATE OF answered_ms, answer ON inbox WHEN OLD.answered_ms IS NOT NULL
BEGIN
    SELECT RAISE(ABORT, 'this message is answered');
END;
CREATE TABLE floors (
    -- how far the log was let go: what stood at or before the position is gone. Row 0 speaks of the whole log; a
    -- company's row of the last line of its own that is gone, so that a cursor of a quiet company is not too old
    company_id  INTEGER PRIMARY KEY CHECK (company_id >= 0),
    position    INTEGER NOT NULL,
    seq         INTEGER NOT NULL             -- the company's number of that line; 0 in row 0
) STRICT;

CREATE TABLE deletions (
    -- companies that are being deleted, with what went so far: whoever finds a row here goes on
    company_id  INTEGER PRIMARY KEY REFERENCES companies,
    name        TEXT    NOT NULL,
    asked_ms    INTEGER NOT NULL,
    tasks       INTEGER NOT NULL DEFAULT 0,
    attempts    INTEGER NOT NULL DEFAULT 0,
    events      INTEGER NOT NULL DEFAULT 0
) STRICT;
