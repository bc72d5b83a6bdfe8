/* Chat-template families, one table row each, and rendering of conversations. */
#include "data/chat.h"

#include <string.h>

#include "base/fs.h"
#include "base/mem.h"
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
        int rc = chat_add(m, (enum chat_role)k, text, n, e);
        if (rc < 0)
            return rc;
    }
    return 0;
}

void chat_messages_release(struct chat_messages *m)
{
    for (size_t i = 0; i < m->n; i++)
        str_release(&m->v[i].text);
    mem_free(m->v);
    *m = (struct chat_messages){0};
}

/* ---- parts: markup, which may contain special tokens, and message text, which may not ---- */

struct part {
    size_t end; /* in text */
    int is_mark;
};
struct parts {
    struct str text;
    struct part *v;
    size_t n, cap;
};

static void add_part(struct parts *p, const char *s, size_t n, int is_mark)
{
    void *v = p->v;
    str_add_bytes(&p->text, s, n);
    if (mem_grow(&v, &p->cap, p->n + 1, sizeof *p->v) < 0) {
        p->text.failed = 1;
        return;
    }
    p->v = v;
    p->v[p->n++] = (struct part){p->text.len, is_mark};
}

static void mark(struct parts *p, const char *token)
{
    if (token[0])
        add_part(p, token, strlen(token), 1);
}

static void words(struct parts *p, const char *s)
{
    add_part(p, s, strlen(s), 0);
}

static void add_message(struct parts *p, const struct chat_message *m)
{
    add_part(p, str_text(&m->text), m->text.len, 0);
}

static void parts_release(struct parts *p)
{
    str_release(&p->text);
    mem_free(p->v);
}

/* ASCII white space that Jinja's trim and Python's strip remove. */
static int is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r') || (c >= 0x1c && c <= 0x1f);
}

static void trimmed(struct parts *p, const struct chat_message *m, int left, int right)
{
    const char *s = str_text(&m->text);
    size_t from = 0, to = m->text.len;
    while (left && from < to && is_space(s[from]))
        from++;
    while (right && to > from && is_space(s[to - 1]))
        to--;
    add_part(p, s + from, to - from, 0);
}

/* ---- the families ---- */

/* system: the default system prompt, "" = none; written before the first message by families that
 * have one. */
struct writer {
    const struct chat *c;
    const struct chat_messages *m;
    struct parts *out;
};

static const char *const role_word[] = {
    [CHAT_SYSTEM] = "system", [CHAT_USER] = "user", [CHAT_ASSISTANT] = "assistant"};

static void chatml_begin(const struct writer *w)
{
    if (!w->c->system[0] || (w->m->n > 0 && w->m->v[0].role == CHAT_SYSTEM))
        return;
    mark(w->out, "<|im_start|>");
    words(w->out, "system\n");
    words(w->out, w->c->system);
    mark(w->out, w->c->eos);
    words(w->out, "\n");
}

static void chatml_end_answer(const struct writer *w, size_t i)
{
    (void)i;
    mark(w->out, w->c->eos);
    words(w->out, "\n");
}

static void chatml_message(const struct writer *w, size_t i)
{
    mark(w->out, "<|im_start|>");
    words(w->out, role_word[w->m->v[i].role]);
    words(w->out, "\n");
    add_message(w->out, &w->m->v[i]);
    chatml_end_answer(w, i);
}

static void chatml_next(const struct writer *w)
{
    mark(w->out, "<|im_start|>");
    words(w->out, "assistant\n");
}

/* The system prompt goes into [INST] <<SYS>> of the first question; every question starts a new
 * sequence. */
