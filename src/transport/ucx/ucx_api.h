/* UCX's functions, found in libucp at run time. UCX keeps its interface compatible within libucp.so.0 (structures carry
 * masks of the fields that are set), so headers of one version and a library of another go together; what is used here
 * is in version 1.13. */
#ifndef RA_TRANSPORT_UCX_UCX_API_H
#define RA_TRANSPORT_UCX_UCX_API_H

#include <ringattn/transport.h>
#include <ucp/api/ucp.h>

#define RA_UCX_FUNCTIONS(X)                                                                                            \
    X(ucp_get_version_string)                                                                                          \
    X(ucp_config_read)                                                                                                 \
    X(ucp_config_modify)                                                                                               \
    X(ucp_config_release)                                                                                              \
    X(ucp_init_version)                                                                                                \
    X(ucp_context_query)                                                                                               \
    X(ucp_cleanup)                                                                                                     \
    X(ucp_worker_create)                                                                                               \
    X(ucp_worker_destroy)                                                                                              \
    X(ucp_worker_get_address)                                                                                          \
    X(ucp_worker_release_address)                                                                                      \
    X(ucp_worker_progress)                                                                                             \
    X(ucp_ep_create)                                                                                                   \
    X(ucp_ep_close_nbx)                                                                                                \
    X(ucp_ep_flush_nbx)                                                                                                \
    X(ucp_ep_print_info)                                                                                               \
    X(ucp_listener_create)                                                                                             \
    X(ucp_listener_query)                                                                                              \
    X(ucp_listener_reject)                                                                                             \
    X(ucp_listener_destroy)                                                                                            \
    X(ucp_conn_request_query)                                                                                          \
    X(ucp_tag_send_nbx)                                                                                                \
    X(ucp_tag_recv_nbx)                                                                                                \
    X(ucp_tag_recv_request_test)                                                                                       \
    X(ucp_request_check_status)                                                                                        \
    X(ucp_request_cancel)                                                                                              \
    X(ucp_request_free)                                                                                                \
    X(ucs_status_string)

typedef struct ra_ucx_api {
#define RA_UCX_POINTER(name) __typeof__(name) *name;
    RA_UCX_FUNCTIONS(RA_UCX_POINTER)
#undef RA_UCX_POINTER
} ra_ucx_api;

/* The process's one table; opens the library the first time. */
ra_status ra_ucx_load(const ra_ucx_api **api_out);

/* Fills the table from a library of that name, if one is loaded already from that one: for ra_ucx_load, and for tests.
 */
ra_status ra_ucx_open_library(const char *name, ra_ucx_api *api_out);

#endif
