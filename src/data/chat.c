/* Finds a model's chat template, and renders conversations with it. */
#include "data/chat.h"

#include <string.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/mem.h"
#include "data/jinja/jinja.h"
#include "io/gguf.h"

const char *const chat_template_name[CHAT_TEMPLATES] = {"auto",     "chatml",  "llama2", "llama3",
                                                        "llama3.1", "mistral", "zephyr"};

/* ---- messages ---- */

int chat_add(struct chat_messages *m, enum chat_role role, const char *text, size_t n,
             struct err *e)
{
    void *v = m->v;
    if (mem_grow(&v, &m->cap, m->n + 1, sizeof *m->v) < 0)
        return err_set(e, DS_EMEM, "out of memory for messages");
    m->v = v;
    struct chat_message *x = &m->v[m->n++];
    *x = (struct chat_message){.role = role};
    str_add_bytes(&x->text, text, n);
    return x->text.failed ? err_set(e, DS_EMEM, "out of memory for the message") : 0;
}

static const char *const thought_name[] = {"reasoning_content", "thinking", "reasoning"};

static int add_thought(struct chat_message *x, const struct json_node *from, struct err *e)
{
    for (size_t i = 0, n = 0; i < DS_LEN(thought_name); i++) {
        const char *thought = json_str(json_get(from, thought_name[i]), &n);
        if (thought) {
            str_add_bytes(&x->thought, thought, n);
            break;
        }
    }
    return x->thought.failed ? err_set(e, DS_EMEM, "out of memory for the message") : 0;
}

int chat_add_json(struct chat_messages *m, const struct json_node *list, const char *what,
                  struct err *e)
{
    static const char *const role_name[] = {"system", "user", "assistant"};
    if (json_kind_of(list) != JSON_KIND_ARRAY || json_len(list) == 0)
        return err_set(
            e, DS_EFORMAT,
            "%s: expected a list of messages, [{\"role\": \"user\", \"content\": \"...\"}]", what);
    for (size_t i = 0; i < json_len(list); i++) {
        size_t n = 0, k = 0;
        const char *role = json_str(json_get(json_at(list, i), "role"), NULL);
        const char *text = json_str(json_get(json_at(list, i), "content"), &n);
        while (role && k < DS_LEN(role_name) && strcmp(role, role_name[k]) != 0)
            k++;
        if (!role || !text)
            return err_set(e, DS_EFORMAT, "%s: message %zu: missing string \"%s\"", what, i + 1,
                           role ? "content" : "role");
        if (k == DS_LEN(role_name))
            return err_set(e, DS_EFORMAT,
                           "%s: message %zu: role \"%.40s\", expected system, user or assistant",
                           what, i + 1, role);
        if (json_len(json_get(json_at(list, i), "tool_calls")) > 0)
            return err_set(e, DS_EFORMAT, "%s: message %zu: tool calls are unsupported", what,
                           i + 1);
        int rc = chat_add(m, (enum chat_role)k, text, n, e);
        if (rc == 0)
            rc = add_thought(&m->v[m->n - 1], json_at(list, i), e);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static void message_release(struct chat_message *x)
{
    str_release(&x->text);
    str_release(&x->thought);
}

void chat_drop(struct chat_messages *m, size_t n)
{
    while (m->n > n)
        message_release(&m->v[--m->n]);
}

void chat_messages_release(struct chat_messages *m)
{
    for (size_t i = 0; i < m->n; i++)
        message_release(&m->v[i]);
    mem_free(m->v);
    *m = (struct chat_messages){0};
}

/* ---- the families ---- */

#define ALTERNATE                                                                                  \
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('user and "           \
    "assistant messages must alternate; message ' ~ loop.index ~ ' does not') }}{% endif %}"

