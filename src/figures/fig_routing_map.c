/* Which layers each token of a text ran: one box a cell, the text beneath, in as many strips as its
 * length takes. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "figures/glyphs.h"
#include "figures/plot.h"

enum { STRIPS_MAX = 24 };

struct strip {
    int from, to;
    double x, y, cell_w, cell_h, label_h;
};

/* What a token looks like in a label: blanks and line ends made visible, nothing longer than 12
 * letters. */
static void token_text(const struct probe *p, int t, char *out, size_t size)
{
    struct str clean = {0}, marked = {0};
    utf8_sanitise(&clean, p->piece[t], p->piece_len[t], 12, 0);
    for (const char *c = str_text(&clean); *c; c++)
        if (*c == ' ')
            str_add(&marked, "\xE2\x90\xA3");
        else
            str_add_char(&marked, *c);
    str_copy(out, size, marked.len ? str_text(&marked) : "\xE2\x88\x85");
    str_release(&clean);
    str_release(&marked);
}

static double label_height(const struct sheet *s, const struct probe *p, int from, int to)
{
    double most = 0;
    char text[96];
    for (int t = from; t < to; t++) {
        token_text(p, t, text, sizeof text);
        most = fmax(most, glyph_width(text, s->venue->small));
    }
    return most + s->venue->small * 0.6;
}

static int cell_role(const struct probe *p, int l, int t, int is_always_on)
{
    if (!p->run[l * p->tokens + t])
        return ROLE_SKIP;
    return is_always_on ? ROLE_FORCED : ROLE_RUN;
}

static void draw_strip(struct sheet *s, const struct probe *p, const struct strip *r,
                       const struct runview *v)
{
    double small = s->venue->small, bottom = r->y + r->cell_h * p->layers;
    int every = (int)ceil(small * 1.02 / r->cell_w), shift = p->layers > 16  ? 4
                                                             : p->layers > 8 ? 2
                                                                             : 1;
    char text[96];
    for (int l = 0; l < p->layers; l++)
        for (int t = r->from; t < r->to; t++)
            pen_box(s->pen, r->x + (t - r->from) * r->cell_w + 0.15,
                    r->y + (p->layers - 1 - l) * r->cell_h + 0.15, r->cell_w - 0.3, r->cell_h - 0.3,
                    sheet_colour(s, (enum role)cell_role(p, l, t, runview_always_on(v, l))), 1);
    for (int l = 0; l < p->layers; l += shift) {
        number_format(text, sizeof text, l, 0);
        sheet_text(s, r->x - 3, r->y + (p->layers - 0.5 - l) * r->cell_h, TEXT_RIGHT, TEXT_MIDDLE,
                   1, sheet_colour(s, ROLE_TEXT), text);
    }
    for (int t = r->from; t < r->to; t += every) {
        struct text_style up = {.size = small,
                                .angle = 90,
                                .rgb = sheet_colour(s, ROLE_TEXT),
                                .h = TEXT_RIGHT,
                                .v = TEXT_MIDDLE};
        token_text(p, t, text, sizeof text);
        pen_text(s->pen, r->x + (t - r->from + 0.5) * r->cell_w, bottom + 3, &up, text);
    }
    struct text_style up = {
        .size = s->venue->base, .angle = 90, .rgb = sheet_colour(s, ROLE_TEXT), .h = TEXT_CENTRE};
    pen_text(s->pen, s->venue->base * 0.9, r->y + r->cell_h * p->layers / 2, &up, "Layer");
}

static void draw_key(struct sheet *s, int has_forced)
{
    static const struct {
        enum role r;
        const char *text;
    } key[] = {{ROLE_RUN, "executed"}, {ROLE_SKIP, "skipped"}, {ROLE_FORCED, "always on"}};
    double x = s->venue->base * 1.2 + s->venue->small * 1.8, small = s->venue->small,
           y = small * 0.7;
    for (size_t i = 0; i < DS_LEN(key) - (has_forced ? 0 : 1); i++) {
        pen_box(s->pen, x, y - small * 0.4, small * 0.8, small * 0.8, sheet_colour(s, key[i].r), 1);
        sheet_text(s, x + small * 1.2, y, TEXT_LEFT, TEXT_MIDDLE, 1, sheet_colour(s, ROLE_TEXT),
                   key[i].text);
        x += small * 2.4 + glyph_width(key[i].text, small);
    }
}

