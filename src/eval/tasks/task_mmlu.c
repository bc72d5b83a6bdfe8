/* mmlu: multiple choice in 57 subjects, answered by a letter (Hendrycks et al. 2021). */
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "base/fs.h"
#include "base/mem.h"
#include "eval/task_impl.h"

enum { CHOICES = 4, COLUMNS = CHOICES + 2 };

static const struct subject_row {
    const char *name, *group;
} subjects[] = {
    // clang-format off
    {"abstract_algebra", "mmlu_stem"},
    {"anatomy", "mmlu_stem"},
    {"astronomy", "mmlu_stem"},
    {"business_ethics", "mmlu_other"},
    {"clinical_knowledge", "mmlu_other"},
    {"college_biology", "mmlu_stem"},
    {"college_chemistry", "mmlu_stem"},
    {"college_computer_science", "mmlu_stem"},
    {"college_mathematics", "mmlu_stem"},
    {"college_medicine", "mmlu_other"},
    {"college_physics", "mmlu_stem"},
    {"computer_security", "mmlu_stem"},
    {"conceptual_physics", "mmlu_stem"},
    {"econometrics", "mmlu_social_sciences"},
    {"electrical_engineering", "mmlu_stem"},
    {"elementary_mathematics", "mmlu_stem"},
    {"formal_logic", "mmlu_humanities"},
    {"global_facts", "mmlu_other"},
    {"high_school_biology", "mmlu_stem"},
    {"high_school_chemistry", "mmlu_stem"},
    {"high_school_computer_science", "mmlu_stem"},
    {"high_school_european_history", "mmlu_humanities"},
    {"high_school_geography", "mmlu_social_sciences"},
    {"high_school_government_and_politics", "mmlu_social_sciences"},
    {"high_school_macroeconomics", "mmlu_social_sciences"},
    {"high_school_mathematics", "mmlu_stem"},
    {"high_school_microeconomics", "mmlu_social_sciences"},
    {"high_school_physics", "mmlu_stem"},
    {"high_school_psychology", "mmlu_social_sciences"},
    {"high_school_statistics", "mmlu_stem"},
    {"high_school_us_history", "mmlu_humanities"},
    {"high_school_world_history", "mmlu_humanities"},
    {"human_aging", "mmlu_other"},
    {"human_sexuality", "mmlu_social_sciences"},
    {"international_law", "mmlu_humanities"},
    {"jurisprudence", "mmlu_humanities"},
    {"logical_fallacies", "mmlu_humanities"},
    {"machine_learning", "mmlu_stem"},
    {"management", "mmlu_other"},
    {"marketing", "mmlu_other"},
    {"medical_genetics", "mmlu_other"},
    {"miscellaneous", "mmlu_other"},
    {"moral_disputes", "mmlu_humanities"},
    {"moral_scenarios", "mmlu_humanities"},
    {"nutrition", "mmlu_other"},
    {"philosophy", "mmlu_humanities"},
    {"prehistory", "mmlu_humanities"},
    {"professional_accounting", "mmlu_other"},
    {"professional_law", "mmlu_humanities"},
    {"professional_medicine", "mmlu_other"},
    {"professional_psychology", "mmlu_social_sciences"},
    {"public_relations", "mmlu_social_sciences"},
    {"security_studies", "mmlu_social_sciences"},
    {"sociology", "mmlu_social_sciences"},
    {"us_foreign_policy", "mmlu_social_sciences"},
    {"virology", "mmlu_other"},
    {"world_religions", "mmlu_humanities"},
    // clang-format on
};
static const char *const letter[CHOICES] = {"A", "B", "C", "D"};

/* 0 to 3 from "2" or "C"; -1 from anything else. */
static int answer_of(const char *cell)
{
    if (cell[0] == '\0' || cell[1] != '\0')
        return -1;
    return cell[0] >= '0' && cell[0] <= '3'   ? cell[0] - '0'
           : cell[0] >= 'A' && cell[0] <= 'D' ? cell[0] - 'A'
                                              : -1;
}

