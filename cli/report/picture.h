/* A schedule as a picture of text: ranks down, steps across; in each cell what is computed and what travels. */
#ifndef CLI_PICTURE_H
#define CLI_PICTURE_H

#include <ringattn/ringattn.h>
#include <stdio.h>

/* Shows the first ranks and steps when there are many, and says so. */
ra_status picture_print(FILE *file, const ra_problem *problem, const ra_options *how, int ranks, ra_pass pass);

#endif
