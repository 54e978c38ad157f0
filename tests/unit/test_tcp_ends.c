/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_tcp_ends.c - how channels of the TCP transport begin and end, and what foreign peers can do: nothing.
 */
#include <arpa/inet.h>
#include <linux/sockios.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tcp_peer.h"

const struct side_kind side_kind = {"tcp", "net", "transports.net"};

static const struct stream nothing = {.grain = 1};
static const struct stream some = {.seed = 8, .frames = 12, .largest = 100000, .grain = 4};
static const struct stream others = {.seed = 9, .frames = 9, .largest = 100000, .grain = 4};

static struct bps_loop *loop;
static struct side side;
static char actual[128];

static void open_side(void)
{
    loop = bps_loop_new();
    side_open(&side, loop, NULL);
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

static void stop_timer(void *arg)
{
    bps_loop_stop(arg);
}

/* Lets the loop do what there is to do. */
static void settle(void)
{
    bps_loop_timer(loop, 20000000, 0, stop_timer, loop);
    run_loop(loop);
}

/* ---- a foreign peer: a plain socket ---- */

static int foreign(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    address.sin_port = htons((uint16_t)atoi(strrchr(actual, ':') + 1));
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

/* A plain socket that listens, and where. */
static int listener(char *address, size_t n)
{
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof own;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&own, sizeof own), 0);
    ck_assert_int_eq(listen(fd, 1), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&own, &length), 0);
    snprintf(address, n, "127.0.0.1:%u", ntohs(own.sin_port));
    return fd;
}

static void send_bytes(int fd, const void *data, size_t bytes)
{
    ck_assert_int_eq(send(fd, data, bytes, MSG_NOSIGNAL), (ssize_t)bytes);
}

static void expect_end(int fd)
{
    char byte;
    ck_assert_int_le(recv(fd, &byte, 1, 0), 0);
    close(fd);
}

/* ---- drop and finish within every callback ---- */

static uint32_t ends;

static void count_ends(struct peer *peer)
{
    if (++ends == 2) {
        bps_loop_stop(peer->side->loop);
    }
}

/* One instance talks to itself; a peer ends a channel in its k-th callback. False: it had no k-th. */
static bool end_at(uint32_t k, bool dialler_acts, bool own, bool drop)
{
    struct peer dialler, acceptor;
    struct peer *actor = dialler_acts ? &dialler : &acceptor, *other = dialler_acts ? &acceptor : &dialler;
    open_side();
    peer_init(&dialler, &side, &some, &others);
    peer_init(&acceptor, &side, &others, &some);
    ends = 0;
    dialler.on_closed = acceptor.on_closed = count_ends;
    dialler.take = acceptor.take = TAKE_MIXED;
    actor->victim = own ? actor : other;
    actor->drop_at = drop ? k : 0;
    actor->finish_at = drop ? 0 : k;
    peer_listen(&acceptor, "127.0.0.1:0", actual, sizeof actual);
    peer_dial(&dialler, actual);
    dialler.finish_when_complete = acceptor.finish_when_complete = true;
    run_loop(loop);
    bool reached = actor->callbacks >= k;
    if (!drop && reached) {
        /* What the finished one had to say has arrived. */
        struct peer *finished = actor->victim, *listener = finished == &dialler ? &acceptor : &dialler;
        ck_assert_uint_eq(listener->received, finished->out.frames);
        ck_assert_uint_eq(finished->sent, finished->out.frames);
        ck_assert_uint_eq(finished->closed, 1);
        ck_assert_msg(finished->status == BPS_OK, "%s", finished->text);
    }
    peer_fini(&dialler);
    peer_fini(&acceptor);
    close_side();
    return reached;
}

static void end_everywhere(int which, bool drop)
{
    uint32_t k = 1;
    while (end_at(k, (which & 1) != 0, (which & 2) != 0, drop)) {
        k++;
    }
    ck_assert_uint_gt(k, some.frames + others.frames);
}

START_TEST(channels_can_be_dropped_in_every_callback)
{
    end_everywhere(_i, true);
}
END_TEST

START_TEST(channels_can_be_finished_in_every_callback)
{
    end_everywhere(_i, false);
}
END_TEST

