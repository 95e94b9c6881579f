"""What there is to say of environment variables that configs name (`${oc.env:NAME}`) and that are not set."""

from __future__ import annotations

import re

from omegaconf.errors import InterpolationResolutionError, OmegaConfBaseException

_VARIABLE = re.compile(r"Environment variable '([^']*)' not found")


def unset_variable(error: OmegaConfBaseException) -> str:
    """What there is to say of an environment variable that is not set; empty for other errors."""
    variable = _VARIABLE.search(str(error)) if isinstance(error, InterpolationResolutionError) else None
    if variable is None:
        return ""
    name = variable.group(1)
    return (
        f"the environment variable {name!r} is not set. "
        f"Next step: set it, or say what counts otherwise: ${{oc.env:{name},VALUE}}"
    )
