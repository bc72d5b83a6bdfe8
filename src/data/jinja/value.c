/* Memory, texts and dictionaries of a template. */
#include "base/mem.h"
#include "base/utf8.h"
#include "impl.h"

enum { CHUNK = 64 << 10, TOTAL_MAX = JINJA_MIB << 20 };

struct chunk {
    struct chunk *older;
    max_align_t data[];
};

void *jinja_alloc(struct jinja *j, size_t n, size_t size)
{
    size_t unit = sizeof(max_align_t), left = TOTAL_MAX - j->total;
    if (j->failed)
        return NULL;
    if (size > 0 && n > left / size)
        goto too_large;
    size_t bytes = (n * size + unit) / unit * unit;
    if (!j->chunk || bytes > CHUNK - j->used) {
        size_t room = bytes > CHUNK / 4 ? bytes : CHUNK;
        if (room > left)
            goto too_large;
        struct chunk *c = mem_alloc(1, sizeof *c + room);
        if (!c) {
            j->failed = DS_EMEM;
            return NULL;
        }
        j->total += room;
        if (room != CHUNK && j->chunk) { /* the newest chunk still has space */
            c->older = j->chunk->older;
            j->chunk->older = c;
            return c->data;
        }
        c->older = j->chunk;
        j->chunk = c;
        j->used = room == CHUNK ? 0 : CHUNK;
        if (room != CHUNK)
            return c->data;
    }
    j->used += bytes;
    return (char *)j->chunk->data + j->used - bytes;
too_large:
    j->failed = DS_EUSAGE;
    return NULL;
}

int jinja_failure(const struct jinja *j, struct err *e)
{
    if (j->failed == DS_EUSAGE)
        return err_set(e, DS_EUSAGE, "the template takes more than %d MiB", (int)JINJA_MIB);
    return j->failed ? err_set(e, j->failed, "out of memory for the chat template") : 0;
}

void jinja_close(struct jinja *j)
{
    for (struct chunk *c = j ? j->chunk : NULL, *older; c; c = older) {
        older = c->older;
        mem_free(c);
    }
    mem_free(j);
}

int jinja_open(struct jinja **out, const char *text, size_t n, struct err *e)
{
    struct jinja *j = mem_alloc(1, sizeof *j);
    if (!j)
        return err_set(e, DS_EMEM, "out of memory for a chat template");
    int rc = jinja_parse(j, text, n, e);
    if (rc < 0) {
        jinja_close(j);
        return rc;
    }
    *out = j;
    return 0;
}

/* ---- texts ---- */

struct jinja_value jinja_text_of(struct jinja *j, const char *p, size_t n, uint8_t from)
{
    char *copy = jinja_alloc(j, n, 2);
    if (!copy)
        return TEXT(text_from(""));
    if (n > 0)
        memcpy(copy, p, n);
    memset(copy + n, from, n);
    return TEXT(((struct jinja_text){copy, from ? (const uint8_t *)copy + n : NULL, n}));
}

struct jinja_text text_join(struct jinja *j, struct jinja_text a, struct jinja_text b)
{
    int traced = a.from || b.from;
    if (a.n == 0 || b.n == 0)
        return a.n == 0 ? b : a;
    char *p = jinja_alloc(j, a.n + b.n, traced ? 2 : 1);
    if (!p)
        return a;
    memcpy(p, a.p, a.n);
    memcpy(p + a.n, b.p, b.n);
    if (!traced)
        return (struct jinja_text){p, NULL, a.n + b.n};
    uint8_t *from = (uint8_t *)p + a.n + b.n;
    if (a.from)
        memcpy(from, a.from, a.n);
    if (b.from)
        memcpy(from + a.n, b.from, b.n);
    return (struct jinja_text){p, from, a.n + b.n};
}

size_t text_char(struct jinja_text t, size_t at)
{
    uint32_t c;
    int k = utf8_decode(t.p + at, t.n - at, &c);
    return k > 0 ? (size_t)k : 1;
}

