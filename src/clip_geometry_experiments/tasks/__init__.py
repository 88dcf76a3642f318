"""Classification tasks by name. Importing this module registers all tasks and the data set `task` of their items."""

from clip_geometry.registry import import_all
from clip_geometry_experiments.tasks.base import (
    Task,
    TaskConfig,
    TaskEntry,
    items_of,
    labeled_task,
    load_task,
    resolve_task,
    tasks,
)

__all__ = ["Task", "TaskConfig", "TaskEntry", "items_of", "labeled_task", "load_task", "resolve_task", "tasks"]

import_all(__name__)
