/* SPDX-License-Identifier: Apache-2.0 */
/*
 * declared_known.c - see declared_known.h.
 *
 * The lost scheduler may have told something to some workers and not to the others: another form of a tensor, to whom
 * had reported, or another place, to whom begins no rounds meanwhile. What some have heard holds, and the others
 * hear it now. Of two forms the one that begins later is the newer, of two places that of the later move.
 */
#include "scheduler/declared_known.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "node/return.h"
#include "wire/frame.h"
#include "wire/link.h"

/* What a worker says of a tensor. */
struct report {
    uint32_t first, over; /* the round in which it began with this form; how many are over for it */
    struct bps_form form;
    uint32_t slice;
};

/* ---- places ---- */

/* With the leaders in the groups of this worker's size alone. */
static bps_status recall_layout(const struct bps_declared *declared, uint32_t rank, struct bps_reader *r,
                                uint64_t bytes, struct bps_layout *out)
{
    const struct bps_placement *placement = &declared->placement;
    const struct bps_group_bins *group = &placement->group[declared->group[rank]];
    uint64_t all = 0;
    *out = (struct bps_layout){.view = bps_get_u32(r)};
    out->move = bps_get_u32(r);
    out->n = bps_get_u32(r);
    if (r->bad || out->n == 0 || (size_t)(r->end - r->at) / 8 < out->n) {
        return BPS_ERR_PROTOCOL;
    }
    size_t leads = (size_t)out->n * placement->sizes;
    if (!bps_array_reserve(out->part, out->room, out->n) || !bps_array_reserve(out->lead, out->lead_room, leads)) {
        bps_layout_fini(out);
        return BPS_ERR_NOMEM;
    }
    memset(out->lead, 0xff, leads * sizeof *out->lead);
    bool valid = true;
    for (uint32_t i = 0; i < out->n; i++) {
        out->part[i].bytes = bps_get_u32(r);
        out->part[i].shard = bps_get_u16(r);
        uint32_t place = bps_get_u16(r);
        valid &= out->part[i].shard < placement->first[placement->servers] && bps_leads(group->size, place) &&
                 bps_is_partition(bytes, declared->partition, i, out->part[i].bytes);
        out->lead[(size_t)i * placement->sizes + declared->group[rank]] =
            (uint16_t)(place * group->leaders / group->size);
        all += out->part[i].bytes;
    }
    if (!valid || all != bytes) {
        bps_layout_fini(out);
        return BPS_ERR_PROTOCOL;
    }
    return BPS_OK;
}

/* The same place, as workers in groups of another size know it. */
static void add_leads(struct bps_layout *to, const struct bps_layout *from, uint32_t sizes)
{
    for (size_t i = 0; i < (size_t)to->n * sizes && to->n == from->n; i++) {
        to->lead[i] = to->lead[i] == BPS_NO_LEADER ? from->lead[i] : to->lead[i];
    }
}

/* Takes over the layout, where a worker makes its rounds, or is going to. */
static void add_place(struct bps_declared_tensor *t, struct bps_layout *place, bool entered, uint32_t from,
                      uint32_t sizes)
{
    if (t->layout.n == 0 || place->move > t->layout.move) {
        bps_layout_fini(t->entered ? &t->before : &t->layout);
        t->before = t->entered ? t->layout : t->before;
        t->layout = *place;
        t->entered = entered;
        t->from = from;
        return;
    }
    if (place->move == t->layout.move) {
        add_leads(&t->layout, place, sizes);
        t->entered |= entered;
        t->from = from > t->from ? from : t->from;
    } else if (entered && (t->before.n == 0 || place->move > t->before.move)) {
        struct bps_layout older = t->before;
        t->before = *place;
        *place = older;
    } else if (entered && place->move == t->before.move) {
        add_leads(&t->before, place, sizes);
    }
    bps_layout_fini(place);
}

/* ---- a tensor ---- */

