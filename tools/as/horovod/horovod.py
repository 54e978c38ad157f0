# SPDX-License-Identifier: Apache-2.0
"""Horovod in the programs that `byteps run --as horovod` starts: what `import horovod` finds first."""

from byteps.compat.horovod import install

install()  # puts that package in the place of this module
