/* SPDX-License-Identifier: Apache-2.0 */
/* test_node.c - what the scheduler knows: seats and ranks, the book, declared tensors, agreement. */
#include <stdlib.h>
#include <string.h>

#include "checks.h"
#include "base/array.h"
#include "base/clock.h"
#include "base/heap.h"
#include "node/unnamed.h"
#include "node/view.h"
#include "scheduler/agreement.h"
#include "scheduler/declared.h"
#include "scheduler/roster.h"
#include "wire/frame.h"

static struct bps_report report;

/* ---- seats ---- */

static bps_status seat(struct bps_roster *roster, uint32_t role, int rank, uint64_t host, bool early)
{
    struct bps_guest *guest = calloc(1, sizeof *guest);
    struct bps_join join = {.role = role,
                            .rank = rank,
                            .local_rank = -1,
                            .local_size = -1,
                            .host_id = host,
                            .pid = 100 + (uint32_t)host,
                            .bandwidth = 1000};
    snprintf(join.host, sizeof join.host, "h%lu", host);
    snprintf(join.job, sizeof join.job, "j");
    report.text[0] = '\0';
    bps_status status = bps_roster_add(roster, guest, &join, early, &report);
    if (status != BPS_OK) {
        free(guest);
    }
    return status;
}

static struct bps_seat *nth(struct bps_roster *roster, int n)
{
    struct bps_seat *s = TAILQ_FIRST(&roster->seats);
    while (n-- > 0) {
        s = TAILQ_NEXT(s, entry);
    }
    return s;
}

START_TEST(test_ranks_by_host)
{
    struct bps_roster roster;
    bps_roster_init(&roster, 5, 1, BPS_COLOCATED_AUTO);
    uint64_t hosts[] = {7, 8, 7, 8, 7};
    for (int i = 0; i < 5; i++) {
        ck_assert_int_eq(seat(&roster, BPS_ROLE_WORKER, -1, hosts[i], false), BPS_OK);
        ck_assert(!bps_roster_complete(&roster));
    }
    ck_assert_int_eq(seat(&roster, BPS_ROLE_SERVER, -1, 9, false), BPS_OK);
    ck_assert(bps_roster_complete(&roster));
    bps_roster_assign(&roster);
    uint32_t ranks[] = {0, 3, 1, 4, 2}, locals[] = {0, 0, 1, 1, 2}, sizes[] = {3, 2, 3, 2, 3};
    for (int i = 0; i < 5; i++) {
        ck_assert_uint_eq(nth(&roster, i)->rank, ranks[i]);
        ck_assert_uint_eq(nth(&roster, i)->local_rank, locals[i]);
        ck_assert_uint_eq(nth(&roster, i)->local_size, sizes[i]);
        ck_assert(nth(&roster, i)->serves == (locals[i] == 0)); /* one server for two hosts: each hosts one */
    }
    ck_assert(nth(&roster, 5)->serves);
    bps_roster_fini(&roster);
}
END_TEST

/* A worker that knows its place on its host. */
static void place(struct bps_roster *roster, int32_t rank, int32_t local_rank, int32_t local_size, uint64_t host)
{
    ck_assert_int_eq(seat(roster, BPS_ROLE_WORKER, rank, host, false), BPS_OK);
    struct bps_seat *last = TAILQ_LAST(&roster->seats, bps_seats);
    last->join.local_rank = local_rank;
    last->join.local_size = local_size;
}

static void check_missing(const struct bps_roster *roster, const char *expected)
{
    char text[512];
    bps_roster_missing(roster, text, sizeof text);
    ck_assert_str_eq(text, expected);
}

START_TEST(test_hosts_of_the_missing)
{
    struct bps_roster roster;
    bps_roster_init(&roster, 12, 2, BPS_COLOCATED_AUTO);
    check_missing(&roster, "12 of 12 workers and 2 of 2 servers");
    place(&roster, 0, 0, 4, 1);
    check_missing(&roster, "11 of 12 workers (ranks 1-3 on h1, 4-11) and 2 of 2 servers");
    place(&roster, 6, 2, 4, 2);
    check_missing(&roster, "10 of 12 workers (ranks 1-3 on h1, 4-5 on h2, 7 on h2, 8-11) and 2 of 2 servers");
    place(&roster, 3, 3, 4, 3); /* so the first four are not of one host */
    check_missing(&roster, "9 of 12 workers (ranks 1-2, 4-5 on h2, 7 on h2, 8-11) and 2 of 2 servers");
    ck_assert_int_eq(seat(&roster, BPS_ROLE_SERVER, 1, 9, false), BPS_OK);
    check_missing(&roster, "9 of 12 workers (ranks 1-2, 4-5 on h2, 7 on h2, 8-11) and 1 of 2 servers (rank 0)");
    ck_assert_int_eq(seat(&roster, BPS_ROLE_WORKER, -1, 9, false), BPS_OK);
    check_missing(&roster, "8 of 12 workers and 1 of 2 servers (rank 0)");
    bps_roster_fini(&roster);
}
END_TEST

START_TEST(test_many_missing)
{
    struct bps_roster roster;
    bps_roster_init(&roster, 4000, 0, BPS_COLOCATED_AUTO);
    for (int32_t rank = 1; rank < 4000; rank += 2) {
        place(&roster, rank, -1, -1, 1);
    }
    check_missing(&roster, "2000 of 4000 workers (ranks 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32, "
                           "34, 36, 38, 40, 42, 44, 46, 48, 50, 52, 54, 56, 58, 60, 62, 64, ...)");
    bps_roster_fini(&roster);
}
END_TEST

