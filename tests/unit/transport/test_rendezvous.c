/* Ranks that meet, on threads of this process: in folders good, bad and littered; at a port that strangers know too. */
#define _DEFAULT_SOURCE /* usleep, mkdtemp */
#include "base/clock.h"
#include "support/cmocka.h"
#include "support/rng.h"
#include "support/temporary.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <ringattn/rendezvous.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST = 8 };
static const char *KEY = "a key of this test";

/* ---- ranks on threads -------------------------------------------------------------------------------------------- */

typedef struct party {
    const char *folder; /* NULL: at the port */
    int port;
    const char *key;
    int rank, ranks;
    int rounds;
    double delay, timeout;
    int stays; /* does not come to the last round */
    ra_status status;
    char error[512];
    double seconds;
} party;

static ra_status gather(ra_rendezvous *meeting, int round, int rank, int ranks) {
    unsigned char mine[3000], all[MOST * 3000];
    size_t bytes = 1 + (size_t)(round * 997) % sizeof mine;
    for (size_t i = 0; i < bytes; i++) mine[i] = (unsigned char)(17 * rank + 5 * round + (int)i);
    ra_status status = ra_rendezvous_allgather(meeting, mine, bytes, all);
    for (int r = 0; status == RA_OK && r < ranks; r++)
        for (size_t i = 0; i < bytes; i++)
            if (all[(size_t)r * bytes + i] != (unsigned char)(17 * r + 5 * round + (int)i)) return RA_ERR_INTERNAL;
    return status;
}

static void *take_part(void *user) {
    party *p = user;
    ra_rendezvous *meeting = NULL;
    usleep((useconds_t)(p->delay * 1e6));
    double start = ra_clock();
    p->status = p->folder ? ra_rendezvous_folder(p->folder, p->rank, p->ranks, p->timeout, &meeting)
                          : ra_rendezvous_tcp("127.0.0.1", p->port, p->key, p->rank, p->ranks, p->timeout, &meeting);
    int rounds = p->rounds - p->stays;
    for (int round = 0; round < rounds && p->status == RA_OK; round++)
        p->status = gather(meeting, round, p->rank, p->ranks);
    snprintf(p->error, sizeof p->error, "%s", p->status == RA_OK ? "" : ra_last_error());
    ra_rendezvous_destroy(meeting);
    p->seconds = ra_clock() - start;
    return NULL;
}

static void run(party *parties, int count) {
    pthread_t threads[2 * MOST];
    for (int i = 0; i < count; i++) assert_int_equal(pthread_create(&threads[i], NULL, take_part, &parties[i]), 0);
    for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
}

static void expect(const party *p, ra_status status, const char *word) {
    if (p->status != status || !strstr(p->error, word)) print_message("rank %d: %d %s\n", p->rank, p->status, p->error);
    assert_int_equal(p->status, status);
    assert_non_null(strstr(p->error, word));
}

/* One that nobody listens at, as far as can be known. */
static int free_port(void) {
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t bytes = sizeof at;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int made = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(made, (struct sockaddr *)&at, bytes), 0);
    assert_int_equal(getsockname(made, (struct sockaddr *)&at, &bytes), 0);
    close(made);
    return ntohs(at.sin_port);
}

static void fill(party *parties, int ranks, const char *folder, int port) {
    for (int r = 0; r < ranks; r++)
        parties[r] =
            (party){.folder = folder, .port = port, .key = KEY, .rank = r, .ranks = ranks, .rounds = 5, .timeout = 20};
}

/* ---- folders ----------------------------------------------------------------------------------------------------- */

static char base[200];

static char *in_base(const char *name, char *path_out) {
    snprintf(path_out, 256, "%s/%s", base, name);
    return path_out;
}

static int count_files(const char *folder) {
    char command[512];
    int count = -1;
    snprintf(command, sizeof command, "ls -A '%s' | wc -l", folder);
    FILE *out = popen(command, "r");
    if (fscanf(out, "%d", &count) != 1) count = -1;
    pclose(out);
    return count;
}

static void folder_brings_bytes_round(void **state) {
    char path[256];
    party parties[MOST];
    (void)state;
    for (int ranks = 1; ranks <= 7; ranks++) {
        fill(parties, ranks, in_base("plain", path), 0);
        for (int r = 0; r < ranks; r++) parties[r].delay = 0.01 * ((r * 5 + 3) % 7); /* rank 0 is never the first */
        run(parties, ranks);
        for (int r = 0; r < ranks; r++) expect(&parties[r], RA_OK, "");
        assert_int_equal(count_files(path), 0);
    }
}

