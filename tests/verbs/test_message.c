/* SPDX-License-Identifier: Apache-2.0 */
/* test_message.c - what of the transport over RDMA needs no device: messages, terms, and the arena. */
#include <linux/mempolicy.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../unit/checks.h"
#include "../../transports/verbs/verbs.h"

static const uint8_t kinds[] = {VERBS_WHOLE, VERBS_BEGIN, VERBS_PIECE, VERBS_CREDIT, VERBS_FINISH, VERBS_KEY};

/* A message of this kind, with a payload of 100 bytes where it carries one; its length. */
static uint32_t make(uint8_t kind, uint8_t *data)
{
    uint8_t header[BPS_HEADER_BYTES] = {100};
    const struct verbs_message message = {.kind = kind,
                                          .credits = 0x1234,
                                          .done = 0x5678,
                                          .header = header,
                                          .address = 0x123456789abcdef0ull,
                                          .rkey = 0xdeadbeef,
                                          .bytes = 100};
    header[BPS_HEADER_BYTES - 1] = 0x77;
    return verbs_message_put(&message, data) + (kind == VERBS_WHOLE ? 100 : 0);
}

START_TEST(messages_come_back_as_they_were)
{
    uint8_t data[512] = {0};
    struct verbs_message message;
    uint32_t bytes = make(kinds[_i], data);
    ck_assert(verbs_message_get(data, bytes, &message));
    ck_assert_uint_eq(message.kind, kinds[_i]);
    ck_assert_uint_eq(message.credits, 0x1234);
    ck_assert_uint_eq(message.done, 0x5678);
    if (kinds[_i] == VERBS_WHOLE || kinds[_i] == VERBS_BEGIN) {
        ck_assert_uint_eq(message.header[0], 100);
        ck_assert_uint_eq(message.header[BPS_HEADER_BYTES - 1], 0x77);
    }
    if (kinds[_i] == VERBS_BEGIN || kinds[_i] == VERBS_PIECE) {
        ck_assert_uint_eq(message.address, 0x123456789abcdef0ull);
        ck_assert_uint_eq(message.rkey, 0xdeadbeef);
    }
    if (kinds[_i] <= VERBS_PIECE) {
        ck_assert_uint_eq(message.bytes, 100);
    }
}
END_TEST

START_TEST(messages_of_any_other_length_are_refused)
{
    uint8_t data[512] = {0};
    struct verbs_message message;
    uint32_t bytes = make(kinds[_i], data);
    for (uint32_t n = 0; n < sizeof data; n++) {
        /* In memory of just that size, so that a sanitizer sees what is read behind it. */
        uint8_t *exact = malloc(n + 1);
        memcpy(exact, data, n);
        ck_assert_int_eq(verbs_message_get(exact, n, &message), n == bytes);
        free(exact);
    }
}
END_TEST

START_TEST(unknown_kinds_are_refused)
{
    uint8_t data[512] = {0};
    struct verbs_message message;
    for (unsigned kind = 0; kind < 256; kind++) {
        data[0] = (uint8_t)kind;
        if (kind < VERBS_WHOLE || kind > VERBS_KEY) {
            ck_assert(!verbs_message_get(data, VERBS_PREFIX, &message));
        }
    }
}
END_TEST

START_TEST(terms_come_back_as_they_were)
{
    const struct verbs_terms terms = {.credits = 16,
                                      .eager = 4096,
                                      .block = 65536,
                                      .reads = 16,
                                      .token = 0x123456789abcdef0,
                                      .received = 77,
                                      .lasting = true};
    struct verbs_terms got;
    uint8_t data[64], again[VERBS_TERMS_BYTES];
    verbs_terms_put(&terms, data);
    ck_assert(verbs_terms_get(data, sizeof data, &got)); /* connection managers pad them */
    verbs_terms_put(&got, again);
    ck_assert_mem_eq(data, again, sizeof again);
    ck_assert_uint_eq(got.token, terms.token);
    ck_assert_uint_eq(got.received, terms.received);
    ck_assert(got.lasting);
}
END_TEST

START_TEST(keys_can_be_changed)
{
    uint8_t data[512] = {0};
    struct verbs_message message;
    uint32_t bytes = make(kinds[_i], data);
    ck_assert_uint_eq(verbs_message_bytes(data), bytes);
    if (kinds[_i] == VERBS_BEGIN || kinds[_i] == VERBS_PIECE || kinds[_i] == VERBS_KEY) {
        verbs_message_rekey(data, 6);
        ck_assert(verbs_message_get(data, bytes, &message));
        ck_assert_uint_eq(message.rkey, 6);
        ck_assert_uint_eq(message.address, 0x123456789abcdef0ull);
        ck_assert_uint_eq(message.bytes, 100);
    }
}
END_TEST

