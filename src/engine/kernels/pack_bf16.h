/* Lays rows of bfloat16 out as columns of a panel, moving bits only.  SSE2, which every x86-64 has,
 * so one copy serves all vector widths. */
#ifndef DS_ENGINE_KERNELS_PACK_BF16_H
#define DS_ENGINE_KERNELS_PACK_BF16_H
#ifdef __x86_64__

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

/* p[k * stride + i] = value k of row i, 0 <= k < K, for eight rows. */
static inline void pack_bf16_rows8(uint16_t *p, int stride, const unsigned char *const row[8],
                                   int K)
{
    int k = 0;
    for (; k + 8 <= K; k += 8) {
        __m128i r[8], t[8], u[8];
        for (int i = 0; i < 8; i++)
            r[i] = _mm_loadu_si128((const __m128i *)(const void *)(row[i] + 2 * (size_t)k));
        for (int i = 0; i < 4; i++) { /* pairs of rows, then fours, then all eight */
            t[2 * i] = _mm_unpacklo_epi16(r[2 * i], r[2 * i + 1]);
            t[2 * i + 1] = _mm_unpackhi_epi16(r[2 * i], r[2 * i + 1]);
        }
        for (int i = 0; i < 8; i += 4)
            for (int j = 0; j < 2; j++) {
                u[i + 2 * j] = _mm_unpacklo_epi32(t[i + j], t[i + j + 2]);
                u[i + 2 * j + 1] = _mm_unpackhi_epi32(t[i + j], t[i + j + 2]);
            }
        for (int i = 0; i < 4; i++) {
            uint16_t *to = p + (size_t)(k + 2 * i) * (size_t)stride;
            _mm_storeu_si128((__m128i *)(void *)to, _mm_unpacklo_epi64(u[i], u[i + 4]));
            _mm_storeu_si128((__m128i *)(void *)(to + stride), _mm_unpackhi_epi64(u[i], u[i + 4]));
        }
    }
    for (; k < K; k++)
        for (int i = 0; i < 8; i++)
            memcpy(p + (size_t)k * (size_t)stride + i, row[i] + 2 * (size_t)k, sizeof *p);
}

/* The same for a panel of `stride` columns from `cols` rows, `step` bytes apart; a group of eight
 * columns that is not full repeats its last row. */
static inline void pack_bf16_rows(uint16_t *p, int stride, const unsigned char *rows, size_t step,
                                  int cols, int K)
{
    for (int n = 0; n < cols; n += 8) {
        const unsigned char *row[8];
        for (int i = 0; i < 8; i++)
            row[i] = rows + (size_t)(n + i < cols ? n + i : cols - 1) * step;
        pack_bf16_rows8(p + n, stride, row, K);
    }
}

#endif
#endif
