/* Block formats: the values of given bytes, and the error of quantisation. */
#include "base/mem.h"
#include "engine/quant_impl.h"
#include "io/gguf.h"
#include "t.h"

/* Random bytes as blocks, and their values from an independent reader of the format. */
/* clang-format off */
static const uint8_t q8_0_block[] = {
    76, 162, 184, 171, 238, 171, 20, 206, 245, 153, 204, 5, 37, 53, 213, 206, 192, 173, 6, 120,
    63, 96, 236, 131, 118, 4, 87, 161, 124, 71, 42, 73, 237, 16};
static const float q8_0_value[] = {
    0.885498047F, 1.04537964F, 0.221374512F, 1.04537964F, -0.24597168F, 0.614929199F,
    0.135284424F, 1.26675415F, 0.639526367F, -0.0614929199F, -0.455047607F, -0.651824951F,
    0.528839111F, 0.614929199F, 0.787109375F, 1.02078247F, -0.0737915039F, -1.47583008F,
    -0.774810791F, -1.18066406F, 0.24597168F, 1.537323F, -1.45123291F, -0.0491943359F,
    -1.06997681F, 1.16836548F, -1.52502441F, -0.873199463F, -0.516540527F, -0.897796631F,
    0.233673096F, -0.196777344F};
static const uint8_t q4_0_block[] = {
    192, 40, 37, 49, 238, 209, 245, 247, 110, 41, 110, 167, 207, 42, 239, 106, 72, 236};
static const float q4_0_value[] = {
    -0.111328125F, -0.259765625F, 0.22265625F, -0.259765625F, -0.111328125F, -0.037109375F,
    0.22265625F, 0.037109375F, 0.22265625F, -0.037109375F, 0.259765625F, 0.07421875F,
    0.259765625F, 0.07421875F, 0.0F, 0.1484375F, -0.22265625F, -0.185546875F, 0.22265625F,
    0.185546875F, 0.259765625F, 0.259765625F, -0.07421875F, -0.22265625F, -0.07421875F,
    0.07421875F, 0.1484375F, -0.22265625F, 0.22265625F, -0.07421875F, -0.1484375F, 0.22265625F};
static const uint8_t q4_k_block[] = {
    192, 40, 158, 42, 217, 253, 197, 140, 0, 208, 207, 204, 207, 196, 41, 110, 48, 210, 232, 140,
    115, 208, 36, 191, 104, 181, 255, 28, 166, 200, 156, 148, 178, 149, 83, 197, 170, 170, 153,
    98, 13, 207, 108, 45, 28, 74, 207, 157, 136, 86, 243, 3, 183, 115, 108, 159, 14, 127, 117,
    101, 85, 160, 146, 74, 25, 127, 118, 214, 73, 126, 170, 61, 52, 238, 47, 172, 22, 153, 100,
    225, 142, 236, 27, 164, 59, 4, 13, 138, 109, 147, 97, 37, 163, 232, 141, 72, 191, 60, 150,
    161, 119, 239, 178, 225, 232, 90, 195, 179, 106, 17, 8, 96, 208, 52, 83, 40, 76, 97, 215, 42,
    101, 182, 146, 163, 127, 112, 27, 55, 57, 84, 244, 138, 208, 12, 149, 72, 9, 163, 36, 65,
    153, 251, 234, 188};
static const int q4_k_at[] = {
    0, 15, 16, 31, 32, 47, 48, 63, 64, 95, 96, 127, 128, 150, 160, 191, 192, 223, 224, 240, 255};
static const float q4_k_value[] = {
    0.0F, 3.7109375F, 1.85546875F, 12.0605469F, 5.96386719F, 19.5458984F, 24.0732422F,
    19.5458984F, 0.70892334F, -0.589904785F, 2.94213867F, 5.61401367F, 32.1101074F, 4.05541992F,
    12.3356934F, 8.47631836F, -2.58483887F, 22.7979736F, 19.3997803F, 2.32946777F, 15.9857178F};
/* clang-format on */

static uint32_t state = 3;

static double draw(void) /* -1 .. 1 */
{
    state = state * 1664525U + 1013904223U;
    return (double)(state >> 8) / 8388608.0 - 1;
}

/* Roughly normal, standard deviation about 1. */
static double draw_bell(void)
{
    double sum = 0;
    for (int i = 0; i < 3; i++)
        sum += draw();
    return sum;
}

