/* Reads normalizer, pre-tokenizer and decoder of a tokenizer.json. */
#include "base/json.h"
#include "base/base64.h"
#include "data/tokenizer/bpe.h"

#include <string.h>

static const char block[] = "\xE2\x96\x81"; /* U+2581, which replaces a space */

static const char *type_of(const struct json_node *n)
{
    const char *type = json_str(json_get(n, "type"), NULL);
    return type ? type : "(no type)";
}

int tokenizer_refuse(struct err *e, const char *part, const char *name)
{
    return err_set(e, DS_EFORMAT, "%s \"%.64s\": unsupported", part, name);
}

/* --- pre-tokenizer
 * --------------------------------------------------------------------- */

/* Word characters of the regex engine that Whitespace is defined for. */
#define WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{200C}\\x{200D}"

/* A pattern that matches the text itself. */
static void quote_pattern(struct str *out, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (strchr("\\^$.|?*+()[]{}-#&~", s[i]) && s[i])
            str_add_char(out, '\\');
        str_add_char(out, s[i]);
    }
}

/* "Isolated" by default. */
static int read_behavior(struct pretok_stage *st, const struct json_node *n, const char *otherwise,
                         struct err *e)
{
    static const struct {
        const char *name;
        enum pretok_join join;
        int drop;
    } known[] = {{"Isolated", JOIN_NONE, 0},
                 {"Removed", JOIN_NONE, 1},
                 {"MergedWithPrevious", JOIN_PREVIOUS, 0},
                 {"MergedWithNext", JOIN_NEXT, 0},
                 {"Contiguous", JOIN_SAME, 0}};
    const char *behavior = json_str(json_get(n, "behavior"), NULL);
    int invert = json_bool(json_get(n, "invert"), 0);
    if (!behavior)
        behavior = otherwise;
    for (size_t i = 0; behavior && i < DS_LEN(known); i++) {
        if (strcmp(behavior, known[i].name) != 0)
            continue;
        st->join = known[i].join;
        st->drop_gaps = known[i].drop && invert; /* keeps exactly the matches */
        st->drop_matches = known[i].drop && !invert;
        return invert && st->join != JOIN_NONE && st->join != JOIN_SAME
                   ? tokenizer_refuse(e, "inverted Split behavior", behavior)
                   : 0;
    }
    return tokenizer_refuse(e, "Split behavior", behavior ? behavior : "(none)");
}

static int read_split(struct bpe *b, const struct json_node *n, struct err *e)
{
    size_t len = 0;
    const struct json_node *pattern = json_get(n, "pattern");
    const char *regex = json_str(json_get(pattern, "Regex"), NULL);
    const char *text = json_str(json_get(pattern, "String"), &len);
    struct str quoted = {0};
    struct pretok_stage st = {0};
    if (!regex && !text)
        return err_set(e, DS_EFORMAT, "Split pre-tokenizer: missing Regex or String pattern");
    if (!regex)
        quote_pattern(&quoted, text, len);
    int rc = quoted.failed ? err_set(e, DS_EMEM, "out of memory for a pattern")
                           : read_behavior(&st, n, NULL, e);
    st.pattern = (char *)(uintptr_t)(regex ? regex : str_text(&quoted));
    if (rc >= 0)
        rc = pretok_add(&b->pre, &st, e);
    str_release(&quoted);
    return rc;
}

static int add_pattern(struct bpe *b, const char *pattern, int drop_gaps, struct err *e)
{
    struct pretok_stage st = {.pattern = (char *)(uintptr_t)pattern, .drop_gaps = drop_gaps};
    return pretok_add(&b->pre, &st, e);
}

static int read_punctuation(struct bpe *b, const struct json_node *n, struct err *e)
{
    struct pretok_stage st = {.pattern = (char[]){"[\\p{P}!-/:-@\\x5B-`{-~]"}};
    int rc = read_behavior(&st, n, "Isolated", e);
    return rc < 0 ? rc : pretok_add(&b->pre, &st, e);
}

