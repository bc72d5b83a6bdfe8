/* UTF-8 decoding, cell widths, and sanitising for terminals. */
#define _XOPEN_SOURCE 700 /* wcwidth */
#include "base/utf8.h"

#include <langinfo.h>
#include <locale.h>
#include <pthread.h>
#include <string.h>
#include <utf8proc.h>
#include <wchar.h>

#ifdef DEPTHSCOPE_STATIC
#include <stdlib.h>
#include <strings.h>

#include "base/compiler.h"
#include "base/static.h"
#endif

enum { MARKS_PER_CELL = 3 };

int utf8_decode(const char *s, size_t n, uint32_t *cp)
{
    /* Smallest code point of each length; smaller ones are overlong forms. */
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    unsigned char c = (unsigned char)s[0];
    int len = c < 0x80 ? 1 : c < 0xc2 ? 0 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : c < 0xf5 ? 4 : 0;
    *cp = c;
    if (len <= 1)
        return len;
    if ((size_t)len > n)
        return 0;
    uint32_t x = c & (0x7fu >> len);
    for (int i = 1; i < len; i++) {
        unsigned char d = (unsigned char)s[i];
        if ((d & 0xc0) != 0x80)
            return 0;
        x = x << 6 | (d & 0x3f);
    }
    if (x < least[len] || (x >= 0xd800 && x <= 0xdfff) || x > 0x10ffff)
        return 0;
    *cp = x;
    return len;
}

int utf8_encode(char out[4], uint32_t cp)
{
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xc0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3f));
        return 2;
    }
    if (cp > 0x10ffff || (cp >= 0xd800 && cp <= 0xdfff))
        return 0;
    if (cp < 0x10000) {
        out[0] = (char)(0xe0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3f));
        out[2] = (char)(0x80 | (cp & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3f));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3f));
    out[3] = (char)(0x80 | (cp & 0x3f));
    return 4;
}

size_t utf8_valid(const char *s, size_t n)
{
    size_t i = 0;
    while (i < n) {
        uint32_t cp;
        int len = utf8_decode(s + i, n - i, &cp);
        if (len == 0)
            return i;
        i += (size_t)len;
    }
    return n;
}

static locale_t width_locale; /* (locale_t)0 when the system has no C.UTF-8 */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_locale(void)
{
#ifdef DEPTHSCOPE_STATIC
    width_locale = static_utf8_locale();
#else
    width_locale = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
#endif
}

/* wcwidth in a UTF-8 locale, independent of the process's: layouts, goldens and figures must not
 * change with LANG.  -1 when the C library does not know the code point. */
static int known_width(uint32_t cp)
{
    pthread_once(&once, make_locale);
    if (width_locale == (locale_t)0)
        return utf8proc_charwidth((utf8proc_int32_t)cp);
    locale_t before = uselocale(width_locale);
    int width = wcwidth((wchar_t)cp);
    uselocale(before);
    return width;
}

uint32_t utf8_lower(uint32_t cp)
{
    return (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp);
}

uint32_t utf8_title(uint32_t cp)
{
    return (uint32_t)utf8proc_totitle((utf8proc_int32_t)cp);
}

int utf8_is_mark(uint32_t cp)
{
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
    return c == UTF8PROC_CATEGORY_MN || c == UTF8PROC_CATEGORY_MC || c == UTF8PROC_CATEGORY_ME;
}

int utf8_breaks_between(uint32_t a, uint32_t b, int32_t *state)
{
    return utf8proc_grapheme_break_stateful((utf8proc_int32_t)a, (utf8proc_int32_t)b, state);
}

int utf8_width(uint32_t cp)
{
    if (cp >= 0x20 && cp < 0x7f)
        return 1;
    if (cp < 0xa0 || cp > 0x10ffff)
        return 0;
    int width = known_width(cp);
    return width < 0 ? 1 : width;
}

int utf8_cells(const char *s, size_t n)
{
    int cells = 0;
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        int len = utf8_decode(s + i, n - i, &cp);
        cells += len ? utf8_width(cp) : 1;
        i += len ? (size_t)len : 1;
    }
    return cells;
}

static int is_bidi_control(uint32_t cp)
{
    return cp == 0x61c || cp == 0x200e || cp == 0x200f || (cp >= 0x202a && cp <= 0x202e) ||
           (cp >= 0x2066 && cp <= 0x2069);
}

/* Invisible code points that only affect their neighbours. */
static int is_dropped(uint32_t cp)
{
    return (cp >= 0x200b && cp <= 0x200d) || cp == 0x2060 || cp == 0xfeff || cp == 0x34f ||
           (cp >= 0x180b && cp <= 0x180f) || (cp >= 0xfe00 && cp <= 0xfe0f) ||
           (cp >= 0xe0000 && cp <= 0xe007f) || (cp >= 0xe0100 && cp <= 0xe01ef);
}

int utf8_is_hidden(uint32_t cp)
{
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)cp);
    return is_dropped(cp) || category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF ||
           category == UTF8PROC_CATEGORY_ZL || category == UTF8PROC_CATEGORY_ZP;
}

/* Treatment of one code point: unchanged, dropped, or escaped. */
enum display { SHOW, DROP, NAME, NAME_BARE };

