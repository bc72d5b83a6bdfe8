/* Grammars: compiling the tables, drawing texts, and the exact filter over derivations. */
#include "data/grammar.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

enum {
    DEPTH = 12,
    VARS = 32,
    FIELDS = 8,
    NAME = 24,
    HYPOTHESES = 1 << 14,
    END = 256,
    SYMBOLS = 257
};

struct span {
    const char *p;
    uint32_t len;
};
enum item_kind { ITEM_TEXT, ITEM_CALL, ITEM_COPY };
struct item {
    enum item_kind kind;
    struct span text;         /* ITEM_TEXT */
    int16_t rule, var, field; /* var -1: not stored; field 0: the text written */
};
struct alt {
    double p;
    uint32_t first, n;         /* items */
    struct span field[FIELDS]; /* from 1 */
    int fields;
};
struct grammar {
    const struct grammar_rule *rule;
    size_t rules;
    uint32_t *rule_first; /* alternatives of rule r: [r], [r + 1] */
    struct alt *alt;
    size_t alts;
    struct item *item;
    size_t items, item_cap;
    char var[VARS][NAME];
    int vars;
};

/* --- compiling
 * --------------------------------------------------------------------------------------- */

static int find_rule(const struct grammar *g, const char *s, size_t n)
{
    for (size_t i = 0; i < g->rules; i++)
        if (strlen(g->rule[i].name) == n && memcmp(g->rule[i].name, s, n) == 0)
            return (int)i;
    return -1;
}

static int find_var(struct grammar *g, const char *s, size_t n, int make)
{
    for (int i = 0; i < g->vars; i++)
        if (strlen(g->var[i]) == n && memcmp(g->var[i], s, n) == 0)
            return i;
    if (!make || n == 0 || n >= NAME || g->vars >= VARS)
        return -1;
    memcpy(g->var[g->vars], s, n);
    return g->vars++;
}

/* Parses the inside of {...}. The first use of a name creates the variable; use before assignment
 * is detected when sampling. */
static int parse_slot(struct grammar *g, struct item *it, const char *s, size_t n)
{
    const char *mark;
    *it = (struct item){.kind = ITEM_CALL, .var = -1};
    if (n && s[0] == '$') {
        it->kind = ITEM_COPY;
        mark = memchr(s, '.', n);
        if (mark && (mark + 2 != s + n || mark[1] < '1' || mark[1] >= '0' + FIELDS))
            return DS_EFORMAT;
        it->field = (int16_t)(mark ? mark[1] - '0' : 0);
        it->var = (int16_t)find_var(g, s + 1, (size_t)((mark ? mark : s + n) - s - 1), 1);
        return it->var < 0 ? DS_EFORMAT : 0;
    }
    mark = memchr(s, '=', n);
    if (mark) {
        it->var = (int16_t)find_var(g, s, (size_t)(mark - s), 1);
        if (it->var < 0)
            return DS_EFORMAT;
        n -= (size_t)(mark + 1 - s);
        s = mark + 1;
    }
    it->rule = (int16_t)find_rule(g, s, n);
    return it->rule < 0 ? DS_EFORMAT : 0;
}

static int add_item(struct grammar *g, const struct item *it, struct err *e)
{
    void *p = g->item;
    if (mem_grow(&p, &g->item_cap, g->items + 1, sizeof *g->item) < 0)
        return err_set(e, DS_EMEM, "out of memory for a grammar");
    g->item = p;
    g->item[g->items++] = *it;
    return 0;
}

static int parse_template(struct grammar *g, const char *s, size_t n, const char *rule,
                          struct err *e)
{
    struct item it;
    int rc = 0;
    for (size_t at = 0, end; rc >= 0 && at < n; at = end) {
        if (s[at] != '{') {
            const char *brace = memchr(s + at, '{', n - at);
            end = brace ? (size_t)(brace - s) : n;
            it =
                (struct item){.kind = ITEM_TEXT, .var = -1, .text = {s + at, (uint32_t)(end - at)}};
        } else {
            const char *brace = memchr(s + at, '}', n - at);
            end = brace ? (size_t)(brace - s) + 1 : n;
            if (!brace || parse_slot(g, &it, s + at + 1, end - at - 2) < 0)
                return err_set(e, DS_EFORMAT, "rule %s: unknown name \"%.*s\"", rule,
                               (int)(end - at), s + at);
        }
        rc = add_item(g, &it, e);
    }
    return rc;
}

