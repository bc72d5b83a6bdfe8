/* Images in terminals: what the answers mean, and the encodings. */
#include <stdlib.h>
#include <string.h>

#include "t.h"

#include "base/mem.h"
#include "tui/graphics.h"

static void ignore(void *ctx, const struct event *ev)
{
    (void)ev;
    ++*(int *)ctx;
}

static enum graphics answer(const char *text, int cell)
{
    struct decoder d = {.background = -1};
    int events = 0;
    for (const char *p = text; *p; p++) /* byte by byte, as on a slow line */
        decoder_feed(&d, p, 1, ignore, &events);
    t_truef(events == 0, "%d keys came of %s", events, text + 1);
    enum graphics g = graphics_choose(&d, d.cell_w ? d.cell_w : cell, d.cell_h ? d.cell_h : cell);
    decoder_release(&d);
    return g;
}

T(the_answers_of_a_terminal_choose_the_protocol)
{
    t_true(answer("\x1b_Gi=31;OK\x1b\\\x1b[?62;22c", 0) == GRAPHICS_KITTY);
    t_true(answer("\x1b_Gi=31;ENOTSUPPORTED:x\x1b\\\x1b[?62;22c", 0) == GRAPHICS_NONE);
    t_true(answer("\x1b_Gi=31;OK\x1b\\", 0) == GRAPHICS_NONE); /* not answered completely yet */
    t_true(answer("\x1b[6;16;8t\x1b[?62;4;22c", 0) == GRAPHICS_SIXEL);
    t_true(answer("\x1b[?62;22;4c", 10) == GRAPHICS_SIXEL);
    t_true(answer("\x1b[?62;4c", 0) == GRAPHICS_NONE);  /* the size of a cell is not known */
    t_true(answer("\x1b[?4;22c", 10) == GRAPHICS_NONE); /* a class of terminals, not a feature */
    t_true(answer("\x1b[?64;14;45c", 10) == GRAPHICS_NONE);
    t_true(answer("\x1b[6;9999;1t\x1b[?62;4c", 0) == GRAPHICS_NONE);
}

T(a_sixel_picture_has_its_colours_and_runs)
{
    unsigned char rgb[7 * 8 * 3]; /* left half red, right half white, a black last row */
    struct str out = {0};
    for (int y = 0; y < 7; y++)
        for (int x = 0; x < 8; x++) {
            unsigned char *p = rgb + 3 * (y * 8 + x);
            p[0] = y == 6 ? 0 : 255;
            p[1] = p[2] = y == 6 || x < 4 ? 0 : 255;
        }
    sixel_encode(&out, rgb, 8, 7);
    const char *text = str_text(&out);
    t_truef(strncmp(text, "\x1bPq\"1;1;8;7#", 12) == 0, "%s", text + 1);
    t_true(strstr(text, ";2;100;0;0") && strstr(text, ";2;100;100;100") &&
           strstr(text, ";2;0;0;0"));
    t_truef(strstr(text, "!4~$") != NULL, "%s", text + 1);           /* six red rows, four wide */
    t_truef(strstr(text, "!4?!4~$") != NULL, "%s", text + 1);        /* white after four blanks */
    t_truef(strstr(text, "-#2!8@$-\x1b\\") != NULL, "%s", text + 1); /* one black row */
    t_true(!out.failed);
    str_release(&out);
}

T(a_picture_of_many_colours_keeps_to_255)
{
    enum { N = 64 };
    unsigned char *rgb = mem_alloc(N * N, 3);
    struct str out = {0};
    int most = 0;
    for (int i = 0; i < N * N; i++) {
        rgb[3 * i] = (unsigned char)(i % N * 4);
        rgb[3 * i + 1] = (unsigned char)(i / N * 4);
        rgb[3 * i + 2] = (unsigned char)((i * 7) % 256);
    }
    sixel_encode(&out, rgb, N, N);
    for (const char *p = str_text(&out); (p = strchr(p, '#')); p++) {
        int n = (int)strtol(p + 1, NULL, 10);
        most = n > most ? n : most;
    }
    t_truef(most == 254, "colour %d", most);
    str_release(&out);
    mem_free(rgb);
}

T(shrinking_takes_means)
{
    const unsigned char rgb[] = {0,   0, 0, 100, 0, 0, 40, 0, 0, 60, 0, 0,
                                 200, 0, 0, 100, 0, 0, 80, 0, 0, 20, 0, 0}; /* 4 x 2 */
    unsigned char out[6], wide[3 * 8 * 4];
    pixels_shrink(rgb, 4, 2, out, 2, 1);
    t_true(out[0] == 100 && out[3] == 50 && out[1] == 0);
    pixels_shrink(rgb, 4, 2, wide, 8, 4); /* larger than the picture: repeated */
    t_true(wide[0] == 0 && wide[3] == 0 && wide[6] == 100 && wide[3 * 8 * 3] == 200);
}