static const struct family {
    const char *bos,
        *eos; /* unless the files name others; eos NULL: the tokenizer's, else "</s>" */
    const char *text;
} families[CHAT_TEMPLATES] = {
    [CHAT_CHATML] =
        {"", "<|im_end|>",
         "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
         "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"},
    [CHAT_LLAMA2] =
        {"<s>", NULL,
         "{% set system = '' %}{% set turns = messages %}"
         "{% if messages[0].role == 'system' %}{% set turns = messages[1:] %}"
         "{% set system = '<<SYS>>\\n' + messages[0].content + '\\n<</SYS>>\\n\\n' %}"
         "{% endif %}{% for m in turns %}" ALTERNATE "{% if m.role == 'user' %}"
         "{{ bos_token }}[INST] {{ ((system if loop.first else '') + m.content) | trim }}"
         " [/INST]{% else %} {{ m.content | trim }} {{ eos_token }}{% endif %}"
         "{% endfor %}"},
    [CHAT_LLAMA3] = {"<|begin_of_text|>", "<|eot_id|>",
                     "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m.role }}"
                     "<|end_header_id|>\n\n{{ m.content | trim }}<|eot_id|>{% endfor %}"
                     "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>"
                     "\n\n{% endif %}"},
    /* There is always a system prompt, preceded by two dates. */
    [CHAT_LLAMA31] = {"<|begin_of_text|>", "<|eot_id|>",
                      "{% set has_system = messages[0].role == 'system' %}"
                      "{{ bos_token }}<|start_header_id|>system<|end_header_id|>\n\n"
                      "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n"
                      "{{ messages[0].content | trim if has_system }}<|eot_id|>"
                      "{% for m in (messages[1:] if has_system else messages) %}"
                      "<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
                      "{{ m.content | trim }}<|eot_id|>{% endfor %}{% if add_generation_prompt %}"
                      "<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"},
    [CHAT_MISTRAL] =
        {"<s>", NULL,
         "{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}"
         "{{ raise_exception('system messages are not supported') }}{% endif %}" ALTERNATE
         "{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]"
         "{% else %}{{ m.content }}{{ eos_token }}{% endif %}{% endfor %}"},
    [CHAT_ZEPHYR] = {"", NULL,
                     "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}{{ eos_token }}\n"
                     "{% endfor %}{% if add_generation_prompt %}<|assistant|>\n{% endif %}"},
};

/* ---- rendering ---- */

enum origin { FROM_TEMPLATE, FROM_MESSAGE, FROM_ANSWER };

/* Bytes and where each is from. */
struct rendered {
    struct str text, from;
    int is_refused; /* by raise_exception of the template */
};

static void rendered_release(struct rendered *x)
{
    str_release(&x->text);
    str_release(&x->from);
}

static const char *const role_word[] = {
    [CHAT_SYSTEM] = "system", [CHAT_USER] = "user", [CHAT_ASSISTANT] = "assistant"};

/* The messages as variables.  answer: of this one only the end is of interest; m->n: of none. */
static struct jinja_value list_messages(struct jinja *j, const struct chat_messages *m, size_t n,
                                        size_t answer)
{
    struct jinja_value list = jinja_list_new(j);
    for (size_t i = 0; i < n; i++) {
        const struct chat_message *x = &m->v[i];
        struct jinja_value v = jinja_dict_new(j), thought;
        jinja_put(j, v, "role",
                  jinja_text_of(j, role_word[x->role], strlen(role_word[x->role]), FROM_TEMPLATE));
        jinja_put(j, v, "content",
                  i == answer ? jinja_text_of(j, "x", 1, FROM_ANSWER)
                              : jinja_text_of(j, str_text(&x->text), x->text.len, FROM_MESSAGE));
        thought = jinja_text_of(j, str_text(&x->thought), x->thought.len, FROM_MESSAGE);
        for (size_t k = 0; k < DS_LEN(thought_name) && x->thought.len > 0; k++)
            jinja_put(j, v, thought_name[k], thought);
        jinja_append(j, list, v);
    }
    return list;
}

static void put_text(struct jinja *j, struct jinja_value vars, const char *name, const char *s)
{
    if (s[0])
        jinja_put(j, vars, name, jinja_text_of(j, s, strlen(s), FROM_TEMPLATE));
}

