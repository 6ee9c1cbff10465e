#include "transport/rendezvous/socket.h"

#include "base/clock.h"
#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* How long one address is tried before the next. */
static const double ATTEMPT_SECONDS = 2;

static ra_status resolve(const char *address, int port, struct addrinfo **list_out) {
    struct addrinfo want = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    char service[16];
    snprintf(service, sizeof service, "%d", port);
    int error = getaddrinfo(address, service, &want, list_out);
    if (error == 0) return RA_OK;
    return ra_fail(RA_ERR_ARGUMENT, "the address \"%s\" is not known: %s", address, gai_strerror(error));
}

/* Neither waits nor is handed to programs that this one starts. */
static int make_quick(int socket) {
    int on = 1;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fcntl(socket, F_SETFL, O_NONBLOCK) == 0 && fcntl(socket, F_SETFD, FD_CLOEXEC) == 0;
}

static int make_socket(const struct addrinfo *at) {
    int made = socket(at->ai_family, at->ai_socktype, at->ai_protocol);
    if (made >= 0 && !make_quick(made)) {
        close(made);
        return -1;
    }
    return made;
}

static int listen_at(const struct addrinfo *at) {
    int on = 1, made = make_socket(at);
    if (made < 0) return -1;
    setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(made, at->ai_addr, at->ai_addrlen) == 0 && listen(made, SOMAXCONN) == 0) return made;
    int why = errno;
    close(made);
    errno = why;
    return -1;
}

ra_status ra_socket_listen(const char *address, int port, int *listener_out) {
    struct addrinfo *list;
    int listener = -1, why = 0;
    RA_TRY(resolve(address, port, &list));
    for (const struct addrinfo *at = list; at && listener < 0; at = at->ai_next) {
        listener = listen_at(at);
        why = errno;
    }
    freeaddrinfo(list);
    if (listener < 0)
        return ra_fail(RA_ERR_ARGUMENT, "rank 0 cannot listen at %s, port %d: %s%s", address, port, strerror(why),
                       why == EADDRINUSE      ? " (another job, or whoever started this one, has the port)"
                       : why == EADDRNOTAVAIL ? " (it is no address of this machine)"
                                              : "");
    *listener_out = listener;
    return RA_OK;
}

/* Nonzero when it is ready for that before the deadline; errors count as ready. */
static int await(int socket, short events, double deadline) {
    for (;;) {
        double left = deadline - ra_clock();
        struct pollfd asked = {.fd = socket, .events = events};
        if (left <= 0) return 0;
        int ready = poll(&asked, 1, left > 1 ? 1000 : (int)(left * 1000) + 1);
        if (ready > 0) return 1;
        if (ready < 0 && errno != EINTR) return 0;
    }
}

static int connect_to(const struct addrinfo *at, double deadline) {
    int made = make_socket(at), error = 0;
    socklen_t bytes = sizeof error;
    if (made < 0) return -1;
    if (connect(made, at->ai_addr, at->ai_addrlen) == 0) return made;
    if (errno == EINPROGRESS && await(made, POLLOUT, deadline) &&
        getsockopt(made, SOL_SOCKET, SO_ERROR, &error, &bytes) == 0 && error == 0)
        return made;
    close(made);
    return -1;
}

ra_status ra_socket_connect(const char *address, int port, double deadline, int *socket_out) {
    struct addrinfo *list;
    int made = -1;
    RA_TRY(resolve(address, port, &list));
    for (const struct addrinfo *at = list; at && made < 0; at = at->ai_next) {
        double until = ra_clock() + ATTEMPT_SECONDS;
        made = connect_to(at, until < deadline ? until : deadline);
    }
    freeaddrinfo(list);
    *socket_out = made;
    return RA_OK;
}

int ra_socket_accept(int listener) {
    int made = accept(listener, NULL, NULL);
    if (made >= 0 && !make_quick(made)) {
        close(made);
        return -1;
    }
    return made;
}

static ra_status gone(void) {
    return ra_fail(RA_ERR_PEER, "the connection ended");
}

ra_status ra_socket_send(int socket, const void *data, size_t bytes, double deadline) {
    const char *from = data;
    while (bytes > 0) {
        ssize_t sent = send(socket, from, bytes, MSG_NOSIGNAL);
        if (sent > 0) {
            from += sent;
            bytes -= (size_t)sent;
        } else if (sent < 0 && errno != EINTR && errno != EAGAIN && errno != EWOULDBLOCK) {
            return gone();
        } else if (!await(socket, POLLOUT, deadline)) {
            return ra_fail(RA_ERR_TIMEOUT, "no answer within the deadline");
        }
    }
    return RA_OK;
}

long ra_socket_take(int socket, void *data_out, size_t capacity) {
    ssize_t got = recv(socket, data_out, capacity, 0);
    if (got > 0) return (long)got;
    return got < 0 && (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK) ? 0 : -1;
}

ra_status ra_socket_receive(int socket, void *data_out, size_t bytes, double deadline) {
    char *to = data_out;
    while (bytes > 0) {
        long got = ra_socket_take(socket, to, bytes);
        if (got < 0) return gone();
        to += got;
        bytes -= (size_t)got;
        if (got == 0 && !await(socket, POLLIN, deadline))
            return ra_fail(RA_ERR_TIMEOUT, "no answer within the deadline");
    }
    return RA_OK;
}
