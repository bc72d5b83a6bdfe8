/* Tables of text: one row per token, layer and expert, with a line of column names. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "io/routing_parts.h"

enum { CELL_MAX = 256, TABLE_COLUMNS_MAX = 256, NAMES_MAX = 1 << 20, LOOKED_AT_ROWS = 4096 };

struct table {
    struct routing_trace *t;
    const char *path, *at, *end;
    size_t line;
    char separator;
    int role[TABLE_COLUMNS_MAX]; /* of a column, -1: not read */
    int columns;
    int has[COLUMNS];
    int64_t base, top;                   /* number of this file's first text, and of its last */
    struct map names;                    /* cells of texts: their numbers */
    struct map numbers;                  /* of texts */
    int64_t free;                        /* all numbers below it are those of texts */
    struct map steps;                    /* text, step -> number of the text */
    int64_t furthest;                    /* position of a token so far in the newest of these */
    int words_are_ids;                   /* the column "token" holds ids: positions are counted */
    int is_by_layer;                     /* all tokens of a layer, then those of the next */
    int64_t word, layer, slot, position; /* of the previous row */
};

/* Lower case, with _ for anything that is not a letter or digit. */
static const struct {
    const char *name;
    enum routing_column role;
} known[] = {
    // clang-format off
    {"request", COLUMN_TEXT}, {"request_id", COLUMN_TEXT}, {"req_id", COLUMN_TEXT},
    {"sequence", COLUMN_TEXT}, {"sequence_id", COLUMN_TEXT}, {"seq", COLUMN_TEXT}, {"seq_id", COLUMN_TEXT},
    {"sample", COLUMN_TEXT}, {"sample_id", COLUMN_TEXT}, {"prompt", COLUMN_TEXT}, {"prompt_id", COLUMN_TEXT},
    {"document", COLUMN_TEXT}, {"doc", COLUMN_TEXT}, {"text", COLUMN_TEXT}, {"text_id", COLUMN_TEXT},
    {"turn", COLUMN_TEXT}, {"batch", COLUMN_TEXT},
    {"step", COLUMN_STEP}, {"iteration", COLUMN_STEP}, {"iter", COLUMN_STEP}, {"train_step", COLUMN_STEP},
    {"training_step", COLUMN_STEP}, {"call", COLUMN_STEP},
    {"position", COLUMN_TOKEN}, {"pos", COLUMN_TOKEN}, {"token_position", COLUMN_TOKEN}, {"token_pos", COLUMN_TOKEN},
    {"token_index", COLUMN_TOKEN}, {"token_idx", COLUMN_TOKEN}, {"index", COLUMN_TOKEN},
    {"token", COLUMN_WORD}, {"tok", COLUMN_WORD},
    {"token_id", COLUMN_ID}, {"input_id", COLUMN_ID}, {"id", COLUMN_ID},
    {"layer", COLUMN_LAYER}, {"layer_id", COLUMN_LAYER}, {"layer_idx", COLUMN_LAYER}, {"layer_index", COLUMN_LAYER},
    {"moe_layer", COLUMN_LAYER}, {"block", COLUMN_LAYER},
    {"slot", COLUMN_SLOT}, {"rank", COLUMN_SLOT}, {"k", COLUMN_SLOT}, {"topk_rank", COLUMN_SLOT},
    {"expert_rank", COLUMN_SLOT}, {"choice", COLUMN_SLOT},
    {"expert", COLUMN_EXPERT}, {"expert_id", COLUMN_EXPERT}, {"expert_idx", COLUMN_EXPERT}, {"expert_index", COLUMN_EXPERT},
    {"weight", COLUMN_WEIGHT}, {"expert_weight", COLUMN_WEIGHT}, {"router_weight", COLUMN_WEIGHT},
    {"routing_weight", COLUMN_WEIGHT}, {"gate", COLUMN_WEIGHT}, {"gate_weight", COLUMN_WEIGHT},
    {"prob", COLUMN_WEIGHT}, {"probability", COLUMN_WEIGHT}, {"score", COLUMN_WEIGHT},
    {"phase", COLUMN_PHASE},
    // clang-format on
};
static const char *const role_name[COLUMNS] = {"text",  "step", "position", "token",  "token_id",
                                               "layer", "rank", "expert",   "weight", "phase"};