static void folder_of_others_is_refused(void **state) {
    char path[256], link[256];
    ra_rendezvous *meeting = NULL;
    (void)state;
    mkdir(in_base("open", path), 0700);
    chmod(path, 0755);
    assert_int_equal(ra_rendezvous_folder(path, 0, 1, 1, &meeting), RA_ERR_ARGUMENT);
    assert_non_null(strstr(ra_last_error(), "chmod 700"));
    chmod(path, 0700);
    assert_int_equal(symlink(path, in_base("link", link)), 0);
    assert_int_equal(ra_rendezvous_folder(link, 0, 1, 1, &meeting), RA_ERR_ARGUMENT);
    assert_non_null(strstr(ra_last_error(), "symbolic link"));
    close(open(in_base("file", link), O_CREAT | O_WRONLY, 0600));
    assert_int_equal(ra_rendezvous_folder(link, 0, 1, 1, &meeting), RA_ERR_ARGUMENT);
    assert_int_equal(ra_rendezvous_folder(in_base("no/where", link), 0, 1, 1, &meeting), RA_ERR_ARGUMENT);
    assert_int_equal(ra_rendezvous_folder("", 0, 1, 1, &meeting), RA_ERR_ARGUMENT);
    if (geteuid() != 0) {
        assert_int_equal(ra_rendezvous_folder("/", 0, 1, 1, &meeting), RA_ERR_ARGUMENT);
    } else {
        assert_int_equal(chown(path, 12345, 12345), 0);
        assert_int_equal(ra_rendezvous_folder(path, 0, 1, 1, &meeting), RA_ERR_ARGUMENT);
        assert_non_null(strstr(ra_last_error(), "belongs to user 12345"));
    }
    assert_null(meeting);
}

static void litter(const char *folder, const char *name, const char *text, size_t bytes) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int file = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0600);
    assert_true(file >= 0 && write(file, text, bytes) == (ssize_t)bytes);
    close(file);
}

/* What dead jobs of every kind leave: cards, seats, blocks, half files, a link with the name of a card; and files that
 * are nobody's business. */
static void stale_files_are_cleared(void **state) {
    static char rubbish[4096];
    const char card[32] = "ra-roll\0\1\0\0\0\3\0\0\0"; /* rank 1 of 3, the number 0 */
    char path[256], target[300];
    party parties[MOST];
    (void)state;
    mkdir(in_base("stale", path), 0700);
    litter(path, "ringattn-job.join.1.00112233445566778899aabbccddeeff", rubbish, 32);
    litter(path, "ringattn-job.join.1.00112233445566778899aabbccddeef0", card, sizeof card);
    litter(path, "ringattn-job.join.2.junk", rubbish, 4096);
    litter(path, "ringattn-job.seats", rubbish, 4096);
    litter(path, "ringattn-job.conflict", "", 0);
    litter(path, "ringattn-job.lock", "", 0);
    litter(path, "ringattn-job.00112233445566778899aabbccddeeff.0.1", rubbish, 100);
    litter(path, "ringattn-job.00112233445566778899aabbccddeeff.0.1.part77", rubbish, 100);
    litter(path, "mine.txt", "keep", 4);
    snprintf(target, sizeof target, "%s/ringattn-job.join.1.link", path);
    assert_int_equal(symlink("/etc/passwd", target), 0);
    fill(parties, 3, path, 0);
    parties[0].delay = 0.2; /* the others see it all first */
    run(parties, 3);
    for (int r = 0; r < 3; r++) expect(&parties[r], RA_OK, "");
    assert_int_equal(count_files(path), 1);
}

static void two_jobs_in_a_folder_are_refused(void **state) {
    char path[256];
    party parties[2 * MOST];
    (void)state;
    for (int trial = 0; trial < 6; trial++) {
        fill(parties, 3, in_base("two", path), 0);
        fill(parties + 3, 3, path, 0);
        for (int i = 0; i < 6; i++) {
            parties[i].timeout = 1;
            parties[i].delay = trial % 2 ? 0.01 * ((i * 5 + trial) % 6) : 0;
        }
        run(parties, 6);
        int told = 0;
        for (int i = 0; i < 6; i++) {
            assert_int_not_equal(parties[i].status, RA_OK);
            assert_true(parties[i].seconds < 1 + 3);
            told += strstr(parties[i].error, "RINGATTN_JOB_KEY") != NULL;
        }
        assert_true(told > 0);
    }
}

