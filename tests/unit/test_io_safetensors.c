/* safetensors: reading, writing, and refusal of corrupt or hostile files. */
#include "t.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/json.h"
#include "base/mem.h"
#include "io/safetensors.h"
#include "io/st_dtype.h"
#include "io/st_set.h"

static char path[512];

static const char *file(void)
{
    snprintf(path, sizeof path, "%s/x.safetensors", t_tmpdir());
    return path;
}

/* A file with this header and `data` zero bytes. */
static const char *make(const char *header, size_t data)
{
    static char zeros[256];
    const char *p = file();
    unsigned char n[8] = {0};
    FILE *f = fopen(p, "wb");
    n[0] = (unsigned char)strlen(header);
    n[1] = (unsigned char)(strlen(header) >> 8);
    n[2] = (unsigned char)(strlen(header) >> 16);
    fwrite(n, 1, 8, f);
    fwrite(header, 1, strlen(header), f);
    fwrite(zeros, 1, data, f);
    fclose(f);
    return p;
}

static void refuse(const char *header, size_t data, const char *part)
{
    struct st *s = NULL;
    struct err e = {0};
    const char *p = make(header, data);
    t_fails(st_open(&s, p, &e), &e, DS_EFORMAT, part);
    t_truef(strstr(e.text, "x.safetensors"), "no file name in: %s", e.text);
    t_true(s == NULL);
    unlink(p);
}

T(written_file_reads_back_and_is_aligned)
{
    struct err e = {0};
    struct st *s;
    float a[6] = {1, -2, 3.5f, NAN, INFINITY, 0};
    double b[2] = {1e-300, -1};
    uint16_t half[4] = {0x3c00, 0x0001, 0xfc00, 0xc248}, bf[2] = {0x3f80, 0xc040};
    int64_t ids[1] = {-5};
    struct st_out t[] = {
        {.name = "z.weight", .dtype = ST_F32, .rank = 2, .shape = {2, 3}, .data = a},
        {.name = "b", .dtype = ST_F64, .rank = 1, .shape = {2}, .data = b},
        {.name = "half", .dtype = ST_F16, .rank = 1, .shape = {4}, .data = half},
        {.name = "bf", .dtype = ST_BF16, .rank = 1, .shape = {2}, .data = bf},
        {.name = "scalar", .dtype = ST_I64, .rank = 0, .data = ids},
        {.name = "empty \"q\" \xc3\xa9", .dtype = ST_F32, .rank = 2, .shape = {0, 4}, .data = NULL},
    };
    const char *meta[] = {"format", "pt", "note", "a\nb"};
    const char *p = file();
    t_ok(st_write(p, t, 6, meta, 2, &e), &e);
    t_ok(st_open(&s, p, &e), &e);
    t_eq(st_count(s), 6);
    t_str(st_meta(s, "format"), "pt");
    t_str(st_meta(s, "note"), "a\nb");
    t_true(st_meta(s, "none") == NULL);
    t_str(st_at(s, 0)->name, "z.weight");
    t_true(st_at(s, 6) == NULL);
    t_true(st_find(s, "nope") == NULL);
    float f[6];
    const struct st_tensor *x = st_find(s, "z.weight");
    t_eq((uintptr_t)x->data % 8, 0);
    t_ok(st_read_f32(x, f, 6, &e), &e);
    t_true(memcmp(f, a, sizeof a) == 0);
    t_eq(st_nonfinite(x), 2);
    t_fails(st_read_f32(x, f, 5, &e), &e, DS_EFORMAT, "z.weight: 6 values");
    double d[4];
    t_ok(st_read_f64(st_find(s, "b"), d, 2, &e), &e);
    t_true(d[0] == 1e-300 && d[1] == -1);
    t_ok(st_read_f64(st_find(s, "half"), d, 4, &e), &e);
    t_true(d[0] == 1 && d[1] == 0x1p-24 && isinf(d[2]) && d[3] == -3.140625);
    t_ok(st_read_f32(st_find(s, "half"), f, 4, &e), &e);
    t_true(f[0] == 1 && f[1] == 0x1p-24f && isinf(f[2]) && f[3] == -3.140625f);
    t_ok(st_read_f32(st_find(s, "bf"), f, 2, &e), &e);
    t_true(f[0] == 1 && f[1] == -3);
    x = st_find(s, "scalar");
    t_eq(x->rank, 0);
    t_eq(x->items, 1);
    t_fails(st_read_f32(x, f, 1, &e), &e, DS_EFORMAT, "I64");
    t_eq(st_find(s, "empty \"q\" \xc3\xa9")->items, 0);
    t_ok(st_unchanged(s, &e), &e);

    struct stat before,
        after; /* A17: saving over the file being read leaves the mapping unchanged */
    t_true(stat(p, &before) == 0);
    t_ok(st_write(p, t + 1, 1, NULL, 0, &e), &e);
    t_true(stat(p, &after) == 0 && before.st_ino != after.st_ino);
    t_ok(st_read_f32(st_find(s, "z.weight"), f, 6, &e), &e);
    t_true(memcmp(f, a, sizeof a) == 0);
    t_fails(st_unchanged(s, &e), &e, DS_EFORMAT, "changed since");
    st_close(s);
}

