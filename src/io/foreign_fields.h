/* Names with numbers in a line that a program printed: "loss: 2.1 | lr 1e-4, 12.5k tok/s". */
#ifndef DS_IO_FOREIGN_FIELDS_H
#define DS_IO_FOREIGN_FIELDS_H

#include <ctype.h>
#include <stddef.h>

enum { FIELD_NAME_BYTES = 64, FIELDS_MAX = 64 };

struct field {
    const char *name; /* n bytes */
    size_t n;
    double value;
    const char
        *set; /* set_n bytes before the name: what it was measured on; set_n 0 = not needed */
    size_t set_n;
};

enum { FIELD_TEXT = 2 * FIELD_NAME_BYTES + 2 };
/* Its name with its set: "val loss"; bytes without the NUL. */
size_t field_name(const struct field *f, char out[FIELD_TEXT]);

/* The metrics of a line; how many. */
size_t fields_of(const char *line, struct field f[FIELDS_MAX]);
/* Is the word in its name, in any case? */
int field_has_word(const struct field *f, const char *word);
int field_has_one(const struct field *f, const char *const *word, size_t n);
/* Is it what a model is measured by? */
int field_is_result(const struct field *f);
/* The word at p that says which data results are of, "train" or "val": its bytes. */
size_t field_set_at(const char *p, size_t n);
/* The last word in n bytes that says what is evaluated on, "val" of "[val] Epoch 3": its bytes. */
size_t field_set_of(const char *line, size_t n, const char **set);

/* ---- what a line is taken apart with ---- */

static inline int is_letter(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}
const char *skip_blanks(const char *p);
int begins(const char *p, const char *word); /* without regard to case; word: lower case */
/* A number without a sign at p, with "12,500" for thousands, and what follows its point when
 * has_fraction; bytes used, 0 when there is none. */
size_t unsigned_at(const char *p, int has_fraction, double *v);
/* "Z", "+00:00", "-0400", "+02" right after a time of day: bytes. */
size_t zone_at(const char *p);

#endif
