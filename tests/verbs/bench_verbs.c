/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_verbs.c - frames of one size from one process to another, over RDMA. Needs a device.
 *
 *   bench_verbs bandwidth BYTES FRAMES [OPTION=VALUE]...
 *   bench_verbs latency BYTES FRAMES [OPTION=VALUE]...
 *
 * Payloads leave from registered memory and are wanted in registered memory, as the core has them. Prints
 * what one way takes (of the latencies the median, as perftest does), and how many work requests and
 * doorbells the sender posted. Options are the transport's.
 */
#include <endian.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <byteps/transport.h>

#include "base/clock.h"
#include "base/loop.h"
#include "conf/conf.h"
#include "plugin/instance.h"

#define OPTIONS_LIMIT 8
#define PLACES        64u /* that payloads go to in turn */
#define WARM          16u /* frames before the clock starts */

static struct bps_loop *loop;
static struct bps_instance *instance;
static const struct bps_transport_ops *transport;
static struct bps_channel *channel;
static struct bps_region memory = {.fd = -1};
static struct bps_sink sink;
static bool echoes, asks; /* a frame is answered by one of its size; the next is sent when that has come */
static uint32_t bytes, frames, to_send, sent, opened, received;
static uint32_t stop_at;              /* frames received: then the loop stops */
static uint64_t asked, *answers_took; /* ns: when the last question was sent; question and answer, of each */
static uint8_t header[BPS_HEADER_BYTES];

static void need(bool holds, const char *format, ...)
{
    va_list arguments;
    if (!holds) {
        va_start(arguments, format);
        vfprintf(stderr, format, arguments);
        va_end(arguments);
        fputc('\n', stderr);
        _exit(1);
    }
}

static uint8_t *place_of(uint32_t frame)
{
    return (uint8_t *)memory.memory + (size_t)(frame % PLACES) * bytes;
}

/* ---- what the transport calls ---- */

static void send_more(uint32_t n)
{
    to_send += n;
    asked = bps_now();
    transport->kick(channel);
}

static void frame_came(void)
{
    if (asks) {
        answers_took[received] = bps_now() - asked;
    }
    received++;
    if (echoes) {
        send_more(1);
    }
    if (received == stop_at) {
        bps_loop_stop(loop);
    } else if (asks) {
        send_more(1);
    }
}

static void *place(struct bps_sink *own, uint32_t offset, uint32_t *room)
{
    (void)own;
    *room = bytes - offset;
    return place_of(received) + offset;
}

static uint32_t take(struct bps_sink *own, uint32_t offset, const void *data, uint32_t n)
{
    (void)own;
    if (data != place_of(received) + offset) {
        memcpy(place_of(received) + offset, data, n);
    }
    if (offset + n == bytes) {
        frame_came();
    }
    return n;
}

static void *open_place(struct bps_sink *own, void **ticket)
{
    (void)own;
    *ticket = NULL;
    return place_of(opened++);
}

static void on_placed(void *user, void *ticket)
{
    (void)user;
    (void)ticket;
    frame_came();
}

static bps_status on_header(void *user, const uint8_t *data, struct bps_sink **out)
{
    (void)user;
    (void)data;
    *out = &sink;
    return BPS_OK;
}

static bps_status on_next(void *user, struct bps_frame *out)
{
    (void)user;
    if (to_send == 0) {
        return BPS_AGAIN;
    }
    to_send--;
    *out = (struct bps_frame){.header = header, .payload = place_of(sent++), .bytes = bytes};
    return BPS_OK;
}

static void on_sent(void *user, void *cookie)
{
    (void)user;
    (void)cookie;
}

static void on_connected(void *user)
{
    (void)user;
    bps_loop_stop(loop);
}

static void on_closed(void *user, bps_status status, const char *text)
{
    (void)user;
    need(received >= frames || sent >= frames, "closed: %s (%d)", text, status);
    bps_loop_stop(loop);
}

static const struct bps_channel_events events = {
    .connected = on_connected,
    .header = on_header,
    .next = on_next,
    .sent = on_sent,
    .closed = on_closed,
    .placed = on_placed,
};

static const struct bps_channel_events *on_accept(void *arg, struct bps_channel *accepted, const char *from,
                                                  void **user, const struct bps_channel_key **key)
{
    (void)arg;
    (void)from;
    channel = accepted;
    *user = NULL;
    *key = NULL;
    return &events;
}

/* ---- the two processes ---- */

