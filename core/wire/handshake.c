/* SPDX-License-Identifier: Apache-2.0 */
/* handshake.c - CHALLENGE, HELLO, WELCOME, REFUSE: who may talk to whom, and the same words on both sides. */
#include "wire/handshake.h"

#include <openssl/rand.h>
#include <string.h>

#include <byteps/byteps.h>

static const uint8_t greeting[8] = {'B', 'y', 't', 'e', 'P', 'S', '\r', '\n'};

bps_status bps_challenge(struct bps_link *link)
{
    if (RAND_bytes(link->nonce, sizeof link->nonce) != 1) {
        return BPS_ERR_IO;
    }
    struct bps_writer w;
    bps_writer_init(&w);
    bps_put_bytes(&w, greeting, sizeof greeting);
    bps_put_u32(&w, BPS_WIRE_VERSION);
    bps_put_string(&w, bps_version());
    bps_put_bytes(&w, link->nonce, sizeof link->nonce);
    bps_status status = bps_link_send_message(link, BPS_FRAME_CHALLENGE, &w);
    bps_writer_fini(&w);
    return status;
}

/* Says why and closes once that is sent; the owner hears of it as closed. */
static bps_status refuse(struct bps_link *link, const char *text)
{
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

static bps_status on_challenge(struct bps_link *link, struct bps_reader *payload)
{
    struct bps_report report = {""};
    bps_status status = read_version(payload, &report);
    if (status == BPS_ERR_REFUSED) {
        return give_up(link, status, report.text);
    }
    bps_get_bytes(payload, link->nonce, sizeof link->nonce);
    if (status != BPS_OK || !bps_reader_done(payload)) {
        return BPS_ERR_PROTOCOL;
    }
    struct bps_writer w;
    bps_writer_init(&w);
    bps_put_bytes(&w, greeting, sizeof greeting);
    bps_put_u32(&w, BPS_WIRE_VERSION);
    bps_put_string(&w, bps_version());
    bps_put_bytes(&w, link->nonce, sizeof link->nonce);
    link->handler->introduce(link->owner, link, link->nonce, &w);
    status = bps_link_send_message(link, BPS_FRAME_HELLO, &w);
    bps_writer_fini(&w);
    return status;
}

void bps_link_welcome(struct bps_link *link)
{
    link->state = BPS_LINK_OPEN;
    bps_link_send_message(link, BPS_FRAME_WELCOME, NULL);
}

static bps_status on_hello(struct bps_link *link, struct bps_reader *payload)
{
    struct bps_report report = {""};
    bps_status status = read_version(payload, &report);
    if (status == BPS_ERR_REFUSED) {
        return refuse(link, report.text);
    }
    uint8_t nonce[BPS_NONCE_BYTES];
    bps_get_bytes(payload, nonce, sizeof nonce);
    if (status != BPS_OK || payload->bad || memcmp(nonce, link->nonce, sizeof nonce) != 0) {
        return BPS_ERR_PROTOCOL;
    }
    struct bps_channel *channel = link->channel;
    status = link->handler->hello(link->owner, link, payload, &report);
    if (status == BPS_ERR_PROTOCOL || link->channel != channel) {
        return status == BPS_ERR_PROTOCOL ? status : BPS_OK;
    }
    if (status != BPS_OK) {
        return refuse(link, report.text);
    }
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
        link->state = BPS_LINK_OPEN;
        link->handler->welcome(link->owner, link);
        return BPS_OK;
    case BPS_FRAME_REFUSE:
        return on_refuse(link, payload);
    default:
        return BPS_ERR_PROTOCOL;
    }
}
