/* SPDX-License-Identifier: Apache-2.0 */
/* handshake.c - CHALLENGE, HELLO, WELCOME, REFUSE: who may talk to whom, and the same words on both sides. */
#include "wire/handshake.h"

#include <inttypes.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <stdatomic.h>
#include <string.h>

#include <byteps/byteps.h>

#include "base/clock.h"
#include "base/log.h"

#define LOG "link"

static const uint8_t greeting[8] = {'B', 'y', 't', 'e', 'P', 'S', '\r', '\n'};

static void put_greeting(struct bps_writer *w)
{
    bps_writer_init(w);
    bps_put_bytes(w, greeting, sizeof greeting);
    bps_put_u32(w, BPS_WIRE_VERSION);
    bps_put_string(w, bps_version());
}

bps_status bps_challenge(struct bps_link *link)
{
    uint8_t *nonce = link->introduction.challenge;
    if (RAND_bytes(nonce, BPS_NONCE_BYTES) != 1) {
        return BPS_ERR_IO;
    }
    struct bps_writer w;
    put_greeting(&w);
    bps_put_bytes(&w, nonce, BPS_NONCE_BYTES);
    bps_status status = bps_link_send_message(link, BPS_FRAME_CHALLENGE, &w);
    bps_writer_fini(&w);
    return status;
}

/* One line in a second: strangers may come as often as they like. */
static void log_refusal(const struct bps_link *link, const char *text)
{
    static _Atomic uint64_t said, unsaid;
    uint64_t now = bps_now(), before = said;
    if (now - before >= BPS_S && atomic_compare_exchange_strong(&said, &before, now)) {
        bps_warn(LOG, "refused %s: %s (and %" PRIu64 " others before)", link->peer, text, atomic_exchange(&unsaid, 0));
    } else {
        unsaid++;
    }
}

/* Says why and closes once that is sent; the owner hears of it as closed. */
static bps_status refuse(struct bps_link *link, const char *text)
{
    log_refusal(link, text);
    link->state = BPS_LINK_REFUSED;
    bps_link_send_text(link, BPS_FRAME_REFUSE, text);
    bps_link_finish(link);
    return BPS_OK;
}

/* Reads greeting and version; a peer of another version is named with both. */
static bps_status read_version(struct bps_reader *payload, struct bps_report *report)
{
    uint8_t theirs[sizeof greeting];
    char version[32];
    bps_get_bytes(payload, theirs, sizeof theirs);
    uint32_t protocol = bps_get_u32(payload);
    bps_get_string(payload, version, sizeof version);
    if (payload->bad || memcmp(theirs, greeting, sizeof greeting) != 0) {
        return BPS_ERR_PROTOCOL;
    }
    if (protocol != BPS_WIRE_VERSION) {
        BPS_REPORT(report,
                   "byteps %s speaks wire version %u, byteps %s speaks %u; install the same version on all "
                   "hosts",
                   bps_version(), BPS_WIRE_VERSION, version, protocol);
        return BPS_ERR_REFUSED;
    }
    return BPS_OK;
}

/* Ends a link from our side with a text that its owner hears. */
static bps_status give_up(struct bps_link *link, bps_status status, const char *text)
{
    bps_link_drop(link);
    link->handler->closed(link->owner, link, status, text);
    return BPS_OK;
}

static bps_status say_hello(struct bps_link *link)
{
    struct bps_introduction *introduction = &link->introduction;
    const struct bps_claim *claim = &introduction->claim;
    uint8_t proof[BPS_PROOF_BYTES];
    struct bps_writer w;
    bps_status status = link->handler->introduce(link->owner, link, &introduction->claim, link->key);
    if (status == BPS_OK && RAND_bytes(introduction->response, BPS_NONCE_BYTES) != 1) {
        status = BPS_ERR_IO;
    }
    if (status == BPS_OK) {
        status = bps_prove(link->key, BPS_DIALLER, introduction, proof);
    }
    if (status != BPS_OK) {
        return give_up(link, status, "no proof of belonging to the job could be made");
    }
    put_greeting(&w);
    bps_put_bytes(&w, introduction->challenge, BPS_NONCE_BYTES);
    bps_put_bytes(&w, introduction->response, BPS_NONCE_BYTES);
    bps_put_u8(&w, claim->purpose);
    bps_put_u32(&w, claim->epoch);
    bps_put_u32(&w, claim->rank);
    bps_put_u32(&w, claim->lane);
    bps_put_bytes(&w, proof, sizeof proof);
    status = bps_link_send_message(link, BPS_FRAME_HELLO, &w);
    bps_writer_fini(&w);
    return status;
}