static int parse_alt(struct grammar *g, struct alt *a, const char *text, const char *rule,
                     struct err *e)
{
    size_t n = strcspn(text, "|");
    a->first = (uint32_t)g->items;
    for (const char *p = text + n; *p == '|';) {
        size_t len = strcspn(++p, "|");
        if (++a->fields >= FIELDS)
            return err_set(e, DS_EFORMAT, "rule %s: too many fields", rule);
        a->field[a->fields] = (struct span){p, (uint32_t)len};
        p += len;
    }
    int rc = parse_template(g, text, n, rule, e);
    a->n = (uint32_t)g->items - a->first;
    return rc;
}

static int compile(struct grammar *g, struct err *e)
{
    size_t total = 0;
    for (size_t r = 0; r < g->rules; r++)
        total += g->rule[r].n;
    g->rule_first = mem_alloc(g->rules + 1, sizeof *g->rule_first);
    g->alt = mem_alloc(total + 1, sizeof *g->alt);
    if (!g->rule_first || !g->alt)
        return err_set(e, DS_EMEM, "out of memory for a grammar");
    for (size_t r = 0; r < g->rules; r++) {
        const struct grammar_rule *rule = &g->rule[r];
        double sum = 0;
        g->rule_first[r] = (uint32_t)g->alts;
        for (size_t i = 0; i < rule->n; i++)
            sum += rule->alt[i].weight;
        for (size_t i = 0; i < rule->n; i++) {
            struct alt *a = &g->alt[g->alts++];
            a->p = rule->alt[i].weight / sum;
            if (!(a->p > 0))
                return err_set(e, DS_EFORMAT, "rule %s: weights must be greater than 0",
                               rule->name);
            int rc = parse_alt(g, a, rule->alt[i].text, rule->name, e);
            if (rc < 0)
                return rc;
        }
    }
    g->rule_first[g->rules] = (uint32_t)g->alts;
    return 0;
}

int grammar_new(struct grammar **out, const struct grammar_rule *rule, size_t n, struct err *e)
{
    struct grammar *g = mem_alloc(1, sizeof *g);
    if (!g)
        return err_set(e, DS_EMEM, "out of memory for a grammar");
    g->rule = rule;
    g->rules = n;
    int rc = compile(g, e);
    if (rc < 0)
        grammar_free(g);
    else
        *out = g;
    return rc;
}

void grammar_free(struct grammar *g)
{
    if (!g)
        return;
    mem_free(g->rule_first);
    mem_free(g->alt);
    mem_free(g->item);
    mem_free(g);
}

/* --- one derivation
 * ------------------------------------------------------------------------------------- */

/* Copies refer to the text itself: all live derivations have written the same bytes. */
struct bound {
    uint32_t start, len;
    uint32_t alt; /* + 1; 0: not set */
};
struct derivation {
    double p;
    uint32_t offset; /* inside the current text or copy */
    int depth;
    struct {
        uint32_t alt, item;
    } frame[DEPTH];
    struct bound var[VARS];
};
enum step { STEP_BYTE, STEP_END, STEP_CHOICE, STEP_BAD };

static const struct item *present(const struct grammar *g, const struct derivation *d)
{
    return &g->item[g->alt[d->frame[d->depth - 1].alt].first + d->frame[d->depth - 1].item];
}

static int copied(const struct grammar *g, const struct derivation *d, const struct item *it,
                  const char *text, struct span *out)
{
    if (it->kind == ITEM_TEXT) {
        *out = it->text;
        return 1;
    }
    const struct bound *v = &d->var[it->var];
    if (!v->alt || it->field > g->alt[v->alt - 1].fields)
        return 0;
    else if (it->field)
        *out = g->alt[v->alt - 1].field[it->field];
    else
        *out = (struct span){text + v->start, v->len};
    return 1;
}

static void leave(const struct grammar *g, struct derivation *d, size_t pos)
{
    if (--d->depth == 0)
        return;
    const struct item *call = present(g, d);
    if (call->var >= 0)
        d->var[call->var].len = (uint32_t)pos - d->var[call->var].start;
    d->frame[d->depth - 1].item++;
}

