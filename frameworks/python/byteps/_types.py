# SPDX-License-Identifier: Apache-2.0
"""Types of arguments that several modules take. Type checkers alone import it, so nothing here costs a program time."""

import os
from typing import Any, Dict, Literal, Mapping, Sequence, SupportsIndex, TypeVar, Union

T = TypeVar("T")

PathOrText = Union[str, "os.PathLike[str]"]
Single = Union[str, float, SupportsIndex, "os.PathLike[str]"]
Settings = Mapping[str, Union[Single, Sequence[Single]]]
"""What the argument `set` takes: values by the keys of byteps.conf."""
Coding = Union[Dict[str, Any], str, Literal[False], None]
"""What the argument `compression` of declare() takes; None: as configured."""
