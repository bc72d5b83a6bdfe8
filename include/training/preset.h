/* Presets: named settings in data/NAME.yaml next to the program, or any .yaml file. */
#ifndef DS_TRAINING_PRESET_H
#define DS_TRAINING_PRESET_H

#include <stddef.h>

#include "base/config.h"
#include "base/err.h"

/* Sets the preset directory: data/ next to the program, else the installed one. Called by cli
 * before use. */
void train_config_preset_dir(const char *dir);

/* Available names: quick first, then the files' names, sorted. Free with fs_list_free. */
int preset_names(char ***names, size_t *n, struct err *e) DS_CHECK;
/* Path of a preset's file; DS_EUSAGE with the nearest name when it does not exist or is a
 * directory. */
int preset_path(char *path, size_t size, const char *preset, struct err *e) DS_CHECK;
/* Reads presets into c in order: later ones win.  Besides its keys a file may have
 *   extends: NAME       the preset it is a variant of: always read before it (base/config.h);
 *   default_base: NAME  the base read before it when no other preset precedes it, such as the
 *                       size for a method's preset.
 * No preset, or quick by itself, adds nothing: the tables' defaults apply.  DS_EUSAGE for a
 * duplicate or one without keys. */
int presets_read(struct config *c, const char *const *preset, size_t n, struct err *e) DS_CHECK;
/* "stories+mod": names without directory and extension. */
void presets_label(char *out, size_t size, const char *const *preset, size_t n);
/* The preset named by `extends` or `default_base`, or "" (heap, mem_free; NULL if out of memory or
 * not found). */
char *preset_base(const char *preset);

#endif
