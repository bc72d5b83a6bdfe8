/* Draws the form of a new run: sections of rows, the open field and what may be typed into it, and
 * the estimate of what the run will need. */
#include <stdio.h>
#include <string.h>

#include "tui/form.h"

static size_t changed_in(const struct form *f, size_t from, size_t to)
{
    size_t n = 0;
    for (size_t i = from; i < to; i++)
        n += f->row[i].kind == FORM_KEY && f->value[f->row[i].at];
    return n;
}

static void draw_section(const struct form *f, struct area a, int y, const struct form_row *r)
{
    static const char *const title[] = {"Essentials", "Method", "All other keys"};
    size_t i = (size_t)(r - f->row) + 1, end = i;
    while (end < f->list.n && f->row[end].kind != FORM_SECTION)
        end++;
    int x = 1;
    area_put(a, y, x,
             area_rune(a, f->is_folded[r->at] ? 0x25B8 : 0x25BE, f->is_folded[r->at] ? '+' : '-'),
             ink(ROLE_HINT_KEY));
    x += 2 + area_text(a, y, x + 2, -1, ink_attr(ink(ROLE_TITLE), ATTR_BOLD), title[r->at]);
    for (size_t k = 0; r->at == FORM_METHOD && k < f->keys; k++)
        if (strcmp(f->key[k].key, "model.method") == 0)
            x += 1 + area_text(a, y, x + 1, -1, ink(ROLE_LINK), form_value(f, k));
    size_t n = changed_in(f, i, end);
    if (n > 0)
        area_textf(a, y, x + 2, -1, ink(ROLE_MARKED), "%zu changed", n);
}

/* The error without the key, which the row shows already. */
static const char *reason(const struct form *f, const char *key)
{
    size_t n = strlen(key);
    int is_named = strncmp(f->error, key, n) == 0 && f->error[n] == ':';
    return f->error + (is_named ? n + 1 + (f->error[n + 1] == ' ') : 0);
}

static const char *help_of(const struct form *f, const struct form_row *r)
{
    switch (r->kind) {
    case FORM_SECTION: return "Enter opens and closes the section";
    case FORM_NAME: return "name of the run; empty: derived from the preset";
    case FORM_HOST: return "machine of the run: here, or an open host";
    case FORM_PRESET: return "one or several presets; later ones override earlier ones";
    case FORM_KEY: break;
    }
    return f->key[r->at].help;
}

static void draw_row(struct form *f, struct area a, int y, size_t i, int name, int value)
{
    const struct form_row *r = &f->row[i];
    int is_here = i == f->list.cursor;
    int is_wrong =
        f->error[0] && f->wrong.kind == r->kind && f->wrong.at == r->at && r->kind != FORM_SECTION;
    int is_changed = r->kind == FORM_KEY    ? f->value[r->at] != NULL
                     : r->kind == FORM_HOST ? f->there != f->home
                                            : r->kind == FORM_NAME && f->name[0];
    enum role role = is_wrong ? ROLE_BAD : is_changed ? ROLE_MARKED : ROLE_TEXT;
    if (r->kind == FORM_SECTION) {
        draw_section(f, a, y, r);
    } else {
        const char *text = form_row_value(f, r);
        area_text(a, y, 2, name - 2, ink(role), form_row_name(f, r));
        if (!(is_here && f->is_editing))
            area_text(a, y, name + 1, value, ink(role == ROLE_TEXT ? ROLE_DIM : role),
                      text[0]                ? text
                      : r->kind == FORM_NAME ? "automatic"
                                             : "");
        if (is_wrong)
            area_put(a, y, 1, area_rune(a, 0xD7, 'x'), ink(ROLE_BAD));
        area_text(a, y, name + value + 2, a.cols - name - value - 4,
                  ink(is_wrong ? ROLE_BAD : ROLE_DIM),
                  is_wrong ? reason(f, form_row_name(f, r)) : help_of(f, r));
    }
    if (is_here)
        area_select(a, y, 0, a.cols - 1);
    if (is_here && f->is_editing)
        field_draw(&f->field, a, y, name + 1, value, 1);
}

/* Below the open field, or above it where there is more room. */
static void draw_choices(struct form *f, struct area a, struct area whole, int y, int x, int cols)
{
    enum { ROWS = 8 };
    struct form_choices *c = &f->choices;
    int below = a.rows - y - 1, is_above = below < 3 && y > below, room = is_above ? y : below;
    int rows = (int)(c->n < ROWS ? c->n : ROWS);
    rows = rows > room ? room : rows;
    c->rows = area_sub(a, is_above ? y - rows : y + 1, x, rows, cols);
    c->above = c->rows.y - whole.y;
    area_fill(c->rows, ' ', ink_on(ROLE_TEXT, ROLE_SKIP));
    list_fit(&c->list, c->n, rows);
    for (int i = 0; i < rows; i++) {
        size_t at = c->list.top + (size_t)i;
        int is_here = c->is_chosen && at == c->list.cursor;
        if (at < c->n)
            area_text(c->rows, i, 1, cols - 2, ink(is_here ? ROLE_SELECTED : ROLE_TEXT),
                      c->name[at]);
        if (is_here)
            area_put(c->rows, i, 0, area_rune(a, 0x258C, '>'), ink(ROLE_SELECTED));
    }
    scrollbar_draw(c->rows, cols - 1, c->n, c->list.top, rows);
}

