/* Arbitrary bytes as config.yaml of a run that is resumed, or (first byte odd) as a preset: a one-line error, or settings that are written and read
 * again the same. */
#include "training/options.h"

#include "kit.h"

static int read_settings(struct train_config *c, int is_preset, struct err *e)
{
    const char *preset[1];
    char path[1024];
    snprintf(path, sizeof path, "%s", fuzz_path("config.yaml"));
    preset[0] = path;
    return is_preset ? train_config_make(c, preset, 1, NULL, 0, e) : train_config_read(c, fuzz_dir(), NULL, 0, NULL, e);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct train_config c, again;
    struct str first = {0}, second = {0};
    struct err e = {0};
    if (size == 0)
        return 0;
    log_to(fuzz_hush, NULL);
    fuzz_put(fuzz_path("config.yaml"), data + 1, size - 1);
    int rc = read_settings(&c, data[0] & 1, &e);
    need_line(rc, &e);
    if (rc < 0)
        return 0;
    train_config_print(&first, &c);
    train_config_release(&c);
    fuzz_put(fuzz_path("config.yaml"), first.p, first.len);
    rc = read_settings(&again, 0, &e);
    if (rc < 0)
        fprintf(stderr, "%s\n", e.text);
    need(rc == 0);
    train_config_print(&second, &again);
    train_config_release(&again);
    need(strcmp(str_text(&first), str_text(&second)) == 0);
    str_release(&first);
    str_release(&second);
    return 0;
}
