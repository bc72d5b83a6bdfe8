/* Arbitrary bytes as config.yaml of a run that is resumed, or (first byte odd) as a preset: a
 * one-line error, or settings that are written and read again the same. */
#include "training/options.h"

#include "kit.h"

static int read_settings(struct train_config *c, int is_preset, struct err *e)
{
    const char *preset[1];
    char path[1024];
    snprintf(path, sizeof path, "%s", fuzz_path("config.yaml"));
    preset[0] = path;
    return is_preset ? train_config_make(c, preset, 1, NULL, 0, e)
                     : train_config_read(c, fuzz_dir(), NULL, 0, NULL, e);
}

/* Numbers to the last bit: a resume has to be the same run. */
static void same_numbers(const struct opt_group *g, const void *a, const void *b)
{
    for (size_t i = 0; i < g->n; i++) {
        size_t at = g->opts[i].offset, n = g->opts[i].type == OPT_REAL  ? sizeof(double)
                                           : g->opts[i].type == OPT_INT ? sizeof(int64_t)
                                                                        : 0;
        need(memcmp((const char *)a + at, (const char *)b + at, n) == 0);
    }
}

static void same(const struct train_config *a, const struct train_config *b)
{
    same_numbers(&train_group, &a->train, &b->train);
    same_numbers(&data_group, &a->data, &b->data);
    same_numbers(&run_group, &a->run, &b->run);
    same_numbers(&model_group, &a->model, &b->model);
    same_numbers(&alert_group, &a->alert, &b->alert);
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
    fuzz_put(fuzz_path("config.yaml"), first.p, first.len);
    rc = read_settings(&again, 0, &e);
    if (rc < 0)
        fprintf(stderr, "%s\n", e.text);
    need(rc == 0);
    train_config_print(&second, &again);
    same(&c, &again);
    train_config_release(&c);
    train_config_release(&again);
    need(strcmp(str_text(&first), str_text(&second)) == 0);
    str_release(&first);
    str_release(&second);
    return 0;
}
