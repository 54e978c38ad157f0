# SPDX-License-Identifier: Apache-2.0
"""Process sets of byteps.compat.horovod.torch, in a job of three workers: two that overlap, and one of one worker."""

import checks
import torch

import byteps.compat.horovod.torch as hvd
from byteps.compat.horovod import process_sets

ENDS, MIDDLE = hvd.ProcessSet([2, 0]), hvd.ProcessSet([1])
EVERYONE = hvd.ProcessSet([0, 1, 2])
assert (ENDS.process_set_id, ENDS.size(), ENDS.rank(), ENDS.included()) == (None, None, None, None)
hvd.init(process_sets=[ENDS, MIDDLE, EVERYONE])
TAIL = hvd.add_process_set([1, 2])
ME = hvd.rank()


def mine():
    """Return the sets of several workers that this one is in."""
    return [chosen for chosen in (ENDS, TAIL) if chosen.included()]


def check_sets():
    assert [each.process_set_id for each in (hvd.global_process_set, ENDS, MIDDLE, TAIL, EVERYONE)] == [0, 1, 2, 3, 0]
    assert process_sets.process_sets() == [hvd.global_process_set, ENDS, MIDDLE, TAIL]
    assert process_sets.process_set_by_id(3) is TAIL and "ranks=[0, 2]" in str(ENDS)
    assert (ENDS.ranks, ENDS.size(), ENDS.included()) == ([0, 2], 2, ME != 1)
    if ME == 1:
        checks.raised(ValueError, ENDS.rank, "worker 1 is not in ProcessSet(process_set_id=1, ranks=[0, 2])")
        checks.raised(ValueError, lambda: hvd.allreduce(torch.ones(1), process_set=ENDS), "worker 1 is not a member")
        checks.raised(ValueError, lambda: hvd.broadcast(torch.ones(1), 0, process_set=ENDS), "worker 1 is not a member")
    else:
        assert ENDS.rank() == ME // 2
        checks.raised(ValueError, lambda: hvd.broadcast(torch.ones(1), 1, process_set=ENDS), "root_rank=1 is not in")
        checks.raised(
            ValueError,
            lambda: hvd.allreduce(torch.ones(1), name="x", compression="onebit", process_set=ENDS),
            "has no codings",
        )
    for use, text in (
        (lambda: hvd.add_process_set([2, 0]), "of the same ranks"),
        (lambda: hvd.add_process_set([0, 1, 2]), "of the same ranks"),
        (lambda: hvd.add_process_set([0, 3]), "rank 3 of a process group is not a worker"),
        (lambda: hvd.ProcessSet([0, 0]), "each once"),
        (lambda: hvd.ProcessSet(7), "does not use MPI"),
        (lambda: hvd.allgather(torch.ones(2), process_set=7), "hvd.add_process_set()"),
        (lambda: hvd.allgather(torch.ones(2), process_set=hvd.ProcessSet([0])), "is not registered"),
        (lambda: process_sets.process_set_by_id(7), "no process set with the id 7"),
    ):
        checks.raised(ValueError, use, text)
    checks.raised(NotImplementedError, hvd.join, "ProcessSet(process_set_id=1, ranks=[0, 2])", "same number of batches")


def check_removal():
    passing = hvd.add_process_set([0, 1])
    assert passing.process_set_id == 4 and hvd.remove_process_set(passing) and passing.ranks is None
    checks.raised(ValueError, lambda: hvd.barrier(passing), "is not registered, or was removed")
    checks.raised(ValueError, lambda: hvd.add_process_set(passing), "has been removed")
    assert not hvd.remove_process_set(hvd.global_process_set)
    again = hvd.add_process_set([0, 1])
    assert again.process_set_id == 5 and hvd.remove_process_set(again)


