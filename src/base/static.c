/* A static program's own UTF-8 locale, and refusals in place of the calls that load libraries. */
#include "base/static.h"

#ifdef DEPTHSCOPE_STATIC
#include <langinfo.h>
#include <stddef.h>
#include <string.h>

#include "base/embedded.h"

/* ---- no loading at run time: without these the linker takes the C library's own ---- */

void *dlopen(const char *path, int flags);
void *dlsym(void *library, const char *name);
int dlclose(void *library);
struct addrinfo;
int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                struct addrinfo **out);
void freeaddrinfo(struct addrinfo *all);
struct hostent *gethostbyname(const char *name);

void *dlopen(const char *path, int flags)
{
    (void)path;
    (void)flags;
    return NULL;
}

void *dlsym(void *library, const char *name)
{
    (void)library;
    (void)name;
    return NULL;
}

int dlclose(void *library)
{
    (void)library;
    return -1;
}

/* libcrypto's sockets refer to the following; nothing here opens one. */
int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                struct addrinfo **out)
{
    enum { EAI_SYSTEM_FAILURE = -4 }; /* EAI_FAIL */
    (void)node;
    (void)service;
    (void)hints;
    (void)out;
    return EAI_SYSTEM_FAILURE;
}

void freeaddrinfo(struct addrinfo *all)
{
    (void)all;
}

struct hostent *gethostbyname(const char *name)
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
    const struct embedded *f = embedded_find(EMBEDDED_ROOT "/locale/LC_CTYPE");
    locale_t l = f ? newlocale(LC_CTYPE_MASK, "C", (locale_t)0) : (locale_t)0;
    l = l ? duplocale(l) : l; /* that of "C" is constant */
    struct __locale_data *data = l ? _nl_intern_locale_data(LC_CTYPE, f->p, f->n) : NULL;
    if (!data)
        return (locale_t)0;
    l->__locales[LC_CTYPE] = data;
    l->__ctype_b = (const unsigned short *)(const void *)nl_langinfo_l(_NL_CTYPE_CLASS, l) +
                   BELOW_ZERO;
    l->__ctype_toupper = (const int *)(const void *)nl_langinfo_l(_NL_CTYPE_TOUPPER, l) +
                         BELOW_ZERO;
    l->__ctype_tolower = (const int *)(const void *)nl_langinfo_l(_NL_CTYPE_TOLOWER, l) +
                         BELOW_ZERO;
    return l;
}
#else
typedef int static_is_for_portable; /* a translation unit must not be empty */
#endif