static int fill(struct task_doc *d, const char *question, const char *const choice[CHOICES],
                int gold, struct err *e)
{
    struct str query = {0};
    size_t from = 0, to = strlen(question);
    int rc = 0;
    task_strip(question, &from, &to);
    str_add_bytes(&query, question + from, to - from);
    for (int k = 0; k < CHOICES && rc == 0; k++) {
        str_addf(&query, "\n%s. %s", letter[k], choice[k]);
        rc = task_set(&d->choice[k], letter[k], e);
    }
    str_add(&query, "\nAnswer:");
    d->choices = CHOICES;
    d->gold = gold;
    if (rc == 0)
        rc = task_set(&d->target, letter[gold], e);
    if (rc == 0)
        return task_take(&d->query, &query, e);
    str_release(&query);
    return rc;
}

static int add_cells(void *ctx, struct task_docs *out, char **cell, size_t n, int line,
                     const char *path, struct err *e)
{
    int gold;
    (void)ctx;
    if (n != COLUMNS)
        return err_set(e, DS_EFORMAT,
                       "%s:%d: %zu columns, expected %d: question, four choices, answer", path,
                       line, n, COLUMNS);
    if (line == 1 && strcmp(cell[0], "question") == 0)
        return 0; /* a header */
    if ((gold = answer_of(cell[COLUMNS - 1])) < 0)
        return err_set(e, DS_EFORMAT, "%s:%d: answer \"%.20s\", expected 0 to 3 or A to D", path,
                       line, cell[COLUMNS - 1]);
    const char *const choice[CHOICES] = {cell[1], cell[2], cell[3], cell[4]};
    struct task_doc *d = task_add_doc(out);
    return d ? fill(d, cell[0], choice, gold, e)
             : err_set(e, DS_EMEM, "out of memory for documents");
}

static const struct subject_row *find_subject(const char *name)
{
    for (size_t i = 0; i < DS_LEN(subjects); i++)
        if (strcmp(subjects[i].name, name) == 0)
            return &subjects[i];
    return NULL;
}

/* {"question", "subject", "choices": [4], "answer": 0 to 3} */
static int add_row(struct task_doc *d, const struct json_node *row, const char *where,
                   struct err *e)
{
    const char *question, *subject, *choice[CHOICES];
    const struct json_node *choices = json_get(row, "choices"), *answer = json_get(row, "answer");
    const char *text = json_str(answer, NULL);
    int64_t gold = text ? answer_of(text) : json_int(answer, -1);
    int rc = task_text(&question, row, "question", where, e);
    if (rc == 0)
        rc = task_text(&subject, row, "subject", where, e);
    if (rc == 0 && !find_subject(subject))
        rc = err_set(e, DS_EFORMAT, "%s: unknown mmlu subject \"%.60s\"", where, subject);
    for (size_t k = 0; k < CHOICES && rc == 0; k++)
        if ((choice[k] = json_str(json_at(choices, k), NULL)) == NULL || json_len(choices) != 4)
            rc = err_set(e, DS_EFORMAT, "%s: \"choices\": must be four strings", where);
    if (rc == 0 && (gold < 0 || gold >= CHOICES))
        rc = err_set(e, DS_EFORMAT, "%s: \"answer\": must be 0 to 3 or A to D", where);
    if (rc == 0)
        rc = task_set(&d->tag, subject, e);
    return rc == 0 ? fill(d, question, choice, (int)gold, e) : rc;
}

static int read_split(struct task_docs *out, const struct task_env *env, const char *subject,
                      const char *split, struct err *e)
{
    char name[160], path[1024];
    const char *const names[] = {name, NULL};
    snprintf(name, sizeof name, "%s/%s_%s.csv", split, subject, split);
    int rc = task_find(path, sizeof path, env->path, names, e);
    return rc == 0 ? task_read_csv(out, path, add_cells, e) : rc;
}

static struct task_part *add_subject(struct task_parts *out, const struct subject_row *s)
{
    char name[160], about[256], *p;
    snprintf(name, sizeof name, "mmlu_%s", s->name);
    snprintf(about, sizeof about,
             "The following are multiple choice questions (with answers) about %s.\n\n", s->name);
    for (p = about; *p; p++)
        *p = *p == '_' ? ' ' : *p;
    return task_add_part(out, name, about, s->group);
}