/* Dequantises a row of blocks as in a file. */
static void decode(real *w, enum quant_kind kind, const uint8_t *blocks, int C)
{
    struct quant *q = NULL;
    struct err e = {0};
    t_ok(quant_from_blocks(&q, kind, blocks, 1, C, &e), &e);
    t_eq(quant_kind_of(q), kind);
    quant_row(w, q, 0);
    quant_free(q);
}

T(half_precision_landmarks_are_right)
{
    static const struct {
        float x;
        uint16_t h;
    } pair[] = {
        {0, 0},
        {-0.0F, 0x8000},
        {1, 0x3c00},
        {-2, 0xc000},
        {65504, 0x7bff},
        {6.103515625e-5F, 0x0400},
        {INFINITY, 0x7c00},
        {0.1F, 0x2e66}, /* from here on rounded */
        {-1.0F / 3, 0xb555},
        {5.9604644775e-8F, 1},
        {6.0975551605e-5F, 0x03ff},
    };
    enum { EXACT = 7 };
    for (size_t i = 0; i < sizeof pair / sizeof *pair; i++) {
        t_eq(quant_half_of(pair[i].x), pair[i].h);
        t_true(quant_half(pair[i].h) == pair[i].x || i >= EXACT);
    }
}

T(half_precision_rounds_to_nearest_even)
{
    for (unsigned h = 0; h < 0x7c00; h++) {
        float x = quant_half((uint16_t)h),
              next = h == 0x7bff ? 65536 : quant_half((uint16_t)(h + 1));
        float middle = x + (next - x) / 2;
        t_eq(quant_half_of(x), h);
        t_eq(quant_half_of(-x), h | 0x8000);
        t_eq(quant_half_of(nextafterf(middle, 0)), h);
        t_eq(quant_half_of(middle), h + (h & 1));
        t_eq(quant_half_of(nextafterf(middle, INFINITY)), h + 1);
    }
    t_true(isnan(quant_half(0x7e00)) && quant_half_of(NAN) == 0x7e00);
    t_eq(quant_half_of(1e30F), 0x7c00);
}

T(q8_0_bytes_have_these_values)
{
    real w[32];
    decode(w, QUANT_Q8_0, q8_0_block, 32);
    for (int i = 0; i < 32; i++)
        t_near(w[i], q8_0_value[i], 1e-8 * fabs((double)q8_0_value[i]));
}

T(q4_0_bytes_have_these_values)
{
    real w[32];
    decode(w, QUANT_Q4_0, q4_0_block, 32);
    for (int i = 0; i < 32; i++)
        t_near(w[i], q4_0_value[i], 1e-8 * fabs((double)q4_0_value[i]));
}

T(q4_k_bytes_have_these_values)
{
    real w[256];
    decode(w, QUANT_Q4_K, q4_k_block, 256);
    for (size_t i = 0; i < sizeof q4_k_at / sizeof *q4_k_at; i++)
        t_near(w[q4_k_at[i]], q4_k_value[i], 2e-7 * fabs((double)q4_k_value[i]) + 1e-7);
}

/* d = 0.5, hand-made quants: the order of low and high halves, and the two ways scales of 6 bits
 * are packed. */
T(a_hand_made_block_has_the_right_values)
{
    uint8_t q8[34] = {0, 0x38, 1, 0xff, 127, 0x80}, q4[18] = {0, 0x38, 0x9f},
            k[144] = {0, 0x38, 0, 0x34};
    real w[256];
    decode(w, QUANT_Q8_0, q8, 32);
    t_true(w[0] == 0.5F && w[1] == -0.5F && w[2] == 63.5F && w[3] == -64 && w[4] == 0);
    decode(w, QUANT_Q4_0, q4, 32);
    t_true(w[0] == 3.5F && w[16] == 0.5F && w[1] == -4 && w[17] == -4);
    k[4] = 3 | 1 << 6;  /* s[0] = 3, upper bits of s[4]: 1 */
    k[8] = 5 | 2 << 6;  /* m[0] = 5, upper bits of m[4]: 2 */
    k[12] = 9 | 7 << 4; /* s[4] = 9 + 16, m[4] = 7 + 32 */
    k[16] = 0x2d;       /* block 0, column 0: 13; block 1: 2, with scale 0 */
    k[16 + 64] = 0xf4;  /* block 4, column 0: 4; block 5: 15, with scale 0 */
    decode(w, QUANT_Q4_K, k, 256);
    t_true(w[0] == 0.5F * 3 * 13 - 0.25F * 5 && w[1] == -0.25F * 5 && w[32] == 0);
    t_true(w[128] == 0.5F * 25 * 4 - 0.25F * 39 && w[129] == -0.25F * 39 && w[160] == 0);
}