START_TEST(test_wanted_ranks)
{
    struct bps_roster roster;
    char text[256];
    bps_roster_init(&roster, 3, 0, BPS_COLOCATED_AUTO);
    ck_assert_int_eq(seat(&roster, BPS_ROLE_WORKER, 2, 1, false), BPS_OK);
    ck_assert_int_eq(seat(&roster, BPS_ROLE_WORKER, 2, 5, false), BPS_ERR_REFUSED);
    ck_assert_str_eq(report.text, "rank 2 is taken by worker 2 (host h1, pid 101); host h5, pid 105 requests it, too; "
                                  "check cluster.rank, and whether another job uses the same address or "
                                  "BYTEPS_MEETING_FILE");
    ck_assert_int_eq(seat(&roster, BPS_ROLE_WORKER, 3, 5, false), BPS_ERR_REFUSED);
    ck_assert_str_eq(report.text, "worker rank 3 does not exist: the job has 3 workers; check cluster.rank "
                                  "and cluster.workers");
    bps_roster_missing(&roster, text, sizeof text);
    ck_assert_str_eq(text, "2 of 3 workers (ranks 0-1)");
    ck_assert_int_eq(seat(&roster, BPS_ROLE_WORKER, -1, 6, false), BPS_OK);
    bps_roster_missing(&roster, text, sizeof text);
    ck_assert_str_eq(text, "1 of 3 workers");
    ck_assert_int_eq(seat(&roster, BPS_ROLE_WORKER, 0, 7, false), BPS_OK);
    ck_assert_int_eq(seat(&roster, BPS_ROLE_WORKER, -1, 8, false), BPS_ERR_REFUSED);
    ck_assert_str_eq(report.text, "job 'j' already has its 3 workers; is an old process still running?");
    ck_assert_int_eq(seat(&roster, BPS_ROLE_SERVER, -1, 8, false), BPS_ERR_REFUSED);
    bps_roster_assign(&roster);
    ck_assert_uint_eq(nth(&roster, 0)->rank, 2);
    ck_assert_uint_eq(nth(&roster, 1)->rank, 1);
    ck_assert(nth(&roster, 2)->serves); /* no servers: worker 0 */
    ck_assert(!bps_roster_serving(&roster));
    bps_roster_fini(&roster);
}
END_TEST

/* A worker that has left may come back before the others have left. */
START_TEST(test_early_seats)
{
    struct bps_roster roster;
    bps_roster_init(&roster, 2, 0, BPS_COLOCATED_AUTO);
    ck_assert_int_eq(seat(&roster, BPS_ROLE_WORKER, 0, 1, false), BPS_OK);
    ck_assert_int_eq(seat(&roster, BPS_ROLE_WORKER, 1, 1, false), BPS_OK);
    ck_assert_int_eq(seat(&roster, BPS_ROLE_WORKER, 0, 1, true), BPS_ERR_REFUSED);
    nth(&roster, 0)->left = true;
    ck_assert_int_eq(seat(&roster, BPS_ROLE_WORKER, 0, 1, true), BPS_OK);
    ck_assert_uint_eq(bps_roster_count(&roster, BPS_ROLE_WORKER), 2);
    bps_roster_remove(&roster, nth(&roster, 0));
    bps_roster_remove(&roster, nth(&roster, 0));
    ck_assert_uint_eq(bps_roster_count(&roster, BPS_ROLE_WORKER), 0);
    bps_roster_renew(&roster);
    ck_assert_uint_eq(bps_roster_count(&roster, BPS_ROLE_WORKER), 1);
    bps_roster_fini(&roster);
}
END_TEST

/* Newcomers may ask another scheduler for ranks before the survivors come to it. */
START_TEST(test_survivors_come_first)
{
    const int32_t before[] = {BPS_IS_NEW, 2, BPS_JOINS_AGAIN, 0}, asked[] = {0, -1, 2, 0};
    const uint32_t expected[] = {2, 1, 3, 0};
    struct bps_roster roster;
    bps_roster_init(&roster, 4, 1, BPS_COLOCATED_NONE);
    bps_roster_be_elastic(&roster, 1, 4);
    ck_assert_int_eq(seat(&roster, BPS_ROLE_SERVER, 0, 1, false), BPS_OK);
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(seat(&roster, BPS_ROLE_WORKER, asked[i], 1, false), BPS_OK);
        nth(&roster, i + 1)->join.before = before[i];
    }
    bps_roster_close_gaps(&roster);
    ck_assert_int_eq(bps_roster_assign(&roster), BPS_OK);
    for (int i = 0; i < 4; i++) {
        ck_assert_uint_eq(nth(&roster, i + 1)->rank, expected[i]);
    }
    ck_assert_uint_eq(nth(&roster, 0)->rank, 0);
    bps_roster_fini(&roster);
}
END_TEST

/* While the survivors are on their way back. */
START_TEST(test_room_for_a_server)
{
    struct bps_roster roster;
    bps_roster_init(&roster, 1, 2, BPS_COLOCATED_NONE);
    bps_roster_be_elastic(&roster, 1, 4);
    ck_assert_int_eq(seat(&roster, BPS_ROLE_SERVER, 0, 1, false), BPS_OK);
    roster.elastic.returning = 1;
    ck_assert(bps_roster_reform(&roster, 0));
    ck_assert_uint_eq(roster.servers, 1);
    ck_assert_int_eq(seat(&roster, BPS_ROLE_SERVER, 1, 1, false), BPS_OK);
    bps_roster_make_room(&roster, nth(&roster, 1));
    ck_assert_int_eq(seat(&roster, BPS_ROLE_WORKER, 0, 1, false), BPS_OK);
    ck_assert(bps_roster_complete(&roster));
    bps_roster_fini(&roster);
}
END_TEST

