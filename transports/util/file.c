/* SPDX-License-Identifier: Apache-2.0 */
/* file.c - descriptors, and small files of the kernel. */
#include "util.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

bool bps_util_nonblock(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0;
}

void bps_util_read_line(const char *path, char *text, size_t n)
{
    ssize_t length = -1;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        length = read(fd, text, n - 1);
        close(fd);
    }
    text[length > 0 ? length : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
}
