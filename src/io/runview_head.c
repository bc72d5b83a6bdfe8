/* Head, end and event records into a run view. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/decimal.h"
#include "base/log.h"
#include "base/mem.h"
#include "io/alert.h"
#include "io/experts.h"
#include "io/runview_parts.h"

enum {
    LAYERS_MAX = 4096,
    CONFIGS_MAX = 4096,
    METAS_MAX = 1024,
    TEXT_MAX = 1 << 16,
    EVENTS_MAX = 1 << 16,
    FORMAT = 1
};

void runview_no_memory(struct runview *v)
{
    v->index->is_failed = 1;
}

/* Room for one more; 0 when there is none. */
int runview_room(struct runview *v, void **p, size_t *cap, size_t n, size_t size)
{
    if (n < *cap)
        return 1;
    if (mem_grow(p, cap, n + 1, size) == 0)
        return 1;
    runview_no_memory(v);
    return 0;
}

/* ---- events -------------------------------------------------------------------------------------
 */

void runview_event_release(struct run_event *x)
{
    mem_free(x->name);
    mem_free(x->text);
}

const char *runview_source(const struct runview *v, char *out, size_t size)
{
    const char *text[] = {v->framework, v->gpu};
    struct str all = str_in(out, size);
    for (size_t i = 0; i < DS_LEN(text); i++)
        if (text[i][0])
            str_addf(&all, "%s%s", all.len ? ", " : "", text[i]);
    if (v->world_size > 0)
        str_addf(&all, "%s%" PRId64 " rank%s", all.len ? ", " : "", v->world_size,
                 v->world_size > 1 ? "s" : "");
    if (v->project[0])
        str_addf(&all, "%sproject %s", all.len ? ", " : "", v->project);
    return out;
}

static void event_put(struct runview *v, struct run_event x)
{
    void *p = v->event;
    if (v->n_events >= EVENTS_MAX) { /* drop the oldest quarter */
        size_t cut = EVENTS_MAX / 4;
        for (size_t i = 0; i < cut; i++)
            runview_event_release(&v->event[i]);
        v->n_events -= cut;
        v->events_dropped += cut;
        memmove(v->event, v->event + cut, v->n_events * sizeof *v->event);
    }
    if (!x.name || !x.text || !runview_room(v, &p, &v->cap_events, v->n_events, sizeof *v->event)) {
        runview_no_memory(v);
        runview_event_release(&x);
        return;
    }
    v->event = p;
    v->event[v->n_events++] = x;
}

void runview_event_add(struct runview *v, int64_t step, double time, int level, const char *name,
                       const char *text)
{
    event_put(v, (struct run_event){step, time, level, mem_strdup(name), mem_strdup(text), 0,
                                    (double)NAN});
}

static int level_of(struct value level)
{
    if (value_is(level, "error"))
        return LOG_ERROR;
    if (value_is(level, "warn") || value_is(level, "warning"))
        return LOG_WARN;
    return value_is(level, "debug") ? LOG_DEBUG : LOG_INFO;
}

/* ---- commands ---- */

/* An array of names in a head, names separated by blanks in an event. */
static void take_commands(struct runview *v, struct value list)
{
    struct value_iter it = {0};
    struct value item;
    struct str all = {0};
    size_t n;
    const char *p = value_bytes(list, &n);
    if (p)
        str_add_bytes(&all, p, n < TEXT_MAX ? n : TEXT_MAX);
    while (value_kind(list) == VALUE_ARRAY && all.len < TEXT_MAX &&
           value_next(list, &it, NULL, &item))
        if ((p = value_bytes(item, &n)) && n < 64) {
            str_add(&all, all.len ? " " : "");
            str_add_bytes(&all, p, n);
        }
    char *copy = all.failed ? NULL : mem_strdup(str_text(&all));
    str_release(&all);
    if (!copy)
        runview_no_memory(v);
    mem_free(v->commands);
    v->commands = copy;
}

int runview_answers(const struct runview *v, const char *command)
{
    size_t n = strlen(command);
    for (const char *p = v->commands; p && *p; p += strspn(p, " ")) {
        size_t len = strcspn(p, " ");
        if (len == n && memcmp(p, command, n) == 0)
            return 1;
        p += len;
    }
    return v->commands == NULL;
}

void runview_take_event(struct runview *v, struct value body, const struct record_common *c)
{
    struct value name = value_get(body, "name");
    if (value_is(name, "commands"))
        take_commands(v, value_get(body, "text"));
    event_put(v, (struct run_event){
                     c->step, c->time, level_of(value_get(body, "level")), text_copy(name, 256),
                     text_copy(value_get(body, "text"), TEXT_MAX), alert_of_event(body),
                     value_num(value_get(body, "value"), (double)NAN)});
}

