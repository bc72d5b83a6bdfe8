/* Arbitrary headers of a server (first byte even) as curl passes them on, and an arbitrary table of
 * known files (odd), as `depthscope get` reads them. */
#include "cli/get/get_fetch.c"

#include "cli/commands.h"
#include "kit.h"

/* Those of the program are in its main file. */
const struct command commands[] = {{.name = NULL}};

int command_fail(const struct err *e)
{
    return e->code ? 1 : 0;
}

static void headers(const uint8_t *p, size_t n)
{
    static const char *const name[] = {"x-linked-etag", "x-linked-size", "content-length", "a"};
    struct str all = {0};
    struct err e = {0};
    char v[16];
    for (size_t at = 0; at < n; at += 100)
        need_line(take_headers(&all, p + at, n - at < 100 ? n - at : 100, &e), &e);
    for (size_t i = 0; i < DS_LEN(name); i++) {
        header(v, sizeof v, str_text(&all), name[i]);
        need(strlen(v) < sizeof v && !strpbrk(v, "\r\n\""));
    }
    str_release(&all);
}

static void table(const uint8_t *p, size_t n)
{
    static struct get_known known;
    struct config c = {0};
    struct err e = {0};
    char **names = NULL;
    size_t count = 0;
    int rc = config_read_yaml_text(&c, (const char *)p, n, "table", &e);
    need_line(rc, &e);
    if (rc == 0)
        rc = get_names(&c, &names, &count, &e);
    for (size_t i = 0; rc == 0 && i < count; i++) {
        int found = get_find(&c, names[i], &known, &e);
        need_line(found, &e);
        for (size_t k = 0; found == 0 && k < known.n; k++)
            need(fs_name_ok(known.file[k].name) && known.file[k].bytes >= -1 &&
                 strncmp(known.file[k].url, "http", 4) == 0);
    }
    need_line(rc == 0 ? get_find(&c, "no such name", &known, &e) : -1, &e);
    if (rc == 0)
        fs_list_free(names, count);
    config_release(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    if (data[0] % 2)
        table(data + 1, size - 1);
    else
        headers(data + 1, size - 1);
    return 0;
}
