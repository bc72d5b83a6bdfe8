/* Byte-level BPE: training, files, encoding, and hostile input. */
#include "t.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/mem.h"
#include "base/rng.h"
#include "data/tokenizer/bpe.h"
#include "data/tokenizer.h"

static struct err err;

/* A megabyte of English-like text with some of everything. */
static void make_text(struct str *out, size_t bytes)
{
    static const char *const words[] = {
        "the",
        "a",
        "little",
        "girl",
        "boy",
        "house",
        "and",
        "ran",
        "Tom's",
        "don't",
        "we'll",
        "1984",
        "3.14",
        "blue",
        "caf\xC3\xA9",
        "\xD0\xBC\xD0\xB8\xD1\x80",
        "\xE4\xBD\xA0\xE5\xA5\xBD",
        "x=1;",
        "  ",
        "\n\n",
        "\t",
        "...",
        "\xF0\x9F\x98\x80",
        "running",
    };
    struct rng r;
    rng_init(&r, 5, RNG_TEST, 0, 0);
    while (out->len < bytes) {
        double u = rng_uniform(&r);
        str_add(out, words[(size_t)(u * u * 24)]);
        str_add(out, rng_uniform(&r) < 0.9 ? " " : ".\n");
    }
}

static struct tokenizer *train(const char *text, size_t n, int vocab)
{
    struct tokenizer *t = NULL;
    t_ok(tokenizer_train_bpe(&t, &text, &n, 1, vocab, &err), &err);
    return t;
}

static void round_trip(const struct tokenizer *t, const char *s, size_t n)
{
    struct ids ids = {0};
    struct str back = {0};
    t_ok(tokenizer_encode(t, s, n, 0, &ids, &err), &err);
    tokenizer_decode(t, ids.v, ids.n, &back);
    t_eq(back.len, n);
    t_true(n == 0 || memcmp(back.p, s, n) == 0);
    ids_release(&ids);
    str_release(&back);
}

T(byte_alphabet_is_a_bijection)
{
    for (int b = 0; b < 256; b++)
        t_eq(bpe_rune_byte(bpe_byte_rune((unsigned char)b)), b);
    int known = 0;
    for (uint32_t r = 0; r < 0x200; r++)
        known += bpe_rune_byte(r) >= 0;
    t_eq(known, 256);
    t_eq(bpe_byte_rune(' '), 0x120);
    t_eq(bpe_byte_rune('\n'), 0x10A);
    t_eq(bpe_byte_rune(0x7F), 0x121);
    t_eq(bpe_byte_rune(0xAD), 0x143);
}

T(bytes_tokenizer_keeps_every_byte)
{
    struct tokenizer *t = NULL;
    char all[256];
    for (int i = 0; i < 256; i++)
        all[i] = (char)i;
    t_ok(tokenizer_new_bytes(&t, &err), &err);
    t_eq(tokenizer_vocab(t), 257);
    t_eq(tokenizer_eot(t), 256);
    t_str(tokenizer_kind(t), "bytes");
    round_trip(t, all, sizeof all);
    round_trip(t, "", 0);
    tokenizer_free(t);
}

T(training_takes_the_commonest_pair_first)
{
    const char *text = "aaabdaaabac ab ab";
    struct tokenizer *t = train(text, strlen(text), 259);
    size_t n;
    /* "aa" occurs 4 times (overlaps count, as in the reference), "ab" 4 times: the lower pair of
     * ids wins. */
    t_eq(tokenizer_vocab(t), 259);
    t_str(tokenizer_kind(t), "bpe");
    t_true(memcmp(tokenizer_piece(t, 257, &n), "aa", 2) == 0 && n == 2);
    t_eq(tokenizer_eot(t), 0);
    t_true(tokenizer_piece(t, 259, &n) == NULL);
    t_true(tokenizer_piece(t, -1, &n) == NULL);
    tokenizer_free(t);
}

