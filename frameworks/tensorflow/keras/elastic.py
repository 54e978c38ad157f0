# SPDX-License-Identifier: Apache-2.0
"""byteps.keras.elastic under the name that programs for tf.keras use."""

from byteps.keras.elastic import *  # noqa: F403
from byteps.keras.elastic import __all__ as __all__
