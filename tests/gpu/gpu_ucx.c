/* Processes that share a GPU, over UCX: random problems with the same bits as in-process ranks, straight from device
 * memory where UCX moves it and through pinned memory; and, for two, how fast messages in device memory go, beside
 * NCCL's. Started by tests/ucx/start_ranks.py.
 *
 *     start_ranks.py 2 gpu_ucx [--count 12] [--rates]
 */
#include "gpu_test.h"
#include "tolerance.h"

#include "kernel/backend.h"
#include "transport/comm.h"
#include "transport/ucx/ucx_transport.h"

#include <time.h>

typedef struct job {
    ra_rendezvous *meeting;
    int rank, ranks;
    const ra_backend *backend;
} job;

static int failed(const char *what) {
    return printf("FAILED: %s: %s\n", what, ra_last_error()), fflush(stdout), 1;
}

static void say(const job *j, const char *what) {
    if (j->rank == 0) puts(what);
    fflush(stdout);
}

/* straight: from device memory, where UCX moves it; *straight_out: whether it does. */
static ra_status create(const job *j, int straight, int *straight_out, ra_comm **comm_out) {
    ra_ucx *ucx = NULL;
    int machine_ranks;
    GPU_TRY(ra_ucx_open(j->rank, j->ranks, ra_rendezvous_allgather, j->meeting, NULL, &ucx, &machine_ranks));
    *straight_out = straight && ra_ucx_moves_devices(ucx);
    ra_transport_ops ops = *straight_out ? ra_ucx_device_ops : ra_ucx_ops;
    ops.machine_ranks = machine_ranks;
    return ra_comm_create_custom(&ops, ucx, j->rank, j->ranks, comm_out);
}

/* ---- right ------------------------------------------------------------------------------------------------------- */

static int check_case(ra_comm *comm, const sweep_data *data, uint64_t in_process) {
    sweep_result result = {0};
    ra_status status = sweep_run(comm, data, 2, &result);
    int rank = ra_comm_rank(comm), good = status == RA_OK && is_within(&result, &data->p);
    char text[512];
    if (!good || (rank == 0 && result.bits != in_process)) {
        printf("FAILED rank %d: %s\n  status %d (%s), worst relative error %g, bits %s\n", rank,
               case_text(data->c, text, sizeof text), status, status ? ra_last_error() : "",
               sweep_worst_relative(&result), result.bits == in_process ? "alike" : "differ");
        fflush(stdout);
        return 0;
    }
    return 1;
}

static int check_all(const job *j, ra_comm *comm, int count) {
    static const ra_dtype types[] = {RA_F32, RA_BF16, RA_F64, RA_F16};
    int bad = 0;
    for (int i = 0; i < count && !bad; i++) {
        static test_case c;
        sweep_result alone = {0};
        case_make(&c, (uint64_t)i + 1, types[i % 4], 5e6);
        if (c.problem.dtype != RA_F64 && c.problem.scale == 0) c.problem.scale = RA_SCALE_DEFAULT;
        c.options.backend = j->backend;
        c.options.kernel = NULL;
        c.options.timeout_seconds = 30;
        sweep_data *data = sweep_data_make(&c);
        if (j->rank == 0 && sweep_threads_apart(j->ranks, data, 1, &alone) != RA_OK) bad += failed("in-process ranks");
        bad += !check_case(comm, data, alone.bits);
        sweep_data_free(data);
    }
    return bad;
}

static int check_comm(const job *j, int straight, int count) {
    ra_comm *comm = NULL;
    int is_straight = 0;
    if (create(j, straight, &is_straight, &comm) != RA_OK) return failed("creating a comm");
    if (straight && !is_straight) {
        say(j, "this UCX does not move device memory");
        ra_comm_destroy(comm);
        return 0;
    }
    int bad = check_all(j, comm, count);
    if (!bad)
        say(j, straight ? "ucx from device memory: right, the same bits"
                        : "ucx through pinned memory: right, the same bits");
    ra_comm_destroy(comm);
    return bad;
}

/* ---- fast -------------------------------------------------------------------------------------------------------- */

static double seconds_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct exchange {
    ra_comm *comm;
    ra_queue queue;
    void *event;
    unsigned char *out, *in;
} exchange;

static ra_status drain(const exchange *e) {
    int done = 0;
    GPU_TRY(e->queue.device->signal(e->queue.device, e->event, e->queue.stream));
    while (!done) GPU_TRY(e->queue.device->query(e->queue.device, e->event, &done));
    return RA_OK;
}

