"""A platform that can be chosen and can serve nothing."""

from vllm.platforms.interface import UnspecifiedPlatform


class StandInPlatform(UnspecifiedPlatform):
    """Chosen where nothing says otherwise, as out-of-tree platforms are."""
