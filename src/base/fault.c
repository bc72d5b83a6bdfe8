/* Parses fault injection rules and decides which call fails. */
#include "base/fault.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"

static const struct {
    const char *name;
    int number;
} numbers[] = {
    {"EIO", EIO},       {"ENOSPC", ENOSPC}, {"EINTR", EINTR},   {"EACCES", EACCES},
    {"EROFS", EROFS},   {"EDQUOT", EDQUOT}, {"EMFILE", EMFILE}, {"ENOMEM", ENOMEM},
    {"EINVAL", EINVAL}, {"EEXIST", EEXIST}, {"ESTALE", ESTALE}, {"EXDEV", EXDEV},
};

static int number_of(const char *text, size_t len)
{
    for (size_t i = 0; i < DS_LEN(numbers); i++)
        if (strlen(numbers[i].name) == len && memcmp(numbers[i].name, text, len) == 0)
            return numbers[i].number;
    return EIO;
}

int fault_find(const char *spec, const char *name, struct fault_rule *rule)
{
    size_t len = strlen(name);
    if (!spec)
        spec = getenv("DEPTHSCOPE_FAIL");
    for (const char *p = spec; p && *p;) {
        size_t n = strcspn(p, ",");
        if (n > len + 1 && memcmp(p, name, len) == 0 && p[len] == ':') {
            char *end;
            rule->at = strtoull(p + len + 1, &end, 10);
            rule->persistent = *end == '+';
            end += rule->persistent;
            rule->number = *end == '=' ? number_of(end + 1, strcspn(end + 1, ",")) : EIO;
            return 1;
        }
        p += n + (p[n] == ',');
    }
    return 0;
}

int fault_hits(const struct fault_rule *rule, uint64_t call)
{
    if (rule->at == 0)
        return 0;
    return rule->persistent ? call >= rule->at : call == rule->at;
}
