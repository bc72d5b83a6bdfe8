/* Vocabularies in GGUF files: small ones of every kind, and what is refused. */
#include "unit/gguf_vocab.h"

#include "base/fs.h"
#include "data/tokenizer/bpe.h"
#include "data/tokenizer/pieces.h"

#define MARK "\xE2\x96\x81"
#define KEY "tokenizer.ggml."

static struct err err;

static void expect(const struct tokenizer *t, const char *text, int special, const int32_t *want,
                   size_t n)
{
    struct ids ids = {0};
    t_ok(tokenizer_encode(t, text, strlen(text), special, &ids, &err), &err);
    for (size_t i = 0; i < ids.n && i < n; i++)
        t_truef(ids.v[i] == want[i], "\"%s\", id %zu: got %d, want %d", text, i, ids.v[i], want[i]);
    t_eq(ids.n, n);
    ids_release(&ids);
}
#define EXPECT(t, text, special, ...)                                                              \
    expect(t, text, special, (const int32_t[]){__VA_ARGS__},                                       \
           sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t))

static struct token_part token(const char *text, enum token_type type, float score)
{
    return (struct token_part){.text = text, .n = strlen(text), .type = type, .score = score};
}

/* Eight tokens with scores; the caller changes what it wants before keys are written. */
struct small {
    struct token_part token[10], merge[2];
    struct tokenizer_parts p;
};

static void make_scored(struct small *s)
{
    *s = (struct small){.token = {token("<unk>", TOKEN_UNKNOWN, 0), token("<s>", TOKEN_CONTROL, 0),
                                  token("</s>", TOKEN_CONTROL, 0), token("<0x62>", TOKEN_BYTE, 0),
                                  token(MARK, TOKEN_NORMAL, -9), token("a", TOKEN_NORMAL, -8),
                                  token(MARK "a", TOKEN_NORMAL, -2), token("aa", TOKEN_NORMAL, -1),
                                  token("<u>", TOKEN_USER_DEFINED, 0),
                                  token("aaa", TOKEN_UNUSED, -1)}};
    s->p = (struct tokenizer_parts){.model = "llama",
                                    .token = s->token,
                                    .tokens = 10,
                                    .bos = 1,
                                    .eos = 2,
                                    .unk = 0,
                                    .add_bos = 1,
                                    .add_space_prefix = 1};
}

static void make_merged(struct small *s)
{
    *s = (struct small){.token = {token("a", TOKEN_NORMAL, 0), token("b", TOKEN_NORMAL, 0),
                                  token("ab", TOKEN_NORMAL, 0), token("1", TOKEN_NORMAL, 0),
                                  token("11", TOKEN_NORMAL, 0), token("<end>", TOKEN_CONTROL, 0),
                                  token("<t>", TOKEN_USER_DEFINED, 0),
                                  token("[PAD7]", TOKEN_UNUSED, 0)},
                        .merge = {token("a b", TOKEN_NORMAL, 0), token("1 1", TOKEN_NORMAL, 0)}};
    s->p = (struct tokenizer_parts){.model = "gpt2",
                                    .pre = "gpt-2",
                                    .token = s->token,
                                    .tokens = 8,
                                    .merge = s->merge,
                                    .merges = 2,
                                    .bos = 5,
                                    .eos = 5,
                                    .unk = -1};
}

static int load(struct tokenizer **t, const struct tokenizer_parts *p)
{
    struct gguf_file f = {0};
    *t = NULL;
    gv_keys(&f, p);
    return tokenizer_load(t, gf_write(&f), &err);
}

