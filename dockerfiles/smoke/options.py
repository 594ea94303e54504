"""Runs in an image: does vLLM's own argument parser take the profiler options?"""

import json
import sys

from result import give
from vllm.engine.arg_utils import EngineArgs
from vllm.utils.argparse_utils import FlexibleArgumentParser


def parsed(option: str) -> dict:
    parser = EngineArgs.add_cli_args(FlexibleArgumentParser(exit_on_error=False))
    try:
        arguments = parser.parse_args(["--profiler-config", option])
        config = EngineArgs.from_cli_args(arguments).profiler_config
    except (Exception, SystemExit) as error:
        return {"accepted": False, "reason": " ".join(str(error).split())[-300:]}
    names = ("capture_torch_profiler", "detailed_trace_annotation")
    return {"accepted": True, **{name: getattr(config, name, None) for name in names}}


give(
    {name: parsed(json.dumps(value)) for name, value in json.loads(sys.argv[1]).items()}
)
