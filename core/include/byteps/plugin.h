/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plugin.h - the interface for plugins: transports, reducers, compressors and stages.
 *
 * A plugin is a shared object KIND_NAME.so (transport_tcp.so) in the plugin directory. It exports one
 * function, bps_plugin_module(), which returns a static `struct bps_module`: a list of plugin descriptors. It
 * never links to libbyteps: what it needs of the core comes in a `struct bps_host`. It is opened only when
 * the configuration names it, with RTLD_NOW | RTLD_LOCAL, and stays loaded while the process lives.
 *
 * Kind, name and ABI also stand in an ELF note (BPS_PLUGIN_NOTE), so that a plugin is listed, and a wrong
 * file refused, before any of its code runs.
 *
 * Threads: an instance is driven by its event loop, on one thread at a time: the loop's own one, or one of
 * the application's that waits for an operation and drives the loop meanwhile. Instances may run beside each
 * other in one process; so plugins keep no mutable global state and need no locks. Exceptions are named where
 * they occur.
 * Blocking: nothing but open and close may block.
 * ABI: every table begins with its size, so that fields can be added at the end (a newer minor). A missing
 * optional operation is NULL; the loader replaces it by a stub. While the major version is 0, any minor may
 * break; from 1.0 on only a new major may.
 */
#ifndef BYTEPS_PLUGIN_H
#define BYTEPS_PLUGIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <byteps/byteps.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BPS_ABI_MAJOR 0u
#define BPS_ABI_MINOR 8u

#define BPS_PLUGIN_MAGIC 0x53504221u /* "!BPS" */

/* Kinds of plugins. */
#define BPS_KIND_TRANSPORT  1u
#define BPS_KIND_REDUCER    2u
#define BPS_KIND_COMPRESSOR 3u
#define BPS_KIND_FRAMEWORK  4u /* loaded by the framework, listed here */
#define BPS_KIND_STAGE      5u

/* ---- options ------------------------------------------------------------------------------------------ */

/*
 * A plugin's options are rows of a table. The core parses and checks them, and makes error messages,
 * documentation and sample files from them. The plugin receives a filled struct at open.
 */
#define BPS_OPT_BOOL   1u /* bool:              true false yes no on off 1 0 */
#define BPS_OPT_INT    2u /* int64_t:           decimal */
#define BPS_OPT_SIZE   3u /* uint64_t bytes:    "64", "64 KiB", "4 MiB", "1 GiB"; kB MB GB: powers of ten */
#define BPS_OPT_TIME   4u /* uint64_t ns:       "500 ms", "30 s", "5 min", "1 h"; a plain number is seconds */
#define BPS_OPT_DOUBLE 5u /* double:            finite */
#define BPS_OPT_STRING 6u /* const char *:      the core's copy, valid until close */
#define BPS_OPT_CHOICE 7u /* uint32_t:          index into the words of `range` */
#define BPS_OPT_LIST   8u /* struct bps_list:   of strings, valid until close */

struct bps_list {
    uint32_t count;
    const char *const *items;
};

#define BPS_OPT_AGREE 1u /* flag: must be equal on all members of a job */

struct bps_option {
    const char *name;     /* "notsent_lowat" */
    uint32_t type;        /* BPS_OPT_* */
    uint32_t flags;       /* BPS_OPT_AGREE */
    size_t offset;        /* of the field in the option struct */
    const char *fallback; /* default, as text; lists: words separated by blanks */
    const char *range;    /* "1..64", "4 KiB..1 GiB", choices "auto|baseline|avx2"; NULL: any */
    const char *help;     /* one sentence */
};

/* ---- the module --------------------------------------------------------------------------------------- */

struct bps_plugin {
    size_t size;                      /* sizeof(struct bps_plugin) */
    uint32_t kind;                    /* BPS_KIND_* */
    const char *name;                 /* [a-z][a-z0-9_]*, at most 31 bytes: the NAME of KIND_NAME.so */
    const char *summary;              /* one line */
    const struct bps_option *options; /* ends with a row whose name is NULL; NULL: no options */
    size_t options_size;              /* bytes of the option struct */
    const void *ops;                  /* struct bps_transport_ops and so on, by kind */
};

struct bps_module {
    uint32_t magic;      /* BPS_PLUGIN_MAGIC */
    uint32_t size;       /* sizeof(struct bps_module) */
    uint32_t abi_major;  /* BPS_ABI_MAJOR */
    uint32_t abi_minor;  /* BPS_ABI_MINOR */
    const char *name;    /* of the module */
    const char *version; /* of the module */
    const char *license; /* SPDX identifier */
    uint32_t nplugins;
    const struct bps_plugin *const *plugins; /* nplugins pointers */
};

