/* Documents of known required depth: a solver that reads nothing but the tokens' text recomputes
 * every answer, depth, class and entropy; then statistics, windows and masks. */
#include <math.h>

#include "t.h"

#include "base/fs.h"
#include "base/map.h"
#include "base/mem.h"
#include "data/loader.h"
#include "data/token_class.h"
#include "training/options.h"
#include "training/texts.h"

static struct err err;

struct setup {
    struct data_options o;
    struct corpus *c;
    struct tokenizer *t;
};

/* `keys` of hops, separated by spaces. */
static struct setup hops(const char *keys, int64_t docs)
{
    struct setup s = {0};
    struct config given = {0};
    char word[64];
    t_ok(opt_defaults(&data_group, &s.o, &err), &err);
    t_ok(opt_defaults(&hops_group, &s.o.hops, &err), &err);
    mem_free(s.o.path);
    s.o.path = mem_strdup("hops");
    s.o.docs = docs;
    for (int used = 0; sscanf(keys, " %63s%n", word, &used) == 1; keys += used)
        t_ok(config_override(&given, word, "test", &err), &err);
    t_ok(config_apply(&given, &hops_group, &s.o.hops, &err), &err);
    config_release(&given);
    t_ok(texts_open(&s.c, &s.o, &err), &err);
    t_ok(texts_tokenizer(&s.t, s.c, &s.o, 300, &err), &err);
    return s;
}

static void release(struct setup *s)
{
    tokenizer_free(s->t);
    corpus_close(s->c);
    opt_release(&data_group, &s->o);
}

/* ---- the solver ---- */

enum { NODES = 64, RELATIONS = 8 };

struct solver {
    const struct hops_options *o;
    int to[RELATIONS][NODES], left[RELATIONS], edges; /* to: -1 = not yet seen */
    int from, k, ops, op[16], queries;                /* the open query */
};

static void solver_reset(struct solver *s, const struct hops_options *o)
{
    memset(s, 0, sizeof *s);
    s->o = o;
    for (int r = 0; r < RELATIONS; r++) {
        s->left[r] = (int)o->n;
        for (int i = 0; i < NODES; i++)
            s->to[r][i] = -1;
    }
}

/* -sum p ln p over all edges that may come next. */
static double edge_entropy(const struct solver *s)
{
    int n = (int)s->o->n, all = n * (int)s->o->relations - s->edges;
    int next = s->edges / n, is_random = s->o->order == HOPS_RANDOM;
    double sum = 0;
    for (int r = 0; r < s->o->relations; r++)
        for (int from = 0; from < n; from++) {
            int may_come = is_random || (r == next && from == s->edges % n);
            if (s->to[r][from] >= 0 || !may_come)
                continue;
            double p = 1.0 / s->left[r] / (is_random ? all : 1);
            sum -= s->left[r] * p * log(p); /* each destination that is left */
        }
    return sum;
}

static double query_entropy(const struct solver *s)
{
    double sum = 0, starts = (double)s->o->n, ks = s->o->only ? 1 : (double)s->o->k;
    if (s->o->operators == HOPS_STEP)
        return log(starts * ks);
    for (int k = 1; k <= s->o->k; k++) {
        double strings = pow((double)s->o->relations, k), p = 1 / (starts * ks * strings);
        if (!s->o->only || k == s->o->only)
            sum -= starts * strings * p * log(p);
    }
    return sum;
}

struct expected {
    int class_of, needed;
    double entropy;
};