START_TEST(channels_can_be_dropped_before_anything_happens)
{
    struct peer peer;
    open_side();
    peer_init(&peer, &side, &some, &nothing);
    peer_listen(&peer, "127.0.0.1:0", actual, sizeof actual);
    for (int i = 0; i < 3; i++) {
        struct peer dialler;
        peer_init(&dialler, &side, &some, &nothing);
        peer_dial(&dialler, actual);
        side.ops->kick(dialler.channel);
        if (i > 0) {
            side.ops->finish(dialler.channel);
        }
        peer_drop(&dialler);
        ck_assert_uint_eq(dialler.callbacks, 0);
        peer_fini(&dialler);
    }
    peer_fini(&peer);
    close_side();
}
END_TEST

/* ---- what a foreign peer does ---- */

static void expect_closed(const struct peer *peer, bps_status status, const char *text)
{
    ck_assert_uint_eq(peer->closed, 1);
    ck_assert_str_eq(peer->text, text);
    ck_assert_int_eq(peer->status, status);
}

static const struct {
    uint32_t header, payload; /* bytes that it sends of a frame */
    const char *text;
} stumps[] = {
    {0, 0, "connection closed by peer"},
    {1, 0, "connection closed by peer in the middle of a frame"},
    {63, 0, "connection closed by peer in the middle of a frame"},
    {BPS_HEADER_BYTES, 0, "connection closed by peer in the middle of a frame"},
    {BPS_HEADER_BYTES, 1, "connection closed by peer in the middle of a frame"},
    {BPS_HEADER_BYTES, 50001, "connection closed by peer in the middle of a frame"},
};

START_TEST(a_peer_that_ends_within_a_frame_is_reported)
{
    struct stream stream = {.seed = 1, .frames = 1, .largest = 60000, .grain = 4};
    struct peer peer;
    uint8_t header[BPS_HEADER_BYTES];
    while (stream_size(&stream, 0) < 50002) {
        stream.seed++;
    }
    open_side();
    peer_init(&peer, &side, &nothing, &stream);
    peer.on_closed = stop;
    peer_listen(&peer, "127.0.0.1:0", actual, sizeof actual);
    int fd = foreign();
    stream_header(&stream, 0, header);
    send_bytes(fd, header, stumps[_i].header);
    send_bytes(fd, stream_payload(&stream, 0), stumps[_i].payload);
    close(fd);
    run_loop(loop);
    expect_closed(&peer, BPS_ERR_IO, stumps[_i].text);
    peer_fini(&peer);
    close_side();
}
END_TEST

START_TEST(a_reset_is_reported)
{
    const struct linger reset = {.l_onoff = 1};
    struct peer peer;
    open_side();
    peer_init(&peer, &side, &nothing, &some);
    peer.on_closed = stop;
    peer_listen(&peer, "127.0.0.1:0", actual, sizeof actual);
    int fd = foreign();
    settle();
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    close(fd);
    run_loop(loop);
    expect_closed(&peer, BPS_ERR_IO, "read: Connection reset by peer");
    peer_fini(&peer);
    close_side();
}
END_TEST

START_TEST(foreign_bytes_end_only_their_channel)
{
    struct peer peer;
    open_side();
    peer_init(&peer, &side, &nothing, &some);
    peer.on_closed = stop;
    peer_listen(&peer, "127.0.0.1:0", actual, sizeof actual);
    int fd = foreign();
    send_bytes(fd, stream_payload(&others, 3), 5000);
    run_loop(loop);
    expect_closed(&peer, BPS_ERR_PROTOCOL, "a frame was not accepted");
    expect_end(fd);
    expect_end((settle(), fd = foreign(), settle(), fd)); /* this one is not accepted */
    peer_fini(&peer);
    close_side();
}
END_TEST

static uint32_t take_nothing(struct bps_sink *sink, uint32_t offset, const void *data, uint32_t bytes)
{
    (void)sink;
    (void)offset;
    (void)data;
    return bytes < 16 ? 0 : bytes - 15;
}