/* The one exported function. Compiled into libbyteps ("builtin"), it is called bps_module_KIND_NAME. */
#ifdef BPS_BUILTIN_MODULE
#define BPS_PLUGIN_ENTRY BPS_BUILTIN_MODULE
#else
#define BPS_PLUGIN_ENTRY bps_plugin_module
#endif
BPS_API const struct bps_module *BPS_PLUGIN_ENTRY(void);

/*
 * ELF notes "BytePS": one of type BPS_NOTE_TYPE per plugin of the module. Fixed width, native byte order. A framework
 * binding has one of type BPS_NOTE_FRAMEWORK for each framework that it serves: the module by which Python imports it,
 * and the oldest version that works, "0" for any, so that both are known without running any code.
 */
#define BPS_NOTE_TYPE      1u
#define BPS_NOTE_FRAMEWORK 2u
struct bps_note {
    uint32_t namesz, descsz, type;
    char owner[8]; /* "BytePS" */
    struct bps_note_body {
        uint32_t magic, abi_major, abi_minor, kind;
        char name[32];
        char version[32];
    } body;
};
struct bps_framework_note {
    uint32_t namesz, descsz, type;
    char owner[8]; /* "BytePS" */
    struct bps_framework_note_body {
        char module[32]; /* "tensorflow" */
        char oldest[32]; /* "2.13" */
    } body;
};

/* Put it once at file scope of a binding for each framework: BPS_FRAMEWORK_NOTE("tensorflow", "2.13"); */
#define BPS_FRAMEWORK_NOTE(module_, oldest_)           BPS_FRAMEWORK_NOTE_AT(module_, oldest_, __LINE__)
#define BPS_FRAMEWORK_NOTE_AT(module_, oldest_, line_) BPS_FRAMEWORK_NOTE_IN(module_, oldest_, line_)
#define BPS_FRAMEWORK_NOTE_IN(module_, oldest_, line_)                                                       \
    __attribute__((                                                                                          \
        used, aligned(4),                                                                                    \
        section(".note.byteps"))) static const struct bps_framework_note bps_framework_note_##line_ = {      \
        7, sizeof(struct bps_framework_note_body), BPS_NOTE_FRAMEWORK, "BytePS", {module_, oldest_}}

#ifdef BPS_BUILTIN_MODULE
#define BPS_PLUGIN_NOTE(kind_, name_, version_) struct bps_note
#else
/* Put it once at file scope for each plugin: BPS_PLUGIN_NOTE(BPS_KIND_STAGE, "clip", "1.0"); */
#define BPS_PLUGIN_NOTE(kind_, name_, version_)           BPS_PLUGIN_NOTE_AT(kind_, name_, version_, __LINE__)
#define BPS_PLUGIN_NOTE_AT(kind_, name_, version_, line_) BPS_PLUGIN_NOTE_IN(kind_, name_, version_, line_)
#define BPS_PLUGIN_NOTE_IN(kind_, name_, version_, line_)                                                    \
    __attribute__((used, aligned(4),                                                                         \
                   section(".note.byteps"))) static const struct bps_note bps_plugin_note_##line_ = {        \
        7,                                                                                                   \
        sizeof(struct bps_note_body),                                                                        \
        BPS_NOTE_TYPE,                                                                                       \
        "BytePS",                                                                                            \
        {BPS_PLUGIN_MAGIC, BPS_ABI_MAJOR, BPS_ABI_MINOR, kind_, name_, version_}}
#endif

/* ---- what the core gives to an instance ---------------------------------------------------------------- */

#define BPS_LOG_ERROR 1u
#define BPS_LOG_WARN  2u
#define BPS_LOG_INFO  3u
#define BPS_LOG_DEBUG 4u
#define BPS_LOG_TRACE 5u

#define BPS_READABLE 1u
#define BPS_WRITABLE 2u
#define BPS_HANGUP   4u /* the peer has closed its end, or an error: read until the end */

struct bps_watch; /* a watched descriptor */
struct bps_timer;
struct bps_poller;

/* Called by the loop with the BPS_READABLE, BPS_WRITABLE and BPS_HANGUP that hold; errors set all. */
typedef void (*bps_watch_fn)(void *arg, uint32_t events);
typedef void (*bps_call_fn)(void *arg);

/*
 * Services of the core. One table per instance: pass it back as the first argument. Valid until close
 * returns. Only log, now, alloc and release may be called from other threads than the loop's.
 */
