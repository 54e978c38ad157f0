/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_link.c - the handshake and messages between two ends over real sockets, and strangers at the door:
 * every stranger is a plain socket that writes its own bytes.
 */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <openssl/hmac.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <byteps/byteps.h>

#include "checks.h"
#include "base/clock.h"
#include "plugin/instance.h"
#include "wire/dialler.h"
#include "wire/lobby.h"

#define MEMBERS  20u
#define MANY     300u
#define NUMBERED 7u /* the tensor of messages whose number is their text */
#define ROOM     (MEMBERS + BPS_LOBBY_STRANGERS)

static struct bps_loop *loop;
static struct bps_instance *net;
static const struct bps_transport_ops *real_ops; /* of that */
static struct bps_transport_ops noting;
static struct bps_lobby lobby;
static struct bps_link dialler;
static struct bps_dialler again;
static char address[128];
static struct bps_conf job; /* whose secret there is */

static struct {
    struct bps_claim claim;  /* of the dialler */
    uint8_t key, other;      /* the first byte of the acceptor's, and of the dialler's */
    const char *refusal;     /* what the acceptor answers; NULL: welcome */
    uint32_t rude;           /* how many more it closes without a word */
    bool waits;              /* it lets nobody in yet */
    struct bps_guest *guest; /* let in */
    uint32_t welcomes, messages, closes, refused;
    char text[BPS_TEXT_LIMIT + 1]; /* the last message or reason */
    char told[BPS_TEXT_LIMIT + 1]; /* why the dialler's link has ended */
    size_t bytes;
    bps_status status;
    struct bps_channel_key keys[2]; /* that the transport was handed: as it dialled, and as it accepted */
    uint32_t keyed, keyless;        /* how often, and how often it was none */
    bool no_hmac;                   /* there is no memory for one, */
    bool forgets;                   /* or none any more when the acceptor lets the dialler in */
} seen;

/* ---- a transport that changes frames ---- */

static const struct bps_channel_events *real_events; /* of links: one table for all */
static struct bps_channel_events changing;

static struct {
    bool (*change)(const void *user, const uint8_t *header); /* whether this one arrives changed; NULL: none does */
    uint32_t byte, bit;                                      /* which of its header */
    uint32_t changed;
    uint32_t arrived; /* of the numbered messages, in their order */
} spoiler;

/* What travels encrypted: of each direction frames, and ACK. */
static struct {
    uint64_t digest[2][2][4 * MANY]; /* by number, of all that travels of it; 0: none has */
    uint32_t frames, again;
} sealed;

static void note_sealed(const void *user, const struct bps_frame *frame)
{
    static uint8_t all[BPS_HEADER_BYTES + 1000];
    const struct bps_header *header = (const void *)frame->header;
    uint64_t number = header->checksum & ~(UINT64_C(1) << 63), digest[4];
    bool ack = header->checksum >> 63 != 0;
    ck_assert_int_eq(ack, header->type == BPS_FRAME_ACK);
    ck_assert_uint_ge(frame->bytes, BPS_CIPHER_TAG);
    if (frame->bytes > sizeof all - BPS_HEADER_BYTES || number >= 4 * MANY) {
        return;
    }
    memcpy(all, frame->header, BPS_HEADER_BYTES);
    memcpy(all + BPS_HEADER_BYTES, frame->payload, frame->bytes);
    ck_assert_int_eq(EVP_Digest(all, BPS_HEADER_BYTES + frame->bytes, (void *)digest, NULL, EVP_sha256(), NULL), 1);
    uint64_t *known = &sealed.digest[user == &dialler][ack][number];
    ck_assert(*known == 0 || (*known == *digest && !ack)); /* a number is of one frame, which is always the same */
    sealed.again += *known != 0;
    sealed.frames += *known == 0;
    *known = *digest;
}

static bps_status next_spoilt(void *user, struct bps_frame *out)
{
    static uint8_t headers[64][BPS_HEADER_BYTES]; /* more than a transport has at once */
    bps_status status = real_events->next(user, out);
    if (status == BPS_OK && job.cluster.encrypt && out->header[4] > BPS_FRAME_WELCOME) {
        note_sealed(user, out);
    }
    if (status == BPS_OK && spoiler.change != NULL && out->header[4] > BPS_FRAME_WELCOME) {
        if (spoiler.change(user, out->header)) {
            uint8_t *header = headers[spoiler.changed++ % 64];
            memcpy(header, out->header, BPS_HEADER_BYTES);
            header[spoiler.byte] ^= (uint8_t)(1u << spoiler.bit);
            out->header = header;
        }
    }
    return status;
}

static const struct bps_channel_events *change(const struct bps_channel_events *events)
{
    real_events = events;
    changing = *events;
    changing.next = next_spoilt;
    return &changing;
}

/* ---- what the transport is handed ---- */

unsigned char *HMAC(const EVP_MD *digest, const void *key, int key_bytes, const unsigned char *data, size_t bytes,
                    unsigned char *out, unsigned *out_bytes)
{
    __typeof__(&HMAC) real;
    *(void **)&real = dlsym(RTLD_NEXT, "HMAC");
    return seen.no_hmac ? NULL : real(digest, key, key_bytes, data, bytes, out, out_bytes);
}

static void note_key(uint32_t end, const struct bps_channel_key *key)
{
    seen.keyed += key != NULL;
    seen.keyless += key == NULL;
    if (key != NULL) {
        seen.keys[end] = *key;
    }
}

static bps_status note_dial(void *instance, const char *to, uint32_t lane, const struct bps_channel_key *key,
                            const struct bps_channel_events *events, void *user, struct bps_channel **out,
                            struct bps_report *report)
{
    note_key(0, key);
    return real_ops->dial(instance, to, lane, key, change(events), user, out, report);
}

static const struct bps_channel_events *note_accept(void *arg, struct bps_channel *channel, const char *peer,
                                                    void **user, const struct bps_channel_key **key)
{
    const struct bps_channel_events *events = bps_lobby_accept(arg, channel, peer, user, key);
    if (events != NULL) {
        note_key(1, *key);
        events = change(events);
    }
    return events;
}

/* ---- the acceptor ---- */

static bps_status on_hello(void *owner, struct bps_link *link, const struct bps_claim *claim, struct bps_report *report)
{
    const uint8_t key[BPS_KEY_BYTES] = {seen.key};
    ck_assert_mem_eq(claim, &seen.claim, sizeof *claim);
    if (seen.rude > 0) {
        seen.rude--;
        return BPS_ERR_PROTOCOL;
    }
    if (bps_link_check(link, key, report) != BPS_OK) {
        return BPS_ERR_REFUSED;
    }
    if (seen.refusal != NULL) {
        BPS_REPORT(report, "%s", seen.refusal);
        return BPS_ERR_REFUSED;
    }
    seen.no_hmac = seen.forgets;
    if (seen.waits) {
        bps_lobby_keep(owner);
    } else {
        bps_lobby_admit(owner);
        seen.guest = owner;
    }
    bps_link_welcome(link);
    bps_link_send_text(link, BPS_FRAME_WAITING, "first words");
    return BPS_OK;
}

