/* SPDX-License-Identifier: Apache-2.0 */
/* transport_other.c - the process of the other end, in which anything that is wrong fails the test, too. */
#include "tools/check/transport_other.h"

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- in that process ---- */

struct play {
    struct bps_other_page *page;
    struct bps_end end;
};

static bool is_closed(void *arg)
{
    struct play *play = arg;
    play->page->received = play->end.received;
    play->page->answered = play->end.answered;
    return play->end.closed > 0;
}

static void play_there(struct bps_check *check, struct bps_other_page *page, const struct bps_end *end)
{
    struct play play = {page, *end};
    struct bps_side side = bps_side_open(check);
    play.end.side = &side;
    bps_end_begin(&play.end);
    play.end.may_close = true;
    side.next = &play.end;
    bps_side_listen(&side);
    memcpy(page->address, side.address, sizeof page->address);
    page->listens = true;
    bps_sides_wait(check, is_closed, &play, &play.end, 1);
    BPS_CHECK(check, play.end.status == BPS_ERR_IO,
              "closed is called with status %d when the other end was finished; expected BPS_ERR_IO", play.end.status);
    page->over = true;
    bps_end_free(&play.end);
    bps_side_close(&side);
}

_Noreturn static void run_there(struct bps_check *check, struct bps_other_page *page, const struct bps_end *end)
{
    struct bps_check here = *check;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    here.loop = bps_loop_new(); /* that of the test is the other process's, too */
    BPS_CHECK(&here, here.loop != NULL, "out of memory for the test");
    play_there(&here, page, end);
    _exit(0);
}

/* ---- in that of the test ---- */

struct bps_other bps_other_begin(struct bps_check *check, const struct bps_end *end)
{
    struct bps_other other = {.check = check};
    bps_check_load(check);
    other.page = mmap(NULL, sizeof *other.page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    other.pid = other.page != MAP_FAILED ? fork() : -1;
    if (other.pid == 0) {
        run_there(check, other.page, end);
    }
    BPS_CHECK(check, other.pid > 0, "cannot begin another process for the test");
    return other;
}

/* False: it has not ended yet. */
static bool has_ended(struct bps_other *other, int flags)
{
    int status;
    if (other->pid == 0 || waitpid(other->pid, &status, flags) != other->pid) {
        return other->pid == 0;
    }
    other->pid = 0;
    if (other->check->page->result == BPS_CHECK_SKIPPED) {
        _exit(0); /* it has told why */
    }
    BPS_CHECK(other->check, WIFEXITED(status), "the process of the other end was ended by signal %d (%s)",
              WTERMSIG(status), strsignal(WTERMSIG(status)));
    BPS_CHECK(other->check, WEXITSTATUS(status) == 0, "the process of the other end has ended with status %d",
              WEXITSTATUS(status));
    return true;
}

void bps_other_look(struct bps_other *other)
{
    has_ended(other, WNOHANG);
}

static bool listens(void *arg)
{
    struct bps_other *other = arg;
    bps_other_look(other);
    return other->page->listens;
}

void bps_other_wait(struct bps_other *other)
{
    bps_sides_wait(other->check, listens, other, NULL, 0);
}

void bps_other_kill(struct bps_other *other)
{
    kill(other->pid, SIGKILL);
    waitpid(other->pid, NULL, 0);
    other->pid = 0;
}

static bool ended(void *arg)
{
    return has_ended(arg, WNOHANG);
}

void bps_other_end(struct bps_other *other)
{
    bps_sides_wait(other->check, ended, other, NULL, 0);
    munmap(other->page, sizeof *other->page);
}