/* A view of a job of two workers and two servers of a shard each. */
static struct bps_view *view_of(uint32_t number, bool gone)
{
    struct bps_book_member member[] = {{.public_key = {1}},
                                       {.rank = 1, .group = 1, .public_key = {2}},
                                       {.role = BPS_ROLE_SERVER, .public_key = {3}},
                                       {.role = BPS_ROLE_SERVER, .rank = 1, .group = 1, .public_key = {4}}};
    struct bps_book_shard shard[] = {{.member = 2, .weight = 1, .address = "a:1"},
                                     {.member = 3, .weight = !gone, .gone = gone, .address = "b:1"}};
    const struct bps_book book = {.epoch = 7,
                                  .view = number,
                                  .from = {10 * number, BPS_ID_NUMBER - 1},
                                  .workers = 2,
                                  .members = 4,
                                  .shards = 2,
                                  .member = member,
                                  .shard = shard};
    const struct bps_identity self = {.public_key = {1}};
    struct bps_writer w;
    struct bps_reader r;
    struct bps_view *view;
    bps_writer_init(&w);
    bps_book_write(&book, &w);
    bps_reader_init(&r, w.data, w.size);
    ck_assert_int_eq(bps_view_read(&r, &self, &view), BPS_OK);
    bps_writer_fini(&w);
    return view;
}

/* The same, with one more server, whose shard is that of this member. */
static struct bps_view *larger_view(uint32_t number, uint32_t member)
{
    struct bps_view *view = view_of(number, true);
    struct bps_book *book = &view->book;
    book->member = realloc(book->member, (book->members + 1) * sizeof *book->member);
    book->shard = realloc(book->shard, (book->shards + 1) * sizeof *book->shard);
    book->member[book->members++] =
        (struct bps_book_member){.role = BPS_ROLE_SERVER, .rank = 2, .group = 2, .public_key = {5}};
    book->shard[book->shards++] = (struct bps_book_shard){.member = member, .address = "c:1"};
    return view;
}

START_TEST(test_views_with_another_server)
{
    struct bps_view *first = view_of(1, true), *second = larger_view(2, 4), *wrong = larger_view(2, 3);
    struct bps_view *third = view_of(3, true);
    ck_assert(!bps_view_follow(wrong, first)); /* those of who was there stay as they are */
    ck_assert(bps_view_follow(second, first));
    ck_assert(!bps_view_follow(third, second)); /* who has come stays */
    bps_view_put(first);
    bps_view_put(second);
    bps_view_put(third);
    bps_view_put(wrong);
}
END_TEST

START_TEST(test_views_follow_one_another)
{
    struct bps_view *first = view_of(1, false), *second = view_of(2, true), *other = view_of(2, false);
    struct bps_view *third = view_of(3, false), *skips = view_of(4, true);
    ck_assert(bps_view_follow(second, first));
    ck_assert(!bps_view_follow(third, second)); /* a shard that is gone stays so */
    ck_assert(!bps_view_follow(skips, second));
    other->book.member[3].public_key[0] = 9;
    ck_assert(!bps_view_follow(other, first));
    bps_view_put(first); /* the second holds it */
    ck_assert_ptr_eq(bps_view_at(second, BPS_ID_UNNAMED | 19), first);
    ck_assert_ptr_eq(bps_view_at(second, BPS_ID_UNNAMED | 20), second);
    ck_assert_ptr_eq(bps_view_at(second, BPS_ID_BARRIER | (BPS_ID_NUMBER - 2)), first);
    ck_assert_ptr_eq(bps_view_at(second, BPS_ID_BARRIER | BPS_ID_NUMBER), second);
    ck_assert_ptr_eq(bps_view_at(second, BPS_ID_BARRIER | 3), second); /* numbers have begun anew */
    ck_assert_uint_eq(bps_unnamed_shard(&second->book, &second->book, BPS_ID_UNNAMED | 20, 3), 0);
    bps_view_forget_before(second);
    ck_assert_ptr_eq(bps_view_at(second, BPS_ID_UNNAMED | 19), second);
    bps_view_put(second);
    bps_view_put(other);
    bps_view_put(third);
    bps_view_put(skips);
}
END_TEST

START_TEST(test_book)
{
    struct bps_roster roster;
    struct bps_book book, cut;
    struct bps_view *view;
    const struct bps_identity self = {.public_key = {7}};
    bps_roster_init(&roster, 2, 2, BPS_COLOCATED_AUTO);
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(seat(&roster, i < 2 ? BPS_ROLE_WORKER : BPS_ROLE_SERVER, 1 - i % 2, 3, false), BPS_OK);
    }
    bps_roster_assign(&roster);
    for (int i = 2; i < 4; i++) {
        struct bps_seat *s = nth(&roster, i);
        s->shards = 2;
        s->endpoint = calloc(2, sizeof *s->endpoint);
        for (uint32_t shard = 0; shard < 2; shard++) {
            struct bps_endpoint *endpoint = &s->endpoint[shard];
            snprintf(endpoint->address, sizeof endpoint->address, "s%u:%u", s->rank, shard);
            snprintf(endpoint->local, sizeof endpoint->local, "@s%u-%u", s->rank, shard);
        }
    }
    ck_assert(bps_roster_serving(&roster));
    ck_assert_int_eq(bps_roster_book(&roster, &book), BPS_OK);
    book.epoch = 5;
    struct bps_writer w;
    struct bps_reader all;
    bps_writer_init(&w);
    bps_book_write(&book, &w);
    bps_reader_init(&all, w.data, w.size);
    ck_assert_int_eq(bps_view_read(&all, &self, &view), BPS_OK);
    const struct bps_book *copy = &bps_view_get(view)->book;
    bps_view_put(view); /* it is held once more */
    ck_assert_uint_eq(copy->self.public_key[0], 7);
    ck_assert_uint_eq(copy->epoch, 5);
    ck_assert_uint_eq(copy->workers, 2);
    ck_assert_uint_eq(copy->members, 4);
    ck_assert_uint_eq(copy->shards, 4);
    ck_assert_str_eq(copy->shard[0].address, "s0:0");
    ck_assert_str_eq(copy->shard[3].address, "s1:1");
    ck_assert_str_eq(copy->shard[3].local, "@s1-1");
    ck_assert_uint_eq(copy->member[2].host_id, 3);
    ck_assert_uint_eq(copy->shard[3].member, 3);
    bps_view_put(view);
    bps_view_put(bps_view_get(NULL));
    /* Every cut of the bytes is refused, none is read past its end. */
    for (size_t n = 0; n < w.size; n++) {
        struct bps_reader r;
        uint8_t *exact = malloc(n > 0 ? n : 1);
        memcpy(exact, w.data, n);
        bps_reader_init(&r, exact, n);
        ck_assert_int_ne(bps_book_read(&r, &cut), BPS_OK);
        free(exact);
    }
    bps_writer_fini(&w);
    bps_book_fini(&book);
    bps_roster_fini(&roster);
}
END_TEST

