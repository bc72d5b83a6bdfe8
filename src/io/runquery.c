/* Parses filters of runs, matches rows against them and completes them. */
#include "io/runquery.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "base/utf8.h"

enum { COMPLETE_MAX = 200, COMPLETE_CONFIGS = 8 };

/* Longest first. */
static const struct {
    const char *text;
    enum runquery_op op;
} ops[] = {{"!=", QUERY_NE}, {">=", QUERY_GE}, {"<=", QUERY_LE}, {"=", QUERY_EQ},
           {">", QUERY_GT},  {"<", QUERY_LT},  {"~", QUERY_HAS}};

static int is_key_char(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '.' || c == '-';
}

static int column_at(const char *text, const char *p)
{
    return utf8_cells(text, (size_t)(p - text)) + 1;
}

/* ---- parsing ---- */

/* A value up to the next blank, or in double quotes; the place after it, NULL on failure. */
static const char *parse_value(char *out, const char *p, const char *text, struct err *e)
{
    size_t n = 0;
    const char *start = p;
    int is_quoted = *p == '"';
    p += is_quoted;
    while (*p && (is_quoted ? *p != '"' : *p != ' ' && *p != '\t')) {
        if (n == RUNQUERY_VALUE_MAX) {
            (void)!err_set(e, DS_EUSAGE, "filter: column %d: value longer than %d bytes",
                           column_at(text, start), RUNQUERY_VALUE_MAX);
            return NULL;
        }
        out[n++] = *p++;
    }
    out[n] = '\0';
    if (is_quoted && *p != '"') {
        (void)!err_set(e, DS_EUSAGE, "filter: column %d: missing closing \"",
                       column_at(text, start));
        return NULL;
    }
    return p + is_quoted;
}

/* Numbers; with a suffix s, m, h or d for durations.  NaN when it is none. */
static double parse_number(const char *value, const struct run_column *c)
{
    static const struct {
        char suffix;
        double seconds;
    } unit[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}};
    char *end;
    double x = strtod(value, &end);
    int is_time = c && (strcmp(c->key, "age") == 0 || strcmp(c->key, "eta") == 0);
    if (end == value)
        return (double)NAN;
    for (size_t i = 0; is_time && i < DS_LEN(unit); i++)
        if (end[0] == unit[i].suffix && !end[1])
            return x * unit[i].seconds;
    return *end ? (double)NAN : x;
}

static int is_state(const char *name)
{
    for (int i = 0; i < RUN_STATES; i++)
        if (strcmp(run_state_name((enum run_state)i), name) == 0)
            return 1;
    return 0;
}

static int check_value(const struct runquery_term *t, int at, struct err *e)
{
    int is_exact = t->op == QUERY_EQ || t->op == QUERY_NE;
    int is_order = !is_exact && t->op != QUERY_HAS;
    if (!t->value[0] && !is_exact)
        return err_set(e, DS_EUSAGE, "filter: column %d: missing value", at);
    if ((is_order || (t->column && t->column->is_number && is_exact && t->value[0])) &&
        isnan(t->number))
        return err_set(e, DS_EUSAGE, "filter: column %d: '%s': expected a number", at, t->value);
    if (t->column && strcmp(t->column->key, "state") == 0 && is_exact && !is_state(t->value)) {
        struct nearest best = nearest_to(t->value);
        char hint[NEAREST_MAX + 32];
        for (int i = 0; i < RUN_STATES; i++)
            nearest_try(&best, run_state_name((enum run_state)i));
        return err_set(e, DS_EUSAGE, "filter: column %d: unknown state '%s'%s", at, t->value,
                       nearest_hint(&best, hint, sizeof hint));
    }
    return 0;
}

