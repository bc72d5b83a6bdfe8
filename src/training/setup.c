/* Opens what a configuration describes: data, tokenizer, model and probe texts. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "data/chat.h"
#include "data/token_class.h"
#include "data/tokenizer.h"
#include "io/checkpoint.h"
#include "models/peft.h"
#include "training/start.h"
#include "training/team.h"
#include "training/texts.h"
#include "training/trainer.h"

enum { PREFILL_TOKENS = 512, TOKENIZER_MAX = 1 << 30 };

/* Restores the tokenizer of the newest checkpoint to `path` and opens it: 1 = done, 0 = no
 * checkpoint. */
static int tokenizer_of_checkpoint(struct trainer *t, const char *path, const char *why,
                                   struct err *e)
{
    char root[1100], dir[1200], copy[1300];
    struct str bytes = {0};
    int64_t step;
    int rc = fs_join(root, sizeof root, t->dir, "checkpoints", e);
    if (rc < 0 || checkpoint_latest(root, dir, sizeof dir, &step, NULL) < 0)
        return rc;
    rc = fs_join(copy, sizeof copy, dir, "tokenizer.json", e);
    if (rc == 0)
        rc = tokenizer_load(&t->tokenizer, copy, e);
    if (rc < 0)
        return err_add(e, rc, "%s", why);
    log_warn("%s; restoring the copy from %s", why, dir);
    rc = fs_read_file(&bytes, copy, TOKENIZER_MAX, e);
    if (rc == 0)
        rc = trainer_rename_broken(path, e);
    if (rc == 0)
        rc = fs_replace_file(path, bytes.p, bytes.len, e);
    str_release(&bytes);
    return rc < 0 ? rc : 1;
}

/* The run's own copy of the chat template of train.init, which its checkpoints take over. */
static int take_chat(const struct trainer *t, struct err *e)
{
    const char *init = t->config.train.init;
    char base[1024];
    if (!init[0])
        return 0;
    int has_base = model_base(init, base, sizeof base, NULL) == 1;
    return chat_copy(init, has_base ? base : NULL, t->dir, e);
}

/* A run keeps the tokenizer that it was started with. */
static int open_tokenizer(struct trainer *t, struct err *e)
{
    char path[1100];
    struct err why = {0};
    struct stat st;
    int rc = fs_join(path, sizeof path, t->dir, "tokenizer.json", e);
    if (rc < 0)
        return rc;
    int is_there = fs_lstat(path, &st) == 0;
    if (!is_there && errno != ENOENT && errno != ENOTDIR)
        return err_errno(e, "stat %s", path);
    if (!is_there)
        err_set(&why, DS_ENOTFOUND, "%s: missing", path);
    else if (S_ISREG(st.st_mode) && st.st_size == 0)
        err_set(&why, DS_EFORMAT, "%s: empty", path);
    else if (tokenizer_load(&t->tokenizer, path, &why) == 0)
        return 0;
    if (fs_is_unreadable(path, why.code))
        return err_set(e, why.code, "%s", why.text);
    rc = tokenizer_of_checkpoint(t, path, why.text, e);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    if (is_there) { /* nothing was trained with it: train it again from the texts */
        log_warn("%s; rebuilding it", why.text);
        rc = trainer_rename_broken(path, e);
        if (rc < 0)
            return rc;
    }
    rc = texts_tokenizer(&t->tokenizer, t->corpus, &t->config.data, (int)t->config.model.vocab, e);
    if (rc == 0)
        rc = tokenizer_save(t->tokenizer, path, e);
    if (rc == 0)
        rc = take_chat(t, e);
    if (rc < 0)
        return rc;
    tokenizer_free(t->tokenizer); /* reload from the file, as every resume does */
    t->tokenizer = NULL;
    return tokenizer_load(&t->tokenizer, path, e);
}

/* Rank 0 may have to make it, which the others then read. */
static int share_tokenizer(struct trainer *t, int rc, struct err *e)
{
    rc = team_agree(rc == 0 && !team_follows() ? open_tokenizer(t, e) : rc, e);
    return rc == 0 && team_follows() ? open_tokenizer(t, e) : rc;
}

/* The embedding has one row per token; that of train.init may have more. */
static int fit_vocab(struct trainer *t, struct err *e)
{
    int64_t *vocab = &t->config.model.vocab, have = tokenizer_vocab(t->tokenizer);
    if (t->config.train.init[0] && have > *vocab)
        return err_set(e, DS_EFORMAT,
                       "tokenizer %s: ids up to %lld, but train.init=%s has %lld embedding rows",
                       t->config.data.tokenizer, (long long)have - 1, t->config.train.init,
                       (long long)*vocab);
    if (!t->config.train.init[0])
        *vocab = have;
    return 0;
}

