"""What lies in in_tree/ needs vLLM's sources and torch: another Python runs it."""

collect_ignore = ["in_tree"]
