# SPDX-License-Identifier: Apache-2.0
"""byteps.keras under the name that programs for tf.keras use."""

from byteps.keras import *  # noqa: F403
from byteps.keras import __all__ as __all__

from . import callbacks, elastic  # noqa: F401
