/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_ipc_hostile.c - peers over shared memory that are broken or worse: they are refused, and others are
 * not hurt.
 */
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "ipc_peer.h"
#include "ipc_raw.h"

static struct bps_loop *loop;
static struct side side;
static char actual[128];
static struct raw raw;

/* ---- the core's end: it accepts every header, takes every byte, and keeps every loan ---- */

static struct {
    struct bps_channel *channel;
    struct bps_sink sink;
    uint32_t headers, bytes, closed;
    struct bps_loan *loan;
    bps_status status;
} victim;

static void *no_place(struct bps_sink *sink, uint32_t offset, uint32_t *bytes)
{
    (void)sink;
    (void)offset;
    (void)bytes;
    return NULL;
}

static uint32_t take_all(struct bps_sink *sink, uint32_t offset, const void *data, uint32_t bytes)
{
    (void)sink;
    ck_assert_uint_eq(offset, victim.bytes);
    ck_assert_ptr_nonnull(data);
    victim.bytes += bytes;
    return bytes;
}

static bps_status keep_loan(struct bps_sink *sink, struct bps_loan *loan)
{
    (void)sink;
    victim.loan = loan;
    return BPS_OK;
}

static bps_status accept_header(void *user, const uint8_t *header, struct bps_sink **sink)
{
    (void)user;
    (void)header;
    victim.headers++;
    victim.bytes = 0;
    victim.sink = (struct bps_sink){.place = no_place, .take = take_all, .lend = keep_loan};
    *sink = &victim.sink;
    return BPS_OK;
}

static bps_status nothing_next(void *user, struct bps_frame *out)
{
    (void)user;
    (void)out;
    return BPS_AGAIN;
}

static void note_end(void *user, bps_status status, const char *text)
{
    (void)user;
    ck_assert(text[0] != '\0');
    if (victim.loan != NULL && victim.loan->answer != NULL) {
        memset(victim.loan->answer, 2, victim.loan->bytes); /* still there */
    }
    victim.channel = NULL;
    victim.closed++;
    victim.status = status;
}

static void connected(void *user)
{
    (void)user;
    ck_abort_msg("a stranger counts as a peer");
}

static const struct bps_channel_events events = {
    .connected = connected, .header = accept_header, .next = nothing_next, .closed = note_end};

static const struct bps_channel_events *accept_victim(void *arg, struct bps_channel *channel, const char *peer,
                                                      void **user, const struct bps_channel_key **key)
{
    (void)arg;
    (void)peer;
    victim.channel = channel;
    *user = NULL;
    *key = NULL;
    return &events;
}

/* ---- beginnings and ends ---- */

static void begin(void)
{
    static const char *const options[] = {"timeout=200 ms", NULL};
    struct bps_report report = {""};
    memset(&victim, 0, sizeof victim);
    loop = bps_loop_new();
    side_open(&side, loop, options);
    ck_assert_int_eq(side.ops->listen(side.instance->self, "", accept_victim, NULL, actual, sizeof actual, &report),
                     BPS_OK);
    ck_assert(raw_open(&raw, actual));
}

static void greet(void)
{
    const struct ipc_message hello = raw_hello(&raw);
    const struct ipc_message ready = {.magic = IPC_MAGIC, .version = IPC_VERSION, .type = IPC_READY};
    struct ipc_message welcome;
    const int fds[2] = {raw.memory, raw.event};
    ck_assert(raw_send(&raw, &hello, sizeof hello, fds, 2));
    while (raw_receive(&raw, &welcome) != 1) {
        turn(loop);
    }
    ck_assert_uint_eq(welcome.type, IPC_WELCOME);
    ck_assert(raw_send(&raw, &ready, sizeof ready, NULL, 0));
    while (victim.channel == NULL) {
        turn(loop);
    }
}

/* A record with the header of a frame whose payload has `bytes`, and room for `extra` behind it. */
static struct ipc_record *frame(uint16_t kind, uint32_t bytes, uint32_t extra)
{
    struct ipc_record *record = raw_record(&raw, IPC_HEAD + extra, kind);
    ck_assert_ptr_nonnull(record);
    memcpy(record + 1, &bytes, sizeof bytes);
    return record;
}