def check_reductions():
    for chosen in [*mine(), hvd.global_process_set, EVERYONE]:
        ranks, n = chosen.ranks, chosen.size()
        x = torch.full((3,), float(ME), requires_grad=True)
        total = sum(ranks)
        result = hvd.allreduce(x, name="x", process_set=chosen)
        assert result.tolist() == [total / n] * 3
        (result * (ME + 1)).sum().backward()
        assert x.grad.tolist() == [(total + n) / n] * 3
        flat = x.detach()
        assert hvd.allreduce(flat, op=hvd.Max, compression=hvd.Compression.fp16, process_set=chosen)[0] == ranks[-1]
        assert hvd.allreduce_(flat.clone(), op=hvd.Sum, process_set=chosen).tolist() == [total] * 3
        handles = [hvd.allreduce_async(flat + i, name=f"{i}", op=hvd.Sum, process_set=chosen) for i in range(3)]
        assert [hvd.synchronize(handle)[0].item() for handle in handles] == [total + i * n for i in range(3)]
        y = torch.ones(2, requires_grad=True)
        one, two = hvd.grouped_allreduce([flat, y], name="group", op=hvd.Sum, process_set=chosen)
        two.sum().backward()
        assert one.tolist() == [total] * 3 and y.grad.tolist() == [n] * 2
        group = hvd.grouped_allreduce_([flat.clone(), flat + 1], process_set=chosen)
        assert (group[1] - group[0]).tolist() == [1] * 3
        handle = hvd.grouped_allreduce_async([flat], op=hvd.Min, process_set=chosen)
        assert hvd.synchronize(handle)[0].tolist() == [ranks[0]] * 3
        hvd.barrier(process_set=chosen)
        rows = torch.arange(5.0).repeat(2, 1).T.contiguous().requires_grad_()  # the first workers get one more
        first = hvd.reducescatter(rows, op=hvd.Sum, process_set=chosen)
        place = ranks.index(ME)
        begin = sum(5 // n + (before < 5 % n) for before in range(place))
        assert torch.equal(first, n * rows[begin : begin + len(first)])
        (first * (ME + 1)).sum().backward()
        shares = [5 // n + (before < 5 % n) for before in range(n)]
        want = [[n * (rank + 1.0)] * 2 for rank, share in zip(ranks, shares) for _ in range(share)]
        assert rows.grad.tolist() == want, rows.grad


def check_movements():
    for chosen in [*mine(), hvd.global_process_set]:
        ranks, n = chosen.ranks, chosen.size()
        root, place = ranks[-1], ranks.index(ME)
        x = torch.full((ME + 1, 2), float(ME), requires_grad=True)
        want = torch.cat([torch.full((rank + 1, 2), float(rank)) for rank in ranks])
        result = hvd.allgather(x, name="rows", process_set=chosen)
        assert torch.equal(result, want)
        assert torch.equal(hvd.synchronize(hvd.allgather_async(x, process_set=chosen)), want)
        (result * (ME + 1)).sum().backward()
        assert x.grad.unique().tolist() == [(sum(ranks) + n) / n]
        one, two = hvd.grouped_allgather([torch.tensor(ME), x.detach()], process_set=chosen)
        assert one.tolist() == ranks and torch.equal(two, want)
        y = torch.full((2,), float(ME), requires_grad=True)
        sent = hvd.broadcast(y, root, name="sent", process_set=chosen)
        assert sent.tolist() == [root] * 2
        (sent * (ME + 1)).sum().backward()
        assert y.grad.tolist() == [(sum(ranks) + n) / n if ME == root else 0] * 2
        assert hvd.broadcast_(y.detach().clone(), root, process_set=chosen).tolist() == [root] * 2
        z = torch.arange(n * 2.0).requires_grad_()
        exchanged = hvd.alltoall(z + 10 * ME, process_set=chosen)
        assert exchanged.tolist() == [10 * rank + 2 * place + i for rank in ranks for i in (0, 1)]
        (exchanged * (ME + 1)).sum().backward()
        assert z.grad.tolist() == [rank + 1 for rank in ranks for _ in (0, 1)]
        handle = hvd.alltoall_async(z.detach(), splits=[2] * n, process_set=chosen)
        assert hvd.synchronize(handle)[1].tolist() == [2] * n


def check_sparse():
    for chosen in mine():
        rows = torch.sparse_coo_tensor([[ME, 2]], torch.ones(2, 3), (3, 3))
        whole = hvd.sparse_allreduce_async(rows, name="sparse", op=hvd.Sum, process_set=chosen)().to_dense()
        want = [float((rank in chosen.ranks) if rank < 2 else chosen.size() + 1) for rank in range(3)]
        assert whole.tolist() == [[value] * 3 for value in want], whole


def check_objects():
    for chosen in mine():
        root = chosen.ranks[-1]
        assert hvd.allgather_object({"rank": ME, "text": "x" * ME}, process_set=chosen) == [
            {"rank": rank, "text": "x" * rank} for rank in chosen.ranks
        ]
        assert hvd.broadcast_object([ME], root_rank=root, name="object", process_set=chosen) == [root]
        model = torch.nn.Linear(3, 2)
        optimizer = torch.optim.SGD(model.parameters(), 0.5 * (ME + 1), momentum=0.9)
        if ME == root:
            model(torch.ones(1, 3)).sum().backward()
            optimizer.step()
        hvd.broadcast_parameters(model.state_dict(), root_rank=root, process_set=chosen)
        hvd.broadcast_optimizer_state(optimizer, root_rank=root, process_set=chosen)
        assert optimizer.param_groups[0]["lr"] == 0.5 * (root + 1) and len(optimizer.state) == 2
        weights = hvd.allgather_object(model.weight, process_set=chosen)
        assert all(torch.equal(weight, model.weight) for weight in weights)


def check_sync_batch_norm():
    torch.manual_seed(2)
    batches = torch.randn(3, 4, 2)
    for chosen in mine():
        layer, alone = hvd.SyncBatchNorm(2, process_set=chosen), torch.nn.BatchNorm1d(2)
        want = alone(batches[chosen.ranks].flatten(0, 1)).view(-1, 4, 2)[chosen.rank()]
        torch.testing.assert_close(layer(batches[ME]), want)
        torch.testing.assert_close(layer.running_var, alone.running_var)


class Branches(torch.nn.Module):
    """Uses its parts in the order that the worker likes, and not all of them."""

    def __init__(self):
        super().__init__()
        self.parts = torch.nn.ModuleList(torch.nn.Linear(90, 90) for _ in range(4))
        self.rows = torch.nn.Embedding(300, 90, sparse=True)
        self.unused = torch.nn.Linear(2, 2)

    def forward(self, order, row):
        """Return what is summed."""
        value = self.rows(torch.tensor([row]))
        for index in order:
            value = self.parts[index](value)
        return value.sum()


def gradients(model):
    return {name: None if p.grad is None else p.grad.to_dense() for name, p in model.named_parameters()}


def check_optimizer():
    """Gradients become ready in another order on each worker, and some of them on a part of the workers only."""
    orders = [[0, 1, 2], [3, 2, 1, 0], [2, 0]]
    for passes, op, compression in (
        (1, hvd.Average, hvd.Compression.none),
        (2, hvd.Sum, hvd.Compression.none),
        (1, hvd.Average, hvd.Compression.fp16),
    ):
        for chosen in (ENDS, TAIL):
            torch.manual_seed(3)
            model, copy = Branches(), Branches()
            copy.load_state_dict(model.state_dict())
            plain = torch.optim.SGD(model.parameters(), 0.01)
            optimizer = hvd.DistributedOptimizer(
                plain, model.named_parameters(), compression, passes, op, process_set=chosen
            )
            for step in range(2):
                optimizer.zero_grad()
                for turn in range(passes):
                    model(orders[ME][turn:], ME + step).backward()
                if passes > 1:
                    optimizer.synchronize()
                reduced = gradients(model)
                copy.zero_grad()
                members = chosen.ranks if chosen.included() else [ME]
                for worker in members:
                    for turn in range(passes):
                        copy(orders[worker][turn:], worker + step).backward()
                for name, want in gradients(copy).items():
                    assert (want is None) == (reduced[name] is None), name
                    if want is not None:
                        share = want / len(members) if op == hvd.Average else want
                        close = dict(rtol=1e-2, atol=1e-3) if compression is hvd.Compression.fp16 else {}
                        torch.testing.assert_close(reduced[name], share, **close)
                assert model.rows.weight.grad.is_sparse
                with optimizer.skip_synchronize():
                    optimizer.step()
                copy.load_state_dict(model.state_dict())


def check_passes():
    """An operation of all workers between several passes and the step, where one worker has no gradient of all."""
    for chosen in (ENDS, TAIL):
        if not chosen.included():
            hvd.barrier()
            continue
        parts = [torch.nn.Linear(90, 90) for _ in range(3)]
        parameters = [parameter for part in parts for parameter in part.parameters()]
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(parameters, 1.0), backward_passes_per_step=2, op=hvd.Sum, process_set=chosen
        )
        for turn in range(2):
            parts[0 if ME == chosen.ranks[0] else 1 + turn](torch.ones(1, 90)).sum().backward()
        hvd.barrier()
        optimizer.synchronize()
        assert [part.bias.grad[0].item() for part in parts] == [2, 1, 1]
        with optimizer.skip_synchronize():
            optimizer.step()


def check_several_optimizers():
    """One backward pass of models of two sets and of all workers."""
    sets = [chosen for chosen in (ENDS, TAIL, hvd.global_process_set) if chosen.included()]
    models = [torch.nn.Linear(3, 1, bias=False) for _ in sets]
    optimizers = [
        hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 1.0), model.named_parameters(), process_set=chosen)
        for model, chosen in zip(models, sets)
    ]
    for _ in range(2):
        for optimizer in optimizers:
            optimizer.zero_grad()
        inputs = torch.full((1, 3), float(ME))
        sum(model(inputs) for model in (models if ME == 2 else reversed(models))).backward()
        for model, chosen in zip(models, sets):
            assert model.weight.grad.tolist() == [[sum(chosen.ranks) / chosen.size()] * 3]
        for optimizer in optimizers:
            optimizer.step()


def check_differences():
    """Members whose models differ hear of it."""
    if TAIL.included():
        model = torch.nn.Linear(2 if ME == 1 else 3, 1)
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), 1.0), model.named_parameters(), process_set=TAIL
        )
        error = checks.raised(RuntimeError, lambda: model(torch.ones(1, model.in_features)).sum().backward())
        assert "lists of parameters differ" in str(error), error
        assert optimizer is not None
    checks.raised(
        ValueError,
        lambda: hvd.DistributedOptimizer(
            torch.optim.SGD(torch.nn.Linear(2, 1).parameters(), 1.0), compression="onebit", process_set=TAIL
        ),
        "has no codings",
    ) if TAIL.included() else None


def check_join():
    """When the sets are removed, workers may join."""
    for chosen in (ENDS, MIDDLE, TAIL):
        assert hvd.remove_process_set(chosen)
    assert hvd.join() in range(3)


if __name__ == "__main__":
    torch.set_num_threads(1)
    checks.main(globals(), hvd)
