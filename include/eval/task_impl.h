/* What a task is made of: for the files src/eval/task_*.c.  A new task is one of these files and one line in task.c.
 *
 * The prompt of a document: description, then for each shot `query + " " + target + "\n\n"`, then the document's query. */
#ifndef DS_EVAL_TASK_IMPL_H
#define DS_EVAL_TASK_IMPL_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/json.h"
#include "base/str.h"

enum { TASK_CHOICES_MAX = 16, TASK_METRICS_MAX = 4, TASK_SHOTS_MAX = 256 };

/* A question.  All strings are the document's own. */
struct task_doc {
    char *query;  /* the question as it is asked (rolling: the text that is scored)           */
    char *target; /* the right answer, without the blank in front of it; "" when there is none */
    char *choice[TASK_CHOICES_MAX]; /* without the blank in front of it */
    int choices, gold;              /* gold: index of the right choice   */
    double words, bytes;            /* rolling: of the original text     */
    char *tag; /* the part that it belongs to, of rows that come mixed; or NULL */
};
struct task_docs {
    struct task_doc *v;
    size_t n, cap;
};
/* One set of questions with its own score; mmlu has 57. */
struct task_part {
    char *name, *description;
    const char *group; /* that it is also averaged into ("mmlu_stem"), or NULL */
    struct task_docs asked, shots;
};
struct task_parts {
    struct task_part *v;
    size_t n, cap;
};

enum task_kind {
    TASK_CHOICE,   /* log-probability of each choice behind the prompt */
    TASK_GENERATE, /* greedy text until a stop string                  */
    TASK_ROLLING,  /* log-probability of a whole text, in windows      */
};
/* How the documents' values become one number. */
enum task_mean {
    TASK_MEAN,
    TASK_PERPLEXITY,          /* exp(-mean); its error by task_bootstrap_error */
    TASK_WEIGHTED_PERPLEXITY, /* exp(-sum of values / weights)  */
    TASK_WEIGHTED_BITS,       /* -sum / (sum of weights * ln 2) */
};
struct task_metric {
    const char *name, *filter;
    enum task_mean mean;
    int higher_is_better;
};

/* What the model said: of each choice, or one text. */
struct task_answer {
    double ll[TASK_CHOICES_MAX];
    int greedy[TASK_CHOICES_MAX]; /* 1 = the most likely tokens are exactly these */
    const char *text;             /* TASK_GENERATE */
};
/* Per document and metric. */
struct task_value {
    double value, weight;
};

struct task_env {
    const char *path;    /* data.path: a folder, or a file where one is enough */
    const char *subject; /* behind "NAME_", for parts; "" = all of them        */
    int wants_shots;     /* read them too                                      */
};
struct task {
    const char *name, *summary, *output_type;
    const char *source; /* which files, and whose */
    enum task_kind kind;
    int shots;             /* as the task is usually run */
    int takes_first_shots; /* the first ones, for every document alike; else sampled anew for each */
    int draws_spare;       /* sampled: one more is drawn, and the question itself is left out */
    int has_parts;         /* "NAME_SUBJECT" is one part */
    double version, group_version; /* of the harness' definition; of groups of its parts */
    const char *const *until;      /* stop strings, NULL-terminated; TASK_GENERATE */
    const struct task_metric *metrics;
    size_t n_metrics;
    int (*read)(struct task_parts *out, const struct task *t, const struct task_env *env,
                struct err *e);
    void (*judge)(const struct task_doc *d, const struct task_answer *a,
                  struct task_value out[TASK_METRICS_MAX]);
};
extern const struct task task_mmlu, task_arc_challenge, task_arc_easy, task_gsm8k, task_gsm8k_cot,
    task_hellaswag, task_piqa, task_lambada, task_wikitext;

/* ---- for readers ---- */
/* Appends an empty part; NULL without memory.  group: borrowed. */
struct task_part *task_add_part(struct task_parts *p, const char *name, const char *description,
                                const char *group);
/* Appends a document, all of whose strings are empty; NULL without memory. */
struct task_doc *task_add_doc(struct task_docs *d);
/* Moves the documents with this tag, in their order; in their places are empty ones. */
int task_take_tagged(struct task_docs *to, struct task_docs *from, const char *tag,
                     struct err *e) DS_CHECK;
void task_docs_release(struct task_docs *d);
void task_parts_release(struct task_parts *p);
/* A copy of text into *field (NULL or owned); DS_EMEM. */
int task_set(char **field, const char *text, struct err *e) DS_CHECK;
/* The same from a finished str, which is released. */
int task_take(char **field, struct str *s, struct err *e) DS_CHECK;

/* path itself when it is a file, else the first of names (NULL-terminated) below it. DS_ENOTFOUND naming them. */
int task_find(char *out, size_t size, const char *path, const char *const *names,
              struct err *e) DS_CHECK;
/* DS_EFORMAT with what helps when the name is of a kind of file that is not read (parquet, compressed files). */
int task_check_name(const char *path, struct err *e) DS_CHECK;
/* A whole file: UTF-8 without NUL, of none of these kinds. */
int task_read_file(struct str *text, const char *path, struct err *e) DS_CHECK;
/* Rows of an object each: lines of JSON, one JSON array, or (NAME.csv) a table whose first line names the columns.  row fills
 * one document; `where` is "FILE:LINE". */
typedef int task_row_fn(struct task_doc *d, const struct json_node *row, const char *where,
                        struct err *e);
int task_read_rows(struct task_docs *out, const char *path, task_row_fn *row,
                   struct err *e) DS_CHECK;
/* The text under key; DS_EFORMAT naming the key and the line. */
int task_text(const char **out, const struct json_node *row, const char *key, const char *where,
              struct err *e) DS_CHECK;
/* The small number under key, also where it is written as a text; -1 otherwise. */
int64_t task_int(const struct json_node *row, const char *key);
/* Tables of comma-separated values with quotes (RFC 4180). */
typedef int task_cells_fn(void *ctx, struct task_docs *out, char **cell, size_t n, int line,
                          const char *path, struct err *e);
int task_read_csv(struct task_docs *out, const char *path, task_cells_fn *row,
                  struct err *e) DS_CHECK;
/* A task of one part, with asked and shots from JSON lines. */
int task_read_splits(struct task_parts *out, const struct task *t, const struct task_env *env,
                     const char *const *asked, const char *const *shots, task_row_fn *row,
                     struct err *e) DS_CHECK;

/* ---- for judges ---- */
/* acc, acc_norm (by characters), acc_bytes, in this order. */
void task_judge_choices(const struct task_doc *d, const struct task_answer *a,
                        struct task_value out[TASK_METRICS_MAX]);
extern const struct task_metric task_choice_metrics[3];

/* ---- text ---- */
/* Bytes of a white-space character at s (n > 0 left) as Unicode and Python count them; 0 = another. */
size_t task_space(const char *s, size_t n);
/* text[*from, *to) without white space at its ends. */
void task_strip(const char *s, size_t *from, size_t *to);
/* In place of every `find` in s, `put`; DS_EMEM through s->failed. */
void task_replace(struct str *s, const char *find, const char *put);

#endif
