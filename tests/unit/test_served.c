/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_served.c - process groups at a shard: who may announce them, that their members alone are summed, and when they
 * end; and announcements that make no sense.
 */
#include <stdlib.h>
#include <string.h>

#include "checks.h"
#include "server/served.h"
#include "sum_rig.h"

#define WORKERS 4u
#define GROUP   7u
#define ID      (BPS_ID_UNNAMED | 3u)

static struct bps_sum_config config;
static struct bps_served all;
static struct bps_served_groups groups;

/* What each worker has got of `group`. */
static struct got {
    uint32_t slices, failures, group;
    int32_t value;
} got[WORKERS];

static void on_finished(void *owner, struct bps_sum_slice *slice)
{
    bps_frame_result(slice, 1, ((const struct bps_served *)owner)->group);
}

static void on_result(void *owner, uint32_t rank, struct bps_sum_slice *slice)
{
    struct bps_header header;
    ck_assert_int_eq(bps_header_decode(slice->header, &header), BPS_OK);
    ck_assert_uint_eq(header.group, ((const struct bps_served *)owner)->group);
    got[rank].slices++;
    got[rank].group = header.group;
    memcpy(&got[rank].value, slice->payload, sizeof got[rank].value);
    bps_sum_delivered(slice);
}

static void on_notice(void *owner, uint32_t rank, const struct bps_notice *notice)
{
    (void)owner;
    got[rank].failures += notice->kind == BPS_NOTICE_FAILED;
}

static const struct bps_sum_events events = {.finished = on_finished, .result = on_result, .notice = on_notice};

static void setup(void)
{
    rig_open();
    memset(got, 0, sizeof got);
    config = (struct bps_sum_config){.workers = WORKERS,
                                     .partition = 1 << 20,
                                     .slice = 1 << 16,
                                     .only = BPS_SUM_ALL,
                                     .reducer = rig_reducer,
                                     .events = &events,
                                     .owner = &all};
    groups = (struct bps_served_groups){.config = &config};
    ck_assert_int_eq(bps_sum_new(&config, &all.sum), BPS_OK);
}

static void teardown(void)
{
    bps_served_fini(&groups);
    bps_sum_free(all.sum);
    rig_close();
}

static bps_status announce_bytes(uint32_t rank, uint32_t lane, uint8_t flags, const void *data, size_t n)
{
    const struct bps_header header = {.type = BPS_FRAME_GROUP, .flags = flags, .group = GROUP};
    struct bps_reader payload;
    bps_reader_init(&payload, data, n);
    return bps_served_announce(&groups, all.sum, NULL, rank, lane, &header, &payload);
}

static bps_status announce(uint32_t rank, uint32_t lane, uint32_t n, const uint32_t *member)
{
    struct bps_writer w;
    bps_writer_init(&w);
    bps_put_u32(&w, n);
    for (uint32_t i = 0; i < n; i++) {
        bps_put_u32(&w, member[i]);
    }
    bps_status status = announce_bytes(rank, lane, 0, w.data, w.size);
    bps_writer_fini(&w);
    return status;
}

static bps_status take_back(uint32_t rank, uint32_t lane)
{
    return announce_bytes(rank, lane, BPS_FLAG_ENDS, NULL, 0);
}

static bps_status push(uint32_t rank, int32_t value)
{
    struct bps_header header = rig_header(ID, 0, BPS_INT32, BPS_SUM, sizeof value);
    header.group = GROUP;
    header.length = header.size = sizeof value;
    return rig_push(bps_served_find(&groups, GROUP), rank, &header, &value);
}

START_TEST(members_are_summed)
{
    const uint32_t members[] = {3, 1};
    ck_assert_ptr_null(bps_served_find(&groups, GROUP));
    ck_assert_int_eq(announce(1, 0, 2, members), BPS_OK);
    ck_assert_int_eq(push(1, 10), BPS_OK);
    ck_assert_uint_eq(got[1].slices, 0);
    ck_assert_int_eq(announce(3, 0, 2, members), BPS_OK);
    ck_assert_int_eq(push(2, 1), BPS_ERR_PROTOCOL); /* no member */
    ck_assert_int_eq(push(3, 5), BPS_OK);
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        bool member = rank % 2 == 1;
        ck_assert_uint_eq(got[rank].slices, member);
        ck_assert_int_eq(got[rank].value, member ? 15 : 0);
    }
    ck_assert_uint_eq(got[1].group, GROUP);
    ck_assert(bps_sum_is_idle(all.sum));
}
END_TEST

