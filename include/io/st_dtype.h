/* Element types of safetensors: names, sizes, conversion of single values. */
#ifndef DS_IO_ST_DTYPE_H
#define DS_IO_ST_DTYPE_H

#include <stdint.h>

#include "io/safetensors.h"

/* Bits per item of a dtype name, including those that are only listed (F8_E5M2, F4, C64, ...); 0 =
 * unknown. */
int st_dtype_bits(const char *name);
enum st_dtype st_dtype_find(const char *name); /* ST_OTHER when its values cannot be read */
const char *st_dtype_name(enum st_dtype t);
/* Value of the item at p (any alignment), little-endian. t is a float type. */
double st_value(const unsigned char *p, enum st_dtype t);
float st_half(uint16_t bits);
/* out (n) from bfloat16 in a mapped file (fs_map_copy). */
void st_copy_bf16(float *out, const unsigned char *from, uint64_t n);
/* x rounded to fp16, ties to even; overflow becomes infinite, NaN stays NaN. */
uint16_t st_half_of(float x);

#endif
