/* One conversion: its options and its result. */
#ifndef DS_CLI_CONVERT_JOB_H
#define DS_CLI_CONVERT_JOB_H

#include "cli/convert/convert.h"

enum { CONVERT_AUTO, CONVERT_HF, CONVERT_GGUF, CONVERT_LLAMA2C };
struct convert_options {
    int to, method;     /* method: 1 = base model only */
    int merge, adapter; /* adapter: 1 = adapters alone */
    char *weights, *tokenizer;
    int64_t shard_size, seed, threads;
};

enum { CONVERT_NOTES = 8 };
struct convert_job {
    struct convert_options o;
    struct convert_from from;
    char out[1024];
    int force;
    uint32_t type;
    struct export_result r;
    int64_t parameters;
    int has_vocabulary;
    double seconds, shown_at;
    char note[CONVERT_NOTES][400];
    size_t notes;
};

/* Refuses to overwrite existing output unless forced, and files of the source always: DS_EEXIST,
 * DS_EUSAGE. */
int convert_check_out(const struct convert_job *j, struct err *e) DS_CHECK;
/* 1 when PATH belongs to the source: weights, configuration or tokenizer, its own or of its
 * base. */
int convert_is_source(const struct convert_job *j, const char *path);
/* 1 when PATH is the file that the current tokenizer was loaded from. */
int convert_has_tokenizer_at(const struct convert_job *j, const char *path);
/* Writes j->out and fills in all results but seconds. */
int convert_write(struct convert_job *j, struct err *e) DS_CHECK;

#endif
