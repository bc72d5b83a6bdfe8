/* What logs of other programs hold besides points, private to io: a configuration, JSON values, and
 * things that this program does not show. */
#ifndef DS_SRC_IO_FOREIGN_META_H
#define DS_SRC_IO_FOREIGN_META_H

#include "base/map.h"
#include "io/foreign.h"
#include "io/json_scan.h"

/* The values of a JSON text, each with its path below `prefix`, joined by ".": strings, numbers, bools
 * and null as `token` says, and arrays whole, scan->text being their text.  media (or NULL) is given
 * the objects that have a "_type" instead of what is in them.  Returns 1, 0 when the n bytes are not
 * JSON, or DS_EMEM. */
struct foreign_visitor {
    void (*value)(void *context, const char *path, size_t n, const struct json_scan *scan,
                  enum json_token token);
    void (*media)(void *context, const char *path, size_t n, const char *type, size_t type_n);
    void *context;
};
int foreign_json(const char *text, size_t n, const char *prefix, size_t prefix_n,
                 const struct foreign_visitor *visitor) DS_CHECK;

/* The flat configuration that was logged so far.  Zero-initialise; bounded. */
struct foreign_config {
    struct map index;
    char **key, **value;
    size_t n, cap_keys, cap_values, bytes;
    int is_changed, is_failed; /* is_failed: something is lost, for lack of memory */
};
void foreign_config_set(struct foreign_config *c, const char *key, size_t n, const char *value,
                        size_t value_n);
/* A JSON text below `prefix`; what is not JSON is set as it is. */
void foreign_config_json(struct foreign_config *c, const char *prefix, size_t n, const char *text,
                         size_t text_n);
/* Adds "config" to the head that is being built, when there is something to add. */
void foreign_config_put(struct foreign_config *c, struct foreign_out *out, struct record *head);
void foreign_config_release(struct foreign_config *c);

/* Names whose values are not shown, by kind ("histogram").  Zero-initialise; bounded. */
struct foreign_hidden {
    struct map names;
    struct {
        char name[24];
        uint32_t n;
    } kind[12];
    int kinds;
    uint64_t reported;
    int64_t step; /* of the newest one */
    double time;
};
void foreign_hidden_add(struct foreign_hidden *h, const char *kind, size_t kind_n, const char *name,
                        size_t n, int64_t step, double time);
/* One event about them, "3 histogram tags not shown" (noun: "tag"), when their number has at least
 * doubled since the last one, or at all with is_end. */
void foreign_hidden_report(struct foreign_hidden *h, struct foreign_out *out, const char *noun,
                           int is_end);
void foreign_hidden_release(struct foreign_hidden *h);

#endif
