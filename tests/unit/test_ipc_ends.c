/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_ipc_ends.c - how channels over shared memory begin and end: in every callback, and when a process is
 * killed.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../transports/ipc/ipc.h" /* a writer that is stopped by its own hand */
#include "ipc_peer.h"

static const struct stream nothing = {.largest = 64};
static const struct stream some = {.seed = 8, .frames = 8, .largest = 100000, .answers = 5};
static const struct stream others = {.seed = 9, .frames = 7, .largest = 100000, .answers = 5};

static const char *const ways[][4] = {
    {"copy=auto", NULL},
    {"copy=process_vm", NULL},
    {"copy=arena", NULL},
    {"copy=ring", "ring=16 KiB", "inline_bytes=4 KiB", NULL},
};
#define WAYS ((int)(sizeof ways / sizeof *ways))

static struct bps_loop *loop;
static struct side side;
static char actual[128];

static void open_side(const char *const *options)
{
    loop = bps_loop_new();
    side_open(&side, loop, options);
}

static void close_side(void)
{
    side_close(&side);
    bps_loop_free(loop);
}

static void stop(struct peer *peer)
{
    bps_loop_stop(peer->side->loop);
}

/* ---- drop and finish within every callback ---- */

static uint32_t ends;

static void count_ends(struct peer *peer)
{
    if (++ends == 2) {
        bps_loop_stop(peer->side->loop);
    }
}

struct end {
    const char *const *options;
    bool dialler_acts, own, drop;
};

/* What the finished one had to say has arrived. */
static void check_finished(const struct peer *finished, const struct peer *listener)
{
    ck_assert_uint_eq(listener->received, finished->out.frames);
    ck_assert_uint_eq(finished->sent, finished->out.frames);
    ck_assert_uint_eq(finished->closed, 1);
    ck_assert_msg(finished->status == BPS_OK, "%s", finished->text);
}

/* One instance talks to itself; a peer ends a channel in its k-th callback. False: it had no k-th. */
static bool end_at(uint32_t k, const struct end *end)
{
    struct peer dialler, acceptor;
    struct peer *actor = end->dialler_acts ? &dialler : &acceptor;
    struct peer *other = end->dialler_acts ? &acceptor : &dialler;
    open_side(end->options);
    peer_init(&dialler, &side, &some, &others);
    peer_init(&acceptor, &side, &others, &some);
    ends = 0;
    dialler.on_closed = acceptor.on_closed = count_ends;
    dialler.finish_when_complete = acceptor.finish_when_complete = true;
    /* A loan may be out when the channel ends, and does not count as sent then. */
    dialler.lend = acceptor.lend = end->drop ? LEND_MIXED : LEND_REFUSE;
    if (strcmp(end->options[0], "copy=auto") == 0) {
        peer_use_region(&dialler);
        peer_use_region(&acceptor);
    }
    actor->victim = end->own ? actor : other;
    actor->drop_at = end->drop ? k : 0;
    actor->finish_at = end->drop ? 0 : k;
    peer_listen(&acceptor, actual, sizeof actual);
    peer_dial(&dialler, actual);
    run_loop(loop);
    bool reached = actor->callbacks >= k;
    if (!end->drop && reached) {
        check_finished(actor->victim, actor->victim == &dialler ? &acceptor : &dialler);
    }
    peer_fini(&dialler);
    peer_fini(&acceptor);
    close_side();
    return reached;
}

static void end_everywhere(int which, bool drop)
{
    const struct end end = {ways[which / 4], which % 2 == 0, which / 2 % 2 == 0, drop};
    uint32_t k = 1;
    while (end_at(k, &end)) {
        k++;
    }
    ck_assert_uint_gt(k, 30);
}

START_TEST(dropping_in_any_callback_is_the_end)
{
    end_everywhere(_i, true);
}
END_TEST

START_TEST(finishing_in_any_callback_loses_nothing)
{
    end_everywhere(_i, false);
}
END_TEST

/* ---- beginnings ---- */