static int enter(const struct grammar *g, struct derivation *d, uint32_t alt, size_t pos)
{
    if (d->depth >= DEPTH)
        return 0;
    if (d->depth > 0 && present(g, d)->var >= 0)
        d->var[present(g, d)->var] = (struct bound){.start = (uint32_t)pos, .alt = alt + 1};
    d->frame[d->depth].alt = alt;
    d->frame[d->depth++].item = 0;
    return 1;
}

/* Skips items that write nothing, up to the next byte, choice or the end. */
static enum step advance(const struct grammar *g, struct derivation *d, const char *text,
                         size_t pos, int *byte)
{
    while (d->depth > 0) {
        uint32_t *item = &d->frame[d->depth - 1].item;
        if (*item == g->alt[d->frame[d->depth - 1].alt].n) {
            leave(g, d, pos);
            continue;
        }
        const struct item *it = present(g, d);
        struct span from = {0};
        if (it->kind == ITEM_CALL)
            return STEP_CHOICE;
        if (!copied(g, d, it, text, &from))
            return STEP_BAD;
        if (d->offset < from.len) {
            *byte = (unsigned char)from.p[d->offset];
            return STEP_BYTE;
        }
        d->offset = 0;
        ++*item;
    }
    return STEP_END;
}

static int bad_table(struct err *e)
{
    return err_set(e, DS_EFORMAT, "the grammar copies an unset variable, or nests deeper than %d",
                   DEPTH);
}

static uint32_t draw(const struct grammar *g, int rule, struct rng *rng)
{
    double u = rng_uniform(rng);
    uint32_t a = g->rule_first[rule], last = g->rule_first[rule + 1] - 1;
    for (; a < last && u >= g->alt[a].p; a++)
        u -= g->alt[a].p;
    return a;
}

int grammar_sample(const struct grammar *g, struct rng *rng, struct str *out, struct err *e)
{
    struct derivation d = {0};
    struct str text = {0};
    int byte = 0, ok = enter(g, &d, draw(g, 0, rng), 0);
    enum step s = STEP_BYTE;
    while (ok && !text.failed &&
           (s = advance(g, &d, str_text(&text), text.len, &byte)) < STEP_BAD) {
        if (s == STEP_END)
            break;
        if (s == STEP_CHOICE) {
            ok = enter(g, &d, draw(g, present(g, &d)->rule, rng), text.len);
            continue;
        }
        str_add_char(&text, (char)byte);
        d.offset++;
    }
    int rc = !ok || s == STEP_BAD ? bad_table(e) : 0;
    if (rc >= 0)
        str_add_bytes(out, str_text(&text), text.len);
    if (rc >= 0 && (text.failed || out->failed))
        rc = err_set(e, DS_EMEM, "out of memory for a text");
    str_release(&text);
    return rc;
}

/* --- all derivations at once
 * ------------------------------------------------------------------------------ */

struct filter {
    const struct grammar *g;
    struct derivation *d; /* live ones, each about to write `byte` */
    int *byte;
    size_t n, cap, byte_cap;
    struct derivation *stack;
    size_t stack_cap;
};

static int reserve(struct filter *f, size_t ready, size_t waiting, struct err *e)
{
    void *d = f->d, *b = f->byte, *s = f->stack;
    if (ready > HYPOTHESES || waiting > HYPOTHESES)
        return err_set(e, DS_ERANGE,
                       "the grammar is too ambiguous: more than %d derivations of one text",
                       HYPOTHESES);
    int rc = mem_grow(&d, &f->cap, ready, sizeof *f->d);
    f->d = d;
    rc |= mem_grow(&b, &f->byte_cap, ready, sizeof *f->byte);
    f->byte = b;
    rc |= mem_grow(&s, &f->stack_cap, waiting, sizeof *f->stack);
    f->stack = s;
    return rc ? err_set(e, DS_EMEM, "out of memory for the derivations of a text") : 0;
}