static void publish(const struct ipc_record *record)
{
    raw_publish(&raw, record);
}

/* An honest peer is served all the same. */
static void end(void)
{
    raw_close(&raw);
    victim.channel = NULL;
    victim.headers = 0;
    ck_assert(raw_open(&raw, actual));
    greet();
    publish(frame(IPC_INLINE, 0, 0));
    while (victim.headers == 0) {
        turn(loop);
    }
    raw_close(&raw);
    side.ops->drop(victim.channel);
    side_close(&side);
    bps_loop_free(loop);
}

/* ---- the first words ---- */

enum hello {
    NO_FDS,
    ONE_FD,
    THREE_FDS,
    NOT_SEALED,
    TOO_SHORT,
    MEMORY_IS_A_SOCKET,
    EVENT_IS_A_FILE,
    EVENT_IS_A_SOCKET,
    RING_ODD,
    RING_SMALL,
    RING_HUGE,
    WRONG_MAGIC,
    WRONG_VERSION,
    WRONG_TYPE,
    CUT,
    EMPTY,
    SILENCE,
    GONE,
    HELLOS
};

static void say_hello(enum hello how)
{
    struct ipc_message hello = raw_hello(&raw);
    int fds[3] = {raw.memory, raw.event, raw.event}, open_file = raw_memory(1 << 20, false);
    int short_file = raw_memory(sizeof(struct ipc_shared) + 2 * (16 << 10) - 1, true);
    size_t size = sizeof hello;
    hello.magic += how == WRONG_MAGIC;
    hello.version += how == WRONG_VERSION;
    hello.type = how == WRONG_TYPE ? IPC_READY : hello.type;
    hello.ring = how == RING_ODD ? 3 << 14 : how == RING_SMALL ? 64 : hello.ring;
    hello.ring = how == RING_HUGE ? 1u << 31 : hello.ring;
    fds[0] = how == NOT_SEALED ? open_file : how == TOO_SHORT ? short_file : fds[0];
    fds[0] = how == MEMORY_IS_A_SOCKET ? raw.fd : fds[0];
    fds[1] = how == EVENT_IS_A_FILE ? open_file : how == EVENT_IS_A_SOCKET ? raw.fd : fds[1];
    size = how == CUT ? 20 : how == EMPTY ? 0 : size;
    if (how == GONE) {
        shutdown(raw.fd, SHUT_RDWR);
    } else if (how != SILENCE) {
        unsigned nfds = how == NO_FDS ? 0 : how == ONE_FD ? 1 : how == THREE_FDS ? 3 : 2;
        ck_assert(raw_send(&raw, &hello, size, fds, nfds));
    }
    close(open_file);
    close(short_file);
}

START_TEST(strange_hellos_are_refused)
{
    struct ipc_message answer;
    int result;
    begin();
    say_hello((enum hello)_i);
    while ((result = raw_receive(&raw, &answer)) == 0) {
        turn(loop);
    }
    ck_assert_int_eq(result, -1);
    ck_assert_ptr_null(victim.channel);
    end();
}
END_TEST

START_TEST(a_second_hello_is_refused)
{
    struct ipc_message answer;
    begin();
    const struct ipc_message hello = raw_hello(&raw);
    const int fds[2] = {raw.memory, raw.event};
    ck_assert(raw_send(&raw, &hello, sizeof hello, fds, 2));
    ck_assert(raw_send(&raw, &hello, sizeof hello, fds, 2));
    while (raw_receive(&raw, &answer) >= 0) {
        turn(loop);
    }
    ck_assert_ptr_null(victim.channel);
    end();
}
END_TEST

static void expect_end(bps_status status)
{
    while (victim.closed == 0) {
        turn(loop);
    }
    ck_assert_int_eq(victim.status, status);
    end();
}

START_TEST(an_honest_peer_by_hand_is_heard)
{
    begin();
    greet();
    struct ipc_record *record = frame(IPC_INLINE, 5, IPC_LINE);
    record->bytes = 5;
    publish(record);
    while (victim.bytes < 5) {
        turn(loop);
    }
    ck_assert_uint_eq(victim.closed, 0);
    ck_assert_uint_eq(atomic_load(&raw.shared->side[1].head), raw.tail);
    shutdown(raw.fd, SHUT_WR);
    expect_end(BPS_ERR_IO);
}
END_TEST

