/* NumPy arrays: headers as numpy.lib.format specifies them, and items of every type and byte order. */
#include "t.h"

#include "base/compiler.h"
#include "io/npy.h"

/* A file of this version: magic, version, length, header, data. */
static size_t array_of(unsigned char *out, int version, const char *header, size_t header_len,
                       const void *data, size_t n)
{
    size_t at = version == 1 ? 10 : 12;
    memcpy(out, "\x93NUMPY", 6);
    out[6] = (unsigned char)version;
    out[7] = 0;
    for (size_t i = 8; i < at; i++)
        out[i] = (unsigned char)(header_len >> 8 * (i - 8));
    memcpy(out + at, header, header_len);
    if (n > 0)
        memcpy(out + at + header_len, data, n);
    return at + header_len + n;
}

static unsigned char file[4096];

static int read_header(struct npy *a, const char *header, size_t n, struct err *e)
{
    static const unsigned char zeros[64];
    return npy_read(a, file, array_of(file, 1, header, strlen(header), zeros, n), e);
}

T(items_of_every_type_and_order_have_their_value)
{
    static const struct {
        const char *type, *bytes;
        double num;
        int size, is_whole;
        int64_t whole;
    } row[] = {
        {"|b1", "\1", 1, 1, 1, 1},
        {"|i1", "\377", -1, 1, 1, -1},
        {"|u1", "\377", 255, 1, 1, 255},
        {"<i2", "\0\200", -32768, 2, 1, -32768},
        {">i2", "\200\0", -32768, 2, 1, -32768},
        {"<u2", "\0\200", 32768, 2, 1, 32768},
        {"=i4", "\376\377\377\377", -2, 4, 1, -2},
        {">u4", "\377\377\377\376", 4294967294.0, 4, 1, 4294967294},
        {"<i8", "\0\0\0\0\0\0\0\200", -0x1p63, 8, 1, INT64_MIN},
        {"<u8", "\0\0\0\0\0\0\0\200", 0x1p63, 8, 0, 0},
        {">u8", "\0\0\0\0\0\0\1\0", 256, 8, 1, 256},
        {"<f2", "\0\301", -2.5, 2, 0, 0},
        {">f2", "\102\0", 3, 2, 1, 3},
        {"<f4", "\0\0\40\300", -2.5, 4, 0, 0},
        {">f4", "\300\0\0\0", -2, 4, 1, -2},
        {"<f8", "\0\0\0\0\0\0\30\100", 6, 8, 1, 6},
        {">f8", "\100\30\0\0\0\0\0\0", 6, 8, 1, 6},
        {"<f8", "\0\0\0\0\0\0\360\177", (double)INFINITY, 8, 0, 0},
        {">f8", "\103\360\0\0\0\0\0\0", 0x1p64, 8, 0, 0},
    };
    for (size_t i = 0; i < DS_LEN(row); i++)
        for (int version = 1; version <= 3; version++) {
            char header[120];
            struct npy a;
            struct err e = {0};
            int64_t v = 77;
            snprintf(header, sizeof header,
                     "{'descr': '%s', \"fortran_order\": False, 'shape': (1L,), }  \n",
                     row[i].type);
            size_t n =
                array_of(file, version, header, strlen(header), row[i].bytes, (size_t)row[i].size);
            t_ok(npy_read(&a, file, n, &e), &e);
            t_eq(a.n, 1);
            t_eq(a.size, row[i].size);
            t_truef(npy_num(&a, 0) == row[i].num, "%s: %g", row[i].type, npy_num(&a, 0));
            t_eq(npy_int(&a, 0, &v), row[i].is_whole);
            t_eq(v, row[i].is_whole ? row[i].whole : 77);
        }
}