T(short_files_are_named) /* A1 */
{
    struct st *s = NULL;
    struct err e = {0};
    const char *p = file();
    for (int n = 0; n < 8; n++) {
        FILE *f = fopen(p, "wb");
        fwrite("\1\0\0\0\0\0\0", 1, (size_t)n, f);
        fclose(f);
        t_fails(st_open(&s, p, &e), &e, DS_EFORMAT, "truncated inside the header");
    }
}

T(absurd_header_lengths_are_refused_before_allocation) /* A2 A3 */
{
    static const unsigned char lengths[][8] = {{255, 255, 255, 255, 255, 255, 255, 255},
                                               {0, 0, 0, 0, 0, 0, 0, 128},
                                               {3, 0, 0, 0, 0, 0, 0, 0},
                                               {0, 0, 0, 16, 0, 0, 0, 0}};
    struct st *s = NULL;
    struct err e = {0};
    const char *p = file();
    for (size_t i = 0; i < 4; i++) {
        FILE *f = fopen(p, "wb");
        fwrite(lengths[i], 1, 8, f);
        fwrite("{}", 1, 2, f);
        fclose(f);
        if (i == 3)
            t_true(truncate(p, (off_t)1 << 32) == 0); /* sparse */
        uint64_t calls = mem_calls();
        t_fails(st_open(&s, p, &e), &e, DS_EFORMAT, "header of");
        t_true(mem_calls() - calls < 10);
    }
}

T(broken_headers_are_refused) /* A4 to A9, A12 */
{
    refuse("\xef\xbb\xbf{}", 0, "header");
    refuse("{\"a\":\xff}", 0, "header");
    refuse("[]", 0, "JSON");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
           "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
           8, "header");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
           "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
           8, "tensor b overlaps");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 4, "tensor a");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]}}", 4,
           "two non-negative integers");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 4,
           "tensor a: offsets");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8, "leaves a gap");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 9, "5 bytes after");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,0]}}",
           0, "overflows");
    refuse("{\"a\":{\"dtype\":\"F64\",\"shape\":[4611686018427387904],\"data_offsets\":[0,0]}}", 0,
           "overflows");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,4]}}", 4, "need 12 bytes");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", 4,
           "rank 9");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1.5],\"data_offsets\":[0,4]}}", 4, "shape[0]");
    refuse("{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "missing dtype");
    refuse("{\"a\":7}", 0, "missing dtype");
    refuse("{\"__metadata__\":{\"a\":1}}", 0, "__metadata__");
    refuse("{\"__metadata__\":[]}", 0, "__metadata__");
    refuse("{\"\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
           "\"b\\u0000c\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
           8, "header");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4, "shape[0]");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[18446744073709551615],\"data_offsets\":[0,4]}}", 4,
           "offset");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1e3],\"data_offsets\":[0,4]}}", 4, "shape[0]");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":{},\"data_offsets\":[0,4]}}", 4,
           "shape must be an array");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4,
           "two non-negative integers");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,4]}}", 4,
           "two non-negative integers");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4.0]}}", 4,
           "two non-negative integers");
    refuse("{\"a\":{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "missing dtype");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,9223372036854775807]}}", 4,
           "exceed the 4 bytes of data");
    refuse("{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]}}", 2,
           "do not fill whole bytes");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1099511627776,1099511627776],"
           "\"data_offsets\":[0,0]}}",
           0, "overflows 64 bits");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1099511627776],\"data_offsets\":[0,4]}}", 4,
           "need 4398046511104 bytes, the offsets span 4");
}

