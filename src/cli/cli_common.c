/* Helpers that the subcommands share: settings, presets, seeds, text and output. */
#include "cli/cli.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/config.h"
#include "base/fs.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "data/hops.h"
#include "routing/route.h"
#include "training/job.h"

int cli_apply(const struct cli_args *a, const struct opt_group *g, void *values, struct err *e)
{
    struct config c = {0};
    char where[32];
    int rc = opt_defaults(g, values, e);
    for (int i = 0; i < a->n_override && rc == 0; i++) {
        snprintf(where, sizeof where, "setting %d", i + 1);
        rc = config_override(&c, a->override[i], where, e);
    }
    if (rc == 0)
        rc = config_apply(&c, g, values, e);
    if (rc == 0)
        rc = config_check_unused(&c, &g, 1, e);
    config_release(&c);
    if (rc < 0)
        opt_release(g, values);
    return rc;
}

/* A method's option, or one of generated data. */
static int names_a_method(const char *key)
{
    char name[40];
    size_t n = strcspn(key, ".");
    if (!key[n] || n >= sizeof name)
        return 0;
    memcpy(name, key, n);
    name[n] = '\0';
    return route_find(name) != NULL || opt_find(&hops_group, key) != NULL;
}

int cli_take_options(struct cli_args *a, struct config *options, struct err *e)
{
    struct override o;
    int rc = 0, kept = 0;
    for (int i = 0; i < a->n_override; i++) {
        const char *text = a->override[i];
        if (override_parse(&o, text, "", NULL) < 0 || !names_a_method(o.key))
            a->override[kept++] = text;
        else if (rc == 0)
            rc = config_override(options, text, "command line", e);
    }
    a->n_override = kept;
    return rc;
}

int cli_has_setting(const struct cli_args *a, const struct opt_group *g, const char *key)
{
    const struct opt *want = opt_find(g, key);
    struct override o;
    int has = 0;
    BUG_IF(!want, "key %s is not in the table", key);
    for (int i = 0; i < a->n_override; i++)
        if (override_parse(&o, a->override[i], "", NULL) == 0 && opt_find(g, o.key) == want)
            has = o.op != OVERRIDE_REMOVE;
    return has;
}

int cli_refuse_settings(const struct cli_args *a, const struct opt_group *g, const char *const *key,
                        size_t n, const char *why, struct err *e)
{
    for (size_t i = 0; i < n; i++)
        if (cli_has_setting(a, g, key[i]))
            return err_set(e, DS_EUSAGE, "%s=: %s", key[i], why);
    return 0;
}

int cli_seed_setting(const char *override, const char **value)
{
    struct override o;
    if (override_parse(&o, override, "", NULL) < 0 || strcmp(o.key, "seed") != 0 || !o.value)
        return 0;
    *value = o.value;
    return 1;
}

int cli_single(const struct cli_args *a, const char *command, const char *what, const char **out,
               struct err *e)
{
    if (a->n_rest == 0)
        return err_set(e, DS_EUSAGE, "%s: missing argument %s (depthscope help %s)", command, what,
                       command);
    if (a->n_rest > 1)
        return err_set(e, DS_EUSAGE, "%s: expected one %s, found also %s", command, what,
                       a->rest[1]);
    *out = a->rest[0];
    return 0;
}

int cli_presets(const struct cli_args *a, const char ***preset, size_t *n, struct err *e)
{
    static const char *const modes[] = {"quick", "scratch", "transfer"};
    const char *mode = cli_value(a, "mode");
    int known = 0;
    for (size_t i = 0; mode && i < DS_LEN(modes); i++)
        known += strcmp(mode, modes[i]) == 0;
    if (mode && !known)
        return err_set(e, DS_EUSAGE,
                       "--mode %s: expected quick, scratch or transfer; did you mean %s?", mode,
                       cli_nearest(mode, modes, DS_LEN(modes)));
    const char **list = mem_alloc((size_t)a->n_rest + 1, sizeof *list);
    if (!list)
        return err_set(e, DS_EMEM, "presets: out of memory");
    size_t k = 0;
    for (int i = 0; i < a->n_rest; i++)
        list[k++] = a->rest[i];
    if (mode)
        list[k++] = mode;
    *preset = list;
    *n = k;
    return 0;
}

static int read_stdin(struct str *out, uint64_t cap, struct err *e)
{
    char buf[16384];
    size_t got;
    for (;;) {
        int rc = fs_read_some(STDIN_FILENO, buf, sizeof buf, &got, "standard input", e);
        if (rc < 0 || got == 0)
            return rc;
        str_add_bytes(out, buf, got);
        if (out->failed)
            return err_set(e, DS_EMEM, "standard input: out of memory");
        if (out->len > cap)
            return err_set(e, DS_ERANGE, "standard input: must be at most %llu bytes",
                           (unsigned long long)cap);
    }
}

int cli_read_text(struct str *out, const char *path, uint64_t cap, struct err *e)
{
    int rc = strcmp(path, "-") == 0 ? read_stdin(out, cap, e) : fs_read_file(out, path, cap, e);
    if (rc == 0 && out->len >= 3 && memcmp(out->p, "\xef\xbb\xbf", 3) == 0) {
        out->len -= 3;
        memmove(out->p, out->p + 3, out->len + 1);
    }
    return rc;
}

static int add_seed(int64_t *seed, size_t *n, const char *p, const char *end, const char *text,
                    struct err *e)
{
    char *stop;
    errno = 0;
    long long v = strtoll(p, &stop, 10);
    if (stop != end || stop == p || errno || v < 0 || *p == '+' || *p == ' ')
        return err_set(e, DS_EUSAGE, "seeds \"%s\": %.*s: must be a non-negative integer", text,
                       (int)(end - p), p);
    for (size_t i = 0; i < *n; i++)
        if (seed[i] == v)
            return err_set(e, DS_EUSAGE, "seeds \"%s\": duplicate %lld", text, v);
    seed[(*n)++] = v;
    return 0;
}

