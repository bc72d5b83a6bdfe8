/* The program's version. */
#ifndef DS_CLI_VERSION_H
#define DS_CLI_VERSION_H
#define DEPTHSCOPE_VERSION "0.1.0"
#endif
