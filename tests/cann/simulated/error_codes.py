"""Error codes of the CANN runtime, by name, from the headers in the torch_npu wheel."""

from __future__ import annotations

import re
from pathlib import Path

_CODE = re.compile(r"#define\s+(ACL_ERROR_\w+)\s+(\d+)\s*//\s*(.*)")


class DeviceError(RuntimeError):
    """What the device refuses, with its code, as torch_npu would report it."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{text} (simulated CANN, error code {code})")
        self.code = code


class ErrorCodes:
    """``codes.STREAM_CAPTURED`` is ACL_ERROR_RT_STREAM_CAPTURED's number."""

    def __init__(self, torch_npu: Path) -> None:
        """Read the header below the package folder. Raises FileNotFoundError."""
        folder = torch_npu / "include" / "third_party" / "acl" / "inc" / "acl"
        text = (folder / "error_codes" / "rt_error_codes.h").read_text()
        self._codes = {
            re.sub("^ACL_ERROR_(RT_)?", "", name): int(code)
            for name, code, _ in _CODE.findall(text)
        }

    def __getattr__(self, name: str) -> int:
        try:
            return self._codes[name]
        except KeyError:
            raise AttributeError(f"no error code ACL_ERROR_RT_{name}") from None
