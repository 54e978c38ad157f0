/* SPDX-License-Identifier: Apache-2.0 */
/* collectives_mpi.c - a rank that makes the operations of bench/collectives by MPI. The driver builds it. */
#include <mpi.h>

#include "operations.h"

static void run_reduction(const struct bench_operation *one)
{
    int count = (int)one->count, block = (int)one->block;
    float *in = one->in;

    if (one->kind == BENCH_PUSH_PULL) {
        MPI_Allreduce(MPI_IN_PLACE, in, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    } else if (one->kind == BENCH_REDUCE_SCATTER) {
        MPI_Reduce_scatter_block(in, one->out, block, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    } else if (one->rank == one->root) {
        MPI_Reduce(MPI_IN_PLACE, in, count, MPI_FLOAT, MPI_SUM, one->root, MPI_COMM_WORLD);
    } else {
        MPI_Reduce(in, NULL, count, MPI_FLOAT, MPI_SUM, one->root, MPI_COMM_WORLD);
    }
}

static void run(const struct bench_operation *one)
{
    int count = (int)one->count, block = (int)one->block;
    float *in = one->in, *out = one->out;

    switch (one->kind) {
    case BENCH_BROADCAST:
        MPI_Bcast(in, count, MPI_FLOAT, one->root, MPI_COMM_WORLD);
        break;
    case BENCH_ALL_GATHER:
        MPI_Allgather(in, block, MPI_FLOAT, out, block, MPI_FLOAT, MPI_COMM_WORLD);
        break;
    case BENCH_GATHER:
        MPI_Gather(in, block, MPI_FLOAT, out, block, MPI_FLOAT, one->root, MPI_COMM_WORLD);
        break;
    case BENCH_SCATTER:
        MPI_Scatter(in, block, MPI_FLOAT, out, block, MPI_FLOAT, one->root, MPI_COMM_WORLD);
        break;
    case BENCH_ALL_TO_ALL:
        MPI_Alltoall(in, block, MPI_FLOAT, out, block, MPI_FLOAT, MPI_COMM_WORLD);
        break;
    case BENCH_SEND:
        if (one->rank == one->root) {
            MPI_Send(in, count, MPI_FLOAT, 1 - one->rank, 0, MPI_COMM_WORLD);
        } else {
            MPI_Recv(out, count, MPI_FLOAT, one->root, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
        break;
    default:
        run_reduction(one);
    }
}

int main(int argc, char **argv)
{
    int rank, size;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    bench_operations_serve(argc, argv, rank, size, run);
    MPI_Finalize();
    return 0;
}