/* The first n messages; is_complete: without the start of the next answer. */
static int render(const struct chat *c, const struct chat_messages *m, size_t n, size_t answer,
                  int is_complete, struct rendered *out, struct err *e)
{
    struct jinja *j = NULL;
    int rc = jinja_open(&j, str_text(&c->text), c->text.len, e);
    if (rc < 0)
        return rc;
    struct jinja_value vars = jinja_dict_new(j);
    jinja_put(j, vars, "messages", list_messages(j, m, n, answer));
    jinja_put(j, vars, "add_generation_prompt", jinja_bool(!is_complete));
    jinja_put(j, vars, "tools", jinja_none());
    jinja_put(j, vars, "documents", jinja_none());
    put_text(j, vars, "bos_token", c->bos);
    put_text(j, vars, "eos_token", c->eos);
    if (c->thinking != CHAT_THINKING_AUTO)
        jinja_put(j, vars, "enable_thinking", jinja_bool(c->thinking == CHAT_THINKING_ON));
    rc = jinja_render(j, vars, c->now ? c->now : (int64_t)clock_wall(), &out->text, &out->from, e);
    out->is_refused = jinja_is_refused(j);
    jinja_close(j);
    return rc < 0 ? err_add(e, rc, "chat template") : 0;
}

/* Keeps what follows the answer. */
static int keep_rest(struct rendered *x, struct err *e)
{
    size_t at = x->text.len;
    while (at > 0 && x->from.p[at - 1] != FROM_ANSWER)
        at--;
    if (at == 0)
        return err_set(e, DS_EUSAGE, "chat template: it does not write the answers");
    memmove(x->text.p, x->text.p + at, x->text.len - at + 1);
    memmove(x->from.p, x->from.p + at, x->from.len - at + 1);
    x->text.len -= at;
    x->from.len -= at;
    return 0;
}

static int render_from(const struct chat *c, const struct chat_messages *m, size_t from,
                       struct rendered *out, struct err *e)
{
    if (m->n == 0 || (from == m->n && !c->is_complete && from > 0))
        return err_set(e, DS_EUSAGE, "no user message: expected at least one");
    int rc = render(c, m, m->n, from > 0 ? from - 1 : m->n, c->is_complete, out, e);
    return rc == 0 && from > 0 ? keep_rest(out, e) : rc;
}

/* ---- choosing the template ---- */

static int unknown(const char *text, struct err *e)
{
    static const char choices[] =
        "set template=chatml, llama2, llama3, llama3.1, mistral or zephyr";
    if (!text)
        return err_set(e, DS_EUSAGE, "the model has no chat template; %s, or omit --chat", choices);
    char why[256];
    str_copy(why, sizeof why, e ? e->text : "");
    return err_set(e, DS_EUSAGE, "unsupported chat template in the model: %s; %s if one fits", why,
                   choices);
}

/* A template must write a question, or one after a system prompt, unless it refuses these by
 * raise_exception: the user's own messages may suit it, and else its reason is their error. */
static int try_out(const struct chat *c, struct err *e)
{
    int rc = 0, is_refused = 0;
    for (int has_system = 0; has_system < 2; has_system++) {
        struct chat_messages m = {0};
        struct rendered x = {{0}};
        rc = has_system ? chat_add(&m, CHAT_SYSTEM, "x", 1, e) : 0;
        if (rc == 0)
            rc = chat_add(&m, CHAT_USER, "x", 1, e);
        if (rc == 0)
            rc = render(c, &m, m.n, m.n - 1, 0, &x, e);
        if (rc == 0 && !memchr(str_text(&x.from), FROM_ANSWER, x.from.len))
            rc = err_set(e, DS_EUSAGE, "chat template: it does not write the messages");
        is_refused |= x.is_refused;
        chat_messages_release(&m);
        rendered_release(&x);
        if (rc == 0)
            break;
    }
    return is_refused && rc == DS_EUSAGE ? 0 : rc;
}

int chat_init(struct chat *c, enum chat_template kind, const char *text, size_t n, const char *bos,
              const char *eos, struct err *e)
{
    struct err own = {0};
    const struct family *f = &families[kind];
    *c = (struct chat){.kind = kind};
    if (kind == CHAT_AUTO) {
        if (!text)
            return unknown(NULL, e);
        str_copy(c->bos, sizeof c->bos, bos ? bos : "");
        str_copy(c->eos, sizeof c->eos, eos ? eos : "");
        str_add_bytes(&c->text, text, n);
    } else {
        str_copy(c->bos, sizeof c->bos, bos && bos[0] && f->bos[0] ? bos : f->bos);
        str_copy(c->eos, sizeof c->eos, f->eos ? f->eos : eos && eos[0] ? eos : "</s>");
        str_add(&c->text, f->text);
    }
    int rc = c->text.failed ? DS_EMEM : try_out(c, &own);
    if (rc < 0) {
        chat_release(c);
        if (e)
            *e = own;
        return rc == DS_EMEM ? err_set(e, rc, "out of memory for the chat template")
                             : unknown(text ? text : f->text, e);
    }
    return 0;
}

