/* The recording pen: keeps the commands for replay and prints them for golden files. */
#include "figures/pen.h"

#include <string.h>

#include "base/mem.h"

enum op {
    OP_MOVE,
    OP_LINE,
    OP_CURVE,
    OP_CLOSE,
    OP_RECT,
    OP_CIRCLE,
    OP_STROKE,
    OP_FILL,
    OP_CLIP,
    OP_SAVE,
    OP_RESTORE,
    OP_WIDTH,
    OP_DASH,
    OP_COLOUR,
    OP_TEXT
};

static const struct {
    const char *name;
    int n;
} op_table[] = {
    [OP_MOVE] = {"move", 2},     [OP_LINE] = {"line", 2},       [OP_CURVE] = {"curve", 6},
    [OP_CLOSE] = {"close", 0},   [OP_RECT] = {"rect", 4},       [OP_CIRCLE] = {"circle", 3},
    [OP_STROKE] = {"stroke", 0}, [OP_FILL] = {"fill", 0},       [OP_CLIP] = {"clip", 0},
    [OP_SAVE] = {"save", 0},     [OP_RESTORE] = {"restore", 0}, [OP_WIDTH] = {"width", 1},
    [OP_DASH] = {"dash", -1},    [OP_COLOUR] = {"colour", 1},   [OP_TEXT] = {"text", 2},
};

struct cmd {
    unsigned char op, n; /* n: dash lengths */
    int rgb;
    double v[6];
    size_t text; /* offset in texts; style follows at the same index */
    struct text_style style;
};

struct pen_list {
    struct pen pen;
    struct cmd *cmd;
    size_t n, cap;
    struct str texts; /* NUL between them */
    int failed;
};

static struct cmd *push(struct pen *p, enum op op)
{
    static struct cmd nowhere;
    struct pen_list *l = (struct pen_list *)p;
    void *block = l->cmd;
    if (l->failed || mem_grow(&block, &l->cap, l->n + 1, sizeof *l->cmd) < 0) {
        l->failed = 1;
        return &nowhere;
    }
    l->cmd = block;
    l->cmd[l->n] = (struct cmd){.op = (unsigned char)op};
    return &l->cmd[l->n++];
}

static void list_move(struct pen *p, double x, double y)
{
    struct cmd *c = push(p, OP_MOVE);
    c->v[0] = x;
    c->v[1] = y;
}

static void list_line(struct pen *p, double x, double y)
{
    struct cmd *c = push(p, OP_LINE);
    c->v[0] = x;
    c->v[1] = y;
}

static void list_curve(struct pen *p, const double xy[6])
{
    struct cmd *c = push(p, OP_CURVE);
    memcpy(c->v, xy, sizeof c->v);
}

static void list_rect(struct pen *p, double x, double y, double w, double h)
{
    struct cmd *c = push(p, OP_RECT);
    c->v[0] = x;
    c->v[1] = y;
    c->v[2] = w;
    c->v[3] = h;
}

static void list_circle(struct pen *p, double x, double y, double r)
{
    struct cmd *c = push(p, OP_CIRCLE);
    c->v[0] = x;
    c->v[1] = y;
    c->v[2] = r;
}

static void list_close(struct pen *p)
{
    push(p, OP_CLOSE);
}

static void list_stroke(struct pen *p)
{
    push(p, OP_STROKE);
}

static void list_fill(struct pen *p)
{
    push(p, OP_FILL);
}

static void list_clip(struct pen *p)
{
    push(p, OP_CLIP);
}

static void list_save(struct pen *p)
{
    push(p, OP_SAVE);
}

static void list_restore(struct pen *p)
{
    push(p, OP_RESTORE);
}

static void list_width(struct pen *p, double w)
{
    push(p, OP_WIDTH)->v[0] = w;
}

static void list_dash(struct pen *p, const double *len, int n)
{
    struct cmd *c = push(p, OP_DASH);
    c->n = (unsigned char)(n > 6 ? 6 : n);
    for (int i = 0; i < c->n; i++)
        c->v[i] = len[i];
}

static void list_colour(struct pen *p, int rgb, double alpha)
{
    struct cmd *c = push(p, OP_COLOUR);
    c->rgb = rgb;
    c->v[0] = alpha;
}