T(training_stops_when_the_text_has_no_more_pairs)
{
    struct tokenizer *t = train("ab ab", 5, 4096);
    t_true(tokenizer_vocab(t) < 262);
    tokenizer_free(t);
    t = train("", 0, 300);
    t_eq(tokenizer_vocab(t), 257);
    round_trip(t, "hello", 5);
    tokenizer_free(t);
    t_fails(tokenizer_train_bpe(&t, NULL, NULL, 0, 100, &err), &err, DS_ERANGE, "257");
}

/* The slow way: all words, all pairs, counted anew for every merge. */
struct naive_words {
    char word[400][16];
    int len[400], count[400], n;
};

static int collect_word(void *ctx, const char *s, size_t n, struct err *e)
{
    struct naive_words *w = ctx;
    (void)e;
    ck_assert(n < 16);
    for (int i = 0; i < w->n; i++)
        if ((size_t)w->len[i] == n && memcmp(w->word[i], s, n) == 0) {
            w->count[i]++;
            return 0;
        }
    ck_assert(w->n < 400);
    memcpy(w->word[w->n], s, n);
    w->len[w->n] = (int)n;
    w->count[w->n++] = 1;
    return 0;
}

static void naive_best(int32_t sym[400][16], const struct naive_words *w, int *a, int *b)
{
    static int count[400][400];
    int best = 0;
    memset(count, 0, sizeof count);
    for (int i = 0; i < w->n; i++)
        for (int k = 0; k + 1 < w->len[i]; k++)
            count[sym[i][k]][sym[i][k + 1]] += w->count[i];
    for (int x = 0; x < 400; x++)
        for (int y = 0; y < 400; y++)
            if (count[x][y] > best) {
                best = count[x][y];
                *a = x;
                *b = y;
            }
}

T(training_equals_counting_everything_anew)
{
    struct str text = {0};
    make_text(&text, 3000);
    struct tokenizer *t = train(text.p, text.len, 340);
    static struct naive_words w;
    static int32_t sym[400][16];
    t_ok(pretok_walk(&t->bpe->pre, text.p, text.len, collect_word, &w, &err), &err);
    for (int i = 0; i < w.n; i++)
        for (int k = 0; k < w.len[i]; k++)
            sym[i][k] = 1 + (unsigned char)w.word[i][k];
    t_true(t->bpe->merges > 50);
    for (size_t m = 0; m < t->bpe->merges; m++) {
        int a = 0, b = 0;
        naive_best(sym, &w, &a, &b);
        t_eq(t->bpe->merge[m].left, a);
        t_eq(t->bpe->merge[m].right, b);
        for (int i = 0; i < w.n; i++)
            for (int k = 0; k + 1 < w.len[i]; k++)
                if (sym[i][k] == a && sym[i][k + 1] == b) {
                    sym[i][k] = t->bpe->merge[m].id;
                    memmove(&sym[i][k + 1], &sym[i][k + 2],
                            (size_t)(w.len[i] - k - 2) * sizeof sym[i][0]);
                    w.len[i]--;
                }
    }
    tokenizer_free(t);
    str_release(&text);
}

T(training_is_deterministic_and_round_trips)
{
    struct str text = {0};
    make_text(&text, 200000);
    struct tokenizer *a = train(text.p, text.len, 300), *b = train(text.p, text.len, 300);
    t_true(tokenizer_hash(a) == tokenizer_hash(b));
    round_trip(a, text.p, text.len);
    round_trip(a, "\xff\xfe\x00 \xc3(\xed\xa0\x80\xf8", 10);
    struct tokenizer *c = train(text.p, text.len, 299);
    t_true(tokenizer_hash(a) != tokenizer_hash(c));
    tokenizer_free(a);
    tokenizer_free(b);
    tokenizer_free(c);
    str_release(&text);
}

