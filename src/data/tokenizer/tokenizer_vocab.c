/* Reads vocab.json + merges.txt (Llama 3.2 and OpenAI: encoder.json + vocab.bpe), with their
 * companion files. */
#include "base/fs.h"
#include "base/json.h"
#include "data/tokenizer/bpe.h"
#include "data/tokenizer/pieces.h"

#include <stdlib.h>
#include <string.h>

struct source {
    char dir[4096];
    struct str vocab_text, out;
    struct json *vocab;
    struct companion *companion;
    const struct family *family;
};

static int pick_family(struct source *s, struct err *e)
{
    const char *class = json_str(json_get(companion_config(s->companion), "tokenizer_class"), NULL);
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
                       "tokenizer_class %.64s: unsupported with a vocab.json; provide its "
                       "tokenizer.json",
                       class);
    if (!s->family)
        s->family = &families[0];
    return 0;
}

/* Adds the vocabulary's end-of-text token, and a family's special tokens when no file names any. */
static void add_added(struct source *s)
{
    static const char end[] = "<|endoftext|>";
    int64_t id = json_int(json_get(json_root(s->vocab), end), -1);
    int first = s->family->vocab;
    if (id >= 0)
        str_addf(&s->out,
                 "{\"id\":%lld,\"content\":\"%s\",\"single_word\":false,\"lstrip\":false,"
                 "\"rstrip\":false,\"normalized\":false,\"special\":true}",
                 (long long)id, end);
    if (s->family->specials && !companion_names(s->companion, first, first + FAMILY_SPECIALS)) {
        struct str list = {0};
        family_add_specials(&list, s->family, first);
        str_add(&s->out, str_text(&list) + (id < 0 && list.len > 0));
        s->out.failed |= list.failed;
        str_release(&list);
    }
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
    add_added(s);
    str_addf(&s->out, "],\"normalizer\":%s,\"pre_tokenizer\":%s,",
             f->normalizer ? f->normalizer : "null", f->pre_tokenizer);
    struct piece_end bos = {f->bos, f->bos ? strlen(f->bos) : 0,
                            f->vocab}; /* the first of its special tokens */
    pieces_add_post(&s->out, bos, (struct piece_end){0});
    str_addf(&s->out,
             "\"decoder\":%s,\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,"
             "\"fuse_unk\":false,\"byte_fallback\":false,\"ignore_merges\":%s,\"vocab\":",
             family_decoder, f->ignore_merges ? "true" : "false");
    str_add_bytes(&s->out, s->vocab_text.p, s->vocab_text.len);
    str_add(&s->out, ",\"merges\":[");
    add_merges(&s->out, str_text(merges), merges->len);
    str_add(&s->out, "]}}");
    return s->out.failed ? err_set(e, DS_EMEM, "out of memory for the vocabulary") : 0;
}

static int read_all(struct source *s, const char *path, struct err *e)
{
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) : 0;
    if (n >= sizeof s->dir)
        return err_set(e, DS_ERANGE, "path too long: %zu bytes", strlen(path));
    if (slash)
        memcpy(s->dir, path, n ? n : 1);
    else
        memcpy(s->dir, ".", 1);
    int rc = tokenizer_read_file(&s->vocab_text, path, e);
    if (rc >= 0)
        rc = json_parse(&s->vocab, str_text(&s->vocab_text), s->vocab_text.len, path, e);
    if (rc >= 0 && json_kind_of(json_root(s->vocab)) != JSON_KIND_OBJECT)
        rc = err_set(e, DS_EFORMAT, "%s: vocabulary must be an object", path);
    if (rc >= 0)
        rc = companion_open(&s->companion, path, e);
    return rc < 0 ? rc : pick_family(s, e);
}

/* Reads merges.txt or vocab.bpe next to the vocabulary. */
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
    return err_set(e, DS_ENOTFOUND, "%s: vocabulary found, but neither merges.txt nor vocab.bpe",
                   dir);
}

int tokenizer_load_vocab(struct tokenizer **out, const char *path, struct err *e)
{
    struct source s = {0};
    struct str merges = {0};
    struct tokenizer *t = NULL;
    int rc = read_all(&s, path, e);
    if (rc >= 0)
        rc = read_merges(&merges, s.dir, e);
    if (rc >= 0)
        rc = write_document(&s, &merges, e);
    if (rc >= 0)
        rc = tokenizer_load_json(&t, s.out.p, s.out.len, path, e);
    if (rc >= 0)
        rc = companion_apply(s.companion, &t, COMPANION_VOCAB, path, e);
    if (rc >= 0)
        *out = t;
    else
        tokenizer_free(t);
    str_release(&merges);
    str_release(&s.vocab_text);
    str_release(&s.out);
    json_free(s.vocab);
    companion_free(s.companion);
    return rc;
}