/* Two members have a key of their own; nobody else makes it, and nobody without the secret. */
START_TEST(test_keys)
{
    static const uint8_t secret[BPS_KEY_BYTES] = "one", other[BPS_KEY_BYTES] = "another", none[BPS_KEY_BYTES];
    struct bps_identity a, b, c;
    uint8_t ab[BPS_KEY_BYTES], ba[BPS_KEY_BYTES], cb[BPS_KEY_BYTES];
    ck_assert_int_eq(bps_identity_make(&a), BPS_OK);
    ck_assert_int_eq(bps_identity_make(&b), BPS_OK);
    ck_assert_int_eq(bps_identity_make(&c), BPS_OK);
    ck_assert_int_eq(bps_identity_key(&a, b.public_key, secret, ab), BPS_OK);
    ck_assert_int_eq(bps_identity_key(&b, a.public_key, secret, ba), BPS_OK);
    ck_assert_mem_eq(ab, ba, sizeof ab);
    ck_assert_int_eq(bps_identity_key(&c, b.public_key, secret, cb), BPS_OK);
    ck_assert_mem_ne(ab, cb, sizeof ab);
    ck_assert_int_eq(bps_identity_key(&b, a.public_key, other, ba), BPS_OK);
    ck_assert_mem_ne(ab, ba, sizeof ab);
    ck_assert_int_eq(bps_identity_key(&a, a.public_key, secret, ab), BPS_OK); /* to a server in its own process */
    ck_assert_int_eq(bps_identity_key(&a, none, secret, ab), BPS_ERR_PROTOCOL);
}
END_TEST

/* Of a small group all lead, of a large one a few: the first, and the others as far apart as can be. */
START_TEST(test_leading)
{
    for (uint32_t size = 1; size < 300; size++) {
        uint32_t leaders = bps_leaders(size), found = 0, next = 0;
        ck_assert_uint_eq(leaders, size < 32 ? size : 32);
        for (uint32_t place = 0; place < size; place++) {
            if (bps_leads(size, place)) {
                ck_assert_uint_ge(place, next);
                ck_assert_uint_eq(bps_leader_place(size, found), place);
                next = place + size / leaders;
                found++;
            }
        }
        ck_assert_uint_eq(found, leaders);
        ck_assert(bps_leads(size, 0));
        ck_assert(!bps_leads(size, size));
    }
}
END_TEST

/* A proof depends on all that it is about. */
START_TEST(test_proofs)
{
    const struct bps_introduction said = {.challenge = {1}, .response = {2}, .claim = {BPS_LINK_DATA, 3, 4, 5}};
    uint8_t key[BPS_KEY_BYTES] = {6}, proof[BPS_PROOF_BYTES];
    ck_assert_int_eq(bps_prove(key, BPS_DIALLER, &said, proof), BPS_OK);
    ck_assert(bps_is_proof(key, BPS_DIALLER, &said, proof));
    ck_assert(!bps_is_proof(key, BPS_ACCEPTOR, &said, proof));
    for (int i = 0; i < 6; i++) {
        struct bps_introduction other = said;
        other.challenge[15] ^= i == 0;
        other.response[15] ^= i == 1;
        other.claim.purpose ^= i == 2;
        other.claim.epoch ^= i == 3;
        other.claim.rank ^= i == 4;
        other.claim.lane ^= i == 5;
        ck_assert(!bps_is_proof(key, BPS_DIALLER, &other, proof));
    }
    key[31] ^= 1;
    ck_assert(!bps_is_proof(key, BPS_DIALLER, &said, proof));
}
END_TEST

/* ---- declarations ---- */

static struct bps_book_shard shards[] = {{.member = 1, .weight = 1}, {.member = 2, .weight = 1}};
static struct bps_book_member workers[] = {{.rank = 0}, {.rank = 1}, {.rank = 2, .group = 2}};
static const struct bps_book two_shards = {
    .view = 3, .workers = 3, .members = 3, .member = workers, .shards = 2, .shard = shards};

static void ask(struct bps_writer *w, const char *name, uint8_t dtype, uint64_t bytes)
{
    bps_put_string(w, name);
    bps_put_u8(w, dtype);
    bps_put_u64(w, bytes);
    bps_put_u8(w, 255);    /* no shape */
    bps_put_string(w, ""); /* not coded */
    bps_put_u8(w, 0);      /* in mode sync */
    bps_put_u32(w, 0);     /* nor of rows */
}

static bps_status answer(struct bps_declared *declared, const struct bps_writer *w, struct bps_writer *reply)
{
    struct bps_reader r;
    bps_writer_init(reply);
    bps_reader_init(&r, w->data, w->size);
    return bps_declared_answer(declared, 0, &r, reply);
}

