/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_places.c - which host has which place in a job whose hosts come and go.
 *
 * There is a place for each worker that the job may have, and it goes to one slot of one host: there a manager of its
 * own starts that worker, and those servers that belong to the place. Who comes takes the lowest place that is free.
 */
#include "tools/run.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* The manager of a host ends what it has started within less; then the connection is to blame. */
#define LEAVE (15 * BPS_S)

static int slots_of(const struct bps_run_host *hosts, size_t n, const char *name)
{
    int slots = 0;
    for (size_t i = 0; i < n && slots < BPS_RUN_SLOTS_LIMIT; i++) {
        slots += name == NULL || strcmp(hosts[i].name, name) == 0 ? hosts[i].slots : 0;
    }
    return slots < BPS_RUN_SLOTS_LIMIT ? slots : BPS_RUN_SLOTS_LIMIT;
}

int bps_run_places_named(const struct bps_run_host *hosts, size_t n)
{
    return slots_of(hosts, n, NULL);
}

static void give(struct bps_run_options *o, size_t place, const char *name, int slot, int size)
{
    o->hosts[place].name = bps_run_keep(o, bps_cmd_print("%s", name));
    o->hosts[place].slot = slot;
    o->hosts[place].size = size;
}

/* The first workers spread the servers over the hosts: one for each, then a second one. */
static void share_servers(struct bps_run_options *o)
{
    int next = 0;
    for (size_t i = 0; i < o->nhosts; i++) {
        o->hosts[i].slots = 1;
        o->hosts[i].machine = o->plan.machines;
    }
    for (int slot = 0; next < o->plan.machines; slot++) {
        for (int i = 0; i < o->plan.workers; i++) {
            if (o->hosts[i].slot == slot) {
                o->hosts[i].machine = next++;
            }
        }
    }
}

void bps_run_places_begin(struct bps_run_options *o, const struct bps_run_host *hosts, size_t n)
{
    int named = slots_of(hosts, n, NULL), workers = 0;
    int most = o->most ? o->most : named < BPS_RUN_PLACES_LIMIT ? named : BPS_RUN_PLACES_LIMIT;
    o->hosts = bps_run_keep(o, bps_cmd_alloc((size_t)most, sizeof(*o->hosts)));
    o->nhosts = (size_t)most;
    for (size_t i = 0; i < n; i++) {
        int before = slots_of(hosts, i, hosts[i].name), size = slots_of(hosts, n, hosts[i].name);
        for (int slot = before; slot < before + hosts[i].slots && workers < most; slot++) {
            give(o, (size_t)workers++, hosts[i].name, slot, size);
        }
    }
    o->plan.workers = o->plan.count = o->plan.size = o->plan.machines = workers;
    share_servers(o);
}

/* ---- who comes and goes ---- */

static struct bps_run_child *child_at(struct bps_run *run, size_t place)
{
    for (size_t i = 0; i < run->nchildren; i++) {
        struct bps_run_child *child = &run->children[i];
        if (child->role == BPS_RUN_HOST && child->rank == (int)place) {
            return child;
        }
    }
    return NULL;
}

static bool has_left(struct bps_run *run, size_t place)
{
    const struct bps_run_child *child = child_at(run, place);
    return child && child->leaves;
}

/* Whether its worker knows what the job has learned, as far as we can tell. */
static bool takes_part(struct bps_run *run, size_t place)
{
    const struct bps_run_child *child = child_at(run, place);
    return child && child->pid > 0 && !child->reaped && !child->done && child->began < run->gathered_at;
}

/* Its end is no failure, whatever it says and however it ends. */
static void send_away(struct bps_run *run, size_t place, uint64_t now)
{
    static const unsigned char term = SIGTERM;
    struct bps_run_child *child = child_at(run, place);
    bps_run_say(run, "host %s has no place for worker %zu any more; ending it", run->options->hosts[place].name, place);
    child->place.due = 0;
    child->leaves = now;
    if (child->pid > 0) {
        child->unneeded = child->told = child->done = true;
        bps_run_sink_put(&child->control, &term, 1);
        bps_run_sink_flush(&child->control);
    }
}

/* Where nobody would be left who has learned anything, one stays until another one has joined. False: so it is. */
static bool send_all_away(struct bps_run *run, const struct bps_run_host *hosts, size_t n, uint64_t now)
{
    const struct bps_run_options *o = run->options;
    size_t last = o->nhosts;
    bool enough = false;
    for (size_t i = o->nhosts; i-- > 0;) {
        const struct bps_run_host *place = &o->hosts[i];
        bool knows = place->name && takes_part(run, i), named = knows && place->slot < slots_of(hosts, n, place->name);
        enough = enough || named;
        last = knows ? i : last;
    }
    for (size_t i = 0; i < o->nhosts; i++) {
        const struct bps_run_host *place = &o->hosts[i];
        bool named = place->name && place->slot < slots_of(hosts, n, place->name);
        if (place->name && !named && !has_left(run, i) && (enough || i != last)) {
            send_away(run, i, now);
        }
    }
    return enough || last == o->nhosts;
}

static void clear_places(struct bps_run *run, uint64_t now)
{
    for (size_t i = 0; i < run->nchildren; i++) {
        struct bps_run_child *child = &run->children[i];
        if (child->leaves && child->pid == 0) {
            run->options->hosts[child->rank].name = NULL;
            child->leaves = 0;
            child->place = (struct bps_run_place){.due = 0};
        } else if (child->leaves && !child->reaped && now - child->leaves > LEAVE) {
            kill(-child->pid, SIGKILL);
        }
    }
}

/* The place of this slot, or else a free one; nhosts if there is none. */
static size_t find(struct bps_run *run, const char *name, int slot)
{
    const struct bps_run_options *o = run->options;
    size_t found = o->nhosts;
    for (size_t i = o->nhosts; i-- > 0;) {
        const struct bps_run_host *place = &o->hosts[i];
        if (place->name && strcmp(place->name, name) == 0 && place->slot == slot && !has_left(run, i)) {
            return i;
        }
        found = place->name ? found : i;
    }
    return found;
}

static bool take_in(struct bps_run *run, const char *name, int slot, int size)
{
    struct bps_run_options *o = run->options;
    size_t place = find(run, name, slot);
    if (place == o->nhosts || o->hosts[place].name) {
        return true;
    }
    bps_run_say(run, "host %s has a place for worker %zu; starting it", name, place);
    give(o, place, name, slot, size);
    return run->start_part(run, BPS_RUN_HOST, (int)place);
}

bool bps_run_places_follow(struct bps_run *run, const struct bps_run_host *hosts, size_t n)
{
    uint64_t now = bps_now();
    bool good = send_all_away(run, hosts, n, now), goes_on = true;
    clear_places(run, now);
    for (size_t i = 0; i < n; i++) {
        int before = slots_of(hosts, i, hosts[i].name), size = slots_of(hosts, n, hosts[i].name);
        for (int slot = before; slot < before + hosts[i].slots && slot < (int)run->options->nhosts && goes_on; slot++) {
            goes_on = take_in(run, hosts[i].name, slot, size);
        }
    }
    return good;
}