START_TEST(an_incomplete_last_element_ends_the_channel)
{
    struct stream stream = {.seed = 1, .frames = 1, .largest = 300, .grain = 1};
    uint8_t header[BPS_HEADER_BYTES];
    struct peer peer;
    while (stream_size(&stream, 0) < 100) {
        stream.seed++;
    }
    open_side();
    peer_init(&peer, &side, &nothing, &stream);
    peer.sink.take = take_nothing;
    peer.on_closed = stop;
    peer_listen(&peer, "127.0.0.1:0", actual, sizeof actual);
    int fd = foreign();
    stream_header(&stream, 0, header);
    send_bytes(fd, header, sizeof header);
    send_bytes(fd, stream_payload(&stream, 0), stream_size(&stream, 0));
    run_loop(loop);
    expect_closed(&peer, BPS_ERR_PROTOCOL, "a payload does not consist of whole elements");
    close(fd);
    peer_fini(&peer);
    close_side();
}
END_TEST

START_TEST(a_peer_that_never_closes_cannot_hold_a_channel)
{
    struct peer peer;
    open_side();
    peer_init(&peer, &side, &others, &nothing);
    peer.finish_when_complete = true;
    peer.on_closed = stop;
    peer_listen(&peer, "127.0.0.1:0", actual, sizeof actual);
    int fd = foreign();
    run_loop(loop);
    ck_assert_uint_eq(peer.sent, others.frames);
    expect_closed(&peer, BPS_ERR_TIMEOUT, "the peer has not closed the connection within 5 s");
    close(fd);
    peer_fini(&peer);
    close_side();
}
END_TEST

START_TEST(a_reset_ends_a_channel_that_is_finishing)
{
    const struct stream large = {.seed = 31, .frames = 2000, .largest = 256 << 10, .grain = 1};
    const struct linger reset = {.l_onoff = 1};
    struct peer peer;
    open_side();
    peer_init(&peer, &side, &large, &nothing);
    peer.on_closed = stop;
    peer_listen(&peer, "127.0.0.1:0", actual, sizeof actual);
    int fd = foreign();
    settle();
    side.ops->finish(peer.channel);
    settle();
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    close(fd);
    run_loop(loop);
    ck_assert_int_eq(peer.status, BPS_ERR_IO);
    ck_assert_ptr_nonnull(strstr(peer.text, "reset by peer"));
    peer_fini(&peer);
    close_side();
}
END_TEST

/* ---- sending only when the kernel has room ---- */

static void *read_all(void *arg)
{
    char *memory = malloc(1 << 20);
    int fd = *(int *)arg;
    while (recv(fd, memory, 1 << 20, 0) > 0) {
    }
    free(memory);
    close(fd);
    return NULL;
}

/* The descriptor of the accepted channel: the one that has our listening port and a peer. */
static int accepted_descriptor(void)
{
    int port = atoi(strrchr(actual, ':') + 1);
    for (int fd = 3; fd < 100; fd++) {
        struct sockaddr_in own, peer;
        socklen_t n = sizeof own, m = sizeof peer;
        if (getsockname(fd, (struct sockaddr *)&own, &n) == 0 && ntohs(own.sin_port) == port &&
            getpeername(fd, (struct sockaddr *)&peer, &m) == 0) {
            return fd;
        }
    }
    ck_abort_msg("no accepted socket");
}

static void expect_room(struct peer *peer)
{
    static int fd;
    int unsent = 0;
    fd = peer->nexts == 1 ? accepted_descriptor() : fd;
    ck_assert_int_eq(ioctl(fd, SIOCOUTQNSD, &unsent), 0);
    ck_assert_int_lt(unsent, 128 << 10); /* the default of notsent_lowat */
}