T(scores_and_types_of_every_kind)
{
    struct small s;
    struct tokenizer *t = NULL;
    make_scored(&s);
    t_ok(load(&t, &s.p), &err);
    t_eq(tokenizer_vocab(t), 10);
    t_eq(tokenizer_bos(t), 1);
    t_eq(tokenizer_eot(t), 2);
    EXPECT(t, "a", 0, 6);
    EXPECT(t, "aa", 0, 4, 7);
    EXPECT(t, "aaa", 0, 4, 7, 5); /* made as one unused piece, and taken apart */
    EXPECT(t, "b", 0, 4, 3);
    EXPECT(t, "c", 0, 4, 0);
    EXPECT(t, "a<u>a", 0, 6, 8, 6); /* a new text begins after it */
    EXPECT(t, "<s>a", 1, 1, 6);
    tokenizer_free(t);
    s.p.add_space_prefix = 0;
    s.p.add_bos = 0;
    t_ok(load(&t, &s.p), &err);
    t_eq(tokenizer_bos(t), -1);
    EXPECT(t, "a a", 0, 5, 6);
    tokenizer_free(t);
}

/* llama.cpp looks for them before spaces are marks: with spaces in the text of the token. */
T(user_defined_tokens_are_found_in_the_text_as_it_is)
{
    struct small s;
    struct tokenizer *t = NULL;
    struct tokenizer_parts p = {0};
    struct str text = {0};
    make_scored(&s);
    s.token[8] = token("  ", TOKEN_USER_DEFINED, 0);
    s.token[9] = token(" a\ta", TOKEN_USER_DEFINED, 0);
    for (int prefix = 1; prefix >= 0; prefix--) {
        s.p.add_space_prefix = prefix;
        t_ok(load(&t, &s.p), &err);
        if (prefix) {
            EXPECT(t, "a  a", 0, 6, 8, 6);
            EXPECT(t, "   a", 0, 8, 4, 6);
            EXPECT(t, "a a\ta a", 0, 6, 9, 4, 6);
        } else {
            EXPECT(t, "a  a", 0, 5, 8, 5);
            EXPECT(t, "   a", 0, 8, 6);
            EXPECT(t, "a a\ta a", 0, 5, 9, 6);
        }
        tokenizer_decode(t, (const int32_t[]){5, 8, 5}, 3, &text);
        t_str(str_text(&text), "a  a");
        str_reset(&text);
        t_ok(tokenizer_parts(&p, t, &err), &err);
        t_truef(p.is_exact, "prefix %d", prefix);
        tokenizer_parts_release(&p);
        tokenizer_free(t);
    }
    str_release(&text);
}

/* llama.cpp takes the longest of all in the text first, and what is left then; other programs the leftmost. */
T(overlapping_user_defined_tokens_are_found_by_their_length)
{
    struct small s;
    struct tokenizer *t = NULL, *again = NULL;
    struct tokenizer_parts p = {0};
    char path[512];
    for (int merged = 0; merged < 2; merged++) {
        (merged ? make_merged : make_scored)(&s);
        struct token_part *end = &s.token[s.p.tokens - 2];
        end[0] = token("a<", TOKEN_USER_DEFINED, 0);
        end[1] = token("<b>", TOKEN_USER_DEFINED, 0);
        int32_t first = s.p.tokens - 2, a = merged ? 0 : 6;
        t_ok(load(&t, &s.p), &err);
        snprintf(path, sizeof path, "%s/tokenizer.json", t_tmpdir());
        t_ok(tokenizer_save(t, path, &err), &err);
        t_ok(tokenizer_load(&again, path, &err), &err);
        EXPECT(t, "a<b>a<<b>", 0, a, first + 1, first, first + 1);
        EXPECT(again, "a<b>a<<b>", 0, a, first + 1, first, first + 1);
        t_true(tokenizer_hash(t) == tokenizer_hash(again));
        t_ok(tokenizer_parts(&p, again, &err), &err);
        t_true(p.is_exact);
        tokenizer_parts_release(&p);
        tokenizer_free(t);
        tokenizer_free(again);
    }
}

