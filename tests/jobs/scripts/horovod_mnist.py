# SPDX-License-Identifier: Apache-2.0
"""A program for Horovod, written as its examples for PyTorch are, which knows nothing of BytePS.

It learns to tell ten digits apart that are drawn from a seed. Each worker has a share of its own of the samples.
"""

import argparse

import horovod
import horovod.torch as hvd
import torch
import torch.nn.functional as F
from horovod.torch.mpi_ops import allgather
from torch import nn, optim
from torch.utils.data import DataLoader, Subset, TensorDataset
from torch.utils.data.distributed import DistributedSampler

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--test-batch-size", type=int, default=50)
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--lr", type=float, default=0.02)
parser.add_argument("--momentum", type=float, default=0.5)
parser.add_argument("--fp16-allreduce", action="store_true")
parser.add_argument("--gradient-predivide-factor", type=float, default=1.0)
parser.add_argument("--uneven", action="store_true", help="rank r has fewer samples than rank r + 1")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 6, kernel_size=3)
        self.drop = nn.Dropout2d(0.1)
        self.fc1 = nn.Linear(6 * 5 * 5, 64)
        self.fc2 = nn.Linear(64, 10)

    def forward(self, x):
        x = F.relu(F.max_pool2d(self.drop(self.conv(x)), 2)).flatten(1)
        return F.log_softmax(self.fc2(F.relu(self.fc1(x))), dim=1)


def digits(count, seed):
    draw = torch.Generator().manual_seed(1)
    shapes = torch.randn(10, 1, 12, 12, generator=draw)
    draw.manual_seed(seed)
    labels = torch.randint(0, 10, (count,), generator=draw)
    return TensorDataset(shapes[labels] + 0.5 * torch.randn(count, 1, 12, 12, generator=draw), labels)


def loaders(args):
    train, test = digits(400, 2), digits(200, 3)
    if args.uneven:
        train = Subset(train, range(hvd.rank(), 400 // (hvd.size() - hvd.rank())))
        train_sampler = None
    else:
        train_sampler = DistributedSampler(train, num_replicas=hvd.size(), rank=hvd.rank())
    test_sampler = DistributedSampler(test, num_replicas=hvd.size(), rank=hvd.rank())
    return (
        DataLoader(train, batch_size=args.batch_size, sampler=train_sampler),
        train_sampler,
        DataLoader(test, batch_size=args.test_batch_size, sampler=test_sampler),
        test_sampler,
    )


def train(model, optimizer, loader, sampler, epoch):
    model.train()
    if sampler is not None:
        sampler.set_epoch(epoch)
    for data, target in loader:
        optimizer.zero_grad()
        loss = F.nll_loss(model(data), target)
        loss.backward()
        optimizer.step()


def metric_average(value, name):
    return hvd.allreduce(torch.tensor(value), name=name).item()


def test(model, loader, sampler):
    model.eval()
    loss = accuracy = 0.0
    with torch.no_grad():
        for data, target in loader:
            output = model(data)
            loss += F.nll_loss(output, target, reduction="sum").item()
            accuracy += output.argmax(1).eq(target).float().sum().item()
    loss = metric_average(loss / len(sampler), "avg_loss")
    accuracy = metric_average(accuracy / len(sampler), "avg_accuracy")
    if hvd.rank() == 0:
        print(f"Test set: average loss: {loss:.4f}, accuracy: {100 * accuracy:.2f}%", flush=True)
    return accuracy


def main():
    args = parser.parse_args()
    hvd.init()
    torch.manual_seed(42)
    torch.set_num_threads(1)
    train_loader, train_sampler, test_loader, test_sampler = loaders(args)
    model = Net()
    optimizer = optim.SGD(model.parameters(), lr=args.lr * hvd.size(), momentum=args.momentum)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        optimizer,
        named_parameters=model.named_parameters(),
        compression=hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none,
        op=hvd.Average,
        gradient_predivide_factor=args.gradient_predivide_factor,
    )
    for epoch in range(1, args.epochs + 1):
        train(model, optimizer, train_loader, train_sampler, epoch)
        last = hvd.join()
        if args.uneven:
            assert last == hvd.size() - 1, last
            hvd.broadcast_parameters(model.state_dict(), root_rank=last)
        accuracy = test(model, test_loader, test_sampler)
    sums = allgather(sum(p.detach().double().sum() for p in model.parameters()).reshape(1))
    assert len(sums) == hvd.size() and sums.eq(sums[0]).all(), sums
    assert accuracy > 0.9, accuracy
    print("passed 1 with horovod", horovod.__version__, flush=True)


if __name__ == "__main__":
    main()
