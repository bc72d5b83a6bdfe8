/* The program's version, and what a build of it is.  DEPTHSCOPE_VERSION is defined by the build,
 * which reads it from src/python/depthscope/_version.py. */
#ifndef DS_CLI_VERSION_H
#define DS_CLI_VERSION_H

#ifndef DEPTHSCOPE_VERSION
#error "DEPTHSCOPE_VERSION is not defined: build with make"
#endif

/* `depthscope --version [--json]`; argc and argv are those of main.  Returns the exit status. */
int version_command(int argc, char **argv);

#endif