START_TEST(dialling_nobody_is_refused_later)
{
    struct peer peer;
    open_side(NULL);
    peer_init(&peer, &side, &nothing, &nothing);
    peer.on_closed = stop;
    peer_dial(&peer, "@byteps-nobody-is-here");
    run_loop(loop);
    ck_assert_int_eq(peer.status, BPS_ERR_IO);
    ck_assert_str_eq(peer.text, "connect @byteps-nobody-is-here: Connection refused");
    peer_fini(&peer);
    close_side();
}
END_TEST

START_TEST(foreign_addresses_cannot_be_dialled)
{
    static const char *const wrong[] = {"", "@", "127.0.0.1:9000", "/run/socket",
                                        "@012345678901234567890123456789012345678901234567890123456789"
                                        "01234567890123456789012345678901234567890123456789"};
    struct bps_channel *channel;
    struct bps_report report = {""};
    open_side(NULL);
    ck_assert_int_eq(side.ops->dial(side.instance->self, wrong[_i], 0, NULL, NULL, NULL, &channel, &report),
                     BPS_ERR_INVALID);
    ck_assert_ptr_nonnull(strstr(report.text, "expected"));
    close_side();
}
END_TEST

START_TEST(a_channel_may_be_refused)
{
    struct peer busy, dialler;
    open_side(NULL);
    peer_init(&busy, &side, &nothing, &nothing);
    peer_init(&dialler, &side, &nothing, &nothing);
    busy.ended = true; /* accepts no more */
    dialler.on_closed = stop;
    peer_listen(&busy, actual, sizeof actual);
    peer_dial(&dialler, actual);
    run_loop(loop);
    ck_assert_int_eq(dialler.status, BPS_ERR_IO);
    ck_assert_str_eq(dialler.text, "connection closed by peer");
    peer_fini(&busy);
    peer_fini(&dialler);
    close_side();
}
END_TEST

START_TEST(a_name_is_taken_once)
{
    struct bps_report report = {""};
    char name[64], again[64];
    struct peer peer;
    open_side(NULL);
    peer_init(&peer, &side, &nothing, &nothing);
    peer_listen(&peer, name, sizeof name);
    ck_assert_int_eq(side.ops->listen(side.instance->self, name, peer_accept, &peer, again, sizeof again, &report),
                     BPS_ERR_IO);
    ck_assert_ptr_nonnull(strstr(report.text, strerror(EADDRINUSE)));
    peer_listen(&peer, again, sizeof again);
    ck_assert_str_ne(name, again);
    peer_fini(&peer);
    close_side();
}
END_TEST

START_TEST(ending_before_the_beginning)
{
    struct peer acceptor, dropped, finished;
    open_side(NULL);
    peer_init(&acceptor, &side, &nothing, &nothing);
    peer_init(&dropped, &side, &nothing, &nothing);
    peer_init(&finished, &side, &nothing, &nothing);
    peer_listen(&acceptor, actual, sizeof actual);
    peer_dial(&dropped, actual);
    peer_drop(&dropped);
    peer_dial(&finished, actual);
    side.ops->finish(finished.channel);
    finished.on_closed = stop;
    run_loop(loop);
    ck_assert_uint_eq(dropped.callbacks, 0);
    ck_assert(finished.connected);
    ck_assert_int_eq(finished.status, BPS_OK);
    /* An instance with channels may be closed: they are dropped. */
    peer_fini(&acceptor);
    peer_fini(&finished);
    peer_fini(&dropped);
    close_side();
}
END_TEST

/* ---- peers that do nothing ---- */

static int silent_listener(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    socklen_t length = sizeof address;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof address.sun_family), 0); /* any free name */
    ck_assert_int_eq(listen(fd, 8), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&address, &length), 0);
    snprintf(actual, sizeof actual, "@%.*s", (int)(length - offsetof(struct sockaddr_un, sun_path)) - 1,
             address.sun_path + 1);
    return fd;
}

START_TEST(a_silent_listener_is_given_up)
{
    static const char *const options[] = {"timeout=100 ms", NULL};
    struct peer peer;
    int fd = silent_listener();
    open_side(options);
    peer_init(&peer, &side, &nothing, &nothing);
    peer.on_closed = stop;
    peer_dial(&peer, actual);
    run_loop(loop);
    ck_assert_int_eq(peer.status, BPS_ERR_TIMEOUT);
    peer_fini(&peer);
    close_side();
    close(fd);
}
END_TEST

