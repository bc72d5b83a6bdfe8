/* Vocabularies of characters, and the formats that are rewritten as a tokenizer.json. */
#include "t.h"

#include "base/base64.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/mem.h"
#include "base/rng.h"
#include "data/tokenizer/bpe.h"
#include "data/tokenizer/pieces.h"

#define MARK "\xE2\x96\x81"

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

static int load(struct tokenizer **t, const char *before, const char *model, const char *after)
{
    struct str s = {0};
    err = (struct err){0};
    *t = NULL;
    str_addf(&s, "{%s\"model\":{\"type\":\"BPE\",%s}%s}", before, model, after);
    int rc = tokenizer_load_json(t, s.p, s.len, "tok.json", &err);
    str_release(&s);
    return rc;
}

static const char llama_steps[] =
    "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":"
    "\"" MARK "\"},{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"" MARK
    "\"}]},\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{"
    "\"String\":\"" MARK "\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},"
    "{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]},";

static const char small_model[] =
    "\"unk_token\":\"<unk>\",\"fuse_unk\":true,\"byte_fallback\":true,\"vocab\":{\"<unk>\":0,"
    "\"<0xC3>\":1,\"<0xA9>\":2,\"" MARK "\":3,\"a\":4,\"b\":5,\"" MARK
    "a\":6,\"ab\":7,\"<0xFF>\":8},"
    "\"merges\":[\"" MARK " a\",\"a b\"]";

/* --- characters --------------------------------------------------------------------------------
 */

/* `tokenizers` joins tokens with spaces where a file has no decoder. */
T(tokens_of_characters_without_a_decoder_are_decoded_with_spaces)
{
    static const char words[] = "\"unk_token\":\"?\",\"vocab\":{\"?\":0,\"o\":1,\"n\":2,\"a\":3,"
                                "\"on\":4},\"merges\":[\"o n\"]",
                      split[] = "\"pre_tokenizer\":{\"type\":\"Whitespace\"},";
    static const struct {
        const char *decoder, *whole, *on;
    } rows[] = {{"\"decoder\":null,", "on a ? on", " on a ? on"},
                {"", "on a ? on", " on a ? on"},
                {"\"decoder\":{\"type\":\"Fuse\"},", "ona?on", "ona?on"}};
    for (size_t i = 0; i < DS_LEN(rows); i++) {
        static const int32_t ids[] = {9, 4, 3, 0, 4}; /* 9: not in the vocabulary */
        struct tokenizer *t = NULL;
        struct str steps = {0}, text = {0};
        str_addf(&steps, "%s%s", split, rows[i].decoder);
        t_ok(load(&t, str_text(&steps), words, ""), &err);
        EXPECT(t, "on a x on", 0, 4, 3, 0, 4);
        tokenizer_decode(t, ids, 5, &text);
        t_str(str_text(&text), rows[i].whole);
        str_reset(&text);
        tokenizer_decode_on(t, ids, 5, &text);
        t_str(str_text(&text), rows[i].on);
        tokenizer_free(t);
        str_release(&steps);
        str_release(&text);
    }
}

T(unknown_characters_fall_to_bytes_and_then_to_one_token)
{
    struct tokenizer *t = NULL;
    struct str text = {0};
    t_ok(load(&t, llama_steps, small_model, ""), &err);
    EXPECT(t, "ab b", 0, 6, 5, 3, 5);
    EXPECT(t, "b\xC3\xA9", 0, 3, 5, 1, 2);
    EXPECT(t,
           "xyz\xC3\xAA"
           "a",
           0, 3, 0, 4); /* 0xAA has no token: neither byte is used */
    EXPECT(t, "b\xFF", 0, 3, 5, 8);
    EXPECT(t, MARK, 0, 3, 3); /* the mark in the text is a space to the vocabulary */
    expect(t, "", 0, NULL, 0);
    tokenizer_decode(t, (const int32_t[]){6, 5, 3, 1, 2}, 5, &text);
    t_str(str_text(&text), "ab \xC3\xA9");
    str_reset(&text);
    tokenizer_decode_on(t, (const int32_t[]){6, 5}, 2, &text);
    t_str(str_text(&text), " ab");
    str_release(&text);
    tokenizer_free(t);
}

/* Normalised ones are known by their normalised text, which begins with a mark. */
T(added_tokens_are_matched_before_and_after_normalisation)
{
    struct tokenizer *t = NULL;
    t_ok(load(&t, llama_steps, small_model,
              ",\"added_tokens\":[{\"id\":9,\"content\":\"<r>\",\"special\":true,\"normalized\":"
              "false},{\"id\":10,\"content\":\"<n>\",\"special\":true,\"normalized\":true}]"),
         &err);
    EXPECT(t, "a<r>a", 1, 6, 9, 6);
    EXPECT(t, "b <n>b", 1, 3, 5, 10, 5);
    EXPECT(t, "<n>", 1, 10);
    EXPECT(t, "a<n>", 1, 6, 0); /* no mark before it */
    EXPECT(t, "<r>", 0, 3, 0);
    tokenizer_free(t);
}

T(patterns_are_replaced_in_text)
{
    static const struct {
        const char *pattern, *with, *text;
        int32_t want[6];
    } cases[] = {
        {"x+", "b", "axxxa", {4, 5, 4}},          {"^", "b", "aa", {5, 4, 4}},
        {"\\\\s*", "b", "a  a", {5, 4, 5, 4, 5}}, /* nothing, too, but not twice at one place */
        {"(?=a)", "b", "aa", {5, 4, 5, 4}},       {"\\\\z", "", "a", {4}},
    };
    for (size_t i = 0; i < DS_LEN(cases); i++) {
        struct tokenizer *t = NULL;
        char steps[256];
        size_t n = 0;
        snprintf(steps, sizeof steps,
                 "\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"%s\"},"
                 "\"content\":\"%s\"},",
                 cases[i].pattern, cases[i].with);
        while (n < 6 && cases[i].want[n])
            n++;
        t_ok(load(&t, steps,
                  "\"unk_token\":\"<unk>\",\"vocab\":{\"<unk>\":0,\"a\":4,\"b\":5},\"merges\":[]",
                  ""),
             &err);
        expect(t, cases[i].text, 0, cases[i].want, n);
        tokenizer_free(t);
    }
}

T(splits_join_as_configured)
{
    static const struct {
        const char *behavior;
        int32_t want[8];
    } cases[] = {/* of "a-b--ab-": a 1, b 2, - 3, and pairs that only merge in one piece */
                 {"Isolated", {1, 3, 2, 3, 3, 6, 3}},
                 {"Removed", {1, 2, 6}},
                 {"MergedWithPrevious", {4, 5, 3, 6, 3}},
                 {"MergedWithNext", {1, 7, 3, 7 + 1, 3}},
                 {"Contiguous", {1, 3, 2, 9, 6, 3}}};
    for (size_t i = 0; i < DS_LEN(cases); i++) {
        struct tokenizer *t = NULL;
        char steps[256];
        size_t n = 0;
        snprintf(steps, sizeof steps,
                 "\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\"-\"},"
                 "\"behavior\":\"%s\",\"invert\":false},",
                 cases[i].behavior);
        while (n < 8 && cases[i].want[n])
            n++;
        t_ok(
            load(
                &t, steps,
                "\"vocab\":{\"a\":1,\"b\":2,\"-\":3,\"a-\":4,\"b-\":5,\"ab\":6,\"-b\":7,"
                "\"-ab\":8,\"--\":9},\"merges\":[\"a b\",\"a -\",\"b -\",\"- b\",\"- ab\",\"- -\"]",
                ""),
            &err);
        expect(t, "a-b--ab-", 0, cases[i].want, n);
        tokenizer_free(t);
    }
}