struct bps_host {
    size_t size;
    const char *instance; /* name of this instance in the configuration, for messages */

    /* One line; the core adds time, role, rank and the instance's name. */
    void (*log)(const struct bps_host *host, uint32_t level, const char *format, ...)
        __attribute__((format(printf, 3, 4)));
    uint64_t (*now)(void); /* monotonic nanoseconds */

    /* Memory aligned to `align` (a power of two >= 8); NULL if there is none. */
    void *(*alloc)(const struct bps_host *host, size_t bytes, size_t align);
    void (*release)(const struct bps_host *host, void *memory);

    /*
     * Event loop. A watch is edge-triggered for both directions: read and write until EAGAIN. The instance
     * owns the descriptor and closes it after unwatch. unwatch may be called from any callback; none follows
     * it.
     * NULL: no memory or no descriptor.
     */
    struct bps_watch *(*watch)(const struct bps_host *host, int fd, bps_watch_fn fn, void *arg);
    void (*unwatch)(const struct bps_host *host, struct bps_watch *watch);
    /*
     * Calls fn after delay_ns, and then every period_ns unless that is 0. A one-shot timer is gone after it.
     */
    struct bps_timer *(*timer)(const struct bps_host *host, uint64_t delay_ns, uint64_t period_ns,
                               bps_call_fn fn, void *arg);
    void (*cancel)(const struct bps_host *host, struct bps_timer *timer);
    /*
     * Calls fn once, after the events of this turn of the loop and before it sleeps. The place to batch work.
     */
    void (*defer)(const struct bps_host *host, bps_call_fn fn, void *arg);

    /*
     * Work that no descriptor announces, such as frames in shared memory. `poll` is called in each turn of
     * the loop; it is cheap, does what there is to do, and returns whether there was something. Before the
     * loop sleeps it calls `arm`: from then on until the next `poll`, new work must raise an event of a
     * watched descriptor. False: there is work already, do not sleep. How long a loop polls before it sleeps
     * is its own affair. unpoll as unwatch.
     */
    struct bps_poller *(*poller)(const struct bps_host *host, bool (*poll)(void *arg), bool (*arm)(void *arg),
                                 void *arg);
    void (*unpoll)(const struct bps_host *host, struct bps_poller *poller);

    /* A counter of this instance, shown by name; the address stays valid until close. Add to it freely. */
    uint64_t *(*counter)(const struct bps_host *host, const char *name, const char *help);
};

/* Writes a formatted line into a report, cut if it is too long; a NULL report is ignored. */
#define BPS_REPORT(report, ...)                                                                              \
    do {                                                                                                     \
        if (report) {                                                                                        \
            if (snprintf((report)->text, sizeof(report)->text, __VA_ARGS__) < 0) {                           \
                (report)->text[0] = '\0';                                                                    \
            }                                                                                                \
        }                                                                                                    \
    } while (0)

/* ---- transports --------------------------------------------------------------------------------------- */

/*
 * A transport carries frames over channels. A frame is a header of BPS_HEADER_BYTES and a payload; the first
 * four bytes of the header are the length of the payload, little endian. The rest is the core's affair.
 * A channel is reliable; frames arrive whole and in order, or the channel is closed.
 */
#define BPS_HEADER_BYTES 64u

struct bps_channel; /* the transport's */

/*
 * The payload of a frame that its sender lends instead of sending its bytes, with room for an answer of as
 * many bytes (often the same memory). Where the memory is mapped, `data` and `answer` are addresses in this
 * process; else they are NULL, and the transport's loan_read and loan_write reach it. A loan is held until a
 * frame returns it (bps_frame.returns) or its channel has ended; `closed` is the last moment to touch it.
 */
struct bps_loan {
    const void *data;
    void *answer;
    uint32_t bytes;
};

/* A frame to send. Header and payload stay valid until `sent` is called for it, or drop has returned. */
struct bps_frame {
    const uint8_t *header; /* BPS_HEADER_BYTES; its first word is `bytes` */
    const void *payload;
    uint32_t bytes;
    void *cookie;
    /*
     * Not NULL: the receiver will answer this frame with as many bytes, and they belong here; payload and
     * answer may be the same memory. The transport may then lend both to the receiver. If it has, `sent` is
     * called when the loan comes back, just before `header` of the frame that returns it, and the answer is
     * in its place by then.
     */
    void *answer;
    /* Not NULL: this frame has no payload and returns that loan, whose answer has been written. */
    struct bps_loan *returns;
};

