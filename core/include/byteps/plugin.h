/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plugin.h - what every plugin needs: its module, its note, its options, and what the core gives it.
 *
 * A plugin includes the header of its kind, which includes this one: transport.h, reducer.h (and device.h, if it has
 * devices), compressor.h, stage.h, launcher.h or framework.h.
 *
 * A plugin is a shared object KIND_NAME.so (transport_tcp.so) in the plugin directory. It exports one function,
 * bps_plugin_module(), which returns a static `struct bps_module`: a list of plugin descriptors. It never links to
 * libbyteps: what it needs of the core comes in a `struct bps_host`. It is opened only when the configuration names it,
 * with RTLD_NOW | RTLD_LOCAL, and stays loaded while the process lives. Kind, name and ABI also stand in an ELF note
 * (BPS_PLUGIN_NOTE), so that a plugin is listed, and a wrong file refused, before any of its code runs.
 *
 * Threads: an instance is driven by its event loop, on one thread at a time: the loop's own one, or one of
 * the application's that waits for an operation and drives the loop meanwhile. Instances may run beside each
 * other in one process; so plugins keep no mutable global state and need no locks. Exceptions are named where they
 * occur. byteps-plugin(7) has the order of calls, and a table of them, for each kind.
 * Blocking: nothing but open and close may block, and what launchers wait for.
 * Versions: members of a job that have loaded plugins of one kind and name must have them in one version and format.
 * Opening: where open returns BPS_OK it has set *instance_out, which all other callbacks get, and which may be NULL;
 * else nothing is left of it, as close does not follow. Texts for a report or a callback are copied at once.
 * Statuses: a callback returns BPS_OK or an error, BPS_ERR_*, others only where its comment allows them; a `done` gets
 * one of these, too. Anything else is taken for BPS_ERR_PLUGIN, and the error names plugin, callback and value.
 * ABI: a plugin works with every BytePS of the same major. A newer minor adds to the end of structs; what an older
 * plugin has not set counts as 0 or NULL, as does an operation that is optional. A plugin that uses what is newer than
 * 1.0 looks at host->abi_minor first. docs/abi.md has the rules, and what each minor has brought.
 */
#ifndef BYTEPS_PLUGIN_H
#define BYTEPS_PLUGIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <byteps/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BPS_ABI_MAJOR 1u
#define BPS_ABI_MINOR 2u

#define BPS_PLUGIN_MAGIC 0x53504221u /* "!BPS" */

/* Kinds of plugins. */
#define BPS_KIND_TRANSPORT  1u
#define BPS_KIND_REDUCER    2u
#define BPS_KIND_COMPRESSOR 3u
#define BPS_KIND_FRAMEWORK  4u /* loaded by the framework, listed here */
#define BPS_KIND_STAGE      5u
#define BPS_KIND_LAUNCHER   6u /* searched, not configured */

/* ---- options ------------------------------------------------------------------------------------------ */

/*
 * A plugin's options are rows of a table: BPS_OPTION, below, makes one. The core parses and checks them, and makes
 * error messages, documentation and sample files from them. open gets a filled struct, which is valid until close.
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

/*
 * A row for a field of that name, which does not compile where the field has not the type of BPS_OPT_TYPE:
 *
 *     BPS_OPTION(struct clip_options, limit, DOUBLE, BPS_OPT_AGREE, "1.0", "1e-30..1e30", "The largest magnitude."),
 */
