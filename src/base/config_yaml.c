/* Reads a YAML preset file and flattens it into keys.  The only file that uses libyaml. */
#include <stdio.h>
#include <string.h>
#include <yaml.h>

#include "base/config.h"
#include "base/fs.h"
#include "base/mem.h"

enum { SIZE_MAX_BYTES = 1 << 20, DEPTH_MAX = 64, EXTENDS_MAX = 8 };

struct reader {
    yaml_parser_t parser;
    struct config *out; /* empty at first, so a key found in it is a duplicate */
    const char *what;
    struct str errors; /* joined by "; "                                       */
    int code;          /* of the first error                                   */
    char key[CONFIG_KEY_MAX + 1];
    size_t key_len;
};

/* Records an error and continues, so that all are reported at once. */
static void complain(struct reader *r, int code, yaml_mark_t at, const char *fmt, ...)
    DS_PRINTF(4, 5);
static void complain(struct reader *r, int code, yaml_mark_t at, const char *fmt, ...)
{
    va_list ap;
    if (!r->code)
        r->code = code;
    if (r->errors.len > ERR_TEXT_MAX)
        return; /* the error text is full */
    str_addf(&r->errors, "%s%s:%zu:%zu: ", r->errors.len ? "; " : "", r->what, at.line + 1,
             at.column + 1);
    va_start(ap, fmt);
    str_vaddf(&r->errors, fmt, ap);
    va_end(ap);
}

/* The next event; 0 after a syntax error, which ends parsing. */
static int next(struct reader *r, yaml_event_t *ev)
{
    if (yaml_parser_parse(&r->parser, ev))
        return 1;
    const yaml_parser_t *p = &r->parser;
    int code = p->error == YAML_MEMORY_ERROR ? DS_EMEM : DS_EFORMAT;
    yaml_mark_t at = p->problem_mark;
    if (p->error == YAML_READER_ERROR)
        complain(r, code, p->mark, "%s (offset %zu)", p->problem ? p->problem : "not UTF-8",
                 p->problem_offset);
    else
        complain(r, code, at, "%s%s%s", p->context ? p->context : "", p->context ? ": " : "",
                 p->problem ? p->problem : "invalid YAML");
    return 0;
}

/* Skips the rest of a collection after its start event.  Excessive depth ends parsing: the parser's
 * time is quadratic in the depth. */
static int skip(struct reader *r)
{
    for (int depth = 1; depth > 0;) {
        yaml_event_t ev;
        if (!next(r, &ev))
            return 0;
        if (ev.type == YAML_SEQUENCE_START_EVENT || ev.type == YAML_MAPPING_START_EVENT)
            depth++;
        if (ev.type == YAML_SEQUENCE_END_EVENT || ev.type == YAML_MAPPING_END_EVENT)
            depth--;
        yaml_mark_t at = ev.start_mark;
        yaml_event_delete(&ev);
        if (depth > DEPTH_MAX) {
            complain(r, DS_EFORMAT, at, "nesting depth must be at most %d", DEPTH_MAX);
            return 0;
        }
    }
    return 1;
}

/* The text of a scalar, borrowed from the event; NULL after reporting an error. */
static const char *scalar_text(struct reader *r, const yaml_event_t *ev)
{
    const char *text = (const char *)ev->data.scalar.value;
    int plain = ev->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    if (ev->data.scalar.anchor || ev->data.scalar.tag) {
        complain(r, DS_EFORMAT, ev->start_mark, "unsupported anchor or tag");
        return NULL;
    }
    if (strlen(text) != ev->data.scalar.length) {
        complain(r, DS_EFORMAT, ev->start_mark, "value contains a NUL byte");
        return NULL;
    }
    if (plain && strstr(text, "${")) {
        complain(r, DS_EFORMAT, ev->start_mark, "unsupported reference ${...}");
        return NULL;
    }
    if (plain && (strcmp(text, "~") == 0 || strcmp(text, "null") == 0))
        return "";
    return text;
}

static void set_leaf(struct reader *r, const char *text, yaml_mark_t at)
{
    char where[300];
    struct err local = {0};
    if (config_get(r->out, r->key)) {
        complain(r, DS_EFORMAT, at, "duplicate key %s", r->key);
        return;
    }
    snprintf(where, sizeof where, "%.250s:%zu", r->what, at.line + 1);
    int rc = config_set(r->out, r->key, text, where, &local);
    if (rc == DS_EMEM)
        complain(r, rc, at, "out of memory");
    else if (rc < 0)
        complain(r, DS_EFORMAT, at, "invalid key '%.80s'", r->key);
}