size_t text_length(struct jinja_text t)
{
    size_t n = 0;
    for (size_t i = 0; i < t.n; i += text_char(t, i))
        n++;
    return n;
}

size_t text_find(struct jinja_text t, struct jinja_text part, size_t from)
{
    for (size_t i = from; i + part.n <= t.n; i++)
        if (part.n == 0 || memcmp(t.p + i, part.p, part.n) == 0)
            return i;
    return t.n + 1;
}

static int is_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
           c == 0x202F || c == 0x205F || c == 0x3000;
}

static int is_stripped(struct jinja_text t, size_t at, size_t n, const struct jinja_text *chars)
{
    uint32_t c;
    if (!chars)
        return utf8_decode(t.p + at, n, &c) > 0 && is_space(c);
    for (size_t i = 0, k; i < chars->n; i += k) {
        k = text_char(*chars, i);
        if (k == n && memcmp(chars->p + i, t.p + at, n) == 0)
            return 1;
    }
    return 0;
}

struct jinja_text jinja_strip(struct jinja_text t, const struct jinja_text *chars, int left,
                              int right)
{
    size_t from = 0, to = t.n;
    for (size_t k; left && from < to; from += k) {
        k = text_char(t, from);
        if (!is_stripped(t, from, k, chars))
            break;
    }
    for (size_t k; right && to > from; to -= k) {
        for (k = 1; k < 4 && k < to - from && ((unsigned char)t.p[to - k] & 0xC0) == 0x80;)
            k++;
        if (text_char(t, to - k) != k) /* not UTF-8: byte by byte */
            k = 1;
        if (!is_stripped(t, to - k, k, chars))
            break;
    }
    return text_part(t, from, to - from);
}

/* ---- lists and dictionaries ---- */

/* Doubles *v (n of *cap used); 0 when out of memory. */
static int grow(struct jinja *j, void **v, size_t n, size_t *cap, size_t size)
{
    if (n < *cap)
        return 1;
    void *more = jinja_alloc(j, *cap ? 2 * *cap : 8, size);
    if (!more)
        return 0;
    if (n > 0)
        memcpy(more, *v, n * size);
    *v = more;
    *cap = *cap ? 2 * *cap : 8;
    return 1;
}

struct jinja_value jinja_list_new(struct jinja *j)
{
    struct jinja_list *l = jinja_alloc(j, 1, sizeof *l);
    return l ? (struct jinja_value){.kind = JINJA_LIST, .list = l} : UNDEFINED;
}

struct jinja_value jinja_dict_new(struct jinja *j)
{
    struct jinja_dict *d = jinja_alloc(j, 1, sizeof *d);
    return d ? (struct jinja_value){.kind = JINJA_DICT, .dict = d} : UNDEFINED;
}

void jinja_append(struct jinja *j, struct jinja_value list, struct jinja_value v)
{
    if (list.kind != JINJA_LIST)
        return;
    void *p = list.list->v;
    if (grow(j, &p, list.list->n, &list.list->cap, sizeof v)) {
        list.list->v = p;
        list.list->v[list.list->n++] = v;
    }
}

struct jinja_value *dict_find(const struct jinja_dict *d, struct jinja_text key)
{
    for (size_t i = 0; i < d->n; i++)
        if (d->v[i].key.n == key.n && (key.n == 0 || memcmp(d->v[i].key.p, key.p, key.n) == 0))
            return &d->v[i].value;
    return NULL;
}

void dict_set(struct jinja *j, struct jinja_dict *d, struct jinja_text key, struct jinja_value v)
{
    struct jinja_value *found = dict_find(d, key);
    void *p = d->v;
    if (found) {
        *found = v;
    } else if (grow(j, &p, d->n, &d->cap, sizeof *d->v)) {
        d->v = p;
        d->v[d->n++] = (struct jinja_pair){key, v};
    }
}

void jinja_put(struct jinja *j, struct jinja_value dict, const char *key, struct jinja_value v)
{
    if (dict.kind == JINJA_DICT)
        dict_set(j, dict.dict, text_from(key), v);
}