static bps_status on_challenge(struct bps_link *link, struct bps_reader *payload)
{
    struct bps_report report = {""};
    bps_status status = read_version(payload, &report);
    if (status == BPS_ERR_REFUSED) {
        return give_up(link, status, report.text);
    }
    bps_get_bytes(payload, link->introduction.challenge, BPS_NONCE_BYTES);
    return status == BPS_OK && bps_reader_done(payload) ? say_hello(link) : BPS_ERR_PROTOCOL;
}

bps_status bps_link_is_foreign(struct bps_report *report)
{
    BPS_REPORT(report, "only members of the job are let in, and there is no proof of that: its secret differs, or is "
                       "known on one side only");
    return BPS_ERR_REFUSED;
}

bps_status bps_link_check(struct bps_link *link, const uint8_t *key, struct bps_report *report)
{
    if (!bps_is_proof(key, BPS_DIALLER, &link->introduction, link->proof)) {
        return bps_link_is_foreign(report);
    }
    memcpy(link->key, key, sizeof link->key);
    return BPS_OK;
}

void bps_link_welcome(struct bps_link *link)
{
    uint8_t proof[BPS_PROOF_BYTES];
    struct bps_writer w;
    bps_writer_init(&w);
    w.failed = bps_prove(link->key, BPS_ACCEPTOR, &link->introduction, proof) != BPS_OK;
    bps_put_bytes(&w, proof, sizeof proof);
    link->state = BPS_LINK_OPEN;
    bps_link_send_message(link, BPS_FRAME_WELCOME, &w);
    bps_writer_fini(&w);
}

static bps_status read_hello(struct bps_link *link, struct bps_reader *payload)
{
    struct bps_introduction *introduction = &link->introduction;
    struct bps_claim *claim = &introduction->claim;
    uint8_t challenge[BPS_NONCE_BYTES];
    bps_get_bytes(payload, challenge, sizeof challenge);
    bps_get_bytes(payload, introduction->response, sizeof introduction->response);
    claim->purpose = bps_get_u8(payload);
    claim->epoch = bps_get_u32(payload);
    claim->rank = bps_get_u32(payload);
    claim->lane = bps_get_u32(payload);
    bps_get_bytes(payload, link->proof, sizeof link->proof);
    bool ours = memcmp(challenge, introduction->challenge, sizeof challenge) == 0;
    return bps_reader_done(payload) && ours ? BPS_OK : BPS_ERR_PROTOCOL;
}

static bps_status on_hello(struct bps_link *link, struct bps_reader *payload)
{
    struct bps_report report = {""};
    OPENSSL_cleanse(&link->channel_key, sizeof link->channel_key); /* the transport has got it */
    bps_status status = read_version(payload, &report);
    if (status == BPS_ERR_REFUSED) {
        return refuse(link, report.text);
    }
    if (status != BPS_OK || read_hello(link, payload) != BPS_OK) {
        return BPS_ERR_PROTOCOL;
    }
    struct bps_channel *channel = link->channel;
    status = link->handler->hello(link->owner, link, &link->introduction.claim, &report);
    if (status == BPS_ERR_PROTOCOL || link->channel != channel) {
        return status == BPS_ERR_PROTOCOL ? status : BPS_OK;
    }
    return status != BPS_OK ? refuse(link, report.text) : BPS_OK;
}

static bps_status on_welcome(struct bps_link *link, struct bps_reader *payload)
{
    uint8_t proof[BPS_PROOF_BYTES];
    bps_get_bytes(payload, proof, sizeof proof);
    if (!bps_reader_done(payload)) {
        return BPS_ERR_PROTOCOL;
    }
    if (!bps_is_proof(link->key, BPS_ACCEPTOR, &link->introduction, proof)) {
        return give_up(link, BPS_ERR_REFUSED, "it could not prove that it belongs to the job");
    }
    link->state = BPS_LINK_OPEN;
    link->welcomed = true;
    link->handler->welcome(link->owner, link);
    return BPS_OK;
}

static bps_status on_refuse(struct bps_link *link, struct bps_reader *payload)
{
    char text[BPS_TEXT_LIMIT + 1];
    bps_get_text(payload, text, sizeof text);
    return give_up(link, BPS_ERR_REFUSED, text);
}

bps_status bps_handshake(struct bps_link *link, const struct bps_header *header, struct bps_reader *payload)
{
    if (link->state == BPS_LINK_ACCEPTED) {
        return header->type == BPS_FRAME_HELLO ? on_hello(link, payload) : BPS_ERR_PROTOCOL;
    }
    switch (header->type) {
    case BPS_FRAME_CHALLENGE:
        return on_challenge(link, payload);
    case BPS_FRAME_WELCOME:
        return on_welcome(link, payload);
    case BPS_FRAME_REFUSE:
        return on_refuse(link, payload);
    default:
        return BPS_ERR_PROTOCOL;
    }
}