/* One that has another form than others say is older or newer, and with it its places. False: it is older. */
static bool takes_form(struct bps_declared_tensor *t, struct report *report)
{
    if (bps_form_agrees(&t->form, &report->form)) {
        return true;
    }
    bool newer = report->first > t->round;
    uint32_t over = newer ? t->begun.most : report->over; /* with the older one; the next round is reported */
    t->formed = over >= t->formed ? over + 1 : t->formed;
    if (newer) {
        bps_layout_fini(&t->layout);
        bps_layout_fini(&t->before);
        bps_form_fini(&t->form);
        t->form = report->form;
        report->form = (struct bps_form){.dtype = BPS_DTYPES};
        t->entered = false;
    }
    return newer;
}

static bps_status recall_places(struct bps_declared *declared, uint32_t rank, struct bps_declared_tensor *t,
                                struct bps_reader *r, uint64_t bytes, bool takes)
{
    struct bps_layout place, next = {.n = 0};
    bps_status status = recall_layout(declared, rank, r, bytes, &place);
    if (status != BPS_OK) {
        return status;
    }
    bool moves = bps_get_u8(r) != 0;
    uint32_t from = bps_get_u32(r);
    status = moves ? recall_layout(declared, rank, r, bytes, &next) : BPS_OK;
    if (takes && status == BPS_OK) {
        add_place(t, &place, true, moves ? 0 : from, declared->placement.sizes);
    } else {
        bps_layout_fini(&place);
    }
    if (takes && next.n > 0) {
        add_place(t, &next, false, from, declared->placement.sizes);
    } else {
        bps_layout_fini(&next);
    }
    return status;
}

static struct bps_declared_tensor *find_or_add(struct bps_declared *declared, uint32_t id, char **name,
                                               const struct report *report)
{
    struct bps_declared_tensor *t;
    struct bps_form form = {.dtype = BPS_DTYPES};
    HASH_FIND(by_id, declared->ids, &id, sizeof id, t);
    if (t == NULL && bps_form_set(&form, &report->form) == BPS_OK) {
        t = bps_declared_add(declared, *name, &form, id, report->first);
        *name = NULL;
        if (t != NULL) {
            t->begun = (struct bps_begun){.least = UINT32_MAX};
        }
    }
    bps_form_fini(&form);
    return t;
}

static bps_status recall_tensor(struct bps_declared *declared, uint32_t rank, struct bps_reader *r,
                                struct bps_recall *recall)
{
    struct report report = {.form = {.dtype = BPS_DTYPES}};
    struct bps_declared_tensor *t = NULL, *named = NULL;
    char *name = bps_get_string_new(r, BPS_NAME_LIMIT);
    uint32_t id = bps_get_u32(r);
    report.first = bps_get_u32(r);
    report.over = bps_get_u32(r);
    bps_status status = name == NULL ? BPS_ERR_PROTOCOL : bps_get_form(r, declared->partition, &report.form);
    report.slice = bps_get_u32(r);
    if (status == BPS_OK) {
        HASH_FIND(by_name, declared->names, name, strlen(name), named);
        bool valid = id > 0 && id < BPS_ID_UNNAMED && bps_is_slice(report.slice, UINT64_MAX) && !r->bad;
        status = valid && (named == NULL || named->id == id) ? BPS_OK : BPS_ERR_PROTOCOL;
    }
    if (status == BPS_OK) {
        bool same = named != NULL;
        t = find_or_add(declared, id, &name, &report);
        status = t == NULL ? BPS_ERR_NOMEM : !same && name != NULL ? BPS_ERR_PROTOCOL : BPS_OK;
    }
    if (status == BPS_OK) {
        uint64_t bytes = report.form.bytes;
        bool takes = takes_form(t, &report);
        status = takes && report.form.dtype != BPS_DTYPES ? bps_declared_learn(t, &report.form) : BPS_OK;
        t->round = report.first > t->round ? report.first : t->round;
        t->slice = takes ? report.slice : t->slice;
        t->begun.least = report.over < t->begun.least ? report.over : t->begun.least;
        t->begun.most = report.over > t->begun.most ? report.over : t->begun.most;
        recall->last = id > recall->last ? id : recall->last;
        bps_declared_use(t, rank);
        status = status == BPS_OK ? recall_places(declared, rank, t, r, bytes, takes) : status;
    }
    free(name);
    bps_form_fini(&report.form);
    return status;
}

/* ---- all of them ---- */

