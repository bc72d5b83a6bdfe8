/* A GGUF file from a description, well-formed whatever the lines say:
 *     u llama.block_count 2           one of s(tring) b(yte) i(32) u(32) U(64) f(32) d(64) t(rue, false)
 *     [s tokenizer.ggml.tokens a b    an array of these
 *     + token_embd.weight 8 32 4      a tensor: type, then the shape */
#ifndef DS_TESTS_FUZZ_GGUF_TEXT_H
#define DS_TESTS_FUZZ_GGUF_TEXT_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "io/gguf.h"

struct gguf_text_parts {
    struct str meta, tensors, data;
    uint64_t metas, count;
};

static void gguf_text_number(struct str *s, uint64_t x, int bytes)
{
    for (int i = 0; i < bytes; i++)
        str_add_char(s, (char)(x >> 8 * i));
}

static void gguf_text_string(struct str *s, const char *text)
{
    gguf_text_number(s, strlen(text), 8);
    str_add(s, text);
}

static int gguf_text_kind(char letter)
{
    switch (letter) {
    case 's': return GGUF_STRING;
    case 'b': return GGUF_U8;
    case 'i': return GGUF_I32;
    case 'u': return GGUF_U32;
    case 'U': return GGUF_U64;
    case 'f': return GGUF_F32;
    case 'd': return GGUF_F64;
    case 't': return GGUF_BOOL;
    default: return -1;
    }
}

static void gguf_text_value(struct str *s, int kind, const char *text)
{
    double number = strtod(text, NULL);
    float single = (float)number;
    if (kind == GGUF_STRING)
        gguf_text_string(s, text);
    else if (kind == GGUF_F32)
        str_add_bytes(s, &single, sizeof single);
    else if (kind == GGUF_F64)
        str_add_bytes(s, &number, sizeof number);
    else
        gguf_text_number(s, strtoull(text, NULL, 0),
                         kind == GGUF_U64                       ? 8
                         : kind == GGUF_U32 || kind == GGUF_I32 ? 4
                                                                : 1);
}

static void gguf_text_meta(struct gguf_text_parts *m, int is_array, int kind, char *rest)
{
    char *word = strtok_r(rest, " ", &rest);
    struct str items = {0};
    uint64_t n = 0;
    if (!word || kind < 0)
        return;
    gguf_text_string(&m->meta, word);
    gguf_text_number(&m->meta, is_array ? GGUF_ARRAY : (uint64_t)kind, 4);
    for (; is_array && (word = strtok_r(NULL, " ", &rest)) != NULL; n++)
        gguf_text_value(&items, kind, word);
    if (is_array) {
        gguf_text_number(&m->meta, (uint64_t)kind, 4);
        gguf_text_number(&m->meta, n, 8);
        str_add_bytes(&m->meta, str_text(&items), items.len);
    } else {
        gguf_text_value(&m->meta, kind, rest ? rest : "");
    }
    m->metas++;
    str_release(&items);
}

static void gguf_text_tensor(struct gguf_text_parts *m, char *rest)
{
    enum { DATA_MAX = 1 << 18 };
    char *name = strtok_r(rest, " ", &rest), *word = strtok_r(NULL, " ", &rest);
    uint32_t type = word ? (uint32_t)strtoul(word, NULL, 0) : 0, rank = 0;
    uint64_t shape[GGUF_RANK_MAX], items = 1;
    int block = 1, bytes = 4;
    if (!name)
        return;
    for (; rank < GGUF_RANK_MAX && (word = strtok_r(NULL, " ", &rest)) != NULL; rank++) {
        shape[rank] = strtoull(word, NULL, 0);
        items = shape[rank] > DATA_MAX || items * shape[rank] > DATA_MAX ? DATA_MAX
                                                                         : items * shape[rank];
    }
    (void)gguf_type_block(type, &block, &bytes);
    gguf_text_string(&m->tensors, name);
    gguf_text_number(&m->tensors, rank, 4);
    for (uint32_t i = 0; i < rank; i++)
        gguf_text_number(&m->tensors, shape[i], 8);
    gguf_text_number(&m->tensors, type, 4);
    gguf_text_number(&m->tensors, m->data.len, 8);
    for (uint64_t i = 0; i < items / (uint64_t)block * (uint64_t)bytes; i++)
        str_add_char(&m->data, (char)(17 * i & 0xbf)); /* finite as any kind of float */
    while (m->data.len % 32)
        str_add_char(&m->data, 0);
    m->count++;
}

static inline void gguf_text_make(struct str *out, const uint8_t *data, size_t size)
{
    struct gguf_text_parts m = {0};
    char *text = malloc(size + 1), *save = NULL;
    if (!text)
        abort();
    memcpy(text, data, size);
    text[size] = '\0';
    for (char *line = strtok_r(text, "\n", &save); line && m.data.len < 1 << 20;
         line = strtok_r(NULL, "\n", &save)) {
        int is_array = line[0] == '[' && line[1];
        if (line[0] == '+')
            gguf_text_tensor(&m, line + 1);
        else
            gguf_text_meta(&m, is_array, gguf_text_kind(line[is_array]), line + is_array + 1);
    }
    str_add(out, "GGUF");
    gguf_text_number(out, 3, 4);
    gguf_text_number(out, m.count, 8);
    gguf_text_number(out, m.metas, 8);
    str_add_bytes(out, str_text(&m.meta), m.meta.len);
    str_add_bytes(out, str_text(&m.tensors), m.tensors.len);
    while (out->len % 32)
        str_add_char(out, 0);
    str_add_bytes(out, str_text(&m.data), m.data.len);
    str_release(&m.meta);
    str_release(&m.tensors);
    str_release(&m.data);
    free(text);
}

#endif