/* What the next word is, and takes it. */
static struct expected solve(struct solver *s, const char *w, size_t len)
{
    char text[40] = "", op, end;
    int from, to, k;
    struct expected x = {CLASS_QUERY, 0, 0};
    t_true(len < sizeof text);
    memcpy(text, w, len);
    if (sscanf(text, "%c%d>%d%c", &op, &from, &to, &end) == 4 && end == ';') {
        int r = op - 'A';
        x.class_of = CLASS_EDGE;
        x.entropy = edge_entropy(s);
        t_true(r >= 0 && r < s->o->relations && from < s->o->n && to < s->o->n);
        t_true(s->to[r][from] < 0 && s->queries == 0);
        for (int i = 0; i < s->o->n; i++)
            t_true(s->to[r][i] != to); /* a permutation */
        s->to[r][from] = to;
        s->left[r]--;
        s->edges++;
    } else if (sscanf(text, "=%d%c", &to, &end) == 2 && end == '.') {
        int at = s->from;
        for (int i = 0; i < s->ops; i++)
            at = s->to[s->op[i]][at];
        t_eq(s->ops, s->k);
        t_eq(to, at);
        x = (struct expected){CLASS_ANSWER, s->k, 0};
    } else if (sscanf(text, "+%c%c", &op, &end) == 2 && end == ',') {
        s->op[s->ops++] = op - 'A';
        x.entropy = log((double)s->o->relations);
    } else if (sscanf(text, "?%d*%d%c", &from, &k, &end) == 3 && end == ':') {
        s->from = from, s->k = k, s->ops = 0, s->queries++;
        x.entropy = query_entropy(s);
    } else {
        t_truef(sscanf(text, "?%d%n", &from, &k) == 1 && text[len - 1] == ':', "%s", text);
        s->from = from, s->queries++;
        s->ops = s->k = (int)len - k - 1;
        for (int i = 0; i < s->ops; i++)
            s->op[i] = text[k + i] - 'A';
        x.entropy = query_entropy(s);
    }
    t_true(s->k <= s->o->k && (!s->o->only || s->queries == 0 || s->k == s->o->only));
    t_true(s->queries == 0 || s->edges == s->o->n * s->o->relations);
    return x;
}

static struct loader *opened(const struct setup *s, int is_val, int seq, int answers)
{
    struct loader *l = NULL;
    struct loader_options o = {is_val, 0.2, seq, tokenizer_vocab(s->t), 1, answers};
    t_ok(loader_open(&l, s->c, s->t, &o, &err), &err);
    return l;
}

enum { SEQ_MAX = 1200 };

struct rows {
    int32_t input[SEQ_MAX], target[SEQ_MAX], start[SEQ_MAX], hidden[SEQ_MAX];
    float entropy[SEQ_MAX], needed[SEQ_MAX];
    uint8_t class_of[SEQ_MAX], target_class[SEQ_MAX];
};

static void read_window(struct loader *l, struct loader_pos *pos, struct rows *x)
{
    loader_read(l, pos, 1,
                &(struct loader_rows){.input = x->input,
                                      .target = x->target,
                                      .doc_start = x->start,
                                      .private_start = x->hidden,
                                      .true_entropy = x->entropy,
                                      .needed = x->needed,
                                      .class_of = x->class_of,
                                      .target_class = x->target_class});
}

/* Row t predicts target[t]: its facts, and those of the row's own token. */
static void check_row(const struct setup *s, struct solver *v, const struct rows *x, int t,
                      int *documents)
{
    int32_t end = tokenizer_eot(s->t), id = x->target[t];
    if (id < 0) /* padding, or the end of all */
        return;
    if (x->input[t] == end)
        solver_reset(v, &s->o.hops);
    if (id == end) { /* after the last answer nothing else can come */
        t_eq(v->queries, s->o.hops.queries);
        t_near(x->entropy[t], 0, 0);
        t_near(x->needed[t], 0, 0);
        (*documents)++;
        return;
    }
    size_t len;
    const char *w = tokenizer_piece(s->t, id, &len);
    if (x->target_class[t] == CLASS_FILLER) {
        t_near(x->needed[t], 0, 0);
        t_true(x->entropy[t] >= 0);
        return;
    }
    struct expected want = solve(v, w, len);
    t_eq(x->target_class[t], want.class_of);
    t_near(x->needed[t], want.needed, 0);
    t_truef(fabs((double)x->entropy[t] - want.entropy) < 1e-5, "%.*s: entropy %g, want %g",
            (int)len, w, (double)x->entropy[t], want.entropy);
}

/* Every query and its answer is one span, unless they see one another. */
static void check_spans(const struct setup *s, const struct rows *x, int seq)
{
    for (int t = 0; t < seq; t++) {
        size_t len;
        const char *w = tokenizer_piece(s->t, x->input[t], &len);
        int is_query = x->class_of[t] == CLASS_QUERY || x->class_of[t] == CLASS_ANSWER;
        int is_first = is_query && w[0] == '?';
        int want = !is_query || !s->o.hops.isolate ? -1 : is_first ? t : x->hidden[t - 1];
        t_eq(x->hidden[t], want);
    }
}

