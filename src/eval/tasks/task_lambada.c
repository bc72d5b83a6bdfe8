/* lambada: predict the last word of a passage (Paperno et al. 2016, OpenAI's version). */
#include <string.h>

#include "eval/task_impl.h"

static int add_row(struct task_doc *d, const struct json_node *row, const char *where,
                   struct err *e)
{
    const char *text;
    struct str query = {0};
    int rc = task_text(&text, row, "text", where, e);
    if (rc < 0)
        return rc;
    if (!text[0])
        return err_set(e, DS_EFORMAT, "%s: empty \"text\"", where);
    const char *blank = strrchr(text, ' '), *last = blank ? blank + 1 : text;
    str_add_bytes(&query, text, (size_t)(blank ? blank - text : 0));
    d->choices = 1;
    rc = task_take(&d->query, &query, e);
    if (rc == 0)
        rc = task_set(&d->choice[0], last, e);
    return rc == 0 ? task_set(&d->target, last, e) : rc;
}

static int read_lambada(struct task_parts *out, const struct task *t, const struct task_env *env,
                        struct err *e)
{
    static const char *const asked[] = {"test.jsonl", "lambada_test.jsonl", "lambada_test_en.jsonl",
                                        NULL};
    return task_read_splits(out, t, env, asked, NULL, add_row, e);
}

static int judge(const struct task_doc *d, const struct task_answer *a,
                 struct task_value out[TASK_METRICS_MAX])
{
    (void)d;
    out[0] = (struct task_value){a->ll[0], 1};
    out[1] = (struct task_value){a->greedy[0], 1};
    return 0;
}

static const struct task_metric metrics[] = {{"perplexity", "none", TASK_PERPLEXITY, 0},
                                             {"acc", "none", TASK_MEAN, 1}};
const struct task task_lambada = {
    .name = "lambada_openai",
    .summary = "the last word of a passage",
    .source = "test.jsonl (lambada_test_en.jsonl): the rows of EleutherAI/lambada_openai",
    .output_type = "loglikelihood",
    .kind = TASK_CHOICE,
    .version = 1,
    .metrics = metrics,
    .n_metrics = 2,
    .read = read_lambada,
    .judge = judge,
};
