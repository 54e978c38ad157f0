/* SPDX-License-Identifier: Apache-2.0 */
/* transport_begin.c - how channels begin: addresses to listen on and to dial, refusals, early ends. */
#include <stdio.h>
#include <string.h>

#include "tools/check/transport_tests.h"

static const struct bps_stream few = {30, 5, 1000, NULL, 0, 0};

/* ---- listening ---- */

static const struct bps_channel_events *accept_none(void *arg, struct bps_channel *channel, const char *peer,
                                                    void **user, const struct bps_channel_key **key)
{
    (void)arg;
    (void)channel;
    (void)peer;
    (void)user;
    *key = NULL;
    return NULL;
}

static void check_taken(struct bps_side *side, const char *address)
{
    struct bps_report report = {""};
    char actual[256];
    bps_check_at(side->check, "listen %s, where another instance listens", address);
    bps_status status =
        side->ops->listen(side->instance->self, address, accept_none, NULL, actual, sizeof actual, &report);
    BPS_CHECK(side->check, status < 0, "it returns %d; expected BPS_ERR_BUSY", status);
    BPS_CHECK(side->check, side->attr.local || status == BPS_ERR_BUSY, "it returns %d (%s); expected BPS_ERR_BUSY",
              status, bps_strerror(status));
    BPS_CHECK(side->check, report.text[0] != '\0', "it returns %d without a text in the report", status);
}

/* The part of an address in front of its port is where others reach this host, and good to listen on. */
static void check_local_host(struct bps_end *end, struct bps_side *other)
{
    struct bps_report report = {""};
    char host[256], address[260], actual[256];
    memset(host, '#', sizeof host);
    bps_check_at(end->check, "local_host");
    end->side->ops->local_host(end->channel, host, sizeof host);
    BPS_CHECK(end->check, host[0] != '#' && memchr(host, '\0', sizeof host) != NULL, "the text is not terminated");
    snprintf(address, sizeof address, "%s:0", host);
    bps_check_at(end->check, "listen %s, the local_host of a channel with a port", address);
    bps_status status =
        other->ops->listen(other->instance->self, address, accept_none, NULL, actual, sizeof actual, &report);
    BPS_CHECK(end->check, status == BPS_OK, "it returns %d (%s): %s", status, bps_strerror(status), report.text);
}

void bps_check_transport_listen(struct bps_check *check)
{
    struct bps_side sides[2];
    struct bps_pair pair;
    char first[256];
    bps_sides_open(check, sides);
    memcpy(first, sides[1].address, sizeof first);
    bps_side_listen(&sides[1]);
    BPS_CHECK(check, strcmp(first, sides[1].address) != 0, "it listens twice on %s", first);
    check_taken(&sides[0], first);
    check_taken(&sides[1], first);
    for (unsigned i = 0; i < 2; i++) {
        bps_pair_begin(&pair, &sides[0], &sides[1], &few);
        bps_check_at(check, "a channel to the %s address of an instance that listens on two",
                     i == 0 ? "second" : "first");
        bps_pair_connect(&pair, 0);
        bps_pairs_wait(&pair, 1);
        check_local_host(i == 0 ? &pair.dials : &pair.listens, &sides[0]);
        bps_pairs_finish(&pair, 1);
        bps_pair_free(&pair);
        memcpy(sides[1].address, first, sizeof first);
    }
    bps_sides_close(sides);
}

/* ---- dialling ---- */

static bool is_closed(void *arg)
{
    const struct bps_end *end = arg;
    return end->closed > 0;
}

