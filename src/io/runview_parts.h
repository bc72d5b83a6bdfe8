/* Internals shared by the run view's files; private to src/io. */
#ifndef DS_IO_RUNVIEW_PARTS_H
#define DS_IO_RUNVIEW_PARTS_H

#include "base/map.h"
#include "io/record.h"
#include "io/runview.h"

/* Unit and help of a metric, from the head's table. */
struct metric_meta {
    char *name, *unit, *help;
};

struct runview_index {
    struct map series, layer; /* name -> index */
    size_t series_cap, layer_cap, eval_cap, sample_cap;
    size_t hint;        /* the series that the next metric most likely belongs to */
    uint32_t *of_point; /* series + 1 of a name in a log of another program, by its id */
    size_t cap_of_point;
    uint64_t skipped, others; /* of such a log, what its reader counted so far */
    struct metric_meta *meta;
    size_t metas;
    size_t probe_bytes, matrix_bytes, matrix_cap;
    double tokens, flops; /* newest token count with its FLOPs, and its step */
    int64_t tokens_step;
    int walks; /* back over superseded points, bounded */
    int is_failed;
    char foreign[64]; /* title of the format that a stream of records was made from */
    int is_directory; /* its name is the run's, which may have been renamed since the head */
    struct run_phase phase;
    uint64_t stop_at;  /* where the first read of a growing file ends; 0 = no limit */
    double opened;     /* monotonic */
    double heard;      /* wall seconds of the newest bytes, 0 = unknown: io/runview.c */
    double lock_asked; /* monotonic time of the last lock check; its result */
    int is_locked;
};

/* The fields every record has; step < 0 and time NaN when missing or wrong. */
struct record_common {
    struct value kind;
    int64_t step;
    double time, tokens, flops_ratio; /* flops_ratio: NaN when absent */
    int has_tokens;
};

/* ---- series.c ---- */
int series_add(struct series *s, int64_t step, double value, double tokens, double flops,
               double time) DS_CHECK;
/* Brings points that came out of order into the order of steps; of several at one step the last
 * counts, and those that it supersedes come together, as after a resume.  Only series with
 * is_unordered need it. */
int series_sort(struct series *s) DS_CHECK;
/* Marks the points of steps > step as superseded. */
void series_resume(struct series *s, int64_t step);
void series_release(struct series *s);

/* ---- runview_text.c: copies out of a record; NULL only when out of memory ---- */
char *text_copy(struct value v, size_t max); /* "" when v is not text; ends at a NUL */
/* Keys become C strings of 1 to 63 bytes; 0 when the key is invalid. */
int name_copy(char out[64], struct value key);
int vector_read(struct vector *out, const char *name, struct value v, size_t max) DS_CHECK;
void vector_clear(struct vector *x); /* frees what it owns */
void vectors_release(struct vector *x, int n);

/* ---- runview_probe.c ---- */
/* New probe from a body, or NULL (malformed: counted in v->invalid; no memory: index->is_failed).
 */
struct probe *probe_read(struct runview *v, struct value body, int64_t step);
size_t probe_bytes(const struct probe *p);
void probe_free(struct probe *p);
void probes_thin(struct runview *v);
/* Marks the probes of a text (index < 0: of all) after `step` as superseded. */
void probes_supersede(struct runview *v, int index, int64_t step);

/* ---- runview_ranks.c ---- */
void runview_take_ranks(struct runview *v, struct value body, const struct record_common *c);

/* ---- runview_matrix.c ---- */
void runview_take_matrix(struct runview *v, struct value body, const struct record_common *c);
/* Marks the matrices after `step` as superseded. */
void matrices_supersede(struct runview *v, int64_t step);
void matrix_series_release(struct matrix_series *s);

/* ---- runview_take.c ---- */
/* The current name of a metric that earlier versions wrote under another. */
const char *runview_metric_name(const char *name);
void runview_clear(struct runview *v);
struct foreign_point;
void runview_take_points(struct runview *v, const struct foreign_point *p, size_t n);
/* Sorts what came out of order since the last call. */
void runview_order(struct runview *v);

/* ---- runview_head.c ---- */
void runview_no_memory(struct runview *v); /* the next poll reports it */
/* Makes room for one more item in a growing list; 0 (and noted) when out of memory. */
int runview_room(struct runview *v, void **p, size_t *cap, size_t n, size_t size);
void runview_take_event(struct runview *v, struct value body, const struct record_common *c);
void runview_take_head(struct runview *v, struct value body, const struct record_common *c);
/* Its texts: freed, and all made "". */
void runview_head_release(struct runview *v);
void runview_head_clear(struct runview *v);
void runview_event_release(struct run_event *x);
void runview_config_release(struct runview *v);
void runview_metas_release(struct runview_index *x);
void runview_event_add(struct runview *v, int64_t step, double time, int level, const char *name,
                       const char *text);

#endif
