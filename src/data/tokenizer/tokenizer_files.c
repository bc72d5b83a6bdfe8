/* Which file a tokenizer is read from, and in which format. */
#include "base/fs.h"
#include "base/json.h"
#include "base/mem.h"
#include "data/bpe.h"
#include "data/pieces.h"
#include "io/filekind.h"
#include "io/gguf.h"

#include <stdlib.h>
#include <string.h>

int tokenizer_read_file(struct str *out, const char *path, struct err *e)
{
    const char *more = getenv("DEPTHSCOPE_TOKENIZER_MIB");
    uint64_t limit = TOKENIZER_FILE_MAX;
    unsigned long mib = more ? strtoul(more, NULL, 10) : 0;
    if (mib > 0 && mib <= 4096)
        limit = (uint64_t)mib << 20;
    int rc = fs_read_file(out, path, limit, e);
    return rc == DS_ERANGE ? err_add(e, rc, "DEPTHSCOPE_TOKENIZER_MIB=MIB allows larger tokenizers")
                           : rc;
}

/* --- tokenizer.json, and what tokenizer_config.json beside it adds --- */

/* A token's text, as such or as an object with flags; NULL: none. */
static const char *token_of(const struct json_node *config, const char *key, size_t *n)
{
    const struct json_node *v = json_get(config, key);
    const char *text = json_str(v, n);
    return text ? text : json_str(json_get(v, "content"), n);
}

/* The place behind `"model": {` of a document that was read before; 0: there is none. */
static size_t model_begins(const char *p, size_t n)
{
    int depth = 0, found = 0;
    for (size_t i = 0; i < n; i++) {
        if (p[i] == '"') {
            size_t start = i + 1;
            for (i++; i < n && p[i] != '"'; i++)
                i += p[i] == '\\';
            if (depth == 1)
                found = i == start + 5 && memcmp(p + start, "model", 5) == 0;
        } else if (p[i] == '{' || p[i] == '[') {
            if (found && depth == 1 && p[i] == '{')
                return i + 1;
            depth++;
        } else if (p[i] == '}' || p[i] == ']') {
            depth--;
        }
    }
    return 0;
}

/* Puts what the config says into the tokenizer.json, so that it is kept when that is saved alone. */
static int add_config(struct str *text, const struct json_node *config, struct err *e)
{
    size_t n = 0, at = model_begins(text->p, text->len);
    const struct json_node *add = json_get(config, "add_bos_token");
    const char *bos = token_of(config, "bos_token", &n);
    struct str out = {0};
    if (at == 0)
        return 0; /* the reader says so */
    str_add_bytes(&out, text->p, at);
    if (bos && json_bool(add, 0)) {
        str_add(&out, "\"" TOKENIZER_BOS "\":");
        str_add_json(&out, bos, n);
        str_add_char(&out, ',');
    }
    const char *eos = token_of(config, "eos_token", &n);
    if (eos) {
        str_add(&out, "\"" TOKENIZER_EOS "\":");
        str_add_json(&out, eos, n);
        str_add_char(&out, ',');
    }
    str_add_bytes(&out, text->p + at, text->len - at);
    if (out.failed) {
        str_release(&out);
        return err_set(e, DS_EMEM, "no memory for a tokenizer");
    }
    str_release(text);
    *text = out;
    return 0;
}

static int beside(char *out, size_t size, const char *path, const char *name, struct err *e)
{
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) + 1 : 0;
    if (n + strlen(name) >= size)
        return err_set(e, DS_ERANGE, "a path of %zu bytes is too long", strlen(path));
    memcpy(out, path, n);
    memcpy(out + n, name, strlen(name) + 1);
    return 0;
}

static int load_json_file(struct tokenizer **out, const char *path, struct err *e)
{
    struct str text = {0};
    struct json *config = NULL;
    struct tokenizer *t = NULL;
    char other[4096];
    int rc = tokenizer_read_file(&text, path, e);
    if (rc >= 0)
        rc = tokenizer_load_json(&t, text.p, text.len, path, e);
    if (rc >= 0)
        rc = beside(other, sizeof other, path, "tokenizer_config.json", e);
    if (rc >= 0 && (t->bos < 0 || t->eot < 0) && fs_exists(other)) {
        rc = json_read_wide(&config, other, TOKENIZER_FILE_MAX, e);
        if (rc >= 0)
            rc = add_config(&text, json_root(config), e);
        tokenizer_free(t);
        t = NULL;
        if (rc >= 0)
            rc = tokenizer_load_json(&t, text.p, text.len, path, e);
    }
    if (rc >= 0)
        *out = t;
    else
        tokenizer_free(t);
    json_free(config);
    str_release(&text);
    return rc;
}

/* --- formats --- */

