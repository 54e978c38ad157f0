/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transport.h - the core as the tests of transports play it: sides that listen and dial, and ends of channels that send
 * frames of known contents, take what arrives, check all of it, and drop, finish or kick where a test wants that.
 */
#ifndef BPS_TOOLS_CHECK_TRANSPORT_H
#define BPS_TOOLS_CHECK_TRANSPORT_H

#include <byteps/transport.h>

#include "tools/check/check.h"
#include "tools/check/guarded.h"

/* ---- frames (transport_stream.c) ---- */

/* Frames whose sizes and bytes follow from the seed, so that each process knows what has to arrive. */
struct bps_stream {
    uint64_t seed;
    uint32_t frames;
    uint32_t largest;      /* bytes of a payload */
    const uint32_t *sizes; /* of the frames, again and again, none more than `largest`; NULL: drawn */
    uint32_t nsizes;
    uint32_t answers; /* of 8 frames so many have room for an answer */
};
uint32_t bps_stream_bytes(const struct bps_stream *stream, uint32_t index);
bool bps_stream_answers(const struct bps_stream *stream, uint32_t index);
const uint8_t *bps_stream_payload(struct bps_check *check, const struct bps_stream *stream, uint32_t index);
/* Of a frame, or of the one that returns its loan. */
enum bps_stream_type { BPS_STREAM_FRAME, BPS_STREAM_RETURN };
void bps_stream_header(const struct bps_stream *stream, uint32_t index, enum bps_stream_type type, uint8_t *header);
uint32_t bps_header_bytes(const uint8_t *header);
uint32_t bps_header_index(const uint8_t *header);
uint32_t bps_header_type(const uint8_t *header);
/* The byte that answers `byte`. */
static inline uint8_t bps_stream_answer(uint8_t byte)
{
    return (uint8_t)~byte;
}

/* ---- an instance (transport_side.c) ---- */

struct bps_end;

struct bps_side {
    struct bps_check *check;
    struct bps_instance *instance;
    const struct bps_transport_ops *ops;
    struct bps_transport_attr attr;
    char address[256];                 /* where it listens */
    const struct bps_channel_key *key; /* of its channels; NULL: none */
    struct bps_end *next;              /* the end of the next channel that is accepted; NULL: refused */
    unsigned accepted, refused;
    struct bps_end *lending; /* whose place has lent memory, and no other sink was called since */
};

struct bps_side bps_side_open(struct bps_check *check);
void bps_side_listen(struct bps_side *side);
void bps_side_close(struct bps_side *side);
/* Two, of which the second one listens. */
void bps_sides_open(struct bps_check *check, struct bps_side sides[2]);
void bps_sides_close(struct bps_side sides[2]);
/* Starts to dial; the end knows its side. */
void bps_end_dial(struct bps_end *end, const char *address, uint32_t lane);

/*
 * Drives the loop until done(arg). When the time of the test is over it fails, and tells how far those of the `count`
 * ends are that are neither complete nor closed.
 */
void bps_sides_wait(struct bps_check *check, bool (*done)(void *arg), void *arg, const struct bps_end *ends,
                    unsigned count);
/* Drives the loop for so many milliseconds, or until done(arg). */
bool bps_sides_drive(struct bps_check *check, bool (*done)(void *arg), void *arg, unsigned milliseconds);

/* ---- one end of a channel (transport_end.c) ---- */

/* What a transport calls. */
enum bps_call {
    BPS_CALL_CONNECTED,
    BPS_CALL_HEADER,
    BPS_CALL_NEXT,
    BPS_CALL_SENT,
    BPS_CALL_CLOSED,
    BPS_CALL_PLACED,
    BPS_CALL_PLACE,
    BPS_CALL_TAKE,
    BPS_CALL_LEND,
    BPS_CALL_OPEN,
    BPS_CALLS
};
const char *bps_call_name(enum bps_call call);

/* How an end takes payloads. */
enum bps_taking {
    BPS_TAKING_PLACED, /* always into its own memory */
    BPS_TAKING_TAKEN,  /* never */
    BPS_TAKING_MIXED,  /* now and then, only a part, and whole elements of up to BPS_SINK_GRAIN bytes */
};

/* What it does with loans. */
enum bps_lending { BPS_LENDING_NONE, BPS_LENDING_REFUSED, BPS_LENDING_MIXED };