/* Quantises n values and dequantises them. */
static void round_trip(real *back, enum quant_kind kind, const real *w, int C)
{
    struct quant *q = NULL;
    struct err e = {0};
    t_ok(quant_new(&q, kind, w, 1, C, &e), &e);
    quant_row(back, q, 0);
    quant_free(q);
}

T(rounding_is_within_half_a_step)
{
    enum { C = 4096 };
    static real w[C], back[C];
    for (int i = 0; i < C; i++)
        w[i] = (real)(draw_bell() * pow(10, draw() * 3));
    round_trip(back, QUANT_Q8_0, w, C);
    for (int i = 0; i < C; i++) {
        double most = 0;
        for (int k = i / 32 * 32; k < i / 32 * 32 + 32; k++)
            most = fmax(most, fabs((double)w[k]));
        t_near(back[i], w[i], most / 127 * 0.5003 + 3e-8);
    }
    round_trip(back, QUANT_Q4_0, w, C);
    for (int i = 0; i < C; i++) {
        double most = 0;
        for (int k = i / 32 * 32; k < i / 32 * 32 + 32; k++)
            most = fabs((double)w[k]) > fabs(most) ? (double)w[k] : most;
        /* Seven steps on the other side: anything beyond seven and a half is clipped. */
        double steps = (double)w[i] / (most / -8), bound = steps > 7.5 ? steps - 7 + 0.01 : 0.502;
        t_near(back[i], w[i], fabs(most) / 8 * bound + 3e-8);
    }
}

static void check_minima(enum quant_kind kind, int top)
{
    enum { C = 4096 };
    static real w[C], back[C];
    double loss = 0, plain = 0;
    for (int i = 0; i < C; i++)
        w[i] = (real)(draw_bell() + (i / 32 % 8 == 3 ? 2 : 0));
    round_trip(back, kind, w, C);
    for (int b = 0; b < C; b += 32) {
        double low = 0, high = (double)w[b];
        for (int i = b; i < b + 32; i++) {
            low = fmin(low, (double)w[i]);
            high = fmax(high, (double)w[i]);
        }
        double step = (high - low) / top;
        for (int i = b; i < b + 32; i++) {
            double off = (double)(back[i] - w[i]), q = rint(((double)w[i] - low) / step);
            t_near(off, 0, 1.6 * step); /* the search may trade the ends for the middle */
            loss += off * off;
            plain += pow(q * step + low - (double)w[i], 2);
        }
    }
    t_truef(loss < plain, "%g with 6-bit scales and a search, %g from each range", loss, plain);
}

T(q4_k_is_within_a_step_and_better_than_the_range_alone)
{
    check_minima(QUANT_Q4_K, 15);
}

T(q5_k_is_within_a_step_and_better_than_the_range_alone)
{
    check_minima(QUANT_Q5_K, 31);
}

T(q6_k_is_within_a_step_and_better_than_the_range_alone)
{
    enum { C = 4096 };
    static real w[C], back[C];
    double loss = 0, plain = 0;
    for (int i = 0; i < C; i++)
        w[i] = (real)(draw_bell() * (i / 16 % 5 ? 1 : 3));
    round_trip(back, QUANT_Q6_K, w, C);
    for (int b = 0; b < C; b += 16) {
        double most = 0;
        for (int i = b; i < b + 16; i++)
            most = fabs((double)w[i]) > fabs(most) ? (double)w[i] : most;
        double step = most / -32;
        for (int i = b; i < b + 16; i++) {
            double off = (double)(back[i] - w[i]);
            double q = fmin(fmax(rint((double)w[i] / step), -32), 31);
            t_near(off, 0, 1.6 * fabs(step));
            loss += off * off;
            plain += pow(q * step - (double)w[i], 2);
        }
    }
    t_truef(loss < plain, "%g with 8-bit scales and a search, %g from each range", loss, plain);
}

/* Each further bit removes about three quarters of the squared error. */
T(more_bits_have_less_error)
{
    enum { C = 4096 };
    static const enum quant_kind order[] = {QUANT_Q4_0, QUANT_Q4_K, QUANT_Q5_K, QUANT_Q6_K,
                                            QUANT_Q8_0};
    static real w[C], back[C];
    double before = 1e9;
    for (int i = 0; i < C; i++)
        w[i] = (real)draw_bell();
    for (int k = 0; k < 5; k++) {
        double loss = 0;
        round_trip(back, order[k], w, C);
        for (int i = 0; i < C; i++)
            loss += pow((double)(back[i] - w[i]), 2);
        t_truef(loss < (k == 1 ? 0.9 : 0.4) * before, "%s: %g after %g", quant_name[order[k]], loss,
                before);
        before = loss;
    }
}