static int read_byte_level(struct bpe *b, const struct json_node *n, struct err *e)
{
    if (json_bool(json_get(n, "add_prefix_space"), 1)) {
        if (b->pre.n > 0)
            return tokenizer_refuse(e, "ByteLevel after another pre-tokenizer with",
                                    "add_prefix_space");
        b->pre.add_prefix_space = 1;
    }
    return json_bool(json_get(n, "use_regex"), 1) ? add_pattern(b, pretok_gpt2, 0, e) : 0;
}

/* Old files use add_prefix_space, new ones prepend_scheme. */
static int read_metaspace(struct tokenizer *t, const struct json_node *n, struct err *e)
{
    struct metaspace *m = &t->metaspace;
    const char *mark = json_str(json_get(n, "replacement"), NULL);
    const char *when = json_str(json_get(n, "prepend_scheme"), NULL);
    if (m->on)
        return tokenizer_refuse(e, "second pre-tokenizer", "Metaspace");
    m->of_pieces = t->bpe->pre.n > 0;
    if (!mark || strcmp(mark, block) != 0)
        return tokenizer_refuse(e, "Metaspace replacement", mark ? mark : "(none)");
    if (!when)
        when = json_bool(json_get(n, "add_prefix_space"), 1) ? "always" : "never";
    m->on = 1;
    m->split = json_bool(json_get(n, "split"), 1);
    if (strcmp(when, "always") == 0)
        m->when = METASPACE_ALWAYS;
    else if (strcmp(when, "first") == 0)
        m->when = METASPACE_FIRST;
    else if (strcmp(when, "never") == 0)
        m->when = METASPACE_NEVER;
    else
        return tokenizer_refuse(e, "Metaspace prepend_scheme", when);
    return 0;
}

static int read_pretok(struct tokenizer *t, const struct json_node *n, int *byte_level,
                       struct err *e)
{
    struct bpe *b = t->bpe;
    const char *type = type_of(n);
    if (*byte_level && (strcmp(type, "ByteLevel") == 0 || strcmp(type, "Metaspace") == 0))
        return tokenizer_refuse(e, "pre-tokenizer after ByteLevel:", type);
    if (t->metaspace.of_pieces && strcmp(type, "Sequence") != 0)
        return tokenizer_refuse(e, "pre-tokenizer after Metaspace:", type);
    if (strcmp(type, "ByteLevel") == 0) {
        *byte_level = 1;
        int rc = read_byte_level(b, n, e);
        b->pre.byte_level = 1;
        return rc;
    }
    if (strcmp(type, "Metaspace") == 0 && b->chars)
        return read_metaspace(t, n, e);
    if (strcmp(type, "Split") == 0)
        return read_split(b, n, e);
    if (strcmp(type, "Digits") == 0)
        return add_pattern(b, json_bool(json_get(n, "individual_digits"), 0) ? "\\p{N}" : "\\p{N}+",
                           0, e);
    if (strcmp(type, "Punctuation") == 0)
        return read_punctuation(b, n, e);
    if (strcmp(type, "Whitespace") == 0)
        return add_pattern(b, "[" WORD "]+|[^" WORD "\\s]+", 1, e);
    if (strcmp(type, "WhitespaceSplit") == 0)
        return add_pattern(b, "\\S+", 1, e);
    if (strcmp(type, "Sequence") != 0)
        return tokenizer_refuse(e, "pre-tokenizer", type);
    const struct json_node *list = json_get(n, "pretokenizers");
    int rc = 0;
    for (size_t i = 0; rc >= 0 && i < json_len(list) && i < 64; i++) {
        const struct json_node *part = json_at(list, i);
        rc = strcmp(type_of(part), "Sequence") == 0
                 ? tokenizer_refuse(e, "pre-tokenizer", "Sequence in a Sequence")
                 : read_pretok(t, part, byte_level, e);
    }
    return rc;
}

/* --- normalizer
 * --------------------------------------------------------------------------------------- */