int routing_int(const char **p, const char *end, int64_t *out)
{
    const char *at = *p;
    int is_negative = at < end && *at == '-';
    uint64_t v = 0;
    at += is_negative || (at < end && *at == '+');
    const char *digits = at;
    for (; at < end && *at >= '0' && *at <= '9'; at++) {
        if (v > (INT64_MAX - 9) / 10)
            return 0;
        v = v * 10 + (uint64_t)(*at - '0');
    }
    if (at == digits)
        return 0;
    *out = is_negative ? -(int64_t)v : (int64_t)v;
    *p = at;
    return 1;
}

int64_t routing_fact(const char *p, size_t n, const char *key)
{
    size_t len = strlen(key);
    int64_t v;
    for (size_t i = 0; i + len < n; i++) {
        const char *at = p + i + len + 1;
        if (memcmp(p + i, key, len) == 0 && p[i + len] == '=' &&
            (i == 0 || strchr(" \t\n", p[i - 1])) && routing_int(&at, p + n, &v))
            return v;
    }
    return -1;
}

/* ---- cells ---- */

/* One cell without its quotes (RFC 4180) and outer blanks; returns what ended it: the separator,
 * '\n', or 0 at the end of the file. */
static int next_cell(struct table *b, char cell[CELL_MAX], struct err *e)
{
    size_t n = 0;
    int is_quoted = b->at < b->end && *b->at == '"', was_quoted = is_quoted;
    b->at += is_quoted;
    for (; b->at < b->end; b->at++) {
        if (is_quoted && *b->at == '"') {
            if (b->at + 1 == b->end || b->at[1] != '"') {
                is_quoted = 0;
                continue;
            }
            b->at++;
        } else if (!is_quoted && (*b->at == b->separator || *b->at == '\n'))
            break;
        if (*b->at == '\r' && !is_quoted)
            continue;
        if (*b->at == '\0')
            return err_set(e, DS_EFORMAT, "%s:%zu: not text", b->path, b->line);
        b->line += *b->at == '\n';
        if (n + 1 < CELL_MAX) /* the rest of a long text is not needed */
            cell[n++] = *b->at;
    }
    if (is_quoted)
        return err_set(e, DS_EFORMAT, "%s:%zu: missing closing quote", b->path, b->line);
    while (!was_quoted && n > 0 && (cell[n - 1] == ' ' || cell[n - 1] == '\t'))
        n--;
    cell[n] = '\0';
    size_t blanks = was_quoted ? 0 : strspn(cell, " \t");
    memmove(cell, cell + blanks, n - blanks + 1);
    return b->at == b->end ? 0 : *b->at++;
}

/* A number with a point or, as some locales write it, a comma. */
static int real(char *cell, double *out)
{
    char *end, *comma = strchr(cell, ',');
    if (comma && !strchr(cell, '.'))
        *comma = '.';
    *out = strtod(cell, &end);
    return end != cell && *end == '\0';
}

static int whole(char *cell, int64_t *out)
{
    const char *p = cell, *end = cell + strlen(cell);
    double v;
    if (routing_int(&p, end, out) && p == end)
        return 1;
    if (!real(cell, &v) || !(v > -0x1p62 && v < 0x1p62) || v != floor(v)) /* "3.0" of pandas */
        return 0;
    *out = (int64_t)v;
    return 1;
}

/* ---- the line of names ---- */

static int role_of(const char *cell)
{
    char name[CELL_MAX];
    size_t n = strlen(cell);
    for (size_t i = 0; i <= n; i++) {
        char c = cell[i];
        int letter = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '\0';
        name[i] = c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : letter ? c : '_';
    }
    for (size_t i = 0; i < DS_LEN(known); i++)
        if (strcmp(known[i].name, name) == 0)
            return (int)known[i].role;
    return -1;
}

static char separator_of(const char *p, const char *end)
{
    const char *nl = memchr(p, '\n', (size_t)(end - p));
    size_t n = (size_t)((nl ? nl : end) - p);
    return memchr(p, '\t', n) ? '\t' : memchr(p, ';', n) ? ';' : ',';
}

static void skip_comments(struct table *b)
{
    if (b->end - b->at >= 3 && memcmp(b->at, "\xEF\xBB\xBF", 3) == 0)
        b->at += 3;
    while (b->at < b->end && (*b->at == '#' || *b->at == '\n' || *b->at == '\r')) {
        const char *nl = memchr(b->at, '\n', (size_t)(b->end - b->at));
        b->at = nl ? nl + 1 : b->end;
        b->line++;
    }
}

