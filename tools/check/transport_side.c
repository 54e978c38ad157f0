/* SPDX-License-Identifier: Apache-2.0 */
/* transport_side.c - an instance of the transport under test, as the core opens one, listens and dials. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "tools/check/transport.h"

struct bps_side bps_side_open(struct bps_check *check)
{
    struct bps_side side = {.check = check, .instance = bps_check_open(check)};
    side.ops = side.instance->ops;
    BPS_ROOMY(bps_transport_attr) attr = {.it = {0}};
    side.ops->query(side.instance->self, &attr.it);
    side.attr = attr.it;
    return side;
}

void bps_side_close(struct bps_side *side)
{
    bps_check_close(side->check, side->instance);
    side->instance = NULL;
}

static const struct bps_channel_events *on_accept(void *arg, struct bps_channel *channel, const char *peer, void **user,
                                                  const struct bps_channel_key **key)
{
    struct bps_side *side = arg;
    struct bps_end *end = side->next;
    BPS_CHECK(side->check, channel != NULL, "accept is called without a channel");
    BPS_CHECK(side->check, peer != NULL && peer[0] != '\0', "accept is called without the address of the peer");
    *key = NULL;
    if (end == NULL) {
        side->refused++;
        return NULL;
    }
    side->next = NULL;
    side->accepted++;
    end->channel = channel;
    end->connected = true;
    *user = end;
    *key = side->key;
    bps_end_kick(end);
    return &bps_end_events;
}

void bps_side_listen(struct bps_side *side)
{
    struct bps_check *check = side->check;
    struct bps_report report = {""};
    const char *where = side->attr.local ? "" : ":0";
    memset(side->address, '#', sizeof side->address);
    bps_check_at(check, "listen '%s'", where);
    bps_status status =
        side->ops->listen(side->instance->self, where, on_accept, side, side->address, sizeof side->address, &report);
    BPS_CHECK(check, status == BPS_OK, "it returns %d (%s): %s", status, bps_strerror(status), report.text);
    BPS_CHECK(check,
              memchr(side->address, '\0', sizeof side->address) != NULL && side->address[0] != '\0' &&
                  side->address[0] != '#',
              "it has not written the address that peers can dial to `actual`");
}

void bps_sides_open(struct bps_check *check, struct bps_side sides[2])
{
    sides[0] = bps_side_open(check);
    sides[1] = bps_side_open(check);
    bps_side_listen(&sides[1]);
}

void bps_sides_close(struct bps_side sides[2])
{
    bps_side_close(&sides[0]);
    bps_side_close(&sides[1]);
}

void bps_end_dial(struct bps_end *end, const char *address, uint32_t lane)
{
    struct bps_side *side = end->side;
    struct bps_report report = {""};
    end->inside = "dial";
    bps_status status =
        side->ops->dial(side->instance->self, address, lane, side->key, &bps_end_events, end, &end->channel, &report);
    end->inside = NULL;
    BPS_CHECK(end->check, status == BPS_OK, "dial %s returns %d (%s): %s", address, status, bps_strerror(status),
              report.text);
    BPS_CHECK(end->check, end->channel != NULL, "dial %s returns BPS_OK without a channel", address);
}

/* ---- waiting ---- */

static void tick(void *arg)
{
    (void)arg;
}

/* What another process does wakes nobody here: the loop looks at it now and then. */
bool bps_sides_drive(struct bps_check *check, bool (*done)(void *arg), void *arg, unsigned milliseconds)
{
    struct bps_timer *timer = bps_loop_timer(check->loop, BPS_MS, BPS_MS, tick, NULL);
    BPS_CHECK(check, timer != NULL, "out of memory for the test");
    bool in_time = bps_check_drive(check, done, arg, milliseconds / 1000.0);
    bps_loop_cancel(check->loop, timer);
    return in_time;
}

_Noreturn static void fail_late(struct bps_check *check, const struct bps_end *ends, unsigned count)
{
    char text[600] = "";
    for (unsigned i = 0, used = 0; i < count && used + 200 < sizeof text; i++) {
        if (ends[i].closed == 0 && !ends[i].dropped && (ends[i].may_close || !bps_end_is_complete(&ends[i]))) {
            used += (unsigned)snprintf(text + used, sizeof text - used, "%s", used > 0 ? "; " : "");
            bps_end_tell(&ends[i], text + used, sizeof text - used);
            used = (unsigned)strlen(text);
        }
    }
    bps_check_fail(check, "no progress: %s", text);
}

void bps_sides_wait(struct bps_check *check, bool (*done)(void *arg), void *arg, const struct bps_end *ends,
                    unsigned count)
{
    double used = (double)(bps_now() - check->begun) / 1e9, left = 0.8 * check->limit - used;
    if (!bps_sides_drive(check, done, arg, left > 0.01 ? (unsigned)(left * 1000) : 10)) {
        fail_late(check, ends, count);
    }
}