/* ---- a listener that is none of ours ---- */

static int strange_listener(struct sockaddr_un *address)
{
    socklen_t length = sizeof *address;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    ck_assert_int_eq(bind(fd, (struct sockaddr *)address, sizeof address->sun_family), 0); /* any free name */
    ck_assert_int_eq(listen(fd, 8), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)address, &length), 0);
    address->sun_path[0] = '@';
    return fd;
}

START_TEST(strange_welcomes_are_refused)
{
    struct ipc_message welcome = {.magic = IPC_MAGIC, .version = IPC_VERSION, .type = IPC_WELCOME};
    struct bps_report report = {""};
    struct sockaddr_un address;
    begin();
    int fd = strange_listener(&address), event = _i == 1 ? raw_memory(64, true) : raw.event;
    ck_assert_int_eq(
        side.ops->dial(side.instance->self, address.sun_path, 0, NULL, &events, NULL, &victim.channel, &report),
        BPS_OK);
    turn(loop);
    struct raw own = {.fd = accept(fd, NULL, NULL)};
    ck_assert_int_ge(own.fd, 0);
    welcome.type = _i == 2 ? IPC_READY : welcome.type;
    welcome.magic += _i == 3;
    ck_assert(raw_send(&own, &welcome, _i == 4 ? 63 : sizeof welcome, &event, _i == 0 ? 0 : 1));
    while (victim.closed == 0) {
        turn(loop);
    }
    ck_assert_int_eq(victim.status, BPS_ERR_PROTOCOL);
    close(own.fd);
    close(fd);
    end();
}
END_TEST

/* ---- strange messages later ---- */

enum message {
    REGION_WITHOUT_FD,
    REGION_NOT_SEALED,
    REGION_TOO_LONG,
    REGION_ODD,
    REGION_EMPTY,
    REGION_OVERFLOW,
    REGION_ZERO,
    REGION_TWICE,
    REGION_OF_A_SOCKET,
    FORGET_UNKNOWN,
    HELLO_AGAIN,
    UNKNOWN_TYPE,
    MESSAGE_CUT,
    MESSAGES
};

START_TEST(strange_messages_end_the_channel)
{
    struct ipc_message message = {
        .magic = IPC_MAGIC, .version = IPC_VERSION, .type = IPC_REGION, .region = 1, .bytes = 8192};
    int sealed = raw_memory(8192, true), open_file = raw_memory(8192, false), *fd = &sealed;
    size_t size = sizeof message;
    begin();
    greet();
    message.bytes = _i == REGION_TOO_LONG ? 8193 : _i == REGION_EMPTY ? 0 : message.bytes;
    message.bytes = _i == REGION_OVERFLOW ? UINT64_MAX - 4095 : message.bytes;
    message.offset = _i == REGION_ODD ? 64 : _i == REGION_OVERFLOW ? 4096 : 0;
    message.region = _i == REGION_ZERO ? 0 : 1;
    message.type = _i == FORGET_UNKNOWN ? IPC_FORGET : _i == HELLO_AGAIN ? IPC_HELLO : message.type;
    message.type = _i == UNKNOWN_TYPE ? 77 : message.type;
    fd = _i == REGION_NOT_SEALED ? &open_file : _i == REGION_OF_A_SOCKET ? &raw.fd : fd;
    size = _i == MESSAGE_CUT ? size - 1 : size;
    ck_assert(raw_send(&raw, &message, size, fd, _i == REGION_WITHOUT_FD ? 0 : 1));
    if (_i == REGION_TWICE) {
        ck_assert(raw_send(&raw, &message, size, fd, 1));
    }
    expect_end(BPS_ERR_PROTOCOL);
    close(sealed);
    close(open_file);
}
END_TEST

/* ---- strange records ---- */

static void tail_too_far(void)
{
    atomic_store(&raw.shared->side[0].tail, raw.bytes + IPC_LINE);
}

