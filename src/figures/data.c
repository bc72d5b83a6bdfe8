/* Access to the values of a figure: reports what is missing and hashes every value that is used. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "figures/plot.h"

void data_hash(struct sheet *s, const char *what, const void *p, size_t n)
{
    sha256_add(&s->data, what, strlen(what) + 1);
    sha256_add(&s->data, p, n);
}

static const struct run_eval *final_eval(const struct sheet *s, int run)
{
    const struct runview *v = s->run[run].view;
    for (size_t i = v->n_evals; i-- > 0;)
        if (v->eval[i].task && strcmp(v->eval[i].task, "final") == 0)
            return &v->eval[i];
    return NULL;
}

static const struct vector *eval_value(const struct run_eval *r, const char *name)
{
    return r ? run_eval_value(r, name) : NULL;
}

int data_has_eval(const struct sheet *s, int run, const char *scalar)
{
    const struct vector *v = eval_value(final_eval(s, run), scalar);
    return v && v->n == 1 && isfinite(v->v[0]);
}

int data_has_vector(const struct sheet *s, int run, const char *name)
{
    const struct vector *v = eval_value(final_eval(s, run), name);
    return v && v->n >= 1;
}

int data_eval(struct sheet *s, int run, const char *scalar, double *out, struct err *e)
{
    const struct run_eval *r = final_eval(s, run);
    const struct vector *v = eval_value(r, scalar);
    if (!r)
        return sheet_fail(s, run, e, "no record 'eval' of task 'final' (needs its scalar '%s')",
                          scalar);
    if (!v || v->n != 1)
        return sheet_fail(s, run, e, "record 'eval' of task 'final' has no scalar '%s'", scalar);
    if (!isfinite(v->v[0]))
        return sheet_fail(s, run, e, "record 'eval' of task 'final': '%s' is not a finite number",
                          scalar);
    *out = (double)v->v[0];
    data_hash(s, scalar, out, sizeof *out);
    return 0;
}

int data_eval_vector(struct sheet *s, int run, const char *name, const struct vector **out,
                     struct err *e)
{
    const struct run_eval *r = final_eval(s, run);
    const struct vector *v = eval_value(r, name);
    if (!r)
        return sheet_fail(s, run, e, "no record 'eval' of task 'final' (needs its vector '%s')",
                          name);
    if (!v || v->n < 1)
        return sheet_fail(s, run, e, "record 'eval' of task 'final' has no vector '%s'", name);
    *out = v;
    data_hash(s, name, v->v, (size_t)v->n * sizeof *v->v);
    return 0;
}

int data_column(struct sheet *s, int run, const char *name, const struct vector **out,
                struct err *e)
{
    const struct run_sample *sample = runview_sample(s->run[run].view, "val");
    const struct vector *v = sample ? sample_column(sample, name) : NULL;
    if (!sample)
        return sheet_fail(s, run, e, "no record 'sample' named 'val' (needs its column '%s')",
                          name);
    if (!v)
        return sheet_fail(s, run, e, "record 'sample' named 'val' has no column '%s'", name);
    if (v->n < 1)
        return sheet_fail(s, run, e, "record 'sample' named 'val': column '%s' is empty", name);
    *out = v;
    data_hash(s, name, v->v, (size_t)v->n * sizeof *v->v);
    return 0;
}

int data_layers(struct sheet *s, int run, int *out, struct err *e)
{
    int layers = s->run[run].view->layers;
    if (layers < 1)
        return sheet_fail(s, run, e, "record 'head' has no 'layers'");
    *out = layers;
    data_hash(s, "layers", out, sizeof *out);
    return 0;
}

/* The evaluation counts dense FLOPs over the positions it evaluated, the head over the training
 * context: the two differ, so all runs of a figure use the same one. */
int data_flops_dense(struct sheet *s, int run, double *out, struct err *e)
{
    double v = s->run[run].view->flops_dense;
    int all = 1;
    for (int i = 0; i < s->runs; i++)
        all &= data_has_eval(s, i, "flops_dense_per_token");
    if (all)
        return data_eval(s, run, "flops_dense_per_token", out, e);
    if (!(v > 0) || !isfinite(v))
        return sheet_fail(s, run, e, "record 'head' has no 'flops_dense'");
    *out = v;
    data_hash(s, "flops_dense", out, sizeof *out);
    return 0;
}

int64_t data_last_step(const struct sheet *s)
{
    return s->opt.step >= 0 ? s->opt.step : INT64_MAX;
}

void data_step_words(const struct sheet *s, char *out, size_t size)
{
    out[0] = '\0';
    if (s->opt.step >= 0)
        snprintf(out, size, " up to step %lld", (long long)s->opt.step);
}

const struct probe *data_probe_of(const struct sheet *s, int run, int index)
{
    return runview_probe_at(s->run[run].view, index, data_last_step(s));
}

const struct probe *data_probe(const struct sheet *s, int run, int i)
{
    const struct runview *v = s->run[run].view;
    int last = -1;
    for (int k = 0;; k++) {
        int next = INT_MAX;
        for (size_t p = 0; p < v->n_probes; p++)
            if (v->probe[p]->index > last && v->probe[p]->index < next &&
                v->probe[p]->step <= data_last_step(s))
                next = v->probe[p]->index;
        if (next == INT_MAX)
            return NULL;
        if (k == i)
            return data_probe_of(s, run, next);
        last = next;
    }
}

int data_exit_layer(const struct matrix *exited, int token)
{
    for (int l = 0; l < exited->rows; l++)
        if ((double)exited->v[l * exited->cols + token] >= 0.5)
            return l;
    return -1;
}

double data_eval_pair(struct sheet *s, int run, const char *scalar, const char *with, double *other)
{
    const struct runview *v = s->run[run].view;
    const struct run_eval *r = final_eval(s, run);
    for (size_t i = v->n_evals + 1; i-- > 0;) {
        const struct run_eval *at = i == v->n_evals ? r : &v->eval[i];
        const struct vector *a = eval_value(at, scalar), *b = eval_value(at, with);
        if (!a || !b || a->n != 1 || b->n != 1 || !isfinite(a->v[0]) || !isfinite(b->v[0]))
            continue;
        double x = (double)a->v[0];
        *other = (double)b->v[0];
        data_hash(s, scalar, &x, sizeof x);
        data_hash(s, with, other, sizeof *other);
        return x;
    }
    return (double)NAN;
}