/* Runs and checkpoints of earlier versions hold it: another value would refuse to resume them. */
T(the_fingerprint_is_that_of_earlier_versions)
{
    struct tokenizer *bytes, *bpe = train("low lower lowest slow slower", 28, 262);
    t_ok(tokenizer_new_bytes(&bytes, &err), &err);
    t_eq((int64_t)tokenizer_hash(bytes), 1020338020284659857);
    t_eq((int64_t)tokenizer_hash(bpe), 608696810445299571);
    tokenizer_free(bytes);
    tokenizer_free(bpe);
}

T(saved_and_loaded_it_gives_the_same_ids)
{
    struct str text = {0};
    char path[512], path2[600];
    make_text(&text, 100000);
    struct tokenizer *a = train(text.p, text.len, 500), *b = NULL, *c = NULL;
    snprintf(path, sizeof path, "%s/tokenizer.json", t_tmpdir());
    snprintf(path2, sizeof path2, "%s.copy.json", path);
    t_ok(tokenizer_save(a, path, &err), &err);
    t_ok(tokenizer_load(&b, path, &err), &err);
    t_true(tokenizer_hash(a) == tokenizer_hash(b));
    t_str(tokenizer_kind(b), "bpe");
    *strrchr(path, '/') = '\0';
    t_ok(tokenizer_load(&c, path, &err), &err);
    t_true(tokenizer_hash(a) == tokenizer_hash(c));
    struct ids x = {0}, y = {0};
    t_ok(tokenizer_encode(a, text.p, text.len, 0, &x, &err), &err);
    t_ok(tokenizer_encode(b, text.p, text.len, 0, &y, &err), &err);
    t_eq(x.n, y.n);
    t_true(memcmp(x.v, y.v, x.n * sizeof *x.v) == 0);
    t_ok(tokenizer_save(c, path2, &err), &err);
    tokenizer_free(a);
    tokenizer_free(b);
    tokenizer_free(c);
    ids_release(&x);
    ids_release(&y);
    str_release(&text);
}

T(the_bytes_tokenizer_survives_a_file)
{
    struct tokenizer *a = NULL, *b = NULL;
    char path[512];
    snprintf(path, sizeof path, "%s/tokenizer.json", t_tmpdir());
    t_ok(tokenizer_new_bytes(&a, &err), &err);
    t_ok(tokenizer_save(a, path, &err), &err);
    t_ok(tokenizer_load(&b, path, &err), &err);
    t_str(tokenizer_kind(b), "bytes");
    t_eq(tokenizer_eot(b), 256);
    round_trip(b, "any \xff text\n", 11);
    tokenizer_free(a);
    tokenizer_free(b);
}

T(special_text_is_plain_unless_asked)
{
    struct tokenizer *t = train("some text some text", 19, 270);
    const char *s = "a<|endoftext|>b";
    struct ids ids = {0};
    t_ok(tokenizer_encode(t, s, strlen(s), 0, &ids, &err), &err);
    for (size_t i = 0; i < ids.n; i++)
        t_true(ids.v[i] != 0);
    ids.n = 0;
    t_ok(tokenizer_encode(t, s, strlen(s), 1, &ids, &err), &err);
    t_eq(ids.n, 3);
    t_eq(ids.v[1], 0);
    ids_release(&ids);
    tokenizer_free(t);
}

static const char model_head[] = "{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":"
                                 "false},\"model\":{\"type\":\"BPE\",\"vocab\":";

static int load_text(struct tokenizer **t, const char *fmt, const char *a, const char *b)
{
    struct str s = {0};
    str_addf(&s, "%s%s%s%s", fmt, a, b ? "," : "", b ? b : "");
    err = (struct err){0};
    int rc = tokenizer_load_json(t, s.p, s.len, "tok.json", &err);
    str_release(&s);
    return rc;
}