T(strides_follow_the_order_of_the_file)
{
    char shape[40];
    struct npy a;
    struct err e = {0};
    t_ok(read_header(&a, "{'descr':'|u1','fortran_order':False,'shape':(2,3,4)}", 24, &e), &e);
    t_true(a.stride[0] == 12 && a.stride[1] == 4 && a.stride[2] == 1);
    t_str(npy_shape(&a, shape, sizeof shape), "(2, 3, 4)");
    t_str(npy_shape(&a, shape, 4), "(2,");
    t_ok(read_header(&a, "{'shape':(2,3,4),'fortran_order':True,'descr':'|u1'}", 24, &e), &e);
    t_true(a.stride[0] == 1 && a.stride[1] == 2 && a.stride[2] == 6);
    t_ok(read_header(&a, "{'descr':'<f4','fortran_order':False,'shape':()}", 4, &e), &e);
    t_eq(a.n, 1);
    t_str(npy_shape(&a, shape, sizeof shape), "()");
    t_ok(read_header(&a, "{'descr':'<f4','fortran_order':False,'shape':(0,)}", 0, &e), &e);
    t_eq(a.n, 0);
    t_str(npy_shape(&a, shape, sizeof shape), "(0,)");
}

T(other_headers_are_refused_with_their_reason)
{
#define BEGIN "{'descr':'<f4','fortran_order':False,'shape':"
    static const char keys[] = "array header: expected the keys descr, fortran_order and shape";
    static const char numbers[] = "array shape: expected numbers in parentheses";
    static const struct {
        const char *header;
        int code;
        const char *part;
    } bad[] = {
        {"", DS_EFORMAT, "array header: expected a dictionary"},
        {"()", DS_EFORMAT, "array header: expected a dictionary"},
        {"{", DS_EFORMAT, keys},
        {"{}", DS_EFORMAT, keys},
        {"{'descr", DS_EFORMAT, keys},
        {"{'shape'}", DS_EFORMAT, keys},
        {"{'other':1}", DS_EFORMAT, keys},
        {"{'descr':'<f4','descr':'<f4'}", DS_EFORMAT, keys},
        {"{'descr':'<f4','shape':(1,)}", DS_EFORMAT, keys},
        {"{'descr':4}", DS_EFORMAT, "array type '': expected integers or floats"},
        {"{'descr':'<c8'}", DS_EFORMAT, "array type '<c8'"},
        {"{'descr':'<f1'}", DS_EFORMAT, "array type '<f1'"},
        {"{'descr':'<b2'}", DS_EFORMAT, "array type '<b2'"},
        {"{'descr':'<f16'}", DS_EFORMAT, "array type '<f16'"},
        {"{'descr':[('a','<f4')]}", DS_EFORMAT, "array type ''"},
        {"{'fortran_order':1}", DS_EFORMAT, "fortran_order must be True or False"},
        {BEGIN "3}", DS_EFORMAT, numbers},
        {BEGIN "(a)}", DS_EFORMAT, numbers},
        {BEGIN "(1 2)}", DS_EFORMAT, numbers},
        {BEGIN "(1", DS_EFORMAT, numbers},
        {BEGIN "(", DS_EFORMAT, numbers},
        {BEGIN "(2,36893488147419103232)}", DS_ERANGE, "dimension 1 is too large"},
        {BEGIN "(1,1,1,1,1,1,1,1,1)}", DS_ERANGE, "more than 8 dimensions"},
        {BEGIN "(4,)}", DS_EFORMAT,
         "shape (4,) and 4 bytes per item, but 8 bytes of data: truncated"},
        {BEGIN "(1,)}", DS_EFORMAT, "shape (1,) and 4 bytes per item, but 8 bytes of data"},
        {BEGIN "(4294967296,4294967296)}", DS_EFORMAT, "but 8 bytes of data"},
    };
    static const char zeros[] = "{'descr':'\0\0\0','fortran_order':False,'shape':(0,)}";
    struct npy a;
    struct err e = {0};
    for (size_t i = 0; i < DS_LEN(bad); i++)
        t_fails(read_header(&a, bad[i].header, 8, &e), &e, bad[i].code, bad[i].part);
    t_fails(npy_read(&a, file, array_of(file, 1, zeros, sizeof zeros - 1, "", 0), &e), &e,
            DS_EFORMAT, "expected integers or floats");
    size_t n = array_of(file, 4, "{}", 2, "", 0);
    t_fails(npy_read(&a, file, n, &e), &e, DS_EFORMAT, "NumPy format 4: unsupported");
    file[6] = 2;
    for (size_t k = 0; k < 14; k++)
        t_fails(npy_read(&a, file, k, &e), &e, DS_EFORMAT,
                k < 10 ? "expected a NumPy array" : "truncated");
    t_fails(npy_read(&a, (const unsigned char *)"PK\3\4______", 10, &e), &e, DS_EFORMAT,
            "expected a NumPy array");
}