/*
 * Where the payload of an arriving frame goes. The transport presents the bytes in order, starting at 0, by
 * any mix of two ways, until all are taken:
 *  - place: the core may lend the final memory for the bytes from `offset` on. The transport reads up to
 *    *bytes of them straight there and then calls take with that address. NULL: the core has no place for
 *    them now.
 *  - take: the core consumes bytes that lie in any memory (a socket buffer, a sender's pages). It returns how
 *    many it took, from the front: all, or fewer by less than BPS_SINK_GRAIN, because an element is
 *    incomplete; the transport keeps those and presents them again, in front of the bytes that follow. Before
 *    the end of the payload nothing else makes it take fewer. Between place and take no other sink may be
 *    called.
 */
#define BPS_SINK_GRAIN 16u
struct bps_sink {
    void *(*place)(struct bps_sink *sink, uint32_t offset, uint32_t *bytes);
    uint32_t (*take)(struct bps_sink *sink, uint32_t offset, const void *data, uint32_t bytes);
    /*
     * Optional. A transport that lends offers the loan of the whole payload here, before place or take.
     * BPS_OK: the core holds it now. BPS_AGAIN: the core wants the bytes; the transport presents them, and
     * the loan is over with the last.
     */
    bps_status (*lend)(struct bps_sink *sink, struct bps_loan *loan);
    /*
     * Optional, instead of place and take: memory for the whole payload, for a transport that fetches it
     * while further frames come in. It asks before anything else. The memory is the transport's until it
     * calls `placed` with *ticket or the channel has ended; the sink is free for the next frame at once.
     * NULL: the core has no such place now, go on with place and take. A channel has no more than
     * BPS_PLACES_LIMIT open at once.
     */
    void *(*open)(struct bps_sink *sink, void **ticket);
};
#define BPS_PLACES_LIMIT 16u

/*
 * Memory that payloads lie in: what the application has shared with the core, a mapping of a file that other
 * processes can map as well; the core's own, which they cannot; or memory of a device, which the host cannot
 * touch.
 */
struct bps_region {
    void *memory; /* aligned to a page */
    uint64_t bytes;
    int fd;          /* of a sealed memfd, or -1: none can map it; of a dma-buf on a device */
    uint64_t offset; /* in the file */
    bool on_device;
};

/* What the core wants to hear of a channel; `user` is the pointer given with them. */
struct bps_channel_events {
    /* An outgoing channel is usable. */
    void (*connected)(void *user);
    /*
     * A header has arrived. *sink receives the place for its payload; it is ignored when that is empty. An
     * error means that the peer is not trusted: the transport discards the channel and calls closed with that
     * status. The core may call drop on this channel from here.
     */
    bps_status (*header)(void *user, const uint8_t *header, struct bps_sink **sink);
    /*
     * The transport can send now: which frame? BPS_AGAIN: none; the core will kick when there is one. Ask as
     * late as possible, when the bytes can really leave, so that the most urgent frame goes first.
     */
    bps_status (*next)(void *user, struct bps_frame *out);
    /* The memory of a frame is no longer needed by the transport. */
    void (*sent)(void *user, void *cookie);
    /*
     * The channel has ended, by the peer or an error; text says why. Frames not yet sent are forgotten: no
     * `sent` for them, while it has been called for all that were. The channel is freed when this returns.
     * Never called after drop.
     */
    void (*closed)(void *user, bps_status status, const char *text);
    /* A payload is whole in the place that its sink has opened. Later frames may have come before. */
    void (*placed)(void *user, void *ticket);
};

/*
 * A peer has connected. Returns the events and, in *user, their argument; or NULL to refuse. `peer` is the
 * peer's address for messages.
 */
typedef const struct bps_channel_events *(*bps_accept_fn)(void *arg, struct bps_channel *channel,
                                                          const char *peer, void **user);

struct bps_transport_attr {
    uint32_t lanes; /* how many channels to each peer pay (streams, interfaces); at least 1 */
    bool local;     /* reaches only processes of the same host */
    /*
     * Not 0: regions on devices can be attached. Payloads of so many bytes and more may then lie there, and
     * for such ones that arrive, the sink is asked to open a place, which may lie there, too.
     */
    uint32_t device_bytes;
};

