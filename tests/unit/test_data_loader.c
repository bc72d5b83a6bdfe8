/* Packing: windows, shifts, document borders, order, and the true entropy that goes with tokens. */
#include "t.h"

#include "base/fs.h"
#include "base/mem.h"
#include "data/corpus.h"
#include "data/loader.h"
#include "data/tokenizer.h"

static struct err err;

struct setup {
    struct corpus *c;
    struct tokenizer *t;
};

static struct setup synth(int64_t docs, int bpe)
{
    struct setup s = {0};
    struct corpus_options o = {.path = "synth", .max_docs = docs, .seed = 9};
    t_ok(corpus_open(&s.c, &o, &err), &err);
    if (!bpe) {
        t_ok(tokenizer_new_bytes(&s.t, &err), &err);
        return s;
    }
    const char **text = mem_alloc((size_t)docs, sizeof *text);
    size_t *len = mem_alloc((size_t)docs, sizeof *len);
    for (size_t i = 0; i < (size_t)docs; i++) {
        text[i] = corpus_at(s.c, i).text;
        len[i] = corpus_at(s.c, i).len;
    }
    t_ok(tokenizer_train_bpe(&s.t, text, len, (size_t)docs, 400, &err), &err);
    mem_free(text);
    mem_free(len);
    return s;
}

static void release(struct setup *s)
{
    tokenizer_free(s->t);
    corpus_close(s->c);
}

enum { SEQ = 64 };

/* SentencePiece's vocabularies put a token before every text: models of theirs have never seen a text without. */
T(a_document_begins_with_the_token_that_the_tokenizer_puts_before_texts)
{
    static const char json[] = "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"<s>\":0,\"</"
                               "s>\":1,\"a\":2,\"b\":3},\"merges\":[]},"
                               "\"added_tokens\":[{\"id\":0,\"content\":\"<s>\",\"special\":true},"
                               "{\"id\":1,\"content\":\"</s>\",\"special\":true}],"
                               "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{"
                               "\"SpecialToken\":{\"id\":\"<s>\","
                               "\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],"
                               "\"pair\":[],\"special_tokens\":{\"<s>\":"
                               "{\"id\":\"<s>\",\"ids\":[0],\"tokens\":[\"<s>\"]}}}}";
    static const int32_t stream[] = {0, 2, 3, 1, 0, 3, 2, 1, 0, 2};
    char path[600], text[600];
    struct corpus_options o = {.path = text, .format = "lines"};
    struct setup s = {0};
    struct loader *l = NULL;
    struct loader_pos pos = {0};
    int32_t in[9], target[9], first[9];
    const char *dir = t_tmpdir();
    snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    snprintf(text, sizeof text, "%s/text.txt", dir);
    t_ok(fs_write_file(path, json, sizeof json - 1, &err), &err);
    t_ok(fs_write_file(text, "ab\nba\nab\n", 9, &err), &err);
    t_ok(tokenizer_load(&s.t, path, &err), &err);
    t_ok(corpus_open(&s.c, &o, &err), &err);
    t_ok(loader_open(&l, s.c, s.t, &(struct loader_options){0, 0, 9, 4, 1}, &err), &err);
    loader_next(l, &pos, 1, in, target, first, NULL);
    for (int i = 0; i < 9; i++) {
        t_eq(in[i], stream[i]);
        t_eq(target[i],
             stream[i + 1] == 0 ? -1 : stream[i + 1]); /* a beginning-of-text token is not text */
        t_eq(first[i], i / 4 * 4);
    }
    t_eq(loader_target_bytes(l, stream, 10), 5);
    loader_close(l);
    release(&s);
}

/* Three times sixteen bytes, each with a blank before it that is nobody's text. */
T(a_space_added_by_the_tokenizer_is_not_text)
{
    struct corpus_options o = {.format = "lines"};
    struct setup s = {0};
    struct loader *l = NULL;
    struct loader_pos pos = {0};
    int32_t in[64], target[64];
    char path[600];
    t_ok(tokenizer_load(&s.t, t_shared("weights/TinyStories-656K-f32/tokenizer.json"), &err), &err);
    snprintf(path, sizeof path, "%s/text.txt", t_tmpdir());
    t_ok(fs_write_file(path, "Once upon a time\nOnce upon a time\nOnce upon a time\n", 51, &err),
         &err);
    o.path = path;
    t_ok(corpus_open(&s.c, &o, &err), &err);
    t_ok(loader_open(&l, s.c, s.t, &(struct loader_options){0, 0, 8, 2048, 1}, &err), &err);
    int n = (int)loader_tokens(l) - 1;
    loader_close(l);
    t_true(n > 8 && n <= 64);
    t_ok(loader_open(&l, s.c, s.t, &(struct loader_options){0, 0, n, 2048, 1}, &err), &err);
    loader_next(l, &pos, 1, in, target, NULL, NULL);
    t_eq(loader_target_bytes(l, target, (size_t)n), 48);
    loader_close(l);
    release(&s);
}

