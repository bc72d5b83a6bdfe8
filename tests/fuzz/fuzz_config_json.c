/* Arbitrary bytes as a config.json: a one-line error, or consistent model sizes that round-trip through writing and
 * reading. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "models/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char path[64];

static int read_bytes(struct model_config *c, const void *p, size_t n)
{
    struct config route = {0};
    struct err e = {0};
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(p, 1, n, f) != n || fclose(f) != 0)
        abort();
    int rc = model_config_from_json(c, &route, path, &e);
    if (rc < 0 && (!e.text[0] || strchr(e.text, '\n')))
        abort();
    config_release(&route);
    return rc;
}

static void check(const struct model_config *c)
{
    int is_sound = c->layers >= 1 && c->layers <= 4096 && c->dim >= 2 && c->heads >= 1 &&
                   c->kv_heads >= 1 && c->heads % c->kv_heads == 0 && c->head_dim >= 1 &&
                   c->ffn >= 1 && c->vocab >= 2 && c->max_seq >= 1 && c->norm_eps > 0 &&
                   c->rope_theta >= 1 && model_config_params(c) > 0;
    if (!is_sound)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct model_config c, back;
    struct str text = {0}, again = {0};
    snprintf(path, sizeof path, "/tmp/ds-fuzz-%d.json", (int)getpid());
    if (read_bytes(&c, data, size) == 0) {
        check(&c);
        model_config_to_json(&text, &c, NULL);
        if (read_bytes(&back, text.p, text.len) < 0)
            abort();
        model_config_to_json(&again, &back, NULL);
        if (strcmp(str_text(&text), str_text(&again)) != 0)
            abort();
        opt_release(&model_group, &c);
        opt_release(&model_group, &back);
    }
    str_release(&text);
    str_release(&again);
    unlink(path);
    return 0;
}