T(added_tokens_that_are_single_words_stand_alone)
{
    struct tokenizer *t = NULL;
    t_ok(load(&t, "",
              "\"unk_token\":\"<unk>\",\"vocab\":{\"<unk>\":0,\"a\":1,\"b\":2,\"-\":3,\" \":4,"
              "\"\xC3\xA9\":5}",
              ",\"added_tokens\":[{\"id\":9,\"content\":\"ab\",\"single_word\":true,"
              "\"normalized\":false}]"),
         &err);
    EXPECT(t, "ab", 0, 9);
    EXPECT(t, "ab-ab", 0, 9, 3, 9);
    EXPECT(t, "aab", 0, 1, 1, 2);
    EXPECT(t,
           "ab\xC3\xA9 \xC3\xA9"
           "ab",
           0, 1, 2, 5, 4, 5, 1, 2);
    tokenizer_free(t);
}

/* An added token that does not match where it stands is no word of the vocabulary. */
T(words_that_ignore_merges_are_those_of_the_vocabulary)
{
    struct tokenizer *t = NULL;
    t_ok(load(&t, "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},",
              "\"ignore_merges\":true,\"vocab\":{\"a\":0,\"b\":1,\"1\":2,\"bb\":3},\"merges\":[]",
              ",\"added_tokens\":[{\"id\":9,\"content\":\"ab\",\"single_word\":true}]"),
         &err);
    EXPECT(t, "ab", 0, 9);
    EXPECT(t, "ab1", 0, 0, 1, 2);
    EXPECT(t, "bb1", 0, 3, 2);
    tokenizer_free(t);
}

/* PCRE2 counts characters that several scripts share as well, such as the ideographic full stop. */
T(a_script_in_a_pattern_is_one_script)
{
    static const char *const removed[] = {"\\\\p{Han}", "\\\\P{^Han}", "[\\\\p{Han}x]",
                                          "\\\\P{Han}", "\\\\p{^Han}"};
    for (size_t i = 0; i < DS_LEN(removed); i++) {
        struct tokenizer *t = NULL;
        char steps[200];
        snprintf(
            steps, sizeof steps,
            "\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"%s\"},\"behavior\":"
            "\"Removed\"},",
            removed[i]);
        t_ok(load(&t, steps, "\"vocab\":{\"\xE4\xB8\xAD\":0,\"\xE3\x80\x82\":1},\"merges\":[]", ""),
             &err);
        EXPECT(t, "\xE4\xB8\xAD\xE3\x80\x82", 0, i < 3);
        tokenizer_free(t);
    }
}

T(characters_that_are_dropped_let_their_neighbours_merge)
{
    struct tokenizer *t = NULL;
    t_ok(load(&t, "", "\"vocab\":{\" \":0,\"  \":1,\"a\":2},\"merges\":[[\" \",\" \"]]", ""), &err);
    EXPECT(t, " \xC3\xA9 a x ", 0, 1, 2, 1);
    tokenizer_free(t);
}

T(metaspace_puts_marks_as_configured)
{
    static const char *const scheme[] = {
        "\"prepend_scheme\":\"always\"", "\"prepend_scheme\":\"never\"",
        "\"prepend_scheme\":\"first\",\"split\":false", "\"add_prefix_space\":false"};
    static const int32_t first[] = {6, 4, 6, 4};
    for (size_t i = 0; i < DS_LEN(scheme); i++) {
        struct tokenizer *t = NULL;
        char steps[256];
        snprintf(steps, sizeof steps,
                 "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"" MARK "\",%s},",
                 scheme[i]);
        t_ok(load(&t, steps, small_model,
                  ",\"added_tokens\":[{\"id\":9,\"content\":\"<r>\",\"special\":true}]"),
             &err);
        EXPECT(t, "a", 0, first[i]);
        EXPECT(t, " a a", 0, 6, 6);
        EXPECT(t, "<r>a", 1, 9, i == 0 ? 6 : 4);
        tokenizer_free(t);
    }
}

/* Cutting words at marks is a short cut: the whole text at once must give the same ids. */
T(cutting_at_marks_changes_no_id)
{
    struct tokenizer *t = NULL;
    struct rng r;
    rng_init(&r, 3, RNG_TEST, 0, 0);
    t_ok(load(&t, "",
              "\"vocab\":{\"" MARK "\":0,\"a\":1,\"b\":2,\"" MARK "a\":3,\"a" MARK
              "\":4,\"ab\":5,\"a" MARK "a\":6,\"b" MARK "\":7,\"c\":8,\"cab\":9},\"merges\":[\"a "
              "b\",\"" MARK " a\",\"a " MARK "\",\"a " MARK "a\",\"c ab\"]",
              ""),
         &err);
    t_true(t->bpe->chars->joined['a'] && t->bpe->chars->joined['b'] && !t->bpe->chars->joined['c']);
    for (int trial = 0; trial < 500; trial++) {
        struct str s = {0};
        struct ids cut = {0}, whole = {0};
        for (uint32_t n = 1 + rng_below(&r, 120), i = 0; i < n; i++)
            str_add(&s, (const char *[]){"a", "b", "c", MARK}[rng_below(&r, 4)]);
        t_ok(tokenizer_encode(t, s.p, s.len, 0, &cut, &err), &err);
        size_t mark = t->bpe->chars->mark_len;
        t->bpe->chars->mark_len = 0;
        t_ok(tokenizer_encode(t, s.p, s.len, 0, &whole, &err), &err);
        t->bpe->chars->mark_len = mark;
        t_eq(cut.n, whole.n);
        t_true(memcmp(cut.v, whole.v, cut.n * sizeof *cut.v) == 0);
        str_release(&s);
        ids_release(&cut);
        ids_release(&whole);
    }
    tokenizer_free(t);
}

static int keep_lengths(void *ctx, const char *s, size_t n, struct err *e)
{
    (void)s;
    (void)e;
    return ids_add(ctx, (int32_t)n);
}

/* The same pattern in brackets is one that the short cut does not know. */
T(plain_words_are_cut_as_the_patterns_cut_them)
{
    static const char *const bits[] = {"word",         "A",   " ",  "  ", "'s", "'", ".",
                                       ",\"",          "...", "\n", "1",  "23", "-", "\xC3\xA9",
                                       "\xE2\x80\x99", "_\t"};
    struct rng r;
    rng_init(&r, 4, RNG_TEST, 0, 0);
    for (size_t f = 0; f < n_families; f++) {
        struct tokenizer *t = NULL;
        char steps[1024];
        struct pretok other = {0};
        struct str pattern = {0};
        snprintf(steps, sizeof steps, "\"pre_tokenizer\":%s,", families[f].pre_tokenizer);
        t_ok(load(&t, steps, "\"vocab\":{\"a\":0},\"merges\":[]", ""), &err);
        t_true(t->bpe->pre.stage[0].plain_words);
        str_addf(&pattern, "(?:%s)", t->bpe->pre.stage[0].pattern);
        t_ok(pretok_add(&other, &(struct pretok_stage){.pattern = pattern.p}, &err), &err);
        t_true(!other.stage[0].plain_words);
        for (int trial = 0; trial < 2000; trial++) {
            struct str s = {0};
            struct ids a = {0}, b = {0};
            for (uint32_t n = 1 + rng_below(&r, 12), i = 0; i < n; i++)
                str_add(&s, bits[rng_below(&r, DS_LEN(bits))]);
            t_ok(pretok_walk(&t->bpe->pre, s.p, s.len, keep_lengths, &a, &err), &err);
            t_ok(pretok_walk(&other, s.p, s.len, keep_lengths, &b, &err), &err);
            t_truef(a.n == b.n && memcmp(a.v, b.v, a.n * sizeof *a.v) == 0, "%s: \"%s\"",
                    families[f].name, s.p);
            str_release(&s);
            ids_release(&a);
            ids_release(&b);
        }
        struct ids run = {0}; /* the regex would give up */
        char *spaces = mem_alloc(2 << 20, 1);
        memset(spaces, ' ', (2 << 20) - 1);
        spaces[(2 << 20) - 1] = 'x';
        t_ok(pretok_walk(&t->bpe->pre, spaces, 2 << 20, keep_lengths, &run, &err), &err);
        t_true(run.n == 2 && run.v[0] == (2 << 20) - 2);
        mem_free(spaces);
        ids_release(&run);
        pretok_release(&other);
        str_release(&pattern);
        tokenizer_free(t);
    }
}