START_TEST(frames_are_asked_for_only_when_there_is_room)
{
    static const struct stream streams[] = {{.seed = 31, .frames = 2000, .largest = 256 << 10, .grain = 1},
                                            {.seed = 32, .frames = 60000, .largest = 1000, .grain = 1}};
    const struct stream stream = streams[_i];
    struct peer peer;
    pthread_t reader;
    uint32_t before, waiting = 0;
    open_side();
    peer_init(&peer, &side, &stream, &nothing);
    peer.on_closed = stop;
    peer.on_next = expect_room;
    peer_listen(&peer, "127.0.0.1:0", actual, sizeof actual);
    int fd = foreign();
    do {
        before = peer.handed;
        settle();
    } while (peer.handed != before || before == 0);
    ck_assert_uint_lt(peer.handed, stream.frames);
    for (uint32_t i = peer.sent; i + 1 < peer.handed; i++) {
        waiting += stream_size(&stream, i) + BPS_HEADER_BYTES;
    }
    ck_assert_uint_lt(waiting, 128 << 10);
    before = peer.nexts;
    for (int i = 0; i < 1000; i++) {
        side.ops->kick(peer.channel);
    }
    settle();
    ck_assert_uint_eq(peer.nexts, before);
    side.ops->finish(peer.channel);
    pthread_create(&reader, NULL, read_all, &fd);
    run_loop(loop);
    pthread_join(reader, NULL);
    ck_assert_uint_eq(peer.sent, stream.frames);
    expect_closed(&peer, BPS_OK, "closed");
    peer_fini(&peer);
    close_side();
}
END_TEST

START_TEST(many_kicks_cost_one_question)
{
    struct peer peer;
    open_side();
    peer_init(&peer, &side, &nothing, &nothing);
    peer_listen(&peer, "127.0.0.1:0", actual, sizeof actual);
    int fd = foreign();
    settle();
    ck_assert_ptr_nonnull(peer.channel);
    uint32_t before = peer.nexts;
    for (int i = 0; i < 100000; i++) {
        side.ops->kick(peer.channel);
    }
    settle();
    ck_assert_uint_eq(peer.nexts, before + 1);
    close(fd);
    peer_fini(&peer);
    close_side();
}
END_TEST

/* ---- connecting and listening ---- */

START_TEST(refused_connections_are_told_later)
{
    struct peer listener, peer;
    char text[256];
    open_side();
    peer_init(&listener, &side, &nothing, &nothing);
    peer_listen(&listener, "127.0.0.1:0", actual, sizeof actual);
    close_side(); /* now nobody listens there */
    open_side();
    peer_init(&peer, &side, &some, &nothing);
    peer.on_closed = stop;
    peer_dial(&peer, actual);
    run_loop(loop);
    snprintf(text, sizeof text, "connect %s: Connection refused", actual);
    expect_closed(&peer, BPS_ERR_IO, text);
    ck_assert(!peer.connected);
    peer_fini(&listener);
    peer_fini(&peer);
    close_side();
}
END_TEST

START_TEST(unknown_names_are_told_later)
{
    struct peer peer;
    open_side();
    peer_init(&peer, &side, &some, &nothing);
    peer.on_closed = stop;
    /* No label of a name has more than 63 bytes, so that nobody is asked. */
    peer_dial(&peer, "a123456789a123456789a123456789a123456789a123456789a123456789a123456789:80");
    run_loop(loop);
    ck_assert_uint_eq(peer.closed, 1);
    ck_assert_int_eq(strncmp(peer.text, "resolve a123456789", 18), 0);
    peer_fini(&peer);
    close_side();
}
END_TEST

static const char *const malformed[] = {"",           "nonsense", "host:",   "host:x", "1.2.3.4:65536",
                                        "1.2.3.4:-1", "[::1:80",  "::1]:80", "[::1]",  "1.2.3.4:080000"};

START_TEST(malformed_addresses_are_refused)
{
    struct peer peer;
    struct bps_report report = {""};
    char text[256];
    open_side();
    peer_init(&peer, &side, &some, &nothing);
    snprintf(text, sizeof text, "'%s' is not an address; expected host:port or [IPv6]:port, port 0 to 65535",
             malformed[_i]);
    ck_assert_int_eq(
        side.ops->dial(side.instance->self, malformed[_i], 0, NULL, &peer_events, &peer, &peer.channel, &report),
        BPS_ERR_INVALID);
    ck_assert_str_eq(report.text, text);
    ck_assert_int_eq(
        side.ops->listen(side.instance->self, malformed[_i], peer_accept, &peer, actual, sizeof actual, &report),
        BPS_ERR_INVALID);
    ck_assert_str_eq(report.text, text);
    ck_assert_int_eq(
        side.ops->dial(side.instance->self, "127.0.0.1:0", 0, NULL, &peer_events, &peer, &peer.channel, &report),
        BPS_ERR_INVALID);
    ck_assert_ptr_null(peer.channel);
    peer_fini(&peer);
    close_side();
}
END_TEST

