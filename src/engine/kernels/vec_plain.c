/* The loops as the build's own flags make them. */
#include "engine/vec.h"

#define VEC_SET vec_plain
#define VEC_NAME "plain"

static int available(void)
{
    return 1;
}

#include "vec_tmpl.h"