START_TEST(test_declared)
{
    struct bps_declared declared;
    struct bps_writer w, first, second;
    ck_assert_int_eq(bps_declared_init(&declared, &two_shards, 1024), BPS_OK);
    bps_writer_init(&w);
    bps_put_u32(&w, 3);
    ask(&w, "a", BPS_FLOAT32, 4000);
    ask(&w, "b", BPS_FLOAT32, 0);
    ask(&w, "a", BPS_INT64, 8); /* the first size counts */
    ck_assert_int_eq(answer(&declared, &w, &first), BPS_OK);
    struct bps_reader r;
    bps_reader_init(&r, first.data, first.size);
    ck_assert_uint_eq(bps_get_u32(&r), 3);
    for (int i = 0; i < 3; i++) {
        char coding[8];
        ck_assert_uint_eq(bps_get_u32(&r), i == 1 ? 2 : 1);
        ck_assert_uint_eq(bps_get_u32(&r), 0);
        ck_assert_uint_eq(bps_get_u8(&r), BPS_FLOAT32);
        ck_assert_uint_eq(bps_get_u64(&r), i == 1 ? 0 : 4000);
        ck_assert_uint_eq(bps_get_u8(&r), 255);
        bps_get_string(&r, coding, sizeof coding);
        ck_assert_str_eq(coding, "");
        ck_assert_uint_eq(bps_get_u8(&r), 0);
        ck_assert_uint_eq(bps_get_u32(&r), 0);
        ck_assert_uint_eq(bps_get_u32(&r), BPS_LEAST_SLICE); /* of so little in all */
        ck_assert_uint_eq(bps_get_u32(&r), two_shards.view);
        ck_assert_uint_eq(bps_get_u32(&r), 0); /* moves so far */
        uint32_t partitions = bps_get_u32(&r);
        ck_assert_uint_eq(partitions, i == 1 ? 1 : 4);
        uint32_t led = 0, all = 0;
        for (uint32_t p = 0; p < partitions; p++) {
            all += bps_get_u32(&r);
            ck_assert_uint_lt(bps_get_u16(&r), 2);
            uint16_t lead = bps_get_u16(&r); /* worker 0 has worker 1 in its group */
            ck_assert_uint_lt(lead, 2);
            led += lead;
        }
        ck_assert(i == 1 || (led >= 1 && led <= 3)); /* each leads something */
        ck_assert_uint_eq(all, i == 1 ? 0 : 4000);
        ck_assert_uint_eq(bps_get_u8(&r), 0); /* it does not move */
    }
    ck_assert(bps_reader_done(&r));
    ck_assert_int_eq(answer(&declared, &w, &second), BPS_OK); /* the same for whoever asks later */
    ck_assert_uint_eq(first.size, second.size);
    ck_assert_int_eq(memcmp(first.data, second.data, first.size), 0);
    bps_writer_fini(&second);
    for (size_t n = 0; n < w.size; n++) { /* cut anywhere: refused */
        struct bps_writer cut = {.data = w.data, .size = n};
        ck_assert_int_ne(answer(&declared, &cut, &second), BPS_OK);
        bps_writer_fini(&second);
    }
    bps_writer_fini(&w);
    bps_writer_fini(&first);
    bps_declared_fini(&declared);
}
END_TEST

/*
 * What is declared at once is placed by size, whatever its order: small tensors fill what large ones leave uneven.
 */
START_TEST(test_declared_at_once)
{
    static const uint64_t bytes[] = {100, 200, 700, 1024 + 300, 500};
    uint64_t load[2] = {0, 0};
    struct bps_declared declared;
    struct bps_writer w, reply;
    char name[] = "a";
    ck_assert_int_eq(bps_declared_init(&declared, &two_shards, 1024), BPS_OK);
    bps_writer_init(&w);
    bps_put_u32(&w, 5);
    for (int i = 0; i < 5; i++, name[0]++) {
        ask(&w, name, BPS_UINT8, bytes[i]);
    }
    ck_assert_int_eq(answer(&declared, &w, &reply), BPS_OK);
    struct bps_reader r;
    bps_reader_init(&r, reply.data, reply.size);
    ck_assert_uint_eq(bps_get_u32(&r), 5);
    for (uint32_t i = 0; i < 5; i++) {
        ck_assert_uint_eq(bps_get_u32(&r), i + 1);
        bps_get_u32(&r);
        bps_get_u8(&r);
        ck_assert_uint_eq(bps_get_u64(&r), bytes[i]);
        bps_get_u8(&r);
        bps_get_u32(&r);                                     /* no coding */
        bps_get_u8(&r);                                      /* mode sync */
        bps_get_u32(&r);                                     /* no rows */
        ck_assert_uint_eq(bps_get_u32(&r), BPS_LEAST_SLICE); /* of so little in all */
        ck_assert_uint_eq(bps_get_u32(&r), two_shards.view);
        ck_assert_uint_eq(bps_get_u32(&r), 0); /* moves so far */
        uint32_t partitions = bps_get_u32(&r);
        for (uint32_t p = 0; p < partitions; p++) {
            uint32_t size = bps_get_u32(&r);
            load[bps_get_u16(&r)] += size;
            bps_get_u16(&r);
        }
        bps_get_u8(&r); /* it does not move */
    }
    ck_assert(bps_reader_done(&r));
    ck_assert_uint_eq(load[0] + load[1], 2824);
    ck_assert_uint_le(load[0], 2824 / 2 + 150);
    ck_assert_uint_ge(load[0], 2824 / 2 - 150);
    bps_writer_fini(&reply);
    bps_writer_fini(&w);
    bps_declared_fini(&declared);
}
END_TEST

START_TEST(test_declared_nonsense)
{
    static const struct {
        uint8_t dtype;
        uint64_t bytes;
    } bad[] = {{BPS_DTYPES, 4}, {BPS_FLOAT32, 5}, {BPS_FLOAT32, 1ull << 60}, {BPS_FLOAT64, 1ull << 45}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct bps_declared declared;
        struct bps_writer w, reply;
        ck_assert_int_eq(bps_declared_init(&declared, &two_shards, 64), BPS_OK);
        bps_writer_init(&w);
        bps_put_u32(&w, 1);
        ask(&w, "a", bad[i].dtype, bad[i].bytes);
        ck_assert_int_eq(answer(&declared, &w, &reply), BPS_ERR_PROTOCOL);
        bps_writer_fini(&reply);
        bps_writer_fini(&w);
        bps_declared_fini(&declared);
    }
}
END_TEST