static bps_status on_message(void *owner, struct bps_link *link, const struct bps_header *header,
                             struct bps_reader *payload)
{
    (void)owner;
    (void)link;
    seen.messages++;
    seen.bytes = header->length;
    bps_get_text(payload, seen.text, sizeof seen.text);
    if (header->tensor == NUMBERED) {
        ck_assert_uint_eq((uint32_t)atoi(seen.text), spoiler.arrived++);
    }
    bps_loop_stop(loop);
    return header->type == BPS_FRAME_LOST ? BPS_ERR_PROTOCOL : BPS_OK;
}

static void on_guest_closed(void *owner, struct bps_link *link, bps_status status, const char *text)
{
    (void)link;
    seen.closes++;
    seen.status = status;
    snprintf(seen.text, sizeof seen.text, "%s", text);
    if (seen.guest == owner) {
        seen.guest = NULL;
    }
    bps_guest_free(owner);
    bps_loop_stop(loop);
}

static const struct bps_link_handler acceptor_handler = {
    .hello = on_hello, .message = on_message, .closed = on_guest_closed};

/* ---- the dialler ---- */

static bps_status introduce(void *owner, struct bps_link *link, struct bps_claim *claim, uint8_t *key)
{
    (void)owner;
    (void)link;
    *claim = seen.claim;
    memset(key, 0, BPS_KEY_BYTES);
    key[0] = seen.other;
    return BPS_OK;
}

static void welcome(void *owner, struct bps_link *link)
{
    (void)owner;
    (void)link;
    seen.welcomes++;
}

static void on_dialler_closed(void *owner, struct bps_link *link, bps_status status, const char *text)
{
    (void)owner;
    (void)link;
    seen.refused += status == BPS_ERR_REFUSED;
    seen.status = status;
    snprintf(seen.text, sizeof seen.text, "%s", text);
    snprintf(seen.told, sizeof seen.told, "%s", text);
    bps_loop_stop(loop);
}

static const struct bps_link_handler dialler_handler = {
    .introduce = introduce, .welcome = welcome, .message = on_message, .closed = on_dialler_closed};

static void on_again_closed(void *owner, struct bps_link *link, bps_status status, const char *text)
{
    if (!bps_dialler_again(&again, status)) {
        on_dialler_closed(owner, link, status, text);
    }
}

static const struct bps_link_handler again_handler = {
    .introduce = introduce, .welcome = welcome, .message = on_message, .closed = on_again_closed};

/* ---- the stage ---- */

static void on_deadline(void *arg)
{
    (void)arg;
    ck_abort_msg("nothing happened within 60 s");
}

static void check_by(uint32_t kind)
{
    job.cluster.encrypt = kind == BPS_CHECKSUM_ENCRYPT;
    job.cluster.checksum = kind % BPS_CHECKSUM_ENCRYPT;
}

static void setup(void)
{
    struct bps_report report = {""};
    memset(&seen, 0, sizeof seen);
    memset(&spoiler, 0, sizeof spoiler);
    memset(&sealed, 0, sizeof sealed);
    seen.claim = (struct bps_claim){.purpose = BPS_LINK_DATA, .epoch = 3, .rank = 2, .lane = 1};
    loop = bps_loop_new();
    ck_assert_msg(bps_instance_open(BPS_KIND_TRANSPORT, "tcp", "net", NULL, "transports.net", loop, &net, &report) ==
                      BPS_OK,
                  "%s", report.text);
    real_ops = net->ops;
    noting = *real_ops;
    noting.dial = note_dial;
    net->ops = &noting;
    net->conf = &job;
    job.has_secret = false;
    check_by(BPS_CHECKSUM_NONE);
    job.cluster.peer_timeout = BPS_S;
    bps_lobby_init(&lobby, &acceptor_handler, net, NULL, MEMBERS);
    ck_assert_int_eq(noting.listen(net->self, "127.0.0.1:0", note_accept, &lobby, address, sizeof address, &report),
                     BPS_OK);
    ck_assert_ptr_nonnull(bps_loop_timer(loop, 60 * BPS_S, 0, on_deadline, NULL));
}

static void teardown(void)
{
    bps_dialler_stop(&again);
    bps_link_drop(&dialler);
    if (seen.guest != NULL) {
        bps_link_drop(&seen.guest->link);
        bps_guest_free(seen.guest);
    }
    bps_lobby_fini(&lobby);
    bps_instance_close(net);
    bps_loop_free(loop);
}

static void dial(void)
{
    struct bps_report report = {""};
    ck_assert_int_eq(bps_link_dial(&dialler, &dialler_handler, NULL, net, address, 0, &report), BPS_OK);
    bps_loop_run(loop);
}

/* ---- tests ---- */

/* With any checksums, or none, or encrypted. */
START_TEST(test_conversation)
{
    check_by((uint32_t)_i);
    dial();
    ck_assert_uint_eq(seen.welcomes, 1);
    ck_assert_str_eq(seen.text, "first words");
    static const size_t sizes[] = {0, 1, 63, 64, 65, 100000, BPS_MESSAGE_LIMIT};
    uint8_t *payload = calloc(1, BPS_MESSAGE_LIMIT + 1);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const struct bps_header header = {.type = BPS_FRAME_DECLARE};
        ck_assert_int_eq(bps_link_send(&dialler, &header, payload, sizes[i]), BPS_OK);
        bps_loop_run(loop);
        ck_assert_uint_eq(seen.bytes, sizes[i]);
    }
    const struct bps_header header = {.type = BPS_FRAME_DECLARE};
    ck_assert_int_eq(bps_link_send(&dialler, &header, payload, BPS_MESSAGE_LIMIT + 1), BPS_ERR_INVALID);
    free(payload);
    ck_assert_uint_eq(seen.messages, 8);
}
END_TEST

/* A message that its receiver calls malformed ends the link on both sides. */
START_TEST(test_malformed_message)
{
    dial();
    ck_assert_int_eq(bps_link_send_text(&dialler, BPS_FRAME_LOST, _i == 0 ? "" : "text"), BPS_OK);
    bps_loop_run(loop);
    while (dialler.channel != NULL) {
        bps_loop_run(loop);
    }
    ck_assert_uint_eq(seen.closes, 1);
}
END_TEST

START_TEST(test_refusal)
{
    seen.refusal = "job 'a' is not job 'b'";
    dial();
    while (seen.closes == 0 || seen.refused == 0) {
        bps_loop_run(loop);
    }
    ck_assert_uint_eq(seen.welcomes, 0);
    ck_assert_ptr_null(seen.guest);
}
END_TEST

