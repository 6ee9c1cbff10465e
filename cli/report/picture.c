/*   rank | step 0            step 1            step 2
 *      0 | k0 16% >1 512K    k2 50% >1 512K    k1 33%
 *
 * The first line of a cell's text is what the rank computes with and which fraction of its pairs that is; what it sends
 * meanwhile comes behind the arrow. */
#include "report/picture.h"

#include "cli.h"
#include "report/text.h"

#include <string.h>

enum { RANKS_SHOWN = 12, STEPS_SHOWN = 9, CELL_BYTES = 96, GAP = 3 };

typedef struct picture {
    char cells[RANKS_SHOWN][STEPS_SHOWN][CELL_BYTES];
    int width[STEPS_SHOWN]; /* of the widest cell */
    int ranks, steps;       /* shown */
    int steps_most;         /* that a rank shown has */
    int visited;            /* a rank computes with queries that are not its own */
} picture;

static void draw_cell(const ra_step_info *step, int64_t pairs, char *cell) {
    char owner[16] = "-", visitor[16] = "", sent[40] = "", bytes[TEXT_BYTES];
    if (step->owner >= 0) snprintf(owner, sizeof owner, "k%d", step->owner);
    if (step->owner == -2) snprintf(owner, sizeof owner, "k*");
    if (step->visitor >= 0) snprintf(visitor, sizeof visitor, "q%d ", step->visitor);
    if (step->sends == 1) snprintf(sent, sizeof sent, " >%d %s", step->send_peer, text_bytes(step->bytes_sent, bytes));
    if (step->sends > 1) snprintf(sent, sizeof sent, " >%d.. %s", step->send_peer, text_bytes(step->bytes_sent, bytes));
    if (step->owner == -1)
        snprintf(cell, CELL_BYTES, "%s%s", owner, sent);
    else
        snprintf(cell, CELL_BYTES, "%s%s %.0f%%%s", visitor, owner,
                 pairs ? 100.0 * (double)step->pairs / (double)pairs : 0, sent);
}

static ra_status draw(const ra_problem *problem, const ra_options *how, int ranks, ra_pass pass, picture *out) {
    out->ranks = ranks < RANKS_SHOWN ? ranks : RANKS_SHOWN;
    for (int r = 0; r < out->ranks; ++r) {
        ra_step_info steps[STEPS_SHOWN];
        ra_plan_info info = RA_PLAN_INFO_INIT;
        int count;
        CLI_RETURN_ON_ERROR(ra_predict(problem, how, ranks, r, &info));
        CLI_RETURN_ON_ERROR(ra_predict_steps(problem, how, ranks, r, pass, steps, STEPS_SHOWN, &count));
        if (count > out->steps_most) out->steps_most = count;
        for (int s = 0; s < count && s < STEPS_SHOWN; ++s) {
            draw_cell(&steps[s], info.pairs, out->cells[r][s]);
            out->visited |= steps[s].visitor >= 0;
            int width = (int)strlen(out->cells[r][s]);
            if (width > out->width[s]) out->width[s] = width;
        }
    }
    out->steps = out->steps_most < STEPS_SHOWN ? out->steps_most : STEPS_SHOWN;
    return RA_OK;
}

ra_status picture_print(FILE *file, const ra_problem *problem, const ra_options *how, int ranks, ra_pass pass) {
    picture drawn = {0};
    CLI_RETURN_ON_ERROR(draw(problem, how, ranks, pass, &drawn));
    fprintf(file,
            "%s schedule: kR N%% computes with rank R's keys, N%% of the rank's pairs; >R B sends B bytes to R\n%s\n",
            pass == RA_FORWARD ? "forward" : "backward",
            drawn.visited ? "(qR kS: rank R's queries visit the keys of rank S)\n" : "");
    fprintf(file, "  rank |");
    for (int s = 0; s < drawn.steps; ++s) {
        int width = drawn.width[s] > 7 ? drawn.width[s] : 7;
        fprintf(file, " step %-*d", width + GAP - 6, s);
    }
    for (int r = 0; r < drawn.ranks; ++r) {
        fprintf(file, "\n  %4d |", r);
        for (int s = 0; s < drawn.steps; ++s) {
            int width = drawn.width[s] > 7 ? drawn.width[s] : 7;
            fprintf(file, " %-*s", width + GAP - 1, drawn.cells[r][s]);
        }
    }
    fprintf(file, "\n");
    if (ranks > drawn.ranks) fprintf(file, "  ... and %d more ranks\n", ranks - drawn.ranks);
    if (drawn.steps_most > drawn.steps) fprintf(file, "  ... and %d more steps\n", drawn.steps_most - drawn.steps);
    fprintf(file, "\n");
    return RA_OK;
}
