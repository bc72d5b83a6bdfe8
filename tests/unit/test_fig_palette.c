/* Themes, roles and colour maps. */
#include "t.h"

#include "base/fs.h"
#include "base/str.h"
#include "figures/palette.h"

static int parse(struct theme *t, const char *text, struct str *warnings)
{
    struct err e = {0};
    theme_default(t);
    return theme_parse(t, text, strlen(text), "x.theme", warnings, &e);
}

T(roles_are_found_by_name_and_back)
{
    for (int i = 0; i < ROLE_COUNT; i++)
        t_eq(role_find(role_name((enum role)i)), i);
    t_eq(role_find("series.3"), ROLE_SERIES_3);
    t_eq(role_find("nonsense"), -1);
}

T(a_colour_has_number_name_and_attributes)
{
    struct theme t;
    t_eq(parse(&t,
               "inherit = dark\npalette.ink = #102030\ntext = ink ansi blue bold underline  # why\n"
               "cursor = bright-red reverse\ngood = #abc\nbad = default dim\n",
               NULL),
         0);
    t_eq(t.role[ROLE_TEXT].rgb, 0x102030);
    t_eq(t.role[ROLE_TEXT].ansi, 4);
    t_true(t.role[ROLE_TEXT].bold && t.role[ROLE_TEXT].underline && !t.role[ROLE_TEXT].reverse);
    t_eq(t.role[ROLE_CURSOR].rgb, -1);
    t_eq(t.role[ROLE_CURSOR].ansi, 9);
    t_eq(colour_rgb(&t.role[ROLE_CURSOR], 0), 0xF14C4C);
    t_eq(t.role[ROLE_GOOD].rgb, 0xAABBCC);
    t_eq(t.role[ROLE_BAD].rgb, -1);
    t_eq(colour_rgb(&t.role[ROLE_BAD], 0x123), 0x123);
}

T(malformed_lines_are_warnings_with_their_line_number)
{
    static const struct {
        const char *line, *part;
    } bad[] = {
        {"text = #12345g", "x.theme:2: unknown colour or attribute \"#12345g\""},
        {"text = #12", "colour or attribute \"#12\""},
        {"text =", "missing colour"},
        {"text = red ansi", "missing colour"},
        {"text = red ansi 16", "colour or attribute \"16\""},
        {"text = red blink", "unknown colour or attribute \"blink\""},
        {"texf = red", "unknown key \"texf\", did you mean text?"},
        {"what", "expected key = value"},
        {"kind = bright", "kind = bright: expected light or dark"},
        {"map.sequential = jet", "unknown colour map \"jet\""},
        {"completely.unknown.key = red", "unknown key"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct theme t;
        struct str w = {0};
        char text[200];
        snprintf(text, sizeof text, "inherit = dark\n%s\n", bad[i].line);
        t_eq(parse(&t, text, &w), 0);
        t_truef(strstr(str_text(&w), bad[i].part) != NULL, "\"%s\" gave \"%s\"", bad[i].line,
                str_text(&w));
        struct theme dark;
        theme_default(&dark);
        t_eq(t.role[ROLE_TEXT].rgb, dark.role[ROLE_TEXT].rgb);
        str_release(&w);
    }
}

T(missing_roles_are_named_unless_inherited)
{
    struct theme t;
    struct str w = {0};
    parse(&t, "text = red\n", &w);
    t_true(strstr(str_text(&w), "missing role \"series.7\"") != NULL);
    str_release(&w);
    w = (struct str){0};
    parse(&t, "inherit = light\ntext = red\n", &w);
    t_str(str_text(&w), "");
    t_eq(t.is_light, 1);
    str_release(&w);
}

T(what_a_theme_inherits_replaces_nothing_of_its_own)
{
    struct theme t;
    struct str w = {0};
    parse(&t, "text = #102030\nmap.sequential = magma\ninherit = light\n", &w);
    t_str(str_text(&w), "");
    t_eq(t.role[ROLE_TEXT].rgb, 0x102030);
    t_str(t.sequential, "magma");
    t_eq(t.is_light, 1);
    str_release(&w);
}

T(a_theme_that_inherits_itself_is_refused)
{
    struct theme t;
    struct err e = {0};
    const char *dir = t_tmpdir();
    char path[512], text[600];
    snprintf(path, sizeof path, "%s/loop.theme", dir);
    snprintf(text, sizeof text, "inherit = %s\n", path);
    t_ok(fs_write_file(path, text, strlen(text), &e), &e);
    t_fails(theme_load(&t, path, NULL, &e), &e, DS_EFORMAT, "inherit: circular");
    t_fails(theme_load(&t, "no-such-theme", NULL, &e), &e, DS_ENOTFOUND, "no-such-theme");
}

T(shipped_themes_load_without_a_warning_and_match_the_built_in_ones)
{
    static const char *const names[] = {"dark", "light", "high-contrast", "colour-blind",
                                        "16-colour"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct theme t, built;
        struct str w = {0};
        struct err e = {0};
        char path[64];
        snprintf(path, sizeof path, "themes/%s.theme", names[i]);
        t_ok(theme_load(&t, path, &w, &e), &e);
        t_str(str_text(&w), "");
        t_str(t.name, names[i]);
        str_release(&w);
        if (i > 1)
            continue;
        if (i == 0)
            theme_default(&built);
        else
            theme_default_light(&built);
        for (int r = 0; r < ROLE_COUNT; r++) {
            t_truef(t.role[r].rgb == built.role[r].rgb, "%s %s", names[i], role_name((enum role)r));
            t_truef(built.role[r].ansi < 0 || t.role[r].ansi == built.role[r].ansi, "%s %s",
                    names[i], role_name((enum role)r));
            t_eq(t.role[r].bold, built.role[r].bold);
        }
    }
}

T(themes_are_listed_sorted_without_duplicates)
{
    char **names;
    size_t n;
    struct err e = {0};
    t_ok(theme_list(&names, &n, &e), &e);
    t_true(n >= 2);
    for (size_t i = 1; i < n; i++)
        t_true(strcmp(names[i - 1], names[i]) < 0);
    fs_list_free(names, n);
}

T(colour_maps_are_clamped_and_nan_has_no_colour)
{
    t_eq(cmap_rgb("viridis", 0), 0x440154);
    t_eq(cmap_rgb("viridis", 1), 0xFDE725);
    t_eq(cmap_rgb("viridis", -5), 0x440154);
    t_eq(cmap_rgb("viridis", 1e300), 0xFDE725);
    t_eq(cmap_rgb("viridis", (double)NAN), -1);
    t_eq(cmap_rgb("none", 0), 0x440154);
    t_true(cmap_known("magma") && !cmap_known("none") && !cmap_known(NULL));
}

static double luma(int rgb)
{
    return 0.2126 * (rgb >> 16 & 255) + 0.7152 * (rgb >> 8 & 255) + 0.0722 * (rgb & 255);
}

T(lightness_of_sequential_maps_is_monotonic)
{
    static const char *const maps[] = {"viridis", "cividis", "magma", "grey"};
    for (size_t m = 0; m < sizeof maps / sizeof *maps; m++)
        for (int i = 1; i <= 100; i++)
            t_true(luma(cmap_rgb(maps[m], i / 100.0)) >=
                   luma(cmap_rgb(maps[m], (i - 1) / 100.0)) - 1);
}
