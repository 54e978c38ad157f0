# SPDX-License-Identifier: Apache-2.0
"""What coding has lost of a model's gradients, as a part of the state of their optimizer."""

import warnings

import torch

from byteps._basics import is_initialized, rank
from byteps._native import bps as _bps

_KEY = "byteps_feedback"


def put(state, reducer):
    """Add to a state_dict what this worker has of the reducer's gradients; nothing, if nothing is coded."""
    if not is_initialized() or not reducer.names_are_current():
        return state
    kept = {title: _bps.save_feedback(name) for title, name in reducer.names()}
    kept = {title: torch.frombuffer(bytearray(data), dtype=torch.uint8) for title, data in kept.items() if data}
    if kept:
        state[_KEY] = {"rank": rank(), "gradients": kept}
    return state


def take(state, reducer):
    """Go on from what such a state_dict has, and from nothing else; return it without."""
    state = dict(state)
    mine = state.pop(_KEY, None)
    if mine is None or not is_initialized():
        return state
    if mine["rank"] != rank():
        warnings.warn(
            f"the optimizer's state is that of worker {mine['rank']}; this is worker {rank()}, which continues "
            "without its error feedback. Save and load the state on each worker to keep that",
            stacklevel=4,
        )
        return state
    for title, name in reducer.names():
        data = mine["gradients"].get(title)
        _bps.load_feedback(name, b"" if data is None else bytes(data.cpu().numpy()))
    return state
