# SPDX-License-Identifier: Apache-2.0
"""Trains as examples/train_fashion_mnist.py does, in one process without BytePS; prints the loss of each step."""

import json
import sys

import curves
import fashion_mnist
import torch
import train_fashion_mnist

images, labels = map(torch.from_numpy, fashion_mnist.load("train"))
torch.manual_seed(curves.SEED)
model = train_fashion_mnist.network()
optimizer = torch.optim.SGD(model.parameters(), lr=0, momentum=0.9, nesterov=True, weight_decay=5e-4)
losses = []
for batch, factor in curves.plan():
    optimizer.param_groups[0]["lr"] = float(sys.argv[1]) * factor
    loss = torch.nn.functional.cross_entropy(model(train_fashion_mnist.pixels(images[batch])), labels[batch])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(json.dumps(losses))
