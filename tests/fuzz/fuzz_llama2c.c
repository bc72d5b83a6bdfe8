/* Arbitrary bytes as a llama2.c model: a one-line error, or a model with the size given by its header. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "models/load.h"
#include "models/weights.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Loads the model and reads every value of its rows, which must match the shapes. */
static void use(struct model *m)
{
    struct err e = {0};
    if (weights_use(m, &(struct numeric_options){.compute = COMPUTE_FP32}, &e) < 0 ||
        weights_ready(m, &e) < 0) {
        if (!e.text[0] || strchr(e.text, '\n'))
            abort();
        return;
    }
    for (int i = 0; i < m->params.n; i++) {
        const struct param *p = &m->params.p[i];
        size_t rows = (size_t)p->shape[0], columns = p->rank > 1 ? (size_t)p->shape[1] : 1;
        real *row = malloc(columns * sizeof *row);
        if (p->n != rows * columns)
            abort();
        for (size_t r = 0; row && r < rows; r++)
            model_values(m, i, r, 1, row);
        free(row);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[] = "/tmp/ds-fuzz-XXXXXX.bin";
    struct model *m = NULL;
    struct err e = {0};
    int fd = mkstemps(path, 4);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    close(fd);
    if (model_open(&m, path, NULL, MODEL_INFERENCE, &e) == 0)
        use(m);
    else if (m || !e.text[0] || strchr(e.text, '\n'))
        abort();
    if (m && 4 * (size_t)params_count(&m->params) > size)
        abort();
    model_free(m);
    unlink(path);
    return 0;
}
