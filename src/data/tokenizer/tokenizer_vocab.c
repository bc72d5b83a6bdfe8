/* vocab.json + merges.txt (Llama 3.2 and OpenAI: encoder.json + vocab.bpe), with what
 * tokenizer_config.json and added_tokens.json beside them say. */
#include "base/fs.h"
#include "base/json.h"
#include "base/map.h"
#include "data/bpe.h"
#include "data/pieces.h"

#include <stdlib.h>
#include <string.h>

struct source {
    char dir[4096];
    struct str vocab_text, out;
    struct json *vocab, *config, *added;
    struct map seen; /* ids of added tokens that are in already */
    const struct family *family;
    int has_added;
};

static int read_beside(struct json **out, const char *dir, const char *name, struct err *e)
{
    char path[4200];
    int rc = fs_join(path, sizeof path, dir, name, e);
    return rc < 0 || !fs_exists(path) ? rc : json_read_wide(out, path, TOKENIZER_FILE_MAX, e);
}

static int pick_family(struct source *s, struct err *e)
{
    const char *class = json_str(json_get(json_root(s->config), "tokenizer_class"), NULL);
    size_t n = json_len(json_root(s->vocab)), k = class ? strlen(class) : 0;
    if (k > 4 && strcmp(class + k - 4, "Fast") == 0)
        k -= 4;
    for (size_t i = 0; i < n_families && !s->family; i++) {
        const char *known = families[i].tokenizer_class;
        if (class ? known && strlen(known) == k && strncmp(known, class, k) == 0
                  : (size_t)families[i].vocab == n)
            s->family = &families[i];
    }
    if (class && !s->family)
        return err_set(e, DS_EFORMAT,
                       "tokenizer_class %.64s is not supported beside a vocab.json; give its "
                       "tokenizer.json",
                       class);
    if (!s->family)
        s->family = &families[0];
    return 0;
}

/* --- added tokens
 * -------------------------------------------------------------------------------------- */

static int add_token(struct source *s, int64_t id, const char *text, size_t n,
                     const struct json_node *flags, struct err *e)
{
    static const char *const names[] = {"lstrip", "rstrip", "single_word", "normalized"};
    int64_t known;
    if (map_get(&s->seen, &id, sizeof id, &known))
        return 0;
    if (map_set(&s->seen, &id, sizeof id, 1) < 0)
        return err_set(e, DS_EMEM, "no memory for added tokens");
    str_addf(&s->out, "%s{\"id\":%lld,\"content\":", s->has_added ? "," : "", (long long)id);
    str_add_json(&s->out, text, n);
    for (size_t i = 0; i < DS_LEN(names); i++)
        str_addf(&s->out, ",\"%s\":%s", names[i],
                 json_bool(json_get(flags, names[i]), 0) ? "true" : "false");
    str_addf(&s->out, ",\"special\":%s}",
             json_bool(json_get(flags, "special"), 1) ? "true" : "false");
    s->has_added = 1;
    return 0;
}

/* tokenizer_config.json: {"ID": {"content": TEXT, flags}}; added_tokens.json: {"TEXT": ID}, all
 * special where nothing is said; and the end of text that stands in the vocabulary itself. */
static int add_all_tokens(struct source *s, struct err *e)
{
    static const char end[] = "<|endoftext|>";
    const struct json_node *decoder = json_get(json_root(s->config), "added_tokens_decoder");
    const struct json_node *added = json_root(s->added);
    const char *key;
    size_t len;
    int rc = 0;
    for (size_t i = 0; rc >= 0 && i < json_len(decoder); i++) {
        const struct json_node *one = json_member(decoder, i, &key, &len);
        const char *text = one ? json_str(json_get(one, "content"), &len) : NULL;
        char *stop = NULL;
        int64_t id = one ? strtoll(key, &stop, 10) : -1;
        rc = text && stop && *stop == '\0' && stop != key
                 ? add_token(s, id, text, len, one, e)
                 : err_set(e, DS_EFORMAT, "added_tokens_decoder: entry %zu is no token", i);
    }
    for (size_t i = 0; rc >= 0 && i < json_len(added); i++) {
        const struct json_node *one = json_member(added, i, &key, &len);
        if (one)
            rc = add_token(s, json_int(one, -1), key, len, NULL, e);
    }
    int64_t id = json_int(json_get(json_root(s->vocab), end), -1);
    if (rc >= 0 && id >= 0)
        rc = add_token(s, id, end, sizeof end - 1, NULL, e);
    if (rc >= 0 && s->family->specials && !s->has_added) {
        struct str list = {0};
        family_add_specials(&list, s->family, s->family->vocab);
        str_add(&s->out, str_text(&list) + 1);
        s->out.failed |= list.failed;
        str_release(&list);
    }
    return rc;
}

