/* SPDX-License-Identifier: Apache-2.0 */
/* test_meeting.c - where the processes of a launcher meet: notes, and strange answers of stores and launchers. */
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "checks.h"
#include "base/clock.h"
#include "meeting/meeting.h"

const struct bps_module *bps_module_launcher_pmi(void), *bps_module_launcher_tcp_store(void);

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))
#define SECRET       "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"

static struct bps_report report;

/* ---- notes ---- */

static char left[BPS_NOTE_LIMIT];

static bps_status leave(const char *key, const char *note, uint64_t until, struct bps_report *why)
{
    (void)until;
    (void)why;
    ck_assert_str_eq(key, "byteps-7");
    snprintf(left, sizeof left, "%s", note);
    return BPS_OK;
}

static bps_status find(const char *key, char note[BPS_NOTE_LIMIT], uint64_t until, struct bps_report *why)
{
    (void)key;
    (void)until;
    (void)why;
    snprintf(note, BPS_NOTE_LIMIT, "%s", left);
    return BPS_OK;
}

static const struct bps_meeting_place wall = {.name = "a wall", .leave = leave, .find = find};

static struct bps_conf *load(const char *scheduler)
{
    struct bps_conf *conf = NULL;
    char setting[100];
    const char *const set[] = {setting};
    snprintf(setting, sizeof setting, "cluster.scheduler=%s", scheduler);
    ck_assert_int_eq(bps_conf_load(NULL, set, 1, &conf, &report), BPS_OK);
    return conf;
}

START_TEST(a_note_comes_back)
{
    struct bps_conf *first = load("[fd00::1]:9000"), *second = load("other:1");
    ck_assert_int_eq(bps_conf_put_cluster(first, "job", "one", "test", &report), BPS_OK);
    for (unsigned i = 0; i < BPS_SECRET_BYTES; i++) {
        first->secret[i] = (uint8_t)i;
    }
    ck_assert_int_eq(bps_meeting_leave(&wall, first, (struct bps_given){false, false}, 7, 0, &report), BPS_OK);
    ck_assert_str_eq(left, "2,[fd00::1]:9000," SECRET ",one");
    ck_assert_int_eq(bps_meeting_find(&wall, second, (struct bps_given){false, false}, 7, 0, &report), BPS_OK);
    ck_assert_str_eq(second->cluster.scheduler, "[fd00::1]:9000");
    ck_assert_mem_eq(second->secret, first->secret, BPS_SECRET_BYTES);
    ck_assert(second->has_secret);
    ck_assert_str_eq(second->cluster.job, "one");
    ck_assert_int_eq(bps_meeting_leave(&wall, first, (struct bps_given){true, true}, 7, 0, &report), BPS_OK);
    ck_assert_str_eq(left, "2,[fd00::1]:9000,-,-");
    bps_conf_free(first);
    bps_conf_free(second);
}
END_TEST

static const struct {
    const char *note;
    bool has_secret;
    bps_status status;
} notes[] = {
    {"2,h:1," SECRET ",j", false, BPS_OK},
    {"2,h:1,-,j", true, BPS_OK},
    {"2,h:1," SECRET ",j", true, BPS_ERR_CONF},
    {"2,h:1,-,j", false, BPS_ERR_CONF},
    {"", false, BPS_ERR_PROTOCOL},
    {"1,h:1," SECRET, false, BPS_ERR_PROTOCOL},
    {"3,h:1," SECRET ",j", false, BPS_ERR_PROTOCOL},
    {"2,h," SECRET ",j", false, BPS_ERR_PROTOCOL},
    {"2,," SECRET ",j", false, BPS_ERR_PROTOCOL},
    {"2,h:1", false, BPS_ERR_PROTOCOL},
    {"2,h:1,", false, BPS_ERR_PROTOCOL},
    {"2,h:1," SECRET, false, BPS_ERR_PROTOCOL},
    {"2,h:1," SECRET ",", false, BPS_ERR_PROTOCOL},
    {"2,h:1," SECRET ",j,k", false, BPS_ERR_PROTOCOL},
    {"2,h:1," SECRET "0,j", false, BPS_ERR_PROTOCOL},
    {"2,h:1,G0" SECRET ",j", false, BPS_ERR_PROTOCOL},
    {"2,h:1,abc,j", false, BPS_ERR_PROTOCOL},
};

START_TEST(a_note_is_not_believed)
{
    struct bps_conf *conf = load("none:1");
    snprintf(left, sizeof left, "%s", notes[_i].note);
    ck_assert_int_eq(bps_meeting_find(&wall, conf, (struct bps_given){notes[_i].has_secret, false}, 1, 0, &report),
                     notes[_i].status);
    ck_assert_str_eq(conf->cluster.scheduler, notes[_i].status == BPS_OK ? "h:1" : "none:1");
    bps_conf_free(conf);
}
END_TEST

/* ---- strange answers ---- */