/* Splits one derivation at its choices until every part is ready for a byte or the end. */
static int expand(struct filter *f, const struct derivation *from, const char *text, size_t pos,
                  struct err *e)
{
    size_t waiting = 1;
    int rc = reserve(f, f->n + 1, 1, e);
    if (rc < 0)
        return rc;
    f->stack[0] = *from;
    while (waiting > 0) {
        struct derivation *d = &f->stack[waiting - 1];
        int byte = END;
        enum step s = advance(f->g, d, text, pos, &byte);
        if (s == STEP_BAD)
            return bad_table(e);
        if (s != STEP_CHOICE) {
            if ((rc = reserve(f, f->n + 1, 1, e)) < 0)
                return rc;
            f->byte[f->n] = byte;
            f->d[f->n++] = f->stack[--waiting];
            continue;
        }
        int rule = present(f->g, d)->rule;
        uint32_t a = f->g->rule_first[rule], end = f->g->rule_first[rule + 1];
        struct derivation parent = *d;
        if ((rc = reserve(f, f->n + 1, waiting + (end - a), e)) < 0)
            return rc;
        waiting--;
        for (; a < end; a++) {
            f->stack[waiting] = parent;
            f->stack[waiting].p *= f->g->alt[a].p;
            if (!enter(f->g, &f->stack[waiting++], a, pos))
                return bad_table(e);
        }
    }
    return 0;
}

/* Entropy of the next symbol, and the probability of `symbol`. */
static double next_symbol(const struct filter *f, int symbol, double *p)
{
    double mass[SYMBOLS] = {0}, total = 0, h = 0;
    if (f->n == 1) {
        *p = f->byte[0] == symbol;
        return 0;
    }
    for (size_t i = 0; i < f->n; i++) {
        mass[f->byte[i]] += f->d[i].p;
        total += f->d[i].p;
    }
    for (int s = 0; s < SYMBOLS; s++)
        if (mass[s] > 0 && mass[s] < total)
            h -= mass[s] / total * log(mass[s] / total);
    *p = mass[symbol] / total;
    return h;
}

/* Keeps the derivations that write `symbol`, advances them past it, and renormalises p. */
static int keep(struct filter *f, int symbol, const char *text, size_t pos, struct err *e)
{
    double total = 0;
    size_t n = 0;
    for (size_t i = 0; i < f->n; i++)
        if (f->byte[i] == symbol) {
            total += f->d[i].p;
            f->d[n++] = f->d[i];
        }
    if (n == 1) { /* the usual case: nothing to move but the offset */
        f->n = 1;
        f->d[0].p = 1;
        f->d[0].offset++;
        enum step s = advance(f->g, &f->d[0], text, pos + 1, &f->byte[0]);
        if (s == STEP_BYTE)
            return 0;
    }
    struct derivation *alive = mem_dup(f->d, n * sizeof *alive);
    if (!alive)
        return err_set(e, DS_EMEM, "out of memory for the derivations of a text");
    int rc = 0;
    f->n = 0;
    for (size_t i = 0; rc >= 0 && i < n; i++) {
        alive[i].p = n == 1 ? 1 : alive[i].p / total;
        alive[i].offset += n > 1;
        rc = expand(f, &alive[i], text, pos + 1, e);
    }
    mem_free(alive);
    return rc;
}

static int measure(struct filter *f, const char *s, size_t n, float *entropy, float *surprisal,
                   struct err *e)
{
    int rc = 0;
    for (uint32_t a = f->g->rule_first[0]; rc >= 0 && a < f->g->rule_first[1]; a++) {
        struct derivation d = {.p = f->g->alt[a].p};
        rc = enter(f->g, &d, a, 0) ? expand(f, &d, s, 0, e) : bad_table(e);
    }
    for (size_t i = 0; rc >= 0 && i <= n; i++) {
        int symbol = i < n ? (unsigned char)s[i] : END;
        double p;
        double h = next_symbol(f, symbol, &p);
        if (!(p > 0))
            return err_set(e, DS_EFORMAT, "byte %zu of this text does not match the grammar", i);
        entropy[i] = (float)h;
        surprisal[i] = p < 1 ? (float)-log(p) : 0;
        if (i < n)
            rc = keep(f, symbol, s, i, e);
    }
    return rc;
}

int grammar_measure(const struct grammar *g, const char *s, size_t n, float *entropy,
                    float *surprisal, struct err *e)
{
    struct filter f = {.g = g};
    int rc = measure(&f, s, n, entropy, surprisal, e);
    mem_free(f.d);
    mem_free(f.byte);
    mem_free(f.stack);
    return rc;
}
