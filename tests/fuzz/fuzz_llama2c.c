/* Any bytes as a llama2.c model: refused with a line, or it opens and has the bytes of its header. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "models/load.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[] = "/tmp/ds-fuzz-XXXXXX.bin";
    struct model *m = NULL;
    struct err e = {0};
    int fd = mkstemps(path, 4);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    close(fd);
    if (model_open(&m, path, NULL, MODEL_USE, &e) < 0 && (m || !e.text[0] || strchr(e.text, '\n')))
        abort();
    if (m && 4 * (size_t)params_count(&m->params) > size)
        abort();
    model_free(m);
    unlink(path);
    return 0;
}
