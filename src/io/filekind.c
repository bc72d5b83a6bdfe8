/* Recognises file types by their magic bytes, for error messages about misnamed files. */
#include "io/filekind.h"

#include <stdint.h>
#include <string.h>

#include "base/compiler.h"

#define PICKLE "a pickle file (it can execute code and is not loaded; convert it to safetensors)"

#define PAGE "an HTML page (a failed download?)"
#define NO_PAGE "an error message (a failed download?)"
#define OLD_GGML "a pre-GGUF GGML file (convert it with the program that wrote it)"

enum { HEADER_MAX = 64 << 20 };

static const struct {
    const char *magic;
    size_t n;
    const char *what;
} kinds[] = {
    // clang-format off
    {"GGUF", 4, "a GGUF file"},
    {"lmgg", 4, OLD_GGML},
    {"fmgg", 4, OLD_GGML},
    {"tjgg", 4, OLD_GGML},
    {"\x80\2", 2, PICKLE},
    {"\x80\3", 2, PICKLE},
    {"\x80\4", 2, PICKLE},
    {"\x80\5", 2, PICKLE},
    {"PK\3\4", 4, "a zip file (PyTorch .pt and .bin files are pickles, which can execute code and are not loaded; convert it to safetensors)"},
    {"PK\5\6", 4, "an empty zip file"},
    {"\x89HDF", 4, "an HDF5 file"},
    {"\x93NUMPY", 6, "a NumPy array"},
    {"Entry not found", 15, NO_PAGE},
    {"Invalid username or password", 28, NO_PAGE},
    {"Access to model", 15, NO_PAGE},
    {"version https://git-lfs", 23, "a git-lfs pointer (run git lfs pull to fetch the file)"},
    {"\x1f\x8b", 2, "a gzip file"},
    {"\x28\xb5\x2f\xfd", 4, "a zstd file"},
    {"\xfd" "7zXZ", 5, "an xz file"},
    {"BZh", 3, "a bzip2 file"},
    {"\x7f" "ELF", 4, "an ELF executable"},
    // clang-format on
};

static int begins(const unsigned char *p, size_t n, const char *word)
{
    size_t i = 0;
    for (; word[i]; i++)
        if (i >= n || (p[i] | (p[i] >= 'A' && p[i] <= 'Z' ? 0x20 : 0)) != (unsigned char)word[i])
            return 0;
    return 1;
}

/* HTML and other text, after white space and a byte order mark, in either case. */
static const char *text_kind(const unsigned char *p, size_t n)
{
    size_t at = n >= 3 && memcmp(p, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    while (at < n && (p[at] == ' ' || (p[at] >= '\t' && p[at] <= '\r')))
        at++;
    p += at;
    n -= at;
    if (begins(p, n, "<!doctype") || begins(p, n, "<html") || begins(p, n, "<head") ||
        begins(p, n, "<!--"))
        return PAGE;
    if (begins(p, n, "<?xml"))
        return "an XML page (a failed download?)";
    return n > 1 && p[0] == '{' && strchr("\"\n\r\t }", p[1]) ? "JSON text" : NULL;
}

static int is_safetensors(const unsigned char *p, size_t n)
{
    uint64_t length = 0;
    for (int i = 7; i >= 0 && n >= 10; i--)
        length = length << 8 | p[i];
    return n >= 10 && length >= 2 && length <= HEADER_MAX && length <= n - 8 && p[8] == '{' &&
           (p[9] == '"' || p[9] == '}');
}

/* A mark of byte order, then ASCII; the mark alone may be the low bytes of a number. */
static int is_utf16(const unsigned char *p, size_t n)
{
    int is_little = n >= 6 && p[0] == 0xFF && p[1] == 0xFE;
    int is_big = n >= 6 && p[0] == 0xFE && p[1] == 0xFF;
    if (!is_little && !is_big)
        return 0;
    for (size_t i = 2; i < 6; i += 2)
        if (p[i + (size_t)is_little] != 0 || p[i + (size_t)is_big] < 9 ||
            p[i + (size_t)is_big] > 126)
            return 0;
    return 1;
}

const char *file_kind(const unsigned char *p, size_t n)
{
    if (is_utf16(p, n))
        return "UTF-16 text (convert it to UTF-8)";
    if (is_safetensors(p, n)) /* first: a header length may begin like a pickle */
        return "a safetensors file";
    for (size_t i = 0; i < DS_LEN(kinds); i++)
        if (n >= kinds[i].n && memcmp(p, kinds[i].magic, kinds[i].n) == 0)
            return kinds[i].what;
    return text_kind(p, n);
}
