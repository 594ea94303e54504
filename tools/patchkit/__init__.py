"""Strict diffs for pinned releases: parse, plan, check, commit."""