/* An error of dial, or of closed later; both say why. */
static void dial_in_vain(struct bps_side *side, const char *address)
{
    struct bps_end end = {.side = side, .name = "the end that has dialled", .out = few, .in = few};
    struct bps_report report = {""};
    bps_check_at(side->check, "dial '%.80s', where nobody listens", address);
    bps_end_begin(&end);
    end.may_close = true;
    end.inside = "dial";
    bps_status status =
        side->ops->dial(side->instance->self, address, 0, NULL, &bps_end_events, &end, &end.channel, &report);
    end.inside = NULL;
    BPS_CHECK(side->check, status <= 0, "it returns %d; allowed are BPS_OK and BPS_ERR_*", status);
    BPS_CHECK(side->check, status == BPS_OK || status == BPS_ERR_NOMEM || report.text[0] != '\0',
              "it returns %d without a text in the report", status);
    if (status == BPS_OK) {
        bps_sides_wait(side->check, is_closed, &end, &end, 1);
        BPS_CHECK(side->check, !end.connected, "connected is called");
        BPS_CHECK(side->check, end.status < 0, "closed is called with status %d; expected is an error", end.status);
    } else {
        end.channel = NULL;
    }
    bps_end_free(&end);
}

void bps_check_transport_nobody(struct bps_check *check)
{
    static const char *const addresses[] = {"", ":", "@", "127.0.0.1", "127.0.0.1:", "[::1", "%s%n"};
    struct bps_side sides[2];
    char endless[600], gone[256];
    bps_sides_open(check, sides);
    memcpy(gone, sides[1].address, sizeof gone);
    bps_side_close(&sides[1]);
    dial_in_vain(&sides[0], gone);
    for (size_t i = 0; i < sizeof addresses / sizeof *addresses; i++) {
        dial_in_vain(&sides[0], addresses[i]);
    }
    memset(endless, '@', sizeof endless - 1);
    endless[sizeof endless - 1] = '\0';
    dial_in_vain(&sides[0], endless);
    bps_side_close(&sides[0]);
}

void bps_check_transport_refused(struct bps_check *check)
{
    struct bps_side sides[2];
    struct bps_pair pair;
    bps_sides_open(check, sides);
    for (unsigned i = 0; i < 3; i++) {
        struct bps_end end = {.side = &sides[0], .name = "the end that has dialled", .out = few, .in = few};
        bps_end_begin(&end);
        end.may_close = true;
        bps_check_at(check, "accept returns NULL, for the %uth time", i + 1);
        bps_end_dial(&end, sides[1].address, 0);
        bps_sides_wait(check, is_closed, &end, &end, 1);
        BPS_CHECK(check, end.status == BPS_ERR_IO, "closed is called with status %d; expected BPS_ERR_IO", end.status);
        bps_end_free(&end);
    }
    BPS_CHECK(check, sides[1].refused == 3, "accept was called %u times for 3 channels", sides[1].refused);
    bps_check_at(check, "a channel after others that were refused");
    bps_pair_begin(&pair, &sides[0], &sides[1], &few);
    bps_pair_connect(&pair, 0);
    bps_pairs_wait(&pair, 1);
    bps_pairs_finish(&pair, 1);
    bps_pair_free(&pair);
    bps_sides_close(sides);
}

/* ---- ends before the beginning ---- */

static void end_early(struct bps_side sides[2], bool drops)
{
    struct bps_pair pair;
    bps_pair_begin(&pair, &sides[0], &sides[1], &few);
    pair.dials.may_close = pair.listens.may_close = true;
    sides[1].next = &pair.listens;
    bps_end_dial(&pair.dials, sides[1].address, 0);
    if (drops) {
        bps_end_drop(&pair.dials);
        bps_sides_drive(sides[0].check, is_closed, &pair.listens, 20);
    } else {
        bps_end_finish(&pair.dials);
        bps_sides_wait(sides[0].check, is_closed, &pair.dials, &pair.dials, 1);
    }
    sides[1].next = NULL;
    bps_pair_free(&pair);
}

void bps_check_transport_early(struct bps_check *check)
{
    struct bps_side sides[2];
    bps_sides_open(check, sides);
    for (unsigned i = 0; i < 10; i++) {
        bps_check_at(check, "%s just after dial", i % 2 == 0 ? "drop" : "finish");
        end_early(sides, i % 2 == 0);
    }
    bps_sides_close(sides);
}