/* One term at *p, which is not blank. */
static int parse_term(struct runquery_term *t, const char **p, const char *text, struct err *e)
{
    const char *start = *p, *end = start;
    size_t k = 0;
    while (is_key_char(*end))
        end++;
    while (k < DS_LEN(ops) && strncmp(end, ops[k].text, strlen(ops[k].text)) != 0)
        k++;
    *t = (struct runquery_term){.at = column_at(text, start), .number = (double)NAN};
    if (k == DS_LEN(ops)) { /* a word alone */
        const char *after = parse_value(t->value, start, text, e);
        if (!after)
            return DS_EUSAGE;
        str_copy(t->key, sizeof t->key, "name");
        t->column = run_column_find("name");
        t->op = QUERY_HAS;
        *p = after;
        return 0;
    }
    if (end == start)
        return err_set(e, DS_EUSAGE, "filter: column %d: expected a key before %s", t->at,
                       ops[k].text);
    if ((size_t)(end - start) > CONFIG_KEY_MAX)
        return err_set(e, DS_EUSAGE, "filter: column %d: key longer than %d bytes", t->at,
                       CONFIG_KEY_MAX);
    memcpy(t->key, start, (size_t)(end - start));
    t->column = run_column_find(t->key);
    t->op = ops[k].op;
    const char *value = end + strlen(ops[k].text), *after = parse_value(t->value, value, text, e);
    if (!after)
        return DS_EUSAGE;
    t->number = parse_number(t->value, t->column);
    *p = after;
    return check_value(t, column_at(text, value), e);
}

int runquery_parse(struct runquery *q, const char *text, struct err *e)
{
    const char *p = text;
    q->n = 0;
    for (;;) {
        p += strspn(p, " \t");
        if (!*p)
            return 0;
        if (q->n == RUNQUERY_TERMS_MAX)
            return err_set(e, DS_EUSAGE, "filter: column %d: more than %d terms",
                           column_at(text, p), RUNQUERY_TERMS_MAX);
        int rc = parse_term(&q->term[q->n], &p, text, e);
        if (rc < 0)
            return rc;
        q->n++;
        if (*p && *p != ' ' && *p != '\t')
            return err_set(e, DS_EUSAGE, "filter: column %d: expected a blank after \"",
                           column_at(text, p));
    }
}

int runquery_check(const struct runquery *q, const struct runindex *x, struct err *e)
{
    for (int i = 0; i < q->n; i++) {
        const struct runquery_term *t = &q->term[i];
        int is_known = t->column || x->n == 0;
        for (size_t k = 0; !is_known && k < x->n; k++)
            is_known = run_row_config(x->row[k], t->key) != NULL;
        if (is_known)
            continue;
        struct nearest best = nearest_to(t->key);
        char hint[NEAREST_MAX + 32];
        for (const struct run_column *c = run_columns; c->key; c++)
            nearest_try(&best, c->key);
        for (size_t k = 0; k < x->n && k < COMPLETE_CONFIGS; k++) {
            const struct config *c = x->row[k]->config;
            for (size_t j = 0; c && j < c->n; j++)
                nearest_try(&best, c->entry[j].key);
        }
        return err_set(e, DS_EUSAGE, "filter: column %d: unknown key %s%s", t->at, t->key,
                       nearest_hint(&best, hint, sizeof hint));
    }
    return 0;
}

/* ---- matching ---- */

static int contains(const char *text, const char *part)
{
    size_t n = strlen(part);
    for (; *text; text++)
        if (strncasecmp(text, part, n) == 0)
            return 1;
    return n == 0;
}

static int match_number(const struct runquery_term *t, double x)
{
    switch (t->op) {
    case QUERY_EQ: return x == t->number;
    case QUERY_NE: return !(x == t->number);
    case QUERY_GT: return x > t->number;
    case QUERY_GE: return x >= t->number;
    case QUERY_LT: return x < t->number;
    default: return x <= t->number;
    }
}

static int match_text(const struct runquery_term *t, const char *text)
{
    if (t->op == QUERY_HAS)
        return contains(text, t->value);
    return (strcmp(text, t->value) == 0) == (t->op == QUERY_EQ);
}

static int match_tags(const struct runquery_term *t, const struct run_notes *notes)
{
    int found = t->value[0] == '\0' && notes->tags == 0; /* tag=: untagged */
    for (int i = 0; i < notes->tags && !found; i++)
        found = t->op == QUERY_HAS ? contains(notes->tag[i], t->value)
                                   : strcmp(notes->tag[i], t->value) == 0;
    return t->op == QUERY_NE ? !found : found;
}

static int match_term(const struct runquery_term *t, struct run_row *row, double now)
{
    char text[RUN_NOTE_MAX + 1], *end;
    int is_order = t->op >= QUERY_GT && t->op <= QUERY_LE;
    if (t->column && strcmp(t->column->key, "tag") == 0 && !is_order)
        return match_tags(t, &row->notes);
    if (t->column && t->column->is_number && t->op != QUERY_HAS && t->value[0])
        return match_number(t, run_column_number(row, t->column, now));
    run_row_text(row, t->key, now, text, sizeof text);
    double x = strtod(text, &end);
    int is_number = text[0] && *end == '\0';
    if (is_order)
        return is_number && match_number(t, x);
    /* 1e-4 equals 0.0001 */
    if (!t->column && t->op != QUERY_HAS && is_number && !isnan(t->number))
        return match_number(t, x);
    return match_text(t, text);
}