static int open_loaders(struct trainer *t, struct err *e)
{
    const struct train_config *c = &t->config;
    struct loader_options o = {.val_fraction = c->data.val_fraction,
                               .seq = (int)c->train.seq,
                               .vocab = (int)c->model.vocab,
                               .answers_only = c->data.loss == LOSS_ANSWERS,
                               .seed = (uint64_t)c->run.seed};
    int rc = loader_open(&t->train, t->corpus, t->tokenizer, &o, e);
    if (rc < 0)
        return err_add(e, rc, "training split of %s", c->data.path);
    if (loader_windows(t->train) < (uint64_t)c->train.batch)
        return err_set(e, DS_ERANGE,
                       "%s: training split has %llu windows of %d tokens, one batch needs %lld",
                       c->data.path, (unsigned long long)loader_windows(t->train), o.seq,
                       (long long)c->train.batch);
    if (c->data.val_fraction <= 0)
        return 0;
    o.is_val = 1;
    rc = loader_open(&t->val, t->corpus, t->tokenizer, &o, e);
    return rc < 0 ? err_add(e, rc, "validation split of %s (data.val_fraction=%g)", c->data.path,
                            c->data.val_fraction)
                  : 0;
}

/* The base is mapped from its file; converted copies are counted when they are made
 * (models/weights.h). */
static int stays_in_file(const struct train_config *c)
{
    return c->train.freeze == FREEZE_BASE && c->train.init[0];
}

/* A system that overcommits memory would kill the run later without a message. */
static int check_memory(const struct train_config *c, struct err *e)
{
    const struct model_config *m = &c->model;
    double weights = stays_in_file(c) ? 0 : model_config_weights(m);
    double states =
        2 * (double)(c->train.batch * c->train.seq * m->dim * (model_config_depth(m) + 1));
    enum gemm_format format = c->run.compute ? GEMM_BF16 : GEMM_FP32;
    double packed = 2 * (double)gemm_packed_bytes(format, 256, 256) /
                    65536;                                /* for the forward and backward pass */
    int tensors = c->train.freeze == FREEZE_BASE ? 1 : 4; /* value, gradient, two moments */
    double trained = (tensors > 1 ? weights : 0) + adapters_weights(m);
    double need = sizeof(real) * (tensors * weights + 4 * adapters_weights(m) + states) +
                  packed * weights + start_teacher_bytes(c) +
                  pieces_bytes(team_parts(&c->train), ranks_size(), trained),
           left = mem_available();
    char a[16], b[16];
    if (left <= 0 || need <= left)
        return 0;
    return err_set(e, DS_EMEM,
                   "out of memory: this model and batch need at least %sB, %sB available",
                   str_si(a, need), str_si(b, left));
}

static int is_letter(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
           (unsigned char)c >= 0x80;
}

/* Number of letters and digits; *frame: hash of the other bytes. */
static size_t count_letters(const char *text, size_t len, uint64_t *frame)
{
    size_t n = 0;
    *frame = 0;
    for (size_t i = 0; i < len; i++)
        if (is_letter(text[i]))
            n++;
        else
            *frame = hash64(text + i, 1, *frame);
    return n;
}

/* Tokens with letters in common begin with vectors in common: a row of the embedding becomes the
 * sum over the token's letters and digits of a vector of that byte, at that place, in a token with
 * these other bytes, divided by sqrt(letters).  What all tokens of a kind share is left out: a
 * common vector would hide what tells them apart.  A token without letters keeps its own vector. */
static void embed_letters(const struct trainer *t)
{
    struct param *p = &t->model->params.p[t->model->embed];
    uint64_t seed = (uint64_t)t->config.run.seed, frame;
    size_t C = (size_t)t->model->config.dim;
    params_changed(&t->model->params);
    for (int32_t id = 0; id < tokenizer_vocab(t->tokenizer); id++) {
        size_t len = 0;
        const char *text = tokenizer_piece(t->tokenizer, id, &len);
        size_t letters = count_letters(text, len, &frame);
        real *row = p->value + (size_t)id * C;
        real scale = letters ? (real)(p->scale / sqrt((double)letters)) : 0;
        if (letters > 0)
            memset(row, 0, C * sizeof *row);
        for (size_t place = 0; place < len; place++) {
            struct rng r;
            if (!is_letter(text[place]))
                continue;
            rng_init(&r, seed, RNG_EMBED, frame + place, (unsigned char)text[place]);
            for (size_t c = 0; c < C; c++)
                row[c] += scale * (real)rng_normal(&r);
        }
    }
}

