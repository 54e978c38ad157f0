/* SPDX-License-Identifier: Apache-2.0 */
/* test_lost.c - servers that are lost: the book, heirs, what is placed; and which calls have ended. */
#include <stdlib.h>
#include <string.h>

#include "checks.h"
#include "base/sequence.h"
#include "node/unnamed.h"
#include "scheduler/declared.h"

/* ---- sequences ---- */

static bool add(struct bps_sequence *sequence, uint32_t number)
{
    return bps_sequence_add(sequence, number - sequence->next);
}

/* Numbers come in any order within a stretch, from there over the end of 32 bits. */
START_TEST(test_any_order)
{
    enum { MANY = 3000 };
    const uint32_t stretches[] = {1, 2, 63, 64, 65, 128, 500, MANY};
    static uint32_t number[MANY];
    static bool there[MANY];
    uint32_t first = _i % 2 == 0 ? 0 : UINT32_MAX - MANY / 2, stretch = stretches[_i / 2], next = 0;
    struct bps_sequence sequence = {.next = first};
    srand(5);
    for (uint32_t i = 0; i < MANY; i++) {
        number[i] = i;
        there[i] = false;
    }
    for (uint32_t i = 0; i < MANY; i++) {
        uint32_t room = MANY - i < stretch ? MANY - i : stretch, other = i + (uint32_t)rand() % room;
        uint32_t is = number[other];
        number[other] = number[i];
        number[i] = is;
        there[is] = true;
        ck_assert(add(&sequence, first + is));
        while (next < MANY && there[next]) {
            next++;
        }
        ck_assert_uint_eq(sequence.next, first + next);
    }
    ck_assert_uint_eq(sequence.next, first + MANY);
    for (size_t i = 0; i < sequence.words; i++) {
        ck_assert_uint_eq(sequence.bits[i], 0);
    }
    bps_sequence_fini(&sequence);
    ck_assert_uint_eq(sequence.next, 0);
    bps_sequence_fini(&sequence); /* of an empty one */
}
END_TEST

/* All but the first are there, and then that: at once, however many they are. */
START_TEST(test_gaps)
{
    const uint32_t gaps[] = {1, 62, 63, 64, 65, 127, 128, 129, 1000};
    struct bps_sequence sequence = {.next = 7};
    for (uint32_t i = 1; i <= gaps[_i]; i++) {
        ck_assert(bps_sequence_add(&sequence, i));
        ck_assert(bps_sequence_add(&sequence, i)); /* twice does no harm */
        ck_assert_uint_eq(sequence.next, 7);
    }
    ck_assert(bps_sequence_add(&sequence, 0));
    ck_assert_uint_eq(sequence.next, 8 + gaps[_i]);
    ck_assert(bps_sequence_add(&sequence, 1));
    ck_assert_uint_eq(sequence.next, 8 + gaps[_i]);
    ck_assert(bps_sequence_add(&sequence, 0));
    ck_assert_uint_eq(sequence.next, 10 + gaps[_i]);
    bps_sequence_fini(&sequence);
}
END_TEST

/* ---- books ---- */

#define SERVERS 6u
#define EACH    3u /* shards of a server */
#define SHARDS  (SERVERS * EACH)

/* Two workers; each server has so many shards, of these weights by server. */
static void make_book(struct bps_book *book, uint32_t servers, uint32_t each, const uint32_t *weights)
{
    *book = (struct bps_book){
        .epoch = 1, .view = 1, .workers = 2, .members = 2 + servers, .shards = servers * each, .spread = 1};
    book->member = calloc(book->members, sizeof *book->member);
    book->shard = calloc(book->shards, sizeof *book->shard);
    ck_assert(book->member != NULL && book->shard != NULL);
    for (uint32_t i = 0; i < book->members; i++) {
        bool worker = i < book->workers;
        book->member[i].role = worker ? BPS_ROLE_WORKER : BPS_ROLE_SERVER;
        book->member[i].rank = book->member[i].group = worker ? i : i - book->workers;
    }
    for (uint32_t i = 0; i < book->shards; i++) {
        book->shard[i].member = 2 + i / each;
        book->shard[i].weight = weights[i / each];
    }
    ck_assert(bps_book_weigh(book));
}

static bps_status read_book(const struct bps_writer *w, struct bps_book *out)
{
    struct bps_reader r;
    bps_reader_init(&r, w->data, w->size);
    return bps_book_read(&r, out);
}