void chat_release(struct chat *c)
{
    str_release(&c->text);
}

/* ---- the files ---- */

enum { TEMPLATE_MAX = 4 << 20 };

/* "bos_token": "<s>" or {"content": "<s>"} */
static const char *token_text(const struct json_node *root, const char *key)
{
    const struct json_node *x = json_get(root, key);
    return json_str(json_kind_of(x) == JSON_KIND_OBJECT ? json_get(x, "content") : x, NULL);
}

/* A string, or the "default" one of a list of named templates. */
static const char *template_text(const struct json_node *x, size_t *n)
{
    for (size_t i = 0; json_kind_of(x) == JSON_KIND_ARRAY && i < json_len(x); i++) {
        const char *name = json_str(json_get(json_at(x, i), "name"), NULL);
        if (name && strcmp(name, "default") == 0)
            return json_str(json_get(json_at(x, i), "template"), n);
    }
    return json_str(x, n);
}

static int read_optional(struct str *out, const char *dir, const char *name, struct err *e)
{
    char path[1024];
    int rc = fs_join(path, sizeof path, dir, name, e);
    return rc < 0 || !fs_exists(path) ? rc : fs_read_file(out, path, TEMPLATE_MAX, e);
}

/* What the files of a model say. */
struct source {
    struct str text; /* the template; empty: none */
    char bos[64], eos[64];
};

static void gguf_token(const struct gguf *g, const char *key, char *out, size_t size)
{
    const struct gguf_meta *all = gguf_meta_find(g, "tokenizer.ggml.tokens");
    struct gguf_text s = {0};
    int64_t id = -1;
    if (!all || !gguf_int(gguf_meta_find(g, key), 0, &id) || id < 0 || (uint64_t)id >= all->count)
        return;
    struct gguf_strings in = {all->data, all->count};
    for (int64_t i = 0; i <= id; i++)
        if (!gguf_strings_next(&in, &s))
            return;
    if (s.n < size) {
        memcpy(out, s.p, s.n);
        out[s.n] = '\0';
    }
}

static int gguf_source(struct source *out, const char *path, struct err *e)
{
    struct gguf *g = NULL;
    struct gguf_text found = {0};
    int rc = gguf_open(&g, path, e);
    if (rc < 0)
        return rc;
    if (gguf_string(gguf_meta_find(g, "tokenizer.chat_template"), &found))
        str_add_bytes(&out->text, found.p, found.n);
    gguf_token(g, "tokenizer.ggml.bos_token_id", out->bos, sizeof out->bos);
    gguf_token(g, "tokenizer.ggml.eos_token_id", out->eos, sizeof out->eos);
    gguf_close(g);
    return 0;
}

static void take_token(char *out, size_t size, const struct json_node *root, const char *key)
{
    const char *s = token_text(root, key);
    if (!out[0] && s && strlen(s) < size)
        str_copy(out, size, s);
}

/* The template, unless there is one already, and special tokens from one of the files. */
static int take_config(struct source *out, const char *dir, const char *name, struct err *e)
{
    struct json *j = NULL;
    struct str file = {0};
    size_t n = 0;
    int rc = read_optional(&file, dir, name, e);
    if (rc == 0 && file.len > 0)
        rc = json_parse_wide(&j, file.p, file.len, name, e);
    if (rc == 0 && j) {
        const char *own = template_text(json_get(json_root(j), "chat_template"), &n);
        if (own && out->text.len == 0)
            str_add_bytes(&out->text, own, n);
        take_token(out->bos, sizeof out->bos, json_root(j), "bos_token");
        take_token(out->eos, sizeof out->eos, json_root(j), "eos_token");
    }
    json_free(j);
    str_release(&file);
    return rc;
}

