// The version of the headers. tandem_version() and tandem::version() give the version of the library that runs.
#ifndef TANDEM_VERSION_H
#define TANDEM_VERSION_H
#define TANDEM_VERSION_MAJOR 0
#define TANDEM_VERSION_MINOR 1
#define TANDEM_VERSION_PATCH 0
#define TANDEM_VERSION "0.1.0"
#endif
