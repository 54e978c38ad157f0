# SPDX-License-Identifier: Apache-2.0
"""Lets torch.amp.GradScaler see gradients only after they have been reduced.

A scaler multiplies an optimizer's gradients in place and looks for infinities in them, in unscale_() or in
step(). All workers must find the same, else one of them skips the step that the others make. The scaler
offers no hook, and asks the optimizer nothing before it begins; so its function for both is wrapped.
"""

import functools

import torch


def reduce_before_unscaling():
    """Make every GradScaler synchronize a distributed optimizer before it looks at its gradients."""
    scaler = torch.amp.GradScaler if hasattr(torch.amp, "GradScaler") else torch.cuda.amp.GradScaler
    unscale = scaler._unscale_grads_

    @functools.wraps(unscale)
    def reduce_and_unscale(self, optimizer, *args, **keywords):
        if hasattr(optimizer, "_byteps"):
            optimizer._reduce()
        return unscale(self, optimizer, *args, **keywords)

    scaler._unscale_grads_ = reduce_and_unscale
