/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dma_buf.c - a stand-in for RDMA devices that register dma-bufs, as Soft-RoCE does not. To be preloaded
 * where the driver of a GPU is the stand-in of tests/gpu, whose dma-buf is a file: it is mapped, and
 * registered as if it were at the device's address.
 */
#include <infiniband/verbs.h>
#include <sys/mman.h>

/* The mapping stays until the process ends. */
__attribute__((visibility("default"))) struct ibv_mr *
ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access)
{
    void *memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)offset);
    return memory == MAP_FAILED ? NULL : ibv_reg_mr_iova(pd, memory, length, iova, access);
}