T(a_normalizer_that_multiplies_text_is_stopped)
{
    struct tokenizer *t = NULL;
    struct ids ids = {0};
    struct str steps = {0}, text = {0};
    str_add(&steps, "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[");
    for (int i = 0; i < 8; i++)
        str_addf(&steps,
                 "%s{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":"
                 "\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"}",
                 i ? "," : "");
    str_add(&steps, "]},");
    t_ok(load(&t, str_text(&steps), "\"vocab\":{\"a\":0},\"merges\":[]", ""), &err);
    for (int i = 0; i < 100000; i++)
        str_add_char(&text, 'a');
    t_fails(tokenizer_encode(t, text.p, text.len, 0, &ids, &err), &err, DS_ERANGE,
            "a factor of 16");
    tokenizer_free(t);
    str_release(&steps);
    str_release(&text);
    ids_release(&ids);
}

static const struct {
    const char *before, *model, *part;
} bad[] = {
    {"\"normalizer\":{\"type\":\"BertNormalizer\"},", "\"vocab\":{\"a\":0}", "BertNormalizer"},
    {"\"normalizer\":{\"type\":\"Replace\",\"pattern\":{}},", "\"vocab\":{\"a\":0}",
     "Replace without"},
    {"\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"(\"}},", "\"vocab\":{\"a\":0}",
     "normalizer: invalid pattern"},
    {"\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AAAA\"},",
     "\"vocab\":{\"a\":0}", "corrupt precompiled_charsmap"},
    {"\"decoder\":{\"type\":\"WordPiece\"},", "\"vocab\":{\"a\":0}", "WordPiece"},
    {"\"decoder\":{\"type\":\"Strip\",\"content\":\"x\"},", "\"vocab\":{\"a\":0}", "Strip"},
    {"\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\"},", "\"vocab\":{\"a\":0}",
     "replacement"},
    {"\"pre_tokenizer\":{\"type\":\"CharDelimiterSplit\"},", "\"vocab\":{\"a\":0}",
     "CharDelimiterSplit"},
    {"", "\"unk_token\":\"u\",\"vocab\":{\"a\":0}", "unk_token"},
    {"", "\"vocab\":{\"a\":0,\"aa\":1},\"merges\":[\"a a\"],\"merge_ranks\":[1]", "out of order"},
    {"", "\"vocab\":{\"a\":0,\"aa\":1},\"merges\":[\"a a\"],\"merge_ranks\":[]",
     "0 entries, expected 1"},
};

T(what_is_not_supported_is_named)
{
    for (size_t i = 0; i < DS_LEN(bad); i++) {
        struct tokenizer *t = NULL;
        int rc = load(&t, bad[i].before, bad[i].model, "");
        t_truef(rc < 0 && strstr(err.text, bad[i].part) && strstr(err.text, "tok.json"),
                "case %zu: %d %s", i, rc, err.text);
        t_true(strchr(err.text, '\n') == NULL);
    }
}

/* --- SentencePiece ------------------------------------------------------------------------------
 */

static void add_field(struct str *s, int number, const char *p, size_t n)
{
    ck_assert(n < 16384);
    str_add_char(s, (char)(number << 3 | 2));
    str_add_char(s, (char)((n & 127) | 128));
    str_add_char(s, (char)(n >> 7));
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

/* trainer: model_type and what else; normalizer: no extra-space removal and what else. */
static void make_spm(struct str *s, char type, const char *normalizer, size_t n)
{
    add_piece(s, "<unk>", 0, 2);
    add_piece(s, "<s>", 0, 3);
    add_piece(s, MARK MARK, -5, 1);
    add_piece(s, MARK, -7, 1);
    add_piece(s, MARK MARK MARK, -5, 1);
    add_piece(s, "a", -8, 1);
    add_piece(s, "aa", -1, 1);
    add_piece(s, "aaa", -1, 1);
    add_field(s, 2, (const char[]){3 << 3, type}, 2);
    add_field(s, 3, normalizer, n);
}
static const char keeps_spaces[] = {4 << 3, 0};

T(sentencepiece_pairs_of_one_score_merge_leftmost_first)
{
    struct str s = {0};
    struct tokenizer *t = NULL, *again = NULL;
    char path[512];
    make_spm(&s, 2, keeps_spaces, sizeof keeps_spaces);
    t_ok(tokenizer_parse_spm(&t, s.p, s.len, "m.model", &err), &err);
    snprintf(path, sizeof path, "%s/tokenizer.json", t_tmpdir());
    t_ok(tokenizer_save(t, path, &err), &err);
    t_ok(tokenizer_load(&again, path, &err), &err);
    for (int i = 0; i < 2; i++) {
        struct tokenizer *u = i ? again : t;
        t_eq(tokenizer_bos(u), 1);
        EXPECT(u, "  ", 0, 4);         /* one in front */
        EXPECT(u, "aaaa", 0, 3, 7, 5); /* aa a a -> aaa a: not aa aa, which is further right */
        EXPECT(u, "a<s>", 1, 3, 5, 1);
        EXPECT(u, "xyz", 0, 3, 0);
        expect(u, "", 0, NULL, 0);
    }
    t_true(tokenizer_hash(t) == tokenizer_hash(again));
    tokenizer_free(t);
    tokenizer_free(again);
    str_release(&s);
}

/* Whatever the piece is called: training puts it between documents. */
T(sentencepiece_says_which_piece_ends_a_text)
{
    static const char ends[] = {(char)0xD0, 2, 8}, none[] = {(char)0xD0, 2, 7};
    for (char type = 1; type <= 2; type++)
        for (int i = 0; i < 2; i++) {
            struct str s = {0};
            struct tokenizer *t = NULL;
            make_spm(&s, type, keeps_spaces, sizeof keeps_spaces);
            add_piece(&s, "[E]", 0, 3);
            add_field(&s, 2, i ? none : ends, 3);
            t_ok(tokenizer_parse_spm(&t, s.p, s.len, "m.model", &err), &err);
            t_eq(tokenizer_eot(t), i ? -1 : 8); /* 7 is a word */
            tokenizer_free(t);
            str_release(&s);
        }
}

/* What the user defines is one token wherever its characters stand, and merges with nothing; an
 * unused piece is made for the sake of longer ones, and taken apart where it is left. */
T(sentencepiece_user_defined_and_unused_pieces)
{
    struct str s = {0};
    struct tokenizer *t = NULL, *again = NULL;
    char path[512];
    make_spm(&s, 2, keeps_spaces, sizeof keeps_spaces); /* 0..7; aa 6, aaa 7 */
    add_piece(&s, "b", -9, 1);                          /* 8 */
    add_piece(&s, "ab", -2, 5);                         /* 9, unused */
    add_piece(&s, "abb", -3, 1);                        /* 10 */
    add_piece(&s, MARK "b" MARK, 0, 4);                 /* 11 */
    add_piece(&s, "bbb", -4, 5);                        /* 12, no merge makes it */
    t_ok(tokenizer_parse_spm(&t, s.p, s.len, "m.model", &err), &err);
    snprintf(path, sizeof path, "%s/tokenizer.json", t_tmpdir());
    t_ok(tokenizer_save(t, path, &err), &err);
    t_ok(tokenizer_load(&again, path, &err), &err);
    for (int i = 0; i < 2; i++) {
        struct tokenizer *u = i ? again : t;
        EXPECT(u, "ab", 0, 3, 5, 8);
        EXPECT(u, "abb", 0, 3, 10);
        EXPECT(u, "abab", 0, 3, 5, 8, 5, 8);
        EXPECT(u, "a b a", 0, 3, 5, 11, 5);
        EXPECT(u, "b b", 0, 11, 8); /* the mark in front counts */
        EXPECT(u, "bbb", 0, 3, 8, 8, 8);
    }
    t_true(tokenizer_hash(t) == tokenizer_hash(again));
    tokenizer_free(t);
    tokenizer_free(again);
    str_release(&s);
}

/* Marks in what the user defines are spaces like any others, to whoever reads the text and to other programs. */
T(sentencepiece_user_defined_spaces_are_spaces)
{
    struct str s = {0}, text = {0};
    struct tokenizer *t = NULL, *again = NULL;
    struct tokenizer_parts p = {0};
    char path[512];
    make_spm(&s, 2, keeps_spaces, sizeof keeps_spaces); /* 0..7 */
    add_piece(&s, MARK MARK MARK MARK, 0, 4);           /* 8 */
    add_piece(&s, MARK "a\t", 0, 4);                    /* 9 */
    t_ok(tokenizer_parse_spm(&t, s.p, s.len, "m.model", &err), &err);
    snprintf(path, sizeof path, "%s/tokenizer.json", t_tmpdir());
    t_ok(tokenizer_save(t, path, &err), &err);
    t_ok(tokenizer_load(&again, path, &err), &err);
    for (int i = 0; i < 2; i++) {
        struct tokenizer *u = i ? again : t;
        EXPECT(u, "a    a a\t", 0, 3, 5, 8, 5, 9);
        tokenizer_decode(u, (const int32_t[]){3, 5, 8, 5, 9}, 5, &text);
        t_str(str_text(&text), "a    a a\t");
        str_reset(&text);
        tokenizer_decode(u, (const int32_t[]){8, 5}, 2, &text);
        t_str(str_text(&text), "   a");
        str_reset(&text);
    }
    t_ok(tokenizer_parts(&p, t, &err), &err);
    t_true(p.token[9].n == 3 && memcmp(p.token[9].text, " a\t", 3) == 0);
    t_eq(p.token[9].type, TOKEN_USER_DEFINED);
    t_eq(p.token[8].n, 12); /* merges make this one of marks; it is printed as spaces, too */
    t_eq(p.token[8].type, TOKEN_NORMAL);
    t_true(p.token[8].score > 0); /* before all others */
    t_true(!p.is_exact); /* other programs find them in the text before a space is put in front */
    tokenizer_parts_release(&p);
    tokenizer_free(t);
    tokenizer_free(again);
    str_release(&text);
    str_release(&s);
}

T(sentencepiece_trims_spaces_as_configured)
{
    struct str s = {0};
    struct tokenizer *t = NULL;
    make_spm(&s, 2, "", 0);
    t_ok(tokenizer_parse_spm(&t, s.p, s.len, "m", &err), &err);
    EXPECT(t, "  a   a ", 0, 3, 5, 3, 5);
    EXPECT(t, "a" MARK, 0, 3, 5);
    EXPECT(t, "a \n", 0, 3, 5, 3, 0); /* a line's end is not the end of the text */
    expect(t, "   ", 0, NULL, 0);
    tokenizer_free(t);
    str_release(&s);
}

static void put_u32(char *p, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (char)(v >> 8 * i & 255);
}

/* A table of one entry: "X" becomes "a  a".  Its units: a root, the letter below it, its value. */
static size_t make_charsmap(char *out)
{
    enum { BELOW = 256, LETTER = BELOW ^ 'X', LEAF = 600, UNITS = 601 };
    memset(out, 0, 4 + 4 * UNITS);
    put_u32(out, 4 * UNITS);
    put_u32(out + 4, (uint32_t)BELOW << 10);
    put_u32(out + 4 + 4 * LETTER, (uint32_t)(LETTER ^ LEAF) << 10 | 1u << 8 | 'X');
    put_u32(out + 4 + 4 * LEAF, 1u << 31 | 1);
    memcpy(out + 4 + 4 * UNITS, "\0a  a", 6);
    return 4 + 4 * UNITS + 6;
}

T(sentencepiece_normalises_by_its_table)
{
    char map[3000], field[3100] = {4 << 3, 0, 2 << 3 | 2};
    struct tokenizer *t = NULL, *again = NULL;
    char path[512];
    struct str s = {0};
    size_t n = make_charsmap(map);
    for (int trim = 0; trim < 2; trim++) {
        field[1] = (char)trim;
        field[3] = (char)((n & 127) | 128);
        field[4] = (char)(n >> 7);
        memcpy(field + 5, map, n);
        str_reset(&s);
        make_spm(&s, 2, field, n + 5);
        add_piece(&s, "XX", 0, 4); /* 8: what the user defines stays as it is */
        t_ok(tokenizer_parse_spm(&t, s.p, s.len, "m", &err), &err);
        snprintf(path, sizeof path, "%s/tokenizer.json", t_tmpdir());
        t_ok(tokenizer_save(t, path, &err), &err);
        t_ok(tokenizer_load(&again, path, &err), &err);
        t_true(tokenizer_hash(t) == tokenizer_hash(again));
        if (trim)
            EXPECT(again, "aXXX", 0, 3, 5, 8, 5, 3, 5);
        else
            EXPECT(again, "aXXX", 0, 3, 5, 8, 5, 2, 5);
        tokenizer_free(t);
        tokenizer_free(again);
    }
    for (size_t i = 0; i < n; i++) { /* every unit changed: ids or an error, nothing worse */
        struct ids ids = {0};
        field[5 + i] ^= (char)(1 << i % 8 | 0x40);
        str_reset(&s);
        make_spm(&s, 2, field, n + 5);
        if (tokenizer_parse_spm(&t, s.p, s.len, "m", &err) >= 0) {
            if (tokenizer_encode(t, "aXXYX\xFF", 6, 0, &ids, &err) < 0)
                t_true(err.text[0]);
            tokenizer_free(t);
        }
        ids_release(&ids);
        field[5 + i] ^= (char)(1 << i % 8 | 0x40);
    }
    str_release(&s);
}

T(sentencepiece_models_that_are_other_are_refused)
{
    struct tokenizer *t = NULL;
    struct str s = {0};
    make_spm(&s, 3, keeps_spaces, sizeof keeps_spaces);
    t_fails(tokenizer_parse_spm(&t, s.p, s.len, "m", &err), &err, DS_EFORMAT, "model_type word");
    str_reset(&s);
    make_spm(&s, 2, (const char[]){5 << 3, 0}, 2);
    t_fails(tokenizer_parse_spm(&t, s.p, s.len, "m", &err), &err, DS_EFORMAT, "escape_white");
    str_reset(&s);
    make_spm(&s, 2, (const char[]){4 << 3, 0, 2 << 3 | 2, 1, 'x'}, 5);
    t_fails(tokenizer_parse_spm(&t, s.p, s.len, "m", &err), &err, DS_EFORMAT, "charsmap of 1");
    str_reset(&s);
    add_piece(&s, "u", 0, 7);
    t_fails(tokenizer_parse_spm(&t, s.p, s.len, "m", &err), &err, DS_EFORMAT, "unknown type 7");
    str_reset(&s);
    make_spm(&s, 2, keeps_spaces, sizeof keeps_spaces);
    add_piece(&s, "a", 0, 1);
    t_fails(tokenizer_parse_spm(&t, s.p, s.len, "m", &err), &err, DS_EFORMAT, "duplicate pieces");
    for (size_t n = 0; n < s.len; n++) { /* cut anywhere: an error or a smaller model */
        struct tokenizer *u = NULL;
        if (tokenizer_parse_spm(&u, s.p, n, "m", &err) >= 0)
            tokenizer_free(u);
    }
    t_true(t == NULL);
    str_release(&s);
}

/* --- llama2.c, tiktoken, vocab.json -------------------------------------------------------------
 */

static void add_scored(struct str *s, const char *text, float score)
{
    uint32_t n = (uint32_t)strlen(text);
    str_add_bytes(s, &score, 4);
    str_add_bytes(s, &n, 4);
    str_add(s, text);
}

static void make_llama2c(struct str *s)
{
    str_add_bytes(s, (const char[]){7, 0, 0, 0}, 4);
    add_scored(s, "<unk>", 0);
    add_scored(s, "\n<s>\n", 0);
    add_scored(s, "\n</s>\n", 0);
    for (int i = 0; i < 256; i++) {
        char byte[8];
        snprintf(byte, sizeof byte, "<0x%02X>", (unsigned)i);
        add_scored(s, byte, 0);
    }
    add_scored(s, " a", -1);
    add_scored(s, " ", -2);
    add_scored(s, "a", -3);
}

T(llama2c_files_are_read_to_their_last_byte)
{
    struct str s = {0};
    struct tokenizer *t = NULL;
    make_llama2c(&s);
    t_ok(tokenizer_parse_llama2c(&t, s.p, s.len, "t.bin", &err), &err);
    t_eq(tokenizer_vocab(t), 262);
    EXPECT(t, "a a\n", 0, 259, 259, 3 + '\n');
    tokenizer_free(t);
    t = NULL;
    t_fails(tokenizer_parse_llama2c(&t, s.p, s.len - 1, "t.bin", &err), &err, DS_EFORMAT,
            "piece 261: truncated");
    t_fails(tokenizer_parse_llama2c(&t, s.p, 100, "t.bin", &err), &err, DS_EFORMAT, "piece");
    t_fails(tokenizer_parse_llama2c(&t, "", 0, "t.bin", &err), &err, DS_EFORMAT, "not a llama2.c");
    s.p[4 + 13 + 13 + 14 + 8 + 1] = 'x'; /* in the name of the first byte */
    t_fails(tokenizer_parse_llama2c(&t, s.p, s.len, "t.bin", &err), &err, DS_EFORMAT, "<0x0A>");
    str_release(&s);
}

/* The file does not say them: the first three pieces are SentencePiece's, then come the bytes. */
T(llama2c_pieces_have_the_types_of_their_places)
{
    static const enum token_type type[] = {TOKEN_UNKNOWN, TOKEN_CONTROL, TOKEN_CONTROL, TOKEN_BYTE};
    struct str s = {0};
    struct tokenizer *t = NULL;
    struct tokenizer_parts p = {0};
    make_llama2c(&s);
    t_ok(tokenizer_parse_llama2c(&t, s.p, s.len, "t.bin", &err), &err);
    t_ok(tokenizer_parts(&p, t, &err), &err);
    for (size_t i = 0; i < DS_LEN(type); i++)
        t_eq(p.token[i].type, type[i]);
    t_eq(p.token[258].type, TOKEN_BYTE);
    t_eq(p.token[259].type, TOKEN_NORMAL);
    tokenizer_parts_release(&p);
    tokenizer_free(t);
    str_release(&s);
}

/* Pieces of equal score share a queue; their pairs appear in the order of other scores. */
T(pairs_of_equal_score_that_appear_from_right_to_left_merge_from_the_left)
{
    enum { TIMES = 200 };
    static const char *const pieces[] = {"p",  "q",  "r",   "s",   "t",   "u",  "x", "pq",
                                         "rs", "tu", "pqx", "rsx", "tux", "xp", " "};
    static const float score[] = {-9, -9, -9, -9, -9, -9, -9, -1, -2, -3, -5, -5, -5, -6, -9};
    struct str s = {0}, text = {0};
    struct tokenizer *t = NULL;
    int32_t want[1 + 3 * TIMES] = {273};
    str_add_bytes(&s, (const char[]){7, 0, 0, 0}, 4);
    add_scored(&s, "<unk>", 0);
    add_scored(&s, "\n<s>\n", 0);
    add_scored(&s, "\n</s>\n", 0);
    for (int i = 0; i < 256; i++) {
        char byte[8];
        snprintf(byte, sizeof byte, "<0x%02X>", (unsigned)i);
        add_scored(&s, byte, 0);
    }
    for (size_t i = 0; i < DS_LEN(pieces); i++)
        add_scored(&s, pieces[i], score[i]);
    t_ok(tokenizer_parse_llama2c(&t, s.p, s.len, "t.bin", &err), &err);
    for (int i = 0; i < TIMES; i++) {
        str_add(&text, "tuxrsxpqx");
        for (int k = 0; k < 3; k++)
            want[1 + 3 * i + k] = 271 - k;
    }
    expect(t, str_text(&text), 0, want, DS_LEN(want));
    tokenizer_free(t);
    str_release(&text);
    str_release(&s);
}

T(extra_spaces_are_removed_only_where_the_normalizer_does)
{
    static const char *const steps[] = {"{\"type\":\"NFKC\"}",
                                        "{\"type\":\"NFKC\"},{\"type\":\"Strip\"}"};
    for (size_t i = 0; i < DS_LEN(steps); i++) {
        struct str s = {0};
        struct tokenizer *t = NULL;
        struct tokenizer_parts p = {0};
        str_addf(&s,
                 "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[%s]},\"model\":{"
                 "\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"u\",0],[\"a\",-1]]},"
                 "\"added_tokens\":[{\"id\":2,\"content\":\"<x>\",\"special\":true}]}",
                 steps[i]);
        t_ok(tokenizer_load_json(&t, s.p, s.len, "t.json", &err), &err);
        t_ok(tokenizer_parts(&p, t, &err), &err);
        t_eq(p.tokens, 3);
        t_true(p.token[1].score == -1);
        t_true(p.token[2].score == 0); /* the model does not have it */
        t_str(p.model, "t5");
        t_eq(p.remove_extra_spaces, i == 1);
        tokenizer_parts_release(&p);
        tokenizer_free(t);
        str_release(&s);
    }
}

T(tiktoken_files_of_unknown_families_are_refused)
{
    struct tokenizer *t = NULL;
    static const char *const wrong[] = {"IQ==\n", "IQ== x\n", "I?== 0\n", "IQ== 1\n", "= 0\n"};
    for (size_t i = 0; i < DS_LEN(wrong); i++)
        t_fails(tokenizer_parse_tiktoken(&t, wrong[i], strlen(wrong[i]), "r", &err), &err,
                DS_EFORMAT, "line 1");
    t_fails(tokenizer_parse_tiktoken(&t, "IQ== 0\nIg== 1\n", 14, "r", &err), &err, DS_EFORMAT,
            "of 2 tokens");
}

static void put(const char *dir, const char *name, const char *text)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    t_ok(fs_write_file(path, text, strlen(text), &err), &err);
}

T(vocab_json_takes_its_family_from_the_config)
{
    struct tokenizer *t = NULL;
    const char *dir = t_tmpdir();
    put(dir, "vocab.json", "{\"a\":0,\"b\":1,\"ab\":2,\"1\":3,\"11\":4,\"<|endoftext|>\":5}");
    t_fails(tokenizer_load(&t, dir, &err), &err, DS_ENOTFOUND, "merges.txt");
    put(dir, "merges.txt", "#version: 0.2\na b\r\n1 1\n");
    t_ok(tokenizer_load(&t, dir, &err), &err);
    EXPECT(t, "ab11<|endoftext|>", 1, 2, 4, 5);
    tokenizer_free(t);
    put(dir, "added_tokens.json", "{\"<t>\":7}");
    put(dir, "tokenizer_config.json",
        "{\"tokenizer_class\":\"Qwen2TokenizerFast\",\"added_tokens_decoder\":{\"6\":{\"content\":"
        "\"<p>\",\"special\":false}}}");
    t_ok(tokenizer_load(&t, dir, &err), &err);
    EXPECT(t, "ab11<p>", 0, 2, 3, 3, 6); /* one digit at a time */
    EXPECT(t, "<t>", 1, 7);
    t_eq(tokenizer_eot(t), 5);
    tokenizer_free(t);
    put(dir, "tokenizer_config.json", "{\"tokenizer_class\":\"BertTokenizer\"}");
    t_fails(tokenizer_load(&t, dir, &err), &err, DS_EFORMAT, "BertTokenizer");
}

T(every_failed_allocation_is_an_error)
{
    struct str s = {0};
    int failed = 1;
    make_llama2c(&s);
    for (uint64_t k = 1; failed && k < 20000; k += 1 + k / 50) {
        struct tokenizer *t = NULL;
        struct ids ids = {0};
        mem_fail_at(mem_calls() + k, 0);
        int rc = tokenizer_parse_llama2c(&t, s.p, s.len, "t.bin", &err);
        if (rc >= 0)
            rc = tokenizer_encode(t, "a ab\xC3\xA9", 6, 1, &ids, &err);
        failed = rc < 0;
        mem_fail_at(0, 0);
        ids_release(&ids);
        tokenizer_free(t);
    }
    t_true(!failed);
    str_release(&s);
}

/* Hugging Face's tokenizers fail on every text when a token is empty after their normalizer. */
T(sentencepiece_user_defined_line_ends_are_raw_to_other_programs)
{
    static const char raw[] = "\"content\":\"\\n\",\"single_word\":false,\"lstrip\":false,"
                              "\"rstrip\":false,\"normalized\":false,\"as_piece\":true";
    for (int trim = 0; trim < 2; trim++) {
        struct str s = {0}, text = {0};
        struct tokenizer *t = NULL, *again = NULL;
        char dir[400], path[512];
        make_spm(&s, 2, trim ? "" : keeps_spaces, trim ? 0 : sizeof keeps_spaces);
        add_piece(&s, "\n", 0, 4); /* 8 */
        add_piece(&s, "b", 0, 4);  /* 9 */
        t_ok(tokenizer_parse_spm(&t, s.p, s.len, "m.model", &err), &err);
        tokenizer_write(&text, t);
        t_eq(strstr(str_text(&text), raw) != NULL, trim);
        t_true(strstr(str_text(&text), "\"normalized\":true,\"as_piece\":true") != NULL);
        str_copy(dir, sizeof dir, t_tmpdir());
        snprintf(path, sizeof path, "%s/tokenizer.json", dir);
        t_ok(tokenizer_save(t, path, &err), &err);
        put(dir, "tokenizer_config.json",
            "{\"added_tokens_decoder\":{\"9\":{\"content\":\"b\",\"rstrip\":true}}}");
        t_ok(tokenizer_load(&again, path, &err), &err);
        EXPECT(t, "a\na", 0, 3, 5, 8, 5);
        EXPECT(again, "a\na", 0, 3, 5, 8, 5);
        str_reset(&text);
        tokenizer_write(&text, again);
        t_eq(strstr(str_text(&text), raw) != NULL, trim);
        tokenizer_free(t);
        tokenizer_free(again);
        str_release(&text);
        str_release(&s);
    }
}

/* The config next to tokenizer.json fills in what it omits; the saved file then contains it. */
T(the_config_next_to_a_tokenizer_json_is_used)
{
    char dir[512], path[600];
    struct tokenizer *t = NULL, *again = NULL;
    snprintf(dir, sizeof dir, "%s", t_tmpdir());
    put(dir, "tokenizer.json",
        "{\"added_tokens\":[{\"id\":1,\"content\":\"\\\"model\\\":{<b>\",\"special\":true},{\"id\":"
        "2,"
        "\"content\":\"<end>\",\"special\":true}], \"model\" : { "
        "\"type\":\"BPE\",\"vocab\":{\"a\":0},"
        "\"merges\":[]}}");
    t_ok(tokenizer_load(&t, dir, &err), &err);
    t_eq(tokenizer_bos(t), -1);
    t_eq(tokenizer_eot(t), -1);
    tokenizer_free(t);
    put(dir, "tokenizer_config.json",
        "{\"add_bos_token\":true,\"bos_token\":{\"content\":\"\\\"model\\\":{<b>\"},"
        "\"eos_token\":\"<end>\"}");
    t_ok(tokenizer_load(&t, dir, &err), &err);
    t_eq(tokenizer_bos(t), 1);
    t_eq(tokenizer_eot(t), 2);
    snprintf(path, sizeof path, "%s/other.json", dir);
    t_ok(tokenizer_save(t, path, &err), &err);
    put(dir, "tokenizer_config.json", "{\"add_bos_token\":false,\"bos_token\":\"<b>\"}");
    t_ok(tokenizer_load(&again, path, &err), &err);
    t_eq(tokenizer_bos(again), 1);
    t_eq(tokenizer_eot(again), 2);
    t_true(tokenizer_hash(t) == tokenizer_hash(again));
    tokenizer_free(t);
    tokenizer_free(again);
    t_ok(tokenizer_load(&t, dir, &err), &err);
    t_eq(tokenizer_bos(t), -1);
    tokenizer_free(t);
    put(dir, "tokenizer_config.json", "{");
    t_fails(tokenizer_load(&t, dir, &err), &err, DS_EFORMAT, "tokenizer_config.json");
}

/* What Oniguruma matches; the numbers are the bytes of the matches, which alone are kept. */
T(escapes_and_classes_of_patterns_mean_what_they_mean_to_the_tokenizers)
{
    static const struct {
        const char *pattern, *text;
        int32_t want[5];
    } row[] = {
        {"\\w+", "a\303\251_1-\302\262b\302\275 \342\205\240", {5, 5, 3}},
        {"[\\w-]+", "a-b c", {3, 1}},
        {"[\\w]+", "a\302\262b\302\275\342\205\240\303\251", {1, 1, 5}},
        {"[^\\w ]+", "a\302\274- \302\271\342\205\240", {3, 2}},
        {"\\W+", "a -b!", {2, 1}},
        {"\\h+", "12fG", {3}},
        {"[\\hG]+", "12fGH", {4}},
        {"\\H+", "12fGz", {2}},
        {"\\b\\w", "ab cd", {1, 1}},
        {"\\B\\w", "abc d", {1, 1}},
        {"\\w\\b", "\303\251a\303\251 a", {2, 1}},
        {"[[:digit:]a]+", "1a2b", {3}},
        {"[]a]+", "]a]b", {3}},
        {"[^]a]+", "b]cd", {1, 2}},
        {"[a[bc]]+", "abcd", {3}},
        {"\\u0041+", "AABA", {2, 1}},
        {"^a", "a\na", {1, 1}},
        {"a$", "a\na", {1, 1}},
        {"\\p{Latin}+", "ab\316\262c", {2, 1}},
        {"\\P{Latin}+", "ab\316\262c", {2}},
        {"\\p{^Latin}+", "ab\316\262c", {2}},
        {"\\p{Lu}+", "aBC", {2}},
        {"\\.\\[", "a.[", {2}},
        {"\\d{1,3}+", "a12345b67", {5, 2}},
        {"a{2,}+a", "aaaab", {4}},
        {"a{,2}b", "baabaaab", {1, 3, 3}},
        {"\\x{61}+b", "aab", {3}},
        {"x{,}", "x{,}", {4}},
    };
    static const char *const refused[] = {"[\\W]", "[\\H]", "[a[^b]]", "[a&&b]", "[a[]]"};
    for (size_t i = 0; i < DS_LEN(row); i++) {
        struct pretok p = {0};
        struct ids got = {0};
        size_t n = 0;
        while (n < 5 && row[i].want[n])
            n++;
        struct pretok_stage stage = {.pattern = (char *)(uintptr_t)row[i].pattern, .drop_gaps = 1};
        t_ok(pretok_add(&p, &stage, &err), &err);
        t_ok(pretok_walk(&p, row[i].text, strlen(row[i].text), keep_lengths, &got, &err), &err);
        t_truef(got.n == n && memcmp(got.v, row[i].want, n * sizeof *got.v) == 0,
                "%s of \"%s\": %zu matches, the first of %d bytes", row[i].pattern, row[i].text,
                got.n, got.n ? got.v[0] : 0);
        ids_release(&got);
        pretok_release(&p);
    }
    for (size_t i = 0; i < DS_LEN(refused); i++) {
        struct pretok p = {0};
        struct pretok_stage stage = {.pattern = (char *)(uintptr_t)refused[i]};
        t_fails(pretok_add(&p, &stage, &err), &err, DS_EFORMAT, "inside []: unsupported");
        pretok_release(&p);
    }
    for (size_t i = 0; i < 2; i++) {
        struct pretok p = {0};
        struct pretok_stage stage = {.pattern = (char *)(uintptr_t)(i ? "a{1,3}+?b" : "a{2}+b")};
        t_fails(pretok_add(&p, &stage, &err), &err, DS_EFORMAT,
                i ? "\"{1,3}+\": unsupported repetition" : "\"{2}+\": unsupported repetition");
        pretok_release(&p);
    }
}

T(what_is_not_supported_in_a_tokenizer_json_is_named)
{
#define BPE "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"" MARK "\":1},\"merges\":[]}"
#define UNIGRAM(more)                                                                              \
    "\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"u\",0],[\"a\",-1]]" more "}"
#define PRE(steps)                                                                                 \
    "{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[" steps "]}," BPE "}"
#define META "{\"type\":\"Metaspace\",\"replacement\":\"" MARK "\"}"
#define DIGITS "{\"type\":\"Digits\"}"
#define BYTES "{\"type\":\"ByteLevel\",\"add_prefix_space\":false}"
#define DIGITS8 DIGITS "," DIGITS "," DIGITS "," DIGITS "," DIGITS "," DIGITS "," DIGITS "," DIGITS
#define NFC8                                                                                       \
    "\"NFC\"},{\"type\":\"NFC\"},{\"type\":\"NFC\"},{\"type\":\"NFC\"},{\"type\":\"NFC\"},{"       \
    "\"type\":\"NFC\"},{\"type\":\"NFC\"},{\"type\":\"NFC\"}"
    static const struct {
        const char *text, *part;
    } row[] = {
        {PRE("{\"type\":\"Split\"}"), "Split pre-tokenizer: missing Regex or String pattern"},
        {PRE("{\"type\":\"Split\",\"pattern\":{\"String\":\"a\"}}"), "Split behavior \"(none)\""},
        {PRE("{\"type\":\"Split\",\"pattern\":{\"String\":\"a\"},\"behavior\":\"Other\"}"),
         "Split behavior \"Other\""},
        {PRE("{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a\"},\"behavior\":\"MergedWithNext\","
             "\"invert\":true}"),
         "inverted Split behavior \"MergedWithNext\""},
        {PRE("{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[a\"},\"behavior\":\"Isolated\"}"),
         "pre-tokenizer: invalid pattern"},
        {PRE(DIGITS ",{\"type\":\"ByteLevel\"}"), "ByteLevel after another pre-tokenizer with"},
        {PRE(META "," META), "second pre-tokenizer \"Metaspace\""},
        {PRE("{\"type\":\"Metaspace\",\"replacement\":\"" MARK "\",\"prepend_scheme\":\"x\"}"),
         "Metaspace prepend_scheme \"x\""},
        {PRE("{\"type\":\"Metaspace\"}"), "Metaspace replacement \"(none)\""},
        {PRE(BYTES "," BYTES), "pre-tokenizer after ByteLevel: \"ByteLevel\""},
        {PRE(DIGITS "," META "," DIGITS), "pre-tokenizer after Metaspace: \"Digits\""},
        {PRE("{\"type\":\"Sequence\"}"), "Sequence in a Sequence"},
        {PRE(DIGITS8 "," DIGITS8 "," DIGITS8), "too many pre-tokenizer stages"},
        {"{\"normalizer\":{\"type\":\"Precompiled\"}," BPE "}", "Precompiled without a map"},
        {"{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"\"}}," BPE "}",
         "Replace with an empty pattern"},
        {"{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":" NFC8
         ",{\"type\":" NFC8 ",{\"type\":" NFC8 ",{\"type\":" NFC8 ",{\"type\":" NFC8 "]}," BPE "}",
         "too many normalizers or decoders"},
        {"{\"pre_tokenizer\":" BYTES "," UNIGRAM("") "}",
         "pre-tokenizer of a unigram model: \"ByteLevel\""},
        {"{\"pre_tokenizer\":" BYTES ",\"decoder\":{\"type\":\"Fuse\"}," BPE "}",
         "decoder of a byte-level model: \"Fuse\""},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"dropout\":0.1}}", "dropout"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"unused\":[7]}}",
         "unused: unknown token 7"},
        {"{" UNIGRAM(",\"unmatched\":[9]") "}", "unmatched: unknown token 9"},
        {"{\"model\":{\"type\":\"Unigram\",\"unk_id\":5,\"vocab\":[[\"a\",0]]}}",
         "unk_id = 5: must be in 0..0"},
        {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",0],[\"b\"]]}}",
         "piece 1: expected [\"piece\", score]"},
        {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",\"b\"]]}}", "piece 0: expected"},
        {"{\"added_tokens\":[{\"id\":3}]," BPE "}", "added token: missing content"},
        {"{\"added_tokens\":[{\"id\":3,\"content\":\"a\"}]," BPE "}",
         "added token \"a\": id 3, expected 0 as in the vocabulary"},
        {"{\"added_tokens\":[{\"id\":3,\"content\":\"x\"},{\"id\":3,\"content\":\"y\"}]," BPE "}",
         "duplicate token id 3"},
        {"{\"added_tokens\":[{\"id\":-1,\"content\":\"x\"}]," BPE "}", "\"an added token\" has -1"},
        {"{\"post_processor\":{\"type\":\"Sequence\",\"processors\":[{\"type\":\"Sequence\"}]}," BPE
         "}",
         "post-processor"},
    };
    for (size_t i = 0; i < DS_LEN(row); i++) {
        struct tokenizer *t = NULL;
        err = (struct err){0};
        int rc = tokenizer_load_json(&t, row[i].text, strlen(row[i].text), "tok.json", &err);
        t_truef(rc < 0 && strstr(err.text, row[i].part) && strstr(err.text, "tok.json"),
                "%s: %d %s", row[i].text, rc, err.text);
        tokenizer_free(t);
    }
}

