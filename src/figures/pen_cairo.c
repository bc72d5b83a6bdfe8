/* The cairo pen: PNG, SVG, PDF and pixels; the only file that uses cairo. */
#include "figures/pen.h"

#include <cairo-pdf.h>
#include <cairo-svg.h>
#include <cairo.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "figures/png_chunks.h"

struct pen_cairo {
    struct pen pen;
    cairo_t *cr;
};

static cairo_t *cr_of(struct pen *p)
{
    return ((struct pen_cairo *)p)->cr;
}

static void c_move(struct pen *p, double x, double y)
{
    cairo_move_to(cr_of(p), x, y);
}

static void c_line(struct pen *p, double x, double y)
{
    cairo_line_to(cr_of(p), x, y);
}

static void c_curve(struct pen *p, const double v[6])
{
    cairo_curve_to(cr_of(p), v[0], v[1], v[2], v[3], v[4], v[5]);
}

static void c_close(struct pen *p)
{
    cairo_close_path(cr_of(p));
}

static void c_rect(struct pen *p, double x, double y, double w, double h)
{
    cairo_rectangle(cr_of(p), x, y, w, h);
}

/* Four cubics rather than cairo_arc, whose number of segments depends on the resolution. */
static void c_circle(struct pen *p, double x, double y, double r)
{
    cairo_t *cr = cr_of(p);
    double k = r * 0.5522847498;
    cairo_move_to(cr, x + r, y);
    cairo_curve_to(cr, x + r, y + k, x + k, y + r, x, y + r);
    cairo_curve_to(cr, x - k, y + r, x - r, y + k, x - r, y);
    cairo_curve_to(cr, x - r, y - k, x - k, y - r, x, y - r);
    cairo_curve_to(cr, x + k, y - r, x + r, y - k, x + r, y);
    cairo_close_path(cr);
}

static void c_stroke(struct pen *p)
{
    cairo_stroke(cr_of(p));
}

static void c_fill(struct pen *p)
{
    cairo_fill(cr_of(p));
}

static void c_clip(struct pen *p)
{
    cairo_clip(cr_of(p));
}

static void c_save(struct pen *p)
{
    cairo_save(cr_of(p));
}

static void c_restore(struct pen *p)
{
    cairo_restore(cr_of(p));
}

static void c_width(struct pen *p, double w)
{
    cairo_set_line_width(cr_of(p), w);
}

/* Dashes have flat ends: with round ones short gaps close up. */
static void c_dash(struct pen *p, const double *len, int n)
{
    cairo_set_dash(cr_of(p), len, n, 0);
    cairo_set_line_cap(cr_of(p), n > 0 ? CAIRO_LINE_CAP_BUTT : CAIRO_LINE_CAP_ROUND);
}

static void c_colour(struct pen *p, int rgb, double alpha)
{
    cairo_set_source_rgba(cr_of(p), (rgb >> 16 & 255) / 255.0, (rgb >> 8 & 255) / 255.0,
                          (rgb & 255) / 255.0, alpha);
}

static const struct pen_ops cairo_ops = {
    .move = c_move,
    .line = c_line,
    .curve = c_curve,
    .close = c_close,
    .rect = c_rect,
    .circle = c_circle,
    .stroke = c_stroke,
    .fill = c_fill,
    .clip = c_clip,
    .save = c_save,
    .restore = c_restore,
    .width = c_width,
    .dash = c_dash,
    .colour = c_colour,
};

static int status_of(cairo_t *cr, cairo_surface_t *s, struct err *e)
{
    cairo_status_t st = cairo_status(cr);
    if (st == CAIRO_STATUS_SUCCESS)
        st = cairo_surface_status(s);
    if (st == CAIRO_STATUS_SUCCESS)
        return 0;
    return err_set(e, st == CAIRO_STATUS_NO_MEMORY ? DS_EMEM : DS_ERANGE, "cairo: %s",
                   cairo_status_to_string(st));
}

/* Draws the page; a rejected coordinate is an error, because something would be missing. */
static int draw_page(const struct pen_list *l, cairo_surface_t *s, double scale,
                     const struct pen_page *page, int background, struct err *e)
{
    struct pen_cairo p = {.pen.ops = &cairo_ops, .cr = cairo_create(s)};
    cairo_scale(p.cr, scale, scale);
    cairo_set_antialias(p.cr, CAIRO_ANTIALIAS_BEST);
    cairo_set_line_join(p.cr, CAIRO_LINE_JOIN_ROUND);
    cairo_set_line_cap(p.cr, CAIRO_LINE_CAP_ROUND);
    if (background >= 0) {
        c_colour(&p.pen, background, 1);
        cairo_rectangle(p.cr, 0, 0, page->w + 1, page->h + 1);
        cairo_fill(p.cr);
    }
    pen_list_replay(l, &p.pen);
    cairo_show_page(p.cr);
    int rc = status_of(p.cr, s, e);
    if (rc == 0 && p.pen.failed)
        rc = err_set(e, DS_EMEM, "out of memory for the texts");
    if (rc == 0 && p.pen.bad > 0)
        rc = err_set(e, DS_ENUMERIC, "%zu coordinates are not finite", p.pen.bad);
    cairo_destroy(p.cr);
    return rc;
}