/* A directory is searched for these names in order; a file is read by its name, else by its
 * suffix, else as a tokenizer.json. */
static const struct format {
    const char *file, *suffix;
    int (*load)(struct tokenizer **out, const char *path, struct err *e);
} formats[] = {
    {"tokenizer.json", ".json", load_json_file},
    {"vocab.json", NULL, tokenizer_load_vocab},
    {"encoder.json", NULL, tokenizer_load_vocab},
    {"tokenizer.model", ".model", tokenizer_load_model},
    {"qwen.tiktoken", ".tiktoken", tokenizer_load_model},
    {"tokenizer.bin", ".bin", tokenizer_load_llama2c},
    {"tok512.bin", NULL, tokenizer_load_llama2c},
    {NULL, ".gguf", tokenizer_load_gguf},
};

static int ends_with(const char *s, const char *suffix)
{
    size_t n = strlen(s), k = strlen(suffix);
    return n >= k && strcmp(s + n - k, suffix) == 0;
}

/* The first file of a known name in a directory: its place in the table, or DS_ENOTFOUND. */
static int find_in_dir(char *out, size_t size, const char *dir, struct err *e)
{
    for (size_t i = 0; i < DS_LEN(formats); i++) {
        int rc = formats[i].file ? fs_join(out, size, dir, formats[i].file, e) : DS_ENOTFOUND;
        if (rc < 0 && formats[i].file)
            return rc;
        if (rc >= 0 && fs_exists(out))
            return (int)i;
    }
    return err_set(e, DS_ENOTFOUND,
                   "%s holds no tokenizer.json, vocab.json, tokenizer.model or tokenizer.bin", dir);
}

/* What the first bytes say: 1 GGUF, 0 anything that may be a tokenizer, else an error. */
static int sniff(const char *path, struct err *e)
{
    struct fs_map file = {0};
    int rc = fs_map_open(&file, path, e);
    if (rc < 0)
        return rc;
    int is_gguf = file.n >= 4 && memcmp(file.p, "GGUF", 4) == 0;
    size_t at = 0;
    while (at < file.n && at < 64 && file.p[at] <= ' ')
        at++;
    int is_json = at < file.n && file.p[at] == '{';
    const char *kind = is_gguf || is_json ? NULL : file_kind(file.p, file.n < 64 ? file.n : 64);
    fs_map_close(&file);
    return kind ? err_set(e, DS_EFORMAT, "%s is no tokenizer but %s", path, kind) : is_gguf;
}

int tokenizer_load(struct tokenizer **out, const char *path, struct err *e)
{
    char full[4096];
    if (fs_is_dir(path)) {
        int at = find_in_dir(full, sizeof full, path, e);
        return at < 0 ? at : formats[at].load(out, full, e);
    }
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    size_t pick = 0;
    int is_gguf = sniff(path, e);
    if (is_gguf < 0)
        return is_gguf;
    for (size_t i = DS_LEN(formats); i-- > 0;)
        if (formats[i].suffix && ends_with(path, formats[i].suffix))
            pick = i;
    for (size_t i = 0; i < DS_LEN(formats); i++)
        if (formats[i].file && strcmp(name, formats[i].file) == 0)
            pick = i;
    return is_gguf ? tokenizer_load_gguf(out, path, e) : formats[pick].load(out, path, e);
}

/* --- the tokenizer of a model --- */

/* 1: the file has a vocabulary that is read here; 0: none, or another. */
static int brings_vocabulary(const char *path, struct err *e)
{
    struct gguf *g = NULL;
    int is_gguf = sniff(path, NULL);
    if (is_gguf <= 0)
        return 0;
    int rc = gguf_open(&g, path, e);
    if (rc >= 0)
        rc = tokenizer_gguf_known(g);
    gguf_close(g);
    return rc;
}

int tokenizer_find(char *out, size_t size, const char *model, struct err *e)
{
    char dir[4096];
    if (fs_is_dir(model)) {
        int rc = find_in_dir(out, size, model, e);
        return rc < 0 ? rc : 0;
    }
    int own = brings_vocabulary(model, e);
    if (own < 0)
        return own;
    if (own) {
        if (str_copy(out, size, model))
            return err_set(e, DS_ERANGE, "a path of %zu bytes is too long", strlen(model));
        return 0;
    }
    int rc = beside(dir, sizeof dir, model, "", e);
    if (rc >= 0 && !*dir)
        memcpy(dir, ".", 2);
    if (rc >= 0)
        rc = find_in_dir(out, size, dir, NULL);
    return rc >= 0 ? 0
                   : err_set(e, rc,
                             "%s brings no tokenizer that this program reads: put tokenizer.json, "
                             "tokenizer.model or tokenizer.bin beside it",
                             model);
}
