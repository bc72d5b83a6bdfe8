/* Reads and finds theme files. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/embedded.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/nearest.h"
#include "base/process.h"
#include "base/str.h"
#include "figures/palette.h"

enum { THEME_BYTES_MAX = 1 << 20, INHERIT_MAX = 8, PALETTE_MAX = 64 };

/* ---- reading a theme file
 * ------------------------------------------------------------------------ */

struct parser {
    struct theme *t;
    struct str *warnings;
    const char *what;
    int line, depth;
    unsigned char seen[ROLE_COUNT];
    struct {
        char name[32];
        struct colour c;
    } palette[PALETTE_MAX];
    int palette_n;
    int inherits;
    int reads_inherit; /* the first pass: what is inherited comes before all else, on any line */
};

static void warn(struct parser *p, const char *fmt, ...) DS_PRINTF(2, 3);
static void warn(struct parser *p, const char *fmt, ...)
{
    va_list ap;
    if (!p->warnings || p->reads_inherit)
        return;
    str_addf(p->warnings, "%s:%d: ", p->what, p->line);
    va_start(ap, fmt);
    str_vaddf(p->warnings, fmt, ap);
    va_end(ap);
    str_add_char(p->warnings, '\n');
}

/* Nearest of the 16 colours in RGB, for themes that give no number. */
static int nearest_ansi(int rgb)
{
    int best = 7;
    long best_d = -1;
    for (int i = 0; i < 16; i++) {
        long d = 0;
        for (int s = 0; s <= 16; s += 8) {
            long diff = (rgb >> s & 255) - (colour16_rgb(i) >> s & 255);
            d += diff * diff;
        }
        if (best_d < 0 || d < best_d) {
            best_d = d;
            best = i;
        }
    }
    return best;
}

/* "red", "bright-blue", "9"; -1 unknown. */
static int ansi_find(const char *w)
{
    char *end;
    long v = strtol(w, &end, 10);
    if (end != w && *end == '\0')
        return v >= 0 && v < 16 ? (int)v : -1;
    for (int i = 0; i < 16; i++)
        if (strcmp(colour16_name(i), w) == 0)
            return i;
    return -1;
}

/* "#RRGGBB" or "#RGB"; -1 otherwise. */
static int hex_colour(const char *w)
{
    size_t n = strlen(w);
    if (w[0] != '#' || (n != 7 && n != 4) || strspn(w + 1, "0123456789abcdefABCDEF") != n - 1)
        return -1;
    long v = strtol(w + 1, NULL, 16);
    if (n == 7)
        return (int)v;
    return (int)((v >> 8 & 15) * 0x110000 + (v >> 4 & 15) * 0x1100 + (v & 15) * 0x11);
}

static int take_base(struct parser *p, struct colour *c, const char *w)
{
    int v = hex_colour(w);
    if (v >= 0) {
        *c = (struct colour){.rgb = v, .ansi = nearest_ansi(v)};
        return 1;
    }
    if (strcmp(w, "default") == 0) {
        *c = (struct colour){.rgb = -1, .ansi = -1};
        return 1;
    }
    for (int i = 0; i < p->palette_n; i++)
        if (strcmp(p->palette[i].name, w) == 0) {
            *c = p->palette[i].c;
            return 1;
        }
    v = w[0] == '#' ? -1 : ansi_find(w);
    if (v >= 0)
        *c = (struct colour){.rgb = -1, .ansi = v};
    return v >= 0;
}

static int take_attribute(struct colour *c, const char *w)
{
    if (strcmp(w, "bold") == 0)
        c->bold = 1;
    else if (strcmp(w, "dim") == 0)
        c->dim = 1;
    else if (strcmp(w, "underline") == 0)
        c->underline = 1;
    else if (strcmp(w, "reverse") == 0)
        c->reverse = 1;
    else
        return 0;
    return 1;
}

