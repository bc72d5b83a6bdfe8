/* Screens compared with committed files; GENERATE=1 writes them. */
#ifndef DS_TESTS_GOLDEN_H
#define DS_TESTS_GOLDEN_H

#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/str.h"
#include "t.h"

/* Replaces the bar of views (second row of a screen and of its roles), which every new view
 * changes: only the screens that are about the bar keep it. */
static inline void golden_mask_bar(struct str *screen)
{
    struct str out = {0};
    int row = -1, has_bar = 0;
    for (const char *p = str_text(screen); *p;) {
        size_t n = strcspn(p, "\n");
        if (strncmp(p, "== ", 3) == 0 || (n == 8 && strncmp(p, "-- roles", 8) == 0)) {
            has_bar = *p == '-' && has_bar;
            row = -1;
        } else if (++row == 1 && *p == ' ' && strncmp(p, " 1 ", 3) == 0) {
            has_bar = 1;
        }
        if (row == 1 && has_bar)
            str_add(&out, " (views)");
        else
            str_add_bytes(&out, p, n);
        str_add(&out, p[n] ? "\n" : "");
        p += n + (p[n] != '\0');
    }
    str_release(screen);
    *screen = out;
}

static inline void golden_compare(const char *path, struct str *got, int is_about_bar)
{
    struct str want = {0};
    struct err e = {0};
    if (!is_about_bar)
        golden_mask_bar(got);
    if (getenv("GENERATE")) {
        t_ok(fs_write_file(path, got->p, got->len, &e), &e);
        return;
    }
    t_ok(fs_read_file(&want, path, 16 << 20, &e), &e);
    size_t at = 0, line = 1;
    while (at < want.len && at < got->len && want.p[at] == got->p[at])
        line += want.p[at++] == '\n';
    t_truef(want.len == got->len && at == want.len, "%s differs from line %zu on:\n%.1600s", path,
            line, str_text(got));
    str_release(&want);
}

#endif