static void check_options(const char *keys, int seq)
{
    struct setup s = hops(keys, 60);
    for (int is_val = 0; is_val < 2; is_val++) {
        struct loader *l = opened(&s, is_val, seq, 0);
        struct loader_pos pos = {0};
        static struct rows x;
        int documents = 0;
        for (uint64_t w = 0; w < loader_windows(l); w++) {
            struct solver v;
            solver_reset(&v, &s.o.hops);
            read_window(l, &pos, &x);
            /* a window begins with a document: its first token is the target of no row of it */
            size_t len;
            const char *first = tokenizer_piece(s.t, x.input[0], &len);
            t_eq(x.class_of[0], CLASS_EDGE);
            solve(&v, first, len);
            for (int t = 0; t < seq; t++)
                check_row(&s, &v, &x, t, &documents);
            check_spans(&s, &x, seq);
        }
        t_truef(documents >= (is_val ? 5 : 35), "%s: %d documents", keys, documents);
        loader_close(l);
    }
    release(&s);
}

T(a_solver_of_the_text_finds_every_answer_depth_class_and_entropy)
{
    check_options("", 29);
    check_options("hops.queries=5 hops.order=random", 50); /* two documents and padding */
    check_options("hops.operators=step hops.k=6 hops.n=9 hops.relations=3", 120);
    check_options("hops.only=3 hops.isolate=false", 64);
    check_options("hops.only=2 hops.operators=step hops.queries=1 hops.relations=1", 20);
    check_options("hops.filler=40 hops.queries=3 hops.order=random", 400);
}

T(padding_belongs_to_no_document)
{
    struct setup s = hops("hops.operators=step", 60);
    struct loader *l = opened(&s, 0, 80, 0);
    struct loader_pos pos = {0};
    static struct rows x;
    int padded = 0;
    for (uint64_t w = 0; w < loader_windows(l); w++) {
        read_window(l, &pos, &x);
        int end = 80, eot = tokenizer_eot(s.t); /* a document ends with the token that pads */
        while (end > 1 && x.input[end - 2] == eot)
            end--;
        for (int t = 0; t < 80; t++)
            t_eq(x.start[t], t < end ? 0 : end);
        padded += end < 80;
    }
    t_true(padded > 0);
    loader_close(l);
    release(&s);
}

T(words_are_the_vocabulary_and_survive_a_file)
{
    static const char *const keys[] = {"", "hops.operators=step hops.k=5", "hops.filler=30"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        struct setup s = hops(keys[i], 40);
        struct tokenizer *again = NULL;
        char path[600];
        snprintf(path, sizeof path, "%s/tokenizer.json", t_tmpdir());
        t_ok(tokenizer_save(s.t, path, &err), &err);
        t_ok(tokenizer_load(&again, path, &err), &err);
        t_eq(tokenizer_vocab(again), tokenizer_vocab(s.t));
        int64_t words = hops_words(&s.o.hops), first = tokenizer_vocab(s.t) - words;
        t_truef(i == 2 ? first == 300 : first == 1, "%s: %lld", keys[i], (long long)first);
        struct str w = {0};
        for (int64_t k = 0; k < words; k++) {
            struct ids ids = {0};
            str_reset(&w);
            hops_word(&s.o.hops, k, &w);
            t_ok(tokenizer_encode(again, w.p, w.len, 0, &ids, &err), &err);
            t_true(ids.n == 1 && ids.v[0] == first + k);
            ids_release(&ids);
        }
        for (size_t d = 0; d < corpus_count(s.c); d++) {
            struct document doc = corpus_at(s.c, d);
            struct ids a = {0}, b = {0};
            t_ok(tokenizer_encode(s.t, doc.text, doc.len, 0, &a, &err), &err);
            t_ok(tokenizer_encode(again, doc.text, doc.len, 0, &b, &err), &err);
            t_true(a.n == b.n && memcmp(a.v, b.v, a.n * sizeof *a.v) == 0);
            str_reset(&w);
            tokenizer_decode(again, b.v, b.n, &w);
            t_true(w.len == doc.len && memcmp(w.p, doc.text, doc.len) == 0);
            ids_release(&a);
            ids_release(&b);
        }
        str_release(&w);
        tokenizer_free(again);
        release(&s);
    }
}

/* Pearson's statistic of counts that should be equal. */
static double chi_square(const int *count, int n)
{
    double all = 0, sum = 0;
    for (int i = 0; i < n; i++)
        all += count[i];
    for (int i = 0; i < n; i++)
        sum += (count[i] - all / n) * (count[i] - all / n) / (all / n);
    return sum;
}

