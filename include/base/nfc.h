/* Unicode normalisation form C, which some tokenizers apply to text before they cut it. */
#ifndef DS_BASE_NFC_H
#define DS_BASE_NFC_H

#include <stddef.h>

#include "base/str.h"

/* 0 when s is certainly in form C already (no code point from U+0300 on). */
int nfc_needed(const char *s, size_t n);
/* Appends s in form C; invalid UTF-8 bytes pass unchanged and end a run. */
void nfc_compose(struct str *out, const char *s, size_t n);

#endif