/* ---- head and end
 * --------------------------------------------------------------------------------- */

static void set_text(struct runview *v, char **field, struct value text)
{
    if (value_kind(text) == VALUE_NONE)
        return;
    if (!value_bytes(text, NULL)) {
        v->invalid += value_kind(text) != VALUE_NIL;
        return;
    }
    char *copy = text_copy(text, TEXT_MAX);
    if (!copy) {
        runview_no_memory(v);
        return;
    }
    mem_free(*field);
    *field = copy;
}

#define HEAD_TEXTS(v)                                                                              \
    {                                                                                              \
        &(v)->method, &(v)->version, &(v)->host, &(v)->parent, &(v)->writer, &(v)->framework,      \
            &(v)->gpu, &(v)->project                                                               \
    }

void runview_head_release(struct runview *v)
{
    char **texts[] = HEAD_TEXTS(v);
    for (size_t i = 0; i < DS_LEN(texts); i++)
        mem_free(*texts[i]);
    mem_free(v->commands);
}

void runview_head_clear(struct runview *v)
{
    char **texts[] = HEAD_TEXTS(v);
    v->commands = NULL;
    for (size_t i = 0; i < DS_LEN(texts); i++)
        if (!(*texts[i] = mem_strdup("")))
            runview_no_memory(v);
}

static int64_t count_of(struct runview *v, struct value n, int64_t old)
{
    int64_t x = value_int(n, -1);
    if (value_kind(n) == VALUE_NONE || value_kind(n) == VALUE_NIL)
        return old;
    v->invalid += x < 0;
    return x < 0 ? old : x;
}

/* Earlier versions wrote the number 300 as "3e+02"; as text the settings of old and new runs would
 * differ. */
static char *config_string(struct value v)
{
    char *text = text_copy(v, TEXT_MAX), plain[DECIMAL_TEXT];
    size_t n = text ? strlen(text) : 0;
    double x;
    if (!text || !strstr(text, "e+") || decimal_read(text, n, '.', &x) != n || !isfinite(x))
        return text;
    decimal_print(x, plain);
    mem_free(text);
    return mem_strdup(plain);
}

static char *config_text(struct value v)
{
    char text[40];
    double x;
    if (value_kind(v) == VALUE_INT)
        snprintf(text, sizeof text, "%" PRId64, value_int(v, 0));
    else if (value_kind(v) == VALUE_BOOL)
        snprintf(text, sizeof text, "%s", value_num(v, 0) > 0 ? "true" : "false");
    else if (value_kind(v) != VALUE_STR && value_is_num(v, &x))
        decimal_print(x, text);
    else
        return config_string(v);
    return mem_strdup(text);
}

void runview_config_release(struct runview *v)
{
    for (size_t i = 0; i < v->configs; i++) {
        mem_free(v->config_key[i]);
        mem_free(v->config_value[i]);
    }
    mem_free(v->config_key);
    mem_free(v->config_value);
    v->config_key = v->config_value = NULL;
    v->configs = 0;
}

/* Room for n more entries. */
static int config_grow(struct runview *v, size_t n)
{
    char **keys = mem_realloc(v->config_key, v->configs + n + 1, sizeof *keys);
    v->config_key = keys ? keys : v->config_key;
    char **values = mem_realloc(v->config_value, v->configs + n + 1, sizeof *values);
    v->config_value = values ? values : v->config_value;
    if (!keys || !values)
        runview_no_memory(v);
    return keys && values;
}

static void config_put(struct runview *v, char *key, char *text)
{
    size_t i = 0;
    if (!key || !text) {
        runview_no_memory(v);
        mem_free(key);
        mem_free(text);
        return;
    }
    while (i < v->configs && strcmp(v->config_key[i], key) != 0)
        i++;
    if (i < v->configs) {
        mem_free(v->config_key[i]);
        mem_free(v->config_value[i]);
    }
    v->config_key[i] = key;
    v->config_value[i] = text;
    v->configs += i == v->configs;
}

static void take_config(struct runview *v, struct value map)
{
    struct value_iter it = {0};
    struct value key, item;
    size_t n = value_len(map) < CONFIGS_MAX ? value_len(map) : CONFIGS_MAX;
    if (value_kind(map) != VALUE_MAP)
        return;
    if (!runview_foreign(v)) /* other programs log their settings in parts */
        runview_config_release(v);
    if (!config_grow(v, n))
        return;
    while (n-- > 0 && v->configs < CONFIGS_MAX && value_next(map, &it, &key, &item))
        config_put(v, text_copy(key, 256), config_text(item));
}

void runview_metas_release(struct runview_index *x)
{
    for (size_t i = 0; i < x->metas; i++) {
        mem_free(x->meta[i].name);
        mem_free(x->meta[i].unit);
        mem_free(x->meta[i].help);
    }
    mem_free(x->meta);
    x->meta = NULL;
    x->metas = 0;
}