static void llama2_message(const struct writer *w, size_t i)
{
    const struct chat_message *x = &w->m->v[i];
    int has_system = i == 1 && w->m->v[0].role == CHAT_SYSTEM;
    if (x->role == CHAT_SYSTEM)
        return;
    if (x->role == CHAT_ASSISTANT) {
        words(w->out, " ");
        trimmed(w->out, x, 1, 1);
        words(w->out, " ");
        mark(w->out, w->c->eos);
        return;
    }
    mark(w->out, w->c->bos);
    words(w->out, "[INST] ");
    if (has_system) {
        words(w->out, "<<SYS>>\n");
        add_message(w->out, &w->m->v[0]);
        words(w->out, "\n<</SYS>>\n\n");
    }
    trimmed(w->out, x, !has_system, 1);
    words(w->out, " [/INST]");
}

static void mark_eos(const struct writer *w, size_t i)
{
    (void)i;
    mark(w->out, w->c->eos);
}

static void llama3_header(const struct writer *w, const char *role)
{
    mark(w->out, "<|start_header_id|>");
    words(w->out, role);
    mark(w->out, "<|end_header_id|>");
    words(w->out, "\n\n");
}

static void begin_bos(const struct writer *w)
{
    mark(w->out, w->c->bos);
}

/* Since 3.1 there is always a system prompt, preceded by two dates. */
static void llama31_begin(const struct writer *w)
{
    mark(w->out, w->c->bos);
    llama3_header(w, "system");
    words(w->out, "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n");
    if (w->m->n > 0 && w->m->v[0].role == CHAT_SYSTEM)
        trimmed(w->out, &w->m->v[0], 1, 1);
    mark(w->out, w->c->eos);
}

static void llama3_message(const struct writer *w, size_t i)
{
    if (w->c->kind == CHAT_LLAMA31 && i == 0 && w->m->v[i].role == CHAT_SYSTEM)
        return;
    llama3_header(w, role_word[w->m->v[i].role]);
    trimmed(w->out, &w->m->v[i], 1, 1);
    mark(w->out, w->c->eos);
}

static void llama3_next(const struct writer *w)
{
    llama3_header(w, "assistant");
}

static void mistral_end_answer(const struct writer *w, size_t i)
{
    (void)i;
    mark(w->out, w->c->eos);
    if (w->c->space_after_answer)
        words(w->out, " ");
}

static void mistral_message(const struct writer *w, size_t i)
{
    int is_user = w->m->v[i].role == CHAT_USER;
    words(w->out, is_user ? "[INST] " : "");
    add_message(w->out, &w->m->v[i]);
    if (is_user)
        words(w->out, " [/INST]");
    else
        mistral_end_answer(w, i);
}

static void zephyr_end_answer(const struct writer *w, size_t i)
{
    (void)i;
    mark(w->out, w->c->eos);
    words(w->out, "\n");
}

static void zephyr_message(const struct writer *w, size_t i)
{
    static const char *const tag[] = {"<|system|>", "<|user|>", "<|assistant|>"};
    mark(w->out, tag[w->m->v[i].role]);
    words(w->out, "\n");
    add_message(w->out, &w->m->v[i]);
    zephyr_end_answer(w, i);
}

static void zephyr_next(const struct writer *w)
{
    mark(w->out, "<|assistant|>");
    words(w->out, "\n");
}

enum {
    SYSTEM_NONE,
    SYSTEM_FIRST /* once, then alternating questions and answers */,
    SYSTEM_ANYWHERE
};

