/* The initialisers for programs that cannot compile the RA_..._INIT macros. NULL is allowed. */
#include <ringattn/transport.h>
#include <ringattn/ucx.h>

void ra_problem_init(ra_problem *problem_out) {
    if (problem_out) *problem_out = (ra_problem)RA_PROBLEM_INIT;
}

void ra_options_init(ra_options *options_out) {
    if (options_out) *options_out = (ra_options)RA_OPTIONS_INIT;
}

void ra_tensors_init(ra_tensors *tensors_out) {
    if (tensors_out) *tensors_out = (ra_tensors)RA_TENSORS_INIT;
}

void ra_gradients_init(ra_gradients *gradients_out) {
    if (gradients_out) *gradients_out = (ra_gradients)RA_GRADIENTS_INIT;
}

void ra_plan_info_init(ra_plan_info *info_out) {
    if (info_out) *info_out = (ra_plan_info)RA_PLAN_INFO_INIT;
}

void ra_transport_ops_init(ra_transport_ops *ops_out) {
    if (ops_out) *ops_out = (ra_transport_ops)RA_TRANSPORT_OPS_INIT;
}

void ra_ucx_options_init(ra_ucx_options *options_out) {
    if (options_out) *options_out = (ra_ucx_options)RA_UCX_OPTIONS_INIT;
}
