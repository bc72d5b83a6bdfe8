/* Arbitrary bytes as a GGUF file, or, when they do not begin as one, as a description of it (gguf_text.h): a one-line error, or
 * all metadata and values are readable, and a model that opens has the values of its tensors. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gguf_text.h"
#include "models/load.h"
#include "models/weights.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned read_meta(const struct gguf_meta *m)
{
    struct gguf_strings s = {m->data, m->item == GGUF_STRING ? m->count : 0};
    struct gguf_text text;
    unsigned sum = 0;
    while (gguf_strings_next(&s, &text))
        for (size_t k = 0; k < text.n; k++)
            sum += (unsigned char)text.p[k];
    for (uint64_t i = 0; i < m->count && i < 4096; i++) {
        int64_t whole = 0;
        double number = 0;
        if (gguf_int(m, i, &whole) && !gguf_num(m, i, &number))
            abort();
    }
    return sum;
}

static void read_all(const struct gguf *g)
{
    unsigned sum = 0;
    for (size_t i = 0; i < gguf_meta_count(g); i++)
        sum += read_meta(gguf_meta_at(g, i));
    for (size_t i = 0; i < gguf_count(g); i++) {
        const struct gguf_tensor *t = gguf_at(g, i);
        real *values = t->items <= 1 << 16 ? malloc((t->items + 1) * sizeof *values) : NULL;
        for (uint64_t k = 0; k < t->bytes; k++)
            sum += t->data[k];
        if (gguf_find(g, t->name) != t || sum == 0xffffffff)
            abort();
        if (values && (gguf_read(t, values, t->items, NULL) == 0) != gguf_type_known(t->type))
            abort();
        free(values);
    }
}

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
    char path[] = "/tmp/ds-fuzz-XXXXXX.gguf";
    struct gguf *g = NULL;
    struct model *m = NULL;
    struct str made = {0};
    struct err e = {0};
    int fd = mkstemps(path, 5);
    if (size >= 4 && memcmp(data, "GGUF", 4) != 0) {
        gguf_text_make(&made, data, size);
        data = (const uint8_t *)str_text(&made);
        size = made.len;
    }
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    close(fd);
    if (gguf_open(&g, path, &e) == 0)
        read_all(g);
    else if (g || !e.text[0] || strchr(e.text, '\n'))
        abort();
    gguf_close(g);
    if (model_open(&m, path, NULL, MODEL_INFERENCE, &e) == 0)
        use(m);
    else if (m || !e.text[0] || strchr(e.text, '\n'))
        abort();
    model_free(m);
    unlink(path);
    str_release(&made);
    return 0;
}
