/* Presets: settings under a name, data/NAME.yaml beside the program, or any .yaml file. */
#ifndef DS_TRAINING_PRESET_H
#define DS_TRAINING_PRESET_H

#include <stddef.h>

#include "base/config.h"
#include "base/err.h"

/* Where data/NAME.yaml may be: beside the program, else the installed place. Set by cli before use. */
void train_config_preset_dir(const char *dir);
const char *train_config_presets(void);

/* Names that there are: quick first, then those of the files, sorted. Free with fs_list_free. */
int preset_names(char ***names, size_t *n, struct err *e) DS_CHECK;
/* The file of one; DS_EUSAGE with the nearest name when there is none, or when a folder is there. */
int preset_path(char *path, size_t size, const char *preset, struct err *e) DS_CHECK;
/* What presets say, in order into c: a later one wins.  A file may have, beside its keys,
 *   extends: NAME  what it is a variant of: always read before it (base/config.h);
 *   alone: NAME    what it is shown on when no other preset comes before it: a method's preset names a size so.
 * None, or quick by itself, says nothing: the tables' defaults hold.  DS_EUSAGE for one that is there twice or holds no key. */
int presets_read(struct config *c, const char *const *preset, size_t n, struct err *e) DS_CHECK;
/* "stories+mod": names without folder and ending. */
void presets_label(char *out, size_t size, const char *const *preset, size_t n);
/* The preset that a file extends or stands on alone, or "" (heap, mem_free; NULL without memory or file). */
char *preset_base(const char *preset);

#endif