/* Reads the names; without any, three or four numbers are token, layer, expert, weight. */
static int read_names(struct table *b, struct err *e)
{
    static const int in_order[] = {COLUMN_WORD, COLUMN_LAYER, COLUMN_EXPERT, COLUMN_WEIGHT};
    char cell[CELL_MAX];
    int64_t v;
    int more, numbers = 0;
    b->line = 1;
    skip_comments(b);
    const char *from = b->at;
    b->separator = separator_of(b->at, b->end);
    do {
        if ((more = next_cell(b, cell, e)) < 0)
            return more;
        if (b->columns == TABLE_COLUMNS_MAX)
            return err_set(e, DS_ERANGE, "%s:%zu: more than %d columns", b->path, b->line,
                           TABLE_COLUMNS_MAX);
        int role = role_of(cell);
        if (role >= 0 && b->has[role]) {
            if (role != COLUMN_TEXT && role != COLUMN_SLOT)
                return err_set(e, DS_EFORMAT, "%s:%zu: duplicate column of the %s: \"%.40s\"",
                               b->path, b->line, role_name[role], cell);
            role = -1;
        }
        b->role[b->columns++] = role;
        if (role >= 0)
            b->has[role] = 1;
        double number;
        numbers += whole(cell, &v) || real(cell, &number);
    } while (more == b->separator);
    b->line++;
    if (numbers == b->columns && (numbers == 3 || numbers == 4)) {
        for (int i = 0; i < numbers; i++) {
            b->role[i] = in_order[i];
            b->has[in_order[i]] = 1;
        }
        b->at = from;
        b->line--;
        routing_note(b->t, "no column names: read as token, layer, expert%s",
                     numbers == 4 ? ", weight" : "");
    }
    if (!b->has[COLUMN_LAYER] || !b->has[COLUMN_EXPERT])
        return err_set(
            e, DS_EFORMAT,
            "%s:%zu: missing column \"%s\": expected names such as token, layer, expert, weight",
            b->path, b->line - 1, b->has[COLUMN_LAYER] ? "expert" : "layer");
    return 0;
}

/* ---- rows ---- */

/* The number of a text: that in its cell, or the lowest free one for a name and where another text
 * has it ("a" and "0", "12" and "012"). */
static int text_number(struct table *b, char *cell, int64_t *out, struct err *e)
{
    char number[CELL_MAX];
    size_t n = strlen(cell);
    int64_t other;
    if (map_get(&b->names, cell, n, out))
        return 0;
    memcpy(number, cell, n + 1);
    int is_number = whole(number, out) && *out >= 0;
    if (b->names.n == NAMES_MAX)
        return is_number ? 0
                         : err_set(e, DS_ERANGE, "%s:%zu: more than %d texts", b->path, b->line,
                                   NAMES_MAX);
    if (!is_number || map_get(&b->numbers, out, sizeof *out, &other)) {
        while (map_get(&b->numbers, &b->free, sizeof b->free, &other))
            b->free++;
        *out = b->free;
    }
    return map_set(&b->names, cell, n, *out) < 0 || map_set(&b->numbers, out, sizeof *out, 1) < 0
               ? err_set(e, DS_EMEM, "%s", b->path)
               : 0;
}

/* Without names of texts, a step whose positions begin anew is another text (a batch of training);
 * one whose positions go on is the next token of the same (decoding). */
static int text_of_step(struct table *b, struct routing_row *row, int64_t step, struct err *e)
{
    int64_t key[1] = {step};
    if (!map_get(&b->steps, key, sizeof key, &row->text)) {
        if (b->steps.n == NAMES_MAX)
            return err_set(e, DS_ERANGE, "more than %d steps", NAMES_MAX);
        if (row->token <= b->furthest)
            b->furthest = -1;
        row->text = b->top - b->base + (b->furthest < 0);
        if (map_set(&b->steps, key, sizeof key, row->text) < 0)
            return err_set(e, DS_EMEM, "out of memory for a routing trace");
    }
    b->furthest = row->token > b->furthest ? row->token : b->furthest;
    return 0;
}

