/* Chat templates render as jinja2 renders them for transformers: chat_templates.py has the templates and conversations. */
#include "t.h"

#include <sys/wait.h>

#include "base/json.h"
#include "data/chat.h"

enum { FILE_MAX = 64 << 20 };

struct tally {
    size_t same, refused, unsupported;
};

/* One conversation.  may_miss: a template may use what is not supported, but never be rendered
 * otherwise. */
static void check(const struct json_node *all, const struct json_node *x,
                  const struct json_node *one, int may_miss, struct tally *n)
{
    struct chat c = {0};
    struct err e = {0};
    struct str out = {0};
    struct chat_messages m = {0};
    size_t len = 0, text_len = 0;
    const char *text = json_str(json_get(x, "template"), &text_len);
    const char *want = json_str(json_at(one, 3), &len), *name = json_str(json_get(x, "name"), NULL);
    int64_t which = json_int(json_at(one, 0), 0);
    t_ok(chat_add_json(&m, json_at(json_get(all, "chats"), (size_t)which), name, &e), &e);
    int rc = chat_init(&c, CHAT_AUTO, text, text_len, "<s>", "</s>", &e);
    c.now = json_int(json_get(all, "now"), 0);
    c.is_complete = !json_bool(json_at(one, 1), 0);
    c.thinking = json_kind_of(json_at(one, 2)) == JSON_KIND_NULL ? CHAT_THINKING_AUTO
                 : json_bool(json_at(one, 2), 0)                 ? CHAT_THINKING_ON
                                                                 : CHAT_THINKING_OFF;
    if (rc == 0)
        rc = chat_render(&c, &m, 0, &out, &e);
    if (rc < 0 && want && may_miss && strstr(e.text, "unsupported")) {
        n->unsupported++;
    } else if (!want) {
        t_truef(rc < 0, "%s, chat %d: jinja2 refuses it, here: %s", name, (int)which,
                str_text(&out));
        n->refused++;
    } else {
        t_truef(rc == 0, "%s, chat %d: %s", name, (int)which, e.text);
        t_truef(out.len == len && memcmp(str_text(&out), want, len) == 0,
                "%s, chat %d\n---- jinja2:\n%s\n---- here:\n%s", name, (int)which, want,
                str_text(&out));
        n->same++;
    }
    str_release(&out);
    chat_messages_release(&m);
    chat_release(&c);
}

static struct tally check_file(const char *path, int may_miss)
{
    struct json *j = NULL;
    struct err e = {0};
    struct tally n = {0};
    setenv("TZ", "UTC", 1);
    t_ok(json_read_file(&j, path, FILE_MAX, &e), &e);
    const struct json_node *all = json_root(j), *list = json_get(all, "templates");
    for (size_t i = 0; i < json_len(list); i++) {
        const struct json_node *x = json_at(list, i), *want = json_get(x, "want");
        struct tally before = n;
        fflush(stdout);
        for (size_t k = 0; k < json_len(want); k++)
            check(all, x, json_at(want, k), may_miss, &n);
        if (may_miss)
            printf("%s: %zu equal, %zu refused by both, %zu unsupported here\n",
                   json_str(json_get(x, "name"), NULL), n.same - before.same,
                   n.refused - before.refused, n.unsupported - before.unsupported);
    }
    json_free(j);
    return n;
}

T(templates_in_the_manner_of_the_families_render_as_with_jinja2)
{
    struct tally n = check_file("tests/golden/chat_templates.json", 0);
    t_true(n.same > 200 && n.refused > 20 && n.unsupported == 0);
}

T_SECONDS(published_templates_render_as_with_jinja2, 300)
{
    char path[600], line[2000];
    const char *dir = getenv("CHAT_TEMPLATES"), *python = getenv("PYTHON");
    if (!dir)
        t_skip("CHAT_TEMPLATES does not name a folder of *.jinja files");
    snprintf(path, sizeof path, "%s/want.json", t_tmpdir());
    snprintf(line, sizeof line, "%s tests/golden/chat_templates.py '%s' > %s",
             python ? python : "python3", dir, path);
    int status = system(line);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        t_skip("Python has no jinja2");
    t_eq(status, 0);
    struct tally n = check_file(path, 1);
    t_true(n.same > 0);
}