/* The file reader is separate code: both must agree on every bit of random blocks. */
T(blocks_have_the_values_of_the_file_reader)
{
    enum { C = 1024, O = 19 };
    static const uint32_t type[QUANT_KINDS] = {
        0,           GGUF_T_Q8_0,   GGUF_T_Q4_0,   GGUF_T_Q4_K, GGUF_T_Q5_K,
        GGUF_T_Q6_K, GGUF_T_Q4_1,   GGUF_T_Q5_0,   GGUF_T_Q5_1, GGUF_T_Q2_K,
        GGUF_T_Q3_K, GGUF_T_IQ4_NL, GGUF_T_IQ4_XS, GGUF_T_MXFP4};
    static real want[O * C], have[O * C], part[O * C];
    for (int kind = 1; kind < QUANT_KINDS; kind++) {
        const struct quant_format *f = &quant_format[kind];
        struct quant *q = NULL;
        struct err e = {0};
        size_t all = O * quant_row_bytes((enum quant_kind)kind, C);
        int items, bytes;
        t_true(gguf_type_block(type[kind], &items, &bytes));
        t_true(items == f->columns && bytes == f->bytes && bytes <= QUANT_BLOCK_BYTES);
        uint8_t *b = calloc(all, 1);
        for (size_t i = 0; i < all; i++) {
            b[i] = (uint8_t)(draw() * 127.99 + 128);
            if (!quant_is_sound((enum quant_kind)kind, b + i / (size_t)bytes * (size_t)bytes))
                b[i] &= 0xbf; /* an exponent below the largest */
        }
        char name[] = "t";
        struct gguf_tensor t = {.name = name, .type = type[kind], .items = O * C, .data = b};
        t_ok(gguf_read(&t, want, O * C, &e), &e);
        t_ok(quant_from_blocks(&q, (enum quant_kind)kind, b, O, C, &e), &e);
        for (int o = 0; o < O; o++)
            quant_row(have + o * C, q, o);
        for (int i = 0; i < O * C; i++)
            t_near(have[i], want[i], 0);
        const int32_t row[] = {3, 18, 0, 3};
        quant_rows(part, q, row, 4);
        for (int i = 0; i < 4; i++)
            t_true(memcmp(part + i * C, have + row[i] * C, C * sizeof *have) == 0);
        for (int o = 0; o < O; o += 5)
            for (int c = 0; c < C; c += 96) {
                int rows = o ? O - o : 3, cols = c ? (C - c) / 64 * 32 : 32;
                quant_part(part, q, o, rows, c, cols);
                for (int i = 0; i < rows * cols; i++)
                    t_near(part[i], have[(o + i / cols) * C + c + i % cols], 0);
            }
        quant_free(q);
        free(b);
    }
}

T(values_exact_in_the_format_are_unchanged)
{
    enum { C = 512 };
    for (int kind = 1; kind < QUANT_Q4_K; kind++) {
        real w[C], once[C], twice[C];
        for (int i = 0; i < C; i++)
            w[i] = (real)draw();
        round_trip(once, (enum quant_kind)kind, w, C);
        round_trip(twice, (enum quant_kind)kind, once, C);
        for (int i = 0; i < C; i++)
            t_near(twice[i], once[i], 0);
    }
}

T(zeros_stay_zero)
{
    for (int kind = 1; kind < QUANT_WRITTEN; kind++) {
        real w[256] = {0}, back[256];
        round_trip(back, (enum quant_kind)kind, w, 256);
        for (int i = 0; i < 256; i++)
            t_true(back[i] == 0);
        for (int i = 0; i < 256; i++)
            w[i] = (real)(i == 9 ? 1 : 1e-30);
        round_trip(back, (enum quant_kind)kind, w, 256);
        t_near(back[9], 1, 0.01);
        t_true(back[8] == 0 && back[200] == 0);
    }
}

T(equal_weights_are_kept)
{
    for (int kind = 1; kind < QUANT_WRITTEN; kind++)
        for (int sign = -1; sign <= 1; sign += 2) {
            real w[256], back[256];
            for (int i = 0; i < 256; i++)
                w[i] = (real)(0.7 * sign);
            round_trip(back, (enum quant_kind)kind, w, 256);
            for (int i = 0; i < 256; i++)
                t_near(back[i], w[i], 0.7 * 0.001);
        }
}