static bps_status there_and_back(const struct bps_book *book, struct bps_book *out)
{
    struct bps_writer w;
    bps_writer_init(&w);
    bps_book_write(book, &w);
    bps_status status = read_book(&w, out);
    bps_writer_fini(&w);
    return status;
}

static const uint32_t even[SERVERS] = {100, 100, 100, 100, 100, 100};

/* One after the other, down to the last. */
START_TEST(test_lose)
{
    struct bps_book book, copy;
    make_book(&book, SERVERS, EACH, even);
    for (uint32_t lost = 0; lost + 1 < SERVERS; lost++) {
        uint32_t member = 2 + (lost * 5 + 3) % SERVERS;
        ck_assert(bps_book_needs(&book, member));
        ck_assert(bps_book_lose(&book, member));
        ck_assert(!bps_book_needs(&book, member));
        ck_assert_uint_eq(bps_book_weights(&book), (SERVERS - 1 - lost) * EACH * 100);
        for (uint32_t i = 0; i < SHARDS; i++) {
            const struct bps_book_shard *shard = &book.shard[i];
            ck_assert(shard->lost == shard->gone && shard->lost == (shard->weight == 0));
            ck_assert(shard->member != member || shard->lost);
            ck_assert_uint_eq(shard->spread, 100); /* what has no name keeps its rows */
        }
        ck_assert(bps_book_lose(&book, member)); /* is known */
        ck_assert_int_eq(there_and_back(&book, &copy), BPS_OK);
        for (uint32_t i = 0; i < SHARDS; i++) {
            ck_assert(copy.shard[i].lost == book.shard[i].lost && copy.shard[i].gone == book.shard[i].gone);
            ck_assert_uint_eq(copy.shard[i].until, book.shard[i].until);
        }
        bps_book_fini(&copy);
    }
    uint32_t last = 0;
    while (book.shard[last].gone) {
        last++;
    }
    ck_assert(!bps_book_lose(&book, book.shard[last].member)); /* there is no heir */
    ck_assert(!book.shard[last].gone && !book.shard[last].lost && book.shard[last].weight == 100);
    bps_book_fini(&book);
}
END_TEST

/* Those that are left had nothing: now they get it all. */
START_TEST(test_lose_all_weights)
{
    static const uint32_t weights[3] = {0, 40, 0};
    struct bps_book book, copy;
    make_book(&book, 3, 2, weights);
    for (uint32_t i = 0; i < 2; i++) { /* has been taken away before */
        book.shard[i].gone = true;
    }
    ck_assert(bps_book_lose(&book, 3));
    for (uint32_t i = 0; i < 6; i++) {
        ck_assert_uint_eq(book.shard[i].lost, i / 2 == 1);
        ck_assert_uint_eq(book.shard[i].gone, i / 2 <= 1);
        ck_assert_uint_eq(book.shard[i].weight > 0, i / 2 == 2);
    }
    ck_assert_uint_eq(book.shard[4].weight, book.shard[5].weight);
    ck_assert_int_eq(there_and_back(&book, &copy), BPS_OK);
    ck_assert(copy.shard[1].gone && !copy.shard[1].lost && copy.shard[3].lost);
    ck_assert_uint_ge(bps_unnamed_shard(&copy, &copy, BPS_ID_UNNAMED | 1, 0), 4);
    bps_book_spread(&copy);
    ck_assert_uint_eq(copy.shard[3].spread, 0);
    ck_assert_uint_eq(copy.shard[5].until, bps_book_weights(&copy));
    ck_assert(!bps_book_lose(&book, 4));
    bps_book_fini(&copy);
    bps_book_fini(&book);
}
END_TEST

