# SPDX-License-Identifier: Apache-2.0
"""Methods that torch.compile() shall not trace into.

What it does not compile it watches while it runs, and compiles the functions that are called there. A process group is
an object without methods to it, so that it would fail at ours.
"""

from __future__ import annotations

import types

try:
    # As torch.compiler.disable(), which imports all of the compiler, and costs something in each call.
    from torch._C._dynamo.eval_frame import _FrameAction, _FrameExecStrategy, set_code_exec_strategy
except ImportError:  # an older PyTorch, which takes a group for an ordinary object
    set_code_exec_strategy = None


def untraced(cls: type) -> type:
    """Have the methods of a class, and what they call, run as they are."""
    if set_code_exec_strategy is not None:
        for member in vars(cls).values():
            if isinstance(member, types.FunctionType):
                set_code_exec_strategy(member.__code__, _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.SKIP))
    return cls