static void ranks_of_another_number_are_refused(void **state) {
    char path[256];
    party parties[MOST];
    (void)state;
    for (int port = 0; port < 2; port++) {
        fill(parties, 3, port ? NULL : in_base("number", path), free_port());
        parties[2].ranks = 4;
        parties[1].timeout = 2; /* it may come when rank 0 has left */
        run(parties, 3);
        expect(&parties[0], RA_ERR_MISMATCH, "rank 2 was started as one of 4 ranks");
        expect(&parties[2], RA_ERR_PEER, "rank 2 was started as one of 4 ranks");
    }
}

static void an_absent_rank_is_named(void **state) {
    char path[256];
    party parties[MOST];
    (void)state;
    for (int port = 0; port < 2; port++) {
        fill(parties, 4, port ? NULL : in_base("absent", path), free_port());
        for (int r = 0; r < 3; r++) parties[r].timeout = r == 0 ? 0.5 : 5;
        parties[0].delay = 0.3; /* the others are there when it gives up */
        run(parties, 3);
        expect(&parties[0], RA_ERR_TIMEOUT, "rank 3");
        for (int r = 1; r < 3; r++) expect(&parties[r], RA_ERR_PEER, "rank 3");
        for (int r = 0; r < 3; r++) assert_true(parties[r].seconds < 0.8 + 3);
        /* The others' time ends before rank 0's. */
        if (!port) {
            for (int r = 0; r < 3; r++) parties[r].timeout = r == 0 ? 1.5 : 0.8;
            parties[0].delay = 0;
            run(parties, 3);
            expect(&parties[0], RA_ERR_TIMEOUT, "for rank 3");
            for (int r = 1; r < 3; r++) expect(&parties[r], RA_ERR_TIMEOUT, "rank 3 has not come");
        }
        /* Rank 0 is the one that does not come. */
        for (int r = 0; r < 4; r++) parties[r].timeout = 0.5;
        run(parties + 1, 3);
        for (int r = 1; r < 4; r++) expect(&parties[r], RA_ERR_TIMEOUT, "rank 0");
        for (int r = 1; r < 4; r++) assert_true(parties[r].seconds < 0.5 + 3);
    }
}

static void a_rank_that_leaves_is_named(void **state) {
    char path[256];
    party parties[MOST];
    (void)state;
    for (int port = 0; port < 2; port++) {
        fill(parties, 3, port ? NULL : in_base("leaves", path), free_port());
        parties[2].stays = 1;
        run(parties, 3);
        expect(&parties[0], RA_ERR_PEER, "rank 2");
        expect(&parties[1], RA_ERR_PEER, "rank 2");
        expect(&parties[2], RA_OK, "");
    }
}

static void keys_keep_jobs_in_a_folder_apart(void **state) {
    char path[256], command[1024];
    (void)state;
    in_base("keys", path);
    /* The key is the process's environment: two jobs are two processes. */
    snprintf(
        command, sizeof command,
        "cd '%s' && (RINGATTN_JOB_KEY=one '%s' job keys 3 & a=$!; RINGATTN_JOB_KEY=two '%s' job keys 3; b=$?; wait $a "
        "&& exit $b)",
        base, getenv("TEST_ITSELF"), getenv("TEST_ITSELF"));
    assert_int_equal(system(command), 0);
    assert_int_equal(count_files(path), 0);
}

/* ---- at a port --------------------------------------------------------------------------------------------------- */

static void port_brings_bytes_round(void **state) {
    party parties[MOST];
    (void)state;
    for (int ranks = 1; ranks <= 7; ranks++) {
        fill(parties, ranks, NULL, free_port());
        for (int r = 0; r < ranks; r++) parties[r].delay = 0.01 * ((r * 5 + 3) % 7);
        run(parties, ranks);
        for (int r = 0; r < ranks; r++) expect(&parties[r], RA_OK, "");
    }
}