/* Nothing here puts one there; it is kept for programs that do. */
T(a_token_after_texts_is_kept)
{
    for (int merged = 0; merged < 2; merged++)
        for (int bos = 0; bos < 2; bos++) {
            struct small s;
            struct tokenizer *t = NULL, *again = NULL;
            struct tokenizer_parts p = {0};
            (merged ? make_merged : make_scored)(&s);
            s.p.add_eos = 1;
            s.p.add_bos = bos;
            t_ok(load(&t, &s.p), &err);
            t_eq(t->after, s.p.eos);
            t_eq(tokenizer_bos(t), bos ? s.p.bos : -1);
            t_ok(tokenizer_parts(&p, t, &err), &err);
            t_true(p.add_eos && p.is_exact);
            t_eq(p.token[p.tokens - 1].type, merged ? TOKEN_USER_DEFINED : TOKEN_UNUSED);
            t_ok(tokenizer_load_json(&again, p.json, p.json_len, "j", &err), &err);
            t_eq(again->after, s.p.eos);
            EXPECT(t, merged ? "ab" : "a", 0, merged ? 2 : 6);
            tokenizer_parts_release(&p);
            tokenizer_free(t);
            tokenizer_free(again);
        }
}

/* Where a key is missing, it is as llama.cpp has it. */
T(missing_keys_have_defaults)
{
    struct small s;
    struct tokenizer *t = NULL;
    struct gguf_file f = {0};
    static const char *const tokens[] = {"<unk>", "<s>", "<e>", MARK, MARK "a"};
    struct str scores = {0};
    for (int i = 0; i < 5; i++)
        str_add_bytes(&scores, &(float){(float)-i}, 4);
    gf_string(&f, KEY "model", "llama");
    gf_strings(&f, KEY "tokens", tokens, 5);
    gv_list(&f, KEY "scores", GGUF_F32, 5, &scores);
    t_ok(tokenizer_load(&t, gf_write(&f), &err), &err);
    t_eq(tokenizer_bos(t), 1); /* and the end is 2 */
    t_eq(tokenizer_eot(t), 2);
    EXPECT(t, " ", 0, 3, 3);
    tokenizer_free(t);
    str_release(&scores);
    make_merged(&s);
    s.p.pre = NULL;
    t_ok(load(&t, &s.p), &err);
    EXPECT(t, "ab11", 0, 2, 4);
    tokenizer_free(t);
    make_merged(&s);
    s.p.pre = "default";
    t_ok(load(&t, &s.p), &err);
    EXPECT(t, "ab11", 0, 2, 4);
    tokenizer_free(t);
}

T(flags_and_ids_of_another_type_are_refused)
{
    static const char *const tokens[] = {"<unk>", "<s>", "<e>", MARK, MARK "a"};
    static const char *const flag[] = {KEY "add_bos_token", KEY "add_eos_token",
                                       KEY "add_space_prefix"};
    struct str scores = {0}, ids = {0};
    for (int i = 0; i < 5; i++)
        str_add_bytes(&scores, &(float){(float)-i}, 4);
    gf_uint(&ids, 2, 4);
    for (int k = 0; k < 7; k++) {
        struct tokenizer *t = NULL;
        struct gguf_file f = {0};
        gf_string(&f, KEY "model", "llama");
        gf_strings(&f, KEY "tokens", tokens, 5);
        gv_list(&f, KEY "scores", GGUF_F32, 5, &scores);
        if (k < 3)
            gf_string(&f, flag[k], "false");
        else if (k < 6)
            gv_list(&f, flag[k - 3], GGUF_U32, 1, &ids);
        else
            gv_list(&f, KEY "bos_token_id", GGUF_U32, 1, &ids);
        t_fails(tokenizer_load(&t, gf_write(&f), &err), &err, DS_EFORMAT,
                k < 6 ? flag[k % 3] : "found an array");
    }
    str_release(&scores);
    str_release(&ids);
}

