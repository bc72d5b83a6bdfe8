/* gsm8k: word problems of school arithmetic, solved in free text (Cobbe et al. 2021). */
#include <string.h>

#include "eval/task_impl.h"

static int add_row(struct task_doc *d, const struct json_node *row, const char *where,
                   struct err *e)
{
    const char *question, *answer;
    struct str query = {0};
    int rc = task_text(&question, row, "question", where, e);
    if (rc == 0)
        rc = task_text(&answer, row, "answer", where, e);
    if (rc < 0)
        return rc;
    str_addf(&query, "Question: %s\nAnswer:", question);
    rc = task_take(&d->query, &query, e);
    return rc == 0 ? task_set(&d->target, answer, e) : rc;
}

static int read_gsm8k(struct task_parts *out, const struct task *t, const struct task_env *env,
                      struct err *e)
{
    static const char *const asked[] = {"test.jsonl", NULL}, *const shots[] = {"train.jsonl", NULL};
    return task_read_splits(out, t, env, asked, shots, add_row, e);
}

static size_t span(const char *s, const char *of)
{
    return strspn(s, of);
}

/* The first of  #### (\-?[0-9\.\,]+) */
static void strict(struct str *out, const char *text)
{
    for (const char *p = text; (p = strstr(p, "#### ")) != NULL; p++) {
        const char *number = p + 5;
        size_t sign = *number == '-', n = span(number + sign, "0123456789.,");
        if (n > 0) {
            str_add_bytes(out, number, sign + n);
            return;
        }
    }
    str_add(out, "[invalid]");
}

/* The last of  (-?[$0-9.,]{2,})|(-?[0-9]+) */
static void flexible(struct str *out, const char *text)
{
    const char *found = NULL;
    size_t length = 0;
    for (const char *p = text; *p;) {
        size_t sign = *p == '-', wide = span(p + sign, "$0123456789.,"),
               digits = span(p + sign, "0123456789"), n = wide >= 2 ? wide : digits;
        if (n == 0) {
            p++;
            continue;
        }
        found = p;
        length = sign + n;
        p += length;
    }
    if (found)
        str_add_bytes(out, found, length);
    else
        str_add(out, "[invalid]");
}

/* Without commas and dollars, without all up to the last "#### ", without a last full stop, in lower case. */
static void normalise(struct str *s)
{
    struct str out = {0};
    const char *p = str_text(s), *hit;
    task_replace(s, ",", "");
    task_replace(s, "$", "");
    for (p = str_text(s); (hit = strstr(p, "#### ")) != NULL;)
        p = hit + 5;
    size_t n = strlen(p);
    size_t stop =
        n > 0 && p[n - 1] == '\n' ? n - 1 : n; /* Python's $ also stands before a last newline */
    for (size_t i = 0; i < n; i++)
        if (!(i + 1 == stop && p[i] == '.'))
            str_add_char(&out, (char)(p[i] >= 'A' && p[i] <= 'Z' ? p[i] + 32 : p[i]));
    out.failed |= s->failed;
    str_release(s);
    *s = out;
}

static void judge(const struct task_doc *d, const struct task_answer *a,
                  struct task_value out[TASK_METRICS_MAX])
{
    void (*const filter[2])(struct str *, const char *) = {strict, flexible};
    struct str want = {0};
    str_add(&want, d->target);
    normalise(&want);
    for (int k = 0; k < 2; k++) {
        struct str got = {0};
        filter[k](&got, a->text);
        normalise(&got);
        out[k] = (struct task_value){strcmp(str_text(&got), str_text(&want)) == 0, 1};
        str_release(&got);
    }
    str_release(&want);
}

static const char *const until[] = {"Question:", "</s>", "<|im_end|>", NULL};
static const struct task_metric metrics[] = {{"exact_match", "strict-match", TASK_MEAN, 1},
                                             {"exact_match", "flexible-extract", TASK_MEAN, 1}};
const struct task task_gsm8k = {
    .name = "gsm8k",
    .summary = "school arithmetic in words, solved in free text",
    .output_type = "generate_until",
    .kind = TASK_GENERATE,
    .shots = 5,
    .version = 3,
    .until = until,
    .metrics = metrics,
    .n_metrics = 2,
    .read = read_gsm8k,
    .judge = judge,
};