int pen_cairo_pixels(const struct pen_list *l, const struct pen_page *page, unsigned **rgb,
                     int *width, int *height, struct err *e)
{
    double scale = page->dpi / 72;
    double pw = ceil(page->w * scale - 1e-6), ph = ceil(page->h * scale - 1e-6);
    if (!(pw >= 1 && ph >= 1 && pw <= 16384 && ph <= 16384))
        return err_set(e, DS_ERANGE,
                       "image of %.0f x %.0f pixels: must be between 1 and 16384 per side", pw, ph);
    int cols = (int)pw, rows = (int)ph;
    cairo_surface_t *s = cairo_image_surface_create(CAIRO_FORMAT_RGB24, cols, rows);
    unsigned *out = mem_alloc((size_t)cols * (size_t)rows, sizeof *out);
    int rc =
        out ? draw_page(l, s, scale, page, page->background < 0 ? 0xFFFFFF : page->background, e)
            : err_set(e, DS_EMEM, "image of %d x %d pixels: out of memory", cols, rows);
    if (rc < 0)
        goto out;
    cairo_surface_flush(s);
    const unsigned char *from = cairo_image_surface_get_data(s);
    int stride = cairo_image_surface_get_stride(s);
    for (int y = 0; y < rows; y++) {
        unsigned *to = out + (size_t)y * (size_t)cols;
        memcpy(to, from + (size_t)y * (size_t)stride, (size_t)cols * sizeof *to);
        for (int x = 0; x < cols; x++)
            to[x] &= 0xFFFFFF;
    }
    *rgb = out;
    *width = cols;
    *height = rows;
    out = NULL;
out:
    mem_free(out);
    cairo_surface_destroy(s);
    return rc;
}

static cairo_status_t sink(void *ctx, const unsigned char *p, unsigned n)
{
    struct str *out = ctx;
    str_add_bytes(out, p, n);
    return out->failed ? CAIRO_STATUS_NO_MEMORY : CAIRO_STATUS_SUCCESS;
}

static int write_png(const struct pen_list *l, const struct pen_page *page, struct str *out,
                     struct err *e)
{
    unsigned *rgb = NULL;
    int cols, rows, rc = pen_cairo_pixels(l, page, &rgb, &cols, &rows, e);
    if (rc == 0)
        rc = pngfile_write(out, rgb, cols, rows, page->dpi, page->recipe, e);
    mem_free(rgb);
    return rc;
}

/* A PDF stores its creation date; a fixed one makes the bytes reproducible. */
static void pdf_metadata(cairo_surface_t *s, const char *recipe)
{
    cairo_pdf_surface_set_metadata(s, CAIRO_PDF_METADATA_CREATE_DATE, "2000-01-01T00:00:00Z");
    cairo_pdf_surface_set_metadata(s, CAIRO_PDF_METADATA_CREATOR, "depthscope");
    if (recipe)
        cairo_pdf_surface_set_metadata(s, CAIRO_PDF_METADATA_SUBJECT, recipe);
}

/* Cairo names SVG groups by a process-wide counter ("surface7"): drops the number, so that the
 * bytes are reproducible. */
static void copy_svg(struct str *out, const struct str *svg)
{
    static const char word[] = "surface";
    const char *at = str_text(svg), *hit;
    while ((hit = strstr(at, word)) != NULL) {
        hit += sizeof word - 1;
        str_add_bytes(out, at, (size_t)(hit - at));
        at = hit + strspn(hit, "0123456789");
    }
    str_add(out, at);
    out->failed |= svg->failed;
}

static int write_vector(const struct pen_list *l, enum pen_format format,
                        const struct pen_page *page, struct str *out, struct err *e)
{
    double w = page->w, h = page->h;
    cairo_surface_t *s = format == PEN_SVG ? cairo_svg_surface_create_for_stream(sink, out, w, h)
                                           : cairo_pdf_surface_create_for_stream(sink, out, w, h);
    if (format == PEN_PDF)
        pdf_metadata(s, page->recipe);
    int rc = draw_page(l, s, 1, page, page->background, e);
    cairo_surface_finish(s);
    if (out->failed) /* cairo says only that its stream cannot be written */
        rc = err_set(e, DS_EMEM, "cairo: out of memory for the file");
    else if (rc == 0 && cairo_surface_status(s) != CAIRO_STATUS_SUCCESS)
        rc = err_set(e, DS_EIO, "cairo: %s", cairo_status_to_string(cairo_surface_status(s)));
    cairo_surface_destroy(s);
    return rc;
}

int pen_cairo_write(const struct pen_list *l, enum pen_format format, const struct pen_page *page,
                    struct str *out, struct err *e)
{
    struct str svg = {0};
    if (format == PEN_PNG)
        return write_png(l, page, out, e);
    if (!(page->w >= 1 && page->h >= 1 && page->w <= 14400 && page->h <= 14400))
        return err_set(e, DS_ERANGE, "page of %.0f x %.0f points: unsupported size", page->w,
                       page->h);
    if (format == PEN_PDF)
        return write_vector(l, format, page, out, e);
    int rc = write_vector(l, format, page, &svg, e);
    if (rc == 0)
        copy_svg(out, &svg);
    str_release(&svg);
    return rc == 0 && out->failed ? err_set(e, DS_EMEM, "cairo: out of memory for the file") : rc;
}

static const char *const format_name[] = {[PEN_PNG] = "png", [PEN_SVG] = "svg", [PEN_PDF] = "pdf"};

int pen_format_find(const char *name, size_t len)
{
    for (size_t i = 0; i < DS_LEN(format_name); i++)
        if (strlen(format_name[i]) == len && strncmp(format_name[i], name, len) == 0)
            return (int)i;
    return -1;
}

const char *pen_format_name(enum pen_format format)
{
    return format_name[format];
}

const char *pen_cairo_version(void)
{
    return cairo_version_string();
}
