/* Hostile tokenizers and texts, row by row of the list of bad inputs. */
#include "t.h"

#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/rng.h"
#include "data/tokenizer/bpe.h"

static struct err err;

static int load(struct tokenizer **t, const struct str *s)
{
    err = (struct err){0};
    *t = NULL;
    return tokenizer_load_json(t, s->p, s->len, "tok.json", &err);
}

static int load_model(struct tokenizer **t, const char *before, const char *model)
{
    struct str s = {0};
    str_addf(&s, "{%s\"model\":{\"type\":\"BPE\",%s}}", before, model);
    int rc = load(t, &s);
    str_release(&s);
    return rc;
}

static void expect(const struct tokenizer *t, const char *text, const int32_t *want, size_t n)
{
    struct ids ids = {0};
    t_ok(tokenizer_encode(t, text, strlen(text), 0, &ids, &err), &err);
    t_eq(ids.n, n);
    t_true(memcmp(ids.v, want, n * sizeof *want) == 0);
    ids_release(&ids);
}

/* Sparse: nothing of it is written, and nothing is to be read. */
T(a_file_beyond_the_limit_is_not_read)
{
    struct tokenizer *t = NULL;
    char path[512];
    snprintf(path, sizeof path, "%s/tokenizer.json", t_tmpdir());
    t_ok(fs_write_file(path, "{", 1, &err), &err);
    t_true(truncate(path, (200LL << 20)) == 0);
    double start = clock_mono();
    t_fails(tokenizer_load(&t, path, &err), &err, DS_ERANGE, "67108864");
    t_true(strstr(err.text, "209715200") && strstr(err.text, "DEPTHSCOPE_TOKENIZER_MIB"));
    t_true(clock_mono() - start < 2);
    t_true(truncate(path, (65LL << 20)) == 0);
    t_true(setenv("DEPTHSCOPE_TOKENIZER_MIB", "66", 1) == 0);
    t_fails(tokenizer_load(&t, path, &err), &err, DS_EFORMAT, "tokenizer.json");
}

T(deep_nesting_is_refused)
{
    struct tokenizer *t = NULL;
    struct str s = {0};
    str_add(&s, "{\"normalizer\":");
    for (int i = 0; i < 100000; i++)
        str_add_char(&s, '[');
    t_fails(load(&t, &s), &err, DS_EFORMAT, "tok.json");
    str_reset(&s);
    for (int i = 0; i < 30; i++)
        str_add(&s, "{\"type\":\"Sequence\",\"normalizers\":[");
    struct str whole = {0};
    str_addf(&whole, "{\"normalizer\":%s", str_text(&s));
    for (int i = 0; i < 30; i++)
        str_add(&whole, "]}");
    str_add(&whole, ",\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}");
    t_fails(load(&t, &whole), &err, DS_EFORMAT, "Sequence");
    str_release(&s);
    str_release(&whole);
}

/* Places where a file has patterns. */
static void add_step(struct str *out, int which, const char *pattern)
{
    static const char *const behavior[] = {"Isolated", "Contiguous"};
    if (which < 2)
        str_addf(out,
                 "\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"%s\"},"
                 "\"behavior\":\"%s\"},",
                 pattern, behavior[which]);
    else
        str_addf(out,
                 "\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"%s\"},"
                 "\"content\":\"\"},",
                 pattern);
}

T(a_pattern_that_runs_away_is_stopped)
{
    for (int i = 0; i < 3; i++) {
        struct tokenizer *t = NULL;
        struct ids ids = {0};
        struct str s = {0};
        static const char text[] = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaX";
        add_step(&s, i, "(a+)+\\\\z");
        t_ok(load_model(&t, str_text(&s), "\"vocab\":{\"a\":0,\"X\":1},\"merges\":[]"), &err);
        double start = clock_mono();
        t_fails(tokenizer_encode(t, text, sizeof text - 1, 0, &ids, &err), &err, DS_ERANGE,
                "matching limits");
        t_true(clock_mono() - start < 1);
        t_eq(ids.n, 0);
        tokenizer_free(t);
        str_release(&s);
    }
}

T(patterns_that_cannot_be_bounded_are_refused)
{
    static const char *const patterns[] = {"\\\\C", "(?R)", "(a(?1)?b)", "(?<n>a\\\\g<n>?)", "("};
    struct str long_one = {0}, s = {0};
    struct tokenizer *t = NULL;
    for (int i = 0; i < 10 << 20; i++)
        str_add_char(&long_one, 'a');
    for (int k = 0; k < 3; k++)
        for (size_t i = 0; i <= DS_LEN(patterns); i++) {
            const char *p = i < DS_LEN(patterns) ? patterns[i] : str_text(&long_one);
            str_reset(&s);
            add_step(&s, k, p);
            t_true(load_model(&t, str_text(&s), "\"vocab\":{\"a\":0},\"merges\":[]") < 0);
            t_truef(t == NULL && strstr(err.text, "tok.json"), "%zu: %s", i, err.text);
        }
    str_release(&s);
    str_release(&long_one);
}