#define BPS_OPTION(struct_, field_, TYPE_, flags_, fallback_, range_, help_)                                           \
    {#field_,   BPS_OPT_##TYPE_,                                                                                       \
     flags_,    offsetof(struct_, field_) + 0 * BPS_OPTION_IS(struct_, field_, BPS_OPTION_OF_##TYPE_),                 \
     fallback_, range_,                                                                                                \
     help_}
#define BPS_OPTION_OF_BOOL   bool
#define BPS_OPTION_OF_INT    int64_t
#define BPS_OPTION_OF_SIZE   uint64_t
#define BPS_OPTION_OF_TIME   uint64_t
#define BPS_OPTION_OF_DOUBLE double
#define BPS_OPTION_OF_STRING const char *
#define BPS_OPTION_OF_CHOICE uint32_t
#define BPS_OPTION_OF_LIST   struct bps_list
#ifdef __cplusplus
#define BPS_OPTION_IS(struct_, field_, type_) sizeof(static_cast<type_ *>(&static_cast<struct_ *>(nullptr)->field_))
#elif defined __STDC_VERSION__ && __STDC_VERSION__ >= 201112L
#define BPS_OPTION_IS(struct_, field_, type_) sizeof(_Generic(&((struct_ *)0)->field_, type_ *: 0))
#else
#define BPS_OPTION_IS(struct_, field_, type_) sizeof(&((struct_ *)0)->field_ == (type_ *)0) /* which warns only */
#endif

/* ---- the module --------------------------------------------------------------------------------------- */

struct bps_plugin {
    size_t size;                      /* sizeof(struct bps_plugin) */
    uint32_t kind;                    /* BPS_KIND_* */
    const char *name;                 /* [a-z][a-z0-9_]*, at most 31 bytes: the NAME of KIND_NAME.so */
    const char *summary;              /* one line */
    const struct bps_option *options; /* ends with a row whose name is NULL; NULL: no options */
    size_t options_size;              /* bytes of the option struct */
    const void *ops;                  /* struct bps_transport_ops and so on, by kind */
    uint32_t format;                  /* raise it when earlier versions do not read or sum alike what this one writes */
    uint32_t option_size;             /* sizeof(struct bps_option); BPS_PLUGIN_MODULE sets it */
};

struct bps_module {
    uint32_t magic;      /* BPS_PLUGIN_MAGIC */
    uint32_t size;       /* sizeof(struct bps_module) */
    uint32_t abi_major;  /* BPS_ABI_MAJOR */
    uint32_t abi_minor;  /* BPS_ABI_MINOR */
    const char *name;    /* of the module */
    const char *version; /* of the module: printable characters, but no ';' */
    const char *license; /* SPDX identifier */
    uint32_t nplugins;
    const struct bps_plugin *const *plugins; /* nplugins pointers */
};

/* The one exported function. Only a plugin that is built into libbyteps has another name for it. */
#ifdef BPS_BUILTIN_MODULE
#define BPS_PLUGIN_ENTRY BPS_BUILTIN_MODULE
#else
#define BPS_PLUGIN_ENTRY bps_plugin_module
#endif
BPS_API const struct bps_module *BPS_PLUGIN_ENTRY(void);

/* ELF note "BytePS", of type BPS_NOTE_TYPE: one for each plugin of the module; each has a file or link KIND_NAME.so. */
#define BPS_NOTE_TYPE 1u
struct bps_note {
    uint32_t namesz, descsz, type;
    char owner[8]; /* "BytePS" */
    struct bps_note_body {
        uint32_t magic, abi_major, abi_minor, kind;
        char name[32];
        char version[32];
    } body;
};

/* A note at file scope. Newer clang has words about __COUNTER__ with -Wpedantic: it takes one on a line. */
#ifdef BPS_BUILTIN_MODULE
#define BPS_NOTE(struct_, type_, ...) struct bps_note
#elif defined(__clang_major__) && __clang_major__ >= 21
#define BPS_NOTE(struct_, type_, ...) BPS_NOTE_AT(struct_, type_, __LINE__, __VA_ARGS__)
#else
#define BPS_NOTE(struct_, type_, ...) BPS_NOTE_AT(struct_, type_, __COUNTER__, __VA_ARGS__)
#endif
#define BPS_NOTE_AT(struct_, type_, line_, ...) BPS_NOTE_IN(struct_, type_, line_, __VA_ARGS__)
#define BPS_NOTE_IN(struct_, type_, line_, ...)                                                                        \
    __attribute__((used, aligned(4), section(".note.byteps"))) static const struct_ bps_note_##line_ = {               \
        7, sizeof(((struct_ *)0)->body), type_, "BytePS", {__VA_ARGS__}}

/*
 * The end of a plugin's file, in C: its note, and the entry with a module of this one plugin. After the license come
 * the other fields of struct bps_plugin:
 *
 *     BPS_PLUGIN_MODULE(BPS_KIND_STAGE, "clip", "1.0", "Apache-2.0", .summary = "limits every element",
 *                       .options = clip_options, .options_size = sizeof(struct clip_options), .ops = &clip_ops);
 *
 * C++, and a module of several plugins, write its two parts: BPS_PLUGIN_NOTE for each plugin, and BPS_PLUGIN_ENTRY.
 */
#define BPS_PLUGIN_MODULE(kind_, name_, version_, license_, ...)                                                       \
    BPS_PLUGIN_NOTE(kind_, name_, version_);                                                                           \
    const struct bps_module *BPS_PLUGIN_ENTRY(void)                                                                    \
    {                                                                                                                  \
        static const struct bps_plugin bps_one = {sizeof(struct bps_plugin), kind_, name_, __VA_ARGS__,                \
                                                  .option_size = sizeof(struct bps_option)};                           \
        static const struct bps_plugin *const bps_all[] = {&bps_one};                                                  \
        static const struct bps_module bps_module = {                                                                  \
            BPS_PLUGIN_MAGIC, sizeof(struct bps_module), BPS_ABI_MAJOR, BPS_ABI_MINOR, name_, version_, license_, 1,   \
            bps_all};                                                                                                  \
        return &bps_module;                                                                                            \
    }                                                                                                                  \
    struct bps_module