START_TEST(test_foreign_books)
{
    struct bps_book book, out;
    struct bps_writer w, other;
    size_t at = 0;
    make_book(&book, 2, 1, even);
    book.shard[1].weight = 0;
    bps_writer_init(&w);
    bps_book_write(&book, &w);
    book.shard[1].gone = true;
    bps_writer_init(&other);
    bps_book_write(&book, &other);
    ck_assert_uint_eq(w.size, other.size);
    while (w.data[at] == other.data[at]) {
        at++;
    }
    for (uint32_t gone = 0; gone <= UINT8_MAX; gone++) { /* gone; lost; and what there is not */
        w.data[at] = (uint8_t)gone;
        ck_assert_int_eq(read_book(&w, &out), gone <= 2 ? BPS_OK : BPS_ERR_PROTOCOL);
        if (gone <= 2) {
            ck_assert(out.shard[1].gone == (gone >= 1) && out.shard[1].lost == (gone == 2));
            bps_book_fini(&out);
        }
    }
    bps_writer_fini(&w);
    bps_writer_fini(&other);
    for (uint32_t lost = 0; lost < 2; lost++) { /* with a weight */
        book.shard[1].weight = 1;
        book.shard[1].lost = lost != 0;
        ck_assert_int_eq(there_and_back(&book, &out), BPS_ERR_PROTOCOL);
    }
    book.shard[0].weight = book.shard[1].weight = 0; /* nobody sums */
    ck_assert_int_eq(there_and_back(&book, &out), BPS_ERR_PROTOCOL);
    book.shard[0].weight = 1;
    book.shard[0].spread = UINT32_MAX; /* more than 32 bits of it */
    book.shard[1].spread = 1;
    ck_assert_int_eq(there_and_back(&book, &out), BPS_ERR_PROTOCOL);
    book.shard[1].spread = 0;
    ck_assert_int_eq(there_and_back(&book, &out), BPS_OK);
    bps_book_fini(&out);
    book.shard[0].spread = 0; /* not told: by the weights */
    ck_assert_int_eq(there_and_back(&book, &out), BPS_OK);
    ck_assert_uint_eq(out.shard[0].spread, 1);
    bps_book_fini(&out);
    bps_book_fini(&book);
}
END_TEST

/* ---- heirs ---- */

/* Who sees each loss, and who sees them all at once: the same shard has it, and never one that is gone. */
START_TEST(test_heirs_in_all_views)
{
    enum { IDS = 64, PARTITIONS = 8 };
    uint32_t weights[SERVERS];
    struct bps_book first, now;
    static uint16_t unnamed[IDS][PARTITIONS], named[IDS][PARTITIONS];
    srand(100 + (unsigned)_i);
    for (uint32_t i = 0; i < SERVERS; i++) {
        weights[i] = 1 + (uint32_t)rand() % 1000;
    }
    make_book(&first, SERVERS, EACH, weights);
    ck_assert_int_eq(bps_book_copy(&first, &now), BPS_OK);
    for (uint32_t id = 0; id < IDS; id++) {
        for (uint32_t p = 0; p < PARTITIONS; p++) {
            unnamed[id][p] = bps_unnamed_shard(&first, &first, BPS_ID_UNNAMED | id, p);
            named[id][p] = (uint16_t)((uint32_t)rand() % SHARDS);
        }
    }
    for (uint32_t losses = 0; losses + 1 < SERVERS; losses++) {
        uint32_t member = 2 + (uint32_t)rand() % SERVERS;
        ck_assert(bps_book_lose(&now, member));
        for (uint32_t id = 0; id < IDS; id++) {
            for (uint32_t p = 0; p < PARTITIONS; p++) {
                uint16_t heir = bps_unnamed_shard(&first, &now, BPS_ID_UNNAMED | id, p);
                ck_assert(!now.shard[heir].gone);
                ck_assert(heir == unnamed[id][p] || now.shard[unnamed[id][p]].lost); /* who has it keeps it */
                unnamed[id][p] = heir;
                heir = bps_unnamed_shard(&now, &now, id + 1, p);
                uint16_t *has = &named[id][p], had = *has;
                *has = now.shard[had].lost ? heir : had;
                ck_assert(!now.shard[*has].gone);
                ck_assert(had < SHARDS && (*has == had || *has == heir));
            }
        }
    }
    for (uint32_t id = 0; id < IDS; id++) { /* those that have moved at all are where who jumps over views moves them */
        for (uint32_t p = 0; p < PARTITIONS; p++) {
            ck_assert_uint_eq(unnamed[id][p], bps_unnamed_shard(&first, &now, BPS_ID_UNNAMED | id, p));
        }
    }
    bps_book_fini(&now);
    bps_book_fini(&first);
}
END_TEST