static int new_model(struct trainer *t, struct model_config *c, struct config *route, struct err *e)
{
    uint64_t seed = (uint64_t)t->config.run.seed;
    int mode = t->config.train.freeze == FREEZE_BASE ? MODEL_TRAIN_OWN : MODEL_TRAIN;
    if (!stays_in_file(&t->config)) {
        int rc = model_new(&t->model, c, route, seed, mode, e);
        if (rc == 0 && t->model->config.embed_init == EMBED_LETTERS)
            embed_letters(t);
        return rc;
    }
    int rc = model_new_table(&t->model, c, route, seed, mode, e);
    if (rc == 0)
        rc = stored_mark(t->model, e);
    if (rc == 0)
        rc = model_reserve_values(t->model, e);
    if (rc == 0)
        params_init(&t->model->params, seed);
    return rc;
}

static void add_ranges(struct str *out, const uint8_t *has, size_t n)
{
    for (size_t i = 0, end; i < n; i = end + 1) {
        for (end = i; end < n && has[end]; end++)
            ;
        if (end > i)
            str_addf(out, out->len ? ",%zu-%zu" : "%zu-%zu", i, end - 1);
    }
}

/* model.outputs=answers becomes the ids of the training split's answers; ids that were given must
 * hold these. */
static int set_outputs(struct model_config *c, const uint8_t *is_answer, const char *ids,
                       struct err *e)
{
    int32_t *id = mem_alloc((size_t)c->vocab, sizeof *id);
    int64_t next = 0, n;
    int rc = 0;
    if (!id)
        return err_set(e, DS_EMEM, "outputs of the head: out of memory");
    if (strcmp(c->outputs, "answers") == 0)
        rc = opt_set(opt_find(&model_group, "model.outputs"), c, ids, NULL, e);
    n = model_config_outputs(c, id);
    for (int64_t i = 0; i < c->vocab && rc == 0; i++)
        if (next < n && id[next] == i)
            next++;
        else if (is_answer[i])
            rc = err_set(e, DS_ERANGE, "model.outputs=%.60s: id %lld is an answer; expected %.200s",
                         c->outputs, (long long)i, ids);
    mem_free(id);
    return rc;
}

static int find_outputs(const struct trainer *t, struct model_config *c, struct err *e)
{
    struct str text = {0};
    if (!c->outputs[0])
        return 0;
    if (t->config.data.loss != LOSS_ANSWERS)
        return err_set(e, DS_EUSAGE,
                       "model.outputs=%.60s: other tokens cannot be predicted; set "
                       "data.loss=answers",
                       c->outputs);
    uint8_t *is_answer = mem_alloc((size_t)c->vocab, 1);
    if (!is_answer)
        return err_set(e, DS_EMEM, "outputs of the head: out of memory");
    loader_answers(t->train, is_answer);
    add_ranges(&text, is_answer, (size_t)c->vocab);
    int rc = text.failed ? err_set(e, DS_EMEM, "outputs of the head: out of memory")
                         : set_outputs(c, is_answer, str_text(&text), e);
    str_release(&text);
    mem_free(is_answer);
    return rc;
}

static int open_model(struct trainer *t, struct err *e)
{
    struct train_config *c = &t->config;
    struct model_config copy = {0};
    struct config route = {0};
    int rows = (int)(c->train.batch * c->train.seq);
    int rc = model_config_copy(&copy, &c->model, e);
    if (rc == 0)
        rc = config_merge(&route, &c->route, e);
    if (rc == 0)
        rc = find_outputs(t, &copy, e);
    if (rc == 0)
        rc = check_memory(c, e);
    if (rc == 0)
        rc = new_model(t, &copy, &route, e);
    opt_release(&model_group, &copy); /* empty when it was taken */
    config_release(&route);
    if (rc < 0)
        return rc;
    t->rows = rows;
    rc = pieces_init(&t->pieces, team_parts(&c->train), (int)c->train.batch, &t->model->params, e);
    t->pieces.is_narrow = c->train.wire == WIRE_BF16;
    if (rc < 0)
        return rc;
    if (rows < PREFILL_TOKENS && c->model.max_seq >= PREFILL_TOKENS)
        rows = PREFILL_TOKENS;
    if (rows < c->train.probe_tokens)
        rows = (int)c->train.probe_tokens;
    if (team_follows() && !t->val) { /* passes over its pieces and probes alone */
        rows = (int)(c->train.seq * pieces_first(&t->pieces, 1));
        rows = rows > c->train.probe_tokens ? rows : (int)c->train.probe_tokens;
    }
    return model_reserve(t->model, rows, 1, !c->train.recompute, e);
}

