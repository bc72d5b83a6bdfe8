/* The terminal device: raw mode, signals, and its restoration on any exit.
 * The saved settings are static, because signal handlers can reach nothing else. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "base/guard.h"
#include "base/process.h"
#include "tui/term.h"

enum { TTY_SIGNALS = 5 };

static struct {
    volatile sig_atomic_t is_raw;
    int fd, pipe[2];
    struct termios saved, raw;
    /* one flag per signal: a handler that interrupts the loop between its read and its clear of
     * one common word would be lost */
    volatile sig_atomic_t pending[TTY_SIGNALS];
    int wants_mouse;
    int is_shared, shared_flags; /* the descriptor is one of the parent's, with these flags */
} tty = {.fd = -1, .pipe = {-1, -1}};

/* Alternate screen, SGR mouse, bracketed paste; mouse only if the user wants it. */
static const char enter_text[] = "\x1b[?1049h\x1b[?2004h";
static const char keypad_on[] = "\x1b="; /* st sends Del as CSI P and Ins as CSI 4 h without it */
static const char mouse_on[] = "\x1b[?1002h\x1b[?1006h";
static const char leave_text[] =
    "\x1b[?2026l\x1b[?1006l\x1b[?1003l\x1b[?1002l\x1b[?1000l\x1b[?2004l"
    "\x1b[0m\x1b(B\x0f\x1b[r\x1b[?25h\x1b[?7h\x1b[?1l\x1b>\x1b[?1049l";
/* Without an alternate screen: attributes off, full scroll region, prompt below the drawing. */
static const char plain_leave_text[] = "\x1b[m\x1b[r\x1b[999;1H\r\n", cursor_text[] = "\x1b[?25h";
/* Images outlive text: kitty keeps them until they are deleted. */
static const char images_gone[] = "\x1b_Ga=d,d=A,q=2\x1b\\";
static volatile sig_atomic_t has_images;
static int is_plain, is_vt, is_ecma48; /* capabilities of a plain terminal */
static int wants_keypad;

static void write_raw(const char *p, size_t n)
{
    /* A stalled line must not block the exit forever. */
    for (int tries = 0; n > 0 && tries < 20;) {
        ssize_t got = write(tty.fd, p, n);
        if (got > 0) {
            p += got;
            n -= (size_t)got;
        } else if (got < 0 && errno == EAGAIN) {
            struct pollfd w = {.fd = tty.fd, .events = POLLOUT};
            poll(&w, 1, 25);
            tries++;
        } else if (!(got < 0 && errno == EINTR)) {
            return;
        }
    }
}

/* Async-signal-safe: write, poll, tcsetattr and fcntl only. */
static void restore(void)
{
    if (!tty.is_raw)
        return;
    tty.is_raw = 0;
    int saved_errno = errno;
    if (has_images)
        write_raw(images_gone, sizeof images_gone - 1);
    has_images = 0;
    if (is_plain && is_vt)
        write_raw(cursor_text, sizeof cursor_text - 1);
    if (is_plain && is_ecma48)
        write_raw(plain_leave_text, sizeof plain_leave_text - 1);
    else if (is_plain)
        write_raw("\r\n", 2);
    else
        write_raw(leave_text, sizeof leave_text - 1);
    tcsetattr(tty.fd, TCSADRAIN, &tty.saved);
    if (tty.is_shared)
        fcntl(tty.fd, F_SETFL, tty.shared_flags);
    errno = saved_errno;
}

static void enter(void)
{
    tcsetattr(tty.fd, TCSADRAIN, &tty.raw);
    tty.is_raw = 1;
    if (tty.is_shared)
        fcntl(tty.fd, F_SETFL, tty.shared_flags | O_NONBLOCK);
    if (is_plain)
        return;
    write_raw(enter_text, sizeof enter_text - 1);
    if (wants_keypad)
        write_raw(keypad_on, sizeof keypad_on - 1);
    if (tty.wants_mouse)
        write_raw(mouse_on, sizeof mouse_on - 1);
}

static const struct {
    int signo, flag; /* signo 0: all others */
} signal_flag[TTY_SIGNALS] = {{SIGWINCH, TTY_RESIZE},
                              {SIGTSTP, TTY_STOP},
                              {SIGCONT, TTY_CONT},
                              {SIGCHLD, TTY_CHILD},
                              {0, TTY_TERM}};

