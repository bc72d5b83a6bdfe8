/* A single-line text field. */
#include <string.h>

#include "base/utf8.h"
#include "tui/widgets.h"

enum { FIELD_MAX = 16384 };

void field_set(struct field *f, const char *text)
{
    str_renew(&f->text);
    str_add(&f->text, text);
    f->cursor = f->text.len;
    f->scroll = 0;
}

static size_t before(const struct field *f, size_t at)
{
    const char *p = str_text(&f->text);
    if (at > 0)
        at--;
    while (at > 0 && ((unsigned char)p[at] & 0xC0) == 0x80)
        at--;
    return at;
}

static size_t after(const struct field *f, size_t at)
{
    const char *p = str_text(&f->text);
    if (at < f->text.len)
        at++;
    while (at < f->text.len && ((unsigned char)p[at] & 0xC0) == 0x80)
        at++;
    return at;
}

static void cut(struct field *f, size_t from, size_t to)
{
    if (from >= to || !f->text.p)
        return;
    memmove(f->text.p + from, f->text.p + to, f->text.len - to + 1);
    f->text.len -= to - from;
    f->cursor = from;
}

static void insert(struct field *f, const char *p, size_t n)
{
    struct str joined = {0};
    if (f->text.len + n > FIELD_MAX)
        return;
    str_add_bytes(&joined, str_text(&f->text), f->cursor);
    for (size_t i = 0; i < n; i++)
        str_add_char(&joined, (unsigned char)p[i] < 0x20 || p[i] == 0x7F ? ' ' : p[i]);
    str_add_bytes(&joined, str_text(&f->text) + f->cursor, f->text.len - f->cursor);
    if (joined.failed) {
        str_release(&joined);
        return;
    }
    str_release(&f->text);
    f->text = joined;
    f->cursor += n;
}

static size_t word_before(const struct field *f)
{
    const char *p = str_text(&f->text);
    size_t at = f->cursor;
    while (at > 0 && p[at - 1] == ' ')
        at--;
    while (at > 0 && p[at - 1] != ' ')
        at--;
    return at;
}

int field_event(struct field *f, const struct event *ev)
{
    char bytes[4];
    if (ev->kind == EVENT_PASTE) {
        insert(f, ev->text, ev->len > FIELD_MAX ? FIELD_MAX : ev->len);
        return 1;
    }
    if (ev->kind != EVENT_KEY)
        return 0;
    switch (ev->key) {
    case KEYCODE_LEFT:
    case KEYCODE_CTRL | 'b': f->cursor = before(f, f->cursor); return 1;
    case KEYCODE_RIGHT:
    case KEYCODE_CTRL | 'f': f->cursor = after(f, f->cursor); return 1;
    case KEYCODE_HOME:
    case KEYCODE_CTRL | 'a': f->cursor = 0; return 1;
    case KEYCODE_END:
    case KEYCODE_CTRL | 'e': f->cursor = f->text.len; return 1;
    case KEYCODE_BACKSPACE: cut(f, before(f, f->cursor), f->cursor); return 1;
    case KEYCODE_DELETE:
    case KEYCODE_CTRL | 'd': cut(f, f->cursor, after(f, f->cursor)); return 1;
    case KEYCODE_CTRL | 'w': cut(f, word_before(f), f->cursor); return 1;
    case KEYCODE_CTRL | 'u': cut(f, 0, f->cursor); return 1;
    case KEYCODE_CTRL | 'k': cut(f, f->cursor, f->text.len); return 1;
    default: break;
    }
    if (ev->key < 0x20 || ev->key >= KEYCODE_UP)
        return 0;
    insert(f, bytes, (size_t)utf8_encode(bytes, ev->key));
    return 1;
}

void field_draw(struct field *f, struct area a, int y, int x, int cols, int has_focus)
{
    const char *p = str_text(&f->text);
    int at = utf8_cells(p, f->cursor);
    if (at < f->scroll)
        f->scroll = at;
    if (at >= f->scroll + cols)
        f->scroll = at - cols + 1;
    size_t from = 0;
    while (from < f->text.len && utf8_cells(p, from) < f->scroll)
        from = after(f, from);
    f->scroll = utf8_cells(p, from); /* not within a wide character */
    struct area room = area_sub(a, y, x, 1, cols);
    area_bytes(room, 0, 0, cols, ink(ROLE_TEXT), p + from, f->text.len - from);
    if (has_focus && room.rows > 0) {
        a.canvas->cursor_y = room.y;
        a.canvas->cursor_x = room.x + (at - f->scroll < room.cols ? at - f->scroll : room.cols - 1);
    }
}

void field_release(struct field *f)
{
    str_release(&f->text);
    *f = (struct field){0};
}