struct bps_transport_ops {
    size_t size;
    bps_status (*open)(const struct bps_host *host, const void *options, void **instance_out,
                       struct bps_report *report);
    void (*close)(void *instance); /* all channels have been dropped before */
    void (*query)(void *instance, struct bps_transport_attr *out);
    /*
     * Accepts channels on an address "host:port"; port 0 is any free port, an empty host is the instance's
     * own choice (its configured interface, else loopback). actual[n] receives the address that peers can
     * dial.
     */
    bps_status (*listen)(void *instance, const char *address, bps_accept_fn accept, void *arg, char *actual,
                         size_t n, struct bps_report *report);
    /*
     * Starts to connect; connected or closed follows, never from within this call. `lane` counts from 0.
     * The core calls it again after a refusal if it wants to.
     */
    bps_status (*dial)(void *instance, const char *address, uint32_t lane,
                       const struct bps_channel_events *events, void *user, struct bps_channel **out,
                       struct bps_report *report);
    void (*kick)(struct bps_channel *channel); /* `next` has frames now; cheap, may be called often */
    /*
     * Sends what `next` still gives until BPS_AGAIN, then closes; closed
     * follows, never from within this call.
     */
    void (*finish)(struct bps_channel *channel);
    /* Ends the channel now. No callback follows, no memory of frames, sinks or places is used any more. */
    void (*drop)(struct bps_channel *channel);
    /*
     * The host part of the channel's own address, IPv6 in brackets: where other members on the same network
     * can reach this host. host + ":0" is good for listen.
     */
    void (*local_host)(struct bps_channel *channel, char *host, size_t n);
    /* Optional: one line about the instance for `byteps graph --explain`. */
    void (*describe)(void *instance, char *text, size_t n);
    /*
     * With loans: copies between a loan that is not mapped and memory
     * here. An error means that the peer is lost.
     */
    bps_status (*loan_read)(struct bps_channel *channel, struct bps_loan *loan, uint32_t offset, void *to,
                            uint32_t bytes);
    bps_status (*loan_write)(struct bps_channel *channel, struct bps_loan *loan, uint32_t offset,
                             const void *from, uint32_t bytes);
    /*
     * Optional. Frames and places may lie in this region from now on, so that the transport can prepare for
     * it; without attach they may as well, but not on a device. detach: none does any more. The region is the
     * core's and stays in its place in between.
     */
    bps_status (*attach)(void *instance, const struct bps_region *region, struct bps_report *report);
    void (*detach)(void *instance, const struct bps_region *region);
};

/* ---- reducers ----------------------------------------------------------------------------------------- */

/*
 * The arithmetic of the summation service, and the way to the memory of devices.
 *
 * Elements of type T are accumulated in type A: float32 for floating point
 * of 8 and 16 bits, T for all others. Any alignment of any pointer, any count, 0 included. Elementwise, left
 * to right: results are repeatable bit by bit and do not depend on where a buffer is cut. Thread-safe.
 *
 * Scales multiply in the precision of A. Integers are multiplied in float64, truncated, and become the nearest
 * number that T holds. For integers and bool divisors are 1; for bool scales are, too.
 *
 * The average of integers has `reduce` alone, and NULL for the others: (src[0] + ... + src[n-1]) / divisor,
 * each scaled as above, with a sum that does not wrap. The quotient is rounded to minus infinity; with a scale
 * it is scale * sum / divisor in float64, truncated. The divisor is at least n.
 */
struct bps_kernels {
    uint32_t accumulator; /* dtype A */
    /* acc = scale * src. Must allow A == T with acc == src. */
    void (*first)(void *acc, const void *src, size_t count, double scale);
    /* acc = acc op scale * src */
    void (*fold)(void *acc, const void *src, size_t count, double scale);
    /*
     * dst = T(scale * acc / divisor). dst may be equal to acc, even where T is narrower than A. For floating
     * point the factor is A(scale / divisor).
     */
    void (*finish)(void *dst, const void *acc, size_t count, double scale, uint64_t divisor);
    /*
     * All of it in one pass over n >= 1 sources: dst = finish(first(src[0]) fold src[1] ... fold src[n-1]),
     * bit by bit the same as those steps. scales[n], or NULL for all 1. dst may be equal to one of the src.
     */
    void (*reduce)(void *dst, const void *const *src, const double *scales, unsigned n, size_t count,
                   double scale, uint64_t divisor);
};

/*
 * Device memory: how tensors in it get to the host and back. Work on a device is ordered by streams, the
 * application's and the reducer's own ones for its copies. A mark is a point in that work: it is reached when
 * everything before it is done.
 */
struct bps_mark; /* the reducer's */

/* An error means that the device does not work any more; `text` says why. */
typedef void (*bps_device_fn)(void *arg, bps_status status, const char *text);

/* A copy between a device and the host. Its memory stays valid until `done` is called, or close returns. */
struct bps_copy {
    int32_t device; /* its index */
    bool to_device;
    void *to;
    const void *from;
    uint64_t bytes;
    bps_device_fn done; /* called once, on the loop and never from within `copy`, when the bytes are there */
    void *arg;
};

