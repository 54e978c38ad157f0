/* SPDX-License-Identifier: Apache-2.0 */
/* nearest.c - which known name did the user mean? */
#include <ctype.h>
#include <string.h>

#include "conf/option.h"

#define WORD_MAX 64u

/*
 * What an error costs. Neighbours that changed places are one error, and of words that are one error away the
 * likelier one, since all the letters are there: "tpc" is "tcp" rather than "ipc".
 */
#define ERROR 4u
#define SWAP  3u

/* One more than the length of the longest word that is compared. */
typedef unsigned short distances[WORD_MAX + 1];

static unsigned min3(unsigned a, unsigned b, unsigned c)
{
    unsigned m = a < b ? a : b;
    return m < c ? m : c;
}

static bool same(char a, char b)
{
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

/* What to insert, delete, replace or swap with a neighbour costs; upper and lower case are equal. */
static unsigned edit_distance(const char *a, size_t na, const char *b, size_t nb)
{
    distances rows[3];
    unsigned short *before = rows[0], *last = rows[1], *row = rows[2];
    for (size_t j = 0; j <= nb; j++) {
        last[j] = (unsigned short)(j * ERROR);
    }
    for (size_t i = 1; i <= na; i++) {
        row[0] = (unsigned short)(i * ERROR);
        for (size_t j = 1; j <= nb; j++) {
            unsigned replace = last[j - 1] + (same(a[i - 1], b[j - 1]) ? 0 : ERROR);
            unsigned best = min3(replace, last[j] + ERROR, row[j - 1] + ERROR);
            if (i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1]) && before[j - 2] + SWAP < best) {
                best = before[j - 2] + SWAP;
            }
            row[j] = (unsigned short)best;
        }
        unsigned short *reuse = before;
        before = last;
        last = row;
        row = reuse;
    }
    return last[nb];
}

const char *bps_nearest(const char *word, const char *const *candidates, size_t n)
{
    size_t length = strlen(word);
    if (length == 0 || length > WORD_MAX) {
        return NULL;
    }
    unsigned best = ((unsigned)(length + 2) / 3 + 1) * ERROR; /* farther than this is no typing error */
    const char *nearest = NULL;
    for (size_t i = 0; i < n; i++) {
        size_t other = strlen(candidates[i]);
        if (other > WORD_MAX) {
            continue;
        }
        unsigned distance = edit_distance(word, length, candidates[i], other);
        if (distance < best) {
            best = distance;
            nearest = candidates[i];
        }
    }
    return nearest;
}