/* A grapheme cluster of less than 6 bytes is replaced as a whole, a longer one letter by letter. */
T(clusters_become_the_replacement_of_the_entry_that_they_begin_with)
{
#define ACUTE "\xCC\x81"
    static const struct {
        const char *text, *want;
    } row[] = {
        {"", ""},
        {"b", "b"},
        {"XbX", "a  aba  a"},
        {"X" ACUTE "b", "a  ab"},
        {"b" ACUTE "X", "b" ACUTE "a  a"},
        {"X" ACUTE ACUTE ACUTE "b", "a  a" ACUTE ACUTE ACUTE "b"},
        {"\xFFX\xFF", "\xFF"
                      "a  a\xFF"},
        {"x\xCC", "x\xCC"},
    };
    char map[3000];
    struct norm_step step = {.kind = NORM_CHARSMAP_CLUSTERS, .from = map};
    struct str out = {0}, json = {0}, base64 = {0};
    struct tokenizer *t = NULL;
    step.from_len = make_charsmap(map);
    for (size_t i = 0; i < DS_LEN(row); i++) {
        str_reset(&out);
        charsmap_clusters(&out, &step, row[i].text, strlen(row[i].text), 1000);
        t_str(str_text(&out), row[i].want);
    }
    str_reset(&out);
    charsmap_clusters(&out, &step, "XXXXXXXX", 8, 5);
    t_str(str_text(&out), "a  aa  a");
    base64_encode(&base64, map, step.from_len);
    str_addf(&json,
             "{\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"%s\"},"
             "\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"u\",0],[\"a\",-1],[\" \","
             "-1],[\"b\",-1]]}}",
             str_text(&base64));
    t_ok(tokenizer_load_json(&t, json.p, json.len, "tok.json", &err), &err);
    EXPECT(t, "bX", 0, 3, 1, 2, 2, 1);
    tokenizer_free(t);
    str_release(&base64);
    str_release(&json);
    str_release(&out);
}

