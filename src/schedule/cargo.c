/* What each kind of cargo consists of. */
#include "schedule/schedule.h"

int64_t ra_cargo_record(const ra_problem *p, ra_cargo cargo, ra_pass pass) {
    int64_t states = ra_problem_states(p), width = 0;
    switch (cargo) {
    case RA_CARGO_KV:
    case RA_CARGO_GRAD:
        width = p->dim + p->dim_v;
        break;
    case RA_CARGO_QUERY:
        width = pass == RA_BACKWARD ? p->dim + p->dim_v : p->dim;
        break;
    case RA_CARGO_STATS:
        width = 2 * states;
        break;
    case RA_CARGO_STATE:
        width = states * (p->dim_v + 2);
        break;
    case RA_CARGO_DQ:
        width = p->dim;
        break;
    case RA_CARGO_COUNT:
        break;
    }
    return p->batch * width;
}

size_t ra_cargo_bytes(const ra_problem *problem, ra_cargo cargo) {
    if (cargo == RA_CARGO_KV || cargo == RA_CARGO_QUERY) return ra_dtype_bytes(problem->dtype);
    return problem->dtype == RA_F64 ? 8 : 4;
}