static int add_replace(struct norm *m, const struct json_node *n, const char *part, struct err *e)
{
    struct norm_step s = {.kind = NORM_REPLACE};
    const struct json_node *pattern = json_get(n, "pattern");
    s.from = (char *)(uintptr_t)json_str(json_get(pattern, "String"), &s.from_len);
    s.to = (char *)(uintptr_t)json_str(json_get(n, "content"), &s.to_len);
    if (!s.from) {
        s.kind = NORM_REPLACE_REGEX;
        s.from = (char *)(uintptr_t)json_str(json_get(pattern, "Regex"), &s.from_len);
    }
    if (!s.from)
        return tokenizer_refuse(e, part, "Replace without a pattern");
    return norm_add(m, s, e);
}

/* "longest" is our own: the longest entry at each position, as SentencePiece does; Hugging Face
 * takes the shortest one of each grapheme cluster. */
static int read_charsmap(struct norm *m, const struct json_node *n, struct err *e)
{
    size_t len = 0;
    const char *text = json_str(json_get(n, "precompiled_charsmap"), &len);
    struct str bytes = {0};
    if (!text)
        return tokenizer_refuse(e, "normalizer", "Precompiled without a map");
    struct norm_step s = {.kind = json_bool(json_get(n, "longest"), 0) ? NORM_CHARSMAP
                                                                       : NORM_CHARSMAP_CLUSTERS};
    int rc = base64_decode(&bytes, text, len, e);
    s.from = bytes.p;
    s.from_len = bytes.len;
    if (rc >= 0)
        rc = norm_add(m, s, e);
    str_release(&bytes);
    return rc;
}

static int read_strip_ends(struct norm *m, const struct json_node *n, struct err *e)
{
    struct norm_step s = {.kind = NORM_STRIP, .from = (char[3]){""}};
    if (json_bool(json_get(n, "strip_left"), 0))
        s.from[s.from_len++] = 'l';
    if (json_bool(json_get(n, "strip_right"), 0))
        s.from[s.from_len++] = 'r';
    return norm_add(m, s, e);
}

static int read_normalizer(struct tokenizer *t, const struct json_node *n, int depth, struct err *e)
{
    static const struct {
        const char *name;
        enum norm_kind kind;
    } plain[] = {{"NFC", NORM_NFC},
                 {"NFD", NORM_NFD},
                 {"NFKC", NORM_NFKC},
                 {"NFKD", NORM_NFKD},
                 {"Lowercase", NORM_LOWERCASE},
                 {"StripAccents", NORM_STRIP_ACCENTS}};
    if (json_kind_of(n) == JSON_KIND_NULL)
        return 0;
    const char *type = type_of(n);
    const struct json_node *list = json_get(n, "normalizers");
    int rc = 0;
    if (strcmp(type, "Sequence") == 0 && depth < 4) {
        for (size_t i = 0; rc >= 0 && i < json_len(list); i++)
            rc = read_normalizer(t, json_at(list, i), depth + 1, e);
        return rc;
    }
    for (size_t i = 0; i < DS_LEN(plain); i++)
        if (strcmp(type, plain[i].name) == 0)
            return norm_add(&t->norm, (struct norm_step){.kind = plain[i].kind}, e);
    if (strcmp(type, "Strip") == 0)
        return read_strip_ends(&t->norm, n, e);
    if (strcmp(type, "Replace") == 0)
        return add_replace(&t->norm, n, "normalizer", e);
    if (strcmp(type, "Precompiled") == 0)
        return read_charsmap(&t->norm, n, e);
    if (strcmp(type, "Prepend") != 0)
        return tokenizer_refuse(e, "normalizer", type);
    struct norm_step s = {.kind = NORM_PREPEND};
    s.to = (char *)(uintptr_t)json_str(json_get(n, "prepend"), &s.to_len);
    return norm_add(&t->norm, s, e);
}

/* --- decoder
 * ------------------------------------------------------------------------------------------ */

/* Only removal of one leading space of the whole text is supported. */
static int read_strip(struct tokenizer *t, const struct json_node *n, int fused, struct err *e)
{
    const char *content = json_str(json_get(n, "content"), NULL);
    int64_t start = json_int(json_get(n, "start"), 0), stop = json_int(json_get(n, "stop"), 0);
    if (!content || strcmp(content, " ") != 0 || start < 0 || start > 1 || stop != 0 || !fused)
        return tokenizer_refuse(e, "decoder", "Strip of more than one leading space");
    t->strip_space = (int)start;
    return 0;
}