T(merges_and_the_name_of_the_pre_tokenizer)
{
    struct small s;
    struct tokenizer *t = NULL;
    make_merged(&s);
    t_ok(load(&t, &s.p), &err);
    t_eq(tokenizer_vocab(t), 7); /* ids that only pad are none */
    t_eq(tokenizer_bos(t), -1);
    t_eq(tokenizer_eot(t), 5);
    EXPECT(t, "ab11<t>", 0, 2, 4, 6);
    EXPECT(t, "ab<end>", 1, 2, 5);
    struct ids none = {0};
    t_ok(tokenizer_encode(t, "[PAD7]", 6, 1, &none, &err), &err);
    t_eq(none.n, 0);
    t_eq(tokenizer_dropped_bytes(t), 6); /* plain text, of bytes that it lacks */
    tokenizer_free(t);
    s.p.pre = "smollm"; /* one digit at a time */
    t_ok(load(&t, &s.p), &err);
    EXPECT(t, "ab11", 0, 2, 3, 3);
    tokenizer_free(t);
    s.p.pre = "llama-bpe";
    s.p.merges = 0; /* a word that is a token needs no merges */
    t_ok(load(&t, &s.p), &err);
    EXPECT(t, "ab", 0, 2);
    tokenizer_free(t);
}

/* Some converters type them as words; llama.cpp repairs that too. */
T(tokens_that_end_a_message_control_whatever_their_type)
{
    struct small s;
    struct tokenizer *t = NULL;
    make_merged(&s);
    s.token[6] = token("</s>", TOKEN_NORMAL, 0); /* a word of Qwen 2 */
    s.token[7] = token("<|im_end|>", TOKEN_NORMAL, 0);
    t_ok(load(&t, &s.p), &err);
    t_true(tokenizer_is_special(t, 7) && !tokenizer_is_special(t, 6));
    EXPECT(t, "a<|im_end|>b", 1, 0, 7, 1);
    tokenizer_free(t);
}

T(every_name_of_a_pre_tokenizer_leads_back)
{
    static const char *const names[] = {"gpt-2",  "llama-bpe", "smaug-bpe",    "qwen2",
                                        "smollm", "gpt-4o",    "tekken",       "deepseek-coder",
                                        "falcon", "bloom",     "deepseek-llm", "deepseek-v3",
                                        "laguna", "kimi-k2",   "youtu",        "superbpe"};
    for (size_t i = 0; i < DS_LEN(names); i++) {
        struct small s;
        struct tokenizer *t = NULL;
        struct tokenizer_parts p = {0};
        make_merged(&s);
        s.p.pre = names[i];
        t_ok(load(&t, &s.p), &err);
        t_ok(tokenizer_parts(&p, t, &err), &err);
        t_str(p.pre, names[i]);
        t_truef(p.is_exact, "%s", names[i]);
        tokenizer_parts_release(&p);
        tokenizer_free(t);
    }
}

/* A tokenizer.json with these patterns, of letters, digits and their merges. */
static struct tokenizer *cut_by(const char *normalizer, const char *pre, int ignore_merges)
{
    struct tokenizer *t = NULL;
    struct str s = {0};
    str_addf(
        &s,
        "{\"added_tokens\":[],\"normalizer\":%s,\"pre_tokenizer\":{\"type\":\"Sequence\","
        "\"pretokenizers\":[%s{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":"
        "false}]},\"model\":{\"type\":\"BPE\",\"ignore_merges\":%s,\"vocab\":{\"a\":0,\"b\":1,"
        "\"ab\":2,\"aba\":3},\"merges\":[\"a b\"]}}",
        normalizer, pre, ignore_merges ? "true" : "false");
    t_ok(tokenizer_load_json(&t, s.p, s.len, "j", &err), &err);
    str_release(&s);
    return t;
}

#define SPLIT(pattern)                                                                             \
    "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" pattern "\"},\"behavior\":\"Isolated\"},"
#define NEWLINES(                                                                                  \
    cr, lf) /* as they stand in JSON: \\r is an escape of the pattern, \r the character */         \
    SPLIT("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^" cr lf                                                  \
          "\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3}| ?[^\\\\s\\\\p{L}\\\\p{N}]+[" cr lf           \
          "]*|\\\\s*[" cr lf "]+|\\\\s+(?!\\\\S)|\\\\s+")

