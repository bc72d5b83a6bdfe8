/* A static program's own UTF-8 locale, and refusals in place of the calls that load libraries. */
#include "base/static.h"

#ifdef DEPTHSCOPE_STATIC
#include <langinfo.h>
#include <stddef.h>
#include <string.h>

#include "base/embedded.h"

/* ---- no loading at run time ----

 * The linker puts these in the place of the C library's own (--wrap in the Makefile).  libcrypto's
 * sockets, which nothing here opens, refer to the last four. */

void *__wrap_dlopen(const char *path, int flags);
void *__wrap_dlsym(void *library, const char *name);
int __wrap_dlclose(void *library);
int __wrap_getaddrinfo(const void *node, const void *service, const void *hints, void *out);
int __wrap_getnameinfo(const void *address, unsigned n, void *host, unsigned host_n, void *service,
                       unsigned service_n, int flags);
void __wrap_freeaddrinfo(void *all);
void *__wrap_gethostbyname(const char *name);

enum { NO_NAMES = -4 }; /* EAI_FAIL */

void *__wrap_dlopen(const char *path, int flags)
{
    (void)path;
    (void)flags;
    return NULL;
}

void *__wrap_dlsym(void *library, const char *name)
{
    (void)library;
    (void)name;
    return NULL;
}

int __wrap_dlclose(void *library)
{
    (void)library;
    return -1;
}

int __wrap_getaddrinfo(const void *node, const void *service, const void *hints, void *out)
{
    (void)node;
    (void)service;
    (void)hints;
    (void)out;
    return NO_NAMES;
}

int __wrap_getnameinfo(const void *address, unsigned n, void *host, unsigned host_n, void *service,
                       unsigned service_n, int flags)
{
    (void)address;
    (void)n;
    (void)host;
    (void)host_n;
    (void)service;
    (void)service_n;
    (void)flags;
    return NO_NAMES;
}

void __wrap_freeaddrinfo(void *all)
{
    (void)all;
}

void *__wrap_gethostbyname(const char *name)
{
    (void)name;
    return NULL;
}

/* ---- the locale ---- */

/* glibc's reader of a compiled locale, which in a static program can be linked: setlocale would need
 * a file on the host, of this version of the format. */
struct __locale_data;
struct __locale_data *_nl_intern_locale_data(int category, const void *data, size_t size);

locale_t static_utf8_locale(void)
{
    /* __ctype_b and the like point at the entry of 0; -128 to -1 are valid */
    enum { BELOW_ZERO = 128 };
    static struct __locale_struct own;
    const struct embedded *f = embedded_find(EMBEDDED_ROOT "/locale/LC_CTYPE");
    locale_t c = f ? newlocale(LC_CTYPE_MASK, "C", (locale_t)0) : (locale_t)0;
    struct __locale_data *data = c ? _nl_intern_locale_data(LC_CTYPE, f->p, f->n) : NULL;
    if (!data)
        return (locale_t)0;
    own = *c;
    own.__locales[LC_CTYPE] = data;
    own.__ctype_b =
        (const unsigned short *)(const void *)nl_langinfo_l(_NL_CTYPE_CLASS, &own) + BELOW_ZERO;
    own.__ctype_toupper =
        (const int *)(const void *)nl_langinfo_l(_NL_CTYPE_TOUPPER, &own) + BELOW_ZERO;
    own.__ctype_tolower =
        (const int *)(const void *)nl_langinfo_l(_NL_CTYPE_TOLOWER, &own) + BELOW_ZERO;
    return &own;
}
#else
typedef int static_is_for_portable; /* a translation unit must not be empty */
#endif