/* Files that use most of the format. */
static const char *const whole[] = {
    "{\"added_tokens\":[{\"id\":9,\"content\":\"<s>\",\"special\":true},{\"id\":10,\"content\":\"<"
    "n>\","
    "\"normalized\":true,\"single_word\":true,\"lstrip\":true}],\"normalizer\":{\"type\":"
    "\"Sequence\","
    "\"normalizers\":[{\"type\":\"NFC\"},{\"type\":\"Lowercase\"},{\"type\":\"Strip\",\"strip_"
    "left\":"
    "true}]},\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\","
    "\"pattern\":{\"Regex\":\"-|\\\\p{Greek}\"},\"behavior\":\"MergedWithNext\"},{\"type\":"
    "\"Punctuation\"},{"
    "\"type\":\"ByteLevel\",\"add_prefix_space\":false}]},\"post_processor\":{\"type\":"
    "\"Sequence\","
    "\"processors\":[{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>"
    "\"}},"
    "{\"Sequence\":{\"id\":\"A\"}}]}]},\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":"
    "\"ByteLevel\"}]},\"model\":{\"type\":\"BPE\",\"unk_token\":\"a\",\"ignore_merges\":true,"
    "\"vocab\":"
    "{\"a\":0,\"b\":1,\"ab\":2,\"-\":3,\"-b\":4},\"merges\":[\"a b\",\"- b\"]}}",
    "{\"added_tokens\":[{\"id\":9,\"content\":\"<n>\",\"normalized\":true}],\"normalizer\":{"
    "\"type\":"
    "\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":\"" MARK
    "\"},{\"type\":\"Replace\","
    "\"pattern\":{\"String\":\" \"},\"content\":\"" MARK
    "\"},{\"type\":\"Replace\",\"pattern\":{\"Regex\":"
    "\"x+\"},\"content\":\"b\"}]},\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":"
    "\"Replace\","
    "\"pattern\":{\"String\":\"" MARK
    "\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":"
    "\"Fuse\"},{\"type\":\"Strip\",\"content\":\" "
    "\",\"start\":1,\"stop\":0}]},\"model\":{\"type\":\"BPE\","
    "\"unk_token\":\"<unk>\",\"byte_fallback\":true,\"unused\":[7],\"vocab\":{\"<unk>\":0,\"<0xC3>"
    "\":1,"
    "\"<0xA9>\":2,\"" MARK "\":3,\"a\":4,\"b\":5,\"" MARK "a\":6,\"ab\":7},\"merges\":[\"" MARK
    " a\",\"a b\"]}}",
    "{\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"" MARK "\",\"prepend_scheme\":"
    "\"first\"},\"decoder\":{\"type\":\"Metaspace\",\"replacement\":\"" MARK
    "\"},\"added_tokens\":[{"
    "\"id\":6,\"content\":\"<s>\",\"special\":true}],\"model\":{\"type\":\"Unigram\",\"unk_id\":0,"
    "\"unmatched\":[0],\"vocab\":[[\"<unk>\",0],[\"" MARK
    "\",-2],[\"a\",-3],[\"b\",-3],[\"ab\",-4],"
    "[\"" MARK "ab\",-5]]}}",
};