/* Both ends know a key, but not the same one: whoever dials is told so, and nothing else. */
START_TEST(test_another_key)
{
    seen.other = 1;
    seen.refusal = "something about the job";
    dial();
    while (seen.closes == 0 || seen.refused == 0) {
        bps_loop_run(loop);
    }
    ck_assert_uint_eq(seen.welcomes, 0);
    ck_assert_ptr_null(seen.guest);
    ck_assert_ptr_null(strstr(seen.text, "about the job"));
}
END_TEST

#define CHALLENGE_BYTES 256u

/* A CHALLENGE of a version whose headers have this size: numbers are little endian. */
static void put_challenge(uint8_t to[CHALLENGE_BYTES], uint8_t version, uint8_t header_bytes)
{
    memset(to, 0, CHALLENGE_BYTES);
    to[0] = (uint8_t)(CHALLENGE_BYTES - header_bytes);
    to[4] = BPS_FRAME_CHALLENGE;
    to[8] = version;
    memcpy(to + 16, "BytePS\r\n", 8);
    memcpy(to + 24, "9.8.7\n", 6);
}

/* An acceptor that welcomes everybody, without a proof of its own. */
static void *impostor(void *arg)
{
    int listener = *(const int *)arg, fd = accept(listener, NULL, NULL);
    uint8_t bytes[512];
    put_challenge(bytes, BPS_WIRE_VERSION, BPS_HEADER_BYTES);
    ck_assert_int_gt(send(fd, bytes, CHALLENGE_BYTES, MSG_NOSIGNAL), 0);
    ck_assert_int_gt(recv(fd, bytes, sizeof bytes, 0), 0);
    struct bps_header header = {.type = BPS_FRAME_WELCOME, .length = BPS_PROOF_BYTES};
    memset(bytes, 0, sizeof bytes);
    bps_header_encode(&header, bytes);
    ck_assert_int_gt(send(fd, bytes, BPS_HEADER_BYTES + header.length, MSG_NOSIGNAL), 0);
    while (recv(fd, bytes, sizeof bytes, 0) > 0) {
    }
    close(fd);
    return NULL;
}

/* A listener at which the dialler is going to arrive. */
static int listen_raw(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t n = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ck_assert_int_eq(bind(listener, (struct sockaddr *)&at, sizeof at), 0);
    ck_assert_int_eq(listen(listener, 1), 0);
    ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&at, &n), 0);
    snprintf(address, sizeof address, "127.0.0.1:%u", ntohs(at.sin_port));
    return listener;
}

START_TEST(test_impostor)
{
    int listener = listen_raw();
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, impostor, &listener), 0);
    dial();
    while (seen.refused == 0) {
        bps_loop_run(loop);
    }
    ck_assert_uint_eq(seen.welcomes, 0);
    ck_assert_str_eq(seen.text, "it failed to authenticate: the secret of the job differs");
    pthread_join(thread, NULL);
    close(listener);
}
END_TEST

/* An acceptor of another version hears nothing, whatever its headers are. */
static void *other_version(void *arg)
{
    const uint8_t *challenge = arg;
    int listener = challenge[CHALLENGE_BYTES], fd = accept(listener, NULL, NULL);
    uint8_t byte;
    ck_assert_int_eq(send(fd, challenge, CHALLENGE_BYTES, MSG_NOSIGNAL), CHALLENGE_BYTES);
    ck_assert_int_le(recv(fd, &byte, 1, 0), 0);
    close(fd);
    close(listener);
    return NULL;
}

/* Whoever dials hears which versions differ. */
START_TEST(test_versions)
{
    static const uint8_t sizes[] = {64, 80, 88, 96, 97, 112, 128, 255};
    uint8_t challenge[CHALLENGE_BYTES + 1];
    char words[100];
    pthread_t thread;
    put_challenge(challenge, BPS_WIRE_VERSION + 1, sizes[_i]);
    memset(challenge + 56, 0xee, CHALLENGE_BYTES - 56); /* what nobody knows yet */
    challenge[CHALLENGE_BYTES] = (uint8_t)listen_raw();
    ck_assert_int_eq(pthread_create(&thread, NULL, other_version, challenge), 0);
    dial();
    pthread_join(thread, NULL);
    ck_assert_int_eq(seen.status, BPS_ERR_REFUSED);
    snprintf(words, sizeof words, " uses wire version %u, byteps 9.8.7? uses %u; install the same version",
             BPS_WIRE_VERSION, BPS_WIRE_VERSION + 1);
    ck_assert_msg(strstr(seen.text, words) != NULL, "%s", seen.text);
}
END_TEST

START_TEST(test_finish_delivers)
{
    dial();
    bps_link_send_text(&dialler, BPS_FRAME_LEAVE, "last words");
    bps_link_finish(&dialler);
    while (seen.closes == 0) {
        bps_loop_run(loop);
        if (seen.messages == 2) {
            ck_assert(strcmp(seen.text, "last words") == 0 || seen.closes == 1);
        }
    }
    ck_assert_uint_eq(seen.messages, 2);
}
END_TEST

/* ---- strangers ---- */

static int connect_raw(void)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(strrchr(address, ':') + 1))};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

/* Reads a CHALLENGE, and leaves. */
struct read {
    int fd;
    uint8_t *bytes;
};

static void *read_challenge(void *arg)
{
    const struct read *read = arg;
    ck_assert_int_eq(recv(read->fd, read->bytes, CHALLENGE_BYTES, MSG_WAITALL), CHALLENGE_BYTES);
    close(read->fd);
    return NULL;
}

/* What all later versions have to understand of a CHALLENGE. */
START_TEST(test_challenge)
{
    uint8_t bytes[CHALLENGE_BYTES], known[CHALLENGE_BYTES];
    pthread_t thread;
    int fd = connect_raw();
    struct read read = {fd, bytes};
    ck_assert_int_eq(pthread_create(&thread, NULL, read_challenge, &read), 0);
    bps_loop_run(loop);
    pthread_join(thread, NULL);
    put_challenge(known, BPS_WIRE_VERSION, BPS_HEADER_BYTES);
    snprintf((char *)known + 24, 32, "%s", bps_version());
    memcpy(known + BPS_HEADER_BYTES, bytes + BPS_HEADER_BYTES, BPS_NONCE_BYTES);
    ck_assert_mem_eq(bytes, known, sizeof bytes);
}
END_TEST

