/* SPDX-License-Identifier: Apache-2.0 */
/* secret.c - see secret.h. */
#include "conf/secret.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <byteps/plugin.h>

#define LEAST   16u
#define LONGEST 4096u

bps_status bps_secret_of_text(const char *text, size_t bytes, uint8_t out[BPS_SECRET_BYTES], struct bps_report *report)
{
    while (bytes > 0 && isspace((unsigned char)text[bytes - 1])) {
        bytes--;
    }
    while (bytes > 0 && isspace((unsigned char)*text)) {
        text++;
        bytes--;
    }
    if (bytes < LEAST || bytes > LONGEST) {
        BPS_REPORT(report, "the secret has %zu bytes; expected %u to %u, such as openssl rand -hex 32 prints", bytes,
                   LEAST, LONGEST);
        return BPS_ERR_CONF;
    }
    unsigned n = BPS_SECRET_BYTES;
    if (EVP_Digest(text, bytes, out, &n, EVP_sha256(), NULL) != 1) {
        BPS_REPORT(report, "SHA-256 is not available");
        return BPS_ERR_CONF;
    }
    return BPS_OK;
}

/* Whether only its owner can read it; a group as well, where that is root's way to hand it to a service. */
static bool is_private(const struct stat *about)
{
    bool owned = about->st_uid == geteuid() || about->st_uid == 0;
    bool handed = about->st_uid == 0 && (about->st_mode & (S_IWGRP | S_IXGRP | S_IRWXO)) == 0;
    return owned && ((about->st_mode & (S_IRWXG | S_IRWXO)) == 0 || handed);
}

static bps_status secret_read_file(int fd, uint8_t out[BPS_SECRET_BYTES], struct bps_report *report)
{
    char text[LONGEST + 2];
    struct stat about;
    if (fstat(fd, &about) != 0 || !S_ISREG(about.st_mode)) {
        BPS_REPORT(report, "not a file");
        return BPS_ERR_CONF;
    }
    if (!is_private(&about)) {
        BPS_REPORT(
            report,
            "other users can read it, or another user owns it; expected a file owned by this user with mode 0600");
        return BPS_ERR_CONF;
    }
    ssize_t n = read(fd, text, sizeof text);
    if (n < 0) {
        BPS_REPORT(report, "%s", strerror(errno));
        return BPS_ERR_CONF;
    }
    bps_status status = bps_secret_of_text(text, (size_t)n, out, report);
    OPENSSL_cleanse(text, sizeof text);
    return status;
}

bps_status bps_secret_of_file(const char *path, uint8_t out[BPS_SECRET_BYTES], struct bps_report *report)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        BPS_REPORT(report, "%s", strerror(errno));
        return BPS_ERR_CONF;
    }
    bps_status status = secret_read_file(fd, out, report);
    close(fd);
    return status;
}
