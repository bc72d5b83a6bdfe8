/* Unicode normalisation form C, which some tokenizers apply before splitting text. */
#ifndef DS_BASE_NFC_H
#define DS_BASE_NFC_H

#include <stddef.h>

#include "base/str.h"

/* 0 when s is certainly in form C (no code point from U+0300 on). */
int nfc_needed(const char *s, size_t n);
/* Appends s in form C; invalid UTF-8 bytes are copied unchanged. */
void nfc_compose(struct str *out, const char *s, size_t n);

#endif