static int signal_slot(int signo)
{
    int i = 0;
    while (i < TTY_SIGNALS - 1 && signal_flag[i].signo != signo)
        i++;
    return i;
}

static void on_signal(int signo)
{
    int saved_errno = errno;
    tty.pending[signal_slot(signo)] = 1;
    ssize_t ignored = write(tty.pipe[1], "s", 1);
    (void)ignored; /* a full pipe already wakes the loop */
    errno = saved_errno;
}

static void on_crash(int signo)
{
    restore();
    static const char text[] = "depthscope: crashed (";
    const char *what = signo == SIGSEGV  ? "SIGSEGV)\n"
                       : signo == SIGBUS ? "SIGBUS)\n"
                       : signo == SIGFPE ? "SIGFPE)\n"
                       : signo == SIGILL ? "SIGILL)\n"
                                         : "SIGABRT)\n";
    ssize_t ignored = write(STDERR_FILENO, text, sizeof text - 1);
    ignored = write(STDERR_FILENO, what, strlen(what));
    (void)ignored;
    signal(signo, SIG_DFL);
    raise(signo);
}

static void install(int signo, void (*fn)(int), int flags)
{
    struct sigaction a;
    memset(&a, 0, sizeof a);
    a.sa_handler = fn;
    a.sa_flags = flags;
    sigemptyset(&a.sa_mask);
    sigaction(signo, &a, NULL);
}

