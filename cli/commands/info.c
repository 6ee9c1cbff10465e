/* ringattn info: what this build is and what it can do on this machine; what an issue report should begin with. */
#include "cli.h"
#include "ranks/devices.h"
#include "report/json.h"
#include "report/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__clang__)
#define COMPILER "clang " __clang_version__
#elif defined(__GNUC__)
#define COMPILER "gcc " __VERSION__
#else
#define COMPILER "unknown"
#endif

/* What the build folder was configured with; CMakeLists.txt defines the RA_BUILD_ names. */
static const struct {
    const char *name;
    int have;
} optional[] = {{"openmp", RA_BUILD_OPENMP},
                {"mpi", RA_BUILD_MPI},
                {"ucx", RA_BUILD_UCX},
                {"cuda", RA_BUILD_CUDA},
                {"nccl", RA_BUILD_NCCL}};
enum { OPTIONAL = sizeof optional / sizeof *optional };

/* Libraries that are found when the command runs. */
static const struct {
    const char *name;
    int (*version)(char text_out[MACHINE_TEXT_BYTES]);
} libraries[] = {{"mpi", machine_mpi_version},
                 {"ucx", machine_ucx_version},
                 {"nccl", machine_nccl_version},
                 {"cuda_driver", machine_cuda_driver_version}};
enum { LIBRARIES = sizeof libraries / sizeof *libraries };

/* Those that ringattn reads, and those of the libraries that it uses. */
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
                                        "RINGATTN_LIBRARY",
                                        "UCX_TLS",
                                        "UCX_NET_DEVICES",
                                        "UCX_LOG_LEVEL",
                                        "UCX_MEMTYPE_CACHE",
                                        "UCX_KEEPALIVE_INTERVAL",
                                        "CUDA_VISIBLE_DEVICES",
                                        "NCCL_DEBUG",
                                        "NCCL_SOCKET_IFNAME",
                                        "TMPDIR",
                                        NULL};

/* What is secret is not shown. */
static const char *shown(const char *name) {
    const char *value = getenv(name);
    return value && strcmp(name, "RINGATTN_JOB_KEY") == 0 ? "(set)" : value;
}

/* The i-th transport that --transport takes here; NULL: it is not to be had. */
enum { TRANSPORTS = 5 };
static const char *transport_at(int i) {
    char version[MACHINE_TEXT_BYTES];
    switch (i) {
    case 0:
        return "self";
    case 1:
        return "thread";
    case 2:
        return RA_BUILD_MPI ? "mpi" : NULL;
    case 3:
        return machine_ucx_version(version) ? "ucx" : NULL;
    default:
        return devices_have_nccl() ? "nccl" : NULL;
    }
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static void write_build(json_writer *json) {
    json_open(json, "build", '{');
    json_text(json, "compiler", COMPILER);
    json_text(json, "type", RA_BUILD_TYPE);
    json_text(json, "sanitizers", RA_BUILD_SANITIZE[0] ? RA_BUILD_SANITIZE : NULL);
    for (int i = 0; i < OPTIONAL; ++i) json_bool(json, optional[i].name, optional[i].have);
    json_text(json, "cuda_toolkit", RA_BUILD_CUDA ? RA_BUILD_CUDA_TOOLKIT : NULL);
    json_text(json, "cuda_architectures", RA_BUILD_CUDA ? RA_BUILD_CUDA_ARCHITECTURES : NULL);
    json_close(json, '}');
}

static void write_machine(json_writer *json) {
    char text[MACHINE_TEXT_BYTES], features[512], *rest = NULL;
    machine_system(text);
    json_text(json, "system", text);
    machine_cpu_name(text);
    json_text(json, "cpu", text[0] ? text : NULL);
    json_int(json, "cores", machine_cores());
    json_open(json, "cpu_features", '[');
    snprintf(features, sizeof features, "%s", ra_cpu_features());
    for (char *word = strtok_r(features, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
        json_text(json, NULL, word);
    json_close(json, ']');
}

static void write_kernels(json_writer *json) {
    json_open(json, "kernels", '[');
    for (int i = 0; ra_kernel_name(i); ++i) {
        json_open(json, NULL, '{');
        json_text(json, "name", ra_kernel_name(i));
        json_bool(json, "usable", ra_kernel_usable(i));
        json_close(json, '}');
    }
    json_close(json, ']');
}

static void write_transports(json_writer *json) {
    char version[MACHINE_TEXT_BYTES];
    json_open(json, "transports", '[');
    for (int i = 0; i < TRANSPORTS; ++i)
        if (transport_at(i)) json_text(json, NULL, transport_at(i));
    json_close(json, ']');
    json_open(json, "libraries", '{');
    for (int i = 0; i < LIBRARIES; ++i)
        json_text(json, libraries[i].name, libraries[i].version(version) ? version : NULL);
    json_close(json, '}');
}

static void print_json(void) {
    json_writer json = json_begin(stdout);
    json_open(&json, NULL, '{');
    json_text(&json, "version", ra_version());
    write_build(&json);
    write_machine(&json);
    write_kernels(&json);
    write_transports(&json);
    devices_write_json(&json);
    json_open(&json, "environment", '{');
    for (int i = 0; variables[i]; ++i) json_text(&json, variables[i], shown(variables[i]));
    json_close(&json, '}');
    json_close(&json, '}');
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

static void print_build(void) {
    printf("build         %s, %s\n             ", COMPILER, RA_BUILD_TYPE[0] ? RA_BUILD_TYPE : "no build type");
    for (int i = 0; i < OPTIONAL; ++i)
        printf(" %s %s%s", optional[i].name, optional[i].have ? "yes" : "no", i + 1 < OPTIONAL ? "," : "");
    printf("\n");
    if (RA_BUILD_SANITIZE[0]) printf("              sanitizers %s\n", RA_BUILD_SANITIZE);
    if (RA_BUILD_CUDA)
        printf("              CUDA toolkit %s for %s\n", RA_BUILD_CUDA_TOOLKIT, RA_BUILD_CUDA_ARCHITECTURES);
}

static void print_machine(void) {
    char text[MACHINE_TEXT_BYTES];
    machine_system(text);
    printf("system        %s\n", text);
    machine_cpu_name(text);
    printf("cpu           %s, %d core%s\n", text[0] ? text : "unknown", machine_cores(),
           machine_cores() == 1 ? "" : "s");
    printf("cpu features  %s\n", ra_cpu_features()[0] ? ra_cpu_features() : "none known");
}

static void print_transports(void) {
    char version[MACHINE_TEXT_BYTES];
    printf("transports   ");
    for (int i = 0; i < TRANSPORTS; ++i) {
        const char *name = transport_at(i);
        if (name) printf(" %s", name);
    }
    for (int i = 0; i < LIBRARIES; ++i) {
        int found = libraries[i].version(version);
        printf("\n%-13s %s: %s%s%s", i ? "" : "libraries", libraries[i].name, found ? "" : "(", version,
               found ? "" : ")");
    }
    printf("\n");
}

static void print_text(void) {
    printf("version       %s\n", ra_version());
    print_build();
    print_machine();
    printf("kernels      ");
    for (int i = 0; ra_kernel_name(i); ++i)
        printf(" %s%s", ra_kernel_name(i), ra_kernel_usable(i) ? "" : " (not on this machine)");
    printf("\n");
    print_transports();
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
