/* Chooses the file and the format that a tokenizer is read from. */
#include "base/fs.h"
#include "base/mem.h"
#include "data/tokenizer/bpe.h"
#include "data/tokenizer/pieces.h"
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

/* --- formats --- */

int tokenizer_sibling(char *out, size_t size, const char *path, const char *name, struct err *e)
{
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) + 1 : 0;
    if (n + strlen(name) >= size)
        return err_set(e, DS_ERANGE, "path too long: %zu bytes", strlen(path));
    memcpy(out, path, n);
    memcpy(out + n, name, strlen(name) + 1);
    return 0;
}

static int load_json_file(struct tokenizer **out, const char *path, struct err *e)
{
    struct str text = {0};
    struct tokenizer *t = NULL;
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    int rc = tokenizer_read_file(&text, path, e);
    if (rc >= 0)
        rc = tokenizer_load_json(&t, text.p, text.len, path, e);
    str_release(&text);
    int is_own = strcmp(name, "tokenizer.json") == 0;
    if (rc >= 0 && (is_own || t->bos < 0 || t->eot < 0))
        rc = companion_load(&t, is_own ? COMPANION_JSON : COMPANION_OTHER, path, e);
    if (rc >= 0)
        *out = t;
    else
        tokenizer_free(t);
    return rc;
}

/* A directory is searched for these names in order; a file is read by its name, else by its
 * suffix, else as a tokenizer.json. */
static const struct format {
    const char *file, *suffix;
    int (*load)(struct tokenizer **out, const char *path, struct err *e);
} formats[] = {
    {"tokenizer.json", ".json", load_json_file},
    {"tekken.json", NULL, tokenizer_load_tekken},
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
    return err_set(
        e, DS_ENOTFOUND,
        "%s: no tokenizer.json, tekken.json, vocab.json, tokenizer.model or tokenizer.bin found",
        dir);
}

/* Detects the type from the first bytes: 1 GGUF, 0 possibly a tokenizer, else an error. */
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
    return kind ? err_set(e, DS_EFORMAT, "%s: expected a tokenizer, found %s", path, kind)
                : is_gguf;
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

/* 1: the file has a supported vocabulary; 0: none, or an unsupported one. */
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
            return err_set(e, DS_ERANGE, "path too long: %zu bytes", strlen(model));
        return 0;
    }
    int rc = tokenizer_sibling(dir, sizeof dir, model, "", e);
    if (rc >= 0 && !*dir)
        memcpy(dir, ".", 2);
    if (rc >= 0)
        rc = find_in_dir(out, size, dir, NULL);
    return rc >= 0 ? 0
                   : err_set(e, rc,
                             "%s: no supported tokenizer found; put tokenizer.json, "
                             "tokenizer.model or tokenizer.bin next to it",
                             model);
}