static void take_piece(char *out, size_t size, const struct tokenizer *t, int32_t id)
{
    size_t n = 0;
    const char *s = id >= 0 ? tokenizer_piece(t, id, &n) : NULL;
    if (!out[0] && s && n < size) {
        memcpy(out, s, n);
        out[n] = '\0';
    }
}

/* Special tokens that the template needs and no file names: those of the tokenizer. */
static int take_tokenizer(struct source *out, const char *dir, struct err *e)
{
    static const char bos[] = "bos_token", eos[] = "eos_token";
    char path[1024];
    struct tokenizer *t = NULL;
    int needs = (!out->bos[0] && strstr(str_text(&out->text), bos)) ||
                (!out->eos[0] && strstr(str_text(&out->text), eos));
    if (!needs || tokenizer_find(path, sizeof path, dir, NULL) < 0)
        return 0;
    int rc = tokenizer_load(&t, path, e);
    if (rc < 0)
        return rc;
    take_piece(out->bos, sizeof out->bos, t, tokenizer_bos(t));
    take_piece(out->eos, sizeof out->eos, t, tokenizer_eot(t));
    tokenizer_free(t);
    return 0;
}

/* Of a directory or a GGUF file; other files have nothing. */
static int read_source(struct source *out, const char *model, struct err *e)
{
    size_t n = strlen(model);
    int rc = 0, is_dir = fs_is_dir(model);
    if (is_dir) {
        rc = read_optional(&out->text, model, "chat_template.jinja", e);
        if (rc == 0)
            rc = take_config(out, model, "tokenizer_config.json", e);
        if (rc == 0)
            rc = take_config(out, model, "special_tokens_map.json", e);
        if (rc == 0)
            rc = take_tokenizer(out, model, e);
    } else if (n > 5 && strcmp(model + n - 5, ".gguf") == 0) {
        rc = gguf_source(out, model, e);
    }
    if (rc == 0 && out->text.failed)
        rc = err_set(e, DS_EMEM, "out of memory for the chat template");
    return rc < 0 && is_dir ? err_add(e, rc, "%s", model) : rc;
}

static int find_source(struct source *out, const char *model, const char *base, struct err *e)
{
    int rc = read_source(out, model, e);
    if (rc < 0 || out->text.len > 0 || !base)
        return rc;
    str_release(&out->text);
    *out = (struct source){{0}};
    return read_source(out, base, e);
}

int chat_template_of(struct str *out, const char *model, const char *base, struct err *e)
{
    struct source from = {{0}};
    int rc = find_source(&from, model, base, e);
    if (rc == 0) {
        str_add_bytes(out, str_text(&from.text), from.text.len);
        rc = out->failed ? err_set(e, DS_EMEM, "out of memory for the chat template") : 0;
    }
    str_release(&from.text);
    return rc;
}

/* A file that is there already stays. */
static int write_text(const char *dir, const char *name, const struct str *text, struct err *e)
{
    char path[1200];
    int rc = fs_join(path, sizeof path, dir, name, e);
    return rc < 0 || text->len == 0 || fs_exists(path) ? rc : fs_write_text(path, text, e);
}

int chat_copy(const char *model, const char *base, const char *to, struct err *e)
{
    struct source from = {{0}};
    struct str names = {0};
    const char *const token[][2] = {{"bos_token", from.bos}, {"eos_token", from.eos}};
    int rc = find_source(&from, model, base, e);
    for (size_t i = 0; rc == 0 && i < DS_LEN(token); i++)
        if (token[i][1][0]) {
            str_addf(&names, "%s\"%s\": ", names.len ? ", " : "{", token[i][0]);
            str_add_json(&names, token[i][1], strlen(token[i][1]));
        }
    if (names.len)
        str_add(&names, "}\n");
    if (rc == 0 && from.text.len > 0)
        rc = write_text(to, "chat_template.jinja", &from.text, e);
    if (rc == 0 && from.text.len > 0)
        rc = write_text(to, "special_tokens_map.json", &names, e);
    str_release(&from.text);
    str_release(&names);
    return rc;
}

