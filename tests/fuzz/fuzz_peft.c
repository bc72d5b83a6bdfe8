/* Arbitrary bytes as PEFT's adapter_config.json: a one-line error, or adapters that fit the model. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "models/adapters.h"
#include "models/peft.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void put(const char *path, const uint8_t *data, size_t size)
{
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, size, f) != size || fclose(f) != 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char dir[] = "/tmp/ds-fuzz-XXXXXX", path[64], base[1024];
    struct model_config c = {0};
    struct err e = {0};
    if (!mkdtemp(dir))
        abort();
    snprintf(path, sizeof path, "%s/adapter_config.json", dir);
    put(path, data, size);
    if (opt_defaults(&model_group, &c, &e) < 0 || model_config_check(&c, &e) < 0)
        abort();
    int rc = peft_config(&c, dir, &e);
    if (rc < 0 && (!e.text[0] || strchr(e.text, '\n')))
        abort();
    if (rc == 0 && (c.lora_r < 1 || adapters_check(&c, &e) < 0 || model_config_check(&c, &e) < 0))
        abort();
    e = (struct err){0};
    if (model_base(dir, base, sizeof base, &e) < 0 && (!e.text[0] || strchr(e.text, '\n')))
        abort();
    opt_release(&model_group, &c);
    unlink(path);
    rmdir(dir);
    return 0;
}