/* The last place in the list counts; a merge cannot lead back, since lengths add up. */
T(repeated_merges_have_an_order)
{
    struct tokenizer *t = NULL;
    t_ok(load_model(&t, "",
                    "\"vocab\":{\"a\":0,\"b\":1,\"c\":2,\"ab\":3,\"bc\":4},\"merges\":[\"a b\",\"b "
                    "c\",\"a b\"]"),
         &err);
    expect(t, "abc", (const int32_t[]){0, 4}, 2);
    tokenizer_free(t);
    t_true(load_model(&t, "", "\"vocab\":{\"a\":0},\"merges\":[\"a \"]") < 0);
    t_true(load_model(&t, "", "\"vocab\":{\"a\":0,\"\":1},\"merges\":[[\"\",\"a\"]]") < 0);
}

T(gaps_in_the_ids_are_not_tokens)
{
    struct tokenizer *t = NULL;
    struct str text = {0};
    size_t n;
    t_ok(load_model(&t, "", "\"vocab\":{\"a\":0,\"b\":5},\"merges\":[]"), &err);
    t_eq(tokenizer_vocab(t), 6);
    t_true(tokenizer_piece(t, 3, &n) == NULL && tokenizer_piece(t, 6, &n) == NULL &&
           tokenizer_piece(t, -1, &n) == NULL);
    tokenizer_decode(t, (const int32_t[]){5, 3, 0, 99, -7, INT32_MAX}, 6, &text);
    t_str(str_text(&text), "b a"); /* as without a decoder */
    str_release(&text);
    tokenizer_free(t);
    t_fails(load_model(&t, "", "\"vocab\":{\"a\":4194304},\"merges\":[]"), &err, DS_ERANGE,
            "4194304");
    t_fails(load_model(&t, "", "\"vocab\":{\"a\":1e300},\"merges\":[]"), &err, DS_ERANGE, "id");
}

T(tokens_have_a_longest_length_and_one_may_be_empty)
{
    struct tokenizer *t = NULL;
    struct str s = {0};
    t_ok(load_model(&t, "", "\"vocab\":{\"\":0,\"a\":1},\"merges\":[]"), &err);
    expect(t, "aa", (const int32_t[]){1, 1}, 2);
    tokenizer_free(t);
    str_add(&s, "\"vocab\":{\"");
    for (int i = 0; i < 8193; i++)
        str_add_char(&s, 'a');
    str_add(&s, "\":0},\"merges\":[]");
    t_fails(load_model(&t, "", str_text(&s)), &err, DS_ERANGE, "8193 bytes");
    t_true(load_model(&t, "", "\"vocab\":{\"a\":0,\"a\":1},\"merges\":[]") < 0);
    str_release(&s);
}

static const char *const hostile[] = {"\xFF\xFE",
                                      "\xC0\x80",
                                      "\xED\xA0\x80",
                                      "\xF4\x90\x80\x80",
                                      "\xE2\x82",
                                      "a\xE2\x82"
                                      "b",
                                      "\x80",
                                      "\xF0\x9F\x98",
                                      "\xEF\xBF\xBF"};

static void there_and_back(const struct tokenizer *t, const char *s, size_t n)
{
    struct ids ids = {0};
    struct str back = {0};
    t_ok(tokenizer_encode(t, s, n, 0, &ids, &err), &err);
    tokenizer_decode(t, ids.v, ids.n, &back);
    t_true(back.len == n && (n == 0 || memcmp(back.p, s, n) == 0));
    ids_release(&ids);
    str_release(&back);
}

static void all_hostile(const struct tokenizer *t)
{
    struct rng r;
    char text[64];
    rng_init(&r, 5, RNG_TEST, 0, 0);
    for (size_t i = 0; i < DS_LEN(hostile); i++)
        there_and_back(t, hostile[i], strlen(hostile[i]));
    there_and_back(t, "a\0b\0", 4);
    for (int trial = 0; trial < 2000; trial++) {
        for (size_t i = 0; i < sizeof text; i++)
            text[i] = (char)rng_below(&r, 256);
        there_and_back(t, text, sizeof text);
    }
}

/* Bytes, merged bytes, and characters that fall to bytes. */
T(any_bytes_come_back)
{
    struct tokenizer *t = NULL;
    struct str model = {0};
    static const char corpus[] = "the cat and the hat \xC3\xA9\xC3\xA9\xC3\xA9 \xE2\x82\xAC\xE2\x82"
                                 "\xAC the cat";
    t_ok(tokenizer_new_bytes(&t, &err), &err);
    all_hostile(t);
    tokenizer_free(t);
    t_ok(tokenizer_train_bpe(&t, &(const char *){corpus}, &(size_t){sizeof corpus - 1}, 1, 270,
                             &err),
         &err);
    all_hostile(t);
    tokenizer_free(t);
    str_add(&model, "\"byte_fallback\":true,\"vocab\":{\"a\":256,\"\xC3\xA9\":257");
    for (unsigned b = 0; b < 256; b++)
        str_addf(&model, ",\"<0x%02X>\":%u", b, b);
    str_add(&model, "},\"merges\":[]");
    t_ok(load_model(&t, "\"decoder\":{\"type\":\"ByteFallback\"},", str_text(&model)), &err);
    all_hostile(t);
    tokenizer_free(t);
    str_release(&model);
}