T(shapes_may_have_zero_to_eight_dimensions) /* A11 A12 */
{
    struct str h = {0};
    struct err e = {0};
    struct st *s = NULL;
    t_ok(st_open(&s,
                 make("{\"none\":{\"dtype\":\"F32\",\"shape\":[3,0,7],\"data_offsets\":[0,0]},"
                      "\"one\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},"
                      "\"wide\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,2],"
                      "\"data_offsets\":[4,6]}}",
                      6),
                 &e),
         &e);
    t_true(st_find(s, "none")->items == 0 && st_find(s, "one")->items == 1);
    t_eq(st_find(s, "wide")->rank, 8);
    st_close(s);
    str_add(&h, "{\"a\":{\"dtype\":\"U8\",\"shape\":[1");
    for (int i = 1; i < 64; i++)
        str_add(&h, ",1");
    str_add(&h, "],\"data_offsets\":[0,1]}}");
    refuse(h.p, 1, "tensor a: rank 64: must be at most 8");
    str_release(&h);
}

T(unknown_types_are_listed_but_not_read) /* A11 A13 */
{
    struct st *s;
    struct err e = {0};
    float f[2];
    t_ok(st_open(&s,
                 make("{\"q\":{\"dtype\":\"F8_E5M2\",\"shape\":[2],\"data_offsets\":[0,2]},"
                      "\"z\":{\"dtype\":\"NEW\",\"shape\":[1],\"data_offsets\":[2,5]}}",
                      5),
                 &e),
         &e);
    t_str(st_at(s, 0)->dtype_name, "F8_E5M2");
    t_eq(st_at(s, 0)->dtype, ST_OTHER);
    t_eq(st_at(s, 1)->bytes, 3);
    t_fails(st_read_f32(st_find(s, "q"), f, 2, &e), &e, DS_EFORMAT, "F8_E5M2");
    st_close(s);
}

/* OCP's E4M3: bias 7, no infinity, NaN only with all bits set. */
T(every_f8_e4m3_has_its_value)
{
    unsigned char b[256];
    float f[256], two[2] = {0.5F, 3};
    double d[256];
    struct err e = {0};
    struct st_tensor scale = {
        .name = (char[]){"s"}, .dtype = ST_F32, .rank = 2, .shape = {2, 1}, .items = 2};
    struct st_tensor t = {.name = (char[]){"w"},
                          .dtype = ST_F8_E4M3,
                          .rank = 2,
                          .shape = {2, 128},
                          .items = 256,
                          .data = b};
    scale.data = (const unsigned char *)two;
    for (int i = 0; i < 256; i++)
        b[i] = (unsigned char)i;
    t_fails(st_read_f32(&t, f, 256, &e), &e, DS_EFORMAT, "tensor w: F8_E4M3 without a scale");
    t_ok(st_set_scale(&t, &scale, &e), &e);
    t_ok(st_read_f32(&t, f, 256, &e), &e);
    t_ok(st_read_f64(&t, d, 256, &e), &e);
    for (int i = 0; i < 256; i++) {
        int exponent = i >> 3 & 15, fraction = i & 7;
        double want = exponent ? ldexp(8 + fraction, exponent - 10) : ldexp(fraction, -9);
        want *= i < 128 ? 0.5 : -3;
        if ((i & 127) == 127)
            t_true(isnan(f[i]) && isnan(d[i]));
        else
            t_true((double)f[i] == want && d[i] == want && !signbit(f[i]) == (i < 128));
    }
}