START_TEST(a_port_in_use_is_reported)
{
    struct peer peer;
    struct bps_report report = {""};
    char text[300], again[128];
    open_side();
    peer_init(&peer, &side, &some, &nothing);
    peer_listen(&peer, "127.0.0.1:0", actual, sizeof actual);
    ck_assert_int_eq(side.ops->listen(side.instance->self, actual, peer_accept, &peer, again, sizeof again, &report),
                     BPS_ERR_BUSY);
    snprintf(text, sizeof text,
             "listen %s: Address already in use; another process has this port: choose a "
             "different one, or 0 for any free one",
             actual);
    ck_assert_str_eq(report.text, text);
    peer_fini(&peer);
    close_side();
}
END_TEST

/* A worker that dials before the scheduler listens may leave by the scheduler's port, and be connected to itself. */
START_TEST(the_port_of_a_connection_can_be_listened_on)
{
    struct peer dialler, acceptor;
    struct sockaddr_in left;
    socklen_t length = sizeof left;
    char address[128], again[128];
    open_side();
    peer_init(&dialler, &side, &nothing, &nothing);
    peer_init(&acceptor, &side, &nothing, &nothing);
    int fd = listener(address, sizeof address);
    peer_dial(&dialler, address);
    int accepted = accept(fd, (struct sockaddr *)&left, &length);
    ck_assert_int_ge(accepted, 0);
    snprintf(address, sizeof address, "127.0.0.1:%u", ntohs(left.sin_port));
    peer_listen(&acceptor, address, again, sizeof again);
    ck_assert_str_eq(again, address);
    close(accepted);
    close(fd);
    peer_fini(&acceptor);
    peer_fini(&dialler);
    close_side();
}
END_TEST

static const struct {
    const char *listen, *host;
} own[] = {{"127.0.0.1:0", "127.0.0.1"}, {"[::1]:0", "[::1]"}, {":0", "127.0.0.1"}};

START_TEST(a_channel_knows_its_own_host)
{
    struct peer dialler, acceptor;
    char host[64];
    open_side();
    peer_init(&dialler, &side, &some, &nothing);
    peer_init(&acceptor, &side, &nothing, &some);
    acceptor.on_received = stop;
    peer_listen(&acceptor, own[_i].listen, actual, sizeof actual);
    peer_dial(&dialler, actual);
    run_loop(loop);
    side.ops->local_host(dialler.channel, host, sizeof host);
    ck_assert_str_eq(host, own[_i].host);
    side.ops->local_host(acceptor.channel, host, sizeof host);
    ck_assert_str_eq(host, own[_i].host);
    peer_fini(&dialler);
    peer_fini(&acceptor);
    close_side();
}
END_TEST

START_TEST(a_wildcard_announces_an_address_to_dial)
{
    struct peer dialler, acceptor;
    open_side();
    peer_init(&dialler, &side, &some, &nothing);
    peer_init(&acceptor, &side, &nothing, &some);
    acceptor.on_received = stop;
    peer_listen(&acceptor, _i == 0 ? "0.0.0.0:0" : "[::]:0", actual, sizeof actual);
    ck_assert_ptr_null(strstr(actual, "0.0.0.0"));
    ck_assert_ptr_null(strstr(actual, "[::]"));
    peer_dial(&dialler, actual);
    run_loop(loop);
    peer_fini(&dialler);
    peer_fini(&acceptor);
    close_side();
}
END_TEST

START_TEST(a_configured_host_is_told_to_others)
{
    static const char *const options[] = {"host=127.0.0.2", NULL};
    struct peer dialler, acceptor;
    char host[64];
    loop = bps_loop_new();
    side_open(&side, loop, options);
    peer_init(&dialler, &side, &some, &nothing);
    peer_init(&acceptor, &side, &nothing, &some);
    acceptor.on_received = stop;
    peer_listen(&acceptor, "127.0.0.1:0", actual, sizeof actual);
    peer_dial(&dialler, actual);
    run_loop(loop);
    side.ops->local_host(dialler.channel, host, sizeof host);
    ck_assert_str_eq(host, "127.0.0.2");
    peer_fini(&dialler);
    peer_fini(&acceptor);
    close_side();
}
END_TEST