/* --- the whole
 * ------------------------------------------------------------------------------------------ */

static void add_merges(struct str *out, const char *p, size_t n)
{
    int first = 1;
    for (const char *end = p + n; p < end;) {
        const char *line = memchr(p, '\n', (size_t)(end - p));
        size_t len = (size_t)((line ? line : end) - p), cut = len;
        if (cut > 0 && p[cut - 1] == '\r')
            cut--;
        if (cut > 0 && !(cut >= 8 && memcmp(p, "#version", 8) == 0)) {
            str_add(out, first ? "" : ",");
            str_add_json(out, p, cut);
            first = 0;
        }
        p += len + 1;
    }
}

static int write_document(struct source *s, const struct str *merges, struct err *e)
{
    const struct family *f = s->family;
    str_add(&s->out,
            "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":[");
    int rc = add_all_tokens(s, e);
    str_addf(&s->out, "],\"normalizer\":%s,\"pre_tokenizer\":%s,",
             f->normalizer ? f->normalizer : "null", f->pre_tokenizer);
    pieces_add_post(&s->out, f->bos, f->bos ? strlen(f->bos) : 0,
                    f->vocab); /* the first of its special tokens */
    str_addf(&s->out,
             "\"decoder\":%s,\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,"
             "\"fuse_unk\":false,\"byte_fallback\":false,\"ignore_merges\":%s,\"vocab\":",
             family_decoder, f->ignore_merges ? "true" : "false");
    str_add_bytes(&s->out, s->vocab_text.p, s->vocab_text.len);
    str_add(&s->out, ",\"merges\":[");
    add_merges(&s->out, str_text(merges), merges->len);
    str_add(&s->out, "]}}");
    return rc < 0 || !s->out.failed ? rc : err_set(e, DS_EMEM, "no memory for the vocabulary");
}

static int read_all(struct source *s, const char *path, struct err *e)
{
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) : 0;
    if (n >= sizeof s->dir)
        return err_set(e, DS_ERANGE, "a path of %zu bytes is too long", strlen(path));
    if (slash)
        memcpy(s->dir, path, n ? n : 1);
    else
        memcpy(s->dir, ".", 1);
    int rc = tokenizer_read_file(&s->vocab_text, path, e);
    if (rc >= 0)
        rc = json_parse(&s->vocab, str_text(&s->vocab_text), s->vocab_text.len, path, e);
    if (rc >= 0 && json_kind_of(json_root(s->vocab)) != JSON_KIND_OBJECT)
        rc = err_set(e, DS_EFORMAT, "%s: the vocabulary is no object", path);
    if (rc >= 0)
        rc = read_beside(&s->config, s->dir, "tokenizer_config.json", e);
    if (rc >= 0)
        rc = read_beside(&s->added, s->dir, "added_tokens.json", e);
    return rc < 0 ? rc : pick_family(s, e);
}

/* merges.txt or vocab.bpe beside the vocabulary. */
static int read_merges(struct str *out, const char *dir, struct err *e)
{
    static const char *const names[] = {"merges.txt", "vocab.bpe"};
    char path[4200];
    for (size_t i = 0; i < DS_LEN(names); i++) {
        int rc = fs_join(path, sizeof path, dir, names[i], e);
        if (rc < 0)
            return rc;
        if (fs_exists(path))
            return tokenizer_read_file(out, path, e);
    }
    return err_set(e, DS_ENOTFOUND, "%s holds a vocabulary but neither merges.txt nor vocab.bpe",
                   dir);
}

int tokenizer_load_vocab(struct tokenizer **out, const char *path, struct err *e)
{
    struct source s = {0};
    struct str merges = {0};
    int rc = read_all(&s, path, e);
    if (rc >= 0)
        rc = read_merges(&merges, s.dir, e);
    if (rc >= 0)
        rc = write_document(&s, &merges, e);
    if (rc >= 0)
        rc = tokenizer_load_json(out, s.out.p, s.out.len, path, e);
    str_release(&merges);
    str_release(&s.vocab_text);
    str_release(&s.out);
    map_release(&s.seen);
    json_free(s.vocab);
    json_free(s.config);
    json_free(s.added);
    return rc;
}