/* COLOUR [ansi N] [bold] [dim] [underline] [reverse]; 0 and a warning when malformed. */
static int parse_colour(struct parser *p, struct colour *c, char *value)
{
    struct colour got = {.rgb = -1, .ansi = -1};
    int words = 0, wants_ansi = 0;
    for (char *w = value, *next; *w; w = next) {
        size_t n = strcspn(w, " \t");
        next = w + n + strspn(w + n, " \t");
        w[n] = '\0';
        if (wants_ansi) {
            got.ansi = ansi_find(w);
            wants_ansi = 0;
            if (got.ansi >= 0)
                continue;
        } else if (words++ == 0 ? take_base(p, &got, w) : take_attribute(&got, w))
            continue;
        else if (strcmp(w, "ansi") == 0) {
            wants_ansi = 1;
            continue;
        }
        warn(p, "unknown colour or attribute \"%s\"", w);
        return 0;
    }
    if (words == 0 || wants_ansi) {
        warn(p, "missing colour");
        return 0;
    }
    *c = got;
    return 1;
}

static void unknown_key(struct parser *p, const char *key)
{
    char hint[NEAREST_MAX + 32];
    struct nearest best = nearest_to(key);
    for (int i = 0; i < ROLE_COUNT; i++)
        nearest_try(&best, role_name((enum role)i));
    warn(p, "unknown key \"%s\"%s", key, nearest_hint(&best, hint, sizeof hint));
}

static void take_palette(struct parser *p, const char *name, char *value)
{
    struct colour c;
    if (p->palette_n == PALETTE_MAX) {
        warn(p, "too many palette entries: expected at most %d", PALETTE_MAX);
        return;
    }
    if (!parse_colour(p, &c, value))
        return;
    str_copy(p->palette[p->palette_n].name, sizeof p->palette[0].name, name);
    p->palette[p->palette_n++].c = c;
}

static void take_map(struct parser *p, char *to, size_t size, const char *value)
{
    if (cmap_known(value))
        str_copy(to, size, value);
    else
        warn(p, "unknown colour map \"%s\"", value);
}

static int unknown_theme(const char *name, struct err *e)
{
    char **names = NULL, hint[NEAREST_MAX + 32];
    size_t n = 0;
    struct nearest best = nearest_to(name);
    if (theme_list(&names, &n, NULL) == 0)
        for (size_t i = 0; i < n; i++)
            nearest_try(&best, names[i]);
    if (names)
        fs_list_free(names, n);
    return err_set(e, DS_ENOTFOUND, "theme %s: not found%s", name,
                   nearest_hint(&best, hint, sizeof hint));
}

static int load_named(struct theme *t, const char *name, struct str *warnings, int depth,
                      struct err *e);

static int take_line(struct parser *p, const char *key, char *value, struct err *e)
{
    struct theme *t = p->t;
    int role = role_find(key), is_inherit = strcmp(key, "inherit") == 0;
    if (is_inherit != p->reads_inherit)
        return 0;
    if (is_inherit) {
        char own[sizeof t->name];
        str_copy(own, sizeof own, t->name);
        int rc = load_named(t, value, p->warnings, p->depth + 1, e);
        str_copy(t->name, sizeof t->name, own);
        p->inherits = 1;
        return rc;
    }
    if (role >= 0) {
        p->seen[role] = 1;
        parse_colour(p, &t->role[role], value);
    } else if (strcmp(key, "kind") == 0) {
        if (strcmp(value, "light") != 0 && strcmp(value, "dark") != 0)
            warn(p, "kind = %s: expected light or dark", value);
        t->is_light = strcmp(value, "light") == 0;
    } else if (strcmp(key, "map.sequential") == 0)
        take_map(p, t->sequential, sizeof t->sequential, value);
    else if (strcmp(key, "map.diverging") == 0)
        take_map(p, t->diverging, sizeof t->diverging, value);
    else if (strncmp(key, "palette.", 8) == 0 && key[8])
        take_palette(p, key + 8, value);
    else
        unknown_key(p, key);
    return 0;
}

