"""What can be said to a company, and what it answers.

A message is a frozen value that checks itself when it is built: values that no company could accept raise
`InvalidMessage`, `InvalidName` or `InvalidJson` right there, in the sender's code. What depends on the
company's state is decided by its actor, which answers with a reply or a `Refused` error. The reply type
follows from the message class: ``await company.ask(Submit(…))`` returns a `Submitted`.

| module | contains |
| --- | --- |
| `base` | what all messages have in common, and the limits |
| `checks` | the checks of fields |
| `graph` | nodes, gates, and how they form a graph |
| `tasks`, `review`, `company`, `schedules` | the messages, by topic |
| `replies` | what they are answered with |
| `views` | what reads return |
"""

from __future__ import annotations

from .base import (
    DEPENDS_ON_MAX,
    FEEDBACK_CHARS_MAX,
    JITTER_S_LIMIT,
    LIMIT_MAX,
    NODES_MAX,
    PRIORITY_DEFAULT,
    PRIORITY_MAX,
    RUNS_MAX_LIMIT,
    SECONDS_LIMIT,
    SEND_BACKS_MAX_DEFAULT,
    SEND_BACKS_MAX_LIMIT,
    STALL_S_DEFAULT,
    TASKS_MAX,
    TITLE_CHARS_MAX,
    TRIES_MAX_DEFAULT,
    TRIES_MAX_LIMIT,
    UNITS_MAX,
    UNSET,
    WEIGHT_LIMIT,
    Message,
    Unset,
)
from .company import DefineGraph, Pause, SetBudget, SetLimits, StopGoal, Unpark, Unpause
from .graph import Backoff, Gate, Node
from .replies import (
    BudgetSettings,
    CompanySettings,
    GoalStopped,
    GraphDefined,
    Moved,
    ScheduleSettings,
    Submitted,
    Unparked,
)
from .review import Approve, Next, SendBack
from .schedules import PauseSchedule, RemoveSchedule, ResumeSchedule, RunNow, SetSchedule
from .tasks import (
    EDIT_FIELDS,
    Archive,
    Edit,
    Rerun,
    Retry,
    Start,
    StartNow,
    Stop,
    Submit,
    SubmitMany,
    Unarchive,
)

__all__ = [
    "DEPENDS_ON_MAX",
    "EDIT_FIELDS",
    "FEEDBACK_CHARS_MAX",
    "JITTER_S_LIMIT",
    "LIMIT_MAX",
    "NODES_MAX",
    "PRIORITY_DEFAULT",
    "PRIORITY_MAX",
    "RUNS_MAX_LIMIT",
    "SECONDS_LIMIT",
    "SEND_BACKS_MAX_DEFAULT",
    "SEND_BACKS_MAX_LIMIT",
    "STALL_S_DEFAULT",
    "TASKS_MAX",
    "TITLE_CHARS_MAX",
    "TRIES_MAX_DEFAULT",
    "TRIES_MAX_LIMIT",
    "UNITS_MAX",
    "UNSET",
    "WEIGHT_LIMIT",
    "Approve",
    "Archive",
    "Backoff",
    "BudgetSettings",
    "CompanySettings",
    "DefineGraph",
    "Edit",
    "Gate",
    "GoalStopped",
    "GraphDefined",
    "Message",
    "Moved",
    "Next",
    "Node",
    "Pause",
    "PauseSchedule",
    "RemoveSchedule",
    "Rerun",
    "ResumeSchedule",
    "Retry",
    "RunNow",
    "ScheduleSettings",
    "SendBack",
    "SetBudget",
    "SetLimits",
    "SetSchedule",
    "Start",
    "StartNow",
    "Stop",
    "StopGoal",
    "Submit",
    "SubmitMany",
    "Submitted",
    "Unarchive",
    "Unpark",
    "Unparked",
    "Unpause",
    "Unset",
]