static int connect_to(int port) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int made = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(made, (struct sockaddr *)&at, sizeof at) == 0) return made;
    close(made);
    return -1;
}

typedef struct stranger {
    int port, connections;
    atomic_int stop;
} stranger;

/* Half of them send nothing and stay, the others send rubbish of any length; some of it begins as ranks begin. */
static void *pester(void *user) {
    stranger *s = user;
    rng random = {7};
    int held[200], holding = 0;
    char rubbish[3000];
    while (!s->stop) {
        int made = connect_to(s->port);
        if (made < 0) {
            usleep(500);
            continue;
        }
        s->connections++;
        for (size_t i = 0; i < sizeof rubbish; i++) rubbish[i] = (char)rng_next(&random);
        size_t bytes = 1 + rng_next(&random) % sizeof rubbish;
        if (bytes % 3 == 0) memcpy(rubbish, "ra-its1", 8);
        if (bytes % 2) (void)!send(made, rubbish, bytes, MSG_NOSIGNAL);
        if (holding < 200)
            held[holding++] = made;
        else
            close(made);
        usleep(200);
    }
    while (holding > 0) close(held[--holding]);
    return NULL;
}

static void strangers_do_not_disturb(void **state) {
    party parties[MOST];
    stranger s = {.port = free_port()};
    pthread_t thread;
    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, pester, &s), 0);
    fill(parties, 4, NULL, s.port);
    for (int r = 1; r < 4; r++) parties[r].delay = 0.3 * r;
    run(parties, 4);
    s.stop = 1;
    pthread_join(thread, NULL);
    for (int r = 0; r < 4; r++) expect(&parties[r], RA_OK, "");
    assert_true(s.connections > 20);
}

static void another_key_is_turned_away(void **state) {
    party parties[MOST];
    (void)state;
    fill(parties, 3, NULL, free_port());
    for (int r = 0; r < 3; r++) parties[r].timeout = 0.8;
    parties[2].key = "another key";
    run(parties, 3);
    expect(&parties[0], RA_ERR_TIMEOUT, "rank 2");
    expect(&parties[2], RA_ERR_TIMEOUT, "RINGATTN_JOB_KEY");
    /* A rank of another job beside a whole one does not disturb it. */
    party job[MOST];
    fill(job, 3, NULL, free_port());
    job[0].delay = 0.3;
    job[3] = job[2];
    job[3].key = "another key";
    job[3].timeout = 1;
    run(job, 4);
    for (int r = 0; r < 3; r++) expect(&job[r], RA_OK, "");
    expect(&job[3], RA_ERR_TIMEOUT, "rank 0");
}

static void two_jobs_with_a_key_are_refused(void **state) {
    party parties[MOST];
    (void)state;
    fill(parties, 3, NULL, free_port());
    parties[2].rank = 1; /* a second rank 1, and no rank 2 */
    run(parties, 3);
    expect(&parties[0], RA_ERR_MISMATCH, "two processes say that they are rank 1");
    expect(&parties[1], RA_ERR_PEER, "two processes say that they are rank 1");
    expect(&parties[2], RA_ERR_PEER, "two processes say that they are rank 1");
    /* A second rank 0. */
    fill(parties, 2, NULL, free_port());
    parties[1].rank = 0;
    for (int r = 0; r < 2; r++) parties[r].timeout = 0.6;
    parties[1].delay = 0.2;
    run(parties, 2);
    expect(&parties[0], RA_ERR_TIMEOUT, "rank 1");
    expect(&parties[1], RA_ERR_ARGUMENT, "another job");
}