/* '#' starts a comment at the start of a line and between blanks; "#fff" is a colour. */
static void cut_comment(char *s)
{
    for (char *h = s; (h = strchr(h, '#')) != NULL; h++)
        if (strspn(s, " \t") == (size_t)(h - s) ||
            (strchr(" \t", h[-1]) && strchr(" \t\r", h[1]))) {
            *h = '\0';
            return;
        }
}

static char *trim(char *s)
{
    s += strspn(s, " \t\r");
    for (size_t n = strlen(s); n > 0 && strchr(" \t\r", s[n - 1]);)
        s[--n] = '\0';
    return s;
}

static int parse_text(struct parser *p, const char *text, size_t n, struct err *e)
{
    char line[512];
    p->line = 0;
    for (size_t at = 0; at < n;) {
        const char *nl = memchr(text + at, '\n', n - at);
        size_t len = nl ? (size_t)(nl - text) - at : n - at;
        p->line++;
        if (len >= sizeof line || memchr(text + at, '\0', len)) {
            warn(p, len >= sizeof line ? "line too long" : "unexpected NUL byte");
            at += len + 1;
            continue;
        }
        memcpy(line, text + at, len);
        line[len] = '\0';
        at += len + 1;
        cut_comment(line);
        char *key = trim(line), *eq = strchr(key, '=');
        if (!*key)
            continue;
        if (!eq) {
            warn(p, "\"%s\": expected key = value", key);
            continue;
        }
        *eq = '\0';
        int rc = take_line(p, trim(key), trim(eq + 1), e);
        if (rc < 0)
            return err_add(e, rc, "%s:%d", p->what, p->line);
    }
    return 0;
}

static int parse_at(struct theme *t, const char *text, size_t n, const char *what,
                    struct str *warnings, int depth, struct err *e)
{
    struct parser p = {
        .t = t, .warnings = warnings, .what = what, .depth = depth, .reads_inherit = 1};
    int rc = parse_text(&p, text, n, e), seen = p.inherits;
    p.reads_inherit = 0;
    if (rc == 0)
        rc = parse_text(&p, text, n, e);
    for (int i = 0; i < ROLE_COUNT; i++)
        seen |= p.seen[i];
    if (rc == 0 && n > 0 && !seen)
        rc = err_set(e, DS_EFORMAT, "%s: not a theme: expected lines ROLE = COLOUR", what);
    for (int i = 0; rc == 0 && !p.inherits && i < ROLE_COUNT; i++)
        if (!p.seen[i])
            warn(&p, "missing role \"%s\"; using the default", role_name((enum role)i));
    return rc;
}

int theme_parse(struct theme *t, const char *text, size_t n, const char *what, struct str *warnings,
                struct err *e)
{
    struct theme got = *t;
    int rc = parse_at(&got, text, n, what, warnings, 0, e);
    if (rc == 0)
        *t = got;
    return rc;
}

/* ---- finding theme files
 * -------------------------------------------------------------------------- */

enum { PLACES = 5 };

/* The i-th directory of the search order; 0 when it does not apply. */
static int place(int i, char *out, size_t size)
{
    char exe[1024];
    int n = 0;
    if (i == 0 && fs_config_dir(exe, sizeof exe))
        n = snprintf(out, size, "%s/themes", exe);
    else if (i == 1 || i == 2) {
        char *slash = process_path(exe, sizeof exe) ? strrchr(exe, '/') : NULL;
        if (!slash)
            return 0;
        *slash = '\0';
        n = snprintf(out, size, i == 1 ? "%s/themes" : "%s/../share/depthscope/themes", exe);
    } else if (i == 3)
        n = snprintf(out, size, "themes");
    else if (i == 4)
        n = snprintf(out, size, EMBEDDED_ROOT "/themes");
    return n > 0 && (size_t)n < size && fs_is_dir(out);
}

