"""Runs in an image: does vLLM's own argument parser take the profiler options?"""

import json
import sys

from pydantic import TypeAdapter
from result import give
from vllm.config import ProfilerConfig
from vllm.engine.arg_utils import EngineArgs
from vllm.platforms import current_platform
from vllm.utils.argparse_utils import FlexibleArgumentParser


def configured(option: str) -> object:
    """The profiler configuration; by its type alone where no platform is chosen.

    An unpatched vLLM of target empty has none, and its parser needs one.
    """
    if not current_platform.device_type:
        return TypeAdapter(ProfilerConfig).validate_json(option)
    parser = EngineArgs.add_cli_args(FlexibleArgumentParser(exit_on_error=False))
    arguments = parser.parse_args(["--profiler-config", option])
    return EngineArgs.from_cli_args(arguments).profiler_config


def parsed(option: str) -> dict:
    try:
        config = configured(option)
    except (Exception, SystemExit) as error:
        return {"accepted": False, "reason": " ".join(str(error).split())[-300:]}
    names = ("capture_torch_profiler", "detailed_trace_annotation")
    return {"accepted": True, **{name: getattr(config, name, None) for name in names}}


give(
    {name: parsed(json.dumps(value)) for name, value in json.loads(sys.argv[1]).items()}
)
