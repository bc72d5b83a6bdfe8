/* Runs the interactive workbench; the only entry point of this module. */
#ifndef DS_TUI_APP_H
#define DS_TUI_APP_H

#include <stddef.h>

#include "base/err.h"
#include "base/str.h"

struct tui_options {
    const char *const
        *paths; /* runs, logs, traces, or "-" (records on stdin, keys from the terminal) */
    size_t n;
    const char *const
        *folders; /* folders of runs for Home; without paths, in place of the usual one */
    size_t n_folders;
    const char *const *hosts; /* folders of runs on other machines: io/host.h */
    size_t n_hosts;
    const char *color;  /* "auto" (NULL), "never", "16", "256", "truecolor" */
    const char *glyphs; /* "auto" (NULL), "braille", "shades", "ascii"      */
    const char *theme;  /* name or path; NULL = the built-in one            */
    const char *term;   /* instead of $TERM, or NULL                        */
    int no_mouse;
    int readonly;
    double link_bytes_s; /* 0 = no budget */
    const char *view;    /* first view, NULL = "monitor" with a run, else "home" */
    const char *text;    /* with the view "compare" and two paths: run both models on it; or NULL */
    const char *script;  /* key script, used instead of a terminal; see term_dump.c */
    const char *dump;    /* output file of the scripted screens; NULL or "-" = stdout */
    const char *size;    /* "100x30" (columns x rows) for scripts */
    const char *keys;    /* for screen_make: what is pressed before the picture; or NULL */
    const char *notice;  /* shown at start-up, or NULL */
    const char *program; /* own executable for `depthscope figure`; NULL = process_path */
};
/* Returns when the user quits: 0, or DS_* (DS_EIO: no terminal, or it was hung up). */
int tui_run(const struct tui_options *o, struct err *e) DS_CHECK;
/* DS_EUSAGE with the nearest name for an unknown view. */
int tui_check_view(const char *name, struct err *e) DS_CHECK;
/* "home, monitor, ...": the names of all views, in the order of the bar. */
void tui_list_views(struct str *out);
/* "20k" "1.5M" "300" -> bytes per second; -1 if malformed. */
double tui_parse_bandwidth(const char *text);
/* "100x30" -> cols, rows; 0 if malformed. */
int tui_parse_size(const char *text, int *cols, int *rows);

#endif