static int draw_probe(struct sheet *s, const struct probe *p, int run, struct err *e)
{
    double small = s->venue->small, left = s->venue->base * 1.2 + small * 1.8, y = small * 1.8;
    double cell_w = fmax(small * 1.05, fmin(small * 1.6, (s->width - left) / p->tokens));
    int per = (int)floor((s->width - left) / cell_w + 1e-6), forced = 0, ran = 0;
    if (per < 1)
        per = 1;
    int strips = (p->tokens + per - 1) / per;
    if (strips > STRIPS_MAX) {
        cell_w = (s->width - left) * STRIPS_MAX / (p->tokens + STRIPS_MAX);
        per = (int)floor((s->width - left) / cell_w);
        strips = (p->tokens + per - 1) / per;
    }
    if (cell_w < 0.5)
        return sheet_refuse(s, run, e, "its text of %d tokens is too long to be drawn", p->tokens);
    per = (p->tokens + strips - 1) / strips; /* strips of equal length, as wide as the sheet */
    cell_w = fmin((s->width - left) / per, small * 2.4);
    for (int l = 0; l < p->layers; l++)
        forced += runview_always_on(s->run[run].view, l);
    draw_key(s, forced > 0);
    for (int i = 0; i < strips; i++) {
        struct strip r = {
            .from = i * per, .to = (i + 1) * per, .x = left, .y = y, .cell_w = cell_w};
        r.to = r.to > p->tokens ? p->tokens : r.to;
        r.cell_h = fmax(small * (p->layers > 16 ? 0.5 : 0.8), 2.5);
        r.label_h = label_height(s, p, r.from, r.to);
        draw_strip(s, p, &r, s->run[run].view);
        y += r.cell_h * p->layers + 3 + r.label_h + small * 0.6;
    }
    s->height = y - small * 0.6;
    for (int i = 0; i < p->layers * p->tokens; i++)
        ran += p->run[i] ? 1 : 0;
    char share[24], depth[24];
    number_format(share, sizeof share, ran / ((double)p->layers * p->tokens), 3);
    number_format(depth, sizeof depth, ran / (double)p->tokens, 2);
    sheet_note(
        s, "Text '%s' at step %lld: %d tokens, %d layers; %s of all cells ran, %s layers a token.",
        p->name ? p->name : "", (long long)p->step, p->tokens, p->layers, share, depth);
    return 0;
}

static int draw(struct sheet *s, struct err *e)
{
    char name[200];
    if (s->runs != 1)
        return err_set(e, DS_EUSAGE, "figure %s: shows one run; %d were named", s->ops->name,
                       s->runs);
    const struct probe *p = runview_probe(s->run[0].view, s->opt.probe);
    if (!p)
        return sheet_refuse(
            s, 0, e, s->opt.probe >= 0 ? "no record 'probe' of index %d" : "no record 'probe'",
            s->opt.probe);
    if (!p->run || p->layers < 1 || p->tokens < 1 || !p->piece)
        return sheet_refuse(s, 0, e,
                            "its newest record 'probe' has no decisions ('run') or no 'text'");
    data_hash(s, "run", p->run, (size_t)p->layers * (size_t)p->tokens);
    for (int t = 0; t < p->tokens; t++)
        data_hash(s, "piece", p->piece[t], p->piece_len[t]);
    sheet_run_name(s, 0, name, sizeof name);
    sheet_note(s, "%s.", name);
    return draw_probe(s, p, 0, e);
}

const struct figure_ops figure_routing_map = {
    .name = "routing_map",
    .title = "Which layers each token of a text ran",
    .needs = "a record 'probe': run, text",
    .draw = draw,
};