static int take_cell(struct table *b, int role, char *cell, int64_t *value, float *weight,
                     struct err *e)
{
    double v;
    if (role == COLUMN_WEIGHT) {
        if (cell[0] && !real(cell, &v))
            return err_set(e, DS_EFORMAT, "%s:%zu: column \"weight\": \"%.40s\": expected a number",
                           b->path, b->line, cell);
        *weight = cell[0] ? (float)v : NAN;
        return 0;
    }
    if (role == COLUMN_TEXT)
        return text_number(b, cell, &value[role], e);
    if (whole(cell, &value[role]))
        return 0;
    if (role == COLUMN_PHASE) {
        value[role] = cell[0] == 'd' || cell[0] == 'D';
        return 0;
    }
    if (!cell[0] && role != COLUMN_LAYER && role != COLUMN_EXPERT)
        return 0;
    return err_set(e, DS_EFORMAT, "%s:%zu: column \"%s\": \"%.40s\": expected a whole number",
                   b->path, b->line, role_name[role], cell);
}

/* 1: a row was read, 0: an empty line or the end. */
static int read_row(struct table *b, int64_t value[COLUMNS], float *weight, struct err *e)
{
    char cell[CELL_MAX];
    int i = 0, more, rc = 0;
    for (int k = 0; k < COLUMNS; k++)
        value[k] = -1;
    *weight = NAN;
    do {
        if ((more = next_cell(b, cell, e)) < 0)
            return more;
        if (i == 0 && more != b->separator && !cell[0])
            return 0;
        if (i >= b->columns)
            return err_set(e, DS_EFORMAT, "%s:%zu: more cells than columns (%d)", b->path, b->line,
                           b->columns);
        rc = b->role[i] >= 0 ? take_cell(b, b->role[i], cell, value, weight, more ? e : NULL) : 0;
        if (rc < 0 && more)
            return rc;
        i++;
    } while (more == b->separator);
    if (i == b->columns && rc == 0) {
        if (!more)
            routing_note(b->t, ROUTING_UNENDED);
        return 1;
    }
    if (more)
        return err_set(e, DS_EFORMAT, "%s:%zu: %d cells, expected %d", b->path, b->line, i,
                       b->columns);
    routing_note(b->t, "the last line is incomplete: not counted");
    return 0;
}

/* Looks at the first rows: is the column "token" one of positions, each new one the highest so far
 * + 1, or of ids, and do the rows of a layer or those of a token follow each other? */
static int look_at_words(struct table *b, struct err *e)
{
    struct table ahead = *b;
    int64_t value[COLUMNS], top = -1, word = -1, layer = -1;
    float weight;
    int rc = 0;
    ahead.names = ahead.numbers = (struct map){0};
    for (int i = 0; rc >= 0 && i < LOOKED_AT_ROWS && ahead.at < ahead.end; i++) {
        if (!memchr(ahead.at, '\n', (size_t)(ahead.end - ahead.at))) /* may be incomplete */
            break;
        rc = read_row(&ahead, value, &weight, e);
        ahead.line++;
        if (rc != 1)
            continue;
        b->words_are_ids |= value[COLUMN_WORD] > top + 1 && !(top < 0 && value[COLUMN_WORD] == 1);
        b->is_by_layer |= value[COLUMN_LAYER] == layer && value[COLUMN_WORD] != word;
        word = value[COLUMN_WORD];
        layer = value[COLUMN_LAYER];
        top = word > top ? word : top;
    }
    map_release(&ahead.names);
    map_release(&ahead.numbers);
    return rc < 0 ? rc : 0;
}

/* The position of a token that is known by its id. */
static void count_position(struct table *b, struct routing_row *row)
{
    int is_next =
        row->id != b->word || (row->layer == b->layer && row->slot >= 0 && row->slot <= b->slot);
    if (b->position < 0 || (b->is_by_layer && row->layer != b->layer))
        b->position = 0;
    else if (is_next || row->layer < b->layer)
        b->position++;
    b->word = row->id;
    b->layer = row->layer;
    b->slot = row->slot;
    row->token = b->position;
}

