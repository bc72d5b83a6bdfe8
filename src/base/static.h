/* What a static program (make portable) brings itself, because it must never load parts of the C
 * library of the host: another version of it may crash. */
#ifndef DS_BASE_STATIC_H
#define DS_BASE_STATIC_H

#include <locale.h>

/* A locale whose LC_CTYPE is C.UTF-8, from inside the program; (locale_t)0 when out of memory.  Call
 * it once; never freed. */
locale_t static_utf8_locale(void);

#endif
