/* Arbitrary bytes as a PNG, or, when they do not begin as one, as the recipe in a PNG: a one-line error, or a recipe whose
 * runs and settings are all there.  What was written is what is read. */
#include "base/mem.h"
#include "figures/figure.h"
#include "figures/png_chunks.h"

#include "kit.h"

static void read_recipe(const void *png, size_t n)
{
    struct figure_recipe r;
    struct err e = {0};
    int rc = figure_recipe_read(&r, png, n, "input", &e);
    need_line(rc, &e);
    if (rc < 0)
        return;
    need(r.name && r.venue && r.theme && r.data_hash && r.runs >= 1 && r.probe >= -1);
    for (int i = 0; i < r.runs; i++)
        need(r.path[i] && r.run[i]);
    figure_recipe_release(&r);
}

static void wrap(const char *text)
{
    static const unsigned pixels[2] = {0xff0000, 0x00ff00};
    struct str png = {0};
    struct pngfile info;
    struct err e = {0};
    need(pngfile_write(&png, pixels, 2, 1, 300, text, &e) == 0);
    need(pngfile_read(&info, png.p, png.len, "input", &e) == 0);
    need(info.width == 2 && info.height == 1 && info.per_metre_x == 11812);
    need(strcmp(str_text(&info.recipe), text) == 0);
    str_release(&info.recipe);
    read_recipe(png.p, png.len);
    for (size_t cut = 0; cut < png.len; cut += 1 + png.len / 16)
        need(pngfile_read(&info, png.p, cut, "input", &e) < 0);
    str_release(&png);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 0 && data[0] == 0x89) {
        read_recipe(data, size);
        return 0;
    }
    char *text = mem_alloc(size + 1, 1);
    need(text != NULL);
    memcpy(text, data, size);
    wrap(text);
    mem_free(text);
    return 0;
}