static char *metric_name(struct value v)
{
    char *name = text_copy(v, 256);
    const char *now = name ? runview_metric_name(name) : name;
    if (now == name)
        return name;
    mem_free(name);
    return mem_strdup(now);
}

static void take_metas(struct runview *v, struct value array)
{
    struct runview_index *x = v->index;
    struct value_iter it = {0};
    struct value item;
    size_t n = value_len(array) < METAS_MAX ? value_len(array) : METAS_MAX;
    if (value_kind(array) != VALUE_ARRAY)
        return;
    runview_metas_release(x);
    if (!(x->meta = mem_alloc(n + 1, sizeof *x->meta))) {
        runview_no_memory(v);
        return;
    }
    while (x->metas < n && value_next(array, &it, NULL, &item)) {
        struct metric_meta *m = &x->meta[x->metas++];
        m->name = metric_name(value_get(item, "name"));
        m->unit = text_copy(value_get(item, "unit"), 64);
        m->help = text_copy(value_get(item, "help"), 1024);
        if (!m->name || !m->unit || !m->help)
            runview_no_memory(v);
    }
}

/* Arenas and the peak belong to the writing process: a resume replaces them. */
static void take_means(struct runview *v, struct value body)
{
    struct value_iter it = {0};
    struct value key, item, map = value_get(body, "arenas"), text = value_get(body, "peak_format");
    double peak = value_num(value_get(body, "peak_gflops"), 0);
    v->peak_gflops = peak > 0 && isfinite(peak) ? peak : 0;
    if (!name_copy(v->peak_format, text))
        v->peak_format[0] = '\0';
    v->arenas = 0;
    if (value_kind(map) != VALUE_MAP)
        return;
    while (v->arenas < RUNVIEW_ARENAS && value_next(map, &it, &key, &item)) {
        struct run_arena *a = &v->arena[v->arenas];
        int is_good = name_copy(a->name, key) && value_is_num(item, &a->bytes) &&
                      isfinite(a->bytes) && a->bytes >= 0;
        v->arenas += is_good;
        v->invalid += !is_good;
    }
}

static void take_always_on(struct runview *v, struct value list)
{
    int64_t n = value_f32s(list, NULL, 0);
    if (n <= 0 || n > LAYERS_MAX)
        return;
    float *flag = mem_alloc((size_t)n, sizeof *flag);
    unsigned char *on = mem_alloc((size_t)n, 1);
    if (flag && on && value_f32s(list, flag, (size_t)n) == n) {
        for (int64_t l = 0; l < n; l++)
            on[l] = flag[l] > 0;
        mem_free(v->always_on);
        v->always_on = on;
        v->n_always_on = (int)n;
        on = NULL;
    } else if (!flag || !on) {
        runview_no_memory(v);
    }
    mem_free(on);
    mem_free(flag);
}