static enum display display_of(uint32_t cp)
{
    if (is_dropped(cp))
        return DROP;
    if (is_bidi_control(cp))
        return NAME;
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return NAME;
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CS: return NAME_BARE;
    default: return known_width(cp) < 0 ? NAME_BARE : SHOW;
    }
}

struct sanitiser {
    struct str *out;
    int ascii, marks; /* marks on the current cell */
    int has_base;     /* this text has a cell that a mark can attach to */
};

/* Appends one unit (a code point or an invalid byte at s); returns its length and the cells it
 * takes. */
static size_t add_unit(struct sanitiser *z, const char *s, size_t n, int *cells)
{
    uint32_t cp;
    int len = utf8_decode(s, n, &cp);
    size_t before = z->out->len;
    enum display display = len > 1 ? display_of(cp) : SHOW;
    if (len == 1 && (cp == '\n' || cp == '\t')) {
        str_add(z->out, cp == '\n' ? "\\n" : "\\t");
    } else if (len == 0 || cp < 0x20 || cp == 0x7f) {
        str_addf(z->out, "<0x%02X>", (unsigned)cp);
    } else if (display == NAME || (z->ascii && len > 1 && display == SHOW)) {
        str_addf(z->out, "<U+%04X>", (unsigned)cp);
    } else if (display == NAME_BARE) {
        str_addf(z->out, "U+%04X", (unsigned)cp);
    } else if (display == SHOW && utf8_width(cp) == 0) {
        *cells = !z->has_base; /* a mark without a base would attach to preceding text */
        if (!z->has_base)
            str_add(z->out, "\xe2\x97\x8c");
        z->has_base = 1;
        if (z->marks++ < MARKS_PER_CELL)
            str_add_bytes(z->out, s, (size_t)len);
        return (size_t)len;
    } else if (display == SHOW) {
        str_add_bytes(z->out, s, (size_t)len);
        *cells = utf8_width(cp);
        z->marks = 0;
        z->has_base = 1;
        return (size_t)len;
    }
    *cells = (int)(z->out->len - before); /* an escape is ASCII */
    if (*cells) {
        z->marks = 0;
        z->has_base = 1;
    }
    return len ? (size_t)len : 1;
}

static void cut_to(struct str *out, size_t len)
{
    out->len = len;
    if (out->p)
        out->p[len] = '\0';
}

void utf8_sanitise(struct str *out, const char *s, size_t n, int max_cells, int ascii)
{
    struct sanitiser z = {.out = out, .ascii = ascii};
    const char *mark = ascii ? ".." : "\xe2\x80\xa6";
    int mark_cells = ascii ? 2 : 1;
    long used = 0;
    size_t fits = out->len; /* end of the text that leaves room for the ellipsis */
    for (size_t i = 0; i < n && !out->failed;) {
        int cells = 0;
        i += add_unit(&z, s + i, n - i, &cells);
        used += cells;
        if (max_cells >= 0 && used > max_cells) {
            cut_to(out, fits);
            str_add_bytes(out, mark, max_cells >= mark_cells ? strlen(mark) : (size_t)max_cells);
            return;
        }
        if (used <= (long)max_cells - mark_cells)
            fits = out->len;
    }
}

void utf8_scrub(char *text)
{
    size_t n = strlen(text), to = 0;
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        int len = utf8_decode(text + i, n - i, &cp);
        size_t step = len > 0 ? (size_t)len : 1;
        enum display display = len > 1 ? display_of(cp) : SHOW;
        if (len == 1 && (cp == '\n' || cp == '\t'))
            memset(text + to, ' ', step);
        else if (len == 0 || cp < 0x20 || cp == 0x7f || display == NAME)
            memset(text + to, '?', step);
        else
            memmove(text + to, text + i, step);
        to += display == DROP ? 0 : step;
        i += step;
    }
    text[to] = '\0';
}

#ifdef DEPTHSCOPE_STATIC
/* 1 for names such as de_DE.UTF-8, C.utf8 and en_US.UTF-8@euro. */
static int names_utf8(const char *locale)
{
    const char *set = strchr(locale, '.');
    size_t n = set ? strcspn(set, "@") : 0;
    return (n == 6 && strncasecmp(set, ".UTF-8", n) == 0) ||
           (n == 5 && strncasecmp(set, ".utf8", n) == 0);
}

/* Only UTF-8 and ASCII: what the host has for other character sets would be loaded from its files. */
void utf8_locale_begin(void)
{
    const char *const variable[] = {"LC_ALL", "LC_CTYPE", "LANG"}, *name = NULL;
    for (size_t i = 0; i < DS_LEN(variable) && !(name && *name); i++)
        name = getenv(variable[i]);
    pthread_once(&once, make_locale);
    if (name && names_utf8(name) && width_locale != (locale_t)0)
        uselocale(width_locale);
}
#else
/* With any other character set text is ASCII: letters beyond it would be found in UTF-8 data. */
void utf8_locale_begin(void)
{
    if (setlocale(LC_CTYPE, "") && !utf8_locale_is_utf8())
        setlocale(LC_CTYPE, "C");
}
#endif

int utf8_locale_is_utf8(void)
{
    return strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
}
