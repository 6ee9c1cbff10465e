/* TCP without waiting for ever: sockets are non-blocking, and whatever waits does so in poll until a deadline on
 * ra_clock(). */
#ifndef RA_TRANSPORT_RENDEZVOUS_SOCKET_H
#define RA_TRANSPORT_RENDEZVOUS_SOCKET_H

#include <ringattn/ringattn.h>

/* Listens on an address of this machine that the name stands for, and on no other. */
ra_status ra_socket_listen(const char *address, int port, int *listener_out);

/* One attempt, with every address that the name stands for. *socket_out is -1 when nobody answers. */
ra_status ra_socket_connect(const char *address, int port, double deadline, int *socket_out);

/* The next of those who wait to be let in, or -1. */
int ra_socket_accept(int listener);

/* All bytes, or an error: RA_ERR_TIMEOUT, or RA_ERR_PEER when the other end is gone. */
ra_status ra_socket_send(int socket, const void *data, size_t bytes, double deadline);
ra_status ra_socket_receive(int socket, void *data_out, size_t bytes, double deadline);

/* What has come, without waiting: a number of bytes, 0 when nothing has, -1 when the other end is gone. */
long ra_socket_take(int socket, void *data_out, size_t capacity);

#endif
