# SPDX-License-Identifier: Apache-2.0
"""Learning-rate schedules around a step that does not count, in trainers that step them all the same."""

from __future__ import annotations

import copy
from typing import Any


class ScheduleKept:
    """The place of schedules and the rates that they have set."""

    def __init__(self) -> None:
        self._kept: "list[tuple[Any, Any, list[Any]]]" = []

    def keep(self, schedules: "list[Any]") -> None:
        """As they are now."""
        self._kept = [(each, copy.deepcopy(each.state_dict()), [group["lr"] for group in each.optimizer.param_groups])
                      for each in schedules if hasattr(each, "state_dict") and hasattr(each, "optimizer")]

    def put_back(self) -> None:
        for schedule, state, rates in self._kept:
            schedule.load_state_dict(state)
            for group, rate in zip(schedule.optimizer.param_groups, rates):
                group["lr"] = rate