#define BPS_PLUGIN_NOTE(kind_, name_, version_)                                                                        \
    BPS_NOTE(struct bps_note, BPS_NOTE_TYPE, BPS_PLUGIN_MAGIC, BPS_ABI_MAJOR, BPS_ABI_MINOR, kind_, name_, version_)

/* ---- what the core gives to an instance ---------------------------------------------------------------- */

#define BPS_LOG_ERROR 1u
#define BPS_LOG_WARN  2u
#define BPS_LOG_INFO  3u
#define BPS_LOG_DEBUG 4u
#define BPS_LOG_TRACE 5u
#define BPS_READABLE  1u
#define BPS_WRITABLE  2u
#define BPS_HANGUP    4u /* the peer has closed its end, or an error: read until the end */
struct bps_watch;        /* a watched descriptor */
struct bps_timer;
struct bps_poller;

/* Called by the loop with the BPS_READABLE, BPS_WRITABLE and BPS_HANGUP that hold; errors set all. */
typedef void (*bps_watch_fn)(void *arg, uint32_t events);
typedef void (*bps_call_fn)(void *arg);

/*
 * Services of the core. One table per instance: pass it back as the first argument. Valid until close returns. log,
 * now, alloc, release, and what follows undefer may be called from any thread, all others from the loop's alone, and
 * from open and close. Compressors, launchers, and stages in `byteps conf check` have no loop: there watch, timer and
 * poller return NULL, and what is deferred is an error in the log.
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
     * Event loop. A watch is edge-triggered for both directions: read and write until EAGAIN. The instance owns the
     * descriptor and closes it after unwatch, which may be called from any callback; none follows it. What is watched,
     * timed or polled is ended before close returns. NULL: no memory or no descriptor.
     */
    struct bps_watch *(*watch)(const struct bps_host *host, int fd, bps_watch_fn fn, void *arg);
    void (*unwatch)(const struct bps_host *host, struct bps_watch *watch);
    /* Calls fn after delay_ns, and then every period_ns unless that is 0. A one-shot timer is gone after it. */
    struct bps_timer *(*timer)(const struct bps_host *host, uint64_t delay_ns, uint64_t period_ns, bps_call_fn fn,
                               void *arg);
    void (*cancel)(const struct bps_host *host, struct bps_timer *timer);
    /*
     * Calls fn once for each defer, after the events of this turn of the loop and before it sleeps; what fn defers, in
     * the next turn. The place to batch work. Calls that have not been made when close returns never are.
     */
    void (*defer)(const struct bps_host *host, bps_call_fn fn, void *arg);

    /*
     * Work that no descriptor announces, such as frames in shared memory. `poll` is called in each turn of the loop; it
     * is cheap, does what there is to do, and returns whether there was something. Before the loop sleeps it calls
     * `arm`: from then on until the next `poll`, new work must raise an event of a watched descriptor. False: there is
     * work already, do not sleep. How long a loop polls before it sleeps is its own affair. unpoll as unwatch.
     */
    struct bps_poller *(*poller)(const struct bps_host *host, bool (*poll)(void *arg), bool (*arm)(void *arg),
                                 void *arg);
    void (*unpoll)(const struct bps_host *host, struct bps_poller *poller);

    /* A counter of this instance, which the log shows at close (info); several threads add atomically. */
    uint64_t *(*counter)(const struct bps_host *host, const char *name, const char *help);
    /* Takes back the calls of fn with arg that defer has been given and that have not been made yet. */
    void (*undefer)(const struct bps_host *host, bps_call_fn fn, void *arg);
    /* Whether lines of this level are written: so that a plugin need not put together what nobody reads. */
    bool (*logs)(const struct bps_host *host, uint32_t level);
    /* What types.h declares for applications, of the same names: bytes of an element, and words for messages. */
    size_t (*dtype_size)(uint32_t dtype);
    const char *(*dtype_name)(uint32_t dtype), *(*op_name)(uint32_t op);
    const char *(*status_text)(bps_status status);
    uint32_t abi_minor; /* of this BytePS: structs of the core have what came with it, and so far go the services */
};

/*
 * Memory that payloads lie in: what the application has shared with the core, a mapping of a file that other processes
 * can map as well; the core's own, which they cannot; or memory of a device, which the host cannot touch.
 */
struct bps_region {
    void *memory; /* aligned to a page */
    uint64_t bytes;
    int fd;          /* of a sealed memfd, or -1: none can map it; of a dma-buf on a device */
    uint64_t offset; /* in the file */
    bool on_device;
};

/* Writes a formatted line into a report, cut if it is too long; a NULL report is ignored. */
#define BPS_REPORT(report, ...)                                                                                        \
    do {                                                                                                               \
        if (report) {                                                                                                  \
            if (snprintf((report)->text, sizeof(report)->text, __VA_ARGS__) < 0) {                                     \
                (report)->text[0] = '\0';                                                                              \
            }                                                                                                          \
        }                                                                                                              \
    } while (0)

#ifdef __cplusplus
}
#endif
#endif