/* As in Llama 2's model for spaces: each merge offers the same rank again, farther left. */
T(a_long_run_of_one_rank_takes_no_quadratic_time)
{
    enum { N = 1 << 17 };
    struct tokenizer *t = NULL;
    struct ids ids = {0};
    char *text = malloc(N);
    memset(text, 'a', N);
    t_ok(load_model(&t, "",
                    "\"vocab\":{\"a\":0,\"aa\":1,\"aaaa\":2},\"merges\":[\"a a\",\"aa aa\"],"
                    "\"merge_ranks\":[0,0]"),
         &err);
    clock_t start = clock();
    t_ok(tokenizer_encode(t, text, N - 1, 0, &ids, &err), &err);
    t_true((double)(clock() - start) / CLOCKS_PER_SEC < 5);
    t_eq(ids.n, N / 4 + 1);
    t_true(ids.v[0] == 2 && ids.v[ids.n - 2] == 1 && ids.v[ids.n - 1] == 0);
    ids_release(&ids);
    tokenizer_free(t);
    free(text);
}

/* 8 MiB of one letter, of spaces, and of two letters in turns, where many merges overlap. */
T(long_runs_take_no_quadratic_time)
{
    enum { N = 8 << 20 };
    static const char *const fill[] = {"a", " ", "ab"};
    char *text = malloc(N);
    for (int chars = 0; chars < 2; chars++) {
        struct tokenizer *t = NULL;
        t_ok(load_model(&t,
                        chars ? ""
                              : "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_"
                                "space\":false},",
                        chars ? "\"vocab\":{\"a\":0,\"b\":1,\" \":2,\"aa\":3,\"aaaa\":4,\"ab\":5,"
                                "\"abab\":6,\"  \":7,\"ba\":8},\"merges\":[\"a a\",\"aa aa\",\"a "
                                "b\",\"ab ab\",[\" \",\" \"],\"b a\"]"
                              : "\"vocab\":{\"a\":0,\"b\":1,\"\xC4\xA0\":2,\"aa\":3,\"aaaa\":4,"
                                "\"ab\":5,\"abab\":6,\"\xC4\xA0\xC4\xA0\":7,\"ba\":8},\"merges\":["
                                "\"a a\",\"aa aa\",\"a b\",\"ab ab\",\"\xC4\xA0 \xC4\xA0\",\"b "
                                "a\"]"),
             &err);
        for (size_t k = 0; k < DS_LEN(fill); k++) {
            struct ids ids = {0};
            for (size_t i = 0; i < N; i++)
                text[i] = fill[k][i % strlen(fill[k])];
            clock_t start = clock();
            t_ok(tokenizer_encode(t, text, N, 0, &ids, &err), &err);
            t_true((double)(clock() - start) / CLOCKS_PER_SEC < 20);
            t_eq(ids.n, k == 1 ? N / 2 : N / 4);
            ids_release(&ids);
        }
        tokenizer_free(t);
    }
    free(text);
}

/* What an added token strips belongs to it, and may be the whole of the next one. */
T(added_tokens_strip_spaces_once)
{
    struct tokenizer *t = NULL;
    t_ok(load_model(&t,
                    "\"added_tokens\":[{\"id\":4,\"content\":\"  \",\"lstrip\":true,\"rstrip\":"
                    "true,\"normalized\":false},{\"id\":5,\"content\":\"<r>\",\"rstrip\":true,"
                    "\"normalized\":false}],",
                    "\"unk_token\":\"u\",\"vocab\":{\"u\":0,\"a\":1,\" \":2},\"merges\":[]"),
         &err);
    expect(t, "a      a", (const int32_t[]){1, 4, 1}, 3);
    expect(t, "a<r> a", (const int32_t[]){1, 5, 1}, 3);
    expect(t, "a a", (const int32_t[]){1, 2, 1}, 3);
    tokenizer_free(t);
}

T(special_tokens_are_found_without_a_search)
{
    enum { ADDED = 30000, TIMES = 40 };
    struct tokenizer *t = NULL;
    struct str added = {0};
    int special = 0;
    str_add(&added, "\"added_tokens\":[{\"id\":1,\"content\":\"<s>\",\"special\":true}");
    for (int i = 2; i < ADDED; i++)
        str_addf(&added, ",{\"id\":%d,\"content\":\"<%d>\"}", i, i);
    str_add(&added, "],");
    t_ok(load_model(&t, str_text(&added), "\"vocab\":{\"a\":0},\"merges\":[]"), &err);
    clock_t start = clock();
    for (int i = 0; i < TIMES; i++)
        for (int32_t id = -1; id <= ADDED; id++)
            special += tokenizer_is_special(t, id);
    t_eq(special, TIMES);
    t_true((double)(clock() - start) / CLOCKS_PER_SEC < 3);
    tokenizer_free(t);
    str_release(&added);
}