/* Ways to say the same interface. */
static const char *const loopback[] = {"interface=lo", "interface=127.0.0.1", "interface=127.0.0.0/8",
                                       "interface=127.0.0.77/25", "interface=127.0.0.1/32"};

START_TEST(an_interface_is_a_name_an_address_or_a_subnet)
{
    const char *const options[] = {loopback[_i], NULL};
    struct peer peer;
    loop = bps_loop_new();
    side_open(&side, loop, options);
    peer_init(&peer, &side, &nothing, &nothing);
    peer_listen(&peer, ":0", actual, sizeof actual);
    ck_assert_int_eq(strncmp(actual, "127.0.0.1:", 10), 0);
    peer_fini(&peer);
    close_side();
}
END_TEST

/* The same interface twice serves for two. */
static const char *const both[] = {"interface=lo 127.0.0.1", NULL};

/* A port where nobody listens. */
static unsigned closed_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&address, &length), 0);
    close(fd);
    return ntohs(address.sin_port);
}

START_TEST(every_interface_is_listened_on)
{
    struct peer dialler, acceptor;
    char host[64], text[300];
    loop = bps_loop_new();
    side_open(&side, loop, both);
    peer_init(&dialler, &side, &some, &nothing);
    peer_init(&acceptor, &side, &nothing, &some);
    acceptor.on_received = stop;
    peer_listen(&acceptor, "127.0.0.1,127.0.0.1:0", actual, sizeof actual);
    ck_assert_ptr_nonnull(strchr(actual, ','));
    dialler.lane = (uint32_t)_i;
    snprintf(text, sizeof text, _i == 0 ? "%s,127.0.0.1:%u" : "127.0.0.1:%2$u,%1$s", strchr(actual, ',') + 1,
             closed_port());
    peer_dial(&dialler, text);
    run_loop(loop);
    side.ops->local_host(dialler.channel, host, sizeof host);
    ck_assert_str_eq(host, "127.0.0.1,127.0.0.1");
    peer_fini(&dialler);
    peer_fini(&acceptor);
    close_side();
}
END_TEST

/* The core then tries another port. */
START_TEST(where_one_interface_cannot_be_listened_on_none_is)
{
    struct peer peer, other;
    struct bps_report report = {""};
    char text[300], again[128];
    loop = bps_loop_new();
    side_open(&side, loop, both);
    peer_init(&peer, &side, &nothing, &nothing);
    peer_init(&other, &side, &nothing, &nothing);
    snprintf(text, sizeof text, "127.0.0.1,127.0.0.1:%u", closed_port());
    ck_assert_int_eq(side.ops->listen(side.instance->self, text, peer_accept, &peer, again, sizeof again, &report),
                     BPS_ERR_BUSY);
    snprintf(again, sizeof again, "127.0.0.1%s", strrchr(text, ':'));
    peer_listen(&peer, again, actual, sizeof actual);
    ck_assert_str_eq(actual, again);
    ck_assert_int_eq(
        side.ops->listen(side.instance->self, "127.0.0.1,127.0.0.1:0", peer_accept, &other, again, 20, &report),
        BPS_ERR_CONF);
    ck_assert_str_eq(report.text, "interface: the addresses of the interfaces do not fit in 20 bytes; give fewer");
    peer_fini(&peer);
    peer_fini(&other);
    close_side();
}
END_TEST

#define NO_INTERFACE                                                                                                   \
    "': there is no such network interface; expected the name of one, its address, or a subnet such as 10.0.0.0/24; "  \
    "this host has lo 127.0.0.1"
#define NO_HOST "\": expected a name or an address alone, an IPv6 one without brackets; cluster.ports sets the ports"

