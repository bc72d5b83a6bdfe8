/* hellaswag: choose the most plausible of four endings (Zellers et al. 2019). */
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
    out.failed |= s->failed;
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

/* Letters that expand to several.  (A word-final sigma is not distinguished.) */
static const char *several(uint32_t c, int is_first)
{
    switch (c) {
    case 0xdf: return is_first ? "Ss" : NULL;
    case 0x149: return is_first ? "\xca\xbcN" : NULL;
    case 0x130: return is_first ? NULL : "i\xcc\x87";
    default: return NULL;
    }
}

/* str.capitalize(): first letter in title case, the rest in lower case. */
static void add_capitalised(struct str *out, const char *s)
{
    size_t n = strlen(s);
    for (size_t at = 0; at < n;) {
        uint32_t c;
        char bytes[4];
        int k = utf8_decode(s + at, n - at, &c);
        const char *put = several(c, at == 0);
        if (put)
            str_add(out, put);
        else
            str_add_bytes(out, bytes,
                          (size_t)utf8_encode(bytes, at == 0 ? utf8_title(c) : utf8_lower(c)));
        at += (size_t)(k > 0 ? k : 1);
    }
}

static int add_ending(struct task_doc *d, size_t k, const struct json_node *ending,
                      const char *where, struct err *e)
{
    const char *text = json_str(ending, NULL);
    struct str s = {0};
    if (!text)
        return err_set(e, DS_EFORMAT, "%s: ending %zu: must be a string", where, k);
    str_add(&s, text);
    preprocess(&s);
    return task_take(&d->choice[k], &s, e);
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
        rc = err_set(e, DS_EFORMAT, "%s: %zu \"endings\", expected 2 to %d", where, n,
                     TASK_CHOICES_MAX);
    for (size_t k = 0; k < n && rc == 0; k++)
        rc = add_ending(d, k, json_at(endings, k), where, e);
    if (rc < 0)
        return rc;
    d->choices = (int)n;
    d->gold = (int)task_int(row, "label"); /* published both as a number and as a string */
    if (d->gold < 0 || d->gold >= d->choices)
        return err_set(e, DS_EFORMAT, "%s: missing \"label\" among %d endings", where, d->choices);
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
    .summary = "most plausible of four endings",
    .source =
        "validation.jsonl (hellaswag_val.jsonl), and train.jsonl for shots, of rowanz/hellaswag",
    .output_type = "multiple_choice",
    .kind = TASK_CHOICE,
    .draws_spare = 1,
    .version = 1,
    .metrics = task_choice_metrics,
    .n_metrics = 3,
    .read = read_hellaswag,
    .judge = task_judge_choices,
};