T(rows_have_the_sizes_of_the_format)
{
    t_eq(quant_row_bytes(QUANT_Q8_0, 64), 68);
    t_eq(quant_row_bytes(QUANT_Q4_0, 96), 54);
    t_eq(quant_row_bytes(QUANT_Q4_K, 512), 288);
    t_eq(quant_row_bytes(QUANT_Q5_K, 512), 352);
    t_eq(quant_row_bytes(QUANT_Q6_K, 256), 210);
    t_eq(quant_row_bytes(QUANT_Q5_1, 96), 72);
    t_eq(quant_row_bytes(QUANT_Q3_K, 512), 220);
    t_eq(quant_row_bytes(QUANT_MXFP4, 64), 34);
    t_eq(quant_row_bytes(QUANT_IQ4_XS, 128), 0);
    t_eq(quant_row_bytes(QUANT_Q4_K, 96), 0);
    t_eq(quant_row_bytes(QUANT_Q6_K, 128), 0);
    t_eq(quant_row_bytes(QUANT_Q8_0, 33), 0);
    t_eq(quant_row_bytes(QUANT_Q8_0, 0), 0);
    t_eq(quant_row_bytes(QUANT_NONE, 32), 0);
    t_str(quant_name[QUANT_Q4_K], "q4_k");
    t_str(quant_name[QUANT_Q6_K], "q6_k");
    t_str(quant_name[QUANT_MXFP4], "mxfp4");
}

T(invalid_weights_are_refused)
{
    struct quant *q = NULL;
    struct err e = {0};
    static real w[20 * 256];
    for (int i = 0; i < 20 * 256; i++)
        w[i] = (real)draw();
    for (int kind = 1; kind < QUANT_WRITTEN; kind++) {
        enum quant_kind k = (enum quant_kind)kind;
        t_fails(quant_new(&q, k, w, 20, 250, &e), &e, DS_ERANGE, quant_name[kind]);
        t_fails(quant_new(&q, k, w, 0, 256, &e), &e, DS_ERANGE, quant_name[kind]);
        static const double bad[] = {NAN, INFINITY, -INFINITY};
        for (int i = 0; i < 3; i++) {
            real was = w[17 * 256 + 99];
            w[17 * 256 + 99] = (real)bad[i];
            w[19 * 256] = (real)NAN;
            t_fails(quant_new(&q, k, w, 20, 256, &e), &e, DS_ENUMERIC, "row 17");
            w[17 * 256 + 99] = was;
            w[19 * 256] = 0;
        }
        w[3] = (real)1e12;
        t_fails(quant_new(&q, k, w, 20, 256, &e), &e, DS_ERANGE, "row 0");
        w[3] = 0;
    }
    t_fails(quant_new(&q, QUANT_NONE, w, 20, 256, &e), &e, DS_ERANGE, "none");
    t_true(q == NULL);
}

T(blocks_with_a_non_finite_scale_are_refused)
{
    struct quant *q = NULL;
    struct err e = {0};
    uint8_t b[2 * 144];
    for (int kind = 1; kind < QUANT_KINDS; kind++) {
        size_t row = quant_row_bytes((enum quant_kind)kind, 256);
        uint8_t *blocks = calloc(3, row);
        if (kind == QUANT_MXFP4)
            blocks[2 * row] = 253; /* 12 times it is infinite */
        else
            blocks[2 * row + (size_t)quant_format[kind].half[0] + 1] = 0x7c;
        t_fails(quant_from_blocks(&q, (enum quant_kind)kind, blocks, 3, 256, &e), &e, DS_ENUMERIC,
                "row 2");
        free(blocks);
    }
    memset(b, 0, sizeof b);
    b[144 + 3] = 0x7e; /* the minimum's */
    t_fails(quant_from_blocks(&q, QUANT_Q4_K, b, 1, 512, &e), &e, DS_ENUMERIC, "row 0");
}

T(out_of_memory_is_an_error)
{
    real w[256] = {1, 2, 3};
    for (int kind = 1; kind < QUANT_WRITTEN; kind++)
        for (uint64_t n = 1; n <= 3; n++) {
            struct quant *q = NULL;
            struct err e = {0};
            mem_fail_at(mem_calls() + n, 0);
            int rc = quant_new(&q, (enum quant_kind)kind, w, 1, 256, &e);
            mem_fail_at(0, 0);
            if (n <= 2)
                t_fails(rc, &e, DS_EMEM, "memory");
            t_true((rc == 0) == (q != NULL) && rc == (n <= 2 ? DS_EMEM : 0));
            quant_free(q);
        }
}