/* Bounds: the 1 - 1e-6 quantiles of chi-square at 3, 5 and 29 degrees of freedom. */
T(choices_are_uniform)
{
    struct setup s = hops("", 4000);
    int k[4] = {0}, from[6] = {0}, op[2] = {0}, pair[30] = {0};
    for (size_t d = 0; d < corpus_count(s.c); d++) {
        struct document doc = corpus_at(s.c, d);
        const char *p = doc.text;
        int a0 = p[3] - '0', a1 = p[8] - '0'; /* "A0>3;A1>5;" */
        pair[a0 * 5 + a1 - (a1 > a0)]++;
        for (; (p = memchr(p, '?', doc.len - (size_t)(p - doc.text))) != NULL; p++) {
            size_t n = strcspn(p, ":");
            from[p[1] - '0']++;
            k[n - 3]++;
            op[p[2] - 'A']++;
        }
    }
    t_truef(chi_square(k, 4) < 30.7, "%g", chi_square(k, 4));
    t_truef(chi_square(from, 6) < 35.9, "%g", chi_square(from, 6));
    t_truef(chi_square(op, 2) < 24, "%g", chi_square(op, 2));
    t_truef(chi_square(pair, 30) < 86, "%g", chi_square(pair, 30));
    release(&s);
}

T(documents_depend_on_seed_and_number_alone_and_splits_share_none)
{
    struct setup a = hops("", 300), b = hops("", 600);
    t_eq(corpus_count(a.c), 300);
    struct map val = {0};
    for (size_t i = 0; i < 600; i++) {
        struct document x = corpus_at(b.c, i);
        if (i < 300) {
            struct document y = corpus_at(a.c, i);
            t_true(x.len == y.len && memcmp(x.text, y.text, x.len) == 0);
        }
        if (corpus_is_val(b.c, i, 0.2))
            t_eq(map_set(&val, x.text, x.len, 1), 0);
    }
    for (size_t i = 0; i < 600; i++) {
        struct document x = corpus_at(b.c, i);
        int64_t seen;
        t_true(corpus_is_val(b.c, i, 0.2) || !map_get(&val, x.text, x.len, &seen));
    }
    map_release(&val);
    struct corpus_options other = {.path = "hops", .max_docs = 300, .seed = 2};
    struct corpus *c = NULL;
    t_ok(corpus_open(&c, &other, &err), &err);
    t_true(corpus_hash(c) != corpus_hash(a.c));
    corpus_close(c);
    release(&a);
    release(&b);
}

T(answers_only_masks_all_other_targets)
{
    struct setup s = hops("hops.queries=3", 50);
    struct loader *all = opened(&s, 0, 40, 0), *answers = opened(&s, 0, 40, 1);
    struct loader_pos at[2] = {{0}, {0}};
    static struct rows x, y;
    uint64_t counted = 0;
    for (uint64_t w = 0; w < loader_windows(all); w++) {
        read_window(all, &at[0], &x);
        read_window(answers, &at[1], &y);
        t_true(memcmp(x.input, y.input, 40 * sizeof *x.input) == 0);
        for (int t = 0; t < 40; t++) {
            t_eq(y.target[t], x.target_class[t] == CLASS_ANSWER ? x.target[t] : -1);
            counted += y.target[t] >= 0;
        }
    }
    t_true(counted > 100);
    loader_close(all);
    loader_close(answers);
    release(&s);
}

T(documents_that_do_not_fit_are_refused)
{
    struct setup s = hops("", 30);
    struct loader *l = NULL;
    struct loader_options o = {0, 0, 28, 300, 1, 0};
    t_fails(loader_open(&l, s.c, s.t, &o, &err), &err, DS_ERANGE, "29 tokens: must be at most 28");
    t_eq(hops_tokens(&s.o.hops), 29);
    struct tokenizer *bytes = NULL;
    t_ok(tokenizer_new_bytes(&bytes, &err), &err);
    o.seq = 500;
    t_fails(loader_open(&l, s.c, bytes, &o, &err), &err, DS_EUSAGE, "set data.tokenizer=bpe");
    tokenizer_free(bytes);
    release(&s);
}

static void refused(const char *key, const char *more, const char *part)
{
    const char *const keys[] = {"data.path=hops", "train.seq=64", "model.max_seq=64", key, more};
    struct train_config c;
    struct err e = {0};
    t_fails(train_config_make(&c, NULL, 0, keys, 5, &e), &e, DS_EUSAGE, part);
    t_true(strchr(e.text, '\n') == NULL);
}