static const struct {
    struct verbs_terms terms;
    unsigned spoilt; /* byte that is changed; 99: none */
    size_t bytes;
} impossible[] = {
    {{.credits = 16, .eager = 4096, .block = 65536, .reads = 16}, 99, VERBS_TERMS_BYTES - 1},
    {{.credits = 16, .eager = 4096, .block = 65536, .reads = 16}, 0, VERBS_TERMS_BYTES},
    {{.credits = 16, .eager = 4096, .block = 65536, .reads = 16}, 4, VERBS_TERMS_BYTES},
    {{.credits = 3, .eager = 4096, .block = 65536, .reads = 16}, 99, VERBS_TERMS_BYTES},
    {{.credits = UINT32_MAX, .eager = 4096, .block = 65536, .reads = 16}, 99, VERBS_TERMS_BYTES},
    {{.credits = 16, .eager = 4096, .block = 0, .reads = 16}, 99, VERBS_TERMS_BYTES},
    {{.credits = 16, .eager = 4096, .block = 65536, .reads = 0}, 99, VERBS_TERMS_BYTES},
};

START_TEST(impossible_terms_are_refused)
{
    struct verbs_terms got;
    uint8_t data[VERBS_TERMS_BYTES];
    verbs_terms_put(&impossible[_i].terms, data);
    if (impossible[_i].spoilt < sizeof data) {
        data[impossible[_i].spoilt] ^= 1;
    }
    ck_assert(!verbs_terms_get(data, impossible[_i].bytes, &got));
}
END_TEST

static void *host_alloc(const struct bps_host *host, size_t bytes, size_t align)
{
    (void)host;
    return aligned_alloc(align, (bytes + align - 1) / align * align);
}

static void host_release(const struct bps_host *host, void *memory)
{
    (void)host;
    free(memory);
}

START_TEST(blocks_are_given_once_and_the_warmest_first)
{
    const struct bps_host host = {.size = sizeof host, .alloc = host_alloc, .release = host_release};
    struct verbs_arena arena;
    uint8_t *blocks[8];
    ck_assert(verbs_arena_init(&arena, &host, 8 * 4096, 4096, -1));
    for (int i = 0; i < 8; i++) {
        blocks[i] = verbs_arena_take(&arena);
        ck_assert_ptr_nonnull(blocks[i]);
        memset(blocks[i] - VERBS_HEAD, i, VERBS_HEAD + 4096);
    }
    ck_assert_ptr_null(verbs_arena_take(&arena));
    for (int i = 0; i < 8; i++) {
        ck_assert_uint_eq(blocks[i][-(int)VERBS_HEAD], i);
        ck_assert_uint_eq(blocks[i][4095], i);
    }
    verbs_arena_give(&arena, blocks[3]);
    verbs_arena_give(&arena, blocks[6]);
    ck_assert_ptr_eq(verbs_arena_take(&arena), blocks[6]);
    ck_assert_ptr_eq(verbs_arena_take(&arena), blocks[3]);
    verbs_arena_fini(&arena, &host);
}
END_TEST

/* The kernel has nodes, and this process may choose node 0: in a container it may not. */
static bool may_bind(void)
{
    unsigned long nodes[16] = {1};
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(page, MAP_FAILED);
    bool may = syscall(SYS_mbind, page, 4096, MPOL_PREFERRED, nodes, 1024, 0) == 0;
    munmap(page, 4096);
    return may;
}

START_TEST(blocks_lie_near_the_device)
{
    const struct bps_host host = {.size = sizeof host, .alloc = host_alloc, .release = host_release};
    struct verbs_arena arena;
    unsigned long nodes[16] = {0};
    int mode;
    ck_assert(verbs_arena_init(&arena, &host, 8 * 4096, 4096, 0));
    if (may_bind()) {
        ck_assert_int_eq(syscall(SYS_get_mempolicy, &mode, nodes, 1024, arena.memory, MPOL_F_ADDR), 0);
        ck_assert_int_eq(mode, MPOL_PREFERRED);
        ck_assert_uint_eq(nodes[0], 1);
    }
    memset(verbs_arena_take(&arena), 1, 4096);
    verbs_arena_fini(&arena, &host);
    ck_assert(verbs_arena_init(&arena, &host, 8 * 4096, 4096, 1023)); /* no such node: anywhere */
    memset(verbs_arena_take(&arena), 1, 4096);
    verbs_arena_fini(&arena, &host);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("verbs messages");
    TCase *messages = tcase_create("messages");
    tcase_add_loop_test(messages, messages_come_back_as_they_were, 0, sizeof kinds);
    tcase_add_loop_test(messages, messages_of_any_other_length_are_refused, 0, sizeof kinds);
    tcase_add_test(messages, unknown_kinds_are_refused);
    tcase_add_loop_test(messages, keys_can_be_changed, 0, sizeof kinds);
    tcase_add_test(messages, terms_come_back_as_they_were);
    tcase_add_loop_test(messages, impossible_terms_are_refused, 0, sizeof impossible / sizeof *impossible);
    tcase_add_test(messages, blocks_are_given_once_and_the_warmest_first);
    tcase_add_test(messages, blocks_lie_near_the_device);
    suite_add_tcase(suite, messages);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