/* 130 x 260 in blocks of 128: 2 x 3 of them, the last ones smaller. */
T(scales_of_blocks_rows_and_matrices_are_applied)
{
    enum { O = 130, C = 260 };
    static const struct {
        int rank;
        uint64_t shape[2];
    } of[] = {{2, {2, 3}}, {2, {O, 1}}, {1, {O, 0}}, {0, {0, 0}}, {1, {1, 0}}, {2, {1, 1}}};
    static unsigned char b[O * C], factor[2 * O];
    static float f[O * C];
    struct err e = {0};
    memset(b, 0x38, sizeof b);    /* 1 */
    for (int i = 0; i < O; i++) { /* bfloat16 powers of two */
        factor[2 * i] = (unsigned char)((i & 1) << 7);
        factor[2 * i + 1] = (unsigned char)(0x30 + i / 2 % 32);
    }
    for (size_t k = 0; k < DS_LEN(of); k++) {
        struct st_tensor t = {.name = (char[]){"w"},
                              .dtype = ST_F8_E4M3,
                              .rank = 2,
                              .shape = {O, C},
                              .items = O * C,
                              .data = b};
        struct st_tensor s = {.name = (char[]){"s"},
                              .dtype = ST_BF16,
                              .rank = of[k].rank,
                              .items = 1,
                              .data = factor};
        for (int i = 0; i < s.rank; i++)
            s.items *= s.shape[i] = of[k].shape[i];
        t_ok(st_set_scale(&t, &s, &e), &e);
        st_take_f32(&t, 0, f, 7);
        st_take_f32(&t, 7, f + 7, O * C - 7);
        for (int i = 0; i < O * C; i++) {
            int r = i / C, c = i % C,
                at = s.items == 1   ? 0
                     : s.items == 6 ? r / 128 * 3 + c / 128
                                    : r;
            t_near(f[i], st_value(factor + 2 * at, ST_BF16), 0);
        }
    }
    struct st_tensor t = {.name = (char[]){"w"},
                          .dtype = ST_F8_E4M3,
                          .rank = 2,
                          .shape = {O, C},
                          .items = O * C,
                          .data = b};
    struct st_tensor s = {.name = (char[]){"s"},
                          .dtype = ST_F32,
                          .rank = 2,
                          .shape = {3, 2},
                          .items = 6,
                          .data = factor};
    t_fails(st_set_scale(&t, &s, &e), &e, DS_EFORMAT,
            "tensor s: shape [3, 2], expected one value, one a row or [2, 3] for a matrix of [130, "
            "260]");
    s.dtype = ST_I8;
    t_fails(st_set_scale(&t, &s, &e), &e, DS_EFORMAT, "unsupported dtype");
    t.rank = 3;
    t_fails(st_set_scale(&t, &s, &e), &e, DS_EFORMAT, "tensor w: rank 3, expected a matrix");
}