static void tail_odd(void)
{
    atomic_store(&raw.shared->side[0].tail, 100);
}

static void head_too_far(void)
{
    atomic_store(&raw.shared->side[0].head, IPC_LINE);
    side.ops->finish(victim.channel); /* which waits for the peer to take what was sent, so it looks */
}

static void write_size(uint32_t size)
{
    frame(IPC_INLINE, 0, 0)->size = size;
    atomic_store(&raw.shared->side[0].tail, 2 * IPC_LINE);
}

static void size_zero(void)
{
    write_size(0);
}

static void size_odd(void)
{
    write_size(100);
}

static void size_beyond_tail(void)
{
    write_size(3 * IPC_LINE);
}

static void size_without_header(void)
{
    write_size(IPC_LINE);
}

static void size_beyond_ring(void)
{
    publish(raw_record(&raw, raw.bytes - IPC_LINE, IPC_PAD));
    while (atomic_load(&raw.shared->side[1].head) != raw.tail) {
        turn(loop);
    }
    *raw_record(&raw, IPC_LINE, IPC_PAD) = (struct ipc_record){.size = 2 * IPC_LINE, .kind = IPC_PAD};
    atomic_store(&raw.shared->side[0].tail, raw.tail + 2 * IPC_LINE);
}

static void kind_zero(void)
{
    publish(frame(0, 0, 0));
}

static void kind_unknown(void)
{
    publish(frame(99, 0, 0));
}

static void inline_of_other_length(void)
{
    struct ipc_record *record = frame(IPC_INLINE, 8, IPC_LINE);
    record->bytes = 4;
    publish(record);
}

static void inline_beyond_record(void)
{
    struct ipc_record *record = frame(IPC_INLINE, 8192, IPC_LINE);
    record->bytes = 8192;
    publish(record);
}

static void more(uint32_t bytes, uint32_t room)
{
    struct ipc_record *record = raw_record(&raw, IPC_LINE + room, IPC_MORE);
    record->bytes = bytes;
    publish(record);
}

static void more_without_stream(void)
{
    more(16, IPC_LINE);
}

static void more_of_nothing(void)
{
    publish(frame(IPC_STREAM, 64, 0));
    more(0, IPC_LINE);
}

static void more_than_the_rest(void)
{
    publish(frame(IPC_STREAM, 64, 0));
    more(48, IPC_LINE);
    more(32, IPC_LINE);
}

static void more_in_fractions(void)
{
    publish(frame(IPC_STREAM, 64, 0));
    more(13, IPC_LINE);
}

static void more_beyond_record(void)
{
    publish(frame(IPC_STREAM, 4096, 0));
    more(4096, IPC_LINE);
}

static void stream_within_stream(void)
{
    publish(frame(IPC_STREAM, 64, 0));
    publish(frame(IPC_STREAM, 64, 0));
}

static void return_within_stream(void)
{
    publish(frame(IPC_STREAM, 64, 0));
    publish(frame(IPC_RETURN, 0, 0));
}

static void tell_region(uint32_t id, uint64_t bytes)
{
    const struct ipc_message message = {
        .magic = IPC_MAGIC, .version = IPC_VERSION, .type = IPC_REGION, .region = id, .bytes = bytes};
    int fd = raw_memory(bytes, true);
    ck_assert(raw_send(&raw, &message, sizeof message, &fd, 1));
    close(fd);
}

/* A payload of 4096 bytes at `at` of region 1, which has 8192, and an answer in `answer_region`. */
static void map_payload(uint64_t at, uint16_t flags, uint32_t answer_region, uint64_t answer)
{
    struct ipc_record *record = frame(IPC_MAPPED, 4096, 0);
    record->region = 1;
    record->at = at;
    record->flags = flags;
    record->answer_region = answer_region;
    record->answer = answer;
    publish(record);
}

static void mapped_unknown(void)
{
    map_payload(0, 0, 0, 0);
}

static void mapped_beyond(void)
{
    tell_region(1, 8192);
    map_payload(4097, 0, 0, 0);
}

