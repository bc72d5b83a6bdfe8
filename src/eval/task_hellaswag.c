/* hellaswag: which of four endings follows (Zellers et al. 2019). */
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "eval/task_impl.h"

/* strip, " [title]" -> ". ", without "[...]", two blanks -> one */
static void preprocess(struct str *s)
{
    struct str out = {0};
    size_t from = 0, to = s->len;
    const char *text = str_text(s);
    task_strip(text, &from, &to);
    str_add_bytes(&out, text + from, to - from);
    task_replace(&out, " [title]", ". ");
    str_reset(s);
    for (const char *p = str_text(&out); *p;) { /* \[.*?\] : not across lines */
        const char *end = *p == '[' ? strchr(p, ']') : NULL;
        if (end && !memchr(p, '\n', (size_t)(end - p)))
            p = end + 1;
        else
            str_add_char(s, *p++);
    }
    s->failed |= out.failed;
    str_release(&out);
    task_replace(s, "  ", " ");
}

/* Latin, Greek and Cyrillic letters that differ by a distance. */
static uint32_t shift_case(uint32_t c, int upper)
{
    static const struct {
        uint32_t from, to, by; /* capitals */
    } range[] = {{'A', 'Z', 32},     {0xc0, 0xd6, 32},   {0xd8, 0xde, 32},
                 {0x391, 0x3a9, 32}, {0x410, 0x42f, 32}, {0x400, 0x40f, 80}};
    for (size_t i = 0; i < sizeof range / sizeof *range; i++) {
        if (!upper && c >= range[i].from && c <= range[i].to)
            return c + range[i].by;
        if (upper && c >= range[i].from + range[i].by && c <= range[i].to + range[i].by)
            return c - range[i].by;
    }
    return c;
}

/* str.capitalize(): the first letter large, the others small. */
static void add_capitalised(struct str *out, const char *s)
{
    size_t n = strlen(s);
    for (size_t at = 0; at < n;) {
        uint32_t c;
        char bytes[4];
        int k = utf8_decode(s + at, n - at, &c);
        int put = utf8_encode(bytes, shift_case(c, at == 0));
        str_add_bytes(out, bytes, (size_t)put);
        at += (size_t)(k > 0 ? k : 1);
    }
}

static int add_ending(struct task_doc *d, size_t k, const struct json_node *ending,
                      const char *where, struct err *e)
{
    const char *text = json_str(ending, NULL);
    struct str s = {0};
    if (!text)
        return err_set(e, DS_EFORMAT, "%s: ending %zu is not a text", where, k);
    str_add(&s, text);
    preprocess(&s);
    return task_take(&d->choice[k], &s, e);
}

/* Published as a number, and as a text of one. */
static int label_of(const struct json_node *row)
{
    const char *text = json_str(json_get(row, "label"), NULL);
    if (text)
        return text[0] >= '0' && text[0] <= '9' && text[1] == '\0' ? text[0] - '0' : -1;
    return (int)json_int(json_get(row, "label"), -1);
}

static int add_row(struct task_doc *d, const struct json_node *row, const char *where,
                   struct err *e)
{
    const char *a, *b, *label;
    struct str query = {0};
    const struct json_node *endings = json_get(row, "endings");
    size_t n = json_kind_of(endings) == JSON_KIND_ARRAY ? json_len(endings) : 0;
    int rc = task_text(&label, row, "activity_label", where, e);
    if (rc == 0)
        rc = task_text(&a, row, "ctx_a", where, e);
    if (rc == 0)
        rc = task_text(&b, row, "ctx_b", where, e);
    if (rc == 0 && (n < 2 || n > TASK_CHOICES_MAX))
        rc = err_set(e, DS_EFORMAT, "%s: %zu \"endings\", not 2 to %d", where, n, TASK_CHOICES_MAX);
    for (size_t k = 0; k < n && rc == 0; k++)
        rc = add_ending(d, k, json_at(endings, k), where, e);
    if (rc < 0)
        return rc;
    d->choices = (int)n;
    d->gold = label_of(row);
    if (d->gold < 0 || d->gold >= d->choices)
        return err_set(e, DS_EFORMAT, "%s: no \"label\" among %d endings", where, d->choices);
    str_addf(&query, "%s: %s ", label, a);
    add_capitalised(&query, b);
    preprocess(&query);
    rc = task_take(&d->query, &query, e);
    return rc == 0 ? task_set(&d->target, d->choice[d->gold], e) : rc;
}

static int read_hellaswag(struct task_parts *out, const struct task *t, const struct task_env *env,
                          struct err *e)
{
    static const char *const asked[] = {"validation.jsonl", "hellaswag_val.jsonl", "val.jsonl",
                                        NULL};
    static const char *const shots[] = {"train.jsonl", "hellaswag_train.jsonl", NULL};
    return task_read_splits(out, t, env, asked, shots, add_row, e);
}

const struct task task_hellaswag = {
    .name = "hellaswag",
    .summary = "which of four endings follows",
    .output_type = "multiple_choice",
    .kind = TASK_CHOICE,
    .version = 1,
    .metrics = task_choice_metrics,
    .n_metrics = 3,
    .read = read_hellaswag,
    .judge = task_judge_choices,
};