/* A reduction on a device, where all of its memory lies until `done` is called, or close returns. */
#define BPS_REDUCTION_SOURCES 8u
struct bps_reduction {
    int32_t device; /* its index */
    uint32_t op, dtype;
    unsigned n; /* sources, 1 to BPS_REDUCTION_SOURCES */
    const void *src[BPS_REDUCTION_SOURCES];
    void *dst;            /* may be equal to one of the sources */
    const double *scales; /* one for each source, or NULL for all 1; read within the call */
    uint64_t count;
    double scale;
    uint64_t divisor;   /* at least 1; for integers and bool 1 */
    bps_device_fn done; /* called once, on the loop and never from within `reduce`, when it is done */
    void *arg;
};

/*
 * Groups: operations among the devices of several processes of one host, one device of each. Their places
 * count from 0. What a group is to do comes in batches of steps, the same in all its processes and in the
 * same order; only the addresses differ. One batch follows the other; the steps of a batch have nothing to do
 * with each other, and are done in any order.
 */
struct bps_group; /* the reducer's */

#define BPS_GROUP_NAME_BYTES     128u
#define BPS_GROUP_IDENTITY_BYTES 16u

struct bps_group_seat {
    const uint8_t *name; /* BPS_GROUP_NAME_BYTES, that one of them has made */
    uint32_t place, size;
    int32_t device;
    /* Called once, on the loop and never from within `join`: all are there, or the group does not work. */
    bps_device_fn joined;
    void *arg;
};

#define BPS_STEP_REDUCE     0u /* `from` of all, combined, goes to `to` of the root; no other `to` is used */
#define BPS_STEP_BROADCAST  1u /* `from` of the root goes to `to` of all; no other `from` is used */
#define BPS_STEP_ALL_REDUCE 2u /* `from` of all, combined, goes to `to` of all */

#define BPS_STEPS_LIMIT 64u /* of a batch */

/* `from` and `to` lie on the device of this process, and may be the same. */
struct bps_group_step {
    uint32_t kind; /* BPS_STEP_* */
    uint32_t op;   /* BPS_SUM and so on; an average is divided by the size of the group */
    uint32_t dtype, root;
    const void *from;
    void *to;
    uint64_t count; /* elements */
};

/* None of them is optional. All are called on the loop. */
struct bps_group_ops {
    size_t size;
    /* Are there groups in this process? The text says by what, such as "NCCL 2.21.5"; the report why not. */
    bps_status (*query)(void *instance, char *text, size_t n, struct bps_report *report);
    /*
     * True if the steps of a group of this size may combine this type so, with the results of `reduce`, but
     * for the order of a sum. It answers alike each time; the first time may take as long as loading kernels.
     */
    bool (*takes)(void *instance, int32_t device, uint32_t size, uint32_t op, uint32_t dtype);
    /* What tells a device from all others of this host, in all its processes: BPS_GROUP_IDENTITY_BYTES. */
    bps_status (*identify)(void *instance, int32_t device, uint8_t *identity, struct bps_report *report);
    /* A name for a new group: BPS_GROUP_NAME_BYTES. */
    bps_status (*name)(void *instance, uint8_t *name, struct bps_report *report);
    /* Batches may be given as soon as this has returned. The group is there until the instance is closed. */
    bps_status (*join)(void *instance, const struct bps_group_seat *seat, struct bps_group **out,
                       struct bps_report *report);
    /*
     * Gives a batch of 1 to BPS_STEPS_LIMIT steps. `done` is called once, on the loop and never from within
     * this call, when its memory is not used any more: the steps are done, or the group has failed.
     */
    bps_status (*run)(struct bps_group *group, const struct bps_group_step *steps, uint32_t n,
                      bps_device_fn done, void *arg, struct bps_report *report);
    /* Nothing follows: all batches are done, here and elsewhere. */
    void (*leave)(struct bps_group *group);
    /* Others may be lost: nothing waits for them any more, and what is not done fails. */
    void (*abort)(struct bps_group *group);
};

/* Memory of a device that others reach: none of these operations is optional. */
struct bps_share_ops {
    size_t size;
    /*
     * What was allocated at once, around an address: a number that no other piece has or has had in this
     * process; 0: it is not known. Any thread.
     */
    uint64_t (*allocation)(void *instance, int32_t device, const void *memory);
    /*
     * A region on the device: whole pages of one allocation, that have all of these bytes. The caller closes
     * its descriptor. BPS_ERR_UNSUPPORTED: others cannot reach it. Any thread.
     */
    bps_status (*region)(void *instance, int32_t device, const void *memory, uint64_t bytes,
                         struct bps_region *out, struct bps_report *report);
    /* What others have written to the device is seen by all its work that begins from now on. On the loop. */
    bps_status (*settle)(void *instance, int32_t device, struct bps_report *report);
};

