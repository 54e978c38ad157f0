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
#include "base/report.h"

#define LOG "link"

/* How a CHALLENGE begins in all versions, whatever else a header is there: see docs/wire.md. */
#define TYPE_AT        4
#define VERSION_AT     8
#define GREETING_AT    16
#define SOFTWARE_AT    24
#define SOFTWARE_BYTES 32u
static const char greeting[8] = {'B', 'y', 't', 'e', 'P', 'S', '\r', '\n'};

/* And it is as long as the longest header that another version may read. */
#define CHALLENGE_BYTES (256 - BPS_HEADER_BYTES)

/* Whether no frame of it leaves the host. */
static bool stays_on_host(const struct bps_link *link)
{
    return link->transport->attr.transport.local;
}

/* BPS_CHECKSUM_* of this end. */
static uint8_t checksum_kind(const struct bps_link *link)
{
    const struct bps_conf *conf = link->transport->conf;
    if (conf != NULL && conf->cluster.encrypt) {
        return stays_on_host(link) ? BPS_CHECKSUM_NONE : BPS_CHECKSUM_ENCRYPT;
    }
    return (uint8_t)(conf != NULL ? conf->cluster.checksum : BPS_CHECKSUM_NONE);
}

bps_status bps_challenge(struct bps_link *link)
{
    uint8_t begin[BPS_HEADER_BYTES] = {[TYPE_AT] = BPS_FRAME_CHALLENGE, [VERSION_AT] = BPS_WIRE_VERSION};
    uint8_t payload[CHALLENGE_BYTES] = {0};
    struct bps_header header;
    if (RAND_bytes(link->introduction.challenge, BPS_NONCE_BYTES) != 1) {
        return BPS_ERR_IO;
    }
    memcpy(begin + GREETING_AT, greeting, sizeof greeting);
    snprintf((char *)begin + SOFTWARE_AT, SOFTWARE_BYTES, "%s", bps_version());
    memcpy(payload, link->introduction.challenge, BPS_NONCE_BYTES);
    payload[BPS_NONCE_BYTES] = checksum_kind(link);
    return bps_header_decode(begin, &header) == BPS_OK ? bps_link_send(link, &header, payload, sizeof payload)
                                                       : BPS_ERR_PROTOCOL;
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
static bps_status handshake_refuse(struct bps_link *link, const char *text)
{
    log_refusal(link, text);
    link->state = BPS_LINK_REFUSED;
    bps_link_send_text(link, BPS_FRAME_REFUSE, text);
    bps_link_finish(link);
    return BPS_OK;
}

/* Ends a link from our side with a text that its owner hears. */
static bps_status handshake_give_up(struct bps_link *link, bps_status status, const char *text)
{
    bps_link_drop(link);
    link->handler->closed(link->owner, link, status, text);
    return BPS_OK;
}

bps_status bps_check_version(struct bps_link *link, const uint8_t *begin)
{
    struct bps_report report = {""};
    struct bps_reader reader;
    char software[SOFTWARE_BYTES + 1];
    bool challenge = begin[TYPE_AT] == BPS_FRAME_CHALLENGE;
    bool greets = memcmp(begin + GREETING_AT, greeting, sizeof greeting) == 0;
    bps_reader_init(&reader, begin + VERSION_AT, sizeof(uint32_t));
    uint32_t version = bps_get_u32(&reader);
    if (!challenge || !greets || version == BPS_WIRE_VERSION) {
        return challenge && !greets ? BPS_ERR_PROTOCOL : BPS_OK;
    }
    bps_reader_init(&reader, begin + SOFTWARE_AT, strnlen((const char *)begin + SOFTWARE_AT, SOFTWARE_BYTES));
    bps_get_text(&reader, software, sizeof software);
    (void)bps_fail(&report, BPS_ERR_REFUSED,
                   "byteps %s uses wire version %u, byteps %s uses %u; install the same version on all hosts",
                   bps_version(), BPS_WIRE_VERSION, software, version);
    (void)handshake_give_up(link, BPS_ERR_REFUSED, report.text);
    return BPS_ERR_REFUSED;
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
        return handshake_give_up(link, status, "could not compute the authentication proof");
    }
    bps_writer_init(&w);
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
    static const char *const names[] = {"none", "blake2s", "gmac", "another one"};
    uint8_t rest[CHALLENGE_BYTES - BPS_NONCE_BYTES - 1], own = checksum_kind(link);
    struct bps_report report;
    bps_get_bytes(payload, link->introduction.challenge, BPS_NONCE_BYTES);
    uint8_t other = bps_get_u8(payload);
    bps_get_bytes(payload, rest, sizeof rest);
    if (!bps_reader_done(payload)) {
        return BPS_ERR_PROTOCOL;
    }
    if (other != own && (other == BPS_CHECKSUM_ENCRYPT || own == BPS_CHECKSUM_ENCRYPT)) {
        (void)bps_fail(&report, BPS_ERR_REFUSED,
                       "cluster.encrypt is %s here, but %s there; it must be the same on all members",
                       own == BPS_CHECKSUM_ENCRYPT ? "true" : "false", own == BPS_CHECKSUM_ENCRYPT ? "false" : "true");
        return handshake_give_up(link, BPS_ERR_REFUSED, report.text);
    }
    if (other != own) {
        (void)bps_fail(&report, BPS_ERR_REFUSED,
                       "cluster.checksum is %s here, but %s there; it must be the same on all members", names[own],
                       names[other < 3 ? other : 3]);
        return handshake_give_up(link, BPS_ERR_REFUSED, report.text);
    }
    return say_hello(link);
}

