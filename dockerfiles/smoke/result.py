"""How a check inside a container hands its result to the one outside."""

import json

MARK = "SMOKE-RESULT "


def give(result: dict) -> None:
    """Print ``result`` on a line that no log line can be mistaken for."""
    print(f"\n{MARK}{json.dumps(result)}", flush=True)