/* Converts a sequence of scalars [a, b] to the text "[a,b]". */
static int read_sequence(struct reader *r, yaml_mark_t at)
{
    struct str list = {0};
    yaml_event_t ev;
    int ok = 1, items = 0, good = 1;
    str_add_char(&list, '[');
    while ((ok = next(r, &ev)) != 0 && ev.type != YAML_SEQUENCE_END_EVENT) {
        const char *text = NULL;
        if (ev.type == YAML_SCALAR_EVENT)
            text = scalar_text(r, &ev);
        else
            complain(r, DS_EFORMAT, ev.start_mark, "%s: list items must be plain values", r->key);
        int deeper = ev.type == YAML_SEQUENCE_START_EVENT || ev.type == YAML_MAPPING_START_EVENT;
        if (text)
            str_addf(&list, "%s%s", items++ ? "," : "", text);
        good = good && text;
        yaml_event_delete(&ev);
        if (deeper && !(ok = skip(r)))
            break;
    }
    if (ok) {
        yaml_event_delete(&ev);
        str_add_char(&list, ']');
        if (list.failed)
            complain(r, DS_EMEM, at, "out of memory");
        else if (good)
            set_leaf(r, str_text(&list), at);
    }
    str_release(&list);
    return ok;
}

/* Appends a map's key to the current key; 0 after reporting an error. */
static int push_key(struct reader *r, const yaml_event_t *ev)
{
    const char *text = (const char *)ev->data.scalar.value;
    size_t n = ev->data.scalar.length, dot = r->key_len > 0;
    if (n == 0 || strlen(text) != n) {
        complain(r, DS_EFORMAT, ev->start_mark, "key must not be empty or contain a NUL byte");
        return 0;
    }
    if (r->key_len + dot + n > CONFIG_KEY_MAX) {
        complain(r, DS_EFORMAT, ev->start_mark, "key must be at most %d bytes", CONFIG_KEY_MAX);
        return 0;
    }
    if (dot)
        r->key[r->key_len] = '.';
    memcpy(r->key + r->key_len + dot, text, n + 1);
    r->key_len += dot + n;
    return 1;
}

static int read_map(struct reader *r, int depth);

/* Reads the value of the current key; takes the event. */
static int read_value(struct reader *r, yaml_event_t *ev, int depth)
{
    yaml_mark_t at = ev->start_mark;
    yaml_event_type_t type = ev->type;
    const char *text = type == YAML_SCALAR_EVENT ? scalar_text(r, ev) : NULL;
    int named = (type == YAML_SEQUENCE_START_EVENT &&
                 (ev->data.sequence_start.anchor || ev->data.sequence_start.tag)) ||
                (type == YAML_MAPPING_START_EVENT &&
                 (ev->data.mapping_start.anchor || ev->data.mapping_start.tag));
    if (text)
        set_leaf(r, text, at);
    yaml_event_delete(ev);
    if (named)
        complain(r, DS_EFORMAT, at, "unsupported anchor or tag");
    if (type == YAML_ALIAS_EVENT)
        complain(r, DS_EFORMAT, at, "unsupported alias");
    if (type == YAML_SEQUENCE_START_EVENT)
        return read_sequence(r, at);
    return type == YAML_MAPPING_START_EVENT ? read_map(r, depth + 1) : 1;
}

/* Reads the members of a map after its start event. */
static int read_map(struct reader *r, int depth)
{
    size_t outer = r->key_len;
    for (;;) {
        yaml_event_t ev;
        if (!next(r, &ev))
            return 0;
        yaml_mark_t at = ev.start_mark;
        if (ev.type == YAML_MAPPING_END_EVENT) {
            yaml_event_delete(&ev);
            return 1;
        }
        int usable = ev.type == YAML_SCALAR_EVENT && push_key(r, &ev);
        if (ev.type != YAML_SCALAR_EVENT)
            complain(r, DS_EFORMAT, at, "key must be a scalar");
        int fatal = ev.type != YAML_SCALAR_EVENT; /* keys and values are ambiguous from here */
        yaml_event_delete(&ev);
        if (fatal || !next(r, &ev))
            return 0;
        if (depth > DEPTH_MAX) {
            complain(r, DS_EFORMAT, at, "nesting depth must be at most %d", DEPTH_MAX);
            yaml_event_delete(&ev);
            return 0;
        }
        if (usable) {
            if (!read_value(r, &ev, depth))
                return 0;
        } else {
            int deeper =
                ev.type == YAML_SEQUENCE_START_EVENT || ev.type == YAML_MAPPING_START_EVENT;
            yaml_event_delete(&ev);
            if (deeper && !skip(r))
                return 0;
        }
        r->key_len = outer;
        r->key[outer] = '\0';
    }
}