static const struct family {
    const char *mark[2];     /* strings that the template contains; */
    const char *not_mark[3]; /* strings that it does not contain    */
    const char *bos,
        *eos; /* unless the files name others; eos NULL: the tokenizer's, else "</s>" */
    const char *other_end; /* another token that ends an answer */
    int system;
    void (*begin)(const struct writer *w); /* before all messages */
    void (*message)(const struct writer *w, size_t i);
    void (*end_answer)(const struct writer *w, size_t i); /* after an answer's text */
    void (*next)(const struct writer *w);                 /* before the next answer's text */
} families[CHAT_TEMPLATES] = {
    // clang-format off
    [CHAT_CHATML]  = {{"<|im_start|>"}, {"[INST]", "<think>"}, "", "<|im_end|>", "<|endoftext|>", SYSTEM_ANYWHERE,
                      chatml_begin, chatml_message, chatml_end_answer, chatml_next},
    [CHAT_LLAMA2]  = {{"[INST]", "<<SYS>>"}, {NULL}, "<s>", NULL, NULL, SYSTEM_FIRST,
                      NULL, llama2_message, mark_eos, NULL},
    [CHAT_LLAMA3]  = {{"<|start_header_id|>"}, {"Cutting Knowledge"}, "<|begin_of_text|>", "<|eot_id|>", "<|end_of_text|>", SYSTEM_ANYWHERE,
                      begin_bos, llama3_message, mark_eos, llama3_next},
    [CHAT_LLAMA31] = {{"<|start_header_id|>", "Cutting Knowledge"}, {NULL}, "<|begin_of_text|>", "<|eot_id|>", "<|end_of_text|>", SYSTEM_ANYWHERE,
                      llama31_begin, llama3_message, mark_eos, llama3_next},
    [CHAT_MISTRAL] = {{"[INST] ", " [/INST]"}, {"<<SYS>>", "[AVAILABLE_TOOLS]", "system_message"}, "<s>", NULL, NULL, SYSTEM_NONE,
                      begin_bos, mistral_message, mistral_end_answer, NULL},
    [CHAT_ZEPHYR]  = {{"<|user|>", "<|assistant|>"}, {"<|end|>", "<|im_start|>", "[gMASK]"}, "", NULL, NULL, SYSTEM_ANYWHERE,
                      NULL, zephyr_message, zephyr_end_answer, zephyr_next},
    // clang-format on
};

/* ---- recognising the family ---- */

static int has(const char *text, size_t n, const char *word)
{
    size_t k = strlen(word);
    for (size_t i = 0; i + k <= n; i++)
        if (memcmp(text + i, word, k) == 0)
            return 1;
    return 0;
}

static int fits(const struct family *f, const char *text, size_t n)
{
    for (size_t i = 0; i < DS_LEN(f->mark) && f->mark[i]; i++)
        if (!has(text, n, f->mark[i]))
            return 0;
    for (size_t i = 0; i < DS_LEN(f->not_mark) && f->not_mark[i]; i++)
        if (has(text, n, f->not_mark[i]))
            return 0;
    return f->mark[0] != NULL;
}

/* Finds the default system prompt: the literal between "<|im_start|>system\n" and "<|im_end|>" in
 * one string. */
static void find_system(struct chat *c, const char *text, size_t n)
{
    static const char lead[] = "<|im_start|>system", end[] = "<|im_end|>";
    for (size_t i = 0; i + sizeof lead < n; i++) {
        if (memcmp(text + i, lead, sizeof lead - 1) != 0)
            continue;
        size_t from = i + sizeof lead - 1, to;
        from += text[from] == '\n' ? 1 : text[from] == '\\' && text[from + 1] == 'n' ? 2 : 0;
        for (to = from; to < n && to - from < sizeof c->system && text[to] != '\'' &&
                        text[to] != '"' && text[to] != '\\';
             to++)
            if (n - to >= sizeof end - 1 && memcmp(text + to, end, sizeof end - 1) == 0)
                break;
        if (to >= n || text[to] != '<' || to == from || to - from >= sizeof c->system)
            continue;
        memcpy(c->system, text + from, to - from);
        c->system[to - from] = '\0';
        return;
    }
}

static int unknown(const char *text, struct err *e)
{
    return err_set(e, DS_EUSAGE,
                   text ? "unsupported chat template in the model; set "
                          "template=chatml, llama2, llama3, llama3.1, mistral or zephyr if one fits"
                        : "the model has no chat template; set template=chatml, llama2, llama3, "
                          "llama3.1, mistral or zephyr, or omit --chat");
}

