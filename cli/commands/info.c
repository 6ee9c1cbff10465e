/* ringattn info: what this build can do on this machine. */
#include "cli.h"
#include "ranks/devices.h"
#include "report/json.h"

#include <ringattn/ucx.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const transports[] = {"self", "thread",
#ifdef RA_HAVE_MPI
                                         "mpi",
#endif
                                         NULL};
static const char *const variables[] = {"OMP_NUM_THREADS",
                                        "OMP_PROC_BIND",
                                        "OMP_WAIT_POLICY",
                                        "OMPI_COMM_WORLD_SIZE",
                                        "PMI_SIZE",
                                        "SLURM_STEP_NUM_TASKS",
                                        "OMPI_MCA_orte_abort_on_non_zero_status",
                                        "RANK",
                                        "WORLD_SIZE",
                                        "MASTER_ADDR",
                                        "MASTER_PORT",
                                        "TORCHELASTIC_RUN_ID",
                                        "TORCHELASTIC_USE_AGENT_STORE",
                                        "RINGATTN_PORT",
                                        "RINGATTN_JOB_KEY",
                                        "UCX_TLS",
                                        "UCX_NET_DEVICES",
                                        NULL};

/* What is secret is not shown. */
static const char *shown(const char *name) {
    const char *value = getenv(name);
    return value && strcmp(name, "RINGATTN_JOB_KEY") == 0 ? "(set)" : value;
}

static int have_ucx(void) {
    const char *version;
    return ra_ucx_version(&version) == RA_OK;
}

static void print_json(void) {
    json_writer json = json_begin(stdout);
    json_open(&json, NULL, '{');
    json_text(&json, "version", ra_version());
    json_open(&json, "cpu_features", '[');
    char features[512], *rest = NULL;
    snprintf(features, sizeof features, "%s", ra_cpu_features());
    for (char *word = strtok_r(features, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
        json_text(&json, NULL, word);
    json_close(&json, ']');
    json_open(&json, "kernels", '[');
    for (int i = 0; ra_kernel_name(i); ++i) {
        json_open(&json, NULL, '{');
        json_text(&json, "name", ra_kernel_name(i));
        json_bool(&json, "usable", ra_kernel_usable(i));
        json_close(&json, '}');
    }
    json_close(&json, ']');
    json_open(&json, "transports", '[');
    for (int i = 0; transports[i]; ++i) json_text(&json, NULL, transports[i]);
    if (have_ucx()) json_text(&json, NULL, "ucx");
    if (devices_have_nccl()) json_text(&json, NULL, "nccl");
    json_close(&json, ']');
    devices_write_json(&json);
    json_open(&json, "environment", '{');
    for (int i = 0; variables[i]; ++i) json_text(&json, variables[i], shown(variables[i]));
    json_close(&json, '}');
    json_close(&json, '}');
}

static void print_text(void) {
    printf("version       %s\n", ra_version());
    printf("cpu features  %s\n", ra_cpu_features()[0] ? ra_cpu_features() : "none known");
    printf("kernels      ");
    for (int i = 0; ra_kernel_name(i); ++i)
        printf(" %s%s", ra_kernel_name(i), ra_kernel_usable(i) ? "" : " (not on this machine)");
    printf("\ntransports   ");
    for (int i = 0; transports[i]; ++i) printf(" %s", transports[i]);
    printf("%s%s\n", have_ucx() ? " ucx" : "", devices_have_nccl() ? " nccl" : "");
    devices_print();
    for (int i = 0; variables[i]; ++i)
        printf("%-13s %s=%s\n", i ? "" : "environment", variables[i],
               shown(variables[i]) ? shown(variables[i]) : "(unset)");
}

ra_status cli_info(const cli_options *options) {
    if (options->json)
        print_json();
    else
        print_text();
    return RA_OK;
}