bps_status bps_link_is_foreign(struct bps_report *report)
{
    BPS_REPORT(report, "authentication failed: the secret of the job differs, or only one side has it");
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

/* From here on frames have checksums, but for WELCOME itself. */
static bps_status check_frames(struct bps_link *link, enum bps_link_end end)
{
    enum bps_link_end other = end == BPS_DIALLER ? BPS_ACCEPTOR : BPS_DIALLER;
    uint8_t kind = checksum_kind(link);
    bps_status status = bps_checksum_new(kind, link->key, &link->introduction, end, &link->repeat.sending);
    return status != BPS_OK ? status
                            : bps_checksum_new(kind, link->key, &link->introduction, other, &link->repeat.receiving);
}

void bps_link_welcome(struct bps_link *link)
{
    uint8_t proof[BPS_PROOF_BYTES];
    struct bps_writer w;
    bps_writer_init(&w);
    w.failed = bps_prove(link->key, BPS_ACCEPTOR, &link->introduction, proof) != BPS_OK ||
               check_frames(link, BPS_ACCEPTOR) != BPS_OK;
    bps_put_bytes(&w, proof, sizeof proof);
    link->state = w.failed ? BPS_LINK_REFUSED : BPS_LINK_OPEN; /* nothing goes out as it is that is to be encrypted */
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

static bps_status handshake_on_hello(struct bps_link *link, struct bps_reader *payload)
{
    struct bps_report report = {""};
    OPENSSL_cleanse(&link->channel_key, sizeof link->channel_key); /* the transport has got it */
    if (read_hello(link, payload) != BPS_OK) {
        return BPS_ERR_PROTOCOL;
    }
    struct bps_channel *channel = link->channel;
    bps_status status = link->handler->hello(link->owner, link, &link->introduction.claim, &report);
    bool refused = status != BPS_OK && status != BPS_ERR_PROTOCOL && link->channel == channel;
    return refused ? handshake_refuse(link, report.text) : status == BPS_ERR_PROTOCOL ? status : BPS_OK;
}

static bps_status on_welcome(struct bps_link *link, struct bps_reader *payload)
{
    uint8_t proof[BPS_PROOF_BYTES];
    bps_get_bytes(payload, proof, sizeof proof);
    if (!bps_reader_done(payload)) {
        return BPS_ERR_PROTOCOL;
    }
    if (!bps_is_proof(link->key, BPS_ACCEPTOR, &link->introduction, proof)) {
        return handshake_give_up(link, BPS_ERR_REFUSED, "it failed to authenticate: the secret of the job differs");
    }
    if (check_frames(link, BPS_DIALLER) != BPS_OK) {
        return BPS_ERR_NOMEM;
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
    return handshake_give_up(link, BPS_ERR_REFUSED, text);
}

bps_status bps_handshake(struct bps_link *link, const struct bps_header *header, struct bps_reader *payload)
{
    if (link->state == BPS_LINK_ACCEPTED) {
        return header->type == BPS_FRAME_HELLO ? handshake_on_hello(link, payload) : BPS_ERR_PROTOCOL;
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
