/* Base64, for tokenizer files and the terminal clipboard. */
#ifndef DS_BASE_BASE64_H
#define DS_BASE_BASE64_H

#include <stddef.h>

#include "base/err.h"
#include "base/str.h"

int base64_digit(char c); /* its value, -1 when not a base64 digit */
/* Decodes n characters into a buffer of n bytes; returns the length, -1 when invalid.  Padding is
 * optional. */
int base64_bytes(char *out, const char *s, size_t n);
int base64_decode(struct str *out, const char *s, size_t n, struct err *e) DS_CHECK;
void base64_encode(struct str *out, const char *s, size_t n);

#endif