int trainer_prepare_weights(struct trainer *t, struct err *e)
{
    const struct train_config *c = &t->config;
    struct numeric_options o = {.compute = COMPUTE_FP32 + (int)c->run.compute};
    if (c->train.freeze == FREEZE_BASE)
        o.weights = c->train.base_weights;
    int rc = weights_use(t->model, &o, e);
    const char *end = strrchr(c->train.init, '.');
    if (rc == 0 && c->train.save == SAVE_ALL && end && strcmp(end, ".gguf") == 0 &&
        strcmp(weights_quant_name(t->model), "none") != 0)
        return err_set(
            e, DS_EUSAGE,
            "train.save=all stores the base unquantised, so a resumed run would not "
            "use the quantised weights of %s; set train.save=own or train.base_weights=none",
            c->train.init);
    return rc == 0 ? weights_ready(t->model, e) : rc;
}

static int alloc_batch(struct trainer *t, struct err *e)
{
    size_t n = (size_t)(t->rows > PREFILL_TOKENS ? t->rows : PREFILL_TOKENS);
    t->input = mem_alloc(n, sizeof *t->input);
    t->target = mem_alloc(n, sizeof *t->target);
    t->doc_start = mem_alloc(n, sizeof *t->doc_start);
    t->true_entropy = mem_alloc(n, sizeof *t->true_entropy);
    t->needed = mem_alloc(n, sizeof *t->needed);
    t->class_of = mem_alloc(n, 1);
    t->target_class = mem_alloc(n, 1);
    int has_private = loader_has_private(t->train) || (t->val && loader_has_private(t->val));
    int rc = has_private ? model_config_check_private(&t->config.model, e) : 0;
    if (rc < 0)
        return rc;
    if (has_private)
        t->private_start = mem_alloc(n, sizeof *t->private_start);
    t->token_class = mem_alloc((size_t)t->config.model.vocab, sizeof *t->token_class);
    t->record = record_new();
    int has_exits = t->config.train.exit_loss != EXIT_LOSS_NONE;
    if (has_exits)
        t->exit_weight =
            mem_alloc((size_t)model_config_depth(&t->model->config) + 1, sizeof *t->exit_weight);
    t->model->exit_weight = t->exit_weight;
    if (!t->input || !t->target || !t->doc_start || !t->true_entropy || !t->token_class ||
        !t->needed || !t->class_of || !t->target_class || (has_private && !t->private_start) ||
        (has_exits && !t->exit_weight) || !t->record)
        return err_set(e, DS_EMEM, "out of memory for a batch");
    return token_classes(t->tokenizer, t->train, (int)t->config.train.seq, t->token_class, e);
}

/* Neighbours of one number are one private span. */
static int32_t span_start(const struct probe_text *p, const struct token_note *note, int i)
{
    if (!note || !note[i].hidden)
        return -1;
    return i > 0 && note[i - 1].hidden == note[i].hidden ? p->private_start[i - 1] : i;
}

/* True entropy of a token = sum over its bytes; byte-level tokens cover the text exactly.  note: of
 * the tokens of the whole document and its end, or NULL. */
static void fill_probe(struct trainer *t, struct probe_text *p, const struct document *d,
                       const int32_t *id, const struct token_note *note)
{
    size_t at = 0;
    int is_words = corpus_is_words(t->corpus);
    for (int i = 0; i < p->n; i++) {
        p->id[i] = id[i];
        p->piece[i] = tokenizer_piece(t->tokenizer, id[i], &p->piece_len[i]);
        float sum = d->bits ? 0 : NAN;
        for (size_t k = at; d->bits && k < at + p->piece_len[i] && k < d->len; k++)
            sum += d->bits[k];
        p->true_entropy[i] = sum;
        p->needed[i] = is_words ? note[i + 1].needed : NAN; /* to predict the next token */
        uint8_t kind = note ? loader_class(&note[i]) : CLASS_UNKNOWN;
        p->token_class[i] = kind != CLASS_UNKNOWN ? kind : t->token_class[id[i]];
        p->private_start[i] = span_start(p, note, i);
        at += p->piece_len[i];
    }
}