static void mapped_far_beyond(void)
{
    tell_region(1, 8192);
    map_payload(UINT64_MAX - 64, 0, 0, 0);
}

static void lent_with_answer_beyond(void)
{
    tell_region(1, 8192);
    map_payload(0, IPC_LENDABLE, 1, 8192);
}

static void lent_with_unknown_answer(void)
{
    tell_region(1, 8192);
    map_payload(0, IPC_LENDABLE, 2, 0);
}

static void forget_region(uint32_t id)
{
    const struct ipc_message message = {.magic = IPC_MAGIC, .version = IPC_VERSION, .type = IPC_FORGET, .region = id};
    ck_assert(raw_send(&raw, &message, sizeof message, NULL, 0));
}

static void lent_and_forgotten(void)
{
    tell_region(1, 8192);
    map_payload(0, IPC_LENDABLE, 1, 4096);
    while (victim.loan == NULL) {
        turn(loop);
    }
    memset(victim.loan->answer, 1, victim.loan->bytes);
    forget_region(1);
}

/* Both regions are found only by reading messages, and one of these ends the first. */
static void lent_and_forgotten_at_once(void)
{
    tell_region(1, 8192);
    tell_region(2, 8192);
    turn(loop);
    forget_region(1);
    tell_region(3, 8192);
    map_payload(0, IPC_LENDABLE, 3, 0);
}

static void remote_nowhere(void)
{
    struct ipc_record *record = frame(IPC_REMOTE, 4096, 0);
    record->at = 64;
    publish(record);
}

static void return_of_nothing(void)
{
    struct ipc_record *record = frame(IPC_RETURN, 0, 0);
    record->ticket = 3;
    publish(record);
}

static void return_with_payload(void)
{
    publish(frame(IPC_RETURN, 64, IPC_LINE));
}

static void (*const records[])(void) = {
    tail_too_far,
    tail_odd,
    head_too_far,
    size_zero,
    size_odd,
    size_beyond_tail,
    size_without_header,
    size_beyond_ring,
    kind_zero,
    kind_unknown,
    inline_of_other_length,
    inline_beyond_record,
    more_without_stream,
    more_of_nothing,
    more_than_the_rest,
    more_in_fractions,
    more_beyond_record,
    stream_within_stream,
    return_within_stream,
    mapped_unknown,
    mapped_beyond,
    mapped_far_beyond,
    lent_with_answer_beyond,
    lent_with_unknown_answer,
    lent_and_forgotten,
    lent_and_forgotten_at_once,
    remote_nowhere,
    return_of_nothing,
    return_with_payload,
};

START_TEST(strange_records_end_the_channel)
{
    begin();
    greet();
    records[_i]();
    expect_end(BPS_ERR_PROTOCOL);
}
END_TEST

START_TEST(a_flood_of_nothing_does_not_keep_others_waiting)
{
    struct raw other;
    begin();
    greet();
    ck_assert(raw_open(&other, actual));
    for (int i = 0; i < 1000; i++) {
        uint64_t taken = atomic_load(&raw.shared->side[1].head);
        while (raw.tail + IPC_LINE - taken <= raw.bytes) {
            publish(raw_record(&raw, IPC_LINE, IPC_PAD));
        }
        turn(loop);
    }
    ck_assert_uint_eq(victim.closed, 0);
    ck_assert_uint_gt(raw.tail, 1000 * IPC_LINE);
    raw_close(&other);
    shutdown(raw.fd, SHUT_WR);
    expect_end(BPS_ERR_IO);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ipc_hostile");
    TCase *tests = tcase_create("strangers");
    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, strange_hellos_are_refused, 0, HELLOS);
    tcase_add_test(tests, a_second_hello_is_refused);
    tcase_add_test(tests, an_honest_peer_by_hand_is_heard);
    tcase_add_loop_test(tests, strange_welcomes_are_refused, 0, 5);
    tcase_add_loop_test(tests, strange_messages_end_the_channel, 0, MESSAGES);
    tcase_add_loop_test(tests, strange_records_end_the_channel, 0, (int)(sizeof records / sizeof *records));
    tcase_add_test(tests, a_flood_of_nothing_does_not_keep_others_waiting);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