/* The same of named partitions, wherever they have been placed. */
START_TEST(test_named_heirs_over_views)
{
    struct bps_book step, jump;
    make_book(&step, SERVERS, EACH, even);
    ck_assert_int_eq(bps_book_copy(&step, &jump), BPS_OK);
    for (uint32_t losses = 0; losses + 1 < SERVERS; losses++) {
        ck_assert(bps_book_lose(&jump, 2 + (losses * 5 + (uint32_t)_i) % SERVERS));
    }
    for (uint32_t n = 0; n < 40 * SHARDS; n++) {
        uint16_t placed = (uint16_t)(n % SHARDS), has = placed;
        struct bps_book at;
        ck_assert_int_eq(bps_book_copy(&step, &at), BPS_OK);
        for (uint32_t losses = 0; losses + 1 < SERVERS; losses++) {
            bps_book_lose(&at, 2 + (losses * 5 + (uint32_t)_i) % SERVERS);
            has = at.shard[has].lost ? bps_unnamed_shard(&at, &at, 1 + n / SHARDS, n % 7) : has;
        }
        bps_book_fini(&at);
        uint16_t at_once = jump.shard[placed].lost ? bps_unnamed_shard(&jump, &jump, 1 + n / SHARDS, n % 7) : placed;
        ck_assert_uint_eq(has, at_once);
    }
    bps_book_fini(&jump);
    bps_book_fini(&step);
}
END_TEST

/* What a lost one had is spread over all others, by their weights; what they had stays. */
START_TEST(test_heirs_by_weight)
{
    enum { MANY = 40000 };
    static const uint32_t weights[5] = {300, 100, 200, 400, 500};
    uint32_t got[5] = {0}, lost = 0, all = 1500 - weights[_i];
    struct bps_book book, now;
    make_book(&book, 5, 1, weights);
    ck_assert_int_eq(bps_book_copy(&book, &now), BPS_OK);
    ck_assert(bps_book_lose(&now, 2 + (uint32_t)_i));
    for (uint32_t id = 0; id < MANY; id++) {
        uint16_t had = bps_unnamed_shard(&book, &book, BPS_ID_UNNAMED | id, 0);
        uint16_t has = bps_unnamed_shard(&book, &now, BPS_ID_UNNAMED | id, 0);
        ck_assert(had == has || had == _i);
        got[has] += had == _i;
        lost += had == _i;
    }
    for (uint32_t i = 0; i < 5; i++) {
        double share = i == (uint32_t)_i ? 0 : (double)weights[i] / all, has = (double)got[i] / lost;
        ck_assert(has > 0.8 * share - 1e-9 && has < 1.2 * share + 1e-9);
    }
    bps_book_fini(&now);
    bps_book_fini(&book);
}
END_TEST

/* A server that comes is no heir as long as one that was there is left; then it is, and no later one. */
START_TEST(test_who_came_later)
{
    static const uint32_t weights[4] = {1, 1, 0, 0};
    struct bps_book first, now;
    make_book(&first, 4, 1, weights);
    ck_assert_int_eq(bps_book_copy(&first, &now), BPS_OK);
    first.shards = 2;
    for (uint32_t lost = 0; lost < 3; lost++) {
        for (uint32_t id = 0; id < 100 && lost > 0; id++) {
            ck_assert_uint_eq(bps_unnamed_shard(&first, &now, BPS_ID_UNNAMED | id, 0), lost);
        }
        ck_assert(bps_book_lose(&now, 2 + lost));
    }
    bps_book_fini(&now);
    bps_book_fini(&first);
}
END_TEST

/* One of very many is left, which no row has among its first places. */
START_TEST(test_one_is_left)
{
    enum { SERVERS_OF_MANY = 500 };
    uint32_t weights[SERVERS_OF_MANY];
    struct bps_book book, now;
    for (uint32_t i = 0; i < SERVERS_OF_MANY; i++) {
        weights[i] = i == 77 ? 0 : 1000;
    }
    make_book(&book, SERVERS_OF_MANY, 1, weights);
    ck_assert_int_eq(bps_book_copy(&book, &now), BPS_OK);
    for (uint32_t i = 0; i < SERVERS_OF_MANY; i++) {
        ck_assert(i == 77 || bps_book_lose(&now, 2 + i));
    }
    ck_assert_uint_gt(now.shard[77].weight, 0); /* though it had none */
    for (uint32_t id = 0; id < 1000; id++) {
        ck_assert_uint_eq(bps_unnamed_shard(&book, &now, BPS_ID_UNNAMED | id, id % 3), 77);
    }
    bps_book_fini(&now);
    bps_book_fini(&book);
}
END_TEST