/* From within the nth call of this kind. */
struct bps_act {
    enum bps_call call;
    unsigned nth; /* from 1; 0: never */
    void (*fn)(struct bps_end *end);
    struct bps_end *end;
};

#define BPS_END_SLOTS 16u

struct bps_end {
    /* What the test sets. */
    struct bps_check *check;
    struct bps_side *side;
    const char *name; /* "the end that has dialled" */
    struct bps_stream out, in;
    enum bps_taking taking;
    enum bps_lending lending;
    bool opens;             /* its sinks have `open` */
    uint32_t slots;         /* frames under way at most */
    uint32_t open_for;      /* frames that `next` gives at most, of all; UINT32_MAX: all */
    bool may_close;         /* else `closed` fails the test */
    bool again;             /* `next` is now and then BPS_AGAIN, with a kick from within */
    bool mistrusts;         /* headers that were not sent are refused, and do not fail the test */
    uint32_t refuse_header; /* of this frame from 1, with BPS_ERR_MISMATCH; 0: none */
    struct bps_act act;
    void *arg;

    /* What has become of it. */
    struct bps_channel *channel; /* NULL: none yet, or ended */
    bool connected, dropped, finished;
    bool wants;   /* kicked, or given a frame, since `next` was BPS_AGAIN */
    bool unasked; /* so it was when it was finished, and since then as well */
    unsigned closed, calls[BPS_CALLS];
    bps_status status;
    char text[200];
    uint32_t handed, sent, begun, received; /* frames with a payload's bytes, that is: not those that return a loan */
    uint32_t lent, answered, returned, opened;

    /* Its memory, gone with the channel. */
    struct bps_guarded headers, payloads, answers, room, places;
    struct bps_region regions[3]; /* of payloads, answers and places */
    unsigned attached;            /* so many of them */
    struct bps_end_slot {
        bool used;
        uint32_t index;
    } slot[2 * BPS_END_SLOTS]; /* the second half: of frames that return loans */
    struct bps_end_place {
        bool used;
        uint32_t index;
    } place[BPS_PLACES_LIMIT];
    struct bps_end_loan {
        struct bps_loan *loan;
        uint32_t index;
    } loan[BPS_END_SLOTS];
    uint32_t loans, returning, came_back; /* came_back: slot of the loan whose answer is here, + 1 */
    struct bps_sink sink;
    uint32_t bytes, offset, grain, lent_bytes; /* of the payload that arrives; lent by place */
    uint8_t *lent_at;
    bool asked; /* for a place, or lent a loan: the payload that arrives */
    uint64_t random;
    const char *inside; /* of the transport's functions: "finish" */
};

extern const struct bps_channel_events bps_end_events;

/* Its fields out, in, side and name are set: gives it memory, and the rest its usual values. */
void bps_end_begin(struct bps_end *end);
/* Its payloads, answers and places lie in regions from now on, if the transport takes these. */
void bps_end_attach(struct bps_end *end);
/* Gives memory back; the channel is dropped if there is one. */
void bps_end_free(struct bps_end *end);
/* What the core does; nothing if the channel has ended. */
void bps_end_drop(struct bps_end *end);
void bps_end_finish(struct bps_end *end);
void bps_end_kick(struct bps_end *end);
/* All has been sent, and all has come. */
bool bps_end_is_complete(const struct bps_end *end);
/* "the end that has dialled: 3 of 12 frames sent, 4 of 12 received" */
void bps_end_tell(const struct bps_end *end, char *text, size_t n);

/* ---- two ends (transport_pair.c) ---- */

/* A channel between two sides of this process. */
struct bps_pair {
    struct bps_end dials, listens;
};
/* Both ends with streams of these; what else differs is set between this and connect. */
void bps_pair_begin(struct bps_pair *pair, struct bps_side *dials, struct bps_side *listens,
                    const struct bps_stream *stream);
void bps_pair_connect(struct bps_pair *pair, uint32_t lane);
/* Waits until all frames of so many channels have come. */
void bps_pairs_wait(struct bps_pair *pairs, unsigned count);
/* Finishes one end of each, and waits until both are closed. */
void bps_pairs_finish(struct bps_pair *pairs, unsigned count);
/* After the end in order, of which it looks at the statuses: BPS_OK where `finish` was called, BPS_ERR_IO elsewhere. */
void bps_pair_check_closed(const struct bps_pair *pair);
void bps_pair_free(struct bps_pair *pair);

#endif