static int read_subject(struct task_parts *out, const struct task_env *env,
                        const struct subject_row *s, struct err *e)
{
    struct task_part *part = add_subject(out, s);
    if (!part)
        return err_set(e, DS_EMEM, "out of memory for documents");
    int rc = read_split(&part->asked, env, s->name, "test", e);
    if (rc == 0 && env->has_shots)
        rc = read_split(&part->shots, env, s->name, "dev", e);
    return rc;
}

static int has_subject(const struct task_env *env, const struct subject_row *s)
{
    char path[1300];
    if (env->subject[0])
        return strcmp(env->subject, s->name) == 0;
    snprintf(path, sizeof path, "%.1000s/test/%s_test.csv", env->path, s->name);
    return fs_exists(path);
}

static int has_tag(const struct task_docs *d, const char *tag)
{
    for (size_t i = 0; i < d->n; i++)
        if (d->v[i].tag && strcmp(d->v[i].tag, tag) == 0)
            return 1;
    return 0;
}

/* Reads all subjects from one file of rows, and the shots from another. */
static int read_mixed(struct task_parts *out, const struct task *t, const struct task_env *env,
                      struct err *e)
{
    static const char *const asked[] = {"test.jsonl", NULL}, *const shots[] = {"dev.jsonl", NULL};
    struct task_parts all = {0};
    int rc = task_read_splits(&all, t, env, asked, shots, add_row, e);
    for (size_t i = 0; i < DS_LEN(subjects) && rc == 0; i++) {
        const char *name = subjects[i].name;
        if ((env->subject[0] && strcmp(env->subject, name) != 0) || !has_tag(&all.v[0].asked, name))
            continue;
        struct task_part *part = add_subject(out, &subjects[i]);
        rc = part ? task_take_tagged(&part->asked, &all.v[0].asked, name, e)
                  : err_set(e, DS_EMEM, "out of memory for documents");
        if (rc == 0)
            rc = task_take_tagged(&part->shots, &all.v[0].shots, name, e);
    }
    if (rc == 0 && out->n == 0)
        rc = err_set(e, DS_EFORMAT, "%s: no rows of subject \"%.60s\"", env->path, env->subject);
    task_parts_release(&all);
    return rc;
}

/* Without a subject: all subjects found (at least one), in the order of the table. */
static int read_mmlu(struct task_parts *out, const struct task *t, const struct task_env *env,
                     struct err *e)
{
    static const char *const rows[] = {"test.jsonl", NULL};
    char path[1024];
    int rc = 0;
    if (env->subject[0] && !find_subject(env->subject))
        return err_set(e, DS_EUSAGE,
                       "unknown mmlu subject \"%.60s\"; expected a name as in the files: %s, ...",
                       env->subject, subjects[0].name);
    if (task_find(path, sizeof path, env->path, rows, NULL) == 0)
        return read_mixed(out, t, env, e);
    for (size_t i = 0; i < DS_LEN(subjects) && rc == 0; i++)
        if (has_subject(env, &subjects[i]))
            rc = read_subject(out, env, &subjects[i], e);
    return rc < 0 || out->n > 0
               ? rc
               : read_subject(out, env, &subjects[0], e); /* reports the missing file */
}

const struct task task_mmlu = {
    .name = "mmlu",
    .summary = "multiple choice in 57 subjects",
    .source = "test/SUBJECT_test.csv and dev/SUBJECT_dev.csv of hendrycks/test, or the rows of "
              "cais/mmlu as test.jsonl and dev.jsonl",
    .output_type = "multiple_choice",
    .kind = TASK_CHOICE,
    .shots = 5,
    .takes_first_shots = 1,
    .has_parts = 1,
    .version = 1,
    .group_version = 2,
    .metrics = task_choice_metrics,
    .n_metrics = 1, /* acc_norm is the same: all letters have the same length */
    .read = read_mmlu,
    .judge = task_judge_choices,
};
