/* Building blocks of tasks, for src/eval/tasks/.  A new task is one file there and one line in
 * task.c.
 *
 * The prompt of a document: description, then for each shot `query + " " + target + "\n\n"`, then
 * the document's query. */
#ifndef DS_EVAL_TASK_IMPL_H
#define DS_EVAL_TASK_IMPL_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/json.h"
#include "base/str.h"

enum { TASK_CHOICES_MAX = 16, TASK_METRICS_MAX = 4, TASK_SHOTS_MAX = 256 };

/* A document: one question.  Owns all strings. */
struct task_doc {
    char *query;  /* the formatted question (rolling: the scored text)                        */
    char *target; /* the correct answer without its leading space; "" = none */
    char *choice[TASK_CHOICES_MAX]; /* without the leading space */
    int choices, gold;              /* gold: index of the correct choice */
    double words, bytes;            /* rolling: of the original text     */
    char *tag; /* the part it belongs to, for files with mixed parts; or NULL */
};
struct task_docs {
    struct task_doc *v;
    size_t n, cap;
};
/* One set of questions with its own score; mmlu has 57. */
struct task_part {
    char *name, *description;
    const char *group; /* group it is also averaged into ("mmlu_stem"), or NULL */
    struct task_docs asked, shots;
};
struct task_parts {
    struct task_part *v;
    size_t n, cap;
};

enum task_kind {
    TASK_CHOICE,   /* log-probability of each choice after the prompt */
    TASK_GENERATE, /* greedy text until a stop string                  */
    TASK_ROLLING,  /* log-probability of a whole text, in windows      */
};
/* How the documents' values are aggregated. */
enum task_mean {
    TASK_MEAN,
    TASK_PERPLEXITY,          /* exp(-mean); error from task_bootstrap_error */
    TASK_WEIGHTED_PERPLEXITY, /* exp(-sum of values / weights)  */
    TASK_WEIGHTED_BITS,       /* -sum / (sum of weights * ln 2) */
};
struct task_metric {
    const char *name, *filter;
    enum task_mean mean;
    int higher_is_better;
};

/* Model outputs: per choice, or one text. */
struct task_answer {
    double ll[TASK_CHOICES_MAX];
    int greedy[TASK_CHOICES_MAX]; /* 1 = equal to the greedy tokens */
    const char *text;             /* TASK_GENERATE */
};
/* Per document and metric. */
struct task_value {
    double value, weight;
};

struct task_env {
    const char *path;    /* data.path: a directory, or a single file if sufficient */
    const char *subject; /* text after "NAME_", for parts; "" = all of them    */
    int has_shots;       /* read the shots too                                 */
};
struct task {
    const char *name, *summary, *output_type;
    const char *source; /* expected files and their origin */
    enum task_kind kind;
    int shots;             /* default number of shots */
    int takes_first_shots; /* the same first ones for every document; else sampled per document */
    int draws_spare; /* sampled: one extra is drawn, so that the document itself can be left out */
    int has_parts;   /* "NAME_SUBJECT" is one part */
    double version, group_version; /* of the harness' task; of its groups */
    const char *const *until;      /* stop strings, NULL-terminated; TASK_GENERATE */
    const struct task_metric *metrics;
    size_t n_metrics;
    int (*read)(struct task_parts *out, const struct task *t, const struct task_env *env,
                struct err *e);
    /* DS_EMEM, or 0. */
    int (*judge)(const struct task_doc *d, const struct task_answer *a,
                 struct task_value out[TASK_METRICS_MAX]);
};

/* ---- for readers ---- */
/* Appends an empty part; NULL if out of memory.  group: borrowed. */
struct task_part *task_add_part(struct task_parts *p, const char *name, const char *description,
                                const char *group);
/* Appends a document with empty strings; NULL if out of memory. */
struct task_doc *task_add_doc(struct task_docs *d);
/* Moves the documents with this tag in order, leaving empty ones in their place. */
int task_take_tagged(struct task_docs *to, struct task_docs *from, const char *tag,
                     struct err *e) DS_CHECK;
void task_docs_release(struct task_docs *d);
void task_parts_release(struct task_parts *p);
/* A copy of text into *field (NULL or owned); DS_EMEM. */
int task_set(char **field, const char *text, struct err *e) DS_CHECK;
/* The same from a finished str, which is released. */
int task_take(char **field, struct str *s, struct err *e) DS_CHECK;

/* path itself if it is a file, else the first existing one of names (NULL-terminated) in it.
 * DS_ENOTFOUND lists them. */
int task_find(char *out, size_t size, const char *path, const char *const *names,
              struct err *e) DS_CHECK;
/* DS_EFORMAT with a conversion hint when the name has an unsupported file type (parquet, compressed
 * files). */
int task_check_name(const char *path, struct err *e) DS_CHECK;
/* Reads a whole file, which must be UTF-8 without NUL and of a supported type. */
int task_read_file(struct str *text, const char *path, struct err *e) DS_CHECK;
/* Reads rows as JSON objects: JSON Lines, one JSON array, or (NAME.csv) a table whose first line
 * names the columns.  row fills one document; `where` is "FILE:LINE". */
typedef int task_row_fn(struct task_doc *d, const struct json_node *row, const char *where,
                        struct err *e);
int task_read_rows(struct task_docs *out, const char *path, task_row_fn *row,
                   struct err *e) DS_CHECK;
/* The string under key; DS_EFORMAT naming the key and the line. */
int task_text(const char **out, const struct json_node *row, const char *key, const char *where,
              struct err *e) DS_CHECK;
/* The small number under key, also if written as a string; -1 otherwise. */
int64_t task_int(const struct json_node *row, const char *key);
/* Reads tables of comma-separated values with quotes (RFC 4180). */
typedef int task_cells_fn(void *ctx, struct task_docs *out, char **cell, size_t n, int line,
                          const char *path, struct err *e);
int task_read_csv(struct task_docs *out, const char *path, task_cells_fn *row,
                  struct err *e) DS_CHECK;
/* Reads a task of one part, with documents and shots from JSON Lines files. */
int task_read_splits(struct task_parts *out, const struct task *t, const struct task_env *env,
                     const char *const *asked, const char *const *shots, task_row_fn *row,
                     struct err *e) DS_CHECK;

/* ---- scoring ---- */
/* acc, acc_norm (by characters), acc_bytes, in this order. */
int task_judge_choices(const struct task_doc *d, const struct task_answer *a,
                       struct task_value out[TASK_METRICS_MAX]);
extern const struct task_metric task_choice_metrics[3];

/* ---- text ---- */
/* Bytes of a white-space character at s (n > 0 left) as Unicode and Python count them; 0 =
 * another. */
size_t task_space(const char *s, size_t n);
/* text[*from, *to) without white space at its ends. */
void task_strip(const char *s, size_t *from, size_t *to);
/* Replaces every `find` in s by `put`; sets s->failed when out of memory. */
void task_replace(struct str *s, const char *find, const char *put);

#endif