int runquery_match(const struct runquery *q, struct run_row *row, double now)
{
    for (int i = 0; i < q->n; i++)
        if (!match_term(&q->term[i], row, now))
            return 0;
    return 1;
}

/* ---- completion ---- */

struct words {
    char **word;
    size_t n, cap;
    int failed;
};

static void offer(struct words *w, const char *begin, const char *key, const char *op,
                  const char *value)
{
    char text[CONFIG_KEY_MAX + RUNQUERY_VALUE_MAX + 16];
    const char *quote = value[strcspn(value, " \t")] ? "\"" : "";
    void *p = w->word;
    if (strchr(value, '"') || strlen(value) > RUNQUERY_VALUE_MAX)
        return;
    snprintf(text, sizeof text, "%s%s%s%s%s", key, op, quote, value, quote);
    if (w->n == COMPLETE_MAX || strncmp(text, begin, strlen(begin)) != 0)
        return;
    for (size_t i = 0; i < w->n; i++)
        if (strcmp(w->word[i], text) == 0)
            return;
    char *copy = mem_strdup(text);
    if (!copy || mem_grow(&p, &w->cap, w->n + 1, sizeof *w->word) < 0) {
        mem_free(copy);
        w->failed = 1;
        return;
    }
    w->word = p;
    w->word[w->n++] = copy;
}

static void offer_keys(struct words *w, const char *begin, const struct runindex *x)
{
    for (const struct run_column *c = run_columns; c->key; c++)
        offer(w, begin, c->key, "=", "");
    for (size_t i = 0; i < x->n && i < COMPLETE_CONFIGS; i++) {
        (void)run_row_config(x->row[i], "seed");
        const struct config *c = x->row[i]->config;
        for (size_t k = 0; c && k < c->n; k++)
            offer(w, begin, c->entry[k].key, "=", "");
    }
}

static void offer_values(struct words *w, const char *begin, const char *key, const char *op,
                         const struct runindex *x, double now)
{
    const struct run_column *c = run_column_find(key);
    for (int i = 0; c && strcmp(c->key, "state") == 0 && i < RUN_STATES; i++)
        offer(w, begin, key, op, run_state_name((enum run_state)i));
    for (size_t i = 0; i < x->n; i++) {
        char text[RUN_NOTE_MAX + 1];
        const struct run_notes *notes = &x->row[i]->notes;
        for (int k = 0; c && strcmp(c->key, "tag") == 0 && k < notes->tags; k++)
            offer(w, begin, key, op, notes->tag[k]);
        if (c && strcmp(c->key, "tag") == 0)
            continue;
        run_row_text(x->row[i], key, now, text, sizeof text);
        if (text[0])
            offer(w, begin, key, op, text);
    }
}

/* Where the last word begins: blanks inside quotes do not separate words. */
static size_t last_word(const char *text)
{
    size_t from = 0;
    int is_quoted = 0;
    for (size_t i = 0; text[i]; i++) {
        is_quoted ^= text[i] == '"';
        if (!is_quoted && (text[i] == ' ' || text[i] == '\t'))
            from = i + 1;
    }
    return from;
}

int runquery_complete(char ***word, size_t *n, size_t *from, const char *text,
                      const struct runindex *x, double now, struct err *e)
{
    struct words w = {0};
    char key[CONFIG_KEY_MAX + 1];
    size_t len = 0, k = 0;
    *from = last_word(text);
    const char *begin = text + *from;
    while (is_key_char(begin[len]))
        len++;
    while (k < DS_LEN(ops) && strncmp(begin + len, ops[k].text, strlen(ops[k].text)) != 0)
        k++;
    if (len > 0 && len < sizeof key && k < DS_LEN(ops)) {
        snprintf(key, sizeof key, "%.*s", (int)len, begin);
        offer_values(&w, begin, key, ops[k].text, x, now);
    } else {
        offer_keys(&w, begin, x);
    }
    if (w.failed) {
        for (size_t i = 0; i < w.n; i++)
            mem_free(w.word[i]);
        mem_free(w.word);
        return err_set(e, DS_EMEM, "filter: out of memory");
    }
    *word = w.word;
    *n = w.n;
    return 0;
}
