"""Stands in for the plugin of this name: its entry points, and nothing behind them."""

CONNECTORS = []


def register() -> str:
    """The platform that an out-of-tree plugin brings."""
    return "vllm_ascend.platform.StandInPlatform"


def register_connector() -> None:
    """Notes that it was loaded."""
    CONNECTORS.append("loaded")