/* The name that other programs use is written, with a note of what they do differently. */
T(what_other_programs_tokenize_differently_is_known)
{
    static const struct {
        const char *normalizer, *pre;
        int ignore_merges;
        const char *name, *differs;
    } cases[] = {
        {"null", NEWLINES("\\\\r", "\\\\n"), 1, "llama-bpe", ""},
        {"null", NEWLINES("\\\\r", "\\\\n"), 0, "smaug-bpe", ""},
        {"null", NEWLINES("\\r", "\\n"), 1, "llama-bpe", ""},
        {"null", NEWLINES("\\r", "\\\\x0A"), 1, "llama-bpe", ""},
        {"null", NEWLINES("\\\\u000D", "\\\\x{A}"), 0, "smaug-bpe", ""},
        {"null", NEWLINES("\\\\r", "\\\\t"), 1, NULL, ""},
        {"{\"type\":\"NFC\"}", NEWLINES("\\r", "\\n"), 1, "llama-bpe", "NFC"},
        {"null", "", 1, NULL, ""},
        {"null",
         SPLIT("[\\r\\n]") SPLIT("\\\\s?\\\\p{L}+") SPLIT("\\\\s?\\\\p{P}+")
             SPLIT("[\xE4\xB8\x80-\\\\u9fa5\xE0\xA0\x80-\xE4\xB8\x80\xEA\xB0\x80-\xED\x9F\xBF]+")
                 SPLIT("\\\\p{N}"),
         0, "deepseek-coder", ""},
        {"null",
         SPLIT("\\\\p{N}") SPLIT("'s|'t|'re|'ve|'m|'ll|'d| ?\\\\p{L}+| ?\\\\p{N}+| "
                                 "?[^\\\\s\\\\p{L}\\\\p{N}]+|\\\\s+(?!\\\\S)|\\\\s+"),
         1, "smollm", "whole words"},
    };
    for (size_t i = 0; i < DS_LEN(cases); i++) {
        struct tokenizer_parts p = {0};
        struct tokenizer *t = cut_by(cases[i].normalizer, cases[i].pre, cases[i].ignore_merges);
        t_ok(tokenizer_parts(&p, t, &err), &err);
        t_truef(p.pre && cases[i].name ? strcmp(p.pre, cases[i].name) == 0
                                       : !p.pre == !cases[i].name,
                "case %zu: %s", i, p.pre ? p.pre : "(none)");
        t_truef(*cases[i].differs ? strstr(str_text(&p.differs), cases[i].differs) != NULL
                                  : p.differs.len == 0,
                "case %zu: %s", i, str_text(&p.differs));
        tokenizer_parts_release(&p);
        tokenizer_free(t);
    }
}

T(patterns_are_the_same_where_they_mean_the_same)
{
    static const struct {
        const char *a, *b;
        int same;
    } cases[] = {{"[\r\n]", "[\\r\\n]", 1},
                 {"\\x{2581}", "\xE2\x96\x81", 1},
                 {"\\u2581+", "\xE2\x96\x81+", 1},
                 {"a", "\\a", 0},
                 {"\\.", ".", 0},
                 {"\\x2E", ".", 0},
                 {"\\x2E", "\\x2E", 1},
                 {"\\\\n", "\\\n", 0},
                 {"\\/\\!", "/!", 1},
                 {"\\-", "-", 0},
                 {"\\p{L}", "\\p{N}", 0},
                 {"\\d", "d", 0},
                 {"\\n", "\\n+", 0},
                 {"\\", "\\", 1},
                 {"\\x{", "\\x{", 1},
                 {"\\u12", "\\u12", 1},
                 {"\xC3", "\xC3", 1},
                 {"", "a", 0}};
    for (size_t i = 0; i < DS_LEN(cases); i++) {
        t_truef(pretok_same(cases[i].a, cases[i].b) == cases[i].same, "case %zu", i);
        t_truef(pretok_same(cases[i].b, cases[i].a) == cases[i].same, "case %zu, turned", i);
    }
}

