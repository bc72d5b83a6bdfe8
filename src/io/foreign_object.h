/* One JSON object of metrics: {"step": 10, "train": {"loss": 2.1}} is the point train.loss. */
#ifndef DS_IO_FOREIGN_OBJECT_H
#define DS_IO_FOREIGN_OBJECT_H

#include "base/map.h"
#include "base/str.h"
#include "io/foreign.h"
#include "io/foreign_text.h"
#include "io/json_scan.h"

/* What a key at the top of an object is.  The objects of a log have the same keys in the same order,
 * so that is looked up once per place in the order, until another key comes there. */
enum { OBJECT_KEYS = 64 };
struct object_key {
    char raw[46]; /* as it is written, escapes included */
    unsigned char n, rank, process, is_time, is_config, is_plan, is_split, is_label, is_run;
};

/* Zero-initialise; lives as long as the file's state. */
struct foreign_object {
    struct object_key known[OBJECT_KEYS];
    struct str names; /* of the entries, one after the other */
    struct object_entry {
        size_t name, n, first, count; /* in names; in values: 1, or a vector's */
        int is_vector, rank;          /* rank: as the step of the object */
    } * entry;
    size_t entries, cap_entries;
    double *value;
    size_t values, cap_values;
    struct str path;
    int64_t step, objects; /* of the newest object that has one; read so far */
    int64_t layers;        /* 0 unknown */
    int has_step, is_failed;
    /* of the object being read */
    struct object_key key; /* the newest at its top */
    int rank, is_timed;
    int best;        /* of all ranks so far */
    int is_fraction; /* "epoch" counts in fractions, or has several objects: not a step */
    uint64_t texts, first_texts; /* hash of the strings of the object, and of the first */
    int64_t own_step;
    double time, epoch;
    struct text_epochs epochs;
    struct map seen; /* names in the first epoch, while it is not known whether it is a step */
    int64_t first;   /* epoch; objects are counted from it where it is no step */
    int is_later;    /* after it */
    struct text_restart restart;
    /* objects of several processes: those of others than the first have names of their own */
    struct str process_name;
    double process, first_process; /* of the object, NaN none; of the first */
    int process_place, has_process;
    /* of the object: "val" when its "split" says so; of {"metric": "loss", "value": 2.1} the name */
    struct str set, label;
    struct str run; /* objects of other runs than the first have names of their own */
    struct text_runs runs;
    int is_other_run;
    int64_t planned, reported; /* steps of the run: as logged, and as delivered */
    int is_reported;           /* that arrays are left out */
};

/* After JSON_SCAN_OBJECT of an object at `depth`: reads it to its end and delivers what it holds.
 * CLOSE; or BAD or CUT, and nothing is delivered. */
enum json_token foreign_object_take(struct foreign_object *o, struct json_scan *s,
                                    struct foreign_out *out);
/* The members of an object (scanned after JSON_SCAN_OBJECT) as the run's config, keys joined by
 * dots; the number of layers and the planned steps are taken from it. */
void foreign_object_config(struct foreign_object *o, struct json_scan *s, struct foreign_out *out);
int foreign_object_is_config(const struct json_scan *key);
void foreign_object_release(struct foreign_object *o);

/* What an object looks like to `recognise`. */
struct object_look {
    int numbers, has_axis, has_config, is_text; /* is_text: rather a data set */
};
enum json_token foreign_object_look(struct json_scan *s, struct object_look *look);

#endif
