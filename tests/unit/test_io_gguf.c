/* GGUF reader: metadata, tensor types, and refusal of corrupt or hostile files. */
#include "gguf_file.h"

#include "base/compiler.h"
#include "base/mem.h"
#include "engine/quant.h"

static struct err err;

static void refuse_bytes(const char *p, size_t n, const char *part)
{
    struct gguf *g = NULL;
    const char *path = gf_put(p, n);
    t_fails(gguf_open(&g, path, &err), &err, DS_EFORMAT, part);
    t_true(g == NULL);
    t_truef(strstr(err.text, "x.gguf"), "no file name in: %s", err.text);
    t_truef(!strchr(err.text, '\n'), "more than a line: %s", err.text);
}

/* Writes f, releases it, and expects this refusal. */
static void refuse(struct gguf_file *f, const char *part)
{
    struct gguf *g = NULL;
    t_fails(gguf_open(&g, gf_write(f), &err), &err, DS_EFORMAT, part);
    t_true(g == NULL);
}

static struct gguf *open_file(struct gguf_file *f)
{
    struct gguf *g = NULL;
    t_ok(gguf_open(&g, gf_write(f), &err), &err);
    return g;
}

/* Two keys and two tensors. */
static void small(struct gguf_file *f)
{
    const float v[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    static const char *const words[] = {"a", "", "see"};
    gf_string(f, "general.architecture", "llama");
    gf_strings(f, "tokenizer.ggml.tokens", words, 3);
    gf_tensor(f, "one", GGUF_T_F32, 2, 3, v, 24);
    gf_tensor(f, "two", GGUF_T_F32, 2, 0, v + 6, 8);
}

T(metadata_is_read_by_type)
{
    struct gguf_file f = {0};
    struct gguf_text text;
    int64_t whole;
    double number;
    const unsigned char list[] = {GGUF_I16, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0xfe, 0xff};
    const unsigned char big[8] = {0, 0, 0, 0, 0, 0, 0, 0x80};
    small(&f);
    gf_u32(&f, "n", 4000000000U);
    gf_f32(&f, "x", 0.25F);
    gf_raw(&f, "list", GGUF_ARRAY, list, sizeof list);
    gf_raw(&f, "yes", GGUF_BOOL, "\1", 1);
    gf_raw(&f, "big", GGUF_U64, big, 8);
    gf_raw(&f, "less", GGUF_I64, "\376\377\377\377\377\377\377\377", 8);
    struct gguf *g = open_file(&f);
    t_eq(gguf_meta_count(g), 8);
    t_eq(gguf_version(g), 3);
    t_true(gguf_int(gguf_meta_find(g, "n"), 0, &whole) && whole == 4000000000);
    t_true(gguf_num(gguf_meta_find(g, "x"), 0, &number) && number == 0.25);
    t_true(!gguf_int(gguf_meta_find(g, "x"), 0, &whole));
    t_true(gguf_int(gguf_meta_find(g, "list"), 1, &whole) && whole == -2);
    t_true(!gguf_int(gguf_meta_find(g, "list"), 2, &whole));
    t_true(gguf_int(gguf_meta_find(g, "yes"), 0, &whole) && whole == 1);
    t_true(!gguf_int(gguf_meta_find(g, "big"), 0, &whole));
    t_true(gguf_num(gguf_meta_find(g, "big"), 0, &number) && number == 0x1p63);
    t_true(gguf_num(gguf_meta_find(g, "less"), 0, &number) && number == -2);
    t_true(gguf_string(gguf_meta_find(g, "general.architecture"), &text) && text.n == 5);
    t_true(!gguf_string(gguf_meta_find(g, "n"), &text));
    t_true(!gguf_string(gguf_meta_find(g, "absent"), &text) && !gguf_int(NULL, 0, &whole));
    const struct gguf_meta *words = gguf_meta_find(g, "tokenizer.ggml.tokens");
    struct gguf_strings s = {words->data, words->count};
    t_true(gguf_strings_next(&s, &text) && text.n == 1 && text.p[0] == 'a');
    t_true(gguf_strings_next(&s, &text) && text.n == 0);
    t_true(gguf_strings_next(&s, &text) && text.n == 3 && memcmp(text.p, "see", 3) == 0);
    t_true(!gguf_strings_next(&s, &text));
    gguf_close(g);
}

T(tensors_are_found_at_their_offsets)
{
    for (uint64_t align = 0; align <= 4096; align = align ? 2 * align : 8) {
        struct gguf_file f = {.align = align};
        if (align)
            gf_u32(&f, "general.alignment", (uint32_t)align);
        small(&f);
        struct gguf *g = open_file(&f);
        const struct gguf_tensor *t = gguf_find(g, "one");
        real v[6];
        t_eq(gguf_count(g), 2);
        t_eq(t->rank, 2);
        t_eq(t->shape[0], 2);
        t_eq(t->shape[1], 3);
        t_str(t->type_name, "F32");
        t_ok(gguf_read(t, v, 6, &err), &err);
        t_near(v[5], 6, 0);
        t_ok(gguf_read(gguf_find(g, "two"), v, 2, &err), &err);
        t_near(v[1], 8, 0);
        t_fails(gguf_read(t, v, 5, &err), &err, DS_EFORMAT, "6 values, expected 5");
        t_true(gguf_at(g, 1) == gguf_find(g, "two") && !gguf_find(g, "three"));
        gguf_close(g);
    }
}

T(every_type_follows_the_published_formula)
{
    for (size_t i = 0; i < DS_LEN(gf_types); i++) {
        struct gguf_file f = {0};
        int items, bytes;
        uint32_t type = gf_types[i];
        t_true(gguf_type_known(type) && gguf_type_block(type, &items, &bytes));
        size_t rows = 3, cols = 70000 / (size_t)items * (size_t)items, n = rows * cols;
        size_t blocks = n / (size_t)items;
        unsigned char *p = gf_blocks(type, blocks, i + 1);
        real *w = malloc(n * sizeof *w);
        gf_tensor(&f, "w", type, rows, cols, p, blocks * (size_t)bytes);
        struct gguf *g = open_file(&f);
        t_ok(gguf_read(gguf_find(g, "w"), w, n, &err), &err);
        for (size_t k = 0; k < n; k++) {
            double want = gf_item(type, p, k);
            t_truef(fabs((double)w[k] - want) <= 1e-6 * (fabs(want) + 0.2), "%s, %zu: %g, want %g",
                    gguf_type_name(type), k, (double)w[k], want);
        }
        gguf_close(g);
        free(w);
        free(p);
    }
}

T(dequantised_blocks_equal_the_values_used_in_gemms)
{
    static const struct {
        uint32_t type;
        enum quant_kind kind;
    } both[] = {{GGUF_T_Q8_0, QUANT_Q8_0}, {GGUF_T_Q4_0, QUANT_Q4_0}, {GGUF_T_Q4_K, QUANT_Q4_K}};
    for (size_t i = 0; i < DS_LEN(both); i++) {
        struct gguf_file f = {0};
        struct quant *q = NULL;
        real w[2 * 512], row[512];
        int items, bytes;
        t_true(gguf_type_block(both[i].type, &items, &bytes));
        size_t blocks = sizeof w / sizeof *w / (size_t)items;
        unsigned char *p = gf_blocks(both[i].type, blocks, 7);
        gf_tensor(&f, "w", both[i].type, 2, 512, p, blocks * (size_t)bytes);
        struct gguf *g = open_file(&f);
        t_ok(gguf_read(gguf_find(g, "w"), w, 1024, &err), &err);
        t_ok(quant_from_blocks(&q, both[i].kind, p, 2, 512, &err), &err);
        for (int r = 0; r < 2; r++) {
            quant_row(row, q, r);
            for (int c = 0; c < 512; c++)
                t_near(w[512 * r + c], row[c], 1e-7);
        }
        quant_free(q);
        gguf_close(g);
        free(p);
    }
}

T(unsupported_types_are_listed_and_refused_by_name)
{
    struct gguf_file f = {0};
    real w[256];
    const char block[54] = {0};
    gf_tensor(&f, "few", 34, 1, 256, block, sizeof block);
    struct gguf *g = open_file(&f);
    t_str(gguf_at(g, 0)->type_name, "TQ1_0");
    t_fails(gguf_read(gguf_at(g, 0), w, 256, &err), &err, DS_EFORMAT,
            "type TQ1_0: expected one of F32, F16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, "
            "Q5_K, Q6_K, IQ4_NL, IQ4_XS, BF16, MXFP4");
    gguf_close(g);
}

/* Part `no` of `count` with one tensor of four values, from 4 no on. */
static const char *put_part(int no, int count, const char *tensor)
{
    struct gguf_file f = {0};
    char name[64];
    float v[4];
    for (int i = 0; i < 4; i++)
        v[i] = (float)(4 * no + i);
    if (no == 0)
        gf_string(&f, "general.architecture", "llama");
    gf_u16(&f, "split.no", (unsigned)no);
    gf_u16(&f, "split.count", (unsigned)count);
    gf_u32(&f, "split.tensors.count", (uint32_t)count);
    gf_tensor(&f, tensor, GGUF_T_F32, 4, 0, v, sizeof v);
    snprintf(name, sizeof name, "x.gguf-%05d-of-%05d.gguf", no + 1, count);
    return gf_write_as(name, &f);
}

static const char *put_parts(int count)
{
    for (int i = count - 1; i > 0; i--)
        put_part(i, count, (const char *[]){"a", "b", "c"}[i]);
    return put_part(0, count, "a");
}

static void refuse_parts(const char *path, const char *part)
{
    struct gguf *g = NULL;
    t_true(gguf_open(&g, path, &err) < 0 && g == NULL);
    t_truef(strstr(err.text, part) && !strchr(err.text, '\n'), "%s: expected: %s", err.text, part);
}

T(any_part_of_a_split_file_opens_all)
{
    char path[512];
    str_copy(path, sizeof path, put_parts(3));
    size_t at = strlen(path) - strlen("1-of-00003.gguf");
    for (int no = 0; no < 3; no++) {
        struct gguf *g = NULL;
        real v[4];
        path[at] = (char)('1' + no);
        t_ok(gguf_open(&g, path, &err), &err);
        t_eq(gguf_count(g), 3);
        t_true(gguf_meta_find(g, "general.architecture") != NULL);
        t_ok(gguf_read(gguf_find(g, "c"), v, 4, &err), &err);
        t_near(v[3], 11, 0);
        t_str(gguf_at(g, 1)->name, "b");
        t_ok(gguf_unchanged(g, &err), &err);
        t_true(gguf_bytes(g) > 2 * 200);
        gguf_close(g);
    }
}

T(parts_that_are_missing_or_do_not_fit_are_named)
{
    char first[512], second[512];
    struct gguf_file f = {0};
    str_copy(first, sizeof first, put_parts(3));
    str_copy(second, sizeof second, put_part(1, 3, "a"));
    refuse_parts(first, "tensor a is in two parts");
    t_true(remove(second) == 0);
    refuse_parts(first, "x.gguf-00002-of-00003.gguf: part 2 of 3 is missing");
    small(&f);
    gf_write_as("x.gguf-00002-of-00003.gguf", &f);
    refuse_parts(first, "00002-of-00003.gguf: part 1 of 1, expected part 2 of 3");
    gf_put_as("x.gguf-00002-of-00003.gguf", "GGUF", 4);
    refuse_parts(first, "00002-of-00003.gguf: truncated");
    put_parts(3);
    t_true(rename(first, second) == 0);
    refuse_parts(second, "part 1 of 3: expected a file name that ends in -00001-of-00003.gguf");
}

T(the_keys_of_a_split_must_make_sense)
{
    static const struct {
        unsigned no, count, tensors;
        const char *part;
    } bad[] = {{0, 2000, 1, "split.count must be an integer of at most 1024"},
               {3, 3, 1, "split.no must be an integer below split.count 3"},
               {0, 0, 1, NULL},
               {7, 1, 1, NULL}};
    for (size_t i = 0; i < DS_LEN(bad); i++) {
        struct gguf_file f = {0};
        small(&f);
        gf_u16(&f, "split.no", bad[i].no);
        gf_u16(&f, "split.count", bad[i].count);
        if (bad[i].part)
            refuse(&f, bad[i].part);
        else
            gguf_close(open_file(&f));
    }
    struct gguf_file f = {0};
    const char *path = put_parts(2);
    small(&f);
    gf_u16(&f, "split.no", 1);
    gf_u16(&f, "split.count", 2);
    gf_write_as("x.gguf-00002-of-00002.gguf", &f);
    put_part(0, 2, "a");
    refuse_parts(path, "split.tensors.count = 2, found 3");
}

T(a_file_truncated_anywhere_is_refused)
{
    struct gguf_file f = {0};
    struct str all = {0};
    small(&f);
    gf_bytes(&f, &all);
    for (size_t n = 0; n < all.len; n++)
        refuse_bytes(all.p, n, "");
    str_release(&all);
}

/* With any single byte changed, the file is either refused in one line or entirely readable. */
T(a_changed_byte_is_refused_or_harmless)
{
    struct gguf_file f = {0};
    struct str all = {0};
    small(&f);
    gf_bytes(&f, &all);
    for (size_t i = 0; i < all.len; i++)
        for (int bit = 0; bit < 8; bit++) {
            struct gguf *g = NULL;
            all.p[i] = (char)(all.p[i] ^ 1 << bit);
            if (gguf_open(&g, gf_put(all.p, all.len), &err) == 0) {
                for (size_t k = 0; k < gguf_count(g); k++) {
                    real w[64];
                    t_true(gguf_at(g, k)->items > 64 ||
                           gguf_read(gguf_at(g, k), w, gguf_at(g, k)->items, &err) <= 0);
                }
            } else {
                t_true(err.text[0] && !strchr(err.text, '\n'));
            }
            gguf_close(g);
            all.p[i] = (char)(all.p[i] ^ 1 << bit);
        }
    str_release(&all);
}

T(other_files_are_named)
{
    refuse_bytes("PK\3\4 and more than twenty-four bytes", 30, "zip");
    refuse_bytes("<!DOCTYPE html> Not Found", 25, "HTML");
    refuse_bytes("nothing known at all here", 25, "magic \"GGUF\" is missing");
    refuse_bytes("GGUF\1\0\0\0..................", 26, "unsupported version 1:");
    refuse_bytes("GGUF\0\0\0\3..................", 26, "big-endian");
    refuse_bytes("GGUF\3\0\0\0", 8, "truncated inside the header");
}

T(counts_are_checked_against_the_file_before_allocation)
{
    char head[64] = "GGUF\3";
    memset(head + 8, 0xff, 8);
    refuse_bytes(head, sizeof head, "18446744073709551615 tensors do not fit");
    memset(head + 8, 0, 8);
    memset(head + 16, 0x7f, 8);
    refuse_bytes(head, sizeof head, "keys do not fit");
}

T(bad_metadata_is_refused)
{
    struct gguf_file f = {0};
    const char deep[] = {9, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0};
    char nest[12 * 9];
    for (int i = 0; i < 9; i++)
        memcpy(nest + sizeof deep * (size_t)i, deep, sizeof deep);
    gf_u32(&f, "twice", 1);
    gf_u32(&f, "twice", 1);
    refuse(&f, "duplicate key twice");
    gf_u32(&f, "a b", 1);
    refuse(&f, "bytes of printable ASCII");
    gf_u32(&f, "", 1);
    refuse(&f, "");
    gf_raw(&f, "k", 13, "....", 4);
    refuse(&f, "key k: unknown type 13");
    gf_raw(&f, "k", GGUF_BOOL, "\2...", 4);
    refuse(&f, "boolean is 2");
    gf_raw(&f, "k", GGUF_STRING, "\377\377\377\377\377\377\377\377", 8);
    refuse(&f, "exceeds the remaining");
    gf_raw(&f, "k", GGUF_ARRAY, "\0\0\0\0\377\377\377\377\377\377\377\377", 12);
    refuse(&f, "exceeds the remaining");
    gf_raw(&f, "k", GGUF_ARRAY, "\12\0\0\0\0\0\0\0\0\0\0\40", 12);
    refuse(&f, "exceeds the remaining");
    gf_raw(&f, "k", GGUF_ARRAY, nest, sizeof nest);
    refuse(&f, "nested");
    gf_u32(&f, "general.alignment", 0);
    refuse(&f, "general.alignment");
    static const uint32_t odd[] = {1, 4, 12, 13, 24, 40, 0x80000001, 0xffffffff};
    for (size_t i = 0; i < DS_LEN(odd); i++) {
        gf_u32(&f, "general.alignment", odd[i]);
        refuse(&f, "must be a u32 power of two");
    }
    gf_u32(&f, "general.alignment",
           0x80000000); /* the data would begin after the end of the file */
    gf_tensor(&f, "t", GGUF_T_F32, 2, 0, "12345678", 8);
    refuse(&f, "exceed the file's 0 bytes of data");
    gf_string(&f, "general.alignment", "32");
    refuse(&f, "general.alignment");
}

T(bad_tensors_are_refused)
{
    struct gguf_file f = {0};
    const char data[128] = {0}, longest[65] = {0};
    char name[66];
    memset(name, 'n', 65);
    name[65] = '\0';
    gf_tensor(&f, name, GGUF_T_F32, 2, 0, data, 8);
    refuse(&f, "name of 65 bytes");
    gf_tensor(&f, longest, GGUF_T_F32, 2, 0, data, 8);
    refuse(&f, "name of 0 bytes");
    gf_tensor(&f, "t", GGUF_T_F32, 2, 0, data, 8);
    gf_tensor(&f, "t", GGUF_T_F32, 2, 0, data, 8);
    refuse(&f, "duplicate tensor t");
    gf_tensor(&f, "t", 31, 2, 0, data, 8);
    refuse(&f, "unknown type 31");
    gf_tensor(&f, "t", 4000000000U, 2, 0, data, 8);
    refuse(&f, "unknown type 4000000000");
    gf_tensor(&f, "t", GGUF_T_Q8_0, 2, 16, data, 34);
    refuse(&f, "row length 16: must be a multiple of the block size 32");
    gf_tensor(&f, "t", GGUF_T_F32, 1ULL << 32, 1ULL << 32, data, 8);
    refuse(&f, "overflows 64 bits");
    gf_tensor(&f, "t", GGUF_T_F32, 1ULL << 62, 0, data, 8);
    refuse(&f, "overflows 64 bits");
    gf_tensor(&f, "t", GGUF_T_F32, 64, 0, data, 128);
    refuse(&f, "256 bytes at offset 0 exceed the file's 128");
    gf_info(&f, "t", GGUF_T_F32, 2, 0, UINT64_MAX - 31);
    refuse(&f, "exceed the file's");
    gf_info(&f, "t", GGUF_T_F32, 2, 0, 16);
    refuse(&f, "must be a multiple of the alignment 32");
    gf_tensor(&f, "a", GGUF_T_F32, 16, 0, data, 64);
    gf_info(&f, "b", GGUF_T_F32, 2, 0, 32);
    refuse(&f, "tensor b overlaps a");
}

/* ---- the classes of handcrafted files that readers were broken by --------------------------------- */

static void header(struct str *s, uint32_t version, uint64_t tensors, uint64_t metas)
{
    str_reset(s);
    str_add(s, "GGUF");
    gf_uint(s, version, 4);
    gf_uint(s, tensors, 8);
    gf_uint(s, metas, 8);
}

static void refuse_str(struct str *s, const char *part)
{
    refuse_bytes(s->p, s->len, part);
}

T(versions_and_byte_orders_are_reported)
{
    struct str s = {0};
    static const uint32_t unknown[] = {0, 1, 4, 5, 0xffff, 0xffffffff};
    for (size_t i = 0; i < DS_LEN(unknown); i++) {
        header(&s, unknown[i], 0, 0);
        refuse_str(&s, ": expected 2 or 3");
    }
    static const uint32_t other_end[] = {0x01000000, 0x02000000, 0x03000000, 0x00030000};
    for (size_t i = 0; i < DS_LEN(other_end); i++) {
        header(&s, other_end[i], 0, 0);
        refuse_str(&s, "big-endian");
    }
    header(&s, 3, 0, 0);
    s.p[0] = 'g';
    refuse_str(&s, "magic \"GGUF\" is missing");
    memcpy(s.p, "FUGG", 4);
    refuse_str(&s, "magic \"GGUF\" is missing");
    for (uint32_t version = 2; version <= 3; version++) {
        struct gguf *g = NULL;
        header(&s, version, 0, 0);
        t_ok(gguf_open(&g, gf_put(s.p, s.len), &err), &err);
        t_true(gguf_count(g) == 0 && gguf_meta_count(g) == 0);
        gguf_close(g);
    }
    str_release(&s);
}

/* Counts whose products overflow; each is one more than the bytes could hold. */
T(counts_that_overflow_are_refused_before_allocation) /* CVE-2024-21836, -23605 */
{
    static const uint64_t counts[] = {
        UINT64_MAX, UINT64_MAX / 2, UINT64_MAX / 48 + 1, UINT64_MAX / 14,
        1ULL << 60, 1ULL << 32,     0x7fffffff,          6};
    struct str s = {0};
    for (size_t i = 0; i < DS_LEN(counts); i++)
        for (int which = 0; which < 2; which++) {
            header(&s, 3, which ? counts[i] : 0, which ? 0 : counts[i]);
            gf_uint(&s, 0, 8);
            gf_uint(&s, 0, 8);
            gf_uint(&s, 0, 8);
            uint64_t calls = mem_calls();
            refuse_str(&s, "do not fit in 24 bytes");
            t_true(mem_calls() - calls < 10);
        }
    str_release(&s);
}

/* Lengths of keys, names, strings and arrays that overflow when anything is added. */
T(lengths_that_overflow_are_refused) /* CVE-2024-21825, -23496 */
{
    static const uint64_t lengths[] = {UINT64_MAX, UINT64_MAX - 1, UINT64_MAX - 7,
                                       1ULL << 63, 1ULL << 32,     1000};
    struct str s = {0};
    for (size_t i = 0; i < DS_LEN(lengths); i++) {
        header(&s, 3, 0, 1);
        gf_uint(&s, lengths[i], 8); /* of a key */
        str_add(&s, "k...........");
        refuse_str(&s, "exceeds the remaining");
        header(&s, 3, 1, 0);
        gf_uint(&s, lengths[i], 8); /* of a tensor's name */
        str_add(&s, "t..........................");
        refuse_str(&s, "exceeds the remaining");
        static const uint32_t items[] = {GGUF_U8,     GGUF_F32,   GGUF_U64,
                                         GGUF_STRING, GGUF_ARRAY, GGUF_BOOL};
        for (size_t k = 0; k < DS_LEN(items); k++) {
            header(&s, 3, 0, 1);
            gf_text(&s, "k");
            gf_uint(&s, GGUF_ARRAY, 4);
            gf_uint(&s, items[k], 4);
            gf_uint(&s, lengths[i], 8);
            str_add(&s, "................");
            refuse_str(&s, "exceeds the remaining");
        }
        header(&s, 3, 0, 1); /* a string inside an array */
        gf_text(&s, "k");
        gf_uint(&s, GGUF_ARRAY, 4);
        gf_uint(&s, GGUF_STRING, 4);
        gf_uint(&s, 1, 8);
        gf_uint(&s, lengths[i], 8);
        refuse_str(&s, "exceeds the remaining");
    }
    str_release(&s);
}

T(keys_are_printable_and_of_bounded_length)
{
    struct gguf_file f = {0};
    char key[65540];
    static const char *const odd[] = {"\x1b[31m", "a\nb", "\xc3\xa9", "\x7f", " "};
    for (size_t i = 0; i < DS_LEN(odd); i++) {
        gf_u32(&f, odd[i], 1);
        refuse(&f, "bytes of printable ASCII");
    }
    memset(key, 'k', sizeof key);
    key[65536] = '\0';
    gf_u32(&f, key, 1);
    refuse(&f, "key of 65536 bytes");
    key[65535] = '\0';
    gf_u32(&f, key, 1);
    gguf_close(open_file(&f));
    gf_raw(&f, "k", GGUF_ARRAY, "\15\0\0\0\1\0\0\0\0\0\0\0....", 16);
    refuse(&f, "unknown array element type 13");
    gf_raw(&f, "k", 0xffffffff, "....", 4);
    refuse(&f, "unknown type 4294967295");
}

static void put_dims(struct gguf_file *f, const char *name, uint32_t rank, const uint64_t *dim,
                     uint32_t type)
{
    gf_text(&f->info, name);
    gf_uint(&f->info, rank, 4);
    for (uint32_t i = 0; i < rank && i < 9; i++)
        gf_uint(&f->info, dim[i], 8);
    gf_uint(&f->info, type, 4);
    gf_uint(&f->info, 0, 8);
    f->n++;
}

T(shapes_that_overflow_or_are_invalid_are_refused) /* CVE-2024-21802, -2025-53630, -2026-33298 */
{
    static const struct {
        uint32_t rank, type;
        uint64_t dim[9];
        const char *part;
    } of[] = {
        {5, GGUF_T_F32, {1, 1, 1, 1, 1}, "rank 5: must be at most 4"},
        {0xffffffff, GGUF_T_F32, {1}, "rank 4294967295"},
        {1, GGUF_T_F32, {UINT64_MAX}, "shape[0] = -1: must be a non-negative integer"},
        {2, GGUF_T_F32, {0, 1ULL << 63}, "must be a non-negative integer"},
        {1, 24, {1ULL << 63}, "must be a non-negative integer"},
        {1, GGUF_T_F32, {1ULL << 62}, "size in bytes overflows 64 bits"},
        {2, GGUF_T_F32, {1ULL << 32, 1ULL << 32}, "shape overflows 64 bits"},
        {4, GGUF_T_F16, {1 << 20, 1 << 20, 1 << 20, 16}, "shape overflows 64 bits"},
        {2, GGUF_T_Q8_0, {32, 1ULL << 58}, "exceed the file's"},
        {2, GGUF_T_Q8_0, {32, 1ULL << 59}, "shape overflows 64 bits"},
        {2, GGUF_T_Q4_K, {256, 1ULL << 55}, "exceed the file's"},
        {2, 28, {1ULL << 31, 1ULL << 30}, "size in bytes overflows 64 bits"},
        {3, GGUF_T_F32, {UINT32_MAX, UINT32_MAX, 2}, "shape overflows 64 bits"},
        {1, GGUF_T_F32, {(1ULL << 62) - 8}, "exceed the file's"},
        {1, GGUF_T_Q4_0, {31}, "row length 31: must be a multiple of the block size 32 of Q4_0"},
        {1, GGUF_T_Q6_K, {32}, "row length 32: must be a multiple of the block size 256 of Q6_K"},
        {1, 4, {32}, "unknown type 4"},
        {1, 36, {32}, "unknown type 36"},
        {1, UINT32_MAX, {32}, "unknown type 4294967295"},
    };
    for (size_t i = 0; i < DS_LEN(of); i++) {
        struct gguf_file f = {0};
        put_dims(&f, "t", of[i].rank, of[i].dim, of[i].type);
        str_add(&f.data, "........");
        refuse(&f, of[i].part);
        t_truef(strstr(err.text, "tensor t"), "%s", err.text);
    }
}

T(empty_and_single_tensors_are_read)
{
    struct gguf_file f = {0};
    const uint64_t none[] = {0, 7}, one[] = {1, 1, 1, 1};
    const float x = 3;
    real v = 0;
    put_dims(&f, "none", 2, none, GGUF_T_F32);
    put_dims(&f, "scalar", 0, none, GGUF_T_F32);
    str_add_bytes(&f.data, &x, 4);
    struct gguf *g = open_file(&f);
    t_eq(gguf_find(g, "none")->items, 0);
    t_ok(gguf_read(gguf_find(g, "none"), &v, 0, &err), &err);
    t_ok(gguf_read(gguf_find(g, "scalar"), &v, 1, &err), &err);
    t_near(v, 3, 0);
    gguf_close(g);
    put_dims(&f, "ones", 4, one, GGUF_T_F32);
    str_add_bytes(&f.data, &x, 4);
    g = open_file(&f);
    t_eq(gguf_find(g, "ones")->rank, 4);
    gguf_close(g);
}

/* Values of one type requested as another: non-numeric bytes never become a number. */
T(value_types_are_not_confused)
{
    struct gguf_file f = {0};
    struct gguf_text text;
    int64_t whole = 77;
    double number = 77;
    const unsigned char scores[] = {GGUF_U8, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 1, 2, 255};
    const unsigned char nested[] = {GGUF_ARRAY, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, GGUF_U8,
                                    0,          0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9};
    const unsigned char none[] = {GGUF_F32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    gf_raw(&f, "scores", GGUF_ARRAY, scores, sizeof scores);
    gf_raw(&f, "nested", GGUF_ARRAY, nested, sizeof nested);
    gf_raw(&f, "none", GGUF_ARRAY, none, sizeof none);
    gf_string(&f, "text", "12345678");
    gf_f32(&f, "real", 1.5F);
    struct gguf *g = open_file(&f);
    const struct gguf_meta *m = gguf_meta_find(g, "scores");
    t_true(gguf_num(m, 2, &number) && number == 255 && !gguf_num(m, 3, &number));
    t_true(!gguf_num(m, UINT64_MAX, &number) && !gguf_int(m, UINT64_MAX / 4, &whole));
    t_true(!gguf_string(m, &text) && m->item == GGUF_U8 && m->kind == GGUF_ARRAY);
    m = gguf_meta_find(g, "nested");
    t_true(!gguf_num(m, 0, &number) && !gguf_int(m, 0, &whole) && m->item == GGUF_ARRAY);
    m = gguf_meta_find(g, "none");
    t_true(m->count == 0 && !gguf_num(m, 0, &number));
    m = gguf_meta_find(g, "text");
    t_true(!gguf_num(m, 0, &number) && !gguf_int(m, 0, &whole));
    t_true(!gguf_int(gguf_meta_find(g, "real"), 0, &whole) && whole == 77);
    gguf_close(g);
}

/* Each size is checked against the file, never a sum of sizes. */
T(sums_of_sizes_cannot_overflow) /* CVE-2025-53630, -2026-27940 */
{
    struct gguf_file f = {0};
    for (int i = 0; i < 17; i++) {
        char name[16];
        snprintf(name, sizeof name, "t%d", i);
        gf_info(&f, name, GGUF_T_F32, (1ULL << 58) - 8, 0, (uint64_t)i << 60);
    }
    refuse(&f, "exceed the file's");
    gf_info(&f, "t", GGUF_T_F32, 8, 0, UINT64_MAX - 63); /* offset + size overflows to 0 */
    str_add(&f.data, "................................");
    refuse(&f, "exceed the file's");
}

T(out_of_memory_is_reported)
{
    struct gguf_file f = {0};
    struct str all = {0};
    small(&f);
    gf_bytes(&f, &all);
    const char *path = gf_put(all.p, all.len);
    str_release(&all);
    for (uint64_t n = 1; n < 200; n++) {
        struct gguf *g = NULL;
        mem_fail_at(mem_calls() + n, 0);
        int rc = gguf_open(&g, path, &err);
        mem_fail_at(0, 0);
        if (rc == 0) {
            gguf_close(g);
            return;
        }
        t_true(g == NULL && err.text[0]);
    }
    t_truef(0, "never succeeded");
}