/* What the keys cannot express is stored in the file as a tokenizer.json. */
T(an_embedded_tokenizer_json_is_read_first)
{
    struct tokenizer *t = NULL, *back = NULL;
    struct tokenizer_parts p = {0};
    struct gguf_file f = {0};
    static const char json[] =
        "{\"added_tokens\":[{\"id\":2,\"content\":\"<t>\",\"lstrip\":true,\"special\":false}],"
        "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true},"
        "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"\xC4\xA0\":1},\"merges\":[]}}";
    t_ok(tokenizer_load_json(&t, json, sizeof json - 1, "j", &err), &err);
    t_ok(tokenizer_parts(&p, t, &err), &err);
    t_true(!p.is_exact);
    t_true(p.json_len == sizeof json - 1 && memcmp(p.json, json, p.json_len) == 0);
    gv_keys(&f, &p);
    gf_string(&f, "tokenizer.huggingface.json", json);
    t_ok(tokenizer_load(&back, gf_write(&f), &err), &err);
    t_true(tokenizer_hash(t) == tokenizer_hash(back));
    EXPECT(back, "a <t>a", 0, 1, 0, 2, 1, 0);
    tokenizer_parts_release(&p);
    tokenizer_free(t);
    tokenizer_free(back);
}

static void refused(const struct tokenizer_parts *p, int code, const char *part)
{
    struct tokenizer *t = NULL;
    t_fails(load(&t, p), &err, code, part);
    t_true(t == NULL && strstr(err.text, "x.gguf") && !strchr(err.text, '\n'));
}

T(bad_vocabularies_are_refused_with_a_reason)
{
    struct small s;
    make_scored(&s);
    s.p.model = "bert";
    refused(&s.p, DS_EFORMAT, "\"bert\": unsupported");
    make_scored(&s);
    s.p.model = "none";
    refused(&s.p, DS_ENOTFOUND, "no vocabulary");
    make_scored(&s);
    s.p.bos = 10;
    refused(&s.p, DS_ERANGE, "bos_token_id = 10: must be below 10");
    make_scored(&s);
    s.token[6] = s.token[5];
    refused(&s.p, DS_EFORMAT, "duplicate pieces 5 and 6");
    make_scored(&s);
    s.token[5].score = NAN;
    refused(&s.p, DS_EFORMAT, "piece 5: score");
    make_scored(&s);
    s.token[5].type = (enum token_type)7;
    refused(&s.p, DS_EFORMAT, "token 5: unknown type 7");
    make_scored(&s);
    s.token[5] = token("", TOKEN_NORMAL, 0);
    refused(&s.p, DS_EFORMAT, "piece 5 has 0 bytes");
    make_scored(&s);
    s.token[5] = token("\xFF", TOKEN_NORMAL, 0);
    refused(&s.p, DS_EFORMAT, "piece 5 is not UTF-8");
    make_scored(&s);
    s.p.tokens = 0;
    s.p.bos = s.p.eos = s.p.unk = -1;
    refused(&s.p, DS_EFORMAT, "tokens is empty");
    make_merged(&s);
    s.p.pre = "afmoe";
    refused(&s.p, DS_EFORMAT, "unknown tokenizer.ggml.pre \"afmoe\"");
    make_merged(&s);
    s.merge[0] = token("a c", TOKEN_NORMAL, 0);
    refused(&s.p, DS_EFORMAT, "token not found in the vocabulary");
    make_merged(&s);
    s.merge[0] = token("ab", TOKEN_NORMAL, 0);
    refused(&s.p, DS_EFORMAT, "merge 0: expected");
    make_merged(&s);
    s.token[1] = s.token[0];
    refused(&s.p, DS_EFORMAT, "duplicate tokens 0 and 1");
}

T(lists_of_other_lengths_and_kinds_are_refused)
{
    static const char *const tokens[] = {"a", "b"};
    struct tokenizer *t = NULL;
    struct str one = {0};
    gf_uint(&one, 1, 4);
    for (int i = 0; i < 4; i++) {
        struct gguf_file f = {0};
        gf_string(&f, KEY "model", i < 2 ? "llama" : "gpt2");
        if (i == 3)
            gf_u32(&f, KEY "tokens", 2);
        else
            gf_strings(&f, KEY "tokens", tokens, 2);
        if (i == 1)
            gv_list(&f, KEY "scores", GGUF_F32, 1, &one);
        if (i == 2)
            gv_list(&f, KEY "token_type", GGUF_I32, 1, &one);
        static const char *const part[] = {"scores is missing", "scores has 1 entries, expected 2",
                                           "token_type has 1 entries", "an array of strings"};
        t_fails(tokenizer_load(&t, gf_write(&f), &err), &err, DS_EFORMAT, part[i]);
    }
    str_release(&one);
}