/* An end that answers each thing it hears with bytes of a sequence, and hangs up when that is over. */
struct stranger {
    int listener, fd; /* -1: none */
    const uint8_t *bytes;
    size_t n;
    pthread_t thread;
};

static void *answer(void *arg)
{
    struct stranger *s = arg;
    uint8_t heard[1024];
    int fd = s->listener >= 0 ? accept(s->listener, NULL, NULL) : s->fd;
    if (recv(fd, heard, sizeof heard, 0) > 0) {
        (void)!send(fd, s->bytes, s->n, MSG_NOSIGNAL);
    }
    shutdown(fd, SHUT_WR);
    while (recv(fd, heard, sizeof heard, 0) > 0) {
    }
    close(fd);
    return NULL;
}

static void begin(struct stranger *s)
{
    ck_assert_int_eq(pthread_create(&s->thread, NULL, answer, s), 0);
}

static void listen_somewhere(struct stranger *s, char port[8])
{
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof here;
    s->listener = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_eq(bind(s->listener, (struct sockaddr *)&here, sizeof here), 0);
    ck_assert_int_eq(listen(s->listener, 1), 0);
    ck_assert_int_eq(getsockname(s->listener, (struct sockaddr *)&here, &size), 0);
    snprintf(port, 8, "%u", ntohs(here.sin_port));
}

/* Bytes that are mostly small, so that lengths are now and then right. */
static size_t make(uint8_t *bytes, size_t room, unsigned *seed)
{
    size_t n = (size_t)rand_r(seed) % room;
    for (size_t i = 0; i < n; i++) {
        int kind = rand_r(seed) % 4;
        bytes[i] = kind == 0 ? (uint8_t)rand_r(seed) : kind == 1 ? (uint8_t)(rand_r(seed) % 32) : 0;
    }
    return n;
}

static const struct bps_launcher_ops *ops_of(const struct bps_module *module)
{
    return module->plugins[0]->ops;
}

START_TEST(any_bytes_of_a_store)
{
    uint8_t bytes[600];
    char port[8], note[BPS_NOTE_LIMIT];
    unsigned seed = (unsigned)_i;
    const struct bps_launcher_ops *store = ops_of(bps_module_launcher_tcp_store());
    struct stranger s = {.fd = -1, .bytes = bytes, .n = make(bytes, sizeof bytes, &seed)};
    listen_somewhere(&s, port);
    setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("MASTER_PORT", port, 1);
    ck_assert(store->recognise());
    begin(&s);
    memset(note, 'x', sizeof note);
    bps_status status = store->find(NULL, "byteps-1", note, bps_now() + 5 * BPS_S, &report);
    ck_assert(status != BPS_OK || memchr(note, '\0', sizeof note) != NULL);
    pthread_join(s.thread, NULL);
    close(s.listener);
}
END_TEST

static const char *const words[] = {
    "cmd=response_to_init rc=0\n",
    "cmd=my_kvsname kvsname=space\n",
    "cmd=barrier_out\n",
    "cmd=get_result rc=0 value=v\n",
    "cmd=get_result value=\n",
    "cmd=\n",
    "rc=0 cmd",
    "= = =\n",
    "\n",
    "kvsname= rc=0\n",
    "\xff\0\n",
};

START_TEST(any_lines_of_a_launcher)
{
    uint8_t bytes[600];
    char fd[8], note[BPS_NOTE_LIMIT];
    unsigned seed = (unsigned)_i;
    size_t n = 0;
    int ends[2];
    for (int i = 0; i < 4; i++) { /* the right lines first, up to some point */
        const char *word = words[i < _i % 5 ? i : rand_r(&seed) % COUNT(words)];
        memcpy(bytes + n, word, strlen(word));
        n += strlen(word);
    }
    const struct bps_launcher_ops *pmi = ops_of(bps_module_launcher_pmi());
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    struct stranger s = {.listener = -1, .fd = ends[1], .bytes = bytes, .n = n};
    snprintf(fd, sizeof fd, "%d", ends[0]);
    setenv("PMI_FD", fd, 1);
    unsetenv("SLURM_MPI_TYPE");
    ck_assert(pmi->recognise());
    begin(&s);
    memset(note, 'x', sizeof note);
    bps_status status = pmi->find(NULL, "byteps-1", note, bps_now() + 5 * BPS_S, &report);
    ck_assert(status != BPS_OK || memchr(note, '\0', sizeof note) != NULL);
    ck_assert(_i % 5 < 4 || (status == BPS_OK && strcmp(note, "v") == 0));
    shutdown(ends[0], SHUT_WR);
    pthread_join(s.thread, NULL);
    close(ends[0]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("meeting");
    TCase *tests = tcase_create("meeting");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, a_note_comes_back);
    tcase_add_loop_test(tests, a_note_is_not_believed, 0, COUNT(notes));
    tcase_add_loop_test(tests, any_bytes_of_a_store, 0, 200);
    tcase_add_loop_test(tests, any_lines_of_a_launcher, 0, 200);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