static int is_key(const char *text)
{
    return *text && !text[strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_.")];
}

static double limit_of(struct value v)
{
    double x;
    return value_is_num(v, &x) && isfinite(x) ? x : (double)NAN;
}

/* Belongs to the writing process, too: a head without the list has none. */
static void take_live(struct runview *v, struct value array)
{
    struct value_iter it = {0};
    struct value item;
    v->lives = 0;
    if (value_kind(array) != VALUE_ARRAY)
        return;
    while (v->lives < RUNVIEW_LIVE && value_next(array, &it, NULL, &item)) {
        struct run_live *x = &v->live[v->lives];
        int is_good = name_copy(x->key, value_get(item, "key")) && is_key(x->key);
        x->min = limit_of(value_get(item, "min"));
        x->max = limit_of(value_get(item, "max"));
        v->lives += is_good;
        v->invalid += !is_good;
    }
}

/* "KEY VALUE", or "KEY VALUE after step N; ..." where the last one holds.  Older runs wrote the key
 * as it was typed: "lr" of train.lr. */
static int read_setting(const char *text, const char *key, double *value)
{
    const char *dot = strrchr(key, '.');
    char name[64];
    double x;
    int found = 0;
    for (; text && sscanf(text, " %63s %lf", name, &x) == 2;
         text = strchr(text, ';'), text = text ? text + 1 : NULL) {
        if (strcmp(name, key) == 0 || (dot && strcmp(name, dot + 1) == 0)) {
            *value = x;
            found = 1;
        }
    }
    return found;
}

int runview_live_value(const struct runview *v, const char *key, double *value)
{
    char *end;
    const char *text = runview_config(v, key);
    for (size_t i = v->n_events; i-- > 0;) {
        const struct run_event *x = &v->event[i];
        int is_all = strcmp(x->name, "settings") == 0; /* in place of all before */
        if ((is_all || strcmp(x->name, "set") == 0) && read_setting(x->text, key, value))
            return 1;
        if (is_all)
            break;
    }
    *value = text ? strtod(text, &end) : 0;
    return text && end != text;
}

const char *runview_method_config(const struct runview *v, const char *key)
{
    char full[128];
    if (!v->method || snprintf(full, sizeof full, "%s.%s", v->method, key) >= (int)sizeof full)
        return NULL;
    return runview_config(v, full);
}

static int config_count(const struct runview *v, const char *key)
{
    const char *text = runview_method_config(v, key);
    return text ? (int)strtol(text, NULL, 10) : 0;
}

/* For streams without the list it is derived from the options that name the always-on ends. */
int runview_always_on(const struct runview *v, int l)
{
    if (v->always_on)
        return l >= 0 && l < v->n_always_on && v->always_on[l];
    return l < config_count(v, "early") ||
           (l < v->layers && l >= v->layers - config_count(v, "late"));
}

/* They belong to the writing process: a head without the list does not say. */
static void take_commands_of_head(struct runview *v, struct value list)
{
    mem_free(v->commands);
    v->commands = NULL;
    if (value_kind(list) == VALUE_ARRAY)
        take_commands(v, list);
}

void runview_take_head(struct runview *v, struct value body, const struct record_common *c)
{
    struct value resume = value_get(body, "resume"), seed = value_get(body, "seed");
    int64_t layers = count_of(v, value_get(body, "layers"), v->layers);
    int64_t format = value_int(value_get(body, "format"), FORMAT);
    v->ranks.n = 0; /* another process writes: with its first step it says how many there are */
    (void)name_copy(v->index->foreign, value_get(body, "foreign"));
    if (!v->index->is_directory)
        set_text(v, &v->name, value_get(body, "run"));
    set_text(v, &v->method, value_get(body, "method"));
    set_text(v, &v->version, value_get(body, "version"));
    set_text(v, &v->host, value_get(body, "host"));
    set_text(v, &v->parent, value_get(body, "parent"));
    set_text(v, &v->writer, value_get(body, "writer"));
    set_text(v, &v->framework, value_get(body, "framework"));
    set_text(v, &v->gpu, value_get(body, "gpu"));
    set_text(v, &v->project, value_get(body, "project"));
    v->world_size = count_of(v, value_get(body, "world_size"), v->world_size);
    take_commands_of_head(v, value_get(body, "commands"));
    v->layers = layers <= LAYERS_MAX ? (int)layers : v->layers;
    v->invalid += layers > LAYERS_MAX;
    v->steps_planned = count_of(v, value_get(body, "steps"), v->steps_planned);
    v->params = count_of(v, value_get(body, "params"), v->params);
    v->params_non_embedding =
        count_of(v, value_get(body, "params_non_embedding"), v->params_non_embedding);
    v->vocab = count_of(v, value_get(body, "vocab"), v->vocab);
    int64_t experts = count_of(v, value_get(body, "experts"), v->experts),
            per_token = count_of(v, value_get(body, "experts_per_token"), v->experts_per_token);
    v->experts = experts <= EXPERTS_MAX ? (int)experts : v->experts;
    v->experts_per_token = per_token <= EXPERTS_MAX ? (int)per_token : v->experts_per_token;
    int64_t noops = count_of(v, value_get(body, "experts_noop"), v->experts_noop);
    v->experts_noop = noops <= v->experts ? (int)noops : v->experts_noop;
    v->invalid += noops > v->experts;
    v->invalid += (experts > EXPERTS_MAX) + (per_token > EXPERTS_MAX);
    v->seed = (uint64_t)value_int(seed, (int64_t)v->seed);
    v->has_seed |= value_kind(seed) == VALUE_INT;
    v->flops_dense = value_num(value_get(body, "flops_dense"), v->flops_dense);
    take_means(v, body);
    take_always_on(v, value_get(body, "always_on"));
    take_config(v, value_get(body, "config"));
    take_metas(v, value_get(body, "metrics"));
    take_live(v, value_get(body, "live"));
    v->head_time = c->time;
    /* without it a head adds to what is known: steps that go back supersede what they repeat */
    int is_resume = value_num(resume, 0) > 0;
    if (is_resume)
        runview_order(v);
    for (size_t i = 0; is_resume && i < v->n_series && c->step >= 0; i++)
        series_resume(&v->series[i], c->step);
    if (is_resume)
        probes_supersede(v, -1, c->step);
    if (is_resume)
        matrices_supersede(v, c->step);
    if (format > FORMAT)
        runview_event_add(
            v, c->step, c->time, LOG_WARN, "format",
            "the stream has a newer format than this program supports; parts of it are not shown");
}