static int find_file(char *out, size_t size, const char *name)
{
    char dir[1200];
    if (strchr(name, '/') || (strlen(name) > 6 && strcmp(name + strlen(name) - 6, ".theme") == 0)) {
        str_copy(out, size, name);
        return fs_exists(out);
    }
    for (int i = 0; i < PLACES; i++) {
        if (!place(i, dir, sizeof dir))
            continue;
        int n = snprintf(out, size, "%s/%s.theme", dir, name);
        if (n > 0 && (size_t)n < size && fs_exists(out))
            return 1;
    }
    return 0;
}

static void name_of(struct theme *t, const char *path)
{
    const char *base = strrchr(path, '/');
    str_copy(t->name, sizeof t->name, base ? base + 1 : path);
    size_t n = strlen(t->name);
    if (n > 6 && strcmp(t->name + n - 6, ".theme") == 0)
        t->name[n - 6] = '\0';
}

static int load_named(struct theme *t, const char *name, struct str *warnings, int depth,
                      struct err *e)
{
    struct str text = {0};
    char path[1500];
    struct theme got;
    int rc = 0, is_light = strcmp(name, "light") == 0;
    if (depth > INHERIT_MAX)
        return err_set(e, DS_EFORMAT, "theme %s: inherit: circular or nested too deeply", name);
    if (is_light)
        theme_default_light(&got);
    else
        theme_default(&got);
    str_copy(got.name, sizeof got.name, name);
    if (!find_file(path, sizeof path, name)) {
        if (!is_light && strcmp(name, "dark") != 0)
            return unknown_theme(name, e);
        *t = got;
        return 0;
    }
    rc = fs_read_file(&text, path, THEME_BYTES_MAX, e);
    if (rc == 0)
        rc = parse_at(&got, str_text(&text), text.len, path, warnings, depth, e);
    if (rc == 0) {
        name_of(&got, path);
        *t = got;
    }
    str_release(&text);
    return rc;
}

int theme_load(struct theme *t, const char *name, struct str *warnings, struct err *e)
{
    return load_named(t, name, warnings, 0, e);
}

void theme_warn(const struct str *warnings)
{
    const char *text = str_text(warnings);
    int first = (int)strcspn(text, "\n"), lines = 0;
    for (const char *p = text; (p = strchr(p, '\n')); p++)
        lines++;
    if (lines > 1)
        log_warn("%.*s (and %d more)", first, text, lines - 1);
    else if (lines == 1)
        log_warn("%.*s", first, text);
}

/* ---- the list
 * -------------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int add_name(char ***names, size_t *n, size_t *cap, const char *name, size_t len)
{
    for (size_t i = 0; i < *n; i++)
        if (strlen((*names)[i]) == len && memcmp((*names)[i], name, len) == 0)
            return 0;
    void *block = *names;
    if (mem_grow(&block, cap, *n + 1, sizeof **names) < 0)
        return DS_EMEM;
    *names = block;
    char *copy = mem_alloc(len + 1, 1);
    if (!copy)
        return DS_EMEM;
    memcpy(copy, name, len);
    (*names)[(*n)++] = copy;
    return 0;
}

int theme_list(char ***names, size_t *n, struct err *e)
{
    char **got = NULL, **files, dir[1200];
    size_t count = 0, cap = 0, n_files;
    int rc = add_name(&got, &count, &cap, "dark", 4);
    if (rc == 0)
        rc = add_name(&got, &count, &cap, "light", 5);
    for (int i = 0; rc == 0 && i < PLACES; i++) {
        if (!place(i, dir, sizeof dir) || fs_list(dir, &files, &n_files, NULL) < 0)
            continue;
        for (size_t f = 0; rc == 0 && f < n_files; f++) {
            size_t len = strlen(files[f]);
            if (len > 6 && strcmp(files[f] + len - 6, ".theme") == 0)
                rc = add_name(&got, &count, &cap, files[f], len - 6);
        }
        fs_list_free(files, n_files);
    }
    if (rc < 0) {
        fs_list_free(got, count);
        return err_set(e, rc, "themes: out of memory");
    }
    qsort(got, count, sizeof *got, by_name);
    *names = got;
    *n = count;
    return 0;
}