static bps_status recall_round(struct bps_recall *recall, uint32_t id, uint32_t round)
{
    uint32_t n = recall->n;
    if (id >= n) {
        if (!bps_array_reserve(recall->round, recall->room, (size_t)id + 1)) {
            return BPS_ERR_NOMEM;
        }
        memset(recall->round + n, 0, (id + 1 - n) * sizeof *recall->round);
        recall->n = id + 1;
    }
    recall->round[id] = round > recall->round[id] ? round : recall->round[id];
    return BPS_OK;
}

bps_status bps_declared_recall(struct bps_declared *declared, uint32_t rank, struct bps_reader *known,
                               struct bps_recall *recall)
{
    bps_status status = BPS_OK;
    uint8_t kind = bps_get_u8(known);
    uint32_t n = bps_get_u32(known);
    if (kind == BPS_KNOWN_END) {
        recall->last = n > recall->last ? n : recall->last;
        bool moving = bps_get_u8(known) != 0;
        declared->move.asked[rank] = moving;
        return bps_reader_done(known) && n < BPS_ID_UNNAMED ? BPS_OK : BPS_ERR_PROTOCOL;
    }
    for (; n > 0 && status == BPS_OK && !known->bad; n--) {
        if (kind == BPS_KNOWN_TENSORS) {
            status = recall_tensor(declared, rank, known, recall);
            continue;
        }
        uint32_t id = bps_get_u32(known), round = bps_get_u32(known);
        status = id >= BPS_ID_UNNAMED ? BPS_ERR_PROTOCOL : recall_round(recall, id, round);
    }
    return status == BPS_OK && !bps_reader_done(known) ? BPS_ERR_PROTOCOL : status;
}

static bps_status settle_one(struct bps_declared *declared, struct bps_declared_tensor *t,
                             const struct bps_recall *recall)
{
    uint32_t told = t->id < recall->n ? recall->round[t->id] : 0;
    if (t->layout.n == 0) {
        return BPS_ERR_PROTOCOL;
    }
    t->round = told > t->round ? told : t->round;
    if (t->begun.least < t->begun.most) {
        t->overdue = strdup("the scheduler was lost while workers reported what they had pushed");
        t->overdue_round = t->begun.most - 1;
    }
    bps_placement_restore(&declared->placement, &t->before, false);
    bps_placement_restore(&declared->placement, &t->layout, true);
    declared->move.number = t->layout.move > declared->move.number ? t->layout.move : declared->move.number;
    return t->begun.least < t->begun.most && t->overdue == NULL ? BPS_ERR_NOMEM : BPS_OK;
}

bps_status bps_declared_settle(struct bps_declared *declared, const struct bps_recall *recall)
{
    bps_status status = BPS_OK;
    struct bps_declared_tensor *t;
    for (t = declared->ids; t != NULL && status == BPS_OK; t = t->by_id.next) {
        status = settle_one(declared, t, recall);
    }
    declared->last = recall->last;
    for (uint32_t id = recall->last; id > 0 && status == BPS_OK; id--) {
        HASH_FIND(by_id, declared->ids, &id, sizeof id, t);
        if (t == NULL) {
            status = bps_declared_free_id(declared, id, id < recall->n ? recall->round[id] : 0);
        }
    }
    return status;
}

void bps_declared_end_move(const struct bps_declared *declared, uint32_t rank, bps_declared_send_fn send, void *arg)
{
    struct bps_writer w, entries;
    uint32_t n = 0;
    if (!declared->move.asked[rank]) {
        return;
    }
    bps_writer_init(&w);
    bps_writer_init(&entries);
    for (const struct bps_declared_tensor *t = declared->ids; t != NULL; t = t->by_id.next) {
        if (t->before.n > 0) {
            bps_put_u32(&entries, t->id);
            bps_put_u32(&entries, t->from);
            bps_declared_write_layout(declared, rank, &t->layout, &entries);
            n++;
        }
    }
    bps_put_u32(&w, 0);
    bps_put_u32(&w, n);
    bps_put_bytes(&w, entries.data, entries.size);
    bps_put_u32(&w, 0); /* of those that stay nothing is known */
    w.failed |= entries.failed;
    send(arg, rank, BPS_FRAME_MOVED, &w);
    bps_writer_fini(&entries);
    bps_writer_fini(&w);
}