static const struct {
    const char *option, *error;
} refused[] = {
    {"interface=nix0", "interface 'nix0" NO_INTERFACE},
    {"interface=203.0.113.7", "interface '203.0.113.7" NO_INTERFACE},
    {"interface=203.0.113.0/24", "interface '203.0.113.0/24" NO_INTERFACE},
    {"interface=127.0.0.2/31", "interface '127.0.0.2/31" NO_INTERFACE},
    {"interface=127.0.0.0/33", "interface '127.0.0.0/33" NO_INTERFACE},
    {"interface=127.0.0.1/", "interface '127.0.0.1/" NO_INTERFACE},
    {"interface=2001:db8::/32", "interface '2001:db8::/32" NO_INTERFACE},
    {"interface=lo nix0", "interface 'nix0" NO_INTERFACE},
    {"interface=lo,lo", "interface 'lo,lo': there is no such network interface (spaces separate several); expected"},
    {"host=10.0.0.1:7000", "host = \"10.0.0.1:7000" NO_HOST},
    {"host=[::1]", "host = \"[::1]" NO_HOST},
};

START_TEST(an_option_that_means_nothing_here_is_refused)
{
    const char *const options[] = {refused[_i].option, NULL};
    struct bps_report report = {""};
    loop = bps_loop_new();
    ck_assert_int_eq(side_try(&side, loop, options, &report), BPS_ERR_CONF);
    ck_assert_msg(strstr(report.text, refused[_i].error) != NULL, "%s", report.text);
    bps_loop_free(loop);
}
END_TEST

/* Sends standard error to a file until the end of the process. */
static FILE *capture(void)
{
    FILE *file = tmpfile();
    ck_assert_ptr_nonnull(file);
    dup2(fileno(file), STDERR_FILENO);
    return file;
}

static int count_lines(FILE *file, const char *with)
{
    char line[2048];
    int n = 0;
    rewind(file);
    while (fgets(line, sizeof line, file) != NULL) {
        n += strstr(line, with) != NULL;
    }
    return n;
}

START_TEST(an_instance_describes_itself)
{
    static const char *const options[] = {"congestion=nonesuch", "streams=2", "notsent_lowat=3 MiB", "interface=lo",
                                          NULL};
    struct bps_transport_attr attr;
    char text[256];
    FILE *log = capture();
    open_side();
    side.ops->describe(side.instance->self, text, sizeof text);
    ck_assert_str_eq(strchr(text, ','), ", 1 stream, not-sent low water 128 KiB, interface any");
    side.ops->query(side.instance->self, &attr);
    ck_assert_uint_eq(attr.lanes, 1);
    close_side();
    loop = bps_loop_new();
    side_open(&side, loop, options);
    side.ops->describe(side.instance->self, text, sizeof text);
    ck_assert_str_eq(strchr(text, ','), ", 2 streams, not-sent low water 3 MiB, interface lo");
    side.ops->query(side.instance->self, &attr);
    ck_assert_uint_eq(attr.lanes, 2);
    close_side();
    loop = bps_loop_new();
    side_open(&side, loop, options);
    ck_assert_int_eq(count_lines(log, "transports.net (tcp): congestion control 'nonesuch' was refused"), 1);
    close_side();
    fclose(log);
}
END_TEST

/* Without the rights of root, with which any congestion control may be used that the kernel has. */
START_TEST(nobody_is_warned_of_what_nobody_has_chosen)
{
    char text[256];
    FILE *log = capture();
    ck_assert_int_eq(geteuid() == 0 ? setuid(65534) : 0, 0);
    open_side();
    ck_assert_int_eq(count_lines(log, "congestion"), 0);
    side.ops->describe(side.instance->self, text, sizeof text);
    ck_assert_ptr_null(strstr(text, "auto"));
    close_side();
    fclose(log);
}
END_TEST

/* ---- no descriptors left ---- */

#define GUESTS 12

static struct peer guests[GUESTS];
static int guest_count;

static const struct bps_channel_events *accept_guest(void *arg, struct bps_channel *channel, const char *from,
                                                     void **user, const struct bps_channel_key **key)
{
    const struct bps_channel_events *events = peer_accept(&guests[guest_count++], channel, from, user, key);
    (void)arg;
    if (guest_count == GUESTS) {
        bps_loop_stop(loop);
    }
    return events;
}

