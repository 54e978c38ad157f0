# SPDX-License-Identifier: Apache-2.0
"""horovod.common, of which programs import ``exceptions``, ``elastic`` and ``process_sets``."""
