#include "options/option_store.h"

#include "cli.h"
#include "options/option_values.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* SEGMENT:RATE, both numbers. item: a copy of the argument's, in which the colon is overwritten. */
static ra_status parse_branch(const flag *f, char *item, int64_t *values_out) {
    char *colon = strchr(item, ':');
    if (!colon)
        CLI_RETURN_REFUSAL("%s: '%s' is not SEGMENT:RATE, two numbers with a colon between them", f->name, item);
    *colon = '\0';
    CLI_RETURN_ON_ERROR(value_int(f->name, item, f->min, f->max, &values_out[0]));
    return value_int(f->name, colon + 1, f->min, f->max, &values_out[1]);
}

static int64_t values_per_item(const flag *f) {
    return f->kind == KIND_BRANCHES ? 2 : 1;
}

static ra_status parse_item(const flag *f, char *item, int64_t *values_out) {
    if (f->kind == KIND_BRANCHES) return parse_branch(f, item, values_out);
    return f->kind == KIND_INTS ? value_int(f->name, item, f->min, f->max, values_out)
                                : f->parse(f->name, item, values_out);
}

static ra_status check_entries(const flag *f, cli_command command, int64_t count) {
    if (f->entries == ANY || (f->entries == SWEEP && command == CLI_BENCH)) return RA_OK;
    int64_t wanted = f->entries == SWEEP ? 1 : f->entries;
    if (count != wanted)
        CLI_RETURN_REFUSAL("%s: takes %lld value%s, not %lld%s", f->name, (long long)wanted, wanted == 1 ? "" : "s",
                           (long long)count, f->entries == SWEEP ? "; only bench takes lists" : "");
    return RA_OK;
}

/* value: items with commas between them; none may be empty. */
static ra_status parse_list(const flag *f, cli_command command, const char *value, cli_list *list) {
    int64_t count = 1, width = values_per_item(f);
    for (const char *at = value; *at; ++at) count += *at == ',';
    CLI_RETURN_ON_ERROR(check_entries(f, command, count));
    count *= width;
    char *text = malloc(strlen(value) + 1);
    free(list->values);
    list->count = 0;
    list->values = malloc((size_t)count * sizeof *list->values);
    ra_status status = RA_OK;
    if (!text || !list->values)
        status = ra_fail(RA_ERR_MEMORY, "%s: no memory for %lld values", f->name, (long long)count);
    if (status == RA_OK) strcpy(text, value);
    for (char *item = text; status == RA_OK && list->count < count;) {
        char *comma = strchr(item, ',');
        if (comma) *comma = '\0';
        status = parse_item(f, item, &list->values[list->count]);
        list->count += status == RA_OK ? width : 0;
        item = comma ? comma + 1 : item;
    }
    free(text);
    return status;
}

ra_status flag_store(const flag *f, const char *value, cli_options *options) {
    void *field = (char *)options + f->offset;
    switch (f->kind) {
    case KIND_SWITCH:
        *(int *)field = 1;
        return RA_OK;
    case KIND_PATH:
        if (value[0] == '\0') CLI_RETURN_REFUSAL("%s: the file's name is empty", f->name);
        *(const char **)field = value;
        return RA_OK;
    case KIND_WORDS:
        CLI_RETURN_ON_ERROR(check_entries(f, options->command, cli_words_count(value)));
        *(const char **)field = value;
        return RA_OK;
    case KIND_REAL:
        *(int *)((char *)options + f->given) = 1;
        return value_real(f->name, value, field);
    case KIND_INTS:
    case KIND_NAMES:
    case KIND_BRANCHES:
        break;
    }
    return parse_list(f, options->command, value, field);
}

void cli_options_free(cli_options *options) {
    for (int i = 0; flag_at(i); ++i) {
        flag_kind kind = flag_at(i)->kind;
        if (kind != KIND_INTS && kind != KIND_NAMES && kind != KIND_BRANCHES) continue;
        cli_list *list = (cli_list *)((char *)options + flag_at(i)->offset);
        free(list->values);
        *list = (cli_list){0};
    }
}

int64_t cli_list_at(cli_list list, int64_t i, int64_t otherwise) {
    return i < list.count ? list.values[i] : otherwise;
}

int64_t cli_words_count(const char *words) {
    int64_t count = words != NULL;
    for (; words && *words; ++words) count += *words == ',';
    return count;
}

void cli_words_at(const char *words, int64_t i, char *word_out, size_t bytes) {
    for (; words && i > 0; --i) words += strcspn(words, ",") + 1;
    snprintf(word_out, bytes, "%.*s", words ? (int)strcspn(words, ",") : 0, words ? words : "");
}