/* Both ways at once, as in a ring; GB/s each way. */
static ra_status rate_of(const exchange *e, size_t bytes, double *rate_out) {
    int peer = 1 - ra_comm_rank(e->comm), repeats = bytes < (1 << 20) ? 200 : 20;
    ra_message group[] = {{.peer = peer, .tag = 1, .data = e->in, .bytes = bytes},
                          {.peer = peer, .is_send = 1, .tag = 1, .data = e->out, .bytes = bytes}};
    ra_place place = {"a measurement", 0};
    double start = 0;
    for (int i = -3; i < repeats; i++) {
        if (i == 0) GPU_TRY(drain(e));
        if (i == 0) start = seconds_now();
        GPU_TRY(ra_comm_post(e->comm, group, 2, &e->queue, place));
        GPU_TRY(ra_comm_wait(e->comm, group, 2, 30, place));
    }
    GPU_TRY(drain(e));
    *rate_out = 1e-9 * (double)bytes * repeats / (seconds_now() - start);
    return RA_OK;
}

enum { SIZES = 6 };

static size_t size_at(int i) {
    return (size_t)65536 << (2 * i);
}

static ra_status rates_of(const job *j, ra_comm *comm, double *rates_out) {
    const ra_device *device = j->backend->device;
    size_t most = size_at(SIZES - 1);
    exchange e = {.comm = comm, .queue = {.device = device}};
    e.out = device->allocate(device, most);
    e.in = device->allocate(device, most);
    if (!e.out || !e.in) return RA_ERR_MEMORY;
    GPU_TRY(device->stream_create(device, 0, &e.queue.stream));
    GPU_TRY(device->event_create(device, &e.event));
    GPU_TRY(ra_comm_attach(comm, device, (ra_group_size){.messages = 2, .send_bytes = most, .receive_bytes = most}));
    for (int i = 0; i < SIZES; i++) GPU_TRY(rate_of(&e, size_at(i), &rates_out[i]));
    device->event_destroy(device, e.event);
    device->stream_destroy(device, e.queue.stream);
    device->release(device, e.out);
    device->release(device, e.in);
    return RA_OK;
}

static int print_rates(const job *j) {
    enum { STRAIGHT, STAGED, NCCL, WAYS };
    static const char *const names[WAYS] = {"ucx, device memory", "ucx, pinned memory", "nccl"};
    double rates[WAYS][SIZES] = {{0}};
    ra_comm *comm = NULL, *nccl = NULL;
    int is_straight, have[WAYS] = {0}, bad = 0;
    for (int way = STRAIGHT; way <= STAGED; way++) {
        if (create(j, way == STRAIGHT, &is_straight, &comm) != RA_OK) return failed("creating a comm");
        have[way] = way == STAGED || is_straight;
        if (have[way] && rates_of(j, comm, rates[way]) != RA_OK) bad += failed(names[way]);
        if (way == STAGED && !bad && ra_cuda_has_nccl()) {
            have[NCCL] = ra_comm_create_nccl(comm, 0, 30, &nccl) == RA_OK && rates_of(j, nccl, rates[NCCL]) == RA_OK;
            if (!have[NCCL]) failed(names[NCCL]);
            ra_comm_destroy(nccl);
        }
        ra_comm_destroy(comm);
    }
    if (j->rank == 0) {
        printf("%8s %20s %20s %20s   GB/s each way, two processes on one GPU\n", "KiB", names[0], names[1], names[2]);
        for (int i = 0; i < SIZES; i++)
            printf("%8zu %20.2f %20.2f %20.2f\n", size_at(i) >> 10, rates[0][i], rates[1][i], rates[2][i]);
    }
    return bad;
}

int main(int argc, char **argv) {
    char host[32];
    job j = {.backend = gpu_backend()};
    const char *folder = getenv("RINGATTN_TEST_FOLDER"), *rank = getenv("RANK"), *ranks = getenv("WORLD_SIZE"),
               *version;
    int previous, bad = 0;
    if (!j.backend) return 0;
    if (ra_ucx_version(&version) != RA_OK) return puts("no UCX, skipped"), 0;
    if (!folder || !rank || !ranks) return puts("to be started by start_ranks.py"), 1;
    snprintf(host, sizeof host, "ringattn-%s", rank);
    setenv("NCCL_HOSTID", host, 0); /* or NCCL would refuse two ranks on one GPU */
    if (ra_rendezvous_folder(folder, atoi(rank), atoi(ranks), 60, &j.meeting) != RA_OK) return failed("meeting");
    j.rank = atoi(rank);
    j.ranks = atoi(ranks);
    if (ra_device_enter(j.backend->device, &previous) != RA_OK) return failed("the device");
    if (j.rank == 0) printf("UCX %s, %d processes\n", version, j.ranks);
    for (int straight = 0; straight <= 1 && !bad; straight++)
        bad = check_comm(&j, straight, gpu_number(argc, argv, "--count", 12));
    if (!bad && gpu_flag(argc, argv, "--rates") && j.ranks == 2) bad = print_rates(&j);
    ra_device_leave(j.backend->device, previous);
    ra_rendezvous_destroy(j.meeting);
    return bad != 0;
}