struct bps_device_ops {
    size_t size;
    uint32_t type; /* of the devices: BPS_DEVICE_CUDA */
    /*
     * A mark behind all work that the stream of `device` has been given so far; the caller owns it. Any
     * thread. BPS_ERR_INVALID: there is no such device. BPS_ERR_STATE: the stream is being captured into a
     * graph, whose later runs would leave this out. The report has the reason.
     */
    bps_status (*mark)(void *instance, const struct bps_device *device, struct bps_mark **out,
                       struct bps_report *report);
    /* A mark behind all copies to the device and reductions that were begun so far. On the loop. */
    bps_status (*mark_copies)(void *instance, int32_t device, struct bps_mark **out,
                              struct bps_report *report);
    /* What the stream is given from now on waits for the mark. The host does not wait. Any thread. */
    bps_status (*follow)(void *instance, const struct bps_device *device, struct bps_mark *mark,
                         struct bps_report *report);
    /* Calls `reached` once, on the loop and never from within this call. On the loop. */
    bps_status (*await)(void *instance, struct bps_mark *mark, bps_device_fn reached, void *arg,
                        struct bps_report *report);
    /* Gives back a mark that nobody awaits. Any thread. */
    void (*release)(void *instance, struct bps_mark *mark);
    /*
     * Begins a copy, on the loop. Those of one direction are done in the order of these calls; both
     * directions run at once.
     */
    bps_status (*copy)(void *instance, const struct bps_copy *copy, struct bps_report *report);
    /*
     * Copies may be from and to this region of host memory from now on, so that the reducer can prepare for
     * it; without attach they may as well. detach: none does any more. On the loop, or before it runs.
     */
    bps_status (*attach)(void *instance, const struct bps_region *region, struct bps_report *report);
    void (*detach)(void *instance, const struct bps_region *region);
    /*
     * Optional, both or neither. Whether this device reduces such elements itself; it answers alike each
     * time, and the first time may take as long as loading its kernels does. Any thread.
     */
    bool (*can_reduce)(void *instance, int32_t device, uint32_t op, uint32_t dtype);
    /*
     * Begins a reduction that can_reduce() has allowed: what `reduce` of struct bps_kernels does, to the bit.
     * On the loop. Reductions and copies to the device are done in the order of these calls.
     */
    bps_status (*reduce)(void *instance, const struct bps_reduction *reduction, struct bps_report *report);
    /* Optional: its devices can form groups. */
    const struct bps_group_ops *group;
    /* Optional: other devices, such as those of the network, can read and write its memory. */
    const struct bps_share_ops *share;
};

struct bps_reducer_ops {
    size_t size;
    bps_status (*open)(const struct bps_host *host, const void *options, void **instance_out,
                       struct bps_report *report);
    /*
     * Waits for the copies, reductions and batches under way, whose `done` is not called any more; it aborts
     * groups that have not been left. All marks have been released.
     */
    void (*close)(void *instance);
    /*
     * The kernels for BPS_SUM, BPS_MIN, BPS_MAX or BPS_PRODUCT of a type, or BPS_AVERAGE of integers (that of
     * floating point is a sum with a divisor), on host memory. BPS_ERR_UNSUPPORTED if it has none. Called
     * from any thread.
     */
    bps_status (*kernels)(void *instance, uint32_t op, uint32_t dtype, struct bps_kernels *out);
    /* Optional: one line, such as the instruction set in use. */
    void (*describe)(void *instance, char *text, size_t n);
    /* Optional: it has devices. Its operations must be there, but for those that are optional. */
    const struct bps_device_ops *device;
};

/* ---- compressors -------------------------------------------------------------------------------------- */

/*
 * A compressor codes slices of tensors, so that they need fewer bytes on their way, and makes elements of
 * what has arrived. It keeps nothing between two calls: what coding has lost is the core's to keep (error
 * feedback). Any alignment of any pointer, any count, 0 included. Thread-safe.
 */