int cli_seeds(int64_t **seed, size_t *n, const char *text, struct err *e)
{
    int64_t *v = mem_alloc(strlen(text) / 2 + 1, sizeof *v);
    int rc = v ? 0 : err_set(e, DS_EMEM, "seeds");
    size_t k = 0;
    for (const char *p = text; rc == 0; p++) {
        const char *end = p + strcspn(p, ",");
        rc = add_seed(v, &k, p, end, text, e);
        p = end;
        if (!*p)
            break;
    }
    if (rc == 0 && k > CLI_SEEDS_MAX)
        rc = err_set(e, DS_EUSAGE, "%zu seeds: expected at most %d", k, (int)CLI_SEEDS_MAX);
    if (rc < 0) {
        mem_free(v);
        return rc;
    }
    *seed = v;
    *n = k;
    return 0;
}

int cli_run_path(char *out, size_t size, const char *run, struct err *e)
{
    int rc = job_find(out, size, run, e);
    if (rc)
        return rc < 0 ? rc : 0;
    char hint[NEAREST_MAX + 32], path[1100];
    if (fs_check_reach(run, e) < 0 ||
        (fs_name_ok(run) && fs_join(path, sizeof path, job_root(), run, NULL) == 0 &&
         fs_check_reach(path, e) < 0))
        return DS_EIO;
    return err_set(e, DS_ENOTFOUND, "%s: no run or file of this name found in . or %s%s", run,
                   job_root(), cli_run_hint(run, 0, hint, sizeof hint));
}

void cli_add_safe(struct str *out, const char *text, size_t n, int cells)
{
    utf8_sanitise(out, text, n, cells, !utf8_locale_is_utf8());
}

int cli_write(const void *p, size_t n, struct err *e)
{
    return fs_write_all(STDOUT_FILENO, p, n, "standard output", e);
}

int cli_write_text(const struct str *s, struct err *e)
{
    return s->failed ? err_set(e, DS_EMEM, "out of memory for the output")
                     : cli_write(str_text(s), s->len, e);
}

int cli_stdout_closed(int wait_ms)
{
    struct pollfd p = {.fd = STDOUT_FILENO};
    return poll(&p, 1, wait_ms) > 0 && (p.revents & (POLLERR | POLLHUP | POLLNVAL));
}

int cli_print(struct str *s)
{
    struct err e = {0};
    int rc = cli_write_text(s, &e);
    str_release(s);
    return rc < 0 ? command_fail(&e) : 0;
}

int cli_has_colour(FILE *stream)
{
    const char *none = getenv("NO_COLOR"), *term = getenv("TERM");
    return isatty(fileno(stream)) && !(none && none[0]) && term && strcmp(term, "dumb") != 0;
}

int cli_report(int argc, char **argv, struct cli_option *options,
               int (*make)(const struct cli_args *a, struct str *out, struct err *e))
{
    struct err e = {0};
    struct cli_args a;
    struct str out = {0};
    int rc = cli_parse(&a, options, argc, argv, &e);
    if (rc < 0)
        return command_fail(&e);
    rc = make(&a, &out, &e);
    cli_release(&a);
    if (rc < 0) {
        str_release(&out);
        return command_fail(&e);
    }
    return cli_print(&out);
}

/* ---- help ---- */

void cli_add_wrapped(struct str *out, const char *text, int at, int indent, int width)
{
    for (const char *p = text; *p;) {
        size_t n = strcspn(p, " ");
        int cells = utf8_cells(p, n);
        if (width > 0 && at > indent && at + 1 + cells > width) {
            str_addf(out, "\n%*s", indent, "");
            at = indent;
        } else if (at > indent) {
            str_add_char(out, ' ');
            at++;
        }
        str_add_bytes(out, p, n);
        at += cells;
        p += n + (p[n] == ' ');
    }
}

void cli_add_entry(struct str *out, const char *left, const char *text, int column, int width)
{
    int cells = utf8_cells(left, strlen(left)), is_long;
    if (width > 0 && width < 60)
        column = 6;
    is_long = cells + 2 > column;
    str_add(out, left);
    if (text[0]) {
        if (is_long && width > 0)
            str_add_char(out, '\n');
        str_addf(out, "%*s", !is_long ? column - cells : width > 0 ? column : 2, "");
        cli_add_wrapped(out, text, column, column, width);
    }
    str_add_char(out, '\n');
}

/* Where the text begins that follows blanks: at the start, or two of them in the left half, about. */
static int text_column(const char *line, int n, int width)
{
    int column = (int)strspn(line, " ");
    for (int i = column; i + 3 < n && i + 2 <= width * 11 / 20; i++)
        if (line[i] == ' ' && line[i + 1] == ' ' && line[i + 2] != ' ' &&
            (i == 0 || line[i - 1] != '.')) /* that is the end of a sentence */
            column = i + 2;
    return column < n ? column : 0;
}

void cli_add_lines(struct str *out, const char *text, int width)
{
    for (const char *p = text; *p;) {
        struct str rest = {0};
        int n = (int)strcspn(p, "\n"), column = text_column(p, n, width);
        str_add_bytes(out, p, (size_t)column);
        str_add_bytes(&rest, p + column, (size_t)(n - column));
        cli_add_wrapped(out, str_text(&rest), column, column, width);
        out->failed |= rest.failed;
        str_release(&rest);
        str_add_char(out, '\n');
        p += n + (p[n] == '\n');
    }
}