static int put_row(struct table *b, const int64_t value[COLUMNS], float weight,
                   routing_adjust_fn *adjust, void *ctx, struct err *e)
{
    int has_word = b->has[COLUMN_WORD], has_position = b->has[COLUMN_TOKEN];
    struct routing_row row = {.text = value[COLUMN_TEXT] >= 0 ? value[COLUMN_TEXT] : 0,
                              .token = has_position ? value[COLUMN_TOKEN] : value[COLUMN_WORD],
                              .layer = value[COLUMN_LAYER],
                              .expert = value[COLUMN_EXPERT],
                              .slot = value[COLUMN_SLOT],
                              .weight = weight,
                              .id = value[COLUMN_ID]};
    if (row.text > INT64_MAX / 4)
        return err_set(e, DS_ERANGE, "text %lld: must be 0 to 2^61", (long long)row.text);
    if (has_position && has_word && !b->has[COLUMN_ID])
        row.id = value[COLUMN_WORD];
    if (b->words_are_ids) {
        row.id = value[COLUMN_WORD];
        count_position(b, &row);
    }
    if (!adjust && b->has[COLUMN_STEP] && !has_word && !has_position)
        row.token = value[COLUMN_STEP];
    int rc = !adjust && b->has[COLUMN_STEP] && !b->has[COLUMN_TEXT] && (has_word || has_position)
                 ? text_of_step(b, &row, value[COLUMN_STEP], e)
                 : 0;
    if (rc < 0)
        return rc;
    row.text += b->base;
    b->top = row.text > b->top ? row.text : b->top;
    rc = adjust ? adjust(b->t, &row, value, ctx, e) : 0;
    if (rc == 0 && !adjust) {
        int64_t step = b->has[COLUMN_STEP] ? value[COLUMN_STEP] : row.text;
        rc = step == b->t->step && b->t->bins ? 0 : routing_step(b->t, step, e);
    }
    return rc < 0 ? rc : routing_put(b->t, &row, e);
}

static int read_file(struct table *b, const struct routing_file *f, int wants_ids,
                     routing_adjust_fn *adjust, void *ctx, struct err *e)
{
    int64_t value[COLUMNS];
    float weight;
    b->path = f->path;
    b->at = (const char *)f->map.p;
    b->end = b->at + f->map.n;
    b->columns = 0;
    b->top = b->base - 1;
    memset(b->has, 0, sizeof b->has);
    int rc = read_names(b, e);
    b->position = -1;
    b->words_are_ids = b->is_by_layer = 0;
    if (rc >= 0 && wants_ids && b->has[COLUMN_WORD] && !b->has[COLUMN_TOKEN] && !b->has[COLUMN_ID])
        rc = look_at_words(b, e);
    for (; rc >= 0 && b->at < b->end; b->line++) {
        rc = read_row(b, value, &weight, e);
        if (rc == 1 && (rc = put_row(b, value, weight, adjust, ctx, e)) < 0)
            return err_add(e, rc, "%s:%zu", b->path, b->line);
    }
    b->base = b->top + 1; /* texts of another file are others */
    b->furthest = -1;
    map_release(&b->names);
    map_release(&b->numbers);
    map_release(&b->steps);
    b->names = b->numbers = b->steps = (struct map){0};
    b->free = 0;
    return rc < 0 ? rc : 0;
}

int routing_table_read(struct routing_trace *t, const struct routing_file *file, size_t n,
                       const struct routing_options *o, routing_adjust_fn *adjust, void *ctx,
                       struct err *e)
{
    struct table b = {.t = t, .furthest = -1};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = read_file(&b, &file[i], o->has_tokenizer && !adjust, adjust, ctx, e);
    map_release(&b.names);
    map_release(&b.numbers);
    map_release(&b.steps);
    if (rc == 0 && !b.has[COLUMN_TOKEN] && !b.has[COLUMN_WORD] && !b.has[COLUMN_STEP])
        routing_note(t, "no column of tokens: loads only");
    return rc;
}

static int recognise(const char *p, size_t n)
{
    struct table b = {.path = "", .at = p, .end = p + n, .line = 1};
    char cell[CELL_MAX];
    int found[COLUMNS] = {0}, more, numbers = 0, columns = 0;
    double v;
    skip_comments(&b);
    b.separator = separator_of(b.at, b.end);
    do {
        if ((more = next_cell(&b, cell, NULL)) < 0)
            return 0;
        int role = role_of(cell);
        if (role >= 0)
            found[role] = 1;
        numbers += real(cell, &v);
    } while (++columns < TABLE_COLUMNS_MAX && more == b.separator);
    return (found[COLUMN_LAYER] && found[COLUMN_EXPERT]) ||
           (numbers == columns && (numbers == 3 || numbers == 4));
}

static int read_tables(struct routing_trace *t, const struct routing_file *file, size_t n,
                       const struct routing_options *o, struct err *e)
{
    return routing_table_read(t, file, n, o, NULL, NULL, e);
}

const struct routing_format routing_csv = {.name = "csv",
                                           .title = "CSV of token, layer, expert",
                                           .recognise = recognise,
                                           .read = read_tables};