int chat_open(struct chat *c, enum chat_template kind, const char *model, const char *base,
              struct err *e)
{
    struct source from = {{0}};
    int rc = find_source(&from, model, base, e);
    if (rc == 0) {
        rc = chat_init(c, kind, from.text.len > 0 ? from.text.p : NULL, from.text.len, from.bos,
                       from.eos, e);
        if (rc < 0 && fs_is_dir(model))
            rc = err_add(e, rc, "%s", model);
    }
    str_release(&from.text);
    return rc;
}

/* ---- as text and as ids ---- */

int chat_render(const struct chat *c, const struct chat_messages *m, size_t from, struct str *out,
                struct err *e)
{
    struct rendered x = {{0}};
    int rc = render_from(c, m, from, &x, e);
    if (rc == 0)
        str_add_bytes(out, str_text(&x.text), x.text.len);
    rendered_release(&x);
    return rc == 0 && out->failed ? err_set(e, DS_EMEM, "out of memory for the conversation") : rc;
}

int chat_continues(const struct chat *c, const struct chat_messages *m, size_t from, struct err *e)
{
    struct rendered before = {{0}}, rest = {{0}}, whole = {{0}};
    int rc = from == 0 ? 0 : render(c, m, from - 1, m->n, 0, &before, e);
    if (rc == 0 && from > 0)
        rc = render_from(c, m, from, &rest, e);
    if (rc == 0)
        rc = render_from(c, m, 0, &whole, e);
    if (rc == 0 && from > 0)
        str_add_bytes(&before.text, str_text(&m->v[from - 1].text), m->v[from - 1].text.len);
    str_add_bytes(&before.text, str_text(&rest.text), rest.text.len);
    if (rc == 0)
        rc = before.text.failed
                 ? err_set(e, DS_EMEM, "out of memory for the conversation")
                 : from == 0 || (before.text.len == whole.text.len &&
                                 memcmp(before.text.p, whole.text.p, whole.text.len) == 0);
    rendered_release(&before);
    rendered_release(&rest);
    rendered_release(&whole);
    return rc;
}

/* A special token in the rendered text. */
struct mark {
    size_t begin, end;
    int32_t id;
};
struct marks {
    struct mark *v;
    size_t n, cap;
};

static int add_mark(struct marks *l, struct mark x, struct err *e)
{
    void *v = l->v;
    if (mem_grow(&v, &l->cap, l->n + 1, sizeof *l->v) < 0)
        return err_set(e, DS_EMEM, "out of memory for the conversation");
    l->v = v;
    l->v[l->n++] = x;
    return 0;
}

/* The special tokens in text[begin, end), which the template has written. */
static int find_marks(const struct tokenizer *t, const struct str *text, size_t begin, size_t end,
                      struct marks *out, struct err *e)
{
    struct ids ids = {0};
    int rc = tokenizer_encode(t, text->p + begin, end - begin, 1, &ids, e);
    for (size_t i = 0; i < ids.n && rc == 0; i++) {
        size_t n = 0;
        const char *piece = tokenizer_piece(t, ids.v[i], &n);
        if (!piece || n == 0 || !tokenizer_is_special(t, ids.v[i]))
            continue;
        while (begin + n <= end && memcmp(text->p + begin, piece, n) != 0)
            begin++;
        if (begin + n > end)
            break;
        rc = add_mark(out, (struct mark){begin, begin + n, ids.v[i]}, e);
        begin += n;
    }
    ids_release(&ids);
    return rc;
}

/* 1 when the bytes are one special token: white space next to it belongs to it. */
static int is_one_token(const struct tokenizer *t, const char *s, size_t n, int *one, struct err *e)
{
    struct ids ids = {0};
    int rc = tokenizer_encode(t, s, n, 1, &ids, e);
    *one = rc == 0 && ids.n == 1;
    ids_release(&ids);
    return rc;
}