T(windows_tile_the_stream_in_order_for_validation)
{
    struct setup s = synth(40, 1);
    struct loader *l = NULL;
    struct ids all = {0};
    t_ok(loader_open(&l, s.c, s.t, &(struct loader_options){1, 0.5, SEQ, 400, 1}, &err), &err);
    uint64_t bytes = 0;
    for (size_t i = 0; i < corpus_count(s.c); i++)
        if (corpus_is_val(s.c, i, 0.5)) {
            struct document d = corpus_at(s.c, i);
            t_ok(tokenizer_encode(s.t, d.text, d.len, 0, &all, &err), &err);
            t_ok(ids_add(&all, tokenizer_eot(s.t)), &err);
            bytes += d.len;
        }
    t_eq(loader_tokens(l), all.n);
    t_eq(loader_bytes(l), bytes);
    t_eq(loader_windows(l), (all.n - 1) / SEQ);
    struct loader_pos pos = {0};
    for (uint64_t w = 0; w < loader_windows(l); w++) {
        int32_t in[SEQ], out[SEQ], start[SEQ];
        loader_next(l, &pos, 1, in, out, start, NULL);
        for (int t = 0; t < SEQ; t++) {
            t_eq(in[t], all.v[w * SEQ + (uint64_t)t]);
            t_eq(out[t], all.v[w * SEQ + (uint64_t)t + 1]);
            /* A document begins after an end-of-text token, and at the start of the window. */
            int want = t == 0 ? 0 : in[t - 1] == tokenizer_eot(s.t) ? t : start[t - 1];
            t_eq(start[t], want);
        }
    }
    t_eq(pos.epoch, 0);
    t_eq(pos.window, loader_windows(l));
    ids_release(&all);
    loader_close(l);
    release(&s);
}

static void order_of(struct loader *l, uint64_t epoch, uint64_t *hash, uint64_t n)
{
    struct loader_pos pos = {.epoch = epoch};
    for (uint64_t w = 0; w < n; w++) {
        int32_t in[SEQ], out[SEQ];
        loader_next(l, &pos, 1, in, out, NULL, NULL);
        hash[w] = 0;
        for (int t = 0; t < SEQ; t++)
            hash[w] = hash[w] * 1000003 + (uint64_t)in[t];
    }
}

