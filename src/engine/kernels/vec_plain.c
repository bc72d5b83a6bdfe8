/* The element loops of engine/vec.h with the build's own flags. */
#include "engine/vec.h"

#define VEC_SET vec_plain
#define VEC_NAME "plain"

static int available(void)
{
    return 1;
}

#include "vec_tmpl.h"
