/* Arbitrary conditions of `inspect --until`, and names of keys: an error in one line, or clauses in bounds whose answer for
 * an empty run does not change. */
#include "cli/inspect/until.h"
#include "tui/keymap.h"

#include "kit.h"

static void condition(const char *text)
{
    static struct until u;
    struct err e = {0};
    int rc = until_parse(&u, text, &e);
    need_line(rc, &e);
    if (rc < 0)
        return;
    need(u.n >= 0 && u.n <= UNTIL_MAX);
    for (int i = 0; i < u.n; i++)
        need(memchr(u.clause[i].key, 0, UNTIL_KEY_MAX) &&
             memchr(u.clause[i].value, 0, UNTIL_VALUE_MAX) && u.clause[i].alternative >= 0);
}

static void key(const char *text, size_t n)
{
    char name[24];
    uint32_t code = key_parse(text, n);
    if (code)
        need(strlen(key_print(name, code)) < sizeof name);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    need(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    condition(text);
    key(text, size);
    free(text);
    return 0;
}
