#include "exec/lists.h"

#include "base/status.h"

static size_t aligned(size_t bytes) {
    return (bytes + RA_LIST_ALIGNMENT - 1) / RA_LIST_ALIGNMENT * RA_LIST_ALIGNMENT;
}

typedef void (*prepared_visit)(const ra_kernel *kernel, ra_prepared *prepared, void *user);

static void for_each_prepared(const ra_program *program, prepared_visit visit, void *user) {
    for (int s = 0; program->steps && s < program->schedule->step_count; s++)
        for (int64_t i = 0; i < program->steps[s].compute_count; i++)
            if (program->steps[s].computes[i].prepared)
                visit(program->setup->kernel, program->steps[s].computes[i].prepared, user);
}

static void add_size(const ra_kernel *kernel, ra_prepared *prepared, void *user) {
    ra_list_size *total = user, size = kernel->list_size(prepared);
    total->lists += aligned(size.lists);
    total->counters += aligned(size.counters);
}

/* What is left of the block, and of the host's copy of its lists. */
typedef struct places {
    unsigned char *lists, *counters, *pinned;
} places;

static void place_one(const ra_kernel *kernel, ra_prepared *prepared, void *user) {
    places *left = user;
    ra_list_size size = kernel->list_size(prepared);
    kernel->place(prepared, left->lists, left->counters, left->pinned);
    left->lists += aligned(size.lists);
    left->counters += aligned(size.counters);
    left->pinned += aligned(size.lists);
}

ra_status ra_lists_upload(ra_uploader *uploader, const ra_program *forward, const ra_program *backward,
                          ra_upload *upload_out) {
    ra_list_size total = {0};
    for_each_prepared(forward, add_size, &total);
    for_each_prepared(backward, add_size, &total);
    if (total.lists + total.counters == 0) return RA_OK;
    RA_TRY(ra_upload_begin(uploader, total.lists, total.lists + total.counters, upload_out));
    unsigned char *memory = upload_out->memory->memory;
    places left = {memory, memory + total.lists, upload_out->pinned->memory};
    for_each_prepared(forward, place_one, &left);
    for_each_prepared(backward, place_one, &left);
    return ra_upload_send(upload_out, total.lists);
}
