/* SPDX-License-Identifier: Apache-2.0 */
/* board.c - the memory that the ranks of a stand-in communicator share, and the turns they take. */
#include "board.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LOOK_US 20

struct board *board_open(const char *name)
{
    int fd = shm_open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(struct board)) != 0) {
        return NULL;
    }
    struct board *board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return board != MAP_FAILED ? board : NULL;
}

void board_close(struct board *board, const char *name)
{
    munmap(board, sizeof *board);
    shm_unlink(name); /* the first who goes; all others have it mapped, or never will */
}

bool board_complete(const struct board *board, unsigned n)
{
    bool all = true;
    for (unsigned i = 0; i < n; i++) {
        all = all && atomic_load(&board->seat[i].here);
    }
    return all;
}

bool board_deserted(const struct board *board, unsigned n)
{
    bool all = true;
    for (unsigned i = 0; i < n; i++) {
        all = all && atomic_load(&board->seat[i].left);
    }
    return all;
}

bool board_shares(const struct board *board, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        for (unsigned k = 0; k < i; k++) {
            if (memcmp(board->seat[i].device, board->seat[k].device, sizeof board->seat[k].device) == 0) {
                return true;
            }
        }
    }
    return false;
}

bool board_begin(struct board *board, unsigned rank, unsigned n, uint64_t turn, const struct board_step *step,
                 const void *from, size_t bytes, const atomic_bool *stop)
{
    struct board_seat *own = &board->seat[rank];
    for (unsigned i = 0; i < n; i++) { /* what was shown before is still being read */
        while (atomic_load(&board->seat[i].taken) + 1 < turn) {
            if (atomic_load(stop)) {
                return false;
            }
            usleep(LOOK_US);
        }
    }
    own->step = *step;
    if (from != NULL) {
        memcpy(own->data, from, bytes);
    }
    atomic_store(&own->shown, turn);
    for (unsigned i = 0; i < n; i++) {
        while (atomic_load(&board->seat[i].shown) < turn) {
            if (atomic_load(stop)) {
                return false;
            }
            usleep(LOOK_US);
        }
        const struct board_step *other = &board->seat[i].step;
        if (other->kind != step->kind || other->type != step->type || other->op != step->op ||
            other->root != step->root || other->count != step->count) {
            return false;
        }
    }
    return true;
}

void board_end(struct board *board, unsigned rank, uint64_t turn)
{
    atomic_store(&board->seat[rank].taken, turn);
}