/* ---- what is placed ---- */

static void declare_one(struct bps_declared *declared, uint32_t number, uint64_t elements)
{
    char name[16];
    snprintf(name, sizeof name, "t%u", number);
    for (uint32_t rank = 0; rank < 2; rank++) {
        struct bps_writer w, reply;
        struct bps_reader r;
        bps_writer_init(&w);
        bps_writer_init(&reply);
        bps_put_u32(&w, 1);
        bps_put_string(&w, name);
        bps_put_u8(&w, BPS_FLOAT32);
        bps_put_u64(&w, elements * 4);
        bps_put_u8(&w, 255);
        bps_put_string(&w, "");
        bps_put_u8(&w, 0);
        bps_put_u32(&w, 0); /* nor of rows */
        bps_reader_init(&r, w.data, w.size);
        ck_assert_int_eq(bps_declared_answer(declared, rank, &r, &reply), BPS_OK);
        bps_writer_fini(&w);
        bps_writer_fini(&reply);
    }
}

static uint64_t loads(const struct bps_bin *bin, uint32_t n)
{
    uint64_t all = 0;
    for (uint32_t i = 0; i < n; i++) {
        all += bin[i].load;
    }
    return all;
}

/* All is on shards that are there, whose loads say so, as if it had been placed there. */
START_TEST(test_inherit)
{
    struct bps_book book;
    struct bps_declared declared;
    make_book(&book, SERVERS, EACH, even);
    ck_assert_int_eq(bps_declared_init(&declared, &book, 1 << 16), BPS_OK);
    for (uint32_t i = 0; i < 40; i++) {
        declare_one(&declared, i, i % 7 == 0 ? 200000 : i * 50);
    }
    struct bps_placement *placement = &declared.placement;
    uint64_t all = loads(placement->shard, SHARDS);
    ck_assert_uint_gt(all, 0);
    for (uint32_t losses = 0; losses < (uint32_t)_i; losses++) {
        uint32_t member = 2 + (losses * 5 + 1) % SERVERS;
        book.view++;
        ck_assert(bps_book_lose(&book, member));
        bps_declared_inherit(&declared, &book);
        ck_assert_uint_eq(loads(placement->shard, SHARDS), all);
        ck_assert_uint_eq(loads(placement->server, SERVERS), all);
        for (uint32_t i = 0; i < SHARDS; i++) {
            ck_assert(!book.shard[i].lost || placement->shard[i].load == 0);
            ck_assert_uint_eq(placement->shard[i].weight, book.shard[i].weight);
        }
        ck_assert_uint_eq(placement->server[member - 2].load + placement->server[member - 2].weight, 0);
        uint16_t last = 0;
        for (struct bps_declared_tensor *t = declared.ids; t != NULL; t = t->by_id.next) {
            for (uint32_t i = 0; i < t->layout.n; i++) {
                last = t->layout.part[i].shard;
                ck_assert(!book.shard[last].gone);
            }
        }
        declare_one(&declared, 100 + losses, 200000); /* goes to what is left */
        all = loads(placement->shard, SHARDS);
    }
    for (struct bps_declared_tensor *t = declared.ids; t != NULL; t = t->by_id.next) {
        for (uint32_t i = 0; i < t->layout.n; i++) {
            ck_assert(!book.shard[t->layout.part[i].shard].gone);
        }
        bps_placement_remove(placement, &t->layout);
        bps_layout_fini(&t->layout);
    }
    ck_assert_uint_eq(loads(placement->shard, SHARDS) + loads(placement->server, SERVERS), 0);
    bps_declared_fini(&declared);
    bps_book_fini(&book);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("lost");
    TCase *tests = tcase_create("lost");
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, test_any_order, 0, 16);
    tcase_add_loop_test(tests, test_gaps, 0, 9);
    tcase_add_test(tests, test_lose);
    tcase_add_test(tests, test_lose_all_weights);
    tcase_add_test(tests, test_foreign_books);
    tcase_add_loop_test(tests, test_heirs_in_all_views, 0, 8);
    tcase_add_loop_test(tests, test_named_heirs_over_views, 0, 6);
    tcase_add_loop_test(tests, test_heirs_by_weight, 0, 5);
    tcase_add_test(tests, test_who_came_later);
    tcase_add_test(tests, test_one_is_left);
    tcase_add_loop_test(tests, test_inherit, 0, 6);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
