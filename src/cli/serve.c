/* depthscope serve MODEL: runs inference for the workbench in a separate process, or passes its
 * requests to the server of a socket. */
#include <signal.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/pool.h"
#include "cli/cli.h"
#include "cli/serve_relay.h"
#include "cli/version.h"
#include "eval/serve.h"

struct cli_option serve_options[] = {{.name = NULL}};

int serve_command(int argc, char **argv)
{
    struct err e = {0};
    struct cli_args a;
    const char *model;
    int rc = cli_parse(&a, serve_options, argc, argv, &e), out = -1;
    if (rc < 0)
        return command_fail(&e);
    rc = cli_single(&a, "serve", "MODEL", &model, &e);
    if (rc == 0 && a.n_override > 0)
        rc = err_set(&e, DS_EUSAGE, "serve: unexpected setting %s", a.override[0]);
    /* the original stdout carries only records; all other output goes to stderr */
    if (rc == 0 && ((out = dup(STDOUT_FILENO)) < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0))
        rc = err_errno(&e, "serve: standard output");
    if (rc == 0) {
        signal(SIGPIPE, SIG_IGN);
        signal(SIGINT, SIG_IGN); /* Ctrl-C is handled by the workbench */
    }
    if (rc == 0 && fs_is_socket(model)) {
        rc = serve_relay(model, STDIN_FILENO, out, &e);
    } else if (rc == 0) {
        rc = pool_start(0, &e);
        if (rc == 0)
            rc = serve_run(model, STDIN_FILENO, out, DEPTHSCOPE_VERSION, &e);
    }
    pool_stop();
    if (out >= 0)
        close(out);
    cli_release(&a);
    return rc < 0 ? command_fail(&e) : 0;
}
