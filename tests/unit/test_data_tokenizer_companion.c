/* Added tokens in the files next to a tokenizer's own: read with their flags, kept when saved, and where files disagree
 * one line or the tokenizer's own numbers. */
#include "t.h"

#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "data/tokenizer/bpe.h"
#include "data/tokenizer/pieces.h"

#define MARK "\xE2\x96\x81"

static struct err err;
static char dir[512];

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

static void put(const char *name, const char *text, size_t n)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    if (text)
        t_ok(fs_write_file(path, text, n, &err), &err);
    else
        remove(path);
}
#define PUT(name, text) put(name, text, strlen(text))

static const char *at(const char *name)
{
    static char path[600];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

/* A directory of its own, as loaded and as it is saved alone in another. */
static void load_both(struct tokenizer **both)
{
    both[0] = both[1] = NULL;
    t_ok(tokenizer_load(&both[0], dir, &err), &err);
    t_ok(tokenizer_save(both[0], at("saved.json"), &err), &err);
    t_ok(tokenizer_load(&both[1], at("saved.json"), &err), &err);
    t_true(tokenizer_hash(both[0]) == tokenizer_hash(both[1]));
    t_eq(tokenizer_bos(both[0]), tokenizer_bos(both[1]));
    t_eq(tokenizer_eot(both[0]), tokenizer_eot(both[1]));
}

static void free_both(struct tokenizer **both)
{
    tokenizer_free(both[0]);
    tokenizer_free(both[1]);
}

static const char letters[] =
    "{\"version\":\"1.0\",\"added_tokens\":[{\"id\":2,\"content\":\"<s>\",\"special\":true}],"
    "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true},"
    "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"<s>\":2,\"\xC4\xA0\":3,\"<\":4,\">\":"
    "5,\"c\":6},"
    "\"merges\":[]}}";

static const char vocabulary[] =
    "{\"a\":0,\"b\":1,\"<|endoftext|>\":2,\"\xC4\xA0\":3,\"<\":4,\">\":5,\"c\":6}";

static void begin(const char *name, const char *text, size_t n)
{
    static const char *const names[] = {"tokenizer.json",
                                        "tokenizer.model",
                                        "vocab.json",
                                        "merges.txt",
                                        "tokenizer_config.json",
                                        "added_tokens.json",
                                        "special_tokens_map.json",
                                        "saved.json"};
    snprintf(dir, sizeof dir, "%s", t_tmpdir());
    for (size_t i = 0; i < DS_LEN(names); i++)
        put(names[i], NULL, 0);
    put(name, text, n);
}

T(a_config_adds_tokens_to_a_tokenizer_json)
{
    struct tokenizer *t[2];
    begin("tokenizer.json", letters, sizeof letters - 1);
    PUT("tokenizer_config.json",
        "{\"eos_token\":\"<c>\",\"added_tokens_decoder\":{\"7\":{\"content\":\"<a>\",\"special\":"
        "false,"
        "\"normalized\":false,\"lstrip\":true},\"8\":{\"content\":\"<b>\",\"special\":true},"
        "\"12\":{\"content\":\"<c>\",\"special\":true}}}");
    load_both(t);
    for (int i = 0; i < 2; i++) {
        t_eq(tokenizer_vocab(t[i]), 13); /* numbers between them are no tokens */
        t_true(tokenizer_piece(t[i], 9, NULL) == NULL);
        EXPECT(t[i], "a <a> b", 0, 0, 7, 3, 1);
        EXPECT(t[i], "<b><c>", 1, 8, 12);
        EXPECT(t[i], "<b>", 0, 4, 1, 5);
        t_eq(tokenizer_eot(t[i]), 12);
        t_true(tokenizer_is_special(t[i], 8) && !tokenizer_is_special(t[i], 7));
    }
    free_both(t);
}

/* Flags of the config count, as in Hugging Face's library; so does the name of a token that was not added. */
T(a_config_says_more_of_tokens_that_are_there)
{
    struct tokenizer *t[2];
    begin("tokenizer.json", letters, sizeof letters - 1);
    PUT("tokenizer_config.json", "{\"pad_token\":\"c\",\"unk_token\":\"nowhere\",\"added_tokens_"
                                 "decoder\":{\"2\":{\"content\":"
                                 "\"<s>\",\"special\":false,\"rstrip\":true}}}");
    load_both(t);
    for (int i = 0; i < 2; i++) {
        t_eq(tokenizer_vocab(t[i]), 7);
        EXPECT(t[i], "a<s> b", 0, 0, 2, 1);
        t_true(tokenizer_is_special(t[i], 6));
    }
    free_both(t);
}

/* As in transformers: only special tokens are looked for in the text as it is. */
T(an_added_token_that_is_not_special_is_found_in_the_normalized_text)
{
    struct tokenizer *t[2];
    struct str s = {0};
    str_add(&s, "{\"normalizer\":{\"type\":\"Lowercase\"},");
    str_add(&s, letters + 1);
    begin("tokenizer.json", s.p, s.len);
    PUT("tokenizer_config.json",
        "{\"added_tokens_decoder\":{\"7\":{\"content\":\"<a>\",\"special\":false},"
        "\"8\":{\"content\":\"<b>\",\"special\":true}}}");
    load_both(t);
    for (int i = 0; i < 2; i++)
        EXPECT(t[i], "<A><B><b>", 1, 7, 4, 1, 5, 8);
    free_both(t);
    str_release(&s);
}

T(added_tokens_json_is_special_where_another_file_says_so)
{
    struct tokenizer *t[2];
    for (int kind = 0; kind < 2; kind++) {
        const char *file = kind ? vocabulary : letters;
        begin(kind ? "vocab.json" : "tokenizer.json", file, strlen(file));
        PUT("merges.txt", "#version: 0.2\n");
        PUT("added_tokens.json", "{\"<a>\":7,\"<b>\":9}");
        PUT("special_tokens_map.json", "{\"additional_special_tokens\":[\"<b>\",{\"content\":\"<n>"
                                       "\"}],\"pad_token\":{\"content\":"
                                       "\"<|endoftext|>\"}}");
        load_both(t);
        for (int i = 0; i < 2; i++) {
            t_eq(tokenizer_vocab(t[i]), 10);
            EXPECT(t[i], "<a><b>", 0, 7, 4, 1, 5);
            EXPECT(t[i], "<a><b>", 1, 7, 9);
        }
        free_both(t);
    }
}

static void add_field(struct str *s, int number, const char *p, size_t n)
{
    str_add_char(s, (char)(number << 3 | 2));
    str_add_char(s, (char)n);
    str_add_bytes(s, p, n);
}

static void add_piece(struct str *s, const char *text, float score, char type)
{
    struct str one = {0};
    add_field(&one, 1, text, strlen(text));
    str_add_char(&one, 2 << 3 | 5);
    str_add_bytes(&one, &score, 4);
    str_add_bytes(&one, (const char[]){3 << 3, type}, 2);
    add_field(s, 1, one.p, one.len);
    str_release(&one);
}

static void make_spm(struct str *s)
{
    add_piece(s, "<unk>", 0, 2);
    add_piece(s, "<s>", 0, 3);
    add_piece(s, "</s>", 0, 3);
    add_piece(s, MARK, -3, 1);
    add_piece(s, "a", -4, 1);
    add_piece(s, MARK "a", -1, 1);
    add_piece(s, MARK MARK, 0, 4);
    add_field(s, 2, (const char[]){3 << 3, 2}, 2);
    add_field(s, 3, (const char[]){4 << 3, 0}, 2);
}

T(a_sentencepiece_model_takes_them_too)
{
    struct tokenizer *t[2];
    struct str s = {0}, text = {0};
    make_spm(&s);
    for (int from = 0; from < 2; from++) {
        begin("tokenizer.model", s.p, s.len);
        if (from == 0)
            PUT("added_tokens.json", "{\"<a>\":7,\"<b>\":8}");
        else
            PUT("tokenizer_config.json",
                "{\"add_bos_token\":false,\"added_tokens_decoder\":{\"6\":{\"content\":\"" MARK MARK
                "\",\"normalized\":false},\"7\":{\"content\":\"<a>\",\"normalized\":true},\"8\":"
                "{\"content\":\"<b>\",\"special\":true}}}");
        load_both(t);
        for (int i = 0; i < 2; i++) {
            t_eq(tokenizer_vocab(t[i]), 9);
            t_eq(tokenizer_bos(t[i]), from == 0 ? 1 : -1);
            EXPECT(t[i], "a<a>a", 0, 5, 7,
                   5); /* in the text as it is: nothing goes in front of it */
            EXPECT(t[i], "<a><b>", 1, 7, 8);
            EXPECT(t[i], "a  a", 0, 5, 6, 4); /* SentencePiece's own stays where marks are */
            str_reset(&text);
            tokenizer_decode(t[i], (const int32_t[]){5, 6, 4, 7}, 4, &text);
            t_str(str_text(&text), "a  a<a>");
        }
        free_both(t);
    }
    str_release(&text);
    str_release(&s);
}

T(names_of_a_tiktoken_file_come_from_its_config)
{
    struct tokenizer *t = NULL;
    struct companion *b = NULL;
    begin("merges.txt", "", 0);
    PUT("tokenizer_config.json", "{\"added_tokens_decoder\":{\"128004\":{\"content\":\"<pad>\"}}}");
    t_ok(companion_open(&b, at("tokenizer.model"), &err), &err);
    t_true(companion_names(b, 128000, 128000 + FAMILY_SPECIALS));
    t_true(!companion_names(b, 128005, 128256));
    companion_free(b);
    const char *model = t_shared("tokenizers/llama3/tokenizer.model");
    if (!fs_exists(model))
        return;
    struct str file = {0};
    t_ok(fs_read_file(&file, model, 8 << 20, &err), &err);
    put("tokenizer.model", file.p, file.len);
    t_ok(tokenizer_load(&t, dir, &err), &err);
    t_eq(tokenizer_vocab(t), 128005);
    EXPECT(t, "<pad>", 0, 128004);
    tokenizer_free(t);
    str_release(&file);
}

static char told[600];
static void tell(void *ctx, enum log_level level, const char *text)
{
    (void)ctx;
    if (level == LOG_WARN)
        snprintf(told, sizeof told, "%s", text);
}

/* The tokenizer's own numbers stay: the embedding goes by them. */
T(a_config_that_contradicts_its_tokenizer_is_reported)
{
    static const char *const config[] = {
        "{\"added_tokens_decoder\":{\"9\":{\"content\":\"<s>\"}}}",
        "{\"added_tokens_decoder\":{\"9\":{\"content\":\"c\"}}}",
        "{\"added_tokens_decoder\":{\"6\":{\"content\":\"<x>\"}}}"};
    static const char *const want[] = {"\"<s>\" has id 9", "\"c\" has id 9", "token 6 is \"<x>\""};
    for (size_t i = 0; i < DS_LEN(config); i++) {
        struct tokenizer *t = NULL;
        begin("tokenizer.json", letters, sizeof letters - 1);
        PUT("tokenizer_config.json", config[i]);
        told[0] = '\0';
        log_to(tell, NULL);
        t_ok(tokenizer_load(&t, dir, &err), &err);
        log_to(NULL, NULL);
        t_truef(strstr(told, want[i]) && !strchr(told, '\n'), "%s", told);
        t_eq(tokenizer_vocab(t), 7);
        EXPECT(t, "c<s>", 1, 6, 2);
        tokenizer_free(t);
    }
}

T(files_that_disagree_with_each_other_end_in_one_line)
{
    static const struct {
        const char *config, *added;
        int code;
        const char *part;
    } cases[] = {
        {"{\"added_tokens_decoder\":{\"7\":{\"content\":\"<a>\"}}}", "{\"<b>\":7}", DS_EFORMAT,
         "token 7: \"<b>\", expected \"<a>\""},
        {"{\"added_tokens_decoder\":{\"7\":{\"content\":\"<a>\"}}}", "{\"<a>\":8}", DS_EFORMAT,
         "\"<a>\": id 8, expected 7"},
        {"{}", "{\"<a>\":8,\"<b>\":8}", DS_EFORMAT, "token 8"},
        {"{\"added_tokens_decoder\":{\"7\":{\"content\":\"<a>\"},\"07\":{\"content\":\"<b>\"}}}",
         "{}", DS_EFORMAT, "token 7"},
        {"{\"added_tokens_decoder\":{\"x\":{\"content\":\"<a>\"}}}", "{}", DS_EFORMAT,
         "expected an id"},
        {"{\"added_tokens_decoder\":{\"-1\":{\"content\":\"<a>\"}}}", "{}", DS_EFORMAT,
         "expected an id"},
        {"{\"added_tokens_decoder\":{\"7\":{}}}", "{}", DS_EFORMAT, "expected a string"},
        {"{\"added_tokens_decoder\":{\"7\":{\"content\":\"\"}}}", "{}", DS_EFORMAT,
         "expected a string"},
        {"{\"added_tokens_decoder\":{\"99999999\":{\"content\":\"<a>\"}}}", "{}", DS_ERANGE,
         "0..4194303"},
        {"{}", "{\"<a>\":-3}", DS_ERANGE, "0..4194303"},
        {"{}", "{\"<a>\":\"7\"}", DS_ERANGE, "0..4194303"},
        {"{}", "[1]", DS_EFORMAT, "expected an object"},
        {"{", "{}", DS_EFORMAT, "tokenizer_config.json"},
    };
    for (size_t i = 0; i < DS_LEN(cases); i++) {
        struct tokenizer *t = NULL;
        begin("tokenizer.json", letters, sizeof letters - 1);
        PUT("tokenizer_config.json", cases[i].config);
        PUT("added_tokens.json", cases[i].added);
        t_fails(tokenizer_load(&t, dir, &err), &err, cases[i].code, cases[i].part);
        t_true(t == NULL && !strchr(err.text, '\n'));
    }
}

/* A file of another name is not the one that the files in its directory speak of. */
T(a_tokenizer_of_another_name_takes_no_tokens)
{
    struct tokenizer *t = NULL;
    begin("saved.json", letters, sizeof letters - 1);
    PUT("added_tokens.json", "{\"<a>\":7}");
    PUT("tokenizer_config.json",
        "{\"eos_token\":\"c\",\"added_tokens_decoder\":{\"9\":{\"content\":\"<x>\"}}}");
    t_ok(tokenizer_load(&t, at("saved.json"), &err), &err);
    t_eq(tokenizer_vocab(t), 7);
    t_eq(tokenizer_eot(t), 6);
    tokenizer_free(t);
}

/* Where the document has them, in whatever order and spacing, or not at all. */
T(the_list_is_found_in_any_document)
{
    static const char *const head[] = {"{", "{ \"added_tokens\" : [ ] ,",
                                       "{\"x\":\"\\\"added_tokens\\\":[\",",
                                       "{\"x\":{\"added_tokens\":[]},\"added_tokens\":null,"};
    static const char tail[] =
        "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]},\"pre_tokenizer\":"
        "{\"type\":\"ByteLevel\"}%s}";
    for (size_t i = 0; i < 2 * DS_LEN(head); i++) {
        struct tokenizer *t[2];
        struct str s = {0};
        str_add(&s, head[i / 2]);
        if (i / 2 == 1 && i % 2) { /* at the end */
            str_reset(&s);
            str_add(&s, "{");
            str_addf(&s, tail, ",\"added_tokens\":[{\"id\":0,\"content\":\"a\"}]");
        } else {
            str_addf(&s, tail, i % 2 ? " ,\"y\":[\"]\",{}]\n" : "");
        }
        begin("tokenizer.json", s.p, s.len);
        PUT("added_tokens.json", "{\"<\\\"a\\n>\":1}");
        load_both(t);
        EXPECT(t[0], "<\"a\n>", 0, 1);
        EXPECT(t[1], "<\"a\n>", 0, 1);
        free_both(t);
        str_release(&s);
    }
}

/* Never another tokenizer than the one that the files make. */
T(every_failed_allocation_is_an_error)
{
    struct tokenizer *whole = NULL;
    int failed = 1, refused = 0;
    begin("tokenizer.json", letters, sizeof letters - 1);
    PUT("tokenizer_config.json",
        "{\"add_bos_token\":true,\"bos_token\":\"<s>\",\"eos_token\":\"<e>\",\"pad_token\":\"c\","
        "\"added_tokens_decoder\":{\"2\":{\"content\":\"<s>\",\"lstrip\":true},\"7\":{\"content\":"
        "\"<e>\"}}}");
    PUT("added_tokens.json", "{\"<a>\":9}");
    t_ok(tokenizer_load(&whole, dir, &err), &err);
    for (uint64_t k = 1; failed && k < 20000; k++) {
        struct tokenizer *t = NULL;
        mem_fail_at(mem_calls() + k, 0);
        failed = tokenizer_load(&t, dir, &err) < 0;
        mem_fail_at(0, 0);
        refused += failed;
        if (!failed)
            t_true(tokenizer_hash(t) == tokenizer_hash(whole));
        tokenizer_free(t);
    }
    t_truef(!failed && refused > 10, "%d refused", refused);
    tokenizer_free(whole);
}