T(merges_are_read_as_strings_and_as_pairs)
{
    struct tokenizer *t = NULL;
    struct ids ids = {0};
    t_ok(load_text(&t, model_head, "{\"a\":0,\"b\":1,\"ab\":2,\"abab\":3}",
                   "\"merges\":[\"a b\",[\"ab\",\"ab\"]]}}"),
         &err);
    t_ok(tokenizer_encode(t, "ababab", 6, 0, &ids, &err), &err);
    t_eq(ids.n, 2);
    t_eq(ids.v[0], 3);
    t_eq(ids.v[1], 2);
    t_ok(tokenizer_encode(t, "abc", 3, 0, &ids, &err), &err); /* it lacks the last byte */
    t_eq(ids.n, 3);
    t_eq(tokenizer_dropped_bytes(t), 1);
    t_eq(tokenizer_eot(t), -1);
    ids_release(&ids);
    tokenizer_free(t);
}

T(longest_added_token_wins)
{
    struct tokenizer *t = NULL;
    struct ids ids = {0};
    t_ok(load_text(
             &t, model_head, "{\"a\":0,\"<\":4,\"x\":5}",
             "\"merges\":[]},\"added_tokens\":[{\"id\":1,\"content\":\"<x\",\"special\":false},"
             "{\"id\":2,\"content\":\"<xa\",\"special\":false},{\"id\":3,\"content\":\"<xaa\","
             "\"special\":true}]}"),
         &err);
    t_ok(tokenizer_encode(t, "<xaa<x<", 7, 0, &ids, &err), &err);
    t_eq(ids.n, 4);
    t_eq(ids.v[0], 2);
    t_eq(ids.v[1], 0);
    t_eq(ids.v[2], 1);
    t_eq(ids.v[3], 4);
    ids.n = 0;
    t_ok(tokenizer_encode(t, "<xaa", 4, 1, &ids, &err), &err);
    t_eq(ids.n, 1);
    t_eq(ids.v[0], 3);
    ids_release(&ids);
    tokenizer_free(t);
}

static const struct {
    const char *vocab, *rest, *part;
} bad[] = {
    {"{\"a\":0}", "\"merges\":[\"a b\"]}}", "merge 0"},
    {"{\"a\":0}", "\"merges\":[\"ab\"]}}", "merge 0"},
    {"{\"a\":0}", "\"merges\":[7]}}", "merge 0"},
    {"{\"a\":0,\"b\":0}", "\"merges\":[]}}", "id 0"},
    {"{\"a\":-1}", "\"merges\":[]}}", "id must be"},
    {"{\"a\":2147483648}", "\"merges\":[]}}", "id must be"},
    {"{\"a\":\"x\"}", "\"merges\":[]}}", "id must be"},
    {"{}", "\"merges\":[]}}", "missing vocab"},
    {"[1]", "\"merges\":[]}}", "missing vocab"},
    {"{\"a\":0}", "\"merges\":[],\"byte_fallback\":true}}", "byte_fallback"},
    {"{\"a\":0}", "\"merges\":[],\"end_of_word_suffix\":\"</w>\"}}", "end_of_word_suffix"},
    {"{\"a\":0}", "\"merges\":[]},\"added_tokens\":[{\"id\":0,\"content\":\"b\"}]}", "id 0"},
    {"{\"a\":0}", "\"merges\":[]},\"added_tokens\":[{\"id\":1,\"content\":\"\"}]}", "empty"},
    {"{\"a\":0}", "\"merges\":[]},\"normalizer\":{\"type\":\"Nmt\"}}", "Nmt"},
    {"{\"a\":0}", "\"merges\":[],\"max_chars\":7}}", "max_chars"},
    {"{\"a\":0}", "\"merges\":[]},\"post_processor\":{\"type\":\"BertProcessing\"}}",
     "BertProcessing"},
    {"{\"a\":0}", "\"merges\":[]},\"decoder\":{\"type\":\"CTC\"}}", "CTC"},
    {"{\"a\":0}",
     "\"merges\":[]},\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":"
     "[{\"SpecialToken\":{\"id\":\"a\"}},{\"SpecialToken\":{\"id\":\"a\"}},"
     "{\"Sequence\":{\"id\":\"A\"}}]}}",
     "more than one token before"},
    {"{\"\xC3\xA9\":0,\"a\":1,\"\xC3\xA9"
     "a\":2}",
     "\"merges\":[\"\xC3\xA9 a\"]},\"added_tokens\":[{\"id\":0,\"content\":\"\xC3\xA9\"}]}",
     "token 0"},
};

