/* piqa: choose which of two solutions reaches a goal (Bisk et al. 2020). */
#include "eval/task_impl.h"

static int add_row(struct task_doc *d, const struct json_node *row, const char *where,
                   struct err *e)
{
    const char *goal, *sol;
    struct str query = {0};
    int64_t label = task_int(row, "label");
    int rc = task_text(&goal, row, "goal", where, e);
    for (int k = 0; k < 2 && rc == 0; k++) {
        rc = task_text(&sol, row, k ? "sol2" : "sol1", where, e);
        if (rc == 0)
            rc = task_set(&d->choice[k], sol, e);
    }
    if (rc == 0 && label != 0 && label != 1)
        rc = err_set(e, DS_EFORMAT, "%s: \"label\": must be 0 or 1", where);
    if (rc < 0)
        return rc;
    d->choices = 2;
    d->gold = (int)label;
    str_addf(&query, "Question: %s\nAnswer:", goal);
    rc = task_take(&d->query, &query, e);
    return rc == 0 ? task_set(&d->target, d->choice[d->gold], e) : rc;
}

static int read_piqa(struct task_parts *out, const struct task *t, const struct task_env *env,
                     struct err *e)
{
    static const char *const asked[] = {"validation.jsonl", "valid.jsonl", NULL};
    static const char *const shots[] = {"train.jsonl", NULL};
    return task_read_splits(out, t, env, asked, shots, add_row, e);
}

const struct task task_piqa = {
    .name = "piqa",
    .summary = "which of two solutions reaches a goal",
    .source = "validation.jsonl, and train.jsonl for shots: the rows of baber/piqa",
    .output_type = "multiple_choice",
    .kind = TASK_CHOICE,
    .draws_spare = 1,
    .version = 1,
    .metrics = task_choice_metrics,
    .n_metrics = 3,
    .read = read_piqa,
    .judge = task_judge_choices,
};