static void open_transport(char **options)
{
    static struct bps_conf_node nodes[OPTIONS_LIMIT];
    static struct bps_conf_node *children[OPTIONS_LIMIT];
    struct bps_conf_node group = {.kind = BPS_CONF_GROUP, .origin = "bench", .children = children};
    struct bps_report report = {""};
    for (; options[group.count] != NULL; group.count++) {
        char *value = strchr(options[group.count], '=');
        need(value != NULL && group.count < OPTIONS_LIMIT, "'%s': not an option", options[group.count]);
        *value = '\0';
        nodes[group.count] = (struct bps_conf_node){.name = options[group.count], .text = value + 1, .origin = "bench"};
        children[group.count] = &nodes[group.count];
    }
    loop = bps_loop_new();
    need(loop != NULL, "no loop");
    bps_loop_spin(loop, BPS_LOOP_SPIN);
    bps_status status =
        bps_instance_open(BPS_KIND_TRANSPORT, "verbs", "net", &group, "transports.net", loop, &instance, &report);
    need(status == BPS_OK, "%s", report.text);
    transport = instance->ops;
    memory.bytes = (uint64_t)PLACES * bytes;
    memory.memory = mmap(NULL, memory.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    need(memory.memory != MAP_FAILED, "out of memory");
    need(transport->attach(instance->self, &memory, &report) == BPS_OK, "%s", report.text);
    memcpy(header, &(uint32_t){htole32(bytes)}, sizeof(uint32_t));
    sink = (struct bps_sink){.place = place, .take = take, .open = open_place};
}

static void listen_and_answer(char **options, int address_fd)
{
    char address[128] = "";
    struct bps_report report = {""};
    open_transport(options);
    bps_status status = transport->listen(instance->self, ":0", on_accept, NULL, address, sizeof address, &report);
    need(status == BPS_OK, "%s", report.text);
    need(write(address_fd, address, sizeof address) == sizeof address, "no pipe");
    for (stop_at = echoes ? 0 : WARM; stop_at > 0; stop_at = stop_at < frames ? frames : 0) {
        bps_loop_run(loop);
        send_more(1); /* all of them have come */
    }
    bps_loop_run(loop);
}

struct counters {
    uint64_t work_requests, doorbells;
};

static void match(void *arg, const char *name, const char *help, uint64_t value)
{
    struct counters *counters = arg;
    (void)help;
    if (strcmp(name, "work_requests") == 0) {
        counters->work_requests = value;
    } else if (strcmp(name, "doorbells") == 0) {
        counters->doorbells = value;
    }
}

/* Sends so many frames and waits for what the other process says to them; seconds. */
static double measure(uint32_t n, uint32_t answers)
{
    uint64_t begin = bps_now();
    stop_at = received + answers;
    send_more(asks ? 1 : n);
    bps_loop_run(loop);
    return (double)(bps_now() - begin) * 1e-9;
}

static int compare_times(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

/* us of one way, half of a question and its answer. */
static double median_way(uint32_t n)
{
    qsort(answers_took + WARM, n, sizeof *answers_took, compare_times);
    return (double)answers_took[WARM + n / 2] * 1e-3 / 2;
}

static void dial_and_ask(char **options, int address_fd)
{
    char address[128];
    struct bps_report report = {""};
    struct counters before, after;
    answers_took = calloc(frames, sizeof *answers_took);
    need(answers_took != NULL, "out of memory");
    need(read(address_fd, address, sizeof address) == sizeof address, "the other process has ended");
    open_transport(options);
    bps_status status = transport->dial(instance->self, address, 0, NULL, &events, NULL, &channel, &report);
    need(status == BPS_OK, "%s", report.text);
    bps_loop_run(loop);
    measure(WARM, asks ? WARM : 1);
    bps_host_counters(instance->host, match, &before);
    uint32_t n = frames - WARM;
    double seconds = measure(n, asks ? n : 1), mib = (double)n * bytes / (1 << 20);
    bps_host_counters(instance->host, match, &after);
    if (asks) {
        printf("%.1f us", median_way(n));
    } else {
        printf("%.2f MB/s", (double)n * bytes / seconds / 1e6);
    }
    printf(", %.1f work requests and %.1f doorbells for 1 MiB\n",
           (double)(after.work_requests - before.work_requests) / mib,
           (double)(after.doorbells - before.doorbells) / mib);
    transport->drop(channel);
    free(answers_took);
}

int main(int argc, char **argv)
{
    int address_fd[2], status;
    need(argc >= 4, "usage: bench_verbs bandwidth|latency BYTES FRAMES [OPTION=VALUE]...");
    bytes = (uint32_t)strtoul(argv[2], NULL, 10);
    frames = (uint32_t)strtoul(argv[3], NULL, 10) + WARM;
    bool latency = strcmp(argv[1], "latency") == 0;
    need(bytes > 0 && frames > WARM && pipe(address_fd) == 0, "nothing to measure");
    pid_t child = fork();
    if (child == 0) {
        echoes = latency;
        listen_and_answer(argv + 4, address_fd[1]);
        _exit(0);
    }
    close(address_fd[1]);
    asks = latency;
    dial_and_ask(argv + 4, address_fd[0]);
    return waitpid(child, &status, 0) == child && status == 0 ? 0 : 1;
}
