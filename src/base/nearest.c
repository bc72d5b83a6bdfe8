/* Finds the name nearest in spelling to an unknown one. */
#include "base/nearest.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/str.h"

struct nearest nearest_to(const char *word)
{
    return (struct nearest){.word = word, .distance = INT_MAX};
}

/* A prefix or a difference in case counts as distance one, whatever its length. */
static int spelling(const char *word, const char *name)
{
    size_t n = strlen(word);
    int d = str_distance(word, name);
    int is_one_slip = strcasecmp(word, name) == 0 || (n > 2 && strncmp(name, word, n) == 0);
    return d > 1 && is_one_slip ? 1 : d;
}

void nearest_try(struct nearest *n, const char *name)
{
    const char *tail = strrchr(name, '.');
    int d = spelling(n->word, name);
    int part = tail ? spelling(n->word, tail + 1) + 1 : d;
    d = part < d ? part : d;
    if (d >= n->distance)
        return;
    n->distance = d;
    str_copy(n->name, sizeof n->name, name);
}

int nearest_is_close(const struct nearest *n)
{
    size_t len = strlen(n->word);
    int slips = len < 3 ? (int)len - 1 : len < 6 ? 1 : (int)(len / 3);
    return n->name[0] && n->distance <= slips;
}

const char *nearest_hint(const struct nearest *n, char *out, size_t size)
{
    out[0] = '\0';
    if (nearest_is_close(n))
        snprintf(out, size, ", did you mean %s?", n->name);
    return out;
}
