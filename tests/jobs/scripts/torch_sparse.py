# SPDX-License-Identifier: Apache-2.0
"""Sparse tensors and gradients of PyTorch: only rows travel, and training is as with dense ones."""

import byteps.torch as bps
import checks
import torch

ROWS, WIDTH = 6000, 16  # the table does not travel together with other gradients


def table(seed, count):
    generator = torch.Generator().manual_seed(seed)
    index = torch.randint(0, ROWS, (1, count), generator=generator)
    values = torch.randint(-3, 4, (count, WIDTH), generator=generator).float()
    return torch.sparse_coo_tensor(index, values, (ROWS, WIDTH))


def check_tensors():
    total = sum(table(rank, 50 * rank).to_dense() for rank in range(bps.size()))
    mine = table(bps.rank(), 50 * bps.rank())
    result = bps.push_pull(mine, average=False, name="sparse")
    assert result.is_sparse
    assert result.is_coalesced()
    assert torch.equal(result.to_dense(), total)
    result = bps.synchronize(bps.push_pull_async(mine, name="sparse"))
    assert torch.allclose(result.to_dense(), total / bps.size())
    result = bps.sparse_allreduce_async(mine, "sparse", op=bps.Sum)()
    assert torch.equal(result.to_dense(), total)
    half = bps.push_pull(mine, average=False, name="half", compression=bps.Compression.fp16)
    assert torch.equal(half.to_dense(), total)
    assert half.dtype == torch.float32


def check_what_is_wrong():
    checks.raised(ValueError, lambda: bps.push_pull(table(0, 3)), "needs a name")
    square = torch.eye(4).to_sparse()
    checks.raised(ValueError, lambda: bps.push_pull(square, name="square"), "sparse in 2 dimensions")


class Model(torch.nn.Module):
    def __init__(self, sparse):
        super().__init__()
        self.large = torch.nn.Embedding(ROWS, WIDTH, sparse=sparse)
        self.small = torch.nn.Embedding(20, WIDTH, sparse=sparse)
        self.top = torch.nn.Linear(WIDTH, 1)

    def forward(self, words):
        return self.top(self.large(words) + self.small(words % 20)).square().mean()


def words(step, rank):
    return torch.randint(0, ROWS, (7, 5), generator=torch.Generator().manual_seed(100 * step + rank))


def trained(sparse, optimizers, skips=(), **how):
    """The parameters after some steps; optimizers(model): the rows' and that of all others."""
    torch.manual_seed(1)
    model = Model(sparse)
    wrapped = []
    for number, optimizer in enumerate(optimizers(model)):
        mine = {p for group in optimizer.param_groups for p in group["params"]}
        named = [(f"{number}.{n}", p) for n, p in model.named_parameters() if p in mine]
        wrapped.append(bps.DistributedOptimizer(optimizer, named_parameters=named, **how))
    for step in range(4):
        for optimizer in wrapped:
            optimizer.zero_grad()
        if (step, bps.rank()) in skips:
            (model.top.weight.sum() * 0).backward()  # the embeddings have no gradient here
        else:
            model(words(step, bps.rank())).backward()
        for optimizer in wrapped:
            optimizer.step()
        if sparse and not how.get("sparse_as_dense"):
            assert model.large.weight.grad.is_sparse
            assert model.small.weight.grad.is_sparse
    return [p.detach().clone() for p in model.parameters()]


def sgd(model):
    return [torch.optim.SGD(model.parameters(), 0.1)]


def adam(model):
    rows = [model.large.weight, model.small.weight]
    return [torch.optim.SparseAdam(rows, 0.01), torch.optim.SGD(model.top.parameters(), 0.1)]


def same(one, other):
    for a, b in zip(one, other):
        assert torch.allclose(a, b, 1e-5, 1e-7), (a - b).abs().max()


def check_training_is_that_of_dense_gradients():
    same(trained(True, sgd), trained(False, sgd))
    same(trained(True, sgd, sparse_as_dense=True), trained(False, sgd))


def check_a_worker_without_gradients():
    last = bps.size() - 1
    skips = [(0, last), (2, 0)] if bps.size() > 1 else []
    same(trained(True, sgd, skips), trained(False, sgd, skips))


def check_sparse_adam():
    trained(True, adam)


def check_all_workers_have_the_same():
    for parameter in trained(True, adam):
        assert torch.equal(bps.broadcast(parameter, 0), parameter)


if __name__ == "__main__":
    checks.main(globals(), bps)