static void raise_limit(void *arg)
{
    const struct rlimit *limit = arg;
    ck_assert_int_lt(guest_count, GUESTS);
    setrlimit(RLIMIT_NOFILE, limit);
}

START_TEST(without_descriptors_accepting_pauses)
{
    struct rlimit normal, tight;
    struct bps_report report = {""};
    int fds[GUESTS];
    FILE *log = capture();
    open_side();
    for (int i = 0; i < GUESTS; i++) {
        peer_init(&guests[i], &side, &nothing, &nothing);
    }
    ck_assert_int_eq(
        side.ops->listen(side.instance->self, "127.0.0.1:0", accept_guest, NULL, actual, sizeof actual, &report),
        BPS_OK);
    for (int i = 0; i < GUESTS; i++) {
        fds[i] = foreign();
    }
    getrlimit(RLIMIT_NOFILE, &normal);
    tight = normal;
    tight.rlim_cur = (rlim_t)fds[GUESTS - 1] + 5;
    setrlimit(RLIMIT_NOFILE, &tight);
    bps_loop_timer(loop, 350000000, 0, raise_limit, &normal);
    run_loop(loop);
    ck_assert_int_eq(count_lines(log, "accept: Too many open files"), 1);
    for (int i = 0; i < GUESTS; i++) {
        peer_fini(&guests[i]);
        close(fds[i]);
    }
    close_side();
    fclose(log);
}
END_TEST

static void add_tests(TCase *ends_case)
{
    tcase_add_loop_test(ends_case, channels_can_be_dropped_in_every_callback, 0, 4);
    tcase_add_loop_test(ends_case, channels_can_be_finished_in_every_callback, 0, 4);
    tcase_add_test(ends_case, channels_can_be_dropped_before_anything_happens);
    tcase_add_loop_test(ends_case, a_peer_that_ends_within_a_frame_is_reported, 0, sizeof stumps / sizeof *stumps);
    tcase_add_test(ends_case, a_reset_is_reported);
    tcase_add_test(ends_case, foreign_bytes_end_only_their_channel);
    tcase_add_test(ends_case, an_incomplete_last_element_ends_the_channel);
    tcase_add_test(ends_case, a_peer_that_never_closes_cannot_hold_a_channel);
    tcase_add_test(ends_case, a_reset_ends_a_channel_that_is_finishing);
    tcase_add_loop_test(ends_case, frames_are_asked_for_only_when_there_is_room, 0, 2);
    tcase_add_test(ends_case, many_kicks_cost_one_question);
    tcase_add_test(ends_case, refused_connections_are_told_later);
    tcase_add_test(ends_case, unknown_names_are_told_later);
    tcase_add_loop_test(ends_case, malformed_addresses_are_refused, 0, sizeof malformed / sizeof *malformed);
    tcase_add_test(ends_case, a_port_in_use_is_reported);
    tcase_add_test(ends_case, the_port_of_a_connection_can_be_listened_on);
    tcase_add_loop_test(ends_case, a_channel_knows_its_own_host, 0, sizeof own / sizeof *own);
    tcase_add_loop_test(ends_case, a_wildcard_announces_an_address_to_dial, 0, 2);
    tcase_add_test(ends_case, a_configured_host_is_told_to_others);
    tcase_add_loop_test(ends_case, an_interface_is_a_name_an_address_or_a_subnet, 0,
                        sizeof loopback / sizeof *loopback);
    tcase_add_loop_test(ends_case, every_interface_is_listened_on, 0, 2);
    tcase_add_test(ends_case, where_one_interface_cannot_be_listened_on_none_is);
    tcase_add_loop_test(ends_case, an_option_that_means_nothing_here_is_refused, 0, sizeof refused / sizeof *refused);
    tcase_add_test(ends_case, an_instance_describes_itself);
    tcase_add_test(ends_case, nobody_is_warned_of_what_nobody_has_chosen);
    tcase_add_test(ends_case, without_descriptors_accepting_pauses);
}

int main(void)
{
    Suite *suite = suite_create("tcp ends");
    TCase *ends_case = tcase_create("ends");
    tcase_set_timeout(ends_case, 300);
    add_tests(ends_case);
    suite_add_tcase(suite, ends_case);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
