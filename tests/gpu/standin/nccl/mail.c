/* SPDX-License-Identifier: Apache-2.0 */
/* mail.c - messages between ranks of a stand-in communicator, all those of a group at once. */
#include "mail.h"

#include <string.h>
#include <unistd.h>

#define LOOK_US 20

static size_t piece_of(const struct mail *mail)
{
    size_t left = mail->bytes - mail->done;
    return left < MAIL_PIECE ? left : MAIL_PIECE;
}

/* Puts a piece, or takes one, if that can be. False: the message has another length. */
static bool carry_piece(struct mail *mail, bool *moved)
{
    struct mail_box *box = mail->box;
    uint64_t put = atomic_load(&box->put), taken = atomic_load(&box->taken);
    size_t bytes = piece_of(mail);
    *moved = mail->sends == (put == taken);
    if (!*moved) {
        return true;
    }
    if (mail->sends) {
        box->total = mail->bytes;
        memcpy(box->data, mail->memory + mail->done, bytes);
        atomic_store(&box->put, put + 1);
    } else if (box->total == mail->bytes) {
        memcpy(mail->memory + mail->done, box->data, bytes);
        atomic_store(&box->taken, taken + 1);
    } else {
        return false;
    }
    mail->done += bytes;
    return true;
}

/* True if another message of the same way comes before it. */
static bool waits(const struct mail *mail, unsigned i)
{
    for (unsigned k = 0; k < i; k++) {
        if (mail[k].box == mail[i].box && mail[k].done < mail[k].bytes) {
            return true;
        }
    }
    return false;
}

bool mail_carry(struct mail *mail, unsigned n, const atomic_bool *stop)
{
    unsigned under_way;
    do {
        bool moved, any = false;
        under_way = 0;
        for (unsigned i = 0; i < n; i++) {
            if (mail[i].done == mail[i].bytes) {
                continue;
            }
            under_way++;
            if (waits(mail, i)) {
                continue;
            }
            if (!carry_piece(&mail[i], &moved)) {
                return false;
            }
            any = any || moved;
        }
        if (atomic_load(stop)) {
            return false;
        }
        if (!any && under_way > 0) {
            usleep(LOOK_US);
        }
    } while (under_way > 0);
    return true;
}