/* What no worker has declared before one was lost cannot be summed any more. */
START_TEST(test_declared_closed)
{
    struct bps_declared declared;
    struct bps_writer w, known, reply;
    struct bps_reader r;
    char why[80];
    ck_assert_int_eq(bps_declared_init(&declared, &two_shards, 1024), BPS_OK);
    bps_writer_init(&w);
    bps_put_u32(&w, 1);
    ask(&w, "a", BPS_FLOAT32, 4);
    ck_assert_int_eq(answer(&declared, &w, &known), BPS_OK);
    bps_writer_fini(&w);
    bps_writer_fini(&known);
    snprintf(declared.closed, sizeof declared.closed, "worker 1 was lost");
    bps_writer_init(&w);
    bps_put_u32(&w, 2);
    ask(&w, "b", BPS_FLOAT32, 4);
    ask(&w, "a", BPS_FLOAT32, 4);
    ck_assert_int_eq(answer(&declared, &w, &reply), BPS_OK);
    bps_reader_init(&r, reply.data, reply.size);
    ck_assert_uint_eq(bps_get_u32(&r), 2);
    ck_assert_uint_eq(bps_get_u32(&r), 0);
    bps_get_string(&r, why, sizeof why);
    ck_assert_str_eq(why, "worker 1 was lost");
    ck_assert_uint_eq(bps_get_u32(&r), 1); /* "a" */
    ck_assert_uint_eq(declared.last, 1);
    bps_writer_fini(&reply);
    bps_writer_fini(&w);
    bps_declared_fini(&declared);
}
END_TEST

/* ---- tensors that change their form ---- */

/* The last CHANGED message, and to how many it went. */
static struct {
    uint32_t sent, id, last_rank;
    uint8_t kind;
    uint32_t round;
    char text[400];
} got;

static void keep(void *arg, uint32_t rank, uint8_t frame, const struct bps_writer *changed)
{
    struct bps_reader r;
    (void)arg;
    ck_assert_uint_eq(frame, BPS_FRAME_CHANGED);
    bps_reader_init(&r, changed->data, changed->size);
    got.sent++;
    got.last_rank = rank;
    got.id = bps_get_u32(&r);
    got.kind = bps_get_u8(&r);
    if (got.kind == 0) {
        ck_assert_uint_eq(bps_get_u32(&r), got.id);
        got.round = bps_get_u32(&r);
    } else {
        bps_get_string(&r, got.text, sizeof got.text);
        ck_assert(bps_reader_done(&r));
    }
}

static bps_status say(struct bps_declared *declared, uint32_t rank, uint32_t round, bool changed, uint32_t ndim,
                      const int64_t *shape)
{
    struct bps_form form = {.bytes = 24, .dtype = BPS_FLOAT32, .ndim = ndim, .shape = (int64_t *)shape};
    struct bps_writer w;
    struct bps_reader r;
    bps_writer_init(&w);
    bps_put_u32(&w, 1);
    bps_put_u32(&w, round);
    bps_put_u8(&w, changed);
    bps_put_form(&w, &form);
    for (size_t n = 0; n < w.size; n++) { /* cut anywhere: refused */
        bps_reader_init(&r, w.data, n);
        ck_assert_int_eq(bps_declared_change(declared, rank, 1, &r, keep, NULL), BPS_ERR_PROTOCOL);
    }
    bps_reader_init(&r, w.data, w.size);
    bps_status status = bps_declared_change(declared, rank, 1, &r, keep, NULL);
    bps_writer_fini(&w);
    return status;
}

static void declare_one(struct bps_declared *declared)
{
    struct bps_writer w, reply;
    ck_assert_int_eq(bps_declared_init(declared, &two_shards, 16), BPS_OK);
    bps_writer_init(&w);
    bps_put_u32(&w, 1);
    ask(&w, "a", BPS_FLOAT32, 4000);
    ck_assert_int_eq(answer(declared, &w, &reply), BPS_OK);
    bps_writer_fini(&reply);
    bps_writer_fini(&w);
    got.sent = 0;
}

START_TEST(test_change)
{
    static const int64_t flat[] = {6}, square[] = {2, 3}, wrong[] = {2, 2}, negative[] = {-2, -3};
    struct bps_declared declared;
    declare_one(&declared);
    ck_assert_int_eq(say(&declared, 0, 7, true, 2, square), BPS_OK);
    ck_assert_int_eq(say(&declared, 0, 7, true, 2, square), BPS_ERR_PROTOCOL); /* twice */
    ck_assert_int_eq(say(&declared, 1, 8, true, 2, square), BPS_ERR_PROTOCOL); /* in another round */
    ck_assert_int_eq(say(&declared, 1, 7, true, 2, wrong), BPS_ERR_PROTOCOL);
    ck_assert_int_eq(say(&declared, 1, 7, true, 2, negative), BPS_ERR_PROTOCOL);
    ck_assert_int_eq(say(&declared, 2, 7, true, 2, square), BPS_OK);
    ck_assert_uint_eq(got.sent, 0);
    bps_declared_check_stalls(&declared, 5 * BPS_S, BPS_S, 0, keep, NULL);
    ck_assert_uint_eq(got.sent, 2);
    ck_assert_uint_eq(got.kind, BPS_WIRE_WAITING);
    ck_assert_str_eq(got.text, "has waited 5 s for worker 1");
    ck_assert_int_eq(say(&declared, 1, 7, true, 2, square), BPS_OK);
    ck_assert_uint_eq(got.sent, 5);
    ck_assert_uint_eq(got.kind, 0);
    ck_assert_uint_eq(got.id, 1);
    ck_assert_uint_eq(got.round, 8);
    ck_assert_int_eq(say(&declared, 0, 8, true, 1, flat), BPS_OK);
    bps_declared_fini(&declared);
}
END_TEST

