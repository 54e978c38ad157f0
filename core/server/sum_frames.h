/* SPDX-License-Identifier: Apache-2.0 */
/* sum_frames.h - between the frames of workers and those who sum: the one place that knows both. */
#ifndef BPS_SERVER_SUM_FRAMES_H
#define BPS_SERVER_SUM_FRAMES_H

#include "sum/sum.h"
#include "wire/frame.h"
#include "wire/message.h"

static inline struct bps_round_id bps_frame_round(const struct bps_header *header)
{
    bool exchange = (header->flags & BPS_FLAG_EXCHANGE) != 0, keeps = (header->flags & BPS_FLAG_KEEPS) != 0;
    uint32_t round = header->tensor < BPS_ID_UNNAMED ? header->round : 0;
    return (struct bps_round_id){header->tensor, header->partition, round,
                                 exchange ? BPS_KEY_EXCHANGE
                                 : keeps  ? BPS_KEY_VALUE
                                          : BPS_KEY_ROUNDS};
}

/* A PUSH. BPS_ERR_PROTOCOL, here and below: no worker that works sends this. */
bps_status bps_frame_contribution(const struct bps_header *header, struct bps_contribution *out);
/* A POISON, FAILED or STALLED and its text, and back. */
bps_status bps_frame_notice(const struct bps_header *header, const char *text, struct bps_notice *out);
struct bps_header bps_notice_header(const struct bps_notice *notice, uint32_t epoch, uint8_t flags);

/* The engine gets a PUSH, a POISON, a FAILED. */
bps_status bps_frame_push(struct bps_sum *sum, uint32_t rank, const struct bps_header *header,
                          struct bps_sum_cursor *cursor);
/* The same of a PUSH whose number of a coding stands for this one. */
bps_status bps_frame_push_coded(struct bps_sum *sum, uint32_t rank, const struct bps_header *header,
                                const struct bps_coding *coding, struct bps_sum_cursor *cursor);
bps_status bps_frame_poison(struct bps_sum *sum, uint32_t rank, const struct bps_header *header, const char *text);
/* A HELD, a FINAL. */
bps_status bps_frame_held(struct bps_sum *sum, uint32_t rank, const struct bps_header *header, struct bps_reader *bits);
bps_status bps_frame_final(struct bps_sum *sum, uint32_t rank, const struct bps_header *header,
                           const struct bps_reader *result);
bps_status bps_frame_fail(struct bps_sum *sum, const struct bps_header *header, const char *text);
/* Writes the headers of a finished slice: of RESULT. */
void bps_frame_result(struct bps_sum_slice *slice, uint32_t epoch, uint32_t group);

#endif