/* Tokens with "lstrip" and "rstrip" take the white space next to them, from `at` and up to `end`. */
static int widen(const struct tokenizer *t, const struct str *text, size_t at, size_t end,
                 struct mark *x, struct err *e)
{
    struct jinja_text before = {text->p + at, NULL, x->begin - at};
    struct jinja_text after = {text->p + x->end, NULL, end - x->end};
    size_t from = at + jinja_strip(before, NULL, 0, 1).n;
    size_t to = end - jinja_strip(after, NULL, 1, 0).n;
    int takes = 0, rc = 0;
    if (from < x->begin)
        rc = is_one_token(t, text->p + from, x->end - from, &takes, e);
    if (takes)
        x->begin = from;
    takes = 0;
    if (rc == 0 && to > x->end)
        rc = is_one_token(t, text->p + x->begin, to - x->begin, &takes, e);
    if (takes)
        x->end = to;
    return rc;
}

static int encode_marked(const struct tokenizer *t, const struct str *text, const struct marks *l,
                         int is_first, struct ids *out, struct err *e)
{
    size_t at = 0;
    int rc = 0;
    for (size_t i = 0; i <= l->n && rc == 0; i++) {
        struct mark x = i < l->n ? l->v[i] : (struct mark){text->len, text->len, -1};
        if (i < l->n)
            rc = widen(t, text, at, i + 1 < l->n ? l->v[i + 1].begin : text->len, &x, e);
        if (rc == 0 && x.begin > at)
            rc = (is_first ? tokenizer_encode : tokenizer_encode_on)(t, text->p + at, x.begin - at,
                                                                     0, out, e);
        if (rc == 0 && x.id >= 0 && ids_add(out, x.id) < 0)
            rc = err_set(e, DS_EMEM, "out of memory for the conversation");
        is_first &= x.end == 0;
        at = x.end;
    }
    return rc;
}

int chat_encode(const struct chat *c, const struct tokenizer *t, const struct chat_messages *m,
                size_t from, struct ids *out, struct err *e)
{
    struct rendered x = {{0}};
    struct marks marks = {0};
    int rc = render_from(c, m, from, &x, e);
    for (size_t i = 0, end; i < x.text.len && rc == 0; i = end) {
        for (end = i + 1; end < x.text.len && x.from.p[end] == x.from.p[i];)
            end++;
        if (x.from.p[i] == FROM_TEMPLATE)
            rc = find_marks(t, &x.text, i, end, &marks, e);
    }
    if (rc == 0)
        rc = encode_marked(t, &x.text, &marks, from == 0, out, e);
    mem_free(marks.v);
    rendered_release(&x);
    return rc;
}

/* ---- the end of an answer ---- */

static int add_end(struct ids *out, int32_t id, struct err *e)
{
    for (size_t i = 0; i < out->n; i++)
        if (out->v[i] == id)
            return 0;
    return ids_add(out, id) < 0 ? err_set(e, DS_EMEM, "out of memory for end tokens") : 0;
}

/* The first special token that the template writes after an answer. */
static int end_of_answer(const struct chat *c, const struct tokenizer *t, struct ids *out,
                         struct err *e)
{
    struct chat_messages m = {0};
    struct rendered x = {{0}};
    struct marks marks = {0};
    int rc = chat_add(&m, CHAT_USER, "x", 1, e);
    if (rc == 0)
        rc = chat_add(&m, CHAT_ASSISTANT, "x", 1, e);
    if (rc == 0 && render(c, &m, 2, 1, 1, &x, NULL) == 0 && keep_rest(&x, NULL) == 0)
        rc = find_marks(t, &x.text, 0, x.text.len, &marks, e);
    if (rc == 0 && marks.n > 0)
        rc = add_end(out, marks.v[0].id, e);
    mem_free(marks.v);
    rendered_release(&x);
    chat_messages_release(&m);
    return rc;
}

int chat_ends(const struct chat *c, const struct tokenizer *t, struct ids *out, struct err *e)
{
    const char *end[] = {c->eos, "<|endoftext|>", "<|end_of_text|>"};
    int rc = end_of_answer(c, t, out, e);
    for (size_t i = 0; i < DS_LEN(end) && rc == 0; i++) {
        struct ids ids = {0};
        rc = tokenizer_encode(t, end[i], strlen(end[i]), 1, &ids, e);
        if (rc == 0 && ids.n == 1 && tokenizer_is_special(t, ids.v[0]))
            rc = add_end(out, ids.v[0], e);
        ids_release(&ids);
    }
    return rc;
}