static int by_value(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

T(every_epoch_is_another_permutation)
{
    struct setup s = synth(60, 1);
    struct loader *l = NULL, *other = NULL;
    t_ok(loader_open(&l, s.c, s.t, &(struct loader_options){0, 0.1, SEQ, 400, 1}, &err), &err);
    t_ok(loader_open(&other, s.c, s.t, &(struct loader_options){0, 0.1, SEQ, 400, 2}, &err), &err);
    uint64_t n = loader_windows(l), a[2000], b[2000], c[2000];
    ck_assert(n > 50 && n <= 2000);
    order_of(l, 0, a, n);
    order_of(l, 1, b, n);
    order_of(other, 0, c, n);
    t_true(memcmp(a, b, n * sizeof *a) != 0);
    t_true(memcmp(a, c, n * sizeof *a) != 0);
    qsort(a, n, sizeof *a, by_value);
    qsort(b, n, sizeof *b, by_value);
    qsort(c, n, sizeof *c, by_value);
    t_true(memcmp(a, b, n * sizeof *a) == 0);
    t_true(memcmp(a, c, n * sizeof *a) == 0);
    loader_close(l);
    loader_close(other);
    release(&s);
}

T(a_position_is_all_that_resuming_needs)
{
    struct setup s = synth(30, 1);
    struct loader *l = NULL, *again = NULL;
    t_ok(loader_open(&l, s.c, s.t, &(struct loader_options){0, 0.1, SEQ, 400, 1}, &err), &err);
    t_ok(loader_open(&again, s.c, s.t, &(struct loader_options){0, 0.1, SEQ, 400, 1}, &err), &err);
    struct loader_pos pos = {0}, saved = {0};
    int32_t in[4 * SEQ], out[4 * SEQ], start[4 * SEQ], in2[4 * SEQ], out2[4 * SEQ], start2[4 * SEQ];
    int steps = (int)(loader_windows(l) / 4) + 3; /* across the end of an epoch */
    for (int i = 0; i < steps; i++) {
        saved = pos;
        loader_next(l, &pos, 4, in, out, start, NULL);
    }
    t_eq(pos.epoch, 1);
    loader_next(again, &saved, 4, in2, out2, start2, NULL);
    t_true(memcmp(in, in2, sizeof in) == 0 && memcmp(out, out2, sizeof out) == 0);
    t_true(memcmp(start, start2, sizeof start) == 0);
    t_eq(saved.window, pos.window);
    loader_close(l);
    loader_close(again);
    release(&s);
}

T(true_entropy_sums_the_bytes_of_the_target)
{
    for (int bpe = 0; bpe < 2; bpe++) {
        struct setup s = synth(40, bpe);
        struct loader *l = NULL;
        t_ok(loader_open(&l, s.c, s.t, &(struct loader_options){1, 0.5, SEQ, 400, 1}, &err), &err);
        double all = 0, got = 0;
        int first = 1;
        for (size_t i = 0; i < corpus_count(s.c); i++) {
            struct document d = corpus_at(s.c, i);
            for (size_t k = 0; corpus_is_val(s.c, i, 0.5) && k <= d.len; k++)
                all += (double)d.bits[k];
        }
        struct loader_pos pos = {0};
        uint64_t bytes = 0, n = loader_windows(l);
        for (uint64_t w = 0; w < n; w++) {
            int32_t in[SEQ], out[SEQ];
            float h[SEQ];
            loader_next(l, &pos, 1, in, out, NULL, h);
            for (int t = 0; t < SEQ; t++) {
                t_true(h[t] >= 0);
                got += (double)h[t];
            }
            bytes += loader_target_bytes(l, out, SEQ);
            first = 0;
        }
        t_true(!first);
        /* All but the very first token and what the last, cut window would have held. */
        t_true(got <= all + 1e-3);
        t_near(got, all, 40);
        t_true(bytes <= loader_bytes(l) && bytes + SEQ * 40 > loader_bytes(l));
        loader_close(l);
        release(&s);
    }
}

T(unknown_entropy_is_not_a_number)
{
    struct corpus *c = NULL;
    struct tokenizer *t = NULL;
    struct loader *l = NULL;
    char path[512];
    snprintf(path, sizeof path, "%s/a.txt", t_tmpdir());
    FILE *f = fopen(path, "w");
    fputs("hello world\n\nsecond document", f);
    fclose(f);
    struct corpus_options o = {.path = path};
    t_ok(corpus_open(&c, &o, &err), &err);
    t_ok(tokenizer_new_bytes(&t, &err), &err);
    t_ok(loader_open(&l, c, t, &(struct loader_options){0, 0, 8, 257, 1}, &err), &err);
    struct loader_pos pos = {0};
    int32_t in[8], out[8];
    float h[8];
    loader_next(l, &pos, 1, in, out, NULL, h);
    t_true(isnan(h[0]) && isnan(h[7]));
    loader_close(l);
    t_fails(loader_open(&l, c, t, &(struct loader_options){0, 0, 64, 257, 1}, &err), &err,
            DS_ERANGE, "65");
    t_true(strstr(err.text, "28 tokens") != NULL);
    t_fails(loader_open(&l, c, t, &(struct loader_options){0, 0, 8, 100, 1}, &err), &err, DS_ERANGE,
            "vocabulary of 100");
    t_fails(loader_open(&l, c, t, &(struct loader_options){1, 0, 8, 257, 1}, &err), &err, DS_ERANGE,
            "validation");
    t_fails(loader_open(&l, c, t, &(struct loader_options){0, 0, 0, 257, 1}, &err), &err, DS_ERANGE,
            "0 tokens");
    t_fails(loader_open(&l, c, t, &(struct loader_options){0, 0.9, 8, 257, 1}, &err), &err,
            DS_ERANGE, "0.9");
    tokenizer_free(t);
    corpus_close(c);
}

T(every_failed_allocation_of_a_loader_is_an_error)
{
    struct setup s = synth(20, 0);
    for (int is_val = 0; is_val < 2; is_val++) {
        struct loader_options o = {is_val, is_val ? 0.5 : 0, SEQ, 257, 1, 0};
        int failed = 0, is_done = 0;
        for (uint64_t k = 1; !is_done && k < 3000; k++) {
            struct loader *l = NULL;
            uint64_t last = mem_calls() + k;
            err = (struct err){0};
            mem_fail_at(last, 0);
            int rc = loader_open(&l, s.c, s.t, &o, &err);
            is_done = mem_calls() < last;
            mem_fail_at(0, 0);
            failed += rc < 0;
            t_truef(rc >= 0 || (rc == DS_EMEM && !l && strstr(err.text, "memory")),
                    "call %d: %d %s", (int)k, rc, err.text);
            if (rc >= 0)
                loader_close(l);
        }
        t_true(is_done && failed > 3);
    }
    release(&s);
}
