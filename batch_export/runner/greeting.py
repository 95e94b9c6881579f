"""What a parent and its forkserver say to each other before the first order.

In a module of its own, since the forkserver's imports all that children run with, and the parent does without that.
"""

from __future__ import annotations

TIED = b"tied"
"""What the parent says first: from here on the kernel ends the server with it."""
READY = b"ready"
"""The server's answer once it has preloaded everything."""