T(bad_files_are_refused_with_a_reason)
{
    struct tokenizer *t = NULL;
    for (size_t i = 0; i < DS_LEN(bad); i++) {
        int rc = load_text(&t, model_head, bad[i].vocab, bad[i].rest);
        t_truef(rc < 0 && strstr(err.text, bad[i].part), "case %zu: %d %s", i, rc, err.text);
        t_true(t == NULL && strstr(err.text, "tok.json") != NULL);
    }
    t_fails(load_text(&t, "[1]", "", NULL), &err, DS_EFORMAT, "tokenizer model");
    t_fails(load_text(&t, "{\"model\":{\"type\":\"WordPiece\"}}", "", NULL), &err, DS_EFORMAT,
            "WordPiece");
    t_fails(load_text(&t,
                      "{\"pre_tokenizer\":{\"type\":\"Metaspace\"},\"model\":{\"type\":\"BPE\","
                      "\"vocab\":{\"a\":0}}}",
                      "", NULL),
            &err, DS_EFORMAT, "Metaspace");
    t_fails(load_text(&t, "{\"a\":", "", NULL), &err, DS_EFORMAT, "tok.json");
    t_fails(tokenizer_load(&t, t_tmpdir(), &err), &err, DS_ENOTFOUND, "tokenizer.json");
}

T(a_hostile_pattern_is_stopped)
{
    struct tokenizer *t = NULL;
    struct ids ids = {0};
    t_ok(load_text(
             &t,
             "{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\","
             "\"pattern\":{\"Regex\":"
             "\"(a+)+$\"},\"behavior\":\"Isolated\"},{\"type\":\"ByteLevel\",\"use_regex\":false,"
             "\"add_prefix_space\":false}]},\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1}"
             ",\"merges\":[]}}",
             "", NULL),
         &err);
    const char *s = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab";
    double start = clock_mono();
    t_fails(tokenizer_encode(t, s, strlen(s), 0, &ids, &err), &err, DS_ERANGE, "matching limits");
    t_true(clock_mono() - start < 2);
    ids_release(&ids);
    tokenizer_free(t);
}

/* The reference: quadratic, by the letter. */
static size_t encode_slowly(const struct bpe *b, const char *s, size_t n, int32_t *id)
{
    for (size_t i = 0; i < n; i++)
        id[i] = b->byte_id[(unsigned char)s[i]];
    for (;;) {
        const struct bpe_slot *best = NULL;
        size_t at = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            const struct bpe_slot *p = bpe_find(b, id[i], id[i + 1]);
            if (p && (!best || p->rank < best->rank)) {
                best = p;
                at = i;
            }
        }
        if (!best)
            return n;
        id[at] = best->id;
        memmove(id + at + 1, id + at + 2, (n - at - 2) * sizeof *id);
        n--;
    }
}

