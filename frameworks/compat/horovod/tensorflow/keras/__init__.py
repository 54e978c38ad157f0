# SPDX-License-Identifier: Apache-2.0
"""Horovod's interface for Keras under the name that programs for tf.keras use."""

from __future__ import annotations

from ...keras import *  # noqa: F403
from ...keras import __all__ as __all__
from ...keras import __getattr__ as __getattr__