static void put(const char *dir, const char *name, const char *text, size_t n)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    t_ok(fs_write_file(path, text, n, &err), &err);
}

/* A model in one file takes its own vocabulary, else a tokenizer file next to it. */
T(the_tokenizer_of_a_model_is_found)
{
    struct small s;
    struct gguf_file f = {0};
    struct str whole = {0};
    char dir[512], model[600], found[700];
    static const char json[] = "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}";
    snprintf(dir, sizeof dir, "%s", t_tmpdir());
    snprintf(model, sizeof model, "%s/m.gguf", dir);
    make_merged(&s);
    for (int i = 0; i < 3; i++) {
        if (i < 2) {
            s.p.pre = i == 0 ? "gpt-2" : "afmoe";
            gv_keys(&f, &s.p);
        }
        gf_bytes(&f, &whole);
        put(dir, "m.gguf", whole.p, whole.len);
        str_reset(&whole);
        if (i == 0) {
            t_ok(tokenizer_find(found, sizeof found, model, &err), &err);
            t_str(found, model);
            continue;
        }
        t_fails(tokenizer_find(found, sizeof found, model, &err), &err, DS_ENOTFOUND, "next to it");
        put(dir, "tokenizer.json", json, sizeof json - 1);
        t_ok(tokenizer_find(found, sizeof found, model, &err), &err);
        t_true(strstr(found, "tokenizer.json") != NULL);
        t_ok(tokenizer_find(found, sizeof found, dir, &err), &err);
        t_true(strstr(found, "tokenizer.json") != NULL);
        t_true(remove(found) == 0);
    }
    str_release(&whole);
}

T(files_that_are_something_else_are_named)
{
    struct tokenizer *t = NULL;
    char path[600];
    const char *dir = t_tmpdir();
    put(dir, "tokenizer.json", "\x80\x04pickled", 9);
    snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    t_fails(tokenizer_load(&t, path, &err), &err, DS_EFORMAT, "pickle");
    put(dir, "tokenizer.json", "<!DOCTYPE html>", 15);
    t_fails(tokenizer_load(&t, path, &err), &err, DS_EFORMAT, "HTML");
    put(dir, "tokenizer.json", "", 0);
    t_true(tokenizer_load(&t, path, &err) == DS_EFORMAT);
}

/* Cut or changed anywhere: an error or another vocabulary. */
T(damaged_files_never_crash)
{
    for (int scored = 0; scored < 2; scored++) {
        struct small s;
        struct gguf_file f = {0};
        struct str whole = {0};
        scored ? make_scored(&s) : make_merged(&s);
        gv_keys(&f, &s.p);
        gf_bytes(&f, &whole);
        for (size_t i = 0; i < whole.len; i++) {
            struct tokenizer *t = NULL;
            char keep = whole.p[i];
            if (i % 3 == 0 && tokenizer_load(&t, gf_put(whole.p, i), &err) >= 0)
                tokenizer_free(t);
            t = NULL;
            whole.p[i] = (char)(keep ^ 1 << i % 8);
            if (tokenizer_load(&t, gf_put(whole.p, whole.len), &err) >= 0) {
                struct ids ids = {0};
                if (tokenizer_encode(t, "ab <u>aaa", 9, 1, &ids, &err) >= 0)
                    for (size_t k = 0; k < ids.n; k++)
                        t_true(ids.v[k] >= 0 && ids.v[k] < tokenizer_vocab(t));
                ids_release(&ids);
                tokenizer_free(t);
            }
            whole.p[i] = keep;
        }
        str_release(&whole);
    }
}
