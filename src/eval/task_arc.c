/* arc_easy and arc_challenge: school science (Clark et al. 2018).  Rows have "choices" as a list with "gold", or as published
 * {"text": [...], "label": [...]} with "answerKey". */
#include <string.h>

#include "eval/task_impl.h"

static int gold_of(const struct json_node *row, const struct json_node *labels, int choices,
                   const char *where, struct err *e)
{
    const char *key = json_str(json_get(row, "answerKey"), NULL);
    int64_t gold = json_int(json_get(row, "gold"), -1);
    for (int k = 0; key && k < choices; k++) {
        const char *label = json_str(json_at(labels, (size_t)k), NULL);
        if (label && strcmp(label, key) == 0)
            gold = k;
    }
    if (gold < 0 || gold >= choices)
        return err_set(e, DS_EFORMAT, "%s: no \"gold\" (or \"answerKey\") among %d choices", where,
                       choices);
    return (int)gold;
}

static int add_row(struct task_doc *d, const struct json_node *row, const char *where,
                   struct err *e)
{
    const char *question;
    struct str query = {0};
    const struct json_node *choices = json_get(row, "choices");
    const struct json_node *text =
        json_kind_of(choices) == JSON_KIND_OBJECT ? json_get(choices, "text") : choices;
    size_t n = json_kind_of(text) == JSON_KIND_ARRAY ? json_len(text) : 0;
    int rc = task_text(&question, row, "question", where, e);
    if (rc == 0 && (n < 2 || n > TASK_CHOICES_MAX))
        rc = err_set(e, DS_EFORMAT, "%s: %zu \"choices\", not 2 to %d", where, n, TASK_CHOICES_MAX);
    for (size_t k = 0; k < n && rc == 0; k++) {
        const char *choice = json_str(json_at(text, k), NULL);
        rc = choice ? task_set(&d->choice[k], choice, e)
                    : err_set(e, DS_EFORMAT, "%s: choice %zu is not a text", where, k);
    }
    if (rc < 0)
        return rc;
    d->choices = (int)n;
    if ((rc = gold_of(row, json_get(choices, "label"), (int)n, where, e)) < 0)
        return rc;
    d->gold = rc;
    str_addf(&query, "Question: %s\nAnswer:", question);
    rc = task_take(&d->query, &query, e);
    return rc == 0 ? task_set(&d->target, d->choice[d->gold], e) : rc;
}

static int read_arc(struct task_parts *out, const struct task *t, const struct task_env *env,
                    struct err *e)
{
    static const char *const asked[] = {"test.jsonl", NULL}, *const shots[] = {"train.jsonl", NULL};
    return task_read_splits(out, t, env, asked, shots, add_row, e);
}

#define ARC(what, help)                                                                            \
    {                                                                                              \
        .name = what, .summary = help, .output_type = "multiple_choice", .kind = TASK_CHOICE,      \
        .version = 1, .metrics = task_choice_metrics, .n_metrics = 3, .read = read_arc,            \
        .judge = task_judge_choices,                                                               \
    }
const struct task task_arc_challenge = ARC("arc_challenge", "school science, the hard questions");
const struct task task_arc_easy = ARC("arc_easy", "school science, the easy questions");