static int alloc_probe(struct probe_text *p, size_t n, struct err *e)
{
    p->n = (int)n;
    p->id = mem_alloc(n, sizeof *p->id);
    p->piece = mem_alloc(n, sizeof *p->piece);
    p->piece_len = mem_alloc(n, sizeof *p->piece_len);
    p->true_entropy = mem_alloc(n, sizeof *p->true_entropy);
    p->needed = mem_alloc(n, sizeof *p->needed);
    p->token_class = mem_alloc(n, sizeof *p->token_class);
    p->private_start = mem_alloc(n, sizeof *p->private_start);
    return p->id && p->piece && p->piece_len && p->true_entropy && p->needed && p->token_class &&
                   p->private_start
               ? 0
               : err_set(e, DS_EMEM, "out of memory for the probe text");
}

static int add_probe(struct trainer *t, size_t index, struct err *e)
{
    struct document d = corpus_at(t->corpus, index);
    struct ids ids = {0};
    size_t max = (size_t)t->config.train.probe_tokens, cut = d.len < 16 * max ? d.len : 16 * max;
    while (cut < d.len && cut > 0 && ((unsigned char)d.text[cut] & 0xC0) == 0x80)
        cut--; /* never inside a character */
    struct token_note *note = NULL;
    int rc = loader_encode(t->tokenizer, &d, cut, corpus_is_words(t->corpus), &ids, &note, e);
    struct probe_text *p = &t->probe[t->probes];
    size_t n = ids.n < max ? ids.n : max;
    if (rc == 0 && n >= 2) {
        snprintf(p->name, sizeof p->name, "%s-%zu",
                 corpus_is_words(t->corpus)                  ? "hops"
                 : strcmp(t->config.data.path, "synth") == 0 ? "synth"
                                                             : "text",
                 index);
        t->probes++;
        rc = alloc_probe(p, n, e);
        if (rc == 0)
            fill_probe(t, p, &d, ids.v, note);
    }
    mem_free(note);
    ids_release(&ids);
    return rc;
}

/* Of token shards, which have no documents: the beginning of a window. */
static int add_window_probe(struct trainer *t, uint64_t window, struct err *e)
{
    struct loader_pos pos = {.window = window};
    struct probe_text *p = &t->probe[t->probes];
    const struct document none = {.text = "", .bits = NULL};
    int64_t max = t->config.train.probe_tokens, seq = t->config.train.seq;
    loader_next(t->val ? t->val : t->train, &pos, 1, t->input, t->target, NULL, NULL);
    int rc = loader_check(t->train, e);
    if (rc < 0)
        return rc;
    snprintf(p->name, sizeof p->name, "window-%llu", (unsigned long long)window);
    t->probes++;
    rc = alloc_probe(p, (size_t)(seq < max ? seq : max), e);
    if (rc == 0)
        fill_probe(t, p, &none, t->input, NULL);
    return rc;
}

static int open_probes(struct trainer *t, struct err *e)
{
    int64_t want = t->config.train.probes;
    int rc = 0;
    t->probe = mem_alloc((size_t)want, sizeof *t->probe);
    if (!t->probe)
        return err_set(e, DS_EMEM, "out of memory for probe texts");
    uint64_t windows = loader_windows(t->val ? t->val : t->train);
    for (uint64_t w = 0; corpus_shards(t->corpus) && w < windows && t->probes < want && rc == 0;
         w++)
        rc = add_window_probe(t, w, e);
    for (size_t i = 0; i < corpus_count(t->corpus) && t->probes < want && rc == 0; i++)
        if (!t->val || corpus_is_val(t->corpus, i, t->config.data.val_fraction))
            rc = add_probe(t, i, e);
    return rc;
}

int trainer_setup(struct trainer *t, struct err *e)
{
    int rc = share_tokenizer(t, texts_open(&t->corpus, &t->config.data, e), e);
    if (rc < 0 || (rc = fit_vocab(t, e)) < 0 || (rc = open_loaders(t, e)) < 0 ||
        (rc = open_model(t, e)) < 0 || (rc = start_teacher(t, e)) < 0 ||
        (rc = alloc_batch(t, e)) < 0 ||
        (rc = step_report_init(&t->report, model_config_depth(&t->model->config), e)) < 0)
        return rc;
    if (trainer_expert_cells(t) > 0) {
        t->expert_load = mem_alloc(trainer_expert_cells(t), sizeof *t->expert_load);
        if (!t->expert_load)
            return err_set(e, DS_EMEM, "load of the experts: out of memory");
    }
    return open_probes(t, e);
}
