/* What a plan would be, for any rank, without a comm: as if all ranks shared this process. */
#include "base/status.h"
#include "plan/predict.h"

ra_status ra_predict(const ra_problem *problem, const ra_options *options, int ranks, int rank,
                     ra_plan_info *info_out) {
    ra_pool pool = {0};
    ra_prediction prediction = {0};
    ra_plan_info info;
    RA_TRY(ra_setup_make(problem, options, (ra_seat){rank, ranks, ranks, ranks, 0}, &prediction.setup));
    ra_status status = ra_prediction_make(&pool, &prediction);
    if (status == RA_OK) ra_prediction_describe(&prediction, &info);
    ra_pool_free(&pool);
    return status == RA_OK ? ra_plan_info_copy(&info, info_out) : status;
}

ra_status ra_predict_steps(const ra_problem *problem, const ra_options *options, int ranks, int rank, ra_pass pass,
                           ra_step_info *steps_out, int capacity, int *count_out) {
    ra_pool pool = {0};
    ra_setup setup;
    ra_schedule schedule;
    if (pass != RA_FORWARD && pass != RA_BACKWARD)
        return ra_refuse("pass is %d; it must be RA_FORWARD or RA_BACKWARD", (int)pass);
    if (!count_out || capacity < 0 || (capacity > 0 && !steps_out))
        return ra_refuse("count_out is NULL, capacity is negative, or steps_out is NULL");
    RA_TRY(ra_setup_make(problem, options, (ra_seat){rank, ranks, ranks, ranks, 0}, &setup));
    ra_cut_problem cut = ra_setup_cut(&setup);
    ra_status status = ra_schedule_make(&pool, &cut, setup.strategy, pass, rank, &schedule);
    if (status == RA_OK) {
        for (int s = 0; s < schedule.step_count && s < capacity; s++)
            steps_out[s] = ra_step_describe(&setup.problem, &schedule.steps[s]);
        *count_out = schedule.step_count;
    }
    ra_pool_free(&pool);
    return status;
}

ra_status ra_layout_resolve(const ra_problem *problem, const ra_options *options, int ranks, ra_layout *layout_out) {
    if (!layout_out) return ra_refuse("layout_out is NULL");
    return ra_setup_layout(problem, options, ranks, layout_out);
}
