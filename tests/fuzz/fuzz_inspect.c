/* Arbitrary bytes in a file that `depthscope inspect` shows; the first byte says under which name,
 * and whether as JSON.  Bytes of a log that do not begin a frame are records, which get one.  A one-line error, or printable text, or one JSON object. */
#include <sys/stat.h>

#include "base/utf8.h"
#include "cli/inspect/inspect.h"

#include "records.h"

/* Those of the program are in its main file. */
const struct command commands[] = {{.name = NULL}};

int command_fail(const struct err *e)
{
    return e->code ? 1 : 0;
}

static const char *const file[] = {"log.mp",          "x.safetensors", "x.gguf",
                                   "x.png",           "x.bin",         "tokenizer.json",
                                   "vocab.yaml",      "d/config.json", "a/adapter_config.json",
                                   "tokenizer.model", "x.index.json",  "other"};

static void check_text(const struct str *out)
{
    need(!out->failed && utf8_valid(str_text(out), out->len) == out->len);
    for (size_t i = 0; i < out->len; i++)
        need((unsigned char)out->p[i] >= ' ' || out->p[i] == '\n');
}

static void check_json(const struct str *out)
{
    struct json *j = NULL;
    struct err e = {0};
    int rc = json_parse(&j, str_text(out), out->len, "output", &e);
    if (rc < 0)
        fprintf(stderr, "%s\n", e.text);
    need(rc == 0 && json_kind_of(json_root(j)) == JSON_KIND_OBJECT);
    json_free(j);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str out = {0};
    struct inspect x = {.out = &out};
    struct err e = {0};
    char path[1024];
    if (size == 0)
        return 0;
    log_to(fuzz_hush, NULL);
    const char *name = file[data[0] % DS_LEN(file)];
    int is_dir = name[1] == '/';
    (void)!fs_mkdirs(fuzz_path("d"), NULL);
    (void)!fs_mkdirs(fuzz_path("a"), NULL);
    if (name == file[0] && size > 1 && data[1] != 0xc9) {
        struct str log = {0};
        fuzz_frames(&log, data + 1, size - 1, 1);
        fuzz_put(fuzz_path(name), str_text(&log), log.len);
        str_release(&log);
    } else {
        fuzz_put(fuzz_path(name), data + 1, size - 1);
    }
    /* the last line of a new file would be waited for, as if someone were still writing it */
    static const struct timespec old[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
    need(utimensat(AT_FDCWD, fuzz_path(name), old, 0) == 0);
    snprintf(path, sizeof path, "%s", fuzz_path(is_dir ? name[0] == 'd' ? "d" : "a" : name));
    x.json = data[0] >> 7;
    int rc = inspect_path(path, &x, &e);
    need_line(rc, &e);
    if (rc == 0 && x.json)
        check_json(&out);
    else if (rc == 0)
        check_text(&out);
    unlink(fuzz_path(name));
    str_release(&out);
    return 0;
}
