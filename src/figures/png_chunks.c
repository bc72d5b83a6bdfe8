/* Writes PNG files with resolution and recipe, and reads both back; the only user of libpng. */
#include "figures/png_chunks.h"

#include <math.h>
#include <png.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

/* The error callback of libpng must not return: the longjmp stays within this file. */
struct sink {
    struct str *out;
    char text[128];
};

static void on_error(png_structp png, png_const_charp text)
{
    struct sink *s = png_get_error_ptr(png);
    snprintf(s->text, sizeof s->text, "%s", text);
    png_longjmp(png, 1);
}

static void on_warning(png_structp png, png_const_charp text)
{
    (void)png;
    (void)text;
}

static void on_write(png_structp png, png_bytep p, png_size_t n)
{
    struct sink *s = png_get_io_ptr(png);
    str_add_bytes(s->out, p, n);
    if (s->out->failed)
        png_error(png, "out of memory");
}

static void on_flush(png_structp png)
{
    (void)png;
}

static void put_head(png_structp png, png_infop info, int width, int height, double dpi,
                     char *recipe)
{
    static char key[] = PNG_RECIPE_KEY, none[] = "";
    png_text text = {.compression = PNG_ITXT_COMPRESSION_NONE,
                     .key = key,
                     .text = recipe,
                     .lang = none,
                     .lang_key = none};
    /* Level and filter are fixed, so that the bytes do not depend on the defaults of the
     * library. */
    png_set_compression_level(png, 9);
    png_set_filter(png, PNG_FILTER_TYPE_BASE, PNG_FILTER_NONE);
    png_set_IHDR(png, info, (png_uint_32)width, (png_uint_32)height, 8, PNG_COLOR_TYPE_RGB,
                 PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_uint_32 per_metre = (png_uint_32)ceil(dpi / 0.0254 - 1e-9);
    png_set_pHYs(png, info, per_metre, per_metre, PNG_RESOLUTION_METER);
    if (recipe)
        png_set_text(png, info, &text, 1);
    png_write_info(png, info);
}

static void put_rows(png_structp png, const unsigned *rgb, int width, int height,
                     unsigned char *row)
{
    for (int y = 0; y < height; y++) {
        const unsigned *from = rgb + (size_t)y * (size_t)width;
        for (int x = 0; x < width; x++) {
            row[3 * x] = (unsigned char)(from[x] >> 16);
            row[3 * x + 1] = (unsigned char)(from[x] >> 8);
            row[3 * x + 2] = (unsigned char)from[x];
        }
        png_write_row(png, row);
    }
    png_write_end(png, NULL);
}

int pngfile_write(struct str *out, const unsigned *rgb, int width, int height, double dpi,
                  const char *recipe, struct err *e)
{
    struct sink sink = {.out = out};
    int rc = DS_EMEM;
    unsigned char *row = mem_alloc((size_t)width, 3);
    char *copy = recipe ? mem_strdup(recipe) : NULL;
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, &sink, on_error, on_warning);
    png_infop info = png ? png_create_info_struct(png) : NULL;

    if (!row || !info || (recipe && !copy)) {
        err_set(e, rc, "PNG: out of memory");
        goto out;
    }
    if (setjmp(png_jmpbuf(png))) {
        rc = err_set(e, out->failed ? DS_EMEM : DS_EFORMAT, "PNG: %s", sink.text);
        goto out;
    }
    png_set_write_fn(png, &sink, on_write, on_flush);
    put_head(png, info, width, height, dpi, copy);
    put_rows(png, rgb, width, height, row);
    rc = 0;
out:
    if (png)
        png_destroy_write_struct(&png, &info);
    mem_free(row);
    mem_free(copy);
    return rc;
}

/* ---- reading: without libpng, since only three chunks matter and the bytes are untrusted
 * ----------- */

static unsigned long be32(const unsigned char *p)
{
    return (unsigned long)p[0] << 24 | (unsigned long)p[1] << 16 | (unsigned long)p[2] << 8 | p[3];
}

/* keyword NUL compressed method language NUL translated NUL text; only uncompressed text is
 * written. / */
static void take_text(struct pngfile *info, const unsigned char *p, size_t n)
{
    size_t key = strlen(PNG_RECIPE_KEY) + 1;
    if (n < key + 4 || memcmp(p, PNG_RECIPE_KEY, key) != 0 || p[key] != 0)
        return;
    const unsigned char *at = p + key + 2, *end = p + n;
    for (int skip = 0; skip < 2; skip++) {
        at = memchr(at, 0, (size_t)(end - at));
        if (!at)
            return;
        at++;
    }
    str_reset(&info->recipe);
    str_add_bytes(&info->recipe, at, (size_t)(end - at));
}

static void take_chunk(struct pngfile *info, const unsigned char *type, const unsigned char *p,
                       size_t n)
{
    if (memcmp(type, "IHDR", 4) == 0 && n >= 8) {
        info->width = (unsigned)be32(p);
        info->height = (unsigned)be32(p + 4);
    } else if (memcmp(type, "pHYs", 4) == 0 && n == 9 && p[8] == 1) {
        info->per_metre_x = be32(p);
        info->per_metre_y = be32(p + 4);
    } else if (memcmp(type, "iTXt", 4) == 0)
        take_text(info, p, n);
}

int pngfile_read(struct pngfile *info, const void *data, size_t n, const char *what, struct err *e)
{
    static const unsigned char magic[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
    const unsigned char *p = data;
    struct pngfile got = {0};
    if (n < 8 || memcmp(p, magic, 8) != 0)
        return err_set(e, DS_EFORMAT, "%s: not a PNG file", what);
    for (size_t at = 8;;) {
        if (n - at < 12)
            goto cut;
        unsigned long len = be32(p + at);
        if (len > n - at - 12)
            goto cut;
        if (memcmp(p + at + 4, "IEND", 4) == 0)
            break;
        take_chunk(&got, p + at + 4, p + at + 8, len);
        at += 12 + len;
    }
    if (got.recipe.failed) {
        str_release(&got.recipe);
        return err_set(e, DS_EMEM, "%s: recipe: out of memory", what);
    }
    *info = got;
    return 0;
cut:
    str_release(&got.recipe);
    return err_set(e, DS_EFORMAT, "%s: truncated PNG", what);
}