/* "parameters 1.08M  FLOPs/token 3.74M ..."; what does not fit is left out at the end. */
static void draw_estimate(const struct form *f, struct area a)
{
    struct job_fact fact[JOB_FACTS];
    int x = 0;
    if (!f->has_estimate && form_host(f) && !f->error[0]) {
        area_textf(a, 0, 0, -1, ink(ROLE_DIM),
                   "no estimate: %s has files or presets that are not here",
                   host_info(form_host(f)).name);
        return;
    }
    if (!f->has_estimate) {
        area_text(a, 0, 0, -1, ink(ROLE_DIM), "no estimate until every value is valid");
        return;
    }
    job_estimate_facts(&f->estimate, form_host(f) ? 0 : f->gflops,
                       fact); /* the peak is of this one */
    for (int i = 0; i < JOB_FACTS; i++) {
        if (x + (int)(strlen(fact[i].name) + strlen(fact[i].value)) + 1 > a.cols)
            continue;
        x += area_text(a, 0, x, -1, ink(ROLE_DIM), fact[i].name) + 1;
        x += area_text(a, 0, x, -1, ink_attr(ink(ROLE_TEXT), ATTR_BOLD), fact[i].value) + 2;
    }
}

static const char *hints(const struct form *f)
{
    if (f->is_starting)
        return "starting ...   Esc closes the form; the run continues";
    if (f->is_editing && f->choices.n)
        return "Enter saves   Up Down choose   Tab completes   Esc cancels";
    if (f->is_editing)
        return "Enter saves   Esc cancels   Tab saves and edits the next";
    return "Enter edits   / n N search   r starts the run   x resets   Esc closes";
}

/* Below the rows: the error, or else the full help of the selected row. */
static void draw_foot(const struct form *f, struct area a)
{
    struct form_row r = form_at(f);
    struct scroll lines = {0};
    struct area text = area_sub(a, 0, 0, a.rows - 2, a.cols);
    if (f->error[0]) {
        scroll_text(&lines, text, f->error, ink(ROLE_BAD));
    } else {
        struct str help = {0};
        str_add(&help, help_of(f, &r));
        if (r.kind == FORM_KEY && f->key[r.at].choices)
            str_addf(&help, " (%s)", f->key[r.at].choices);
        if (r.kind == FORM_KEY && f->value[r.at])
            str_addf(&help, "; without the change: %s",
                     f->base[r.at] ? f->base[r.at] : f->key[r.at].otherwise);
        scroll_text(&lines, text, str_text(&help), ink(ROLE_TEXT));
        str_release(&help);
    }
    draw_estimate(f, area_sub(a, a.rows - 2, 0, 1, a.cols));
    area_text(a, a.rows - 1, 0, -1, ink(ROLE_HINT), hints(f));
}

void form_draw(struct form *f, struct area whole)
{
    char title[192];
    snprintf(title, sizeof title, "new run from preset %.64s%s%.90s", f->preset,
             form_host(f) ? " on " : "", form_host(f) ? f->where : "");
    int is_wide = whole.cols > 100;
    struct area a = popup_begin(whole, whole.rows - (whole.rows > 12 ? 4 : 2),
                                is_wide ? (whole.cols > 150 ? 132 : 96) : whole.cols - 6, title);
    int name = a.cols / 3 < 28 ? a.cols / 3 : 28, value = a.cols / 4 < 14 ? 14 : a.cols / 4;
    int foot = a.rows >= 12 ? 5 : a.rows >= 8 ? 4 : a.rows >= 4 ? 2 : 0, rows = a.rows - foot;
    f->rows = area_sub(a, 0, 0, rows, a.cols);
    f->above = f->rows.y - whole.y;
    f->choices.rows.rows = 0;
    list_fit(&f->list, f->list.n, rows);
    for (size_t i = f->list.top; i < f->list.n && (int)(i - f->list.top) < rows; i++)
        draw_row(f, f->rows, (int)(i - f->list.top), i, name, value);
    scrollbar_draw(a, a.cols - 1, f->list.n, f->list.top, rows);
    if (foot)
        draw_foot(f, area_sub(a, rows + (foot == 5), 0, foot - (foot == 5), a.cols));
    if (f->is_editing && f->choices.n)
        draw_choices(f, f->rows, whole, (int)(f->list.cursor - f->list.top), name,
                     a.cols - name - 3 < 44 ? a.cols - name - 3 : 44);
}
