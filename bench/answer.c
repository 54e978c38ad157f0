/* SPDX-License-Identifier: Apache-2.0 */
/* answer.c - the listening end of `byteps bench transport`, which does what the other one asks for. */
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/log.h"
#include "bench/transport.h"

#define NAME BPS_BENCH_NAME

struct answerer {
    struct bps_bench_channel channel;
    bool greeted;
    int listener, socket;
    uint64_t word;                    /* that the peer says at the listener */
    struct bps_bench_message request; /* what the loop has ended for */
};

static void answer(struct answerer *a, const struct bps_bench_message *message)
{
    bps_bench_channel_send(&a->channel, message, 1);
}

static bps_status greet(struct answerer *a, const struct bps_bench_message *message)
{
    if (message->first != BPS_BENCH_TRANSPORT_VERSION) {
        return BPS_ERR_PROTOCOL;
    }
    a->greeted = true;
    answer(a, &(struct bps_bench_message){.kind = BPS_BENCH_HELLO, .first = BPS_BENCH_TRANSPORT_VERSION});
    return BPS_OK;
}

static bps_status leave_loop(struct answerer *a, const struct bps_bench_message *message)
{
    a->request = *message;
    bps_bench_channel_ready(&a->channel);
    return BPS_OK;
}

static bps_status on_arrived(struct bps_bench_channel *channel, const struct bps_bench_message *message)
{
    struct answerer *a = channel->user;
    if (!a->greeted && message->kind != BPS_BENCH_HELLO) {
        return BPS_ERR_PROTOCOL;
    }
    switch (message->kind) {
    case BPS_BENCH_HELLO:
        return greet(a, message);
    case BPS_BENCH_ECHO:
        answer(a, &(struct bps_bench_message){.kind = BPS_BENCH_ECHOED, .bytes = message->bytes});
        return BPS_OK;
    case BPS_BENCH_STREAM:
        if (message->first == 0) {
            answer(a, &(struct bps_bench_message){.kind = BPS_BENCH_DONE});
        }
        return BPS_OK;
    case BPS_BENCH_SOCKET:
    case BPS_BENCH_SOCKET_ECHO:
    case BPS_BENCH_SOCKET_STREAM:
    case BPS_BENCH_BYE:
        return leave_loop(a, message);
    default:
        return BPS_ERR_PROTOCOL;
    }
}

/* ---- outside of the loop ---- */

/* Tells the port of a new listener, 0 if there is none, and waits there for the peer. */
static void open_socket(struct answerer *a)
{
    struct bps_bench_message port = {.kind = BPS_BENCH_SOCKET};
    uint16_t number = 0;
    if (a->socket >= 0) {
        close(a->socket);
    }
    a->socket = -1;
    a->listener = getrandom(&a->word, sizeof a->word, 0) == sizeof a->word ? bps_bench_socket_listen(&number) : -1;
    port.first = number;
    port.second = a->word;
    answer(a, &port);
}

static bool use_socket(struct answerer *a)
{
    const struct bps_bench_message *request = &a->request;
    if (a->listener >= 0) {
        a->socket = bps_bench_socket_accept(a->listener, a->word);
        a->listener = -1;
    }
    return request->second <= BPS_BENCH_MESSAGE_LIMIT && a->socket >= 0 &&
           bps_bench_socket_answer(a->socket, request->kind == BPS_BENCH_SOCKET_ECHO, a->channel.in,
                                   (size_t)request->second, request->first);
}

/* Answers until the peer that has greeted leaves. Whoever else connects is forgotten. */
static int serve(struct answerer *a)
{
    for (;;) {
        struct bps_report report = {""};
        bps_status status = bps_bench_channel_wait(&a->channel, &report);
        if (status != BPS_OK && a->greeted) {
            return bps_cmd_failure(NAME, "%s", report.text);
        }
        if (status != BPS_OK) {
            fprintf(stderr, "byteps " NAME ": %s; this was no 'byteps bench transport'\n", report.text);
            bps_bench_channel_drop(&a->channel);
        } else if (a->request.kind == BPS_BENCH_BYE) {
            return 0;
        } else if (a->request.kind == BPS_BENCH_SOCKET) {
            open_socket(a);
        } else if (!use_socket(a)) {
            return bps_cmd_failure(NAME, "%s: the plain socket has ended or is silent: is the peer alive?",
                                   a->channel.peer);
        }
    }
}

/* One line to be read by the user, or by the process that has started this one. */
static int announce(const char *name, const char *address)
{
    printf("On the other host: byteps bench transport --transport %s --connect %s\n", name, address);
    return bps_cmd_finish(NAME, 0);
}

int bps_bench_transport_answer(const struct bps_bench_request *request, const char *name)
{
    struct bps_conf *conf = bps_cmd_conf_load(NAME, &request->conf, "worker");
    struct answerer a = {.listener = -1, .socket = -1};
    struct bps_report report = {""};
    char address[128];
    if (conf == NULL) {
        return BPS_EXIT_FAILURE;
    }
    bps_log_set_level(BPS_LOG_WARN);
    bps_status status = bps_bench_channel_open(&a.channel, conf, name, &report);
    a.channel.arrived = on_arrived;
    a.channel.user = &a;
    if (status == BPS_OK) {
        const char *wanted =
            request->listen[0] != '\0' || bps_bench_channel_is_local(&a.channel) ? request->listen : "0.0.0.0:0";
        status = bps_bench_channel_listen(&a.channel, wanted, address, sizeof address, &report);
    }
    int result = status == BPS_OK ? announce(name, address) : bps_cmd_failure(NAME, "%s", report.text);
    if (result == 0) {
        result = serve(&a);
    }
    if (a.socket >= 0) {
        close(a.socket);
    }
    if (a.listener >= 0) {
        close(a.listener);
    }
    bps_bench_channel_close(&a.channel);
    bps_conf_free(conf);
    return result;
}