struct bps_compressor_ops {
    size_t size;
    bps_status (*open)(const struct bps_host *host, const void *options, void **instance_out,
                       struct bps_report *report);
    void (*close)(void *instance);
    /* Bytes that `count` elements of that type need at most when coded; 0: it does not code this type. */
    size_t (*bound)(void *instance, uint32_t dtype, size_t count);
    /* Codes the elements at src into dst, which has room for bound() bytes; how many it has written. */
    size_t (*encode)(void *instance, uint32_t dtype, const void *src, size_t count, void *dst);
    /*
     * dst = the elements that src stands for. The bytes come from a peer and are not trusted:
     * BPS_ERR_PROTOCOL if they cannot be what encode makes of so many elements; dst is undefined then.
     */
    bps_status (*decode)(void *instance, uint32_t dtype, const void *src, size_t bytes, void *dst,
                         size_t count);
    /* The same, but dst += these elements. */
    bps_status (*decode_add)(void *instance, uint32_t dtype, const void *src, size_t bytes, void *dst,
                             size_t count);
    /* Optional: one line. */
    void (*describe)(void *instance, char *text, size_t n);
};

/* ---- stages ------------------------------------------------------------------------------------------- */

#define BPS_MEMORY_HOST   1u
#define BPS_MEMORY_DEVICE 2u

#define BPS_DTYPE_BIT(dtype) (1u << (dtype))
#define BPS_OP_BIT(op)       (1u << (op))

/* Which thread runs a stage. */
#define BPS_EXECUTOR_IO  0u /* the worker's core thread: for what takes microseconds */
#define BPS_EXECUTOR_CPU 1u /* a pool of threads */

/* What a stage takes and gives. The core checks it against its neighbours when the graph is built. */
struct bps_stage_attr {
    uint32_t ops;      /* BPS_OP_BIT mask: operations whose tensors pass this stage; others go around it */
    uint32_t dtypes;   /* BPS_DTYPE_BIT mask of types it can take */
    uint32_t memory;   /* BPS_MEMORY_* mask it can take */
    uint32_t executor; /* BPS_EXECUTOR_* */
    uint32_t writes;   /* 1: it changes the data, 0: it only looks */
    const char *takes; /* coding of the data it takes: "plain" */
    const char *gives; /* coding of the data it gives */
};

/* A tensor as a stage sees it. Strings live as long as the binding. */
struct bps_tensor_info {
    const char *name;
    uint32_t dtype;
    uint32_t op;
    uint64_t count; /* elements of the whole tensor */
    uint32_t partitions;
    uint32_t memory; /* BPS_MEMORY_*: where the application has it; stages see a copy in host memory */
};

/* One partition in one round. It and its memory are the stage's until the stage has answered. */
struct bps_stage_task {
    uint32_t partition;
    uint32_t round;
    uint64_t first;  /* index of its first element in the tensor */
    uint64_t count;  /* elements */
    const void *src; /* the data */
    void *dst;       /* where a stage that writes puts its result, count elements; may be equal to src */
    /*
     * The answer to a task for which run has returned BPS_INPROGRESS: exactly once, from run or from any callback of
     * the stage's loop. With an error and its text it is as if run had returned them; the text is copied.
     */
    void (*done)(const struct bps_stage_task *task, bps_status status, const char *text);
};

struct bps_stage_ops {
    size_t size;
    bps_status (*open)(const struct bps_host *host, const void *options, void **instance_out,
                       struct bps_report *report);
    void (*close)(void *instance);
    void (*query)(void *instance, struct bps_stage_attr *out);
    /*
     * Optional. Called once per tensor, before its first task. *state_out (initially NULL) is passed to run.
     * BPS_AGAIN: nothing to do for this tensor, leave the stage out of its path. An error fails the
     * push_pull.
     */
    bps_status (*bind)(void *instance, const struct bps_tensor_info *tensor, void **state_out,
                       struct bps_report *report);
    void (*unbind)(void *instance, void *state);
    /*
     * Processes one task. An error fails this round of the tensor on every worker, with the report's text.
     * With BPS_EXECUTOR_CPU it is called on several threads at once, for different tasks. With BPS_EXECUTOR_IO it may
     * return BPS_INPROGRESS and answer later, by task->done: nothing else waits for that.
     */
    bps_status (*run)(void *instance, void *state, const struct bps_stage_task *task,
                      struct bps_report *report);
    /* Optional: one line. */
    void (*describe)(void *instance, char *text, size_t n);
    /*
     * Optional: the job has failed, or the worker leaves it, before the stage has answered. It answers now, or soon,
     * with whatever status: nobody waits for the result, but the memory cannot be given back before.
     */
    void (*cancel)(void *instance, void *state, const struct bps_stage_task *task);
};

#ifdef __cplusplus
}
#endif
#endif