/* Reads a stream with one document, which is a map or empty. */
static void read_stream(struct reader *r)
{
    int documents = 0, maps = 0;
    for (;;) {
        yaml_event_t ev;
        if (!next(r, &ev))
            return;
        yaml_event_type_t type = ev.type;
        yaml_mark_t at = ev.start_mark;
        int nothing = type == YAML_SCALAR_EVENT && ev.data.scalar.length == 0;
        int named = type == YAML_MAPPING_START_EVENT &&
                    (ev.data.mapping_start.anchor || ev.data.mapping_start.tag);
        yaml_event_delete(&ev);
        if (named)
            complain(r, DS_EFORMAT, at, "unsupported anchor or tag");
        if (type == YAML_STREAM_END_EVENT)
            return;
        if (type == YAML_DOCUMENT_START_EVENT && documents++) {
            complain(r, DS_EFORMAT, at, "unsupported second document");
            return;
        }
        if (type == YAML_MAPPING_START_EVENT && maps++ == 0) {
            if (!read_map(r, 1))
                return;
        } else if (!nothing && (type == YAML_SCALAR_EVENT || type == YAML_SEQUENCE_START_EVENT ||
                                type == YAML_ALIAS_EVENT)) {
            complain(r, DS_EFORMAT, at, "top level must be a map");
            return;
        }
    }
}

/* Parses into `out`, which is empty. */
static int parse(struct config *out, const char *text, size_t n, const char *what, struct err *e)
{
    struct reader r = {.out = out, .what = what};
    if (n > SIZE_MAX_BYTES)
        return err_set(e, DS_ERANGE, "%s: %zu bytes, must be at most %d", what, n, SIZE_MAX_BYTES);
    if (!yaml_parser_initialize(&r.parser))
        return err_set(e, DS_EMEM, "%s: out of memory", what);
    yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)(n ? text : ""), n);
    read_stream(&r);
    yaml_parser_delete(&r.parser);
    int rc = r.code;
    if (rc < 0)
        err_set(e, rc, "%s", r.errors.failed ? "out of memory" : str_text(&r.errors));
    str_release(&r.errors);
    return rc;
}

int config_read_yaml_text(struct config *c, const char *text, size_t n, const char *what,
                          struct err *e)
{
    struct config fresh = {0};
    int rc = parse(&fresh, text, n, what, e);
    if (rc == 0)
        rc = config_merge(c, &fresh, e);
    config_release(&fresh);
    return rc;
}

/* The file named by `extends`, in the same directory only. */
static int parent_path(char *out, size_t size, const char *path, const char *name, struct err *e)
{
    const char *slash = strrchr(path, '/');
    size_t n = strlen(name);
    if (!fs_name_ok(name))
        return err_set(e, DS_EFORMAT, "%s: extends '%.80s': expected a file name", path, name);
    const char *tail = n > 5 && strcmp(name + n - 5, ".yaml") == 0 ? "" : ".yaml";
    int k = snprintf(out, size, "%.*s%s%s", slash ? (int)(slash - path + 1) : 0, path, name, tail);
    if (k < 0 || (size_t)k >= size)
        return err_set(e, DS_ERANGE, "%.200s: path too long", path);
    return 0;
}

static int read_file(struct config *out, const char *path, int depth, struct err *e)
{
    char parent[4096];
    struct config own = {0};
    struct str text = {0};
    const char *slash = strrchr(path, '/');
    int rc = fs_read_file(&text, path, SIZE_MAX_BYTES, e);
    if (rc == 0)
        rc = parse(&own, text.p, text.len, slash ? slash + 1 : path, e);
    str_release(&text);
    const char *base = rc == 0 ? config_get(&own, "extends") : NULL;
    if (base && depth >= EXTENDS_MAX)
        rc = err_set(e, DS_EFORMAT, "%s: extends '%.80s': loop, or more than %d files", path, base,
                     EXTENDS_MAX);
    else if (base)
        rc = parent_path(parent, sizeof parent, path, base, e);
    if (base && rc == 0)
        rc = read_file(out, parent, depth + 1, e);
    config_remove(&own, "extends");
    if (rc == 0)
        rc = config_merge(out, &own, e);
    config_release(&own);
    return rc;
}

int config_read_yaml(struct config *c, const char *path, struct err *e)
{
    struct config fresh = {0};
    int rc = read_file(&fresh, path, 0, e);
    if (rc == 0)
        rc = config_merge(c, &fresh, e);
    config_release(&fresh);
    return rc;
}
