/* Unicode normalisation forms, which some tokenizers apply before splitting text. */
#ifndef DS_BASE_NFC_H
#define DS_BASE_NFC_H

#include <stddef.h>

#include "base/str.h"

/* Canonical (C, D) and compatibility (KC, KD) forms, composed or decomposed. */
enum nfc_form { NFC_FORM_C, NFC_FORM_D, NFC_FORM_KC, NFC_FORM_KD };

/* 0 when s is certainly in that form (no code point from U+0300 on for C, only ASCII for the
 * others). */
int nfc_needed(enum nfc_form form, const char *s, size_t n);
/* Appends s in that form; invalid UTF-8 bytes are copied unchanged. */
void nfc_apply(enum nfc_form form, struct str *out, const char *s, size_t n);

#endif
