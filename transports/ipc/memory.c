/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory.c - files of memory that two processes map. They have no name in any file system, so that nothing is
 * left of them after the last process; they are sealed against getting shorter, so that no access can fault
 * (SIGBUS). A child made by fork does not inherit the mappings: it could write where its parent's peers read.
 */
#include "ipc.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static void *map(int fd, uint64_t bytes, uint64_t offset)
{
    bps_util_fork_hold();
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)offset);
    if (memory != MAP_FAILED && madvise(memory, bytes, MADV_DONTFORK) != 0) {
        munmap(memory, bytes);
        memory = MAP_FAILED;
    }
    bps_util_fork_release();
    if (memory == MAP_FAILED) {
        return NULL;
    }
    (void)madvise(memory, bytes, MADV_HUGEPAGE);
    return memory;
}

bool ipc_memory_make(const char *name, uint64_t bytes, int *fd, void **memory)
{
    bps_util_fork_hold();
    *fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    bps_util_fork_release();
    if (*fd < 0 || ftruncate(*fd, (off_t)bytes) != 0 ||
        fcntl(*fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0 ||
        (*memory = map(*fd, bytes, 0)) == NULL) {
        int error = errno;
        ipc_fork_close(fd);
        errno = error;
        return false;
    }
    return true;
}

bool ipc_memory_is_sealed(int fd)
{
    int seals = fcntl(fd, F_GET_SEALS);
    return seals >= 0 && (seals & F_SEAL_SHRINK) != 0;
}

void *ipc_memory_map(int fd, uint64_t bytes, uint64_t offset, bool *allocated)
{
    struct stat file;
    if (!ipc_memory_is_sealed(fd) || fstat(fd, &file) != 0 || file.st_size < 0 || bytes == 0 ||
        offset % IPC_PAGE != 0 || offset > (uint64_t)file.st_size || bytes > (uint64_t)file.st_size - offset) {
        errno = EINVAL;
        return NULL;
    }
    *allocated = file.st_blocks >= file.st_size / 512;
    return map(fd, bytes, offset);
}

void ipc_memory_unmap(void *memory, uint64_t bytes)
{
    if (memory != NULL) {
        munmap(memory, bytes);
    }
}
