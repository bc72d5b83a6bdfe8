/* arc_easy and arc_challenge: science exam questions (Clark et al. 2018).  Rows have "choices" as a
 * list with "gold", or with "answerKey" {"text": [...], "label": [...]}, or as first published
 * "question": {"stem", "choices": [{"text", "label"}]}. */
#include <string.h>

#include "eval/task_impl.h"

/* Choice k and its label in any of the formats; NULL = none. */
static const char *choice_at(const struct json_node *choices, size_t k, const char **label)
{
    int is_split = json_kind_of(choices) == JSON_KIND_OBJECT;
    const struct json_node *x = json_at(is_split ? json_get(choices, "text") : choices, k);
    int is_object = json_kind_of(x) == JSON_KIND_OBJECT;
    *label = json_str(is_object  ? json_get(x, "label")
                      : is_split ? json_at(json_get(choices, "label"), k)
                                 : NULL,
                      NULL);
    return json_str(is_object ? json_get(x, "text") : x, NULL);
}

static int add_choices(struct task_doc *d, const struct json_node *row,
                       const struct json_node *choices, const char *where, struct err *e)
{
    const char *key = json_str(json_get(row, "answerKey"), NULL), *label;
    int64_t gold = task_int(row, "gold");
    const struct json_node *list =
        json_kind_of(choices) == JSON_KIND_OBJECT ? json_get(choices, "text") : choices;
    size_t n = json_kind_of(list) == JSON_KIND_ARRAY ? json_len(list) : 0;
    int rc = n < 2 || n > TASK_CHOICES_MAX
                 ? err_set(e, DS_EFORMAT, "%s: %zu \"choices\", expected 2 to %d", where, n,
                           TASK_CHOICES_MAX)
                 : 0;
    for (size_t k = 0; k < n && rc == 0; k++) {
        const char *choice = choice_at(choices, k, &label);
        rc = choice ? task_set(&d->choice[k], choice, e)
                    : err_set(e, DS_EFORMAT, "%s: choice %zu: must be a string", where, k);
        if (key && label && strcmp(label, key) == 0)
            gold = (int64_t)k;
    }
    if (rc == 0 && (gold < 0 || gold >= (int64_t)n))
        rc = err_set(e, DS_EFORMAT, "%s: missing \"gold\" (or \"answerKey\") among %zu choices",
                     where, n);
    d->choices = (int)n;
    d->gold = (int)gold;
    return rc;
}

static int add_row(struct task_doc *d, const struct json_node *row, const char *where,
                   struct err *e)
{
    const char *question;
    struct str query = {0};
    const struct json_node *asked = json_get(row, "question"), *choices = json_get(row, "choices");
    int rc;
    if (json_kind_of(asked) == JSON_KIND_OBJECT) {
        choices = json_get(asked, "choices");
        rc = task_text(&question, asked, "stem", where, e);
    } else
        rc = task_text(&question, row, "question", where, e);
    if (rc == 0)
        rc = add_choices(d, row, choices, where, e);
    if (rc < 0)
        return rc;
    str_addf(&query, "Question: %s\nAnswer:", question);
    rc = task_take(&d->query, &query, e);
    return rc == 0 ? task_set(&d->target, d->choice[d->gold], e) : rc;
}

/* A directory may hold the files of both sets. */
static int read_arc(struct task_parts *out, const struct task *t, const struct task_env *env,
                    struct err *e)
{
    static const char *const asked[2][3] = {{"test.jsonl", "ARC-Challenge-Test.jsonl"},
                                            {"test.jsonl", "ARC-Easy-Test.jsonl"}};
    static const char *const shots[2][3] = {{"train.jsonl", "ARC-Challenge-Train.jsonl"},
                                            {"train.jsonl", "ARC-Easy-Train.jsonl"}};
    int is_easy = strcmp(t->name, "arc_easy") == 0;
    return task_read_splits(out, t, env, asked[is_easy], shots[is_easy], add_row, e);
}

#define ARC(what, help)                                                                            \
    {                                                                                              \
        .name = what, .summary = help,                                                             \
        .source = "test.jsonl, and train.jsonl for shots: the rows of allenai/ai2_arc, or the "    \
                  "files ARC-...-Test.jsonl of ARC-V1",                                            \
        .output_type = "multiple_choice", .kind = TASK_CHOICE, .version = 1,                       \
        .metrics = task_choice_metrics, .n_metrics = 3, .read = read_arc,                          \
        .judge = task_judge_choices,                                                               \
    }
const struct task task_arc_challenge =
    ARC("arc_challenge", "science exam questions, challenge set");
const struct task task_arc_easy = ARC("arc_easy", "science exam questions, easy set");