START_TEST(test_change_refused)
{
    static const int64_t flat[] = {6}, square[] = {2, 3};
    struct bps_declared declared;
    declare_one(&declared);
    say(&declared, 0, 0, true, 2, square);
    say(&declared, 1, 0, true, 1, flat);
    say(&declared, 2, 0, true, 2, square);
    ck_assert_uint_eq(got.sent, 3);
    ck_assert_uint_eq(got.kind, (uint8_t)-BPS_ERR_MISMATCH);
    ck_assert_str_eq(got.text, "worker 1 pushed [6] float32, workers 0 and 2 pushed [2, 3] float32");
    say(&declared, 0, 1, true, 2, square); /* that one has contributed already: there is no going back */
    say(&declared, 1, 1, false, 2, square);
    say(&declared, 2, 1, true, 2, square);
    ck_assert_uint_eq(got.sent, 6);
    ck_assert_uint_eq(got.kind, (uint8_t)-BPS_ERR_MISMATCH);
    say(&declared, 0, 2, true, 2, square);
    bps_declared_excuse(&declared, 4 * BPS_S);
    bps_declared_check_stalls(&declared, 5 * BPS_S, 0, 2 * BPS_S, keep, NULL);
    ck_assert_uint_eq(got.sent, 6);
    bps_declared_check_stalls(&declared, 9 * BPS_S, 0, 2 * BPS_S, keep, NULL);
    ck_assert_uint_eq(got.sent, 7);
    ck_assert_uint_eq(got.kind, (uint8_t)-BPS_ERR_TIMEOUT);
    ck_assert_str_eq(got.text, "workers 1 and 2 did not contribute within 2 s (cluster.stall_timeout)");
    say(&declared, 2, 3, true, 2, square);
    bps_declared_refuse(&declared, BPS_ERR_LOST, "worker 1 has left the job", keep, NULL);
    ck_assert_uint_eq(got.sent, 8);
    ck_assert_uint_eq(got.last_rank, 2);
    ck_assert_uint_eq(got.kind, (uint8_t)-BPS_ERR_LOST);
    bps_declared_fini(&declared);
}
END_TEST

/* ---- tensors that are forgotten ---- */

static bps_status forget(struct bps_declared *declared, uint32_t rank, uint32_t id, uint32_t round)
{
    struct bps_writer w;
    struct bps_reader r;
    bps_writer_init(&w);
    bps_put_u32(&w, 1);
    bps_put_u32(&w, id);
    bps_put_u32(&w, round);
    for (size_t n = 0; n < w.size; n++) { /* cut anywhere: refused */
        bps_reader_init(&r, w.data, n);
        ck_assert_int_eq(bps_declared_forget(declared, rank, &r), BPS_ERR_PROTOCOL);
    }
    bps_reader_init(&r, w.data, w.size);
    bps_status status = bps_declared_forget(declared, rank, &r);
    bps_writer_fini(&w);
    return status;
}

/* Declares a name on a worker; returns the tensor's id, and the round in which it begins. */
static uint32_t declare(struct bps_declared *declared, uint32_t rank, const char *name, uint32_t *round)
{
    struct bps_writer w, reply;
    struct bps_reader r;
    bps_writer_init(&w);
    bps_writer_init(&reply);
    bps_put_u32(&w, 1);
    ask(&w, name, BPS_FLOAT32, 4000);
    bps_reader_init(&r, w.data, w.size);
    ck_assert_int_eq(bps_declared_answer(declared, rank, &r, &reply), BPS_OK);
    bps_reader_init(&r, reply.data, reply.size);
    bps_get_u32(&r);
    uint32_t id = bps_get_u32(&r);
    *round = bps_get_u32(&r);
    bps_writer_fini(&w);
    bps_writer_fini(&reply);
    return id;
}

START_TEST(test_forget)
{
    struct bps_declared declared;
    uint32_t round;
    declare_one(&declared);                                         /* by worker 0, as 1 */
    ck_assert_int_eq(forget(&declared, 1, 1, 0), BPS_ERR_PROTOCOL); /* it has not declared it */
    ck_assert_int_eq(forget(&declared, 0, 2, 0), BPS_ERR_PROTOCOL);
    ck_assert_uint_eq(declare(&declared, 1, "a", &round), 1);
    ck_assert_int_eq(forget(&declared, 0, 1, 7), BPS_OK);
    ck_assert_int_eq(forget(&declared, 0, 1, 7), BPS_ERR_PROTOCOL); /* twice */
    ck_assert_uint_eq(declare(&declared, 0, "b", &round), 2);
    ck_assert_uint_eq(round, 0);
    ck_assert_uint_eq(declare(&declared, 0, "a", &round), 1); /* worker 1 has not forgotten it */
    ck_assert_uint_eq(round, 7);
    ck_assert_int_eq(forget(&declared, 0, 1, 9), BPS_OK);
    ck_assert_int_eq(forget(&declared, 1, 1, 8), BPS_OK);
    ck_assert_uint_eq(declare(&declared, 2, "c", &round), 1); /* the id is used again, with later rounds */
    ck_assert_uint_eq(round, 9);
    for (uint32_t i = 0; i < 1000; i++) {
        char name[16];
        snprintf(name, sizeof name, "model %u", i);
        ck_assert_uint_eq(declare(&declared, i % 3, name, &round), 3);
        ck_assert_uint_eq(round, i);
        ck_assert_int_eq(forget(&declared, i % 3, 3, round + 1), BPS_OK);
    }
    ck_assert_uint_eq(declare(&declared, 0, "a", &round), 3);
    bps_declared_fini(&declared);
}
END_TEST

