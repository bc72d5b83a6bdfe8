/* mmlu: 57 subjects of multiple choice, the answer a letter (Hendrycks et al. 2021). */
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

static int add_row(struct task_docs *out, char **cell, size_t n, int line, const char *path,
                   struct err *e)
{
    int gold, rc = 0;
    if (n != COLUMNS)
        return err_set(e, DS_EFORMAT, "%s:%d: %zu columns, not %d: question, four choices, answer",
                       path, line, n, COLUMNS);
    if (line == 1 && strcmp(cell[0], "question") == 0)
        return 0; /* a header */
    if ((gold = answer_of(cell[COLUMNS - 1])) < 0)
        return err_set(e, DS_EFORMAT, "%s:%d: the answer is \"%.20s\", not 0 to 3 or A to D", path,
                       line, cell[COLUMNS - 1]);
    struct task_doc *d = task_add_doc(out);
    struct str query = {0};
    size_t from = 0, to = strlen(cell[0]);
    if (!d)
        return err_set(e, DS_EMEM, "documents");
    task_strip(cell[0], &from, &to);
    str_add_bytes(&query, cell[0] + from, to - from);
    for (int k = 0; k < CHOICES && rc == 0; k++) {
        str_addf(&query, "\n%s. %s", letter[k], cell[1 + k]);
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

static int read_split(struct task_docs *out, const struct task_env *env, const char *subject,
                      const char *split, struct err *e)
{
    char name[160], path[1024];
    const char *const names[] = {name, NULL};
    snprintf(name, sizeof name, "%s/%s_%s.csv", split, subject, split);
    if (!fs_is_dir(env->path))
        return err_set(e, DS_EUSAGE,
                       "task=mmlu needs data.path=FOLDER with test/SUBJECT_test.csv and "
                       "dev/SUBJECT_dev.csv; %s is %s",
                       env->path[0] ? env->path : "\"\"",
                       env->path[0] && fs_exists(env->path) ? "a file" : "not there");
    int rc = task_find(path, sizeof path, env->path, names, e);
    return rc == 0 ? task_read_csv(out, path, add_row, e) : rc;
}

static int read_subject(struct task_parts *out, const struct task_env *env,
                        const struct subject_row *s, struct err *e)
{
    char name[160], about[256], *p;
    snprintf(name, sizeof name, "mmlu_%s", s->name);
    snprintf(about, sizeof about,
             "The following are multiple choice questions (with answers) about %s.\n\n", s->name);
    for (p = about; *p; p++)
        *p = *p == '_' ? ' ' : *p;
    struct task_part *part = task_add_part(out, name, about, s->group);
    if (!part)
        return err_set(e, DS_EMEM, "documents");
    int rc = read_split(&part->asked, env, s->name, "test", e);
    if (rc == 0 && env->wants_shots)
        rc = read_split(&part->shots, env, s->name, "dev", e);
    return rc;
}

/* Whole: every subject that is there (one at least), in the order of the table. */
static int read_mmlu(struct task_parts *out, const struct task *t, const struct task_env *env,
                     struct err *e)
{
    char path[1300];
    int rc = 0;
    (void)t;
    for (size_t i = 0; i < DS_LEN(subjects) && rc == 0; i++) {
        if (env->subject[0] ? strcmp(env->subject, subjects[i].name) != 0
                            : (snprintf(path, sizeof path, "%.1000s/test/%s_test.csv", env->path,
                                        subjects[i].name),
                               !fs_exists(path)))
            continue;
        rc = read_subject(out, env, &subjects[i], e);
    }
    if (rc < 0 || out->n > 0)
        return rc;
    if (env->subject[0])
        return err_set(e, DS_EUSAGE,
                       "mmlu has no subject \"%.60s\" (they are named as the files: %s, ...)",
                       env->subject, subjects[0].name);
    return read_subject(out, env, &subjects[0], e); /* which says what is missing */
}

const struct task task_mmlu = {
    .name = "mmlu",
    .summary = "57 subjects, four choices by letter",
    .output_type = "multiple_choice",
    .kind = TASK_CHOICE,
    .shots = 5,
    .takes_first_shots = 1,
    .has_parts = 1,
    .version = 1,
    .group_version = 2,
    .metrics = task_choice_metrics,
    .n_metrics = 1, /* the letters are equally long */
    .read = read_mmlu,
    .judge = task_judge_choices,
};
