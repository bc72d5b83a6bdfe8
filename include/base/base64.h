/* Bytes in 64 printable characters: tokenizer files and the terminal's clipboard. */
#ifndef DS_BASE_BASE64_H
#define DS_BASE_BASE64_H

#include <stddef.h>

#include "base/err.h"
#include "base/str.h"

int base64_digit(char c); /* its value, -1: none */
/* Into room for n bytes: how many they are, -1: no base64.  Padding may be missing. */
int base64_bytes(char *out, const char *s, size_t n);
int base64_decode(struct str *out, const char *s, size_t n, struct err *e) DS_CHECK;
void base64_encode(struct str *out, const char *s, size_t n);

#endif