START_TEST(a_full_queue_is_waited_for)
{
    static const char *const options[] = {"timeout=200 ms", NULL};
    struct peer peers[40];
    int fd = silent_listener();
    open_side(options);
    ends = 2u - 40u; /* count_ends stops the loop at the last */
    for (int i = 0; i < 40; i++) {
        peer_init(&peers[i], &side, &nothing, &nothing);
        peers[i].on_closed = count_ends;
        peer_dial(&peers[i], actual);
    }
    run_loop(loop);
    for (int i = 0; i < 40; i++) {
        ck_assert(!peers[i].connected);
        ck_assert_uint_eq(peers[i].closed, 1);
        peer_fini(&peers[i]);
    }
    close_side();
    close(fd);
}
END_TEST

/* Two loops: one of them stops turning. */
START_TEST(a_peer_that_takes_nothing_is_not_waited_for_endlessly)
{
    static const char *const options[] = {"window=64 KiB", NULL};
    const struct stream much = {.seed = 3, .frames = 50, .largest = 100000, .same = true};
    struct side sides[2];
    struct peer peers[2];
    for (int i = 0; i < 2; i++) {
        side_open(&sides[i], bps_loop_new(), options);
        peer_init(&peers[i], &sides[i], i == 0 ? &much : &nothing, i == 0 ? &nothing : &much);
    }
    peer_listen(&peers[1], actual, sizeof actual);
    peer_dial(&peers[0], actual);
    while (peers[0].handed == 0) {
        turn(sides[0].loop);
        turn(sides[1].loop);
    }
    peers[0].on_closed = stop;
    sides[0].ops->finish(peers[0].channel);
    run_loop(sides[0].loop);
    ck_assert_int_eq(peers[0].status, BPS_ERR_TIMEOUT);
    ck_assert_uint_lt(peers[1].received, 50);
    for (int i = 0; i < 2; i++) {
        peer_fini(&peers[i]);
        side_close(&sides[i]);
        bps_loop_free(sides[i].loop);
    }
}
END_TEST

/* ---- a process is killed ---- */

static struct {
    pid_t child;
    uint32_t at; /* callback of ours */
} doom;

static void kill_child(struct peer *peer)
{
    if (doom.child > 0 && peer->callbacks >= doom.at) {
        kill(doom.child, SIGKILL);
        doom.child = 0;
    }
}

static void (*on_next_of_child)(struct peer *peer);

static void be_a_peer(int from, const char *const *options)
{
    struct peer peer;
    open_side(options);
    peer_init(&peer, &side, &some, &others);
    peer.out.frames = peer.in.frames = UINT32_MAX;
    peer.hold = 3;
    peer.on_next = on_next_of_child;
    must(read(from, actual, sizeof actual) > 0);
    peer_dial(&peer, actual);
    run_loop(loop);
    _exit(1);
}

START_TEST(a_killed_process_is_noticed)
{
    const char *const *options = ways[_i % WAYS];
    struct peer peer;
    int pipes[2], status;
    ck_assert_int_eq(pipe(pipes), 0);
    pid_t child = must_fork();
    if (child == 0) {
        be_a_peer(pipes[0], options);
    }
    open_side(options);
    peer_init(&peer, &side, &others, &some);
    peer.out.frames = peer.in.frames = UINT32_MAX;
    peer.hold = 3;
    doom.child = child;
    doom.at = (uint32_t)(_i / WAYS * 37);
    peer.on_next = kill_child;
    peer.on_closed = stop;
    peer_listen(&peer, actual, sizeof actual);
    ck_assert_int_eq(write(pipes[1], actual, sizeof actual), sizeof actual);
    run_loop(loop);
    ck_assert_int_eq(peer.status, BPS_ERR_IO);
    ck_assert_int_eq(strncmp(peer.text, "connection closed by peer", 25), 0);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    peer_fini(&peer);
    close_side();
}
END_TEST

/* ---- a process is stopped in the middle of writing ---- */

/* Where the peer has begun to write to our memory, and has not done it. */
static void stop_while_writing(struct peer *peer)
{
    if (peer->received >= 2) {
        atomic_store(&peer->channel->ring.own->writing, 1);
        raise(SIGSTOP);
    }
}

