/* Included by the build into every file outside base/ (-include): names that must not be used. */
#ifndef DS_BASE_BANNED_H
#define DS_BASE_BANNED_H
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __GNUC__
#pragma GCC poison strcpy strcat sprintf vsprintf strtok atoi atol atof gets rand srand alloca malloc calloc realloc
#endif
#endif