/* Time to open a file of n tensors with the same shape and offsets. */
static double open_many(int n, const char *of, size_t data, int *rc, struct err *e)
{
    struct str h = {0};
    struct st *s = NULL;
    const char *p = file();
    str_add_bytes(&h, "\0\0\0\0\0\0\0\0{", 9);
    for (int i = 0; i < n; i++)
        str_addf(&h, "%s\"%d\":{\"dtype\":\"U8\",%s}", i ? "," : "", i, of);
    str_add(&h, "}");
    for (int i = 0; i < 8; i++)
        h.p[i] = (char)((h.len - 8) >> 8 * i);
    for (size_t i = 0; i < data; i++)
        str_add_char(&h, 0);
    t_ok(fs_write_file(p, h.p, h.len, e), e);
    clock_t begin = clock(); /* the machine may be busy with other things */
    *rc = st_open(&s, p, e);
    double took = (double)(clock() - begin) / CLOCKS_PER_SEC;
    if (*rc == 0)
        t_eq(st_count(s), n);
    st_close(s);
    str_release(&h);
    return took;
}

T_SECONDS(a_million_tensors_are_refused_quickly, 20) /* A10 */
{
    t_skip_if_emulated("a limit of seconds says nothing");
    struct err e = {0};
    int rc;
    double slow = getenv("T_SLOW_FACTOR") ? 8 : 1;
    double took = open_many(1000000, "\"shape\":[0],\"data_offsets\":[0,0]", 0, &rc, &e);
    t_truef(rc == DS_EFORMAT && strstr(e.text, "more than 200000 tensors"), "%d %s", rc, e.text);
    t_truef(took < 2 * slow, "%.1f s", took);
    took = open_many(199999, "\"shape\":[0],\"data_offsets\":[0,0]", 0, &rc, &e);
    t_truef(rc == 0, "%s", e.text);
    t_truef(took < 2 * slow, "%.1f s", took);
}

T(overlapping_tensors_are_refused) /* A14 */
{
    struct err e = {0};
    int rc;
    double slow = getenv("T_SLOW_FACTOR") ? 8 : 1;
    double took = open_many(100000, "\"shape\":[200],\"data_offsets\":[0,200]", 200, &rc, &e);
    t_truef(rc == DS_EFORMAT && strstr(e.text, "overlaps the previous one"), "%d %s", rc, e.text);
    t_truef(took < 2 * slow, "%.1f s", took);
}

T(deeply_nested_headers_are_refused) /* the parser must not recurse without bound */
{
    struct str h = {0};
    for (int i = 0; i < 30000; i++)
        str_add(&h, "{\"a\":");
    refuse(h.p, 0, "nesting depth");
    str_release(&h);
}

T(other_files_are_recognised) /* A23 A24 */
{
    static const struct {
        const char *bytes, *part;
    } kinds[] = {{"GGUF\3\1\1\1\1\1", "GGUF"},
                 {"PK\3\4xxxxxxx", "zip"},
                 {"\x80\2}qxxxxxx", "pickle"},
                 {"<!DOCTYPE html><html>", "HTML"},
                 {"version https://git-lfs.github.com", "git-lfs"},
                 {"\n\r <HTML>\n<body>404", "HTML"},
                 {"\xef\xbb\xbf<!doctype html>", "HTML"},
                 {"<!-- gone --><html>", "HTML"},
                 {"<?xml version=\"1.0\"?><Error>", "XML"},
                 {"{\"error\":\"Repository not found\"}", "JSON text"},
                 {"Entry not found", "an error message"},
                 {"PK\5\6...................", "an empty zip"},
                 {"\x80\4\x95.........", "pickle"},
                 {"\x93NUMPY\1.....", "NumPy"},
                 {"tjgg....................", "pre-GGUF"}};
    struct st *s = NULL;
    struct err e = {0};
    const char *p = file();
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        t_ok(fs_write_file(p, kinds[i].bytes, strlen(kinds[i].bytes), &e), &e);
        t_fails(st_open(&s, p, &e), &e, DS_EFORMAT, kinds[i].part);
    }
}

T(misaligned_data_is_read) /* A25 */
{
    struct st *s;
    struct err e = {0};
    float f[2] = {9, 9};
    t_ok(st_open(&s, make("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}} ", 8),
                 &e),
         &e);
    t_ok(st_read_f32(st_at(s, 0), f, 2, &e), &e);
    t_true(f[0] == 0 && f[1] == 0);
    st_close(s);
}