static void drop_when_stopped(void *arg)
{
    struct peer *peer = arg;
    siginfo_t info = {.si_pid = 0};
    if (waitid(P_PID, (id_t)doom.child, &info, WSTOPPED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0) {
        side.ops->drop(peer->channel);
        peer->channel = NULL;
        bps_loop_stop(loop);
    }
}

START_TEST(a_process_that_is_stopped_while_it_writes_is_killed)
{
    struct peer peer;
    int pipes[2], status;
    ck_assert_int_eq(pipe(pipes), 0);
    pid_t child = must_fork();
    if (child == 0) {
        on_next_of_child = stop_while_writing;
        be_a_peer(pipes[0], ways[0]);
    }
    open_side(ways[0]);
    peer_init(&peer, &side, &others, &some);
    peer.out.frames = peer.in.frames = UINT32_MAX;
    doom.child = child;
    struct bps_timer *timer = bps_loop_timer(loop, 1000000, 1000000, drop_when_stopped, &peer);
    peer_listen(&peer, actual, sizeof actual);
    ck_assert_int_eq(write(pipes[1], actual, sizeof actual), sizeof actual);
    run_loop(loop);
    bps_loop_cancel(loop, timer);
    /* The memory is ours again: nobody is left who could write to it. */
    ck_assert_int_eq(waitpid(child, &status, WNOHANG), child);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    peer_fini(&peer);
    close_side();
}
END_TEST

/* ---- what the kernel forbids ---- */

/* From here on process_vm_readv and process_vm_writev fail with EPERM. */
static bool forbid_process_vm(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {.len = sizeof filter / sizeof *filter, .filter = filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

START_TEST(what_is_forbidden_is_done_otherwise)
{
    const struct stream stream = {.seed = 6, .frames = 30, .largest = 200000, .answers = 4, .same = true};
    struct peer dialler, acceptor;
    char text[256];
    if (!forbid_process_vm()) {
        return; /* no seccomp here: nothing forbids anything */
    }
    open_side(NULL);
    side.ops->describe(side.instance->self, text, sizeof text);
    ck_assert_ptr_nonnull(strstr(text, "process_vm_readv forbidden (Operation not permitted)"));
    peer_init(&dialler, &side, &stream, &stream);
    peer_init(&acceptor, &side, &stream, &stream);
    ends = 0;
    dialler.on_closed = acceptor.on_closed = count_ends;
    dialler.finish_when_complete = acceptor.finish_when_complete = true;
    peer_listen(&acceptor, actual, sizeof actual);
    peer_dial(&dialler, actual);
    run_loop(loop);
    ck_assert_uint_eq(dialler.received, 30);
    ck_assert_uint_eq(acceptor.received, 30);
    ck_assert_uint_gt(acceptor.lent, 0);
    ck_assert_uint_eq(side_counter(&side, "frames_process_vm"), 0);
    ck_assert_uint_gt(side_counter(&side, "frames_arena"), 0);
    peer_fini(&dialler);
    peer_fini(&acceptor);
    close_side();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ipc_ends");
    TCase *tests = tcase_create("ends");
    tcase_set_timeout(tests, 300);
    tcase_add_loop_test(tests, dropping_in_any_callback_is_the_end, 0, 4 * WAYS);
    tcase_add_loop_test(tests, finishing_in_any_callback_loses_nothing, 0, 4 * WAYS);
    tcase_add_test(tests, dialling_nobody_is_refused_later);
    tcase_add_loop_test(tests, foreign_addresses_cannot_be_dialled, 0, 5);
    tcase_add_test(tests, a_channel_may_be_refused);
    tcase_add_test(tests, a_name_is_taken_once);
    tcase_add_test(tests, ending_before_the_beginning);
    tcase_add_test(tests, a_silent_listener_is_given_up);
    tcase_add_test(tests, a_full_queue_is_waited_for);
    tcase_add_test(tests, a_peer_that_takes_nothing_is_not_waited_for_endlessly);
    tcase_add_loop_test(tests, a_killed_process_is_noticed, 0, 10 * WAYS);
    tcase_add_test(tests, a_process_that_is_stopped_while_it_writes_is_killed);
    tcase_add_test(tests, what_is_forbidden_is_done_otherwise);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