T(every_failed_allocation_of_a_tokenizer_json_is_an_error)
{
    static const char text[] = "ab -b ABx, a\xC3\xA9 <s>ab<n> xxab";
    for (size_t f = 0; f < DS_LEN(whole); f++) {
        struct ids want = {0};
        int failed = 0, is_done = 0;
        for (uint64_t k = 0; !is_done && k < 20000; k++) { /* 0: none fails */
            struct tokenizer *t = NULL;
            struct ids ids = {0};
            uint64_t last = k ? mem_calls() + k : 0;
            err = (struct err){0};
            mem_fail_at(last, 0);
            int rc = tokenizer_load_json(&t, whole[f], strlen(whole[f]), "t.json", &err);
            if (rc >= 0)
                rc = tokenizer_encode(t, text, sizeof text - 1, 1, &ids, &err);
            is_done = k && mem_calls() < last;
            mem_fail_at(0, 0);
            failed += rc < 0;
            t_truef(rc >= 0 || (k && rc == DS_EMEM && strstr(err.text, "memory")),
                    "%zu, call %d: %d %s", f, (int)k, rc, err.text);
            if (k && rc >= 0)
                t_truef(ids.n == want.n && memcmp(ids.v, want.v, ids.n * sizeof *ids.v) == 0,
                        "%zu, call %d: other ids", f, (int)k);
            tokenizer_free(t);
            if (k)
                ids_release(&ids);
            else
                want = ids;
        }
        t_truef(is_done && failed > 30 && want.n > 5, "%zu: %d failed, %zu ids", f, failed, want.n);
        ids_release(&want);
    }
}

