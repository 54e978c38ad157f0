/* SPDX-License-Identifier: Apache-2.0 */
/*
 * framework.h - what a framework binding declares about itself.
 *
 * A binding is loaded by its framework, links to libbyteps and calls the functions of byteps.h. It exports no module:
 * the notes in its file are what it is listed by, and a record names it where it runs.
 */
#ifndef BYTEPS_FRAMEWORK_H
#define BYTEPS_FRAMEWORK_H

#include <byteps/plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * ELF note "BytePS" of type BPS_NOTE_FRAMEWORK: one for each framework that the binding serves, beside that of the
 * plugin. It has the module by which Python imports the framework, and the oldest version that works, "0" for any. A
 * binding of another language has no such note.
 */
#define BPS_NOTE_FRAMEWORK 2u
struct bps_framework_note {
    uint32_t namesz, descsz, type;
    char owner[8]; /* "BytePS" */
    struct bps_framework_note_body {
        char module[32]; /* "tensorflow" */
        char oldest[32]; /* "2.13" */
    } body;
};

/* Put it once at file scope of a binding for each framework: BPS_FRAMEWORK_NOTE("tensorflow", "2.13"); */
#define BPS_FRAMEWORK_NOTE(module_, oldest_) BPS_NOTE(struct bps_framework_note, BPS_NOTE_FRAMEWORK, module_, oldest_)

#define BPS_BINDING_ABI 1u

/* The record of a binding, so that `byteps info` and the log can name it. Static memory. */
struct bps_binding {
    size_t size;           /* sizeof(struct bps_binding) */
    uint32_t abi;          /* BPS_BINDING_ABI */
    const char *name;      /* "python" */
    const char *version;   /* of the binding */
    const char *framework; /* "CPython 3.11.7" */
};

/* Refuses (BPS_ERR_PLUGIN) a record of another ABI. A binding calls it once when it is loaded. */
BPS_API bps_status bps_binding_register(const struct bps_binding *binding, struct bps_report *report);

#ifdef __cplusplus
}
#endif
#endif
