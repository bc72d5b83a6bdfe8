/* Parses conditions on a run and compares them with it. */
#include "cli/inspect/until.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "base/utf8.h"

static const char blanks[] = " \t";
/* Longest first. */
static const struct {
    const char *text;
    enum until_op op;
} ops[] = {{"!=", UNTIL_NE}, {">=", UNTIL_GE}, {"<=", UNTIL_LE}, {"==", UNTIL_EQ},
           {"=", UNTIL_EQ},  {">", UNTIL_GT},  {"<", UNTIL_LT}};

/* ---- parsing ---- */

static int column_at(const char *text, const char *p)
{
    return utf8_cells(text, (size_t)(p - text)) + 1;
}

static int is_word(const char *p, const char *word)
{
    size_t n = strlen(word);
    return strncmp(p, word, n) == 0 && (!p[n] || strchr(blanks, p[n]));
}

static int is_state(const char *name)
{
    for (int i = 0; i < RUN_STATES; i++)
        if (strcmp(run_state_name((enum run_state)i), name) == 0)
            return 1;
    return 0;
}

static int take_part(char *out, size_t size, const char *p, size_t n)
{
    while (n > 0 && strchr(blanks, p[n - 1]))
        n--;
    if (n == 0 || n >= size)
        return 0;
    memcpy(out, p, n);
    out[n] = '\0';
    return 1;
}

static int check_clause(const struct clause *c, int at, struct err *e)
{
    int is_exact = c->op == UNTIL_EQ || c->op == UNTIL_NE, is_text = strcmp(c->key, "state") == 0;
    if (is_text && (!is_exact || !is_state(c->value)))
        return err_set(
            e, DS_EUSAGE,
            "--until: column %d: state \"%s\": expected = or != with live, paused, silent, "
            "done, stopped, failed, ended, trace or empty",
            at, c->value);
    if (!is_exact && isnan(c->number))
        return err_set(e, DS_EUSAGE, "--until: column %d: \"%s\": expected a number", at, c->value);
    return 0;
}

static int parse_clause(struct clause *c, const char **p, const char *text, struct err *e)
{
    const char *key = *p, *op = key + strcspn(key, "=!<>");
    size_t k = 0;
    char *end;
    while (k < DS_LEN(ops) && strncmp(op, ops[k].text, strlen(ops[k].text)) != 0)
        k++;
    if (k == DS_LEN(ops) || !take_part(c->key, sizeof c->key, key, (size_t)(op - key)))
        return err_set(e, DS_EUSAGE,
                       "--until: column %d: expected KEY OP VALUE, as in val_loss<2.1",
                       column_at(text, key));
    const char *value = op + strlen(ops[k].text);
    value += strspn(value, blanks);
    int is_quoted = *value == '"';
    size_t n = strcspn(value + is_quoted, is_quoted ? "\"" : blanks);
    if (!take_part(c->value, sizeof c->value, value + is_quoted, n) ||
        (is_quoted && value[1 + n] != '"'))
        return err_set(e, DS_EUSAGE, "--until: column %d: missing or too long a value",
                       column_at(text, value));
    c->op = ops[k].op;
    c->number = strtod(c->value, &end);
    if (*end)
        c->number = (double)NAN;
    *p = value + n + 2 * (size_t)is_quoted;
    return check_clause(c, column_at(text, value), e);
}

int until_parse(struct until *u, const char *text, struct err *e)
{
    const char *p = text;
    int alternative = 0, wants = 1; /* wants: a clause must follow */
    u->n = 0;
    for (;;) {
        p += strspn(p, blanks);
        if (u->n > 0 && !wants && (is_word(p, "and") || is_word(p, "or"))) {
            alternative += *p == 'o';
            p += *p == 'o' ? 2 : 3;
            wants = 1;
            continue;
        }
        if (!*p && !wants)
            return 0;
        if (u->n == UNTIL_MAX)
            return err_set(e, DS_EUSAGE, "--until: more than %d conditions", UNTIL_MAX);
        struct clause *c = &u->clause[u->n++];
        *c = (struct clause){.alternative = alternative};
        int rc = parse_clause(c, &p, text, e);
        if (rc < 0)
            return rc;
        wants = 0;
    }
}

/* ---- comparing ---- */

static int holds(const struct clause *c, double x)
{
    switch (c->op) {
    case UNTIL_EQ: return x == c->number;
    case UNTIL_NE: return x < c->number || x > c->number;
    case UNTIL_GE: return x >= c->number;
    case UNTIL_LE: return x <= c->number;
    case UNTIL_GT: return x > c->number;
    default: return x < c->number;
    }
}

static int holds_text(const struct clause *c, const char *text)
{
    char *end;
    double x = strtod(text, &end);
    if (!isnan(c->number) && end != text && !*end)
        return holds(c, x);
    return (c->op == UNTIL_EQ || c->op == UNTIL_NE) &&
           (strcmp(c->value, text) == 0) == (c->op == UNTIL_EQ);
}

/* "TASK.NAME" of an evaluation; NaN when there is none. */
static double evaluation(const struct runview *v, const char *key)
{
    char task[UNTIL_KEY_MAX];
    const char *dot = strchr(key, '.');
    if (!dot || !take_part(task, sizeof task, key, (size_t)(dot - key)))
        return (double)NAN;
    return runview_eval(v, task, dot + 1);
}

/* A number that is none of a series: 1 when there is one. */
static int number_of(const struct runview *v, const char *key, double now, double *x)
{
    *x = (double)NAN;
    if (strcmp(key, "step") == 0)
        *x = v->records > 0 ? (double)v->step : (double)NAN;
    else if (strcmp(key, "age") == 0)
        *x = runview_age(v, now);
    else
        *x = evaluation(v, key);
    return !isnan(*x);
}

static int points_hold(struct clause *c, const struct series *s)
{
    int found = 0;
    size_t i = c->seen > 0 && c->seen < s->n ? c->seen : s->n - 1;
    for (; i < s->n && !found; i++)
        found = !s->is_old[i] && holds(c, s->value[i]);
    c->seen = s->n;
    return found;
}

static int clause_holds(struct clause *c, const struct runview *v, double now)
{
    const struct series *s = runview_series(v, c->key);
    const char *text = runview_config(v, c->key);
    double x;
    if (strcmp(c->key, "state") == 0)
        return holds_text(c, run_state_name(v->state));
    if (s && s->n > 0)
        return points_hold(c, s);
    if (number_of(v, c->key, now, &x))
        return holds(c, x);
    return text && holds_text(c, text);
}

int until_holds(struct until *u, const struct runview *v, double now)
{
    int found = 0;
    for (int i = 0; i < u->n;) {
        int all = 1, alternative = u->clause[i].alternative;
        for (; i < u->n && u->clause[i].alternative == alternative; i++)
            all &= clause_holds(&u->clause[i], v, now); /* each one: it notes what it saw */
        found |= all;
    }
    return found;
}

const char *until_missing(const struct until *u, const struct runview *v, double now)
{
    double x;
    for (int i = 0; i < u->n; i++) {
        const char *key = u->clause[i].key;
        const struct series *s = runview_series(v, key);
        if (strcmp(key, "state") != 0 && !(s && s->n) && !number_of(v, key, now, &x) &&
            !runview_config(v, key))
            return key;
    }
    return NULL;
}