/* A config of n specials and m tokens in all, its version and pattern, tokens "a" and "b", and the list of
 * special tokens. */
#define TEKKEN(config, vocab, specials)                                                            \
    "{\"config\":{" config "},\"vocab\":[" vocab "],\"special_tokens\":" specials "}"
#define SIZES "\"default_vocab_size\":4,\"default_num_special_tokens\":2"
#define PATTERN ",\"version\":\"v7\",\"pattern\":\"[a-z]+| \""
#define AB "{\"rank\":0,\"token_bytes\":\"YQ==\"},{\"rank\":1,\"token_bytes\":\"Yg==\"}"
#define ST "[{\"rank\":0,\"token_str\":\"<s>\"},{\"rank\":1,\"token_str\":\"</s>\"}]"

T(a_tekken_file_is_read_or_refused_by_name)
{
    static const char good[] = TEKKEN(SIZES PATTERN, AB, ST);
    static const struct {
        const char *text;
        int code;
        const char *part;
    } row[] = {
        {"{}", DS_ERANGE, "default_vocab_size = -1 and default_num_special_tokens = -1"},
        {TEKKEN("\"default_vocab_size\":9,\"default_num_special_tokens\":2", AB, ST), DS_ERANGE,
         "must leave 1 to 2 tokens, the length of vocab"},
        {TEKKEN(SIZES PATTERN, "{\"rank\":1,\"token_bytes\":\"YQ==\"},1", ST), DS_EFORMAT,
         "vocab[0]: expected rank 0 and token_bytes"},
        {TEKKEN(SIZES PATTERN,
                "{\"rank\":0,\"token_bytes\":\"?\"},{\"rank\":1,\"token_bytes\":\"Yg==\"}", ST),
         DS_EFORMAT, "vocab[0]: token_bytes must be base64"},
        {TEKKEN(SIZES PATTERN, AB, "null"), DS_ERANGE, "special tokens: must be at most 2"},
        {TEKKEN(SIZES ",\"version\":\"v99\",\"pattern\":\"a\"", AB, "null"), DS_EFORMAT,
         "missing special_tokens in a file of version v99"},
        {TEKKEN(SIZES PATTERN, AB, "[1,2,3]"), DS_ERANGE, "3 special tokens: must be at most 2"},
        {TEKKEN(SIZES PATTERN, AB,
                "[{\"rank\":0,\"token_str\":\"<s>\"},{\"rank\":0,\"token_str\":\"x\"}]"),
         DS_EFORMAT, "special_tokens[1]: expected rank 1 and token_str"},
        {TEKKEN(SIZES, AB, ST), DS_EFORMAT, "config: missing pattern"},
    };
    struct tokenizer *t = NULL;
    int failed = 0, is_done = 0;
    for (size_t i = 0; i < DS_LEN(row); i++) {
        t_fails(tokenizer_parse_tekken(&t, row[i].text, strlen(row[i].text), "x.json", &err), &err,
                row[i].code, row[i].part);
        t_true(strstr(err.text, "x.json") == err.text);
    }
    t_ok(tokenizer_parse_tekken(&t, good, sizeof good - 1, "x.json", &err), &err);
    t_eq(tokenizer_bos(t), 0);
    t_eq(tokenizer_vocab(t), 4);
    EXPECT(t, "ab", 0, 2, 3);
    tokenizer_free(t);
    for (uint64_t k = 1; !is_done && k < 20000; k++) {
        uint64_t last = mem_calls() + k;
        t = NULL;
        err = (struct err){0};
        mem_fail_at(last, 0);
        int rc = tokenizer_parse_tekken(&t, good, sizeof good - 1, "x.json", &err);
        is_done = mem_calls() < last;
        mem_fail_at(0, 0);
        failed += rc < 0;
        t_truef(rc >= 0 || (rc == DS_EMEM && strstr(err.text, "memory")), "call %d: %d %s", (int)k,
                rc, err.text);
        tokenizer_free(t);
    }
    t_true(is_done && failed > 20);
}