int chat_init(struct chat *c, enum chat_template kind, const char *text, size_t n, const char *bos,
              const char *eos, struct err *e)
{
    *c = (struct chat){.kind = kind};
    for (int k = 1; kind == CHAT_AUTO && text && k < CHAT_TEMPLATES && c->kind == CHAT_AUTO; k++)
        if (fits(&families[k], text, n))
            c->kind = (enum chat_template)k;
    if (c->kind == CHAT_AUTO)
        return unknown(text, e);
    const struct family *f = &families[c->kind];
    str_copy(c->bos, sizeof c->bos, bos && bos[0] && f->bos[0] ? bos : f->bos);
    str_copy(c->eos, sizeof c->eos, f->eos ? f->eos : eos && eos[0] ? eos : "</s>");
    if (text && c->kind == CHAT_CHATML)
        find_system(c, text, n);
    c->space_after_answer = text && c->kind == CHAT_MISTRAL && has(text, n, "eos_token + ' ' ");
    return 0;
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

static int gguf_template(struct str *text, const char *path, struct err *e)
{
    struct gguf *g = NULL;
    struct gguf_text found = {0};
    int rc = gguf_open(&g, path, e);
    if (rc < 0)
        return rc;
    if (gguf_string(gguf_meta_find(g, "tokenizer.chat_template"), &found))
        str_add_bytes(text, found.p, found.n);
    gguf_close(g);
    return 0;
}

/* *config: tokenizer_config.json, NULL if missing; the caller frees it. */
static int dir_template(struct str *text, struct json **config, const char *dir, struct err *e)
{
    struct str file = {0};
    size_t n = 0;
    int rc = read_optional(text, dir, "chat_template.jinja", e);
    if (rc == 0)
        rc = read_optional(&file, dir, "tokenizer_config.json", e);
    if (rc == 0 && file.len > 0)
        rc = json_parse_wide(config, file.p, file.len, "tokenizer_config.json", e);
    if (rc == 0 && text->len == 0 && *config) {
        const char *own = template_text(json_get(json_root(*config), "chat_template"), &n);
        str_add_bytes(text, own ? own : "", own ? n : 0);
    }
    str_release(&file);
    return rc < 0 ? err_add(e, rc, "%s", dir) : 0;
}

/* Template and config of a directory or a GGUF file; other files have none. */
static int find_template(struct str *text, struct json **config, const char *model, struct err *e)
{
    size_t n = strlen(model);
    int rc = 0;
    if (fs_is_dir(model))
        rc = dir_template(text, config, model, e);
    else if (n > 5 && strcmp(model + n - 5, ".gguf") == 0)
        rc = gguf_template(text, model, e);
    return rc == 0 && text->failed ? err_set(e, DS_EMEM, "out of memory for the chat template")
                                   : rc;
}

int chat_template_of(struct str *out, const char *model, struct err *e)
{
    struct json *config = NULL;
    struct str text = {0};
    int rc = find_template(&text, &config, model, e);
    if (rc == 0) {
        str_add_bytes(out, str_text(&text), text.len);
        rc = out->failed ? err_set(e, DS_EMEM, "out of memory for the chat template") : 0;
    }
    json_free(config);
    str_release(&text);
    return rc;
}

int chat_open(struct chat *c, enum chat_template kind, const char *model, struct err *e)
{
    struct json *config = NULL;
    struct str text = {0};
    int rc = find_template(&text, &config, model, e);
    if (rc == 0) {
        const struct json_node *root = config ? json_root(config) : NULL;
        rc = chat_init(c, kind, text.len > 0 ? text.p : NULL, text.len,
                       token_text(root, "bos_token"), token_text(root, "eos_token"), e);
        if (rc < 0 && fs_is_dir(model))
            rc = err_add(e, rc, "%s", model);
    }
    json_free(config);
    str_release(&text);
    return rc;
}

/* ---- writing ---- */

static int check_roles(const struct chat *c, const struct chat_messages *m, struct err *e)
{
    const struct family *f = &families[c->kind];
    const char *name = chat_template_name[c->kind];
    size_t first = f->system == SYSTEM_FIRST && m->n > 0 && m->v[0].role == CHAT_SYSTEM;
    if (m->n == first)
        return err_set(e, DS_EUSAGE, "no user message: expected at least one");
    if (m->v[m->n - 1].role != CHAT_USER)
        return err_set(e, DS_EUSAGE, "the last message must be a user message");
    for (size_t i = first; i < m->n && f->system != SYSTEM_ANYWHERE; i++) {
        if (m->v[i].role == CHAT_SYSTEM)
            return err_set(e, DS_EUSAGE, "template %s does not support a system message%s", name,
                           f->system == SYSTEM_FIRST ? " after the first message" : "");
        if ((m->v[i].role == CHAT_USER) != ((i - first) % 2 == 0))
            return err_set(e, DS_EUSAGE,
                           "template %s: user and assistant messages must alternate; message %zu "
                           "does not",
                           name, i + 1);
    }
    return 0;
}

static int write_parts(const struct chat *c, const struct chat_messages *m, size_t from,
                       struct parts *out, struct err *e)
{
    const struct family *f = &families[c->kind];
    struct writer w = {c, m, out};
    int rc = check_roles(c, m, e);
    if (rc < 0)
        return rc;
    if (from > 0)
        f->end_answer(&w, from - 1);
    else if (f->begin)
        f->begin(&w);
    for (size_t i = from; i < m->n; i++)
        f->message(&w, i);
    if (f->next)
        f->next(&w);
    return out->text.failed ? err_set(e, DS_EMEM, "out of memory for the conversation") : 0;
}

int chat_render(const struct chat *c, const struct chat_messages *m, size_t from, struct str *out,
                struct err *e)
{
    struct parts p = {0};
    int rc = write_parts(c, m, from, &p, e);
    if (rc == 0)
        str_add_bytes(out, str_text(&p.text), p.text.len);
    parts_release(&p);
    return rc == 0 && out->failed ? err_set(e, DS_EMEM, "out of memory for the conversation") : rc;
}

/* The id of a special token by its text; -1 when the tokenizer has none. */
static int special_id(const struct tokenizer *t, const char *s, size_t n, int32_t *id,
                      struct err *e)
{
    struct ids ids = {0};
    int rc = tokenizer_encode(t, s, n, 1, &ids, e);
    *id = rc == 0 && ids.n == 1 && tokenizer_is_special(t, ids.v[0]) ? ids.v[0] : -1;
    ids_release(&ids);
    return rc;
}

int chat_encode(const struct chat *c, const struct tokenizer *t, const struct chat_messages *m,
                size_t from, struct ids *out, struct err *e)
{
    struct parts p = {0};
    int rc = write_parts(c, m, from, &p, e), is_first = from == 0;
    size_t begin = 0, at = 0;
    for (size_t i = 0; i <= p.n && rc == 0; i++) {
        int32_t id = -1;
        size_t end = i < p.n ? p.v[i].end : p.text.len;
        if (i < p.n && p.v[i].is_mark)
            rc = special_id(t, p.text.p + at, end - at, &id, e);
        if (rc == 0 && (id >= 0 || i == p.n) && at > begin) {
            rc = (is_first ? tokenizer_encode : tokenizer_encode_on)(t, p.text.p + begin,
                                                                     at - begin, 0, out, e);
            is_first = 0;
        }
        if (id >= 0) {
            if (rc == 0 && ids_add(out, id) < 0)
                rc = err_set(e, DS_EMEM, "out of memory for the conversation");
            begin = end;
            is_first = 0;
        }
        at = end;
    }
    parts_release(&p);
    return rc;
}

int chat_ends(const struct chat *c, const struct tokenizer *t, struct ids *out, struct err *e)
{
    const char *end[] = {c->eos, families[c->kind].other_end};
    int rc = 0;
    for (size_t i = 0; i < DS_LEN(end) && rc == 0; i++) {
        int32_t id = -1;
        if (end[i])
            rc = special_id(t, end[i], strlen(end[i]), &id, e);
        if (rc == 0 && id >= 0 && ids_add(out, id) < 0)
            rc = err_set(e, DS_EMEM, "out of memory for end tokens");
    }
    return rc;
}