static void list_text(struct pen *p, double x, double y, const struct text_style *s,
                      const char *utf8)
{
    struct pen_list *l = (struct pen_list *)p;
    struct cmd *c = push(p, OP_TEXT);
    c->v[0] = x;
    c->v[1] = y;
    c->style = *s;
    c->text = l->texts.len;
    str_add_bytes(&l->texts, utf8, strlen(utf8) + 1);
    l->failed |= l->texts.failed;
}

static const struct pen_ops list_ops = {
    .move = list_move,
    .line = list_line,
    .curve = list_curve,
    .close = list_close,
    .rect = list_rect,
    .circle = list_circle,
    .stroke = list_stroke,
    .fill = list_fill,
    .clip = list_clip,
    .save = list_save,
    .restore = list_restore,
    .width = list_width,
    .dash = list_dash,
    .colour = list_colour,
    .text = list_text,
};

struct pen_list *pen_list_new(void)
{
    struct pen_list *l = mem_alloc(1, sizeof *l);
    if (l)
        l->pen.ops = &list_ops;
    return l;
}

void pen_list_free(struct pen_list *l)
{
    if (!l)
        return;
    mem_free(l->cmd);
    str_release(&l->texts);
    mem_free(l);
}

void pen_list_reset(struct pen_list *l)
{
    l->n = 0;
    l->failed = 0;
    l->pen.bad = 0;
    l->pen.failed = 0;
    str_release(&l->texts);
    l->texts = (struct str){0};
}

struct pen *pen_list_pen(struct pen_list *l)
{
    return &l->pen;
}

size_t pen_list_count(const struct pen_list *l)
{
    return l->n;
}

int pen_list_failed(const struct pen_list *l)
{
    return l->failed || l->pen.failed;
}

static void replay_one(const struct pen_list *l, const struct cmd *c, struct pen *to)
{
    const double *v = c->v;
    switch ((enum op)c->op) {
    case OP_MOVE: pen_move(to, v[0], v[1]); break;
    case OP_LINE: pen_line(to, v[0], v[1]); break;
    case OP_CURVE: pen_curve(to, v[0], v[1], v[2], v[3], v[4], v[5]); break;
    case OP_CLOSE: pen_close(to); break;
    case OP_RECT: pen_rect(to, v[0], v[1], v[2], v[3]); break;
    case OP_CIRCLE: pen_circle(to, v[0], v[1], v[2]); break;
    case OP_STROKE: pen_stroke(to); break;
    case OP_FILL: pen_fill(to); break;
    case OP_CLIP: pen_clip(to); break;
    case OP_SAVE: pen_save(to); break;
    case OP_RESTORE: pen_restore(to); break;
    case OP_WIDTH: pen_width(to, v[0]); break;
    case OP_DASH: pen_dash(to, v, c->n); break;
    case OP_COLOUR: pen_colour(to, c->rgb, v[0]); break;
    case OP_TEXT: pen_text(to, v[0], v[1], &c->style, l->texts.p + c->text); break;
    }
}

/* Recorded coordinates are final; the other pen adds only its own margin, usually none. */
void pen_list_replay(const struct pen_list *l, struct pen *to)
{
    for (size_t i = 0; i < l->n; i++)
        replay_one(l, &l->cmd[i], to);
}

void pen_list_print(const struct pen_list *l, struct str *out)
{
    for (size_t i = 0; i < l->n; i++) {
        const struct cmd *c = &l->cmd[i];
        int n = c->op == OP_DASH ? c->n : op_table[c->op].n;
        str_add(out, op_table[c->op].name);
        if (c->op == OP_COLOUR)
            str_addf(out, " #%06X", (unsigned)c->rgb);
        for (int k = 0; k < n; k++)
            str_addf(out, " %.9g", c->v[k]);
        if (c->op == OP_TEXT) {
            str_addf(out, " %g %g %c%c #%06X ", c->style.size, c->style.angle, "lcr"[c->style.h],
                     "bmt"[c->style.v], (unsigned)c -> style.rgb);
            str_add_json(out, l->texts.p + c->text, strlen(l->texts.p + c->text));
        }
        str_add_char(out, '\n');
    }
}
