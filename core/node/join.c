/* SPDX-License-Identifier: Apache-2.0 */
/* join.c - what a member says of itself to the scheduler. */
#include "node/join.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/files.h"
#include "conf/conf.h"

#define AGREEMENT_LIMIT 32768u
#define LOADED_LIMIT    (256u * 1024u)
#define BANDWIDTH_LIMIT 1000000u /* thousandths */

void bps_join_write(const struct bps_join *join, struct bps_writer *w)
{
    bps_put_u32(w, join->role);
    bps_put_u32(w, (uint32_t)join->rank);
    bps_put_u32(w, (uint32_t)join->local_rank);
    bps_put_u32(w, (uint32_t)join->local_size);
    bps_put_u32(w, (uint32_t)join->before);
    bps_put_u64(w, join->host_id);
    bps_put_u32(w, join->pid);
    bps_put_u32(w, join->bandwidth);
    bps_put_u32(w, join->speed);
    bps_put_string(w, join->host);
    bps_put_string(w, join->job);
    bps_put_string(w, join->local);
    bps_put_bytes(w, join->public_key, sizeof join->public_key);
    bps_put_string(w, join->agreement);
    bps_put_string(w, join->loaded);
}

bps_status bps_join_read(struct bps_reader *r, struct bps_join *out)
{
    memset(out, 0, sizeof *out);
    out->role = bps_get_u32(r);
    out->rank = (int32_t)bps_get_u32(r);
    out->local_rank = (int32_t)bps_get_u32(r);
    out->local_size = (int32_t)bps_get_u32(r);
    out->before = (int32_t)bps_get_u32(r);
    out->host_id = bps_get_u64(r);
    out->pid = bps_get_u32(r);
    out->bandwidth = bps_get_u32(r);
    out->speed = bps_get_u32(r);
    bps_get_string(r, out->host, sizeof out->host);
    bps_get_string(r, out->job, sizeof out->job);
    bps_get_string(r, out->local, sizeof out->local);
    bps_get_bytes(r, out->public_key, sizeof out->public_key);
    out->agreement = bps_get_string_new(r, AGREEMENT_LIMIT);
    out->loaded = bps_get_string_new(r, LOADED_LIMIT);
    if (!bps_reader_done(r) || out->role > BPS_ROLE_SERVER || out->rank < -1 || out->local_rank < -1 ||
        out->local_size < -1 || out->before < BPS_COMES_IN || out->bandwidth > BANDWIDTH_LIMIT) {
        bps_join_fini(out);
        return BPS_ERR_PROTOCOL;
    }
    return BPS_OK;
}

void bps_join_fini(struct bps_join *join)
{
    free(join->agreement);
    free(join->loaded);
    join->agreement = join->loaded = NULL;
}

/*
 * The number of the network namespace: differs between containers of one machine that have the same name. Each
 * has an address of its own, and the sockets by which processes of a host meet are of one namespace.
 */
static void network(char *text, size_t n)
{
    ssize_t length = readlink("/proc/self/ns/net", text, n - 1);
    text[length > 0 ? length : 0] = '\0';
}

void bps_join_host(struct bps_join *join)
{
    char text[256] = "";
    if (gethostname(join->host, sizeof join->host - 1) != 0) {
        snprintf(join->host, sizeof join->host, "unknown");
    }
    join->host[sizeof join->host - 1] = '\0';
    snprintf(text, sizeof text, "%s\n", join->host);
    /* The boot id differs between machines that happen to have the same name. */
    bps_first_line("/proc/sys/kernel/random/boot_id", text + strlen(text), sizeof text - strlen(text));
    network(text + strlen(text), sizeof text - strlen(text));
    uint8_t digest[EVP_MAX_MD_SIZE];
    if (EVP_Digest(text, strlen(text), digest, NULL, EVP_sha256(), NULL) == 1) {
        memcpy(&join->host_id, digest, sizeof join->host_id);
    }
}