static void wrong_arguments_are_refused(void **state) {
    ra_rendezvous *meeting = NULL;
    (void)state;
    assert_int_equal(ra_rendezvous_tcp("127.0.0.1", 23495, "", 0, 1, 1, &meeting), RA_ERR_ARGUMENT);
    assert_non_null(strstr(ra_last_error(), "RINGATTN_JOB_KEY"));
    assert_int_equal(ra_rendezvous_tcp("127.0.0.1", 0, KEY, 0, 1, 1, &meeting), RA_ERR_ARGUMENT);
    assert_int_equal(ra_rendezvous_tcp("", 23495, KEY, 0, 1, 1, &meeting), RA_ERR_ARGUMENT);
    assert_int_equal(ra_rendezvous_tcp("127.0.0.1", 23495, KEY, 2, 2, 1, &meeting), RA_ERR_ARGUMENT);
    assert_int_equal(ra_rendezvous_tcp("127.0.0.1", 23495, KEY, 0, 1, -1, &meeting), RA_ERR_ARGUMENT);
    assert_int_equal(ra_rendezvous_tcp("192.0.2.77", 23495, KEY, 0, 2, 1, &meeting), RA_ERR_ARGUMENT);
    assert_non_null(strstr(ra_last_error(), "no address of this machine"));
    assert_int_equal(ra_rendezvous_folder(base, 0, 0, 1, &meeting), RA_ERR_ARGUMENT);
    assert_int_equal(ra_rendezvous_allgather(NULL, "", 1, NULL), RA_ERR_ARGUMENT);
    ra_rendezvous_destroy(NULL);
    assert_int_equal(ra_rendezvous_rank(NULL), -1);
    assert_null(meeting);
}

static void environment_is_read(void **state) {
    ra_rendezvous *meeting = NULL;
    char text[16];
    (void)state;
    snprintf(text, sizeof text, "%d", free_port());
    unsetenv("RANK");
    assert_int_equal(ra_rendezvous_environment(1, &meeting), RA_ERR_ARGUMENT);
    assert_non_null(strstr(ra_last_error(), "RANK is not set"));
    setenv("RANK", "0x", 1);
    assert_int_equal(ra_rendezvous_environment(1, &meeting), RA_ERR_ARGUMENT);
    assert_non_null(strstr(ra_last_error(), "not a number"));
    setenv("RANK", "0", 1);
    setenv("WORLD_SIZE", "1", 1);
    setenv("MASTER_ADDR", "localhost", 1);
    setenv("MASTER_PORT", text, 1);
    unsetenv("RINGATTN_JOB_KEY");
    assert_int_equal(ra_rendezvous_environment(1, &meeting), RA_ERR_ARGUMENT);
    assert_non_null(strstr(ra_last_error(), "RINGATTN_JOB_KEY"));
    setenv("RINGATTN_JOB_KEY", KEY, 1);
    assert_int_equal(ra_rendezvous_environment(1, &meeting), RA_OK);
    assert_int_equal(ra_rendezvous_ranks(meeting), 1);
    ra_rendezvous_destroy(meeting);
}

/* ---- */

/* `test_rendezvous job FOLDER RANKS`: a whole job on threads, for tests with several processes. */
static int run_job(const char *folder, int ranks) {
    party parties[MOST];
    int failed = 0;
    fill(parties, ranks, folder, 0);
    for (int r = 0; r < ranks; r++) parties[r].delay = 0.05 * (ranks - r);
    run(parties, ranks);
    for (int r = 0; r < ranks; r++) {
        if (parties[r].status != RA_OK) fprintf(stderr, "rank %d: %s\n", r, parties[r].error);
        failed |= parties[r].status != RA_OK;
    }
    return failed;
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(folder_brings_bytes_round),        cmocka_unit_test(folder_of_others_is_refused),
        cmocka_unit_test(stale_files_are_cleared),          cmocka_unit_test(two_jobs_in_a_folder_are_refused),
        cmocka_unit_test(keys_keep_jobs_in_a_folder_apart), cmocka_unit_test(ranks_of_another_number_are_refused),
        cmocka_unit_test(an_absent_rank_is_named),          cmocka_unit_test(a_rank_that_leaves_is_named),
        cmocka_unit_test(port_brings_bytes_round),          cmocka_unit_test(strangers_do_not_disturb),
        cmocka_unit_test(another_key_is_turned_away),       cmocka_unit_test(two_jobs_with_a_key_are_refused),
        cmocka_unit_test(wrong_arguments_are_refused),      cmocka_unit_test(environment_is_read),
    };
    char itself[512] = "", command[256];
    if (argc == 4 && strcmp(argv[1], "job") == 0) return run_job(argv[2], atoi(argv[3]));
    if (readlink("/proc/self/exe", itself, sizeof itself - 1) < 0) return 1;
    setenv("TEST_ITSELF", itself, 1);
    unsetenv("RINGATTN_JOB_KEY");
    if (!temporary_template("ringattn-test", base, sizeof base) || !mkdtemp(base)) return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    snprintf(command, sizeof command, "rm -rf '%s'", base);
    return system(command) == 0 ? failed : 1;
}