START_TEST(others_are_refused)
{
    const uint32_t members[] = {3, 1}, other[] = {1, 3}, twice[] = {1, 1}, far[] = {1, WORKERS};
    ck_assert_int_eq(announce(1, 0, 0, members), BPS_ERR_PROTOCOL);
    ck_assert_int_eq(announce(1, 0, 2, twice), BPS_ERR_PROTOCOL);
    ck_assert_int_eq(announce(1, 0, 2, far), BPS_ERR_PROTOCOL);
    ck_assert_int_eq(take_back(1, 0), BPS_ERR_PROTOCOL);
    ck_assert_int_eq(announce(1, 0, 2, members), BPS_OK);
    ck_assert_int_eq(announce(1, 0, 2, members), BPS_ERR_PROTOCOL); /* again */
    ck_assert_int_eq(announce(2, 0, 2, members), BPS_ERR_PROTOCOL); /* no member */
    ck_assert_int_eq(announce(3, 0, 2, other), BPS_ERR_PROTOCOL);
    ck_assert_int_eq(announce(3, 0, 1, members), BPS_ERR_PROTOCOL);
    ck_assert_int_eq(take_back(3, 0), BPS_ERR_PROTOCOL);
}
END_TEST

/* A worker that sums for those of its host. */
START_TEST(other_hosts_are_refused)
{
    const uint32_t host[WORKERS] = {0, 1, 0, 1}, members[] = {3, 1}, across[] = {3, 2};
    config.group = host;
    config.only = config.leader = 1;
    ck_assert_int_eq(announce(3, 0, 2, across), BPS_ERR_PROTOCOL);
    ck_assert_int_eq(announce(3, 0, 2, members), BPS_OK);
}
END_TEST

/* Not before all have taken it back on all connections, and nothing of it is open. */
START_TEST(ends_with_its_last_user)
{
    const uint32_t members[] = {0, 1, 2};
    for (uint32_t rank = 0; rank < 3; rank++) {
        ck_assert_int_eq(announce(rank, 0, 3, members), BPS_OK);
        ck_assert_int_eq(announce(rank, 63, 3, members), BPS_OK);
    }
    ck_assert_int_eq(push(0, 1), BPS_OK);
    for (uint32_t rank = 0; rank < 3; rank++) {
        bps_served_sweep(&groups);
        ck_assert_ptr_nonnull(bps_served_find(&groups, GROUP));
        ck_assert_int_eq(take_back(rank, 0), BPS_OK);
        bps_served_lane_ended(&groups, rank, 63);
    }
    bps_served_sweep(&groups);
    ck_assert_ptr_nonnull(bps_served_find(&groups, GROUP));
    ck_assert_int_eq(push(1, 1), BPS_OK);
    ck_assert_int_eq(push(2, 1), BPS_OK);
    bps_served_sweep(&groups);
    ck_assert_ptr_null(bps_served_find(&groups, GROUP));
    ck_assert_int_eq(announce(1, 0, 1, &members[1]), BPS_OK); /* the number of another one now */
}
END_TEST

/* Who has left, has left groups too that begin later. */
START_TEST(knows_who_has_left)
{
    const uint32_t members[] = {0, 1};
    bps_sum_leave(all.sum, 1);
    ck_assert_int_eq(announce(0, 0, 2, members), BPS_OK);
    ck_assert_int_eq(push(0, 1), BPS_OK);
    ck_assert_uint_eq(got[0].failures, 1);
}
END_TEST

/* Any bytes: an answer, and no harm. */
START_TEST(any_announcement)
{
    for (uint32_t i = 0; i < 20000; i++) {
        uint32_t words[8] = {rig_random(6)}, n = rig_random(8);
        for (uint32_t k = 1; k < 8; k++) {
            words[k] = rig_random(50) == 0 ? rig_random(UINT32_MAX) : rig_random(WORKERS + 1);
        }
        size_t bytes = n * sizeof *words + (rig_random(10) == 0 ? rig_random(4) : 0);
        announce_bytes(rig_random(WORKERS), rig_random(3), rig_random(5) == 0 ? BPS_FLAG_ENDS : 0, words, bytes);
        if (bps_served_find(&groups, GROUP) != NULL) {
            push(rig_random(WORKERS), 1);
        }
        if (rig_random(20) == 0) {
            bps_served_lane_ended(&groups, rig_random(WORKERS), rig_random(3));
            bps_served_sweep(&groups);
        }
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("served");
    TCase *groups_case = tcase_create("process groups");
    tcase_add_checked_fixture(groups_case, setup, teardown);
    tcase_add_test(groups_case, members_are_summed);
    tcase_add_test(groups_case, others_are_refused);
    tcase_add_test(groups_case, other_hosts_are_refused);
    tcase_add_test(groups_case, ends_with_its_last_user);
    tcase_add_test(groups_case, knows_who_has_left);
    tcase_add_test(groups_case, any_announcement);
    suite_add_tcase(suite, groups_case);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
