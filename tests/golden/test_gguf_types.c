/* Blocks of every quantised type have, to the bit, the values that the Python package `gguf` gives
 * them (gguf_types.py): those read from a file, and those that GEMMs use. */
#include "engine/quant.h"
#include "io/gguf.h"
#include "t.h"

enum { ROWS = 3, COLUMNS = 256, ITEMS = ROWS * COLUMNS };

static const char *lower(const char *name)
{
    static char out[32];
    size_t i = 0;
    for (; name[i] && i + 1 < sizeof out; i++)
        out[i] = (char)(name[i] >= 'A' && name[i] <= 'Z' ? name[i] - 'A' + 'a' : name[i]);
    out[i] = '\0';
    return out;
}

static void same(const char *name, const char *what, const real *have, const real *want)
{
    for (int i = 0; i < ITEMS; i++)
        t_truef(memcmp(have + i, want + i, sizeof *have) == 0,
                "%s %s: value %d is %.9g, expected %.9g", name, what, i, (double)have[i],
                (double)want[i]);
}

static void check(const struct gguf *g, enum quant_kind kind)
{
    static real want[ITEMS], have[ITEMS];
    struct err e = {0};
    struct quant *q = NULL;
    const struct gguf_tensor *t = NULL;
    char name[64];
    for (size_t i = 0; i < gguf_count(g) && !t; i++)
        if (strcmp(lower(gguf_at(g, i)->name), quant_name[kind]) == 0)
            t = gguf_at(g, i);
    t_truef(t != NULL, "no blocks of %s", quant_name[kind]);
    t_true(t->rank == 2 && t->shape[0] == ROWS && t->shape[1] == COLUMNS);
    t_str(t->type_name, t->name);
    snprintf(name, sizeof name, "%s.values", t->name);
    t_ok(gguf_read(gguf_find(g, name), want, ITEMS, &e), &e);
    t_ok(gguf_read(t, have, ITEMS, &e), &e);
    same(t->name, "in the file", have, want);
    t_ok(quant_from_blocks(&q, kind, t->data, ROWS, COLUMNS, &e), &e);
    for (int r = 0; r < ROWS; r++)
        quant_row(have + (size_t)r * COLUMNS, q, r);
    same(t->name, "in a panel", have, want);
    quant_free(q);
}

T(every_quantised_type_has_the_values_of_the_reference_package)
{
    struct gguf *g = NULL;
    struct err e = {0};
    t_ok(gguf_open(&g, "tests/golden/gguf/types.gguf", &e), &e);
    t_eq(gguf_count(g), 2 * (QUANT_KINDS - 1));
    for (int kind = 1; kind < QUANT_KINDS; kind++)
        check(g, (enum quant_kind)kind);
    gguf_close(g);
}
