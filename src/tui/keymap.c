/* Key names, matching of key sequences, and the help texts generated from the tables. */
#include "tui/keymap.h"

#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "base/utf8.h"
#include "tui/view.h"

static const struct {
    const char *name;
    uint32_t code;
} names[] = {
    {"Up", KEYCODE_UP},
    {"Down", KEYCODE_DOWN},
    {"Left", KEYCODE_LEFT},
    {"Right", KEYCODE_RIGHT},
    {"Home", KEYCODE_HOME},
    {"End", KEYCODE_END},
    {"PgUp", KEYCODE_PGUP},
    {"PgDn", KEYCODE_PGDN},
    {"Ins", KEYCODE_INSERT},
    {"Del", KEYCODE_DELETE},
    {"Backspace", KEYCODE_BACKSPACE},
    {"Tab", KEYCODE_TAB},
    {"S-Tab", KEYCODE_BACKTAB},
    {"Enter", KEYCODE_ENTER},
    {"Esc", KEYCODE_ESC},
    {"Space", ' '},
};

static uint32_t parse_plain(const char *name, size_t n)
{
    for (size_t i = 0; i < DS_LEN(names); i++)
        if (strlen(names[i].name) == n && memcmp(names[i].name, name, n) == 0)
            return names[i].code;
    if (n >= 2 && n <= 3 && name[0] == 'F' && name[1] >= '1' && name[1] <= '9') {
        int f = n == 2 ? name[1] - '0' : (name[1] - '0') * 10 + (name[2] - '0');
        return f >= 1 && f <= 12 ? (uint32_t)(KEYCODE_F1 + f - 1) : 0;
    }
    uint32_t rune;
    int len = n ? utf8_decode(name, n, &rune) : 0;
    return len > 0 && (size_t)len == n ? rune : 0;
}

uint32_t key_parse(const char *name, size_t n)
{
    uint32_t modifiers = 0;
    while (n > 2 && name[1] == '-' && (name[0] == 'C' || name[0] == 'M')) {
        modifiers |= name[0] == 'C' ? KEYCODE_CTRL : KEYCODE_ALT;
        name += 2;
        n -= 2;
    }
    uint32_t code = parse_plain(name, n);
    return code ? code | modifiers : 0;
}

const char *key_print(char out[24], uint32_t key)
{
    const char *c = key & KEYCODE_CTRL ? "C-" : "", *m = key & KEYCODE_ALT ? "M-" : "";
    uint32_t plain = key & ~(uint32_t)(KEYCODE_CTRL | KEYCODE_ALT | KEYCODE_SHIFT);
    for (size_t i = 0; i < DS_LEN(names); i++) {
        if (names[i].code == plain) {
            snprintf(out, 24, "%s%s%s", c, m, names[i].name);
            return out;
        }
    }
    if (plain >= KEYCODE_F1 && plain <= KEYCODE_F12) {
        snprintf(out, 24, "%s%sF%d", c, m, (int)(plain - KEYCODE_F1 + 1));
        return out;
    }
    char bytes[5] = {0};
    int len = utf8_encode(bytes, plain);
    snprintf(out, 24, "%s%s%.*s", c, m, len, bytes);
    return out;
}

/* One alternative ("gg", "C-d", "PgDn") as a sequence of keys; returns its length. */
static size_t sequence(const char *text, size_t n, uint32_t out[KEYS_PENDING_MAX])
{
    uint32_t whole = key_parse(text, n);
    if (whole) {
        out[0] = whole;
        return 1;
    }
    size_t count = 0;
    for (size_t i = 0; i < n && count < KEYS_PENDING_MAX;) {
        uint32_t rune;
        int len = utf8_decode(text + i, n - i, &rune);
        i += len > 0 ? (size_t)len : 1;
        out[count++] = rune;
    }
    return count;
}

const struct key *keys_match(const struct key *table, const uint32_t *pressed, size_t n,
                             int *is_prefix)
{
    *is_prefix = 0;
    const struct key *found = NULL;
    for (const struct key *k = table; k && k->command; k++) {
        const char *p = k->keys ? k->keys : "";
        while (*p) {
            size_t len = strcspn(p, " ");
            uint32_t want[KEYS_PENDING_MAX];
            size_t count = len ? sequence(p, len, want) : 0;
            if (count >= n && n > 0 && memcmp(want, pressed, n * sizeof *want) == 0) {
                if (count == n && !found)
                    found = k;
                else if (count > n)
                    *is_prefix = 1;
            }
            p += len + (p[len] == ' ');
        }
    }
    return found;
}

const struct key *keys_command(const struct key *table, const char *name, size_t n)
{
    for (const struct key *k = table; k && k->command; k++)
        if (strlen(k->command) == n && memcmp(k->command, name, n) == 0)
            return k;
    return NULL;
}

void keys_label(const struct key *k, char *out, size_t size)
{
    size_t len = k->keys ? strcspn(k->keys, " ") : 0;
    snprintf(out, size, "%.*s", (int)len, k->keys ? k->keys : "");
}

/* Escapes "|", which would end a table cell. */
static void add_cell(struct str *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '|')
            str_add(out, "\\|");
        else
            str_add_char(out, *text);
    }
}

static void add_keys(struct str *out, const char *keys)
{
    for (const char *p = keys ? keys : ""; *p;) {
        size_t len = strcspn(p, " ");
        char one[32];
        snprintf(one, sizeof one, "%.*s", (int)len, p);
        str_add(out, p == keys ? "`" : " `");
        add_cell(out, one);
        str_add(out, "`");
        p += len + (p[len] == ' ');
    }
}

static void markdown_table(struct str *out, const char *title, const char *summary,
                           const struct key *table)
{
    str_addf(out, "### %s\n\n", title);
    if (summary)
        str_addf(out, "%s\n\n", summary);
    if (!table || !table->command)
        return;
    str_add(out, "| keys | command | action |\n|---|---|---|\n");
    for (const struct key *k = table; k->command; k++) {
        str_add(out, "| ");
        add_keys(out, k->keys);
        str_addf(out, " | `:%s%s", k->command, k->args ? " " : "");
        add_cell(out, k->args ? k->args : "");
        str_add(out, "` | ");
        add_cell(out, k->help);
        str_add(out, " |\n");
    }
    str_add_char(out, '\n');
}

static void text_table(struct str *out, const char *title, const char *summary,
                       const struct key *table)
{
    str_addf(out, "%s\n%s%s%s", title, summary ? "  " : "", summary ? summary : "",
             summary ? "\n" : "");
    for (const struct key *k = table; k && k->command; k++) {
        char command[64];
        snprintf(command, sizeof command, ":%s%s%s", k->command, k->args ? " " : "",
                 k->args ? k->args : "");
        str_addf(out, "  %-12s  %-22s  %s\n", k->keys ? k->keys : "", command, k->help);
    }
    str_add_char(out, '\n');
}

void keys_text(struct str *out)
{
    text_table(out, "All views", NULL, keys_global);
    for (size_t i = 0; view_registry[i]; i++)
        text_table(out, view_registry[i]->title, view_registry[i]->summary, view_registry[i]->keys);
}

void keys_markdown(struct str *out)
{
    markdown_table(out, "All views", NULL, keys_global);
    for (size_t i = 0; view_registry[i]; i++)
        markdown_table(out, view_registry[i]->title, view_registry[i]->summary,
                       view_registry[i]->keys);
}