T(bad_options_are_refused_in_one_line)
{
    refused("hops.only=5", "seed=1", "hops.only=5: must be at most hops.k=4");
    refused("hops.k=17", "seed=1", "hops.k: 17: must be 1 to 16");
    refused("hops.n=5", "seed=1", "hops.n: 5: must be 6 to 64");
    refused("hops.queries=0", "seed=1", "hops.queries: 0: must be 1 to 1024");
    refused("hops.k=16", "seed=1", "a vocabulary of 786498 words: must be at most 65536");
    refused("hops.n=24", "seed=1", "train.seq=64: must be at least 65");
    refused("hops.operators=step", "hops.queries=9", "train.seq=64: must be at least 67");
    refused("hops.querys=9", "seed=1", "did you mean hops.queries");
    refused("data.loss=some", "seed=1", "must be one of all|answers");
}

/* ---- JSON Lines with answers ---- */

static struct loader *lines(const char *text, int answers, struct setup *s, int seq)
{
    char path[600];
    struct loader *l = NULL;
    struct loader_options o = {.seq = seq, .vocab = 257, .answers_only = answers};
    snprintf(path, sizeof path, "%s/a.jsonl", t_tmpdir());
    t_ok(fs_write_file(path, text, strlen(text), &err), &err);
    struct corpus_options co = {.path = path};
    t_ok(corpus_open(&s->c, &co, &err), &err);
    t_ok(tokenizer_new_bytes(&s->t, &err), &err);
    int rc = loader_open(&l, s->c, s->t, &o, &err);
    if (rc < 0)
        t_fails(rc, &err, DS_EUSAGE, "no answers (data.loss=answers)");
    return l;
}

/* The counted bytes of the stream, with '$' for end-of-text. */
static void expect_counted(const char *text, const char *stream, const char *counted)
{
    struct setup s = {0};
    int n = (int)strlen(stream) - 1;
    struct loader *l = lines(text, 1, &s, n);
    struct loader_pos pos = {0};
    int32_t in[200], target[200];
    loader_next(l, &pos, 1, in, target, NULL, NULL);
    for (int i = 0; i < n; i++) {
        t_eq(in[i] == 256 ? '$' : in[i], stream[i]);
        t_truef((target[i] >= 0) == (counted[i + 1] != '.'), "byte %d of %s", i + 1, stream);
        t_true(target[i] < 0 || (target[i] == 256 ? '$' : target[i]) == stream[i + 1]);
    }
    loader_close(l);
    tokenizer_free(s.t);
    corpus_close(s.c);
}

T(answers_of_json_lines_are_counted)
{
    expect_counted("{\"prompt\": \"  1+1=\", \"completion\": \"two \"}\n"
                   "{\"completion\": \"!\", \"prompt\": \"yes\"}\n",
                   "1+1=two$yes!$", "....two$...!$");
    expect_counted("{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"},"
                   "{\"role\": \"assistant\", \"content\": \"oh\"},"
                   "{\"role\": \"user\", \"content\": \"ok\"}]}\n"
                   "{\"text\": \"plain\"}\n",
                   "user: hi\nassistant: oh\nuser: ok$plain$",
                   "....................oh\n...............");
}

T(data_without_answers_cannot_count_only_them)
{
    struct setup s = {0};
    t_true(lines("{\"text\": \"nothing\"}\n{\"text\": \"here\"}\n", 1, &s, 4) == NULL);
    tokenizer_free(s.t);
    corpus_close(s.c);
}

T(malformed_messages_are_named)
{
    struct corpus *c = NULL;
    char path[600];
    struct corpus_options o = {.path = path};
    static const char *const bad[][2] = {
        {"{\"messages\": [{\"role\": \"user\"}]}", "messages[0]: expected strings"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, 7]}", "messages[1]"},
        {"{\"messages\": []}", "\"messages\" (keys found: messages)"},
        {"{\"prompt\": \"a\"}", "\"prompt\" and \"completion\""},
    };
    snprintf(path, sizeof path, "%s/bad.jsonl", t_tmpdir());
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        t_ok(fs_write_file(path, bad[i][0], strlen(bad[i][0]), &err), &err);
        t_fails(corpus_open(&c, &o, &err), &err, DS_EFORMAT, bad[i][1]);
    }
}
