/* SPDX-License-Identifier: Apache-2.0 */
/* agreement.c - the first value in which two members differ: of their configurations, or of the code that they run. */
#include "scheduler/agreement.h"

#include <stdbool.h>
#include <string.h>

/* Line by line. */
bps_status bps_agreement_compare(const char *ours, const char *our_host, const char *theirs, const char *their_host,
                                 struct bps_report *report)
{
    while (*ours != '\0' || *theirs != '\0') {
        int a = (int)strcspn(ours, "\n"), b = (int)strcspn(theirs, "\n");
        if (a != b || memcmp(ours, theirs, (size_t)a) != 0) {
            return bps_fail(report, BPS_ERR_REFUSED,
                            "the configurations differ: '%.*s' on the scheduler's host %s, but '%.*s' on host %s",
                            a > 200 ? 200 : a, ours, our_host, b > 200 ? 200 : b, theirs, their_host);
        }
        ours += a + (ours[a] == '\n');
        theirs += b + (theirs[b] == '\n');
    }
    return BPS_OK;
}

/* ---- code ---- */

#define FILE_SHOWN 250 /* bytes of a file's name, its last ones */

/* Not terminated. */
struct field {
    const char *text;
    int bytes;
};

/* "KIND NAME<tab>VERSION format N<tab>FILE" */
struct loaded {
    struct field what, version, file;
};

/* Reads up to the byte `end`, and steps behind it; what is missing is empty. */
static struct field read_field(const char **at, const char *end)
{
    struct field field = {*at, (int)strcspn(*at, end)};
    *at += field.bytes;
    *at += **at == *end;
    return field;
}

static struct loaded read_line(const char **at)
{
    struct loaded line = {.what = read_field(at, "\t\n")};
    line.version = read_field(at, "\t\n");
    line.file = read_field(at, "\n");
    return line;
}

static bool equal(struct field a, struct field b)
{
    return a.bytes == b.bytes && memcmp(a.text, b.text, (size_t)a.bytes) == 0;
}

static struct field tail(struct field file)
{
    int cut = file.bytes > FILE_SHOWN ? file.bytes - FILE_SHOWN : 0;
    return (struct field){file.text + cut, file.bytes - cut};
}

static bps_status differ(const struct loaded *a, const char *host, const struct loaded *b, const char *other_host,
                         struct bps_report *report)
{
    struct field file = tail(a->file), other = tail(b->file);
    return bps_fail(report, BPS_ERR_REFUSED,
                    "the versions differ: %.*s is %.*s on host %s (%.*s), but %.*s on host %s (%.*s); install the same "
                    "on all hosts",
                    a->what.bytes, a->what.text, a->version.bytes, a->version.text, host, file.bytes, file.text,
                    b->version.bytes, b->version.text, other_host, other.bytes, other.text);
}

bps_status bps_agreement_loaded(const char *ours, const char *our_host, const char *theirs, const char *their_host,
                                struct bps_report *report)
{
    while (*theirs != '\0') {
        const struct loaded b = read_line(&theirs);
        for (const char *at = ours; *at != '\0';) {
            const struct loaded a = read_line(&at);
            if (equal(a.what, b.what) && !equal(a.version, b.version)) {
                return differ(&a, our_host, &b, their_host, report);
            }
        }
    }
    return BPS_OK;
}