static void install_all(void)
{
    static const int loop[] = {SIGWINCH, SIGTSTP, SIGCONT, SIGHUP,
                               SIGINT,   SIGQUIT, SIGCHLD, SIGUSR1};
    static const int crash[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    for (size_t i = 0; i < DS_LEN(loop); i++)
        install(loop[i], on_signal, SA_RESTART);
    for (int i = 0; process_end_signals[i]; i++)
        install(process_end_signals[i], on_signal, SA_RESTART);
    for (size_t i = 0; i < DS_LEN(crash); i++)
        install(crash[i], on_crash, (int)SA_RESETHAND);
    guard_renew();
    install(SIGPIPE, SIG_IGN, 0);
}

/* Where the device has no name (a chroot without /dev): the terminal that was passed. */
static int open_passed(void)
{
    static const int passed[] = {STDOUT_FILENO, STDIN_FILENO};
    for (size_t i = 0; i < DS_LEN(passed); i++) {
        int flags = isatty(passed[i]) ? fcntl(passed[i], F_GETFL) : -1;
        if (flags < 0 || (flags & O_ACCMODE) != O_RDWR)
            continue;
        tty.is_shared = 1;
        tty.shared_flags = flags;
        return fcntl(passed[i], F_DUPFD_CLOEXEC, 3);
    }
    return -1;
}

static int open_device(struct err *e)
{
    int fd = open("/dev/tty", O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
    const char *name = fd < 0 && isatty(STDOUT_FILENO) ? ttyname(STDOUT_FILENO) : NULL;
    if (name)
        fd = open(name, O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
    tty.is_shared = 0;
    if (fd < 0)
        fd = open_passed();
    if (fd < 0)
        return err_set(e, DS_EIO,
                       "the workbench needs a terminal; `depthscope runs`, `figure` and `--json` "
                       "work without one");
    return fd;
}

int tty_open(struct tty *t, const char *term, int wants_mouse, struct err *e)
{
    is_plain = term_is_plain(term);
    is_vt = is_plain && term && strncmp(term, "vt", 2) == 0 && strcmp(term, "vt52") != 0;
    is_ecma48 = is_vt || (is_plain && term && strstr(term, "ansi") != NULL);
    wants_keypad = term && (strcmp(term, "st") == 0 || strncmp(term, "st-", 3) == 0);
    int fd = open_device(e);
    if (fd < 0)
        return fd;
    if (tcgetattr(fd, &tty.saved) < 0) {
        close(fd);
        return err_errno(e, "terminal settings");
    }
    if (tty.pipe[0] < 0 && pipe(tty.pipe) < 0) {
        close(fd);
        return err_errno(e, "pipe for signals");
    }
    for (int i = 0; i < 2; i++) {
        fcntl(tty.pipe[i], F_SETFL, O_NONBLOCK);
        fcntl(tty.pipe[i], F_SETFD, FD_CLOEXEC);
    }
    tty.fd = fd;
    tty.raw = tty.saved;
    tty.raw.c_iflag &= ~(tcflag_t)(BRKINT | ICRNL | INLCR | IGNCR | INPCK | ISTRIP | IXON);
    tty.raw.c_oflag &= ~(tcflag_t)OPOST;
    tty.raw.c_lflag &= ~(tcflag_t)(ECHO | ECHONL | ICANON | IEXTEN | ISIG);
    tty.raw.c_cc[VMIN] = 0;
    tty.raw.c_cc[VTIME] = 0;
    tty.wants_mouse = wants_mouse && !is_plain;
    *t = (struct tty){.fd = fd, .signal_fd = tty.pipe[0], .has_mouse = tty.wants_mouse};
    install_all();
    static int is_registered;
    if (!is_registered)
        is_registered = atexit(restore) == 0;
    bug_set_restore(restore);
    enter();
    return 0;
}

void tty_close(struct tty *t)
{
    restore();
    bug_set_restore(NULL);
    static const int all[] = {SIGWINCH, SIGTSTP, SIGCONT, SIGUSR1, SIGHUP, SIGINT, SIGQUIT,
                              SIGCHLD,  SIGSEGV, SIGBUS,  SIGFPE,  SIGILL, SIGABRT};
    for (size_t i = 0; i < DS_LEN(all); i++)
        install(all[i], SIG_DFL, 0);
    for (int i = 0; process_end_signals[i]; i++)
        install(process_end_signals[i], SIG_DFL, 0);
    guard_renew();
    if (t->fd >= 0)
        close(t->fd);
    t->fd = tty.fd = -1;
}

int tty_signals(struct tty *t)
{
    char drain[64];
    while (read(t->signal_fd, drain, sizeof drain) > 0)
        ;
    int flags = 0;
    for (int i = 0; i < TTY_SIGNALS; i++)
        if (tty.pending[i]) {
            tty.pending[i] = 0; /* cleared first: later signals are reported by the next call */
            flags |= signal_flag[i].flag;
        }
    return flags;
}

void tty_suspend(struct tty *t)
{
    (void)t;
    restore();
    install(SIGTSTP, SIG_DFL, 0);
    kill(0, SIGTSTP); /* returns after SIGCONT */
    install(SIGTSTP, on_signal, SA_RESTART);
    tcgetattr(tty.fd, &tty.saved);
    enter();
    tty.pending[signal_slot(SIGCONT)] = tty.pending[signal_slot(SIGTSTP)] = 0;
}

void tty_size(const struct tty *t, int *rows, int *cols)
{
    struct winsize w;
    *rows = 24;
    *cols = 80;
    if (ioctl(t->fd, TIOCGWINSZ, &w) == 0 && w.ws_row > 0 && w.ws_col > 0) {
        *rows = w.ws_row;
        *cols = w.ws_col;
    }
    *cols -= *cols > t->margin ? t->margin : 0;
    *rows = *rows > CANVAS_ROWS_MAX ? CANVAS_ROWS_MAX : *rows;
    *cols = *cols > CANVAS_COLS_MAX ? CANVAS_COLS_MAX : *cols;
}

void tty_images(int are_shown)
{
    has_images = are_shown;
}

void tty_cell(const struct tty *t, int *width, int *height)
{
    struct winsize w;
    *width = *height = 0;
    if (ioctl(t->fd, TIOCGWINSZ, &w) == 0 && w.ws_row > 0 && w.ws_col > 0) {
        *width = w.ws_xpixel / w.ws_col;
        *height = w.ws_ypixel / w.ws_row;
    }
}

int tty_read(struct tty *t, void *p, size_t n)
{
    ssize_t got = read(t->fd, p, n);
    if (got > 0)
        return (int)got;
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (got == 0) { /* VMIN 0: no input, unless the line was hung up */
        struct pollfd h = {.fd = t->fd, .events = POLLIN};
        return poll(&h, 1, 0) > 0 && (h.revents & (POLLHUP | POLLERR | POLLNVAL)) ? DS_EIO : 0;
    }
    return DS_EIO;
}

int tty_write(struct tty *t, const void *p, size_t n)
{
    ssize_t put = write(t->fd, p, n);
    if (put >= 0)
        return (int)put;
    return errno == EAGAIN || errno == EINTR ? 0 : DS_EIO;
}