/* w has a scale and those of its inputs, v has one of another name, b is none's and u has none. */
static const char scaled[] =
    "{\"w.weight\":{\"dtype\":\"F8_E4M3\",\"shape\":[2,2],\"data_offsets\":[0,4]},"
    "\"w.weight_scale_inv\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[4,8]},"
    "\"w.input_scale\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[8,12]},"
    "\"v.weight\":{\"dtype\":\"F8_E4M3\",\"shape\":[2,1],\"data_offsets\":[12,14]},"
    "\"v.weight_scale\":{\"dtype\":\"BF16\",\"shape\":[2,1],\"data_offsets\":[14,18]},"
    "\"u.weight\":{\"dtype\":\"F8_E4M3\",\"shape\":[2],\"data_offsets\":[18,20]},"
    "\"b.input_scale\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[20,24]},"
    "\"f8\":{\"dtype\":\"F8_E4M3\",\"shape\":[1],\"data_offsets\":[24,25]}}";

T(scales_next_to_a_matrix_are_its_parts_and_not_tensors_of_the_set)
{
    static const char *const names[] = {"w.weight", "v.weight", "u.weight", "b.input_scale", "f8"};
    /* 1 and -2 times 0.5 each; 1 times 2, -2 times 4; two scales of the inputs are left out. */
    static const unsigned char data[25] = {0x38, 0xC0, 0x38, 0xC0, 0,    0, 0,    0x3F, 0,
                                           0,    0,    0,    0x38, 0xC0, 0, 0x40, 0x80, 0x40};
    static const float want_w[] = {0.5F, -1, 0.5F, -1}, want_v[] = {2, -8};
    struct st_set *s = NULL;
    struct err e = {0};
    float f[4];
    const char *p = make(scaled, sizeof data);
    FILE *file = fopen(p, "r+b");
    fseek(file, 8 + (long)strlen(scaled), SEEK_SET);
    t_eq(fwrite(data, 1, sizeof data, file), sizeof data);
    fclose(file);
    t_ok(st_set_open(&s, p, &e), &e);
    t_eq(st_set_count(s), DS_LEN(names));
    for (size_t i = 0; i < DS_LEN(names); i++) {
        size_t at = 99;
        const struct st_tensor *t = st_set_find(s, names[i], &at);
        t_truef(t && st_set_at(s, at) == t && strcmp(t->name, names[i]) == 0, "%s", names[i]);
    }
    t_true(st_set_at(s, DS_LEN(names)) == NULL);
    t_true(!st_set_find(s, "w.weight_scale_inv", NULL) && !st_set_find(s, "w.input_scale", NULL) &&
           !st_set_find(s, "v.weight_scale", NULL) && !st_set_find(s, "none", NULL));
    t_ok(st_read_f32(st_set_find(s, "w.weight", NULL), f, 4, &e), &e);
    for (int i = 0; i < 4; i++)
        t_near(f[i], want_w[i], 0);
    t_ok(st_read_f32(st_set_find(s, "v.weight", NULL), f, 2, &e), &e);
    for (int i = 0; i < 2; i++)
        t_near(f[i], want_v[i], 0);
    t_fails(st_read_f32(st_set_find(s, "u.weight", NULL), f, 2, &e), &e, DS_EFORMAT,
            "tensor u.weight: F8_E4M3 without a scale");
    st_set_close(s);
    p = make("{\"w.weight\":{\"dtype\":\"F8_E4M3\",\"shape\":[4],\"data_offsets\":[0,4]},"
             "\"w.weight_scale\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[4,8]}}",
             8);
    t_fails(st_set_open(&s, p, &e), &e, DS_EFORMAT,
            "x.safetensors: tensor w.weight: rank 1, expected a matrix");
}