static int read_decoder(struct tokenizer *t, const struct json_node *n, int depth, int *fused,
                        struct err *e)
{
    const char *type = type_of(n);
    const struct json_node *list = json_get(n, "decoders");
    int rc = 0;
    if (strcmp(type, "Sequence") == 0 && depth == 0) {
        for (size_t i = 0; rc >= 0 && i < json_len(list); i++)
            rc = read_decoder(t, json_at(list, i), 1, fused, e);
        return rc;
    }
    if (strcmp(type, "Fuse") == 0) {
        *fused = 1;
        return 0;
    }
    if (strcmp(type, "ByteFallback") == 0)
        return 0;
    if (strcmp(type, "Strip") == 0)
        return read_strip(t, n, *fused, e);
    if (strcmp(type, "Replace") == 0 && !*fused)
        return add_replace(&t->decoder, n, "decoder", e);
    if (strcmp(type, "Metaspace") != 0)
        return tokenizer_refuse(e, "decoder", type);
    const char *when = json_str(json_get(n, "prepend_scheme"), NULL);
    t->strip_space =
        when ? strcmp(when, "never") != 0 : json_bool(json_get(n, "add_prefix_space"), 1);
    return norm_add(&t->decoder,
                    (struct norm_step){.kind = NORM_REPLACE,
                                       .from = (char[]){"\xE2\x96\x81"},
                                       .from_len = 3,
                                       .to = (char[]){" "},
                                       .to_len = 1},
                    e);
}

/* --- the whole
 * ------------------------------------------------------------------------------------------ */

static int is_byte_level(const struct json_node *pre)
{
    const struct json_node *list = json_get(pre, "pretokenizers");
    int found = strcmp(type_of(pre), "ByteLevel") == 0;
    for (size_t i = 0; i < json_len(list); i++)
        found |= strcmp(type_of(json_at(list, i)), "ByteLevel") == 0;
    return found;
}

static int is_byte_level_decoder(const struct json_node *n)
{
    const struct json_node *list = json_get(n, "decoders");
    if (strcmp(type_of(n), "Sequence") == 0 && json_len(list) == 1)
        n = json_at(list, 0);
    return strcmp(type_of(n), "ByteLevel") == 0;
}

int tokenizer_read_steps(struct tokenizer *t, const struct json_node *root, struct err *e)
{
    const struct json_node *pre = json_get(root, "pre_tokenizer"),
                           *decoder = json_get(root, "decoder");
    int byte_level = 0, fused = 0;
    int unigram = strcmp(t->kind, "unigram") == 0;
    if (unigram && is_byte_level(pre))
        return tokenizer_refuse(e, "pre-tokenizer of a unigram model:", "ByteLevel");
    if (!is_byte_level(pre)) {
        t->bpe->chars = bpe_chars_new(t->vocab, e);
        if (!t->bpe->chars)
            return DS_EMEM;
        if (unigram && !(t->bpe->chars->unigram = unigram_new(t->vocab, e)))
            return DS_EMEM;
        t->bpe->chars->byte_fallback =
            json_bool(json_get(json_get(root, "model"), "byte_fallback"), 0);
    }
    int rc = read_normalizer(t, json_get(root, "normalizer"), 0, e);
    if (rc >= 0 && json_kind_of(pre) != JSON_KIND_NULL)
        rc = read_pretok(t, pre, &byte_level, e);
    t->has_gaps = t->bpe->chars && json_kind_of(decoder) == JSON_KIND_NULL;
    if (rc < 0 || json_kind_of(decoder) == JSON_KIND_NULL)
        return rc;
    if (t->bpe->chars)
        return read_decoder(t, decoder, 0, &fused, e);
    return is_byte_level_decoder(decoder)
               ? 0
               : tokenizer_refuse(e, "decoder of a byte-level model:", type_of(decoder));
}
