"""Windows for the `window` verb: by number, by time, by pauses, by a trigger.

>>> import millstream as ms
>>> flow = ms.Flow("windows")
>>> sums = flow.from_iterable(range(6)).window(ms.windows.count(3)).sum().collect()
>>> _ = flow.run(on="local")
>>> sums.result()
[3, 12]
"""

from __future__ import annotations

from millstream.api.window_functions import (
    count,
    global_window,
    session,
    sliding,
    tumbling,
)
from millstream.plan.windows import Action, Trigger, TriggerContext, Window

__all__ = [
    "Action",
    "Trigger",
    "TriggerContext",
    "Window",
    "count",
    "global_window",
    "session",
    "sliding",
    "tumbling",
]
