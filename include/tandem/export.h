// Marks what libtandem exports; everything else is hidden.
#ifndef TANDEM_EXPORT_H
#define TANDEM_EXPORT_H
#if defined(_WIN32)
#define TANDEM_EXPORT
#else
#define TANDEM_EXPORT __attribute__((visibility("default")))
#endif
#endif
