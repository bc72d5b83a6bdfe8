/* wikitext: word perplexity of whole articles (Merity et al. 2016). */
#include <string.h>

#include "eval/task_impl.h"

/* Removes white space after `open` and before the next `close`. */
static void tighten(struct str *s, char open, char close)
{
    struct str out = {0};
    for (const char *p = str_text(s); *p;) {
        const char *end = *p == open ? strchr(p + 1, close) : NULL;
        if (!end) {
            str_add_char(&out, *p++);
            continue;
        }
        size_t from = 0, to = (size_t)(end - (p + 1));
        task_strip(p + 1, &from, &to);
        str_add_char(&out, open);
        str_add_bytes(&out, p + 1 + from, to - from);
        str_add_char(&out, close);
        p = end + 1;
    }
    out.failed |= s->failed;
    str_release(s);
    *s = out;
}

static void replace_all(struct str *s, const char *const (*pair)[2], size_t n)
{
    for (size_t i = 0; i < n; i++)
        task_replace(s, pair[i][0], pair[i][1]);
}

/* "/' 3/" becomes "/'[0-9]/": a bug of the original, kept to reproduce published results. */
static void replace_digit(struct str *s)
{
    static const char begin[] = "/' ";
    struct str out = {0};
    const char *p = str_text(s), *hit;
    while ((hit = strstr(p, begin)) != NULL) {
        int is_match = hit[3] >= '0' && hit[3] <= '9' && hit[4] == '/';
        str_add_bytes(&out, p, (size_t)(hit - p));
        str_add(&out, is_match ? "/'[0-9]/" : begin);
        p = hit + (is_match ? 5 : 3);
    }
    str_add(&out, p);
    out.failed |= s->failed;
    str_release(s);
    *s = out;
}

/* The replacements apply in this order. */
static void detokenise(struct str *s)
{
    static const char *const before[][2] = {
        {" @-@ ", "-"}, {" @,@ ", ","}, {" @.@ ", "."}, {" : ", ": "}, {" ; ", "; "},
        {" . ", ". "},  {" ! ", "! "},  {" ? ", "? "},  {" , ", ", "},
    };
    static const char *const after[][2] = {
        {"= = = =", "===="}, {"= = =", "==="}, {"= =", "=="},  {" \xc2\xb0 ", "\xc2\xb0"},
        {" \n", "\n"},       {"\n ", "\n"},    {" N ", " 1 "}, {" 's", "'s"},
    };
    task_replace(s, "s '", "s'");
    replace_digit(s);
    replace_all(s, before, sizeof before / sizeof *before);
    tighten(s, '(', ')');
    tighten(s, '[', ']');
    tighten(s, '{', '}');
    tighten(s, '"', '"');
    tighten(s, '\'', '\'');
    replace_all(s, after, sizeof after / sizeof *after);
}

/* len(re.split(r"\s+", text)): one more than there are stretches of white space. */
static double words(const char *text, size_t n)
{
    double count = 1;
    int inside = 0;
    for (size_t at = 0; at < n;) {
        size_t k = task_space(text + at, n - at);
        count += k > 0 && !inside;
        inside = k > 0;
        at += k > 0 ? k : 1;
    }
    return count;
}

static int set_page(struct task_doc *d, const char *page, size_t n, struct err *e)
{
    struct str text = {0};
    d->words = words(page, n);
    d->bytes = (double)n;
    str_add_bytes(&text, page, n);
    detokenise(&text);
    return task_take(&d->query, &text, e);
}

static int add_row(struct task_doc *d, const struct json_node *row, const char *where,
                   struct err *e)
{
    const char *page;
    int rc = task_text(&page, row, "page", where, e);
    return rc == 0 ? set_page(d, page, strlen(page), e) : rc;
}

/* " = Title = ", but not " = = Section = = ". */
static int is_title(const char *line, size_t n)
{
    size_t from = 0, to = n;
    task_strip(line, &from, &to);
    n = to - from;
    line += from;
    return n >= 5 && memcmp(line, "= ", 2) == 0 && line[2] != '=' &&
           memcmp(line + n - 2, " =", 2) == 0 && line[n - 3] != '=';
}

static int add_page(struct task_docs *out, const char *page, size_t n, struct err *e)
{
    size_t from = 0, to = n;
    task_strip(page, &from, &to);
    if (from == to)
        return 0;
    struct task_doc *d = task_add_doc(out);
    return d ? set_page(d, page, n, e) : err_set(e, DS_EMEM, "out of memory for documents");
}

static int read_raw(struct task_docs *out, const char *path, struct err *e)
{
    struct str text = {0};
    int rc = task_read_file(&text, path, e);
    size_t start = 0;
    for (size_t at = 0; rc == 0 && at < text.len;) {
        const char *end = memchr(text.p + at, '\n', text.len - at);
        size_t n = end ? (size_t)(end - text.p) + 1 - at : text.len - at;
        if (is_title(text.p + at, n)) {
            rc = add_page(out, text.p + start, at - start, e);
            start = at;
        }
        at += n;
    }
    if (rc == 0)
        rc = add_page(out, str_text(&text) + start, text.len - start, e);
    if (rc == 0 && out->n == 0)
        rc = err_set(e, DS_EFORMAT, "%s: no documents", path);
    str_release(&text);
    return rc;
}

/* 1 for the published raw text, which has no rows. */
static int is_raw(const char *path)
{
    static const char *const rows[] = {".jsonl", ".json", ".csv"};
    const char *dot = strrchr(path, '.');
    for (size_t i = 0; dot && i < sizeof rows / sizeof *rows; i++)
        if (strcmp(dot, rows[i]) == 0)
            return 0;
    return 1;
}

static int read_wikitext(struct task_parts *out, const struct task *t, const struct task_env *env,
                         struct err *e)
{
    static const char *const names[] = {"test.jsonl", "wiki.test.raw", NULL};
    char path[1024];
    struct task_part *part = task_add_part(out, t->name, "", NULL);
    int rc = part ? 0 : err_set(e, DS_EMEM, "out of memory for documents");
    if (rc == 0 && env->has_shots)
        rc = err_set(e, DS_EUSAGE, "task=wikitext scores whole texts; set shots=0");
    if (rc == 0)
        rc = task_find(path, sizeof path, env->path, names, e);
    if (rc < 0)
        return rc;
    return is_raw(path) ? read_raw(&part->asked, path, e)
                        : task_read_rows(&part->asked, path, add_row, e);
}

static int judge(const struct task_doc *d, const struct task_answer *a,
                 struct task_value out[TASK_METRICS_MAX])
{
    out[0] = (struct task_value){a->ll[0], d->words};
    out[1] = (struct task_value){a->ll[0], d->bytes};
    out[2] = (struct task_value){a->ll[0], d->bytes};
    return 0;
}

static const struct task_metric metrics[] = {
    {"word_perplexity", "none", TASK_WEIGHTED_PERPLEXITY, 0},
    {"byte_perplexity", "none", TASK_WEIGHTED_PERPLEXITY, 0},
    {"bits_per_byte", "none", TASK_WEIGHTED_BITS, 0}};
const struct task task_wikitext = {
    .name = "wikitext",
    .summary = "word perplexity of whole articles",
    .source = "wiki.test.raw of wikitext-2-raw, or the rows of EleutherAI/wikitext_document_level "
              "as test.jsonl",
    .output_type = "loglikelihood_rolling",
    .kind = TASK_ROLLING,
    .version = 2,
    .metrics = metrics,
    .n_metrics = 3,
    .read = read_wikitext,
    .judge = judge,
};