static const uint8_t *stranger_bytes(int which, size_t *n)
{
    static uint8_t bytes[4096];
    struct bps_header header = {.length = 32, .type = BPS_FRAME_HELLO};
    memset(bytes, 0, sizeof bytes);
    *n = sizeof bytes;
    switch (which) {
    case 0:
        strcpy((char *)bytes, "GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: curl/8\r\nAccept: */*\r\n\r\n");
        break;
    case 1: /* a TLS hello */
        memcpy(bytes, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11);
        break;
    case 2:
        for (size_t i = 0; i < sizeof bytes; i++) {
            bytes[i] = (uint8_t)rand();
        }
        break;
    case 3: /* a HELLO of an impossible size */
        header.length = UINT32_MAX;
        bps_header_encode(&header, bytes);
        break;
    case 4: /* a slice before the HELLO */
        header.type = BPS_FRAME_PUSH;
        bps_header_encode(&header, bytes);
        break;
    case 5: /* a HELLO that says nothing */
        bps_header_encode(&header, bytes);
        break;
    case 6: /* WELCOME, from the wrong side */
        header.type = BPS_FRAME_WELCOME;
        header.length = 0;
        bps_header_encode(&header, bytes);
        break;
    default: /* the right words, but a nonce of another conversation */
        header.length = 2 * 16 + 1 + 3 * 4 + 32;
        bps_header_encode(&header, bytes);
        *n = BPS_HEADER_BYTES + header.length;
    }
    return bytes;
}

START_TEST(test_strangers)
{
    size_t n;
    const uint8_t *bytes = stranger_bytes(_i, &n);
    int fd = connect_raw();
    ck_assert_int_eq(send(fd, bytes, n, MSG_NOSIGNAL), (ssize_t)n);
    while (seen.closes == 0) {
        bps_loop_run(loop);
    }
    ck_assert_int_eq(seen.status, BPS_ERR_PROTOCOL);
    ck_assert_uint_eq(seen.messages, 0);
    ck_assert_ptr_null(seen.guest);
    close(fd);
    memset(&seen, 0, sizeof seen);
    seen.claim = (struct bps_claim){.purpose = BPS_LINK_DATA, .epoch = 3, .rank = 2, .lane = 1};
    dial(); /* the door is still open to friends */
    ck_assert_uint_eq(seen.welcomes, 1);
}
END_TEST

static void *crowd(void *arg)
{
    int *fds = arg;
    for (int i = 0; i < 400; i++) {
        fds[i] = connect_raw();
    }
    return NULL;
}

static void on_look(void *arg)
{
    (void)arg;
    bps_loop_stop(loop);
}

/* Idle connections take bounded room, and a friend gets in beside them. */
START_TEST(test_crowd)
{
    static int fds[400];
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, crowd, fds), 0);
    struct bps_timer *look = bps_loop_timer(loop, BPS_MS, BPS_MS, on_look, NULL);
    while (lobby.unproved < ROOM) {
        bps_loop_run(loop);
        ck_assert_uint_le(lobby.unproved, ROOM);
    }
    pthread_join(thread, NULL);
    bps_loop_cancel(loop, look);
    dial();
    while (seen.welcomes == 0) {
        bps_loop_run(loop);
    }
    bps_lobby_sweep(&lobby, bps_now() + (BPS_LOBBY_SECONDS + 1) * BPS_S);
    ck_assert_uint_eq(lobby.unproved, 0);
    for (int i = 0; i < 400; i++) {
        close(fds[i]);
    }
}
END_TEST

/* Whoever has proved to be a member makes no room, though it was there before all others and stays. */
START_TEST(test_proof_keeps_the_place)
{
    static int fds[400];
    pthread_t thread;
    seen.waits = true;
    dial();
    while (seen.welcomes == 0) {
        bps_loop_run(loop);
    }
    ck_assert_int_eq(pthread_create(&thread, NULL, crowd, fds), 0);
    while (seen.closes < 400 - ROOM) {
        bps_loop_run(loop);
    }
    pthread_join(thread, NULL);
    ck_assert_uint_eq(lobby.unproved, ROOM);
    ck_assert_int_eq(dialler.state, BPS_LINK_OPEN);
    bps_link_drop(&dialler);
    while (seen.closes == 400 - ROOM) {
        bps_loop_run(loop);
    }
    ck_assert_uint_eq(lobby.unproved, ROOM);
    for (int i = 0; i < 400; i++) {
        close(fds[i]);
    }
}
END_TEST

static void dial_again(const char *to, uint64_t patience)
{
    struct bps_report report = {""};
    ck_assert_int_eq(bps_dialler_start(&again, loop, patience, &dialler, &again_handler, NULL, net, to, 0, &report),
                     BPS_OK);
}

/* Whoever was closed without a word comes again, until it is let in. */
START_TEST(test_dialled_again)
{
    seen.rude = 3;
    dial_again(address, 60 * BPS_S);
    while (seen.messages == 0) {
        bps_loop_run(loop);
    }
    ck_assert_uint_eq(seen.welcomes, 1);
    ck_assert_uint_eq(again.attempts, 3);
    bps_link_drop(&seen.guest->link); /* what is lost then is lost */
    bps_guest_free(seen.guest);
    seen.guest = NULL;
    seen.status = BPS_OK;
    while (seen.status == BPS_OK) {
        bps_loop_run(loop);
    }
    ck_assert_ptr_null(again.timer);
}
END_TEST

/* An address at which nobody listens yet. */
static void free_address(char *text, size_t n)
{
    struct bps_report report = {""};
    struct bps_instance *other;
    ck_assert_int_eq(bps_instance_open(BPS_KIND_TRANSPORT, "tcp", "net", NULL, "transports.net", loop, &other, &report),
                     BPS_OK);
    const struct bps_transport_ops *ops = other->ops;
    ck_assert_int_eq(ops->listen(other->self, "127.0.0.1:0", bps_lobby_accept, &lobby, text, n, &report), BPS_OK);
    bps_instance_close(other);
}

START_TEST(test_dialled_before_it_listens)
{
    struct bps_report report = {""};
    char early[128], actual[128];
    free_address(early, sizeof early);
    dial_again(early, 60 * BPS_S);
    struct bps_timer *look = bps_loop_timer(loop, BPS_MS, BPS_MS, on_look, NULL);
    while (again.attempts < 2) {
        bps_loop_run(loop);
    }
    bps_loop_cancel(loop, look);
    const struct bps_transport_ops *ops = net->ops;
    ck_assert_int_eq(ops->listen(net->self, early, bps_lobby_accept, &lobby, actual, sizeof actual, &report), BPS_OK);
    while (seen.messages == 0) {
        bps_loop_run(loop);
    }
    ck_assert_uint_eq(seen.welcomes, 1);
}
END_TEST

/* A refusal is final, and so is the end of patience. */
/* ---- transports that say what they may not ---- */

static bps_status dialled;             /* what dial returns */
static struct bps_channel *dialled_to; /* and makes: nothing is called of it */

static bps_status dial_nothing(void *instance, const char *to, uint32_t lane, const struct bps_channel_key *key,
                               const struct bps_channel_events *events, void *user, struct bps_channel **out,
                               struct bps_report *report)
{
    (void)instance, (void)to, (void)lane, (void)key, (void)report;
    real_events = events;
    ck_assert_ptr_eq(user, &dialler);
    *out = dialled_to;
    return dialled;
}