T(short_and_long_words_equal_the_reference)
{
    struct rng r;
    rng_init(&r, 9, RNG_TEST, 0, 0);
    struct tokenizer *t = NULL;
    /* Many overlapping ways, and merges out of order: "ab" made twice, a late merge of early
     * tokens. */
    t_ok(load_text(&t, model_head,
                   "{\"a\":0,\"b\":1,\"c\":2,\"abc\":3,\"bc\":4,\"ab\":5,\"aa\":6,\"aaa\":7,"
                   "\"aaaa\":8,\"aab\":9,\"ca\":10,\"cab\":11}",
                   "\"merges\":[\"ab c\",\"b c\",\"a ab\",\"a b\",\"a a\",\"aa a\",\"aa aa\",\"a "
                   "aaa\",\"a bc\",\"c a\",\"ca b\",\"aa b\"]}}"),
         &err);
    for (int trial = 0; trial < 300; trial++) {
        char s[256];
        int32_t want[256];
        size_t n = 1 + rng_below(&r, 256);
        uint32_t letters = 1 + rng_below(&r, 3);
        for (size_t i = 0; i < n; i++)
            s[i] = (char)('a' + rng_below(&r, letters));
        size_t count = encode_slowly(t->bpe, s, n, want);
        struct ids got = {0}, got2 = {0};
        t_ok(bpe_encode_piece(t->bpe, s, n, &got, &err), &err);
        t_ok(bpe_encode_long(t->bpe, s, n, &got2, &err), &err);
        t_eq(got.n, count);
        t_eq(got2.n, count);
        t_true(memcmp(got.v, want, count * sizeof *want) == 0);
        t_true(memcmp(got2.v, want, count * sizeof *want) == 0);
        ids_release(&got);
        ids_release(&got2);
    }
    tokenizer_free(t);
}

T(a_long_run_of_one_letter_takes_no_quadratic_time)
{
    t_skip_if_emulated("a limit of seconds says nothing");
    struct str text = {0};
    struct ids ids = {0};
    size_t n = 2 << 20; /* squared, minutes */
    make_text(&text, 50000);
    for (int i = 0; i < 4000; i++)
        str_add_char(&text, 'a');
    struct tokenizer *t = train(text.p, text.len, 500);
    static const char fill[] = {'a', ' ', '!', '\n', '\xff'};
    for (size_t f = 0; f < sizeof fill; f++) {
        char *s = mem_alloc(n, 1);
        memset(s, fill[f], n);
        double start = clock_mono();
        ids.n = 0;
        t_ok(tokenizer_encode(t, s, n, 0, &ids, &err), &err);
        t_truef(clock_mono() - start < 10, "%g s for 0x%02X", clock_mono() - start,
                (unsigned)(unsigned char)fill[f]);
        mem_free(s);
    }
    ids_release(&ids);
    tokenizer_free(t);
    str_release(&text);
}

T(training_on_a_long_run_ends)
{
    size_t n = 1 << 20;
    char *s = mem_alloc(n, 1);
    struct tokenizer *t = NULL;
    memset(s, 'a', n);
    t_ok(tokenizer_train_bpe(&t, &(const char *){s}, &n, 1, 600, &err), &err);
    t_true(tokenizer_vocab(t) > 257 && tokenizer_vocab(t) <= 600);
    tokenizer_free(t);
    mem_free(s);
}

T(every_failed_allocation_is_an_error)
{
    static const char json[] = "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,"
                               "\"ab\":2},\"merges\":[\"a b\"]}}";
    const char *text = "one two three two three three";
    size_t n = strlen(text);
    int failed = 0, is_done = 0;
    for (uint64_t k = 1; !is_done && k < 5000; k++) {
        struct tokenizer *t = NULL, *u = NULL;
        struct ids ids = {0};
        uint64_t last = mem_calls() + k;
        err = (struct err){0};
        mem_fail_at(last, 0);
        int rc = tokenizer_train_bpe(&t, &text, &n, 1, 262, &err);
        if (rc >= 0)
            rc = tokenizer_encode(t, text, n, 1, &ids, &err);
        if (rc >= 0)
            rc = bpe_encode_long(t->bpe, text, n, &ids, &err);
        if (rc >= 0)
            rc = tokenizer_load_json(&u, json, sizeof json - 1, "tok.json", &err);
        is_done = mem_calls() < last; /* some that failed can be done without */
        mem_fail_at(0, 0);
        t_truef(rc >= 0 || (rc == DS_EMEM && strstr(err.text, "memory")), "call %d: %d %s", (int)k,
                rc, err.text);
        failed += rc < 0;
        ids_release(&ids);
        tokenizer_free(t);
        tokenizer_free(u);
    }
    t_true(is_done && failed > 40);
}
