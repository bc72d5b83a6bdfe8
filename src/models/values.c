/* Values of a parameter, from memory or from its file. */
#include "models/values.h"

#include <string.h>

void model_values(const struct model *m, int i, size_t row, size_t n, real *out)
{
    const struct param *p = &m->params.p[i];
    size_t columns = p->rank > 1 ? (size_t)p->shape[1] : 1;
    if (p->elsewhere)
        stored_rows(&m->stored.v[i], p, row, n, out);
    else
        memcpy(out, p->value + row * columns, n * columns * sizeof *out);
}
