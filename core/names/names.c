/* SPDX-License-Identifier: Apache-2.0 */
/* names.c - the table of tensors: by name, by slot, and the unnamed ones, used again and again. */
#include "names/names.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/report.h"

bps_status bps_names_init(struct bps_names *names, const struct bps_named_ops *ops)
{
    bps_assert(ops->bytes >= sizeof(struct bps_named));
    memset(names, 0, sizeof *names);
    names->ops = ops;
    TAILQ_INIT(&names->unused);
    atomic_store(&names->count, 1); /* slot 0 is no tensor */
    return pthread_mutex_init(&names->lock, NULL) == 0 ? BPS_OK : BPS_ERR_NOMEM;
}

static void named_free(struct bps_named *named)
{
    named->names->ops->fini(named);
    bps_form_fini(&named->form);
    free(named->words);
    free(named->name);
    free(named);
}

void bps_names_fini(struct bps_names *names)
{
    uint32_t count = atomic_load(&names->count);
    HASH_CLEAR(hh, names->by_name);
    for (uint32_t slot = 1; slot < count; slot++) {
        named_free(names->chunk[slot / BPS_CHUNK_SLOTS][slot % BPS_CHUNK_SLOTS]);
    }
    for (uint32_t i = 0; i < BPS_CHUNKS_LIMIT; i++) {
        free(names->chunk[i]);
    }
    pthread_mutex_destroy(&names->lock);
}

/* Adds an entry to the table. */
static struct bps_named *named_new(struct bps_names *names)
{
    uint32_t slot = atomic_load_explicit(&names->count, memory_order_relaxed);
    if (slot / BPS_CHUNK_SLOTS >= BPS_CHUNKS_LIMIT) {
        return NULL;
    }
    struct bps_named ***chunk = &names->chunk[slot / BPS_CHUNK_SLOTS];
    if (*chunk == NULL) {
        *chunk = calloc(BPS_CHUNK_SLOTS, sizeof **chunk);
    }
    struct bps_named *named = *chunk != NULL ? calloc(1, names->ops->bytes) : NULL;
    if (named == NULL) {
        return NULL;
    }
    named->names = names;
    named->slot = slot;
    named->form.dtype = BPS_DTYPES;
    (*chunk)[slot % BPS_CHUNK_SLOTS] = named;
    return named;
}

/* An entry for this name that is in no use: one that was put back, or a new one. */
static struct bps_named *named_take(struct bps_names *names, const char *name)
{
    struct bps_named *named = TAILQ_FIRST(&names->unused);
    char *own = strdup(name);
    if (own != NULL && named != NULL) {
        TAILQ_REMOVE(&names->unused, named, unused);
        free(named->name);
        free(named->words);
        bps_form_fini(&named->form);
        named->words = NULL;
        named->mode = BPS_MODE_CONFIGURED;
        named->coding = named->choice = NULL;
    } else if (own != NULL) {
        named = named_new(names);
    }
    if (own == NULL || named == NULL) {
        free(own);
        return NULL;
    }
    bool fresh = named->name == NULL;
    named->name = own;
    names->ops->taken(named, fresh);
    if (fresh) {
        atomic_store_explicit(&names->count, named->slot + 1, memory_order_release); /* publishes the slot */
    }
    return named;
}

void bps_names_put(struct bps_named *named)
{
    pthread_mutex_lock(&named->names->lock);
    TAILQ_INSERT_HEAD(&named->names->unused, named, unused);
    pthread_mutex_unlock(&named->names->lock);
}

bps_status bps_names_check(const char *name, struct bps_report *report)
{
    size_t bytes = strlen(name);
    if (bytes == 0 || bytes > BPS_NAME_LIMIT) {
        BPS_REPORT(report, "the name '%.60s%s' of a tensor has %zu bytes, expected 1 to %u", name,
                   bytes > 60 ? "..." : "", bytes, BPS_NAME_LIMIT);
        return BPS_ERR_INVALID;
    }
    return BPS_OK;
}

struct bps_named *bps_names_find(const struct bps_names *names, const char *name)
{
    struct bps_named *named;
    HASH_FIND(hh, names->by_name, name, strlen(name), named);
    return named;
}

struct bps_named *bps_names_get(struct bps_names *names, const char *name, struct bps_report *report)
{
    struct bps_named *named = bps_names_find(names, name);
    if (named != NULL) {
        return named;
    }
    named = named_take(names, name);
    if (named == NULL) {
        BPS_REPORT(report, "out of memory for another tensor, or this process has the maximum of %u tensors",
                   BPS_CHUNKS_LIMIT * BPS_CHUNK_SLOTS - 1);
        return NULL;
    }
    named->unnamed = false;
    HASH_ADD_KEYPTR(hh, names->by_name, named->name, strlen(named->name), named);
    if (named->hh.tbl == NULL) {
        TAILQ_INSERT_HEAD(&names->unused, named, unused);
        BPS_REPORT(report, "out of memory");
        return NULL;
    }
    return named;
}

struct bps_named *bps_names_next(struct bps_names *names, bool barrier, uint32_t *number)
{
    char name[64];
    pthread_mutex_lock(&names->lock);
    uint32_t *count = barrier ? &names->barriers : &names->calls;
    const char *form = barrier ? "barrier.%u (call %u of the barrier)" : "unnamed.%u (call %u without a name)";
    snprintf(name, sizeof name, form, *count, *count + 1);
    struct bps_named *named = named_take(names, name);
    if (named != NULL) {
        named->unnamed = true;
        *number = (*count)++;
    }
    pthread_mutex_unlock(&names->lock);
    return named;
}

struct bps_named *bps_names_call(struct bps_names *names, const char *name)
{
    pthread_mutex_lock(&names->lock);
    struct bps_named *named = named_take(names, name);
    if (named != NULL) {
        named->unnamed = true;
    }
    pthread_mutex_unlock(&names->lock);
    return named;
}

void bps_names_forget(struct bps_named *named)
{
    HASH_DELETE(hh, named->names->by_name, named);
}

void bps_named_strip(struct bps_named *named)
{
    bps_form_fini(&named->form);
    atomic_store(&named->formed, false);
    named->unnamed = true;
}
