/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mpi.c - a rank that reduces the same tensors by MPI, one after the other. The driver builds it if it
 * finds mpicc.
 */
#include <mpi.h>

#include "round.h"

struct model {
    struct bench_tensors tensors;
    float *memory;
};

static void reduce_all(void *arg)
{
    const struct model *m = arg;
    float *at = m->memory + m->tensors.elements;

    for (size_t i = m->tensors.n; i-- > 0;) {
        at -= m->tensors.count[i];
        MPI_Allreduce(MPI_IN_PLACE, at, (int)m->tensors.count[i], MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    }
}

int main(int argc, char **argv)
{
    struct model m;
    struct bench_driver driver;
    int rank;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc != 4) {
        bench_fail("usage: mpi DIRECTORY NAME TENSORS");
    }
    bench_tensors_read(argv[3], &m.tensors);
    m.memory = bench_memory(m.tensors.elements, 0);
    reduce_all(&m);
    bench_driver_open(argv[1], argv[2], rank, &driver);
    bench_driver_serve(&driver, reduce_all, &m);
    MPI_Finalize();
    return 0;
}
