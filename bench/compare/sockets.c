/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sockets.c - the least that a push_pull through a server could cost: plain blocking sockets that
 * move the same bytes between as many processes, and add nothing.
 *
 * worker DIRECTORY NAME TENSORS RANK ADDRESS   sends the bytes of all tensors and receives as many
 * server WORKERS                               prints its port, and sends back to each what it sends
 *
 * A worker sends and receives at the same time, in two threads. The server reads a piece of each worker and
 * then writes a piece to each. TENSORS with one entry of at most 64 KiB make it a ping-pong; then one
 * thread is enough.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "round.h"

#define PIECE   (256u << 10)
#define SMALL   (64u << 10)
#define WORKERS 64

struct worker {
    int fd;
    char *memory;
    size_t bytes;
};

static int new_socket(void)
{
    static const int on = 1;
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    if (fd < 0) {
        bench_fail("socket: %m");
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

static void write_all(int fd, const char *data, size_t bytes)
{
    while (bytes > 0) {
        ssize_t n = send(fd, data, bytes < PIECE ? bytes : PIECE, MSG_NOSIGNAL);

        if (n < 0 && errno != EINTR) {
            bench_fail("send: %m");
        }
        data += n > 0 ? n : 0;
        bytes -= n > 0 ? (size_t)n : 0;
    }
}

/* False: the peer has closed the connection. */
static int read_all(int fd, char *data, size_t bytes)
{
    while (bytes > 0) {
        ssize_t n = recv(fd, data, bytes < PIECE ? bytes : PIECE, MSG_WAITALL);

        if (n == 0 || (n < 0 && errno == ECONNRESET)) {
            return 0;
        }
        if (n < 0 && errno != EINTR) {
            bench_fail("recv: %m");
        }
        data += n > 0 ? n : 0;
        bytes -= n > 0 ? (size_t)n : 0;
    }
    return 1;
}

/* ---- worker ------------------------------------------------------------------------------------------- */

static void *send_all(void *arg)
{
    const struct worker *w = arg;

    write_all(w->fd, w->memory, w->bytes);
    return NULL;
}

static void exchange(void *arg)
{
    struct worker *w = arg;
    pthread_t sender;

    if (w->bytes <= SMALL) {
        write_all(w->fd, w->memory, w->bytes);
    } else if (pthread_create(&sender, NULL, send_all, w) != 0) {
        bench_fail("cannot start a thread");
    }
    if (!read_all(w->fd, w->memory, w->bytes)) {
        bench_fail("the server has gone");
    }
    if (w->bytes > SMALL) {
        pthread_join(sender, NULL);
    }
}

static void run_worker(char **argv)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[6]))};
    struct bench_tensors tensors;
    struct bench_driver driver;
    struct worker w;

    bench_tensors_read(argv[4], &tensors);
    w.bytes = tensors.elements * sizeof(float);
    w.memory = (char *)bench_memory(tensors.elements, 1);
    w.fd = new_socket();
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(w.fd, (struct sockaddr *)&address, sizeof address) != 0) {
        bench_fail("connect: %m");
    }
    write_all(w.fd, (const char *)&w.bytes, sizeof w.bytes);
    bench_driver_open(argv[2], argv[3], atoi(argv[5]), &driver);
    bench_driver_serve(&driver, exchange, &w);
}

/* ---- server ------------------------------------------------------------------------------------------- */

static int listen_anywhere(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t length = sizeof address;
    int fd = new_socket();

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(fd, (struct sockaddr *)&address, length) != 0 || listen(fd, WORKERS) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &length) != 0) {
        bench_fail("listen: %m");
    }
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    return fd;
}

static void run_server(int workers)
{
    static char piece[WORKERS][PIECE];
    int fd[WORKERS], listener = listen_anywhere();
    size_t bytes = 0;

    for (int i = 0; i < workers; i++) {
        fd[i] = accept(listener, NULL, NULL);
        if (fd[i] < 0 || !read_all(fd[i], (char *)&bytes, sizeof bytes)) {
            bench_fail("a worker has not come");
        }
    }
    for (size_t left = bytes;; left = left > PIECE ? left - PIECE : bytes) {
        size_t n = left < PIECE ? left : PIECE;

        for (int i = 0; i < workers; i++) {
            if (!read_all(fd[i], piece[i], n)) {
                return;
            }
        }
        for (int i = 0; i < workers; i++) {
            write_all(fd[i], piece[i], n);
        }
    }
}

int main(int argc, char **argv)
{
    if (argc == 7 && strcmp(argv[1], "worker") == 0) {
        run_worker(argv);
    } else if (argc == 3 && strcmp(argv[1], "server") == 0 && atoi(argv[2]) > 0 && atoi(argv[2]) <= WORKERS) {
        run_server(atoi(argv[2]));
    } else {
        bench_fail("usage: sockets worker DIRECTORY NAME TENSORS RANK PORT | server WORKERS");
    }
    return 0;
}