/* An index of two shards, one of scaled matrices and one of a plain tensor. */
static const char *sharded(void)
{
    static const char index[] = "{\"weight_map\":{\"w.weight\":\"one.safetensors\","
                                "\"w.weight_scale_inv\":\"one.safetensors\","
                                "\"w.input_scale\":\"one.safetensors\","
                                "\"v.weight\":\"one.safetensors\","
                                "\"v.weight_scale\":\"one.safetensors\","
                                "\"u.weight\":\"one.safetensors\","
                                "\"b.input_scale\":\"one.safetensors\","
                                "\"f8\":\"one.safetensors\",\"a\":\"two.safetensors\"}}";
    static char dir[512], to[600];
    struct err e = {0};
    snprintf(dir, sizeof dir, "%s", t_tmpdir());
    snprintf(to, sizeof to, "%s/one.safetensors", dir);
    t_eq(rename(make(scaled, 25), to), 0);
    snprintf(to, sizeof to, "%s/two.safetensors", dir);
    t_eq(rename(make("{\"__metadata__\":{\"k\":\"v\"},\"a\":{\"dtype\":\"F32\",\"shape\":[2],"
                     "\"data_offsets\":[0,8]}}",
                     8),
                to),
         0);
    snprintf(to, sizeof to, "%s/model.safetensors.index.json", dir);
    t_ok(fs_write_file(to, index, strlen(index), &e), &e);
    return dir;
}

T(memory_failures_are_clean)
{
    const char *dir = sharded();
    size_t failed = 0;
    for (uint64_t n = 1; n < 1000; n++) {
        struct st_set *s = NULL;
        struct err e = {0};
        mem_fail_at(mem_calls() + n, 0);
        int rc = st_set_open(&s, dir, &e);
        mem_fail_at(0, 0);
        if (rc == 0) {
            t_eq(st_set_count(s), 6);
            t_eq(st_set_shards(s), 2);
            st_set_close(s);
            t_true(failed > 10);
            return;
        }
        t_truef(rc == DS_EMEM && strstr(e.text, "memory"), "call %d: %d %s", (int)n, rc, e.text);
        t_true(s == NULL);
        failed++;
    }
    t_truef(0, "never succeeded");
}

T(paths_and_shards_beyond_the_limits_are_refused)
{
    char longer[1400];
    struct st_set *s = NULL;
    struct err e = {0};
    struct str index = {0};
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    t_fails(st_set_open(&s, longer, &e), &e, DS_ERANGE, "path too long");
    str_add(&index, "{\"weight_map\":{");
    for (int i = 0; i < 513; i++)
        str_addf(&index, "%s\"t%d\":\"%d.safetensors\"", i ? "," : "", i, i);
    str_add(&index, "}}");
    const char *dir = t_tmpdir();
    snprintf(path, sizeof path, "%s/many.json", dir);
    t_ok(fs_write_file(path, str_text(&index), index.len, &e), &e);
    t_fails(st_set_open(&s, path, &e), &e, DS_ERANGE, "many.json: more than 512 shards");
    str_release(&index);
    t_eq(chdir(dir), 0); /* without a folder in its name */
    t_fails(st_set_open(&s, "many.json", &e), &e, DS_ERANGE, "many.json: more than 512 shards");
}

T(writer_refuses_what_it_cannot_write)
{
    struct err e = {0};
    float x = 0;
    struct st_out t = {.name = "a\xff", .dtype = ST_F32, .rank = 0, .data = &x};
    const char *p = file();
    t_fails(st_write(p, &t, 1, NULL, 0, &e), &e, DS_ERANGE, "UTF-8");
    t = (struct st_out){.name = "a", .dtype = ST_OTHER, .data = &x};
    t_fails(st_write(p, &t, 1, NULL, 0, &e), &e, DS_ERANGE, "type");
    t = (struct st_out){.name = "a", .dtype = ST_F32, .rank = 2, .shape = {1ull << 40, 1ull << 40}};
    t_fails(st_write(p, &t, 1, NULL, 0, &e), &e, DS_ERANGE, "overflows");
    t_fails(st_write("/nonexistent/x", &t, 0, NULL, 0, &e), &e, DS_EIO, "/nonexistent/x");
    uint64_t left = fs_free_bytes(t_tmpdir());
    if (left > 0) { /* tensors of other sizes are not read */
        t = (struct st_out){.name = "a", .dtype = ST_U8, .rank = 1, .shape = {left + (1 << 30)}};
        t_fails(st_write(file(), &t, 1, NULL, 0, &e), &e, DS_EIO, "bytes, but the disk has only ");
    }
    t_true(!fs_exists(p) && !fs_exists(path));
}