START_TEST(test_agreement)
{
    ck_assert_int_eq(bps_agreement_compare("a = 1\nb = 2\n", "x", "a = 1\nb = 2\n", "y", &report), BPS_OK);
    ck_assert_int_eq(bps_agreement_compare("a = 1\nb = 2\n", "x", "a = 1\nb = 3\n", "y", &report), BPS_ERR_REFUSED);
    ck_assert_str_eq(report.text,
                     "the configurations differ: 'b = 2' on the scheduler's host x, but 'b = 3' on host y");
    ck_assert_int_eq(bps_agreement_compare("a = 1\n", "x", "", "y", &report), BPS_ERR_REFUSED);
    ck_assert_int_eq(bps_agreement_compare("", "x", "a = 1", "y", &report), BPS_ERR_REFUSED);
}
END_TEST

#define BYTEPS "library byteps\t1.0 format 3\t/a/libbyteps.so\n"

START_TEST(test_loaded)
{
    const char *ours = BYTEPS "stage clip\t0.1 format 0\t/a/stage_clip.so\nreducer cpu\t1.0 format 0\tbuiltin\n";
    const char *others = "reducer cpu\t1.0 format 0\t/b/reducer_cpu.so\nstage clip2\t7 format 7\t/b\n" BYTEPS;
    const char *clip = "stage clip\t0.1 format 1\t/b/stage_clip.so\n";
    static const char *const cut[] = {"", "\n", "\t\t\t\n", "stage", "stage clip\n\n", "reducer cpu\t1.0 format 0"};
    ck_assert_int_eq(bps_agreement_loaded(ours, "x", others, "y", &report), BPS_OK);
    ck_assert_int_eq(bps_agreement_loaded(ours, "x", clip, "y", &report), BPS_ERR_REFUSED);
    ck_assert_str_eq(report.text,
                     "the versions differ: stage clip is 0.1 format 0 on host x (/a/stage_clip.so), but 0.1 "
                     "format 1 on host y (/b/stage_clip.so); install the same on all hosts");
    for (size_t i = 0; i < sizeof cut / sizeof *cut; i++) {
        bps_agreement_loaded(cut[i], "x", ours, "y", &report);
        bps_agreement_loaded(ours, "x", cut[i], "y", &report);
    }
}
END_TEST

/* ---- the array, the heap ---- */

START_TEST(test_array)
{
    int *items = NULL;
    size_t room = 0, grown = 0, last = 0;
    for (size_t i = 0; i < 5000; i++) {
        ck_assert(bps_array_reserve(items, room, i + 1));
        grown += room != last;
        last = room;
        items[i] = (int)i;
    }
    ck_assert_uint_lt(grown, 12);
    for (size_t i = 0; i < 5000; i++) {
        ck_assert_int_eq(items[i], (int)i);
    }
    ck_assert(bps_array_reserve(items, room, 3 * last));
    ck_assert_uint_eq(room, 3 * last);
    free(items);
}
END_TEST

START_TEST(test_heap)
{
    struct bps_heap heap = {0};
    static int items[500];
    static int32_t priority[500];
    static size_t place[500];
    srand(5);
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 500; i++) {
            priority[i] = rand() % 9 - 4;
            ck_assert(bps_heap_push(&heap, priority[i], (uint64_t)i, &items[i], i % 7 < 3 ? &place[i] : NULL));
        }
        for (int i = 0; i < 500; i += 7) {
            ck_assert(bps_heap_remove(&heap, &place[i]));
            ck_assert(!bps_heap_remove(&heap, &place[i]));
        }
        int32_t last = INT32_MAX, *item, *second = bps_heap_top(&heap);
        long sequence = -1;
        while ((item = bps_heap_top(&heap)) != NULL) {
            long i = item - items;
            ck_assert_ptr_eq(item, second);
            second = bps_heap_second(&heap);
            ck_assert_ptr_eq(bps_heap_pop(&heap), item);
            ck_assert(i % 7 >= 3 || (i % 7 != 0 && !bps_heap_remove(&heap, &place[i])));
            ck_assert(priority[i] < last || (priority[i] == last && i > sequence));
            last = priority[i];
            sequence = i;
        }
        ck_assert_uint_eq(heap.count, 0);
        ck_assert_ptr_null(second);
    }
    ck_assert_ptr_null(bps_heap_pop(&heap));
    bps_heap_fini(&heap);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("node");
    TCase *tests = tcase_create("node");
    tcase_add_test(tests, test_ranks_by_host);
    tcase_add_test(tests, test_wanted_ranks);
    tcase_add_test(tests, test_hosts_of_the_missing);
    tcase_add_test(tests, test_many_missing);
    tcase_add_test(tests, test_early_seats);
    tcase_add_test(tests, test_survivors_come_first);
    tcase_add_test(tests, test_room_for_a_server);
    tcase_add_test(tests, test_views_follow_one_another);
    tcase_add_test(tests, test_views_with_another_server);
    tcase_add_test(tests, test_book);
    tcase_add_test(tests, test_keys);
    tcase_add_test(tests, test_leading);
    tcase_add_test(tests, test_proofs);
    tcase_add_test(tests, test_declared);
    tcase_add_test(tests, test_declared_at_once);
    tcase_add_test(tests, test_declared_nonsense);
    tcase_add_test(tests, test_declared_closed);
    tcase_add_test(tests, test_change);
    tcase_add_test(tests, test_change_refused);
    tcase_add_test(tests, test_forget);
    tcase_add_test(tests, test_agreement);
    tcase_add_test(tests, test_loaded);
    tcase_add_test(tests, test_array);
    tcase_add_test(tests, test_heap);
    tcase_set_timeout(tests, 60);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