START_TEST(test_wrong_dial)
{
    static const struct {
        bps_status status;
        const char *says;
    } cases[] = {
        {BPS_OK, "transport tcp (transports.net), dial: returned BPS_OK and left *out NULL"},
        {BPS_AGAIN, "transport tcp (transports.net), dial: returned 2; allowed are BPS_OK and BPS_ERR_*"},
        {BPS_ERR_IO, "transport tcp (transports.net), dial: input/output error; the plugin gives no reason"},
    };
    struct bps_report report = {""};
    noting.dial = dial_nothing;
    dialled = cases[_i].status;
    dialled_to = NULL;
    bps_status want = cases[_i].status < 0 ? cases[_i].status : BPS_ERR_PLUGIN;
    ck_assert_int_eq(bps_link_dial(&dialler, &dialler_handler, NULL, net, address, 0, &report), want);
    ck_assert_str_eq(report.text, cases[_i].says);
}
END_TEST

START_TEST(test_wrong_closed)
{
    static const struct {
        bps_status status;
        const char *text;
        bps_status want;
        const char *says;
    } cases[] = {
        {BPS_ERR_IO, NULL, BPS_ERR_IO, "input/output error"},
        {BPS_ERR_LOST, "", BPS_ERR_LOST, "a member of the job was lost"},
        {BPS_INPROGRESS, "soon", BPS_ERR_PLUGIN,
         "transport tcp (transports.net), closed: returned 1; allowed are BPS_OK and BPS_ERR_*"},
    };
    struct bps_report report = {""};
    noting.dial = dial_nothing;
    dialled = BPS_OK;
    dialled_to = (struct bps_channel *)&dialled;
    ck_assert_int_eq(bps_link_dial(&dialler, &dialler_handler, NULL, net, address, 0, &report), BPS_OK);
    real_events->closed(&dialler, cases[_i].status, cases[_i].text);
    ck_assert_int_eq(seen.status, cases[_i].want);
    ck_assert_str_eq(seen.told, cases[_i].says);
}
END_TEST

START_TEST(test_not_dialled_again)
{
    seen.refusal = "not you";
    dial_again(address, 60 * BPS_S);
    while (seen.refused == 0) {
        bps_loop_run(loop);
    }
    ck_assert_uint_eq(again.attempts, 0);
    seen.refusal = NULL;
    seen.rude = 1;
    seen.status = BPS_OK;
    dial_again(address, 0);
    while (seen.status != BPS_ERR_IO) { /* as its own end says */
        bps_loop_run(loop);
    }
    ck_assert_uint_eq(again.attempts, 0);
    ck_assert_uint_eq(seen.welcomes, 0);
}
END_TEST

/* HKDF-SHA256 of 00 to 1f, with salt "BytePS" and info "channel key", as openssl kdf says. */
START_TEST(test_channel_key)
{
    static const struct bps_channel_key known = {{0x72, 0xcb, 0xf9, 0x19, 0x5b, 0x48, 0x83, 0x20, 0xe7, 0xc8, 0xbf,
                                                  0x68, 0xbc, 0xc1, 0x59, 0xbe, 0x58, 0xdd, 0x5b, 0x16, 0x98, 0x6c,
                                                  0x94, 0x6d, 0x3b, 0xb8, 0x5a, 0xe4, 0xbf, 0xaa, 0x5d, 0xd3}};
    struct bps_channel_key space = {{0}};
    const struct bps_channel_key *key = &known;
    for (uint32_t i = 0; i < sizeof job.secret; i++) {
        job.secret[i] = (uint8_t)i;
    }
    ck_assert_int_eq(bps_channel_key(&job, &space, &key), BPS_OK);
    ck_assert_ptr_null(key);
    ck_assert_int_eq(bps_channel_key(NULL, &space, &key), BPS_OK);
    ck_assert_ptr_null(key);
    job.has_secret = true;
    ck_assert_int_eq(bps_channel_key(&job, &space, &key), BPS_OK);
    ck_assert_ptr_eq(key, &space);
    ck_assert_mem_eq(key, &known, sizeof known);
}
END_TEST

/* The transport is handed the same key at both ends, another one for another secret, and none without. */
START_TEST(test_keys_of_channels)
{
    static const struct bps_channel_key none;
    struct bps_channel_key first;
    dial();
    ck_assert_uint_eq(seen.keyless, 2);
    ck_assert_uint_eq(seen.keyed, 0);
    for (uint32_t i = 0; i < 2; i++) {
        first = seen.keys[0];
        bps_link_drop(&dialler);
        while (seen.guest != NULL) {
            bps_loop_run(loop);
        }
        job.has_secret = true; /* while the transport is open */
        job.secret[5] = (uint8_t)(40 + i);
        dial();
        ck_assert_uint_eq(seen.keyed, 2 * (i + 1));
        ck_assert_mem_eq(&seen.keys[0], &seen.keys[1], sizeof first);
        ck_assert_mem_ne(&seen.keys[0], &first, sizeof first);
        ck_assert_mem_eq(&dialler.channel_key, &none, sizeof none); /* and the core has forgotten it */
        ck_assert_mem_eq(&seen.guest->link.channel_key, &none, sizeof none);
    }
    ck_assert_uint_eq(seen.keyless, 2);
}
END_TEST

/* Where no key can be made, there is no channel; never one without a key. */
START_TEST(test_no_memory_for_keys)
{
    struct bps_report report = {""};
    struct bps_channel *channel = NULL;
    const struct bps_channel_key *key;
    void *user;
    job.has_secret = true;
    seen.no_hmac = true;
    ck_assert_int_eq(bps_link_dial(&dialler, &dialler_handler, NULL, net, address, 0, &report), BPS_ERR_NOMEM);
    ck_assert_ptr_null(bps_lobby_accept(&lobby, channel, "nobody", &user, &key));
    ck_assert_uint_eq(seen.keyed + seen.keyless + lobby.unproved, 0);
    seen.no_hmac = false;
    dial();
    ck_assert_uint_eq(seen.keyed, 2);
}
END_TEST

#define EXAMPLE 100u /* bytes of payload */

/* What one end of a link checks by, or encrypts, and a frame of which the result is known. */
static struct bps_checksum *example(uint32_t kind, enum bps_link_end sender, uint8_t header[BPS_HEADER_BYTES],
                                    uint8_t payload[EXAMPLE])
{
    struct bps_introduction introduction;
    struct bps_checksum *sums;
    uint8_t key[BPS_KEY_BYTES];
    memset(introduction.challenge, 1, sizeof introduction.challenge);
    memset(introduction.response, 2, sizeof introduction.response);
    for (uint32_t i = 0; i < EXAMPLE; i++) {
        key[i % sizeof key] = (uint8_t)(i % sizeof key);
        header[i % BPS_HEADER_BYTES] = (uint8_t)(i % BPS_HEADER_BYTES);
        payload[i] = (uint8_t)i;
    }
    ck_assert_int_eq(bps_checksum_new(kind, key, &introduction, sender, &sums), BPS_OK);
    return sums;
}