/* Opens the file and reads every value of a supported type. */
static int opens(const char *path_of, struct err *e)
{
    struct st *s = NULL;
    int rc = st_open(&s, path_of, e);
    for (size_t i = 0; rc == 0 && i < st_count(s); i++) {
        const struct st_tensor *t = st_at(s, i);
        double *v = malloc((t->items + 1) * sizeof *v);
        t_true(st_find(s, t->name) == t);
        t_ok(st_dtype_find(t->dtype_name) > ST_BF16 ? 0 : st_read_f64(t, v, t->items, e), e);
        free(v);
    }
    st_close(s);
    return rc;
}

/* Vectors and the reference reader's verdicts must match one to one. */
T(reference_vectors_get_the_reference_verdicts)
{
    struct json *j;
    struct err e = {0};
    char full[1200], **names = NULL;
    size_t n = 0, files = 0;
    t_ok(json_read_file(&j, t_shared("conformance/safetensors/vectors/index.json"), 1 << 20, &e),
         &e);
    for (size_t i = 0; i < json_len(json_root(j)); i++, n++) {
        const struct json_node *c = json_at(json_root(j), i);
        const char *name = json_str(json_get(c, "file"), NULL);
        snprintf(full, sizeof full, "conformance/safetensors/vectors/%s", name);
        e = (struct err){0};
        int rc = opens(t_shared(full), &e);
        int want = strcmp(json_str(json_get(c, "expect"), NULL), "OK") == 0;
        t_truef((rc == 0) == want, "%s: %d %s", name, rc, e.text);
        t_truef(want || (rc == DS_EFORMAT && strstr(e.text, name) && !strchr(e.text, '\n')), "%s",
                e.text);
    }
    json_free(j);
    t_ok(fs_list(t_shared("conformance/safetensors/vectors"), &names, &files, &e), &e);
    t_eq(files, n + 1);
    fs_list_free(names, files);
    t_true(n >= 20);
}

static void all_of(const char *sub, int is_good)
{
    struct err e = {0};
    char **names = NULL, dir[600], full[1200];
    size_t n = 0;
    snprintf(dir, sizeof dir, "conformance/safetensors/%s", sub);
    t_ok(fs_list(t_shared(dir), &names, &n, &e), &e);
    t_true(n > 0);
    for (size_t i = 0; i < n; i++) {
        snprintf(full, sizeof full, "%s/%s", dir, names[i]);
        e = (struct err){0};
        int rc = opens(t_shared(full), &e);
        t_truef((rc == 0) == is_good, "%s: %d %s", names[i], rc, e.text);
    }
    fs_list_free(names, n);
}

T(files_of_another_writer_are_read)
{
    struct err e = {0};
    char full[300];
    static const char *const good[] = {"1d-int32", "2d-float64", "3d-float32", "4d-float32"};
    all_of("valid", 1);
    for (size_t i = 0; i < 4; i++) {
        struct st *s = NULL;
        snprintf(full, sizeof full, "conformance/safetensors/valid/tensor-%s.safetensors", good[i]);
        t_ok(st_open(&s, t_shared(full), &e), &e);
        t_eq(st_at(s, 0)->rank, good[i][0] - '0');
        st_close(s);
    }
}

T(files_of_a_wrong_writer_are_refused)
{
    all_of("invalid", 0);
}
