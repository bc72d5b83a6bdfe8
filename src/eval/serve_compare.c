/* Two models on one text: the probes of both, and the divergence of their predictions. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "serve_impl.h"

/* KL(p || q) in nats of the softmax of two rows of logits. */
static double kl_of(const real *p, const real *q, int V)
{
    double max_p = (double)-INFINITY, max_q = max_p, sum_p = 0, sum_q = 0, kl = 0;
    for (int v = 0; v < V; v++) {
        max_p = (double)p[v] > max_p ? (double)p[v] : max_p;
        max_q = (double)q[v] > max_q ? (double)q[v] : max_q;
    }
    for (int v = 0; v < V; v++) {
        sum_p += exp((double)p[v] - max_p);
        sum_q += exp((double)q[v] - max_q);
    }
    double all_p = max_p + log(sum_p), all_q = max_q + log(sum_q);
    for (int v = 0; v < V; v++) {
        double log_p = (double)p[v] - all_p;
        if (log_p > -700) /* else its share is 0 in double precision */
            kl += exp(log_p) * (log_p - ((double)q[v] - all_q));
    }
    return kl > 0 ? kl : 0; /* rounding */
}

struct pair {
    struct serve *s;
    real *p, *q; /* (V) */
    float *kl;   /* (n) */
};

/* Both models' last passes are of the same ids. */
static void add_kl(void *ctx, struct record *rec)
{
    struct pair *x = ctx;
    struct model *a = x->s->subject.model, *b = x->s->other.model;
    x->kl[0] = NAN;
    for (int t = 1; t < a->R; t++) {
        model_logits(a, t - 1, x->p);
        model_logits(b, t - 1, x->q);
        x->kl[t] = (float)kl_of(x->p, x->q, (int)a->config.vocab);
    }
    record_f32s(rec, "kl", x->kl, (size_t)a->R);
}

static int open_other(struct serve *s, const struct json_node *q, struct err *e)
{
    size_t n;
    const char *path = json_str(json_get(q, "other"), &n);
    if (!path || n == 0)
        return err_set(e, DS_EUSAGE, "compare: expected \"other\", the second model");
    if (s->other.model && strcmp(path, s->other_path) == 0)
        return 0;
    subject_close(&s->other);
    int rc = subject_open(&s->other, path, NULL, e);
    if (rc == 0)
        str_copy(s->other_path, sizeof s->other_path, path);
    return rc;
}

static int answer_side(struct serve *s, const struct subject *of, struct record *probe,
                       struct err *e)
{
    struct record *head = record_new();
    if (!head)
        return err_set(e, DS_EMEM, "out of memory for the comparison");
    subject_head(of, head, s->version);
    int rc = serve_answer(s, head, e);
    record_free(head);
    return rc < 0 ? rc : serve_answer(s, probe, e);
}

/* The probe of the other model first: its pass stays, and add_kl reads it during ours. */
static int answer_pair(struct serve *s, const struct ids *ids, int lens_k, struct err *e)
{
    const struct model *m = s->subject.model;
    size_t V = (size_t)m->config.vocab;
    struct serve_pass mine = {.subject = &s->subject, .ids = &s->ids, .lens_k = lens_k},
                      theirs = {.subject = &s->other, .ids = ids, .lens_k = lens_k};
    struct pair x = {s, mem_alloc(V, sizeof *x.p), mem_alloc(V, sizeof *x.q),
                     mem_alloc(s->ids.n, sizeof *x.kl)};
    struct record *other = record_new();
    int rc =
        other && x.p && x.q && x.kl ? 0 : err_set(e, DS_EMEM, "out of memory for the comparison");
    if (tokenizer_hash(s->subject.tokenizer) == tokenizer_hash(s->other.tokenizer) &&
        s->other.model->config.vocab == m->config.vocab && ids->n == s->ids.n &&
        memcmp(ids->v, s->ids.v, ids->n * sizeof *ids->v) == 0) {
        mine.more = add_kl;
        mine.ctx = &x;
    }
    if (rc == 0)
        rc = serve_trace(&theirs, other, e);
    if (rc == 0)
        rc = serve_trace(&mine, s->rec, e);
    if (rc == 0)
        rc = answer_side(s, &s->subject, s->rec, e);
    if (rc == 0)
        rc = answer_side(s, &s->other, other, e);
    record_free(other);
    mem_free(x.p);
    mem_free(x.q);
    mem_free(x.kl);
    return rc;
}

int serve_compare(struct serve *s, const struct json_node *q, struct err *e)
{
    struct ids ids = {0};
    size_t n = 0;
    const char *text = json_str(json_get(q, "text"), &n);
    int64_t lens = json_int(json_get(q, "lens"), 0);
    if (!text || lens < 0 || lens > 16)
        return err_set(e, DS_EUSAGE, "compare: expected \"text\", and \"lens\" 0 to 16");
    int rc = open_other(s, q, e);
    if (rc == 0)
        rc = subject_encode(&s->other, text, n, (size_t)s->other.model->config.max_seq, &ids, e);
    if (rc == 0)
        rc = serve_set_text(s, q, e);
    if (rc == 0)
        rc = answer_pair(s, &ids, (int)lens, e);
    ids_release(&ids);
    return rc;
}
