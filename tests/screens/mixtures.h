/* Record streams of mixtures of experts: TEST FIXTURES, computed from formulas, not from a model or a
 * training run.  Nothing in them is a result. */
#ifndef DS_TESTS_SCREENS_MIXTURES_H
#define DS_TESTS_SCREENS_MIXTURES_H

#include "screens/timelines.h"

enum { MIX_TOKENS = 24, MIX_LAYERS = 8, MIX_EXPERTS = 16, MIX_ROWS_MAX = 94, MIX_COLS_MAX = 256 };
enum {
    MIX_NO_PROBES = 1,
    MIX_NO_LOADS = 2,
    MIX_COLLAPSES = 4,
    MIX_NO_COUNT = 8,
    MIX_INFERRED = 16,
    MIX_ONE_TEXT = 32,
    MIX_NO_RUN = 64
};

struct mixture {
    int layers, experts, steps, every, flags; /* layer 0 is dense */
    int noops;                                /* of the experts, the last */
};

/* Assignments of an expert between two records.  Layer l has the hot expert 3l + 1, and experts whose
 * number is 11 mod 29 are dead; from three quarters of the steps on, expert 5 of layer 2 takes all but
 * a few tokens. */
static inline float mix_count(const struct mixture *m, int layer, int expert, int step)
{
    double x = floor(80 + 60 * fixture_noise((uint32_t)(layer * 512 + expert), (uint32_t)step));
    int is_hot = expert == (3 * layer + 1) % m->experts;
    if ((m->flags & MIX_COLLAPSES) && layer == 2 && 4 * step >= 3 * m->steps)
        return expert == 5 ? 4000 : expert < 4 ? 20 : 0;
    return expert % 29 == 11 ? 0 : (float)(is_hot ? 4 * x : x);
}

static inline void mix_load(struct fixture *f, const struct mixture *m, int step)
{
    static float value[MIX_ROWS_MAX * MIX_COLS_MAX];
    int32_t layer[MIX_ROWS_MAX];
    for (int i = 0; i < m->layers - 1; i++) {
        layer[i] = i + 1;
        for (int k = 0; k < m->experts; k++)
            value[i * m->experts + k] = mix_count(m, i + 1, k, step);
    }
    record_begin(f->record, "matrix", step, 1000 + step);
    record_str(f->record, "name", "expert_load");
    record_int(f->record, "rows", m->layers - 1);
    record_int(f->record, "cols", m->experts);
    record_i32s(f->record, "layer", layer, (size_t)m->layers - 1);
    record_f32s(f->record, "value", value, (size_t)(m->layers - 1) * (size_t)m->experts);
    fixture_put(f);
}

/* Two experts a token: punctuation goes to expert 3 of each layer; layer 0 has none. */
static inline int mix_expert(const struct mixture *m, int rank, int layer, int token, int step)
{
    int first =
        token % 4 == 3
            ? 3
            : (int)(m->experts * fixture_noise((uint32_t)(layer * 64 + token), (uint32_t)step));
    return layer == 0 ? -1 : rank ? (first + 1 + layer) % m->experts : first;
}

static inline void mix_probe(struct fixture *f, const struct mixture *m, int step, int index)
{
    static const char *const words[8] = {"The", " cat", " sat", ".", " A", " dog", " ran", "!"};
    enum { CELLS = MIX_ROWS_MAX * MIX_TOKENS };
    static float expert[2][CELLS], weight[2][CELLS], kind[MIX_TOKENS];
    static unsigned char run[CELLS];
    const char *piece[MIX_TOKENS];
    size_t len[MIX_TOKENS], cells = (size_t)m->layers * MIX_TOKENS;
    int32_t id[MIX_TOKENS];
    struct record *r = f->record;
    for (int t = 0; t < MIX_TOKENS; t++) {
        int word = (t + 4 * index) % 8;
        piece[t] = words[word];
        len[t] = strlen(piece[t]);
        id[t] = 10 + word;
        kind[t] = word % 4 == 3 ? 2 : word % 4 == 0 ? 5 : 0;
    }
    for (int l = 0; l < m->layers; l++)
        for (int t = 0; t < MIX_TOKENS; t++) {
            int i = l * MIX_TOKENS + t;
            double w = 0.5 + floor(40 * fixture_noise((uint32_t)i, 3)) / 100;
            run[i] = 1;
            for (int k = 0; k < 2; k++) {
                expert[k][i] = (float)mix_expert(m, k, l, t + 4 * index, step);
                weight[k][i] = l == 0 ? (float)NAN : (float)(k ? 1 - w : w);
            }
        }
    record_begin(r, "probe", step, 1000 + step);
    record_int(r, "index", index);
    record_str(r, "name", index ? "fixture-b" : "fixture-a");
    record_str(r, "routing", "causal");
    record_int(r, "layers", m->layers);
    record_i32s(r, "ids", id, MIX_TOKENS);
    record_pieces(r, "text", piece, len, MIX_TOKENS);
    if (!(m->flags & MIX_NO_RUN))
        record_bytes(r, "run", run, cells);
    record_map(r, "cell");
    record_f32s(r, "expert", expert[0], cells);
    record_f32s(r, "expert_weight", weight[0], cells);
    record_f32s(r, "expert_2", expert[1], cells);
    record_f32s(r, "expert_weight_2", weight[1], cells);
    record_close(r);
    record_map(r, "cell_kind");
    record_str(r, "expert", "category");
    record_str(r, "expert_2", "category");
    record_str(r, "expert_weight", "amount");
    record_close(r);
    record_map(r, "token");
    record_f32s(r, "class", kind, MIX_TOKENS);
    record_close(r);
    if (m->flags & MIX_INFERRED) {
        record_array(r, "inferred");
        record_str(r, NULL, "run");
        record_str(r, NULL, "expert");
        record_close(r);
    }
    fixture_put(f);
}

static inline void mix_run(struct fixture *f, const struct mixture *m)
{
    struct record *r = f->record;
    record_begin(r, "head", 0, 1000);
    record_int(r, "format", 1);
    record_str(r, "version", "fixture");
    record_str(r, "run", "fixture-mixture");
    record_str(r, "method", "moe");
    record_int(r, "layers", m->layers);
    record_int(r, "steps", m->steps);
    if (!(m->flags & MIX_NO_COUNT))
        record_int(r, "experts", m->experts);
    if (m->noops)
        record_int(r, "experts_noop", m->noops);
    record_int(r, "experts_per_token", m->flags & MIX_COLLAPSES ? 1 : 2);
    fixture_put(f);
    for (int step = m->every; step <= m->steps; step += m->every) {
        if (!(m->flags & MIX_NO_LOADS))
            mix_load(f, m, step);
        for (int index = 0;
             index < (m->flags & MIX_ONE_TEXT ? 1 : 2) && !(m->flags & MIX_NO_PROBES); index++)
            mix_probe(f, m, step, index);
    }
    fixture_close(f, m->steps, "done");
}

#endif