/* As BLAKE2s of Python's hashlib says, and GMAC that is made of HMAC-SHA256 and openssl's AES; and of nothing else. */
START_TEST(test_checksums)
{
    static const struct {
        uint32_t kind;
        enum bps_link_end sender;
        uint8_t known[8];
    } cases[] = {
        {BPS_CHECKSUM_BLAKE2S, BPS_DIALLER, {0xc1, 0x15, 0x27, 0xfc, 0x89, 0xbd, 0x7a, 0xae}},
        {BPS_CHECKSUM_GMAC, BPS_DIALLER, {0x56, 0x77, 0x33, 0x77, 0x91, 0x45, 0xda, 0x61}},
        {BPS_CHECKSUM_GMAC, BPS_ACCEPTOR, {0x73, 0x96, 0x24, 0x7f, 0xda, 0xbd, 0xb2, 0x29}},
    };
    uint8_t header[BPS_HEADER_BYTES], payload[EXAMPLE];
    struct bps_checksum *sums = example(cases[_i].kind, cases[_i].sender, header, payload);
    ck_assert_int_eq(bps_checksum_put(sums, 5, header, payload, sizeof payload, NULL), BPS_OK);
    ck_assert_mem_eq(header + BPS_HEADER_BYTES - 8, cases[_i].known, 8);
    ck_assert(bps_checksum_fits(sums, 5, header, payload, sizeof payload, NULL));
    ck_assert(!bps_checksum_fits(sums, 6, header, payload, sizeof payload, NULL));
    ck_assert(!bps_checksum_fits(sums, 5, header, payload, sizeof payload - 1, NULL));
    for (uint32_t bit = 0; bit < 8 * sizeof header; bit++) {
        header[bit / 8] ^= (uint8_t)(1u << bit % 8);
        ck_assert(!bps_checksum_fits(sums, 5, header, payload, sizeof payload, NULL));
        header[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    for (uint32_t bit = 0; bit < 8 * sizeof payload; bit++) {
        payload[bit / 8] ^= (uint8_t)(1u << bit % 8);
        ck_assert(!bps_checksum_fits(sums, 5, header, payload, sizeof payload, NULL));
        payload[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    ck_assert(bps_checksum_fits(sums, 5, header, payload, sizeof payload, NULL));
    bps_checksum_free(sums);
}
END_TEST

/* As AES of openssl, GHASH, and HMAC of Python make it. */
START_TEST(test_cipher)
{
    static const struct {
        uint8_t hidden[8], payload[8], tag[16];
    } known[] = {
        {{0x1b, 0x7c, 0xff, 0xe5, 0xaf, 0xb8, 0x5f, 0x8b},
         {0xff, 0x8e, 0xa7, 0x2c, 0xcf, 0xb8, 0x50, 0x22},
         {0x81, 0xb9, 0x9c, 0xcd, 0x93, 0x36, 0x24, 0xf4, 0x00, 0x46, 0xd6, 0x9e, 0x9e, 0xaf, 0x75, 0x48}},
        {{0x05, 0xb5, 0xeb, 0x5e, 0x2d, 0x87, 0xa8, 0x2f},
         {0xfe, 0xd8, 0xff, 0x16, 0x52, 0x0b, 0xf2, 0xfc},
         {0xab, 0x46, 0x42, 0xe1, 0x05, 0x84, 0x72, 0xaf, 0x41, 0x8b, 0x39, 0xb3, 0x32, 0xff, 0x2b, 0xc6}},
    };
    uint8_t header[BPS_HEADER_BYTES], before[BPS_HEADER_BYTES], payload[EXAMPLE], sent[EXAMPLE + BPS_CIPHER_TAG];
    struct bps_checksum *sums = example(BPS_CHECKSUM_ENCRYPT, _i == 0 ? BPS_DIALLER : BPS_ACCEPTOR, header, payload);
    memcpy(before, header, sizeof before);
    ck_assert_uint_eq(bps_checksum_grows(sums), BPS_CIPHER_TAG);
    ck_assert_int_eq(bps_checksum_put(sums, 5, header, payload, EXAMPLE, sent), BPS_OK);
    ck_assert_uint_eq(header[0], sizeof sent);
    ck_assert_mem_eq(header + 4, before + 4, 4);
    ck_assert_uint_eq(header[88], 5);
    ck_assert_mem_eq(header + 8, known[_i].hidden, 8);
    ck_assert_mem_eq(sent, known[_i].payload, 8);
    ck_assert_mem_eq(sent + EXAMPLE, known[_i].tag, BPS_CIPHER_TAG);
    bps_checksum_free(sums);
}
END_TEST

/* Neither what has changed, nor another number, nor a part. */
START_TEST(test_nothing_else_is_decrypted)
{
    uint8_t header[BPS_HEADER_BYTES], before[BPS_HEADER_BYTES], payload[EXAMPLE], back[EXAMPLE];
    uint8_t travels[BPS_HEADER_BYTES + EXAMPLE + BPS_CIPHER_TAG], *sent = travels + BPS_HEADER_BYTES;
    const uint32_t bytes = EXAMPLE + BPS_CIPHER_TAG;
    struct bps_checksum *sums = example(BPS_CHECKSUM_ENCRYPT, _i == 0 ? BPS_DIALLER : BPS_ACCEPTOR, travels, payload);
    memcpy(before, travels, sizeof before);
    ck_assert_int_eq(bps_checksum_put(sums, 5, travels, payload, EXAMPLE, sent), BPS_OK);
    for (uint32_t bit = 0; bit <= 8 * sizeof travels; bit++) { /* the last time nothing */
        if (bit < 8 * sizeof travels) {
            travels[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
        memcpy(header, travels, sizeof header);
        ck_assert_int_eq(bps_checksum_fits(sums, 5, header, sent, bytes, back), bit == 8 * sizeof travels);
        if (bit < 8 * sizeof travels) {
            travels[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
    }
    ck_assert_uint_eq(header[0], EXAMPLE);
    ck_assert_mem_eq(header + 4, before + 4, BPS_HEADER_BYTES - 12);
    ck_assert_mem_eq(back, payload, EXAMPLE);
    memcpy(header, travels, sizeof header);
    ck_assert(!bps_checksum_fits(sums, 6, header, sent, bytes, back));
    memcpy(header, travels, sizeof header);
    ck_assert(!bps_checksum_fits(sums, 5, header, sent, bytes - 1, back));
    ck_assert(!bps_checksum_fits(sums, 5, header, sent, BPS_CIPHER_TAG - 1, back));
    bps_checksum_free(sums);
}
END_TEST

/* Where there is no key, nothing of the frame may be left to be sent. */
START_TEST(test_not_encrypted)
{
    static const uint8_t zeros[EXAMPLE + BPS_CIPHER_TAG];
    uint8_t header[BPS_HEADER_BYTES], sent[EXAMPLE + BPS_CIPHER_TAG];
    EVP_CIPHER_CTX *none = EVP_CIPHER_CTX_new();
    bps_checksum_free(example(BPS_CHECKSUM_ENCRYPT, BPS_DIALLER, header, sent));
    ck_assert(!bps_cipher_seal(none, 5, header, sent, EXAMPLE, sent));
    ck_assert_mem_eq(header + 8, zeros, 80);
    ck_assert_mem_eq(sent, zeros, sizeof zeros);
    EVP_CIPHER_CTX_free(none);
}
END_TEST

/* ---- frames that change ---- */

/* Some frames of both directions, ACK among them; but of no direction two of these in a row, and no frame twice. */
static bool some(const void *user, const uint8_t *header)
{
    static bool ack_spoilt[2], seen_before[MANY];
    const struct bps_header *fields = (const void *)header;
    uint32_t number = job.cluster.encrypt ? (uint32_t)fields->checksum : fields->round;
    if (spoiler.changed == 0) {
        memset(seen_before, 0, sizeof seen_before);
    }
    if (fields->type != BPS_FRAME_ACK && (fields->type != BPS_FRAME_DECLARE || number >= MANY)) {
        return false;
    }
    bool *known = fields->type == BPS_FRAME_ACK ? &ack_spoilt[user == &dialler] : &seen_before[number];
    bool spoils = !*known && rand() % 8 == 0;
    *known = spoils || (*known && fields->type != BPS_FRAME_ACK);
    return spoils;
}

static bool once(const void *user, const uint8_t *header)
{
    (void)user;
    return header[4] == BPS_FRAME_DECLARE && spoiler.changed == 0;
}

static bool always(const void *user, const uint8_t *header)
{
    (void)user;
    return header[4] == BPS_FRAME_DECLARE;
}

static void send_many(void)
{
    struct bps_header header = {.type = BPS_FRAME_DECLARE, .tensor = NUMBERED, .partition = 8, .offset = 9};
    char text[16];
    for (uint32_t i = 0; i < MANY; i++) {
        header.round = i;
        snprintf(text, sizeof text, "%u", i);
        ck_assert_int_eq(bps_link_send(&dialler, &header, text, strlen(text)), BPS_OK);
    }
}

static void receive_many(void)
{
    while (spoiler.arrived < MANY) {
        bps_loop_run(loop);
    }
}

static void start_checked(int kind, bool (*spoils)(const void *user, const uint8_t *header), uint32_t byte,
                          uint32_t bit)
{
    check_by((uint32_t)kind);
    dial();
    ck_assert_str_eq(seen.text, "first words");
    spoiler.change = spoils;
    spoiler.byte = byte;
    spoiler.bit = bit;
    send_many();
}

START_TEST(test_sent_again)
{
    start_checked(1 + _i % 3, some, 91, 5);
    receive_many();
    ck_assert_uint_gt(spoiler.changed, 10);
    ck_assert(!job.cluster.encrypt || (sealed.frames > MANY && sealed.again > 10));
    spoiler.change = NULL;
    bps_link_send_text(&dialler, BPS_FRAME_LEAVE, "last words");
    bps_link_finish(&dialler);
    while (seen.messages < MANY + 2) {
        bps_loop_run(loop);
    }
    ck_assert_str_eq(seen.text, "last words");
}
END_TEST

/* The last frame, which is sent before the link finishes, and headers that are none: their types and flags. */
START_TEST(test_sent_again_once)
{
    start_checked(BPS_CHECKSUM_GMAC + _i / 16, once, 4 + (uint32_t)_i % 16 / 8, (uint32_t)_i % 8);
    bps_link_finish(&dialler);
    receive_many();
    ck_assert_uint_eq(spoiler.changed, 1);
    while (dialler.channel != NULL) {
        bps_loop_run(loop);
    }
    ck_assert_uint_eq(seen.messages, MANY + 1);
}
END_TEST

START_TEST(test_three_in_a_row)
{
    start_checked(1 + _i, always, 88, 0);
    while (seen.closes == 0 || dialler.channel != NULL) {
        bps_loop_run(loop);
    }
    ck_assert_uint_eq(seen.messages, 1);
    ck_assert_uint_ge(spoiler.changed, 3);
    ck_assert_int_eq(seen.status, BPS_ERR_IO);
    ck_assert_msg(strstr(seen.text, "a frame that does not match its checksum: of type 10, tensor 7, partition 8, "
                                    "offset 9, round 0") != NULL,
                  "%s", seen.text);
}
END_TEST

/* Where the length is another one, nobody knows where the next frame begins; what is used is right all the same. */
START_TEST(test_another_length)
{
    start_checked(BPS_CHECKSUM_GMAC + _i / 8, once, (uint32_t)_i % 8 / 2, (uint32_t)_i % 2 * 7);
    while (seen.closes == 0 || dialler.channel != NULL) {
        bps_loop_run(loop);
    }
    ck_assert_uint_eq(seen.messages, 1);
    ck_assert_int_ne(seen.status, BPS_OK);
}
END_TEST

/* Who is called by an end with other checksums knows that before it proves anything. */
START_TEST(test_other_checksums)
{
    struct bps_conf other = {.cluster.checksum = BPS_CHECKSUM_GMAC};
    struct bps_instance caller = *net;
    struct bps_report report = {""};
    caller.conf = &other;
    check_by(_i == 0 ? BPS_CHECKSUM_BLAKE2S : BPS_CHECKSUM_ENCRYPT);
    ck_assert_int_eq(bps_link_dial(&dialler, &dialler_handler, NULL, &caller, address, 0, &report), BPS_OK);
    while (seen.closes == 0 || seen.refused == 0) {
        bps_loop_run(loop);
    }
    ck_assert_uint_eq(seen.welcomes, 0);
    ck_assert_ptr_nonnull(
        strstr(seen.told, _i == 0 ? "cluster.checksum is gmac here, but blake2s there; it must be the same"
                                  : "cluster.encrypt is false here, but true there; it must be the same"));
}
END_TEST

/* Where keys cannot be made nothing is said that was to be encrypted. */
START_TEST(test_no_memory_for_the_cipher)
{
    check_by(BPS_CHECKSUM_ENCRYPT);
    seen.forgets = true;
    dial();
    while (seen.closes == 0 || dialler.channel != NULL) {
        bps_loop_run(loop);
    }
    seen.no_hmac = false;
    ck_assert_uint_eq(seen.welcomes + seen.messages, 0);
    ck_assert_uint_eq(sealed.frames, 0);
}
END_TEST

/* Headers that no version sends. */
START_TEST(test_headers)
{
    struct bps_header header = {.length = 1,
                                .type = BPS_FRAME_PUSH,
                                .flags = BPS_FLAG_EMPTY,
                                .dtype = 3,
                                .op = 4,
                                .epoch = 5,
                                .tensor = 0x80000006,
                                .bytes = 0x123456789abcdefull,
                                .partition = 7,
                                .round = 8,
                                .offset = 9,
                                .root = 10,
                                .prescale = 0.5,
                                .postscale = -2.0,
                                .priority = -11,
                                .size = 12,
                                .slice = 13,
                                .step = 14,
                                .view = 0x89abcdef};
    struct bps_header back;
    uint8_t bytes[BPS_HEADER_BYTES];
    memset(&back, 0, sizeof back);
    bps_header_encode(&header, bytes);
    ck_assert_int_eq(bps_header_decode(bytes, &back), BPS_OK);
    ck_assert_uint_eq(back.bytes, header.bytes);
    ck_assert_int_eq(back.priority, -11);
    ck_assert_double_eq(back.prescale, 0.5);
    ck_assert_uint_eq(back.tensor, header.tensor);
    ck_assert_int_eq(memcmp(&back, &header, sizeof back), 0);
    ck_assert_uint_eq(bytes[80], 0xef); /* little endian */
    ck_assert_uint_eq(bytes[83], 0x89);
    for (int type = 0; type < 256; type++) {
        bytes[4] = (uint8_t)type;
        bool known = (type >= 1 && type <= BPS_FRAME_NEWCOMERS) || (type >= BPS_FRAME_PUSH && type <= BPS_FRAME_FINAL);
        known =
            known && (type == BPS_FRAME_PUSH || type == BPS_FRAME_POISON || type == BPS_FRAME_HELD); /* have a view */
        ck_assert_int_eq(bps_header_decode(bytes, &back), known ? BPS_OK : BPS_ERR_PROTOCOL);
    }
    memset(bytes + 80, 0, 4);
    for (int type = 0; type < 256; type++) {
        bytes[4] = (uint8_t)type;
        bool known = (type >= 1 && type <= BPS_FRAME_NEWCOMERS) || (type >= BPS_FRAME_PUSH && type <= BPS_FRAME_FINAL);
        ck_assert_int_eq(bps_header_decode(bytes, &back), known ? BPS_OK : BPS_ERR_PROTOCOL);
    }
    bytes[84] = 1; /* a process group: its own frame, and those of tensors without a name */
    for (int type = 1; type < 256; type++) {
        bytes[4] = (uint8_t)type;
        bool known = type <= BPS_FRAME_NEWCOMERS || (type >= BPS_FRAME_PUSH && type <= BPS_FRAME_GROUP);
        ck_assert_int_eq(bps_header_decode(bytes, &back), known ? BPS_OK : BPS_ERR_PROTOCOL);
    }
    bytes[4] = BPS_FRAME_PUSH;
    bytes[15] = 0; /* its tensor has a name now */
    ck_assert_int_eq(bps_header_decode(bytes, &back), BPS_ERR_PROTOCOL);
    bytes[84] = 0;
    bytes[15] = 0x80;
    bytes[4] = BPS_FRAME_PUSH;
    bytes[79] = 1;
    ck_assert_int_eq(bps_header_decode(bytes, &back), BPS_ERR_PROTOCOL);
    bytes[79] = 1; /* only the sum of a group tells who came last to it, and how late */
    bytes[5] = BPS_FLAG_GROUP;
    ck_assert_int_eq(bps_header_decode(bytes, &back), BPS_OK);
    ck_assert_uint_eq(back.late, 1u << 8);
    bytes[76] = 3;
    ck_assert_int_eq(bps_header_decode(bytes, &back), BPS_OK);
    ck_assert_uint_eq(back.last, 3);
    bytes[79] = 0; /* who, but not how late */
    ck_assert_int_eq(bps_header_decode(bytes, &back), BPS_ERR_PROTOCOL);
    bytes[5] = bytes[76] = 0;
    bytes[60] = 3; /* only a PUSH has a coding */
    ck_assert_int_eq(bps_header_decode(bytes, &back), BPS_OK);
    ck_assert_uint_eq(back.coding, 3);
    bytes[4] = BPS_FRAME_RESULT;
    ck_assert_int_eq(bps_header_decode(bytes, &back), BPS_ERR_PROTOCOL);
    bytes[60] = 0;
    bytes[62] = 5; /* only a PUSH or READY has a shape */
    ck_assert_int_eq(bps_header_decode(bytes, &back), BPS_ERR_PROTOCOL);
    bytes[4] = BPS_FRAME_READY;
    ck_assert_int_eq(bps_header_decode(bytes, &back), BPS_OK);
    ck_assert_uint_eq(back.shape, 5);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("link");
    TCase *tests = tcase_create("link");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, test_conversation, 0, 4);
    tcase_add_loop_test(tests, test_checksums, 0, 3);
    tcase_add_loop_test(tests, test_cipher, 0, 2);
    tcase_add_loop_test(tests, test_nothing_else_is_decrypted, 0, 2);
    tcase_add_test(tests, test_not_encrypted);
    tcase_add_loop_test(tests, test_sent_again, 0, 9);
    tcase_add_loop_test(tests, test_sent_again_once, 0, 32);
    tcase_add_loop_test(tests, test_three_in_a_row, 0, 3);
    tcase_add_loop_test(tests, test_another_length, 0, 16);
    tcase_add_loop_test(tests, test_other_checksums, 0, 2);
    tcase_add_loop_test(tests, test_malformed_message, 0, 2);
    tcase_add_test(tests, test_refusal);
    tcase_add_test(tests, test_another_key);
    tcase_add_test(tests, test_impostor);
    tcase_add_loop_test(tests, test_versions, 0, 8);
    tcase_add_test(tests, test_finish_delivers);
    tcase_add_test(tests, test_challenge);
    tcase_add_loop_test(tests, test_strangers, 0, 8);
    tcase_add_test(tests, test_crowd);
    tcase_add_test(tests, test_proof_keeps_the_place);
    tcase_add_test(tests, test_dialled_again);
    tcase_add_test(tests, test_dialled_before_it_listens);
    tcase_add_loop_test(tests, test_wrong_dial, 0, 3);
    tcase_add_loop_test(tests, test_wrong_closed, 0, 3);
    tcase_add_test(tests, test_not_dialled_again);
    tcase_add_test(tests, test_channel_key);
    tcase_add_test(tests, test_keys_of_channels);
    tcase_add_test(tests, test_no_memory_for_keys);
    tcase_add_test(tests, test_no_memory_for_the_cipher);
    tcase_add_test(tests, test_headers);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
